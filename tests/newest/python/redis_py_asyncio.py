"""redis-py's asyncio client with its default settings. scripts/clients_program.py tells what a program is asked."""

import asyncio
import os
import sys
import time

import redis
import redis.asyncio

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}"
PATIENCE = 20.0


def connect(**options):
    if os.environ.get("TESTED_BY_TLS"):
        own = {"ssl_certfile": os.environ.get("TESTED_CERTIFICATE"), "ssl_keyfile": os.environ.get("TESTED_KEY")}
        options = {"ssl": True, **own, **options}
    return redis.asyncio.Redis(host=host, port=port, **options)


async def strings(client, key):
    yield await client.set(key, "first")
    yield await client.get(key)
    yield await client.get(key + ":none")
    yield [await client.incr(key + ":count") for _ in range(3)]
    yield await client.set(key + ":timed", "second", ex=1000)
    yield await client.mget(key, key + ":timed", key + ":none")


async def pipeline(client, key):
    async with client.pipeline(transaction=False) as batch:
        for number in range(50):
            batch.rpush(key, number)
        batch.lrange(key, 0, -1)
        yield await batch.execute()


async def transaction(client, key):
    async with client.pipeline() as batch:
        yield await batch.set(key, 1).incr(key).get(key).execute()


async def watch(client, key):
    await client.set(key, 5)
    async with client.pipeline() as batch:
        await batch.watch(key)
        value = int(await batch.get(key))
        batch.multi()
        batch.set(key, value * 2)
        batch.get(key)
        yield await batch.execute()


async def script(client, key):
    add = client.register_script(ADD)
    yield [await add(keys=[key], args=[number]) for number in (7, 8)]


async def scan(client, key):
    for number in range(30):
        await client.set(f"{key}:{number}", number)
    yield sorted([found async for found in client.scan_iter(match=key + ":*")])


async def greeting(client, key):
    for options in ({"protocol": 2}, {"protocol": 3}, {"client_name": "tested"}, {"db": 3}, {"protocol": 3, "db": 3},
                    {"username": "tested", "password": "secret"},
                    {"username": "tested", "password": "wrong", "retry": None}):  # fmt: skip
        async with connect(**options) as own:
            try:
                await own.set(key, options.get("username", "nobody"))
                yield [await own.get(key), await client.get(key), await own.client_getname(), await own.acl_whoami()]
            except redis.RedisError as error:
                yield str(error)


async def concurrent(client, key):
    async def work(number):
        await client.set(f"{key}:{number}", number)
        return await client.get(f"{key}:{number}"), await client.incr(key) > 0

    tls = {"connection_class": redis.asyncio.SSLConnection} if os.environ.get("TESTED_BY_TLS") else {}
    pool = redis.asyncio.BlockingConnectionPool(host=host, port=port, max_connections=10, **tls)
    async with redis.asyncio.Redis.from_pool(pool) as client:
        yield await asyncio.gather(*[work(number) for number in range(100)])


async def wait_until(client, blocked):
    end = time.monotonic() + PATIENCE
    while (await client.info("clients"))["blocked_clients"] != blocked and time.monotonic() < end:
        await asyncio.sleep(0.005)


async def abandoned(client, key):
    """A task that is cancelled while it blocks takes nothing with it."""
    async with connect() as own:
        waiting = asyncio.ensure_future(own.blpop(key, 0))
        await wait_until(client, 1)
        waiting.cancel()
        try:
            yield await waiting
        except asyncio.CancelledError:
            yield "cancelled"
        await wait_until(client, 0)
        yield [await client.rpush(key, "kept"), await client.lrange(key, 0, -1)]
        yield await own.echo("mine")


async def timeouts(_client, key):
    async with connect(socket_timeout=1.0, retry=None) as own:
        try:
            yield await own.blpop(key, timeout=4)
        except redis.TimeoutError:
            yield "timed out"
        yield [await own.set(key + ":after", "mine"), await own.get(key + ":after"), await own.echo(key)]


async def blocking(client, key):
    yield await client.blpop(key, timeout=1)
    await client.rpush(key, "there")
    yield await client.blpop(key, timeout=20)
    async with connect() as other:

        async def push():
            await asyncio.sleep(0.1)
            await other.rpush(key, "pushed")

        pushing = asyncio.ensure_future(push())
        yield await client.blpop(key, timeout=20)
        await pushing


subscribers = {}


async def message(subscriber):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if came := await subscriber.get_message(timeout=1):
            return [came["type"], came["channel"], came["data"]]
    return "nothing came"


async def subscribe(client, key):
    subscriber = subscribers[key] = client.pubsub()
    await subscriber.subscribe(key)
    yield await message(subscriber)
    yield await client.publish(key, "hello")
    yield await message(subscriber)


async def unsubscribe(_client, key):
    subscriber = subscribers.pop(key.replace("unsubscribe", "subscribe"))
    await subscriber.unsubscribe()
    yield await message(subscriber)
    await subscriber.aclose()


async def patterns(client, key):
    async with client.pubsub() as subscriber:
        await subscriber.psubscribe(key + ":*")
        yield await message(subscriber)
        yield await client.publish(key + ":one", "hello")
        yield await message(subscriber)
        await subscriber.punsubscribe()
        yield await message(subscriber)


async def shards(client, key):
    async with client.pubsub() as subscriber:
        await subscriber.ssubscribe(key)
        yield await message(subscriber)
        yield await client.spublish(key, "hello")
        yield await message(subscriber)


async def cluster_mode(_client, key):
    """It learns where the slots are, and goes to the node of each key."""
    names = [f"{key}:{number}" for number in range(20)]
    async with redis.asyncio.RedisCluster(host=host, port=port) as cluster:
        yield await asyncio.gather(*(cluster.set(name, name) for name in names))
        yield await asyncio.gather(*(cluster.get(name) for name in names))
        async with cluster.pipeline() as batch:
            for name in names:
                batch.append(name, "!").get(name)
            yield await batch.execute()
        yield await cluster.mget_nonatomic(names)
        yield await cluster.register_script(ADD)(keys=[f"{{{key}}}b"], args=[7])
        yield await cluster.blpop([f"{{{key}}}c"], timeout=1)
        yield sorted([name async for name in cluster.scan_iter(match=key + ":*")])
        yield await cluster.delete(*names)


async def locks(client, key):
    lock = client.lock(key, timeout=10)
    yield await lock.acquire()
    yield await client.lock(key, timeout=10).acquire(blocking=False)
    yield [await lock.owned(), await lock.extend(5)]
    yield await lock.release()
    yield await client.exists(key)


async def killed(client, key):
    await client.set(key, "before")
    lost, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if await client.get(key) is None:
                break
        except redis.RedisError:
            lost += 1
        await asyncio.sleep(0.01)
    yield f"lost={lost}"
    yield [await client.set(key + ":after", "there"), await client.get(key + ":after"), await client.get(key)]


FEATURES = {
    feature.__name__: feature
    for feature in [strings, pipeline, transaction, watch, script, scan, greeting, concurrent, abandoned, timeouts]
    + [blocking, subscribe, unsubscribe, patterns, shards, cluster_mode, locks, killed]
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
    clients = [connect() for _ in range(count)]
    print(f"version {redis.__version__}\nready", flush=True)
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
        await client.aclose()


asyncio.run(main())
