"""redis-py, with both of its parsers, and its asyncio half."""

import asyncio
import threading

import pytest
import redis
import redis.asyncio
from redis.connection import HiredisParser, PythonParser


@pytest.fixture(params=[PythonParser, HiredisParser])
def connect(target, request):
    """Makes clients, each with a pool of its own."""
    host, port = target.address
    clients = []

    def make(**options):
        pool = redis.ConnectionPool(host=host, port=port, parser_class=request.param, socket_timeout=20, **options)
        clients.append(redis.Redis(connection_pool=pool))
        return clients[-1]

    yield make
    for client in clients:
        client.connection_pool.disconnect()


def in_threads(work, count):
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_values_pipelines_and_scripts(connect):
    client = connect(client_name="py-client", db=2)
    assert client.client_getname() == "py-client"
    value = bytes(range(256)) * 5_000
    assert client.set("k", value) and client.get("k") == value
    client.zadd("z", {"m": 1.5})
    assert client.zrange("z", 0, -1, withscores=True) == [(b"m", 1.5)]
    client.xadd("x", {"f": "v"}, id="1-1")
    assert client.xread({"x": 0}) == [[b"x", [(b"1-1", {b"f": b"v"})]]]
    with client.pipeline(transaction=False) as pipeline:
        for number in range(2_000):
            pipeline.set(f"k{number}", number).get(f"k{number}")
        assert pipeline.execute()[1::2] == [b"%d" % number for number in range(2_000)]
    with client.pipeline() as transaction:
        assert transaction.set("m", 1).incr("m").get("m").execute() == [True, 2, b"2"]
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert script(keys=["n"], args=[5]) == 5
    client.script_flush()
    assert script(keys=["n"], args=[5]) == 10
    with client.monitor() as monitor:
        connect().set("k", "seen")
        commands = iter(monitor.listen())
        assert any(next(commands)["command"] == "SET k seen" for _ in range(20))


def test_counting_with_watch_by_many_threads(connect):
    """The classical read, modify, write: every increment counts, or WATCH is broken."""
    client = connect()

    def add_one(pipe):
        value = int(pipe.get("counter") or 0)
        pipe.multi()
        pipe.set("counter", value + 1)

    def work(number):
        for turn in range(20):
            client.transaction(add_one, "counter")
            client.set(f"k{number}", turn)
            assert client.get(f"k{number}") == b"%d" % turn

    in_threads(work, 4)
    assert client.get("counter") == b"80"


def test_messages_locks_and_blocking(connect):
    client, other = connect(), connect()
    pubsub = client.pubsub()
    pubsub.subscribe("a")
    pubsub.psubscribe("n.*")
    assert [pubsub.get_message(timeout=20)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    client.publish("a", "1")
    client.publish("n.x", "2")
    messages = [pubsub.get_message(timeout=20) for _ in range(2)]
    assert [(message["type"], message["data"]) for message in messages] == [("message", b"1"), ("pmessage", b"2")]
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    pubsub.close()
    with client.lock("lock", timeout=60):
        assert not other.lock("lock", timeout=60).acquire(blocking=False)
    assert other.lock("lock", timeout=60).acquire(blocking=False)
    pushing = threading.Timer(0.1, other.rpush, ("list", "v"))
    pushing.start()
    assert client.blpop("list", timeout=10) == (b"list", b"v")
    assert client.blpop("none", timeout=0.05) is None
    pushing.join()


def test_asyncio(target):
    host, port = target.address

    async def main():
        client = redis.asyncio.Redis(host=host, port=port, socket_timeout=10, client_name="async")
        await client.set("k", "v")
        assert await asyncio.gather(*[client.get("k") for _ in range(50)]) == [b"v"] * 50
        pubsub = client.pubsub()
        await pubsub.subscribe("channel")
        assert (await pubsub.get_message(timeout=20))["type"] == "subscribe"
        await client.publish("channel", "m")
        assert (await pubsub.get_message(timeout=20))["data"] == b"m"
        await pubsub.close()
        await client.close()

    asyncio.run(asyncio.wait_for(main(), 30))
