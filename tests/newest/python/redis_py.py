"""redis-py with its default settings. scripts/clients_program.py tells what a program is asked and answers."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import protocol
import redis
from redis.cache import CacheConfig

host, port = sys.argv[1], int(sys.argv[2])

ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}"
PATIENCE = 20.0


def connect(**options):
    if os.environ.get("TESTED_BY_TLS"):
        own = {"ssl_certfile": os.environ.get("TESTED_CERTIFICATE"), "ssl_keyfile": os.environ.get("TESTED_KEY")}
        options = {"ssl": True, **own, **options}
    return redis.Redis(host=host, port=port, **options)


def strings(client, key):
    yield client.set(key, "first")
    yield client.get(key)
    yield client.get(key + ":none")
    yield [client.incr(key + ":count") for _ in range(3)]
    yield client.set(key + ":timed", "second", ex=1000)
    yield client.mget(key, key + ":timed", key + ":none")


def refused(client, key):
    client.set(key, "no number")
    try:
        client.incr(key)
    except redis.ResponseError as error:
        yield str(error)


def hashes(client, key):
    yield client.hset(key, mapping={"one": 1, "two": 2})
    yield sorted(client.hgetall(key).items())
    yield client.hincrby(key, "two", 40)


def lists(client, key):
    yield client.rpush(key, "a", "b", "c")
    yield client.lrange(key, 0, -1)
    yield client.lpop(key)


def sorted_sets(client, key):
    yield client.zadd(key, {"a": 1.5, "b": 2})
    yield client.zrange(key, 0, -1, withscores=True)
    yield client.zscore(key, "a")


def pipeline(client, key):
    with client.pipeline(transaction=False) as batch:
        for number in range(50):
            batch.rpush(key, number)
        batch.lrange(key, 0, -1)
        yield batch.execute()


def transaction(client, key):
    with client.pipeline() as batch:
        yield batch.set(key, 1).incr(key).get(key).execute()


def watch(client, key):
    client.set(key, 5)

    def double(batch):
        value = int(batch.get(key))
        batch.multi()
        batch.set(key, value * 2)
        batch.get(key)

    yield client.transaction(double, key)


def script(client, key):
    add = client.register_script(ADD)
    yield [add(keys=[key], args=[number]) for number in (7, 8)]


FUNCTIONS = "#!lua name=tested\nredis.register_function('tested_add', function(keys, arguments)\n" + (
    "return redis.call('INCRBY', keys[1], arguments[1]) end)"
)


def functions(client, key):
    yield client.function_load(FUNCTIONS, replace=True)
    yield [client.fcall("tested_add", 1, key, number) for number in (7, 8)]


def scan(client, key):
    for number in range(30):
        client.set(f"{key}:{number}", number)
    yield sorted(client.scan_iter(match=key + ":*"))


def big(client, key):
    value = bytes(range(256)) * 4096
    yield client.set(key, value)
    yield client.get(key) == value


def streams(client, key):
    yield [client.xadd(key, {"number": number}, id=f"1-{number}") for number in range(1, 6)]
    yield client.xgroup_create(key, "group", id="0")
    yield client.xreadgroup("group", "one", {key: ">"}, count=3)
    yield client.xack(key, "group", "1-1", "1-2")
    yield client.xpending(key, "group")
    yield client.xreadgroup("group", "two", {key: ">"}, block=20)
    yield client.xreadgroup("group", "two", {key: ">"}, block=20)
    yield client.xread({key: "1-4"}, block=20)
    yield client.xrange(key)


def greeting(client, key):
    """Every way to begin a connection: RESP, names, users, databases, wrong passwords."""
    for options in ({"protocol": 2}, {"protocol": 3}, {"client_name": "tested"}, {"db": 3}, {"protocol": 3, "db": 3},
                    {"username": "tested", "password": "secret"},
                    {"username": "tested", "password": "wrong", "retry": None}):  # fmt: skip
        with connect(**options) as own:
            try:
                own.set(key, options.get("username", "nobody"))
                yield [own.get(key), client.get(key), own.client_getname(), own.acl_whoami()]
            except redis.RedisError as error:
                yield str(error)


def concurrent(_client, key):
    """One client in many threads: a pool of connections."""

    def work(number):
        client.set(f"{key}:{number}", number)
        return client.get(f"{key}:{number}"), client.incr(key) > 0

    with connect() as client, ThreadPoolExecutor(10) as threads:
        yield list(threads.map(work, range(100)))


def blocked(client):
    return client.info("clients")["blocked_clients"]


def wait_until(holds):
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)


def abandoned(client, key):
    """A client that goes away while it blocks takes nothing with it."""
    own = connect()
    waiting = own.connection_pool.get_connection()
    waiting.send_command("BLPOP", key, 0)
    wait_until(lambda: blocked(client) == 1)
    yield blocked(client)
    waiting.disconnect()
    own.close()
    wait_until(lambda: blocked(client) == 0)
    yield [client.rpush(key, "kept"), client.lrange(key, 0, -1)]


def timeouts(_client, key):
    """What comes after a reply that nobody waits for any more is the right one."""
    with connect(socket_timeout=1.0, retry=None) as own:
        try:
            yield own.blpop(key, timeout=4)
        except redis.TimeoutError:
            yield "timed out"
        yield [own.set(key + ":after", "mine"), own.get(key + ":after"), own.echo(key)]


def blocking(client, key):
    yield client.blpop(key, timeout=1)
    client.rpush(key, "there")
    yield client.blpop(key, timeout=20)
    other = connect()
    push = threading.Timer(0.1, other.rpush, (key, "pushed"))
    push.start()
    yield client.blpop(key, timeout=20)
    push.join()
    other.close()


subscribers = {}


def message(subscriber):
    """The next thing that comes, whatever it is."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if came := subscriber.get_message(timeout=1):
            return [came["type"], came["channel"], came["data"]]
    return "nothing came"


