"""redis-py with its default settings. scripts/clients_program.py tells what a program is asked and answers."""

import os
import sys
import threading
import time

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


def scan(client, key):
    for number in range(30):
        client.set(f"{key}:{number}", number)
    yield sorted(client.scan_iter(match=key + ":*"))


def big(client, key):
    value = bytes(range(256)) * 4096
    yield client.set(key, value)
    yield client.get(key) == value


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


protocol.serve(
    redis.__version__,
    connect,
    [strings, refused, hashes, lists, sorted_sets, pipeline, transaction, watch, script, scan, big]
    + [blocking, subscribe, unsubscribe, caching],
    redis.Redis.close,
)
