"""valkey-glide, the asynchronous client of Valkey with a core in Rust, with its default settings.
scripts/clients_program.py tells what a program is asked."""

import asyncio
import importlib.metadata
import sys
import time

from glide import (
    Batch,
    ClusterBatch,
    ExpirySet,
    ExpiryType,
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    GlideError,
    Logger,
    LogLevel,
    NodeAddress,
    ProtocolVersion,
    Script,
    ServerCredentials,
)

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}"
PATIENCE = 20.0
MILLISECONDS = 20000


async def connect(**options):
    return await GlideClient.create(GlideClientConfiguration([NodeAddress(host, port)], **options))


async def strings(client, key):
    yield await client.set(key, "first")
    yield await client.get(key)
    yield await client.get(key + ":none")
    yield [await client.incr(key + ":count") for _ in range(3)]
    yield await client.set(key + ":timed", "second", expiry=ExpirySet(ExpiryType.SEC, 1000))
    yield await client.mget([key, key + ":timed", key + ":none"])


async def pipeline(client, key):
    batch = Batch(is_atomic=False)
    for number in range(50):
        batch.rpush(key, [str(number)])
    yield await client.exec(batch.lrange(key, 0, -1), raise_on_error=True)


async def transaction(client, key):
    yield await client.exec(Batch(is_atomic=True).set(key, "1").incr(key).get(key), raise_on_error=True)


async def watch(client, key):
    await client.set(key, "5")
    await client.watch([key])
    value = int(await client.get(key))
    yield await client.exec(Batch(is_atomic=True).set(key, str(value * 2)).get(key), raise_on_error=True)


async def script(client, key):
    add = Script(ADD)
    yield [await client.invoke_script(add, keys=[key], args=[number]) for number in ("7", "8")]


async def scan(client, key):
    for number in range(30):
        await client.set(f"{key}:{number}", str(number))
    found, cursor = set(), b"0"
    while True:
        cursor, names = await client.scan(cursor, match=key + ":*")
        found.update(names)
        if cursor == b"0":
            break
    yield sorted(found)


async def greeting(client, key):
    """Every way to begin a connection: protocols, names, users, databases, a wrong password."""
    ways = [{"protocol": ProtocolVersion.RESP2}, {"client_name": "tested"}, {"database_id": 3}]
    for password in ("secret", "wrong"):
        ways.append({"credentials": ServerCredentials(username="tested", password=password)})
    for options in ways:
        try:
            own = await connect(**options)
        except GlideError as error:
            yield str(error).split("WRONGPASS")[-1]
            continue
        await own.set(key, "mine")
        names = [await own.client_getname(), await own.custom_command(["ACL", "WHOAMI"])]
        yield [await own.get(key), await client.get(key), *names]
        await own.close()


async def concurrent(client, key):
    async def work(number):
        await client.set(f"{key}:{number}", str(number))
        return await client.get(f"{key}:{number}"), await client.incr(key) > 0

    yield await asyncio.gather(*[work(number) for number in range(100)])


async def wait_until(client, blocked):
    end = time.monotonic() + PATIENCE
    while f"blocked_clients:{blocked}".encode() not in await client.info() and time.monotonic() < end:
        await asyncio.sleep(0.005)


async def abandoned(client, key):
    """A client that is closed while it blocks takes nothing with it."""
    own = await connect(request_timeout=30000)
    waiting = asyncio.ensure_future(own.blpop([key], 0))
    await wait_until(client, 1)
    await own.close()
    try:
        yield await waiting
    except GlideError:
        yield "closed"
    await wait_until(client, 0)
    yield [await client.rpush(key, ["kept"]), await client.lrange(key, 0, -1)]


async def blocking(client, key):
    yield await client.blpop([key], 0.1)
    await client.rpush(key, ["there"])
    yield await client.blpop([key], 20)
    other = await connect()

    async def push():
        await asyncio.sleep(0.1)
        await other.rpush(key, ["pushed"])

    pushing = asyncio.ensure_future(push())
    yield await client.blpop([key], 20)
    await pushing
    await other.close()


async def message(subscriber):
    came = await asyncio.wait_for(subscriber.get_pubsub_message(), PATIENCE)
    return [came.message, came.channel, came.pattern]


subscribers = {}


async def subscribe(client, key):
    subscriber = subscribers[key] = await connect()
    await subscriber.subscribe({key}, MILLISECONDS)
    yield await client.publish("hello", key)
    yield await message(subscriber)


async def unsubscribe(_client, key):
    subscriber = subscribers.pop(key.replace("unsubscribe", "subscribe"))
    await subscriber.unsubscribe({key.replace("unsubscribe", "subscribe")}, MILLISECONDS)
    yield await subscriber.ping()
    await subscriber.close()


async def patterns(client, key):
    subscriber = await connect()
    await subscriber.psubscribe({key + ":*"}, MILLISECONDS)
    yield await client.publish("hello", key + ":one")
    yield await message(subscriber)
    await subscriber.punsubscribe({key + ":*"}, MILLISECONDS)
    await subscriber.close()


async def cluster_mode(_client, key):
    """It learns where the slots are, and goes to the node of each key."""
    names = [f"{key}:{number}" for number in range(20)]
    cluster = await GlideClusterClient.create(GlideClusterClientConfiguration([NodeAddress(host, port)]))
    yield await asyncio.gather(*(cluster.set(name, name) for name in names))
    yield await asyncio.gather(*(cluster.get(name) for name in names))
    tag = f"{{{key}}}"
    yield await cluster.exec(ClusterBatch(is_atomic=True).set(tag + "a", "1").incr(tag + "a"), raise_on_error=True)
    batch = ClusterBatch(is_atomic=False)
    for name in names:
        batch.append(name, "!").get(name)
    yield await cluster.exec(batch, raise_on_error=True)
    yield await cluster.mget(names)
    yield await cluster.invoke_script(Script(ADD), keys=[tag + "b"], args=["7"])
    yield await cluster.blpop([tag + "c"], 0.1)
    yield await cluster.delete(names)
    await cluster.close()


async def killed(client, key):
    await client.set(key, "before")
    lost, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if await client.get(key) is None:
                break
        except GlideError:
            lost += 1
        await asyncio.sleep(0.01)
    yield f"lost={lost}"
    yield [await client.set(key + ":after", "there"), await client.get(key + ":after"), await client.get(key)]


FEATURES = {
    feature.__name__: feature
    for feature in [strings, pipeline, transaction, watch, script, scan, greeting, concurrent, abandoned, blocking]
    + [subscribe, unsubscribe, patterns, cluster_mode, killed]
}


async def outcome(name, client, key):
    if name not in FEATURES:
        return ["unsupported"]
    lines = []
    try:
        async for reply in FEATURES[name](client, key):
            lines.append(f"reply {reply!r}")
    except Exception as error:
        lines.append("error " + f"{type(error).__name__}: {error}".replace("\n", " "))
    return lines


async def main():
    Logger.set_logger_config(LogLevel.OFF)  # it writes to the output
    clients = [await connect() for _ in range(count)]
    print(f"version {importlib.metadata.version('valkey-glide')}\nready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        _, name, at_once = line.split()
        runs = [outcome(name, client, f"newest:{name}:{number}") for number, client in enumerate(clients)]
        if at_once == "together":
            outcomes = await asyncio.gather(*runs)
        else:
            outcomes = [await run for run in runs]
        for lines in outcomes:
            for text in lines:
                print(text)
        print("done", flush=True)
    for client in clients:
        await client.close()


asyncio.run(main())