def subscribe(client, key):
    subscriber = subscribers[key] = client.pubsub()
    subscriber.subscribe(key)
    yield message(subscriber)
    yield client.publish(key, "hello")
    yield message(subscriber)


def unsubscribe(_client, key):
    subscriber = subscribers.pop(key.replace("unsubscribe", "subscribe"))
    subscriber.unsubscribe()
    yield message(subscriber)
    subscriber.close()


def patterns(client, key):
    with client.pubsub() as subscriber:
        subscriber.psubscribe(key + ":*")
        yield message(subscriber)
        yield client.publish(key + ":one", "hello")
        yield message(subscriber)
        subscriber.punsubscribe()
        yield message(subscriber)


def shards(client, key):
    with client.pubsub() as subscriber:
        subscriber.ssubscribe(key)
        yield message(subscriber)
        yield client.spublish(key, "hello")
        yield message(subscriber)


def caching(client, key):
    client.set(key, "old")
    with connect(protocol=3, cache_config=CacheConfig()) as cached:
        try:
            cached.ping()
        except redis.ConnectionError as error:
            if "client-side caching is supported by" in str(error):
                raise protocol.Unsupported(error) from None
            raise
        yield [cached.get(key) for _ in range(3)]
        client.set(key, "new")
        end = time.monotonic() + PATIENCE
        while cached.get(key) != b"new" and time.monotonic() < end:
            time.sleep(0.01)
        yield [cached.get(key), cached.get_cache().size]


# What servers have had since Redis 7.0, and commands of modules: each as words, % for the key. DELIFEQ, which Headgate
# gives to all servers, is not among them.
NEWER = (
    "HSET % one 1 two 2|HEXPIRE % 1000 FIELDS 1 one|HPERSIST % FIELDS 1 one|HGETEX % EX 100 FIELDS 1 two"
    "|HGETDEL % FIELDS 1 two|HSETEX % EX 100 FIELDS 1 three 3|HTTL % FIELDS 1 none|SET %:s old|SET %:s new IFEQ old"
    "|SET %:s other IFEQ old|GET %:s|DELEX %:s IFEQ other|EXISTS %:s|DIGEST %:s"
    "|MSETEX 1 %:m v EX 100|VADD %:v VALUES 2 1 2 a|VADD %:v VALUES 2 2 1 b|VCARD %:v|VSIM %:v VALUES 2 1 2 COUNT 1"
    "|VDIM %:v|XADD %:x 1-1 f v|XDELEX %:x KEEPREF IDS 1 1-1|XACKDEL %:x g IDS 1 1-1|BITOP ONE %:b %:s %:s"
    "|COMMANDLOG LEN slow|COMMANDLOG RESET slow"
    "|CLUSTERSCAN 0|FUNCTION STATS|JSON.SET %:j $ 1|JSON.GET %:j|FT._LIST|BF.ADD %:f a|BF.EXISTS %:f a"
    "|GRAPH.QUERY %:g CREATE(:N{v:1})|GRAPH.LIST|GRAPH.DELETE %:g"
)


def newer(client, key):
    """Replies as they come, errors too: a server that has it not says so in the same words."""
    for words in NEWER.split("|"):
        command = words.replace("%", key).split()
        try:
            reply = client.execute_command(*command)
        except redis.RedisError as error:
            reply = error
        # How long a query of a graph took is in its reply.
        yield words if command[0] == "GRAPH.QUERY" and not isinstance(reply, Exception) else [words, reply]


def locks(client, key):
    lock = client.lock(key, timeout=10)
    yield lock.acquire()
    yield client.lock(key, timeout=10).acquire(blocking=False)
    yield [lock.owned(), lock.extend(5), lock.reacquire()]
    yield lock.release()
    with client.lock(key, timeout=10, blocking_timeout=5) as again:
        yield again.locked()
    yield client.exists(key)


def killed(client, key):
    """Until the server has been killed and is there again, without its data."""
    client.set(key, "before")
    lost, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if client.get(key) is None:
                break
        except redis.RedisError:
            lost += 1
        time.sleep(0.01)
    yield f"lost={lost}"
    yield [client.set(key + ":after", "there"), client.get(key + ":after"), client.get(key)]


protocol.serve(
    redis.__version__,
    connect,
    [strings, refused, hashes, lists, sorted_sets, pipeline, transaction, watch, script, functions, scan, big, streams]
    + [greeting, concurrent, abandoned, timeouts, blocking, subscribe, unsubscribe, patterns, shards, caching]
    + [newer, locks, killed],
    redis.Redis.close,
)
