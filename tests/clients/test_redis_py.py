"""redis-py, with both of its parsers, and its asyncio half."""

import asyncio
import threading
import time

import pytest

try:
    import redis
    import redis.asyncio
    from redis.connection import HiredisParser, PythonParser
except ImportError as missing:
    raise ImportError(f"{missing}: install the packages of tests/clients/packages.txt") from missing

PARSERS = {"python": PythonParser, "hiredis": HiredisParser}


@pytest.fixture(params=PARSERS)
def connect(target, request):
    """Makes clients, each with a pool of its own."""
    host, port = target.address
    clients = []

    def make(**options):
        pool = redis.ConnectionPool(
            host=host, port=port, parser_class=PARSERS[request.param], socket_timeout=10, **options
        )
        clients.append(redis.Redis(connection_pool=pool))
        return clients[-1]

    yield make
    for client in clients:
        client.connection_pool.disconnect()


def test_values(connect):
    client = connect(client_name="py-client")
    assert client.client_getname() == "py-client"
    value = bytes(range(256)) * 5_000
    assert client.set("k", value)
    assert client.get("k") == value
    assert client.get("none") is None
    client.hset("h", mapping={"a": 1, "b": 2})
    assert client.hgetall("h") == {b"a": b"1", b"b": b"2"}
    client.zadd("z", {"m": 1.5})
    assert client.zrange("z", 0, -1, withscores=True) == [(b"m", 1.5)]
    assert client.xadd("x", {"f": "v"}, id="1-1") == b"1-1"
    assert client.xread({"x": 0}) == [[b"x", [(b"1-1", {b"f": b"v"})]]]
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NONSENSE")


def test_pipelines(connect):
    client = connect()
    pipeline = client.pipeline(transaction=False)
    for number in range(2_000):
        pipeline.set(f"k{number}", number)
        pipeline.get(f"k{number}")
    replies = pipeline.execute()
    assert replies[1::2] == [b"%d" % number for number in range(2_000)]
    with client.pipeline() as transaction:
        transaction.set("m", 1).incr("m").get("m")
        assert transaction.execute() == [True, 2, b"2"]


def test_optimistic_locking(connect):
    client, other = connect(), connect()
    with client.pipeline() as pipeline:
        pipeline.watch("k")
        other.set("k", "theirs")
        pipeline.multi()
        pipeline.set("k", "mine")
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    with client.pipeline() as pipeline:
        pipeline.watch("k")
        pipeline.multi()
        pipeline.set("k", "mine")
        assert pipeline.execute() == [True]


def test_counting_with_watch_by_many_threads(connect):
    """The classical read, modify, write: every increment counts, or WATCH is broken."""
    client = connect()

    def work():
        for _ in range(20):
            client.transaction(lambda pipe: add_one(pipe), "counter")

    def add_one(pipe):
        value = int(pipe.get("counter") or 0)
        pipe.multi()
        pipe.set("counter", value + 1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert client.get("counter") == b"80"


def test_publish_and_subscribe(connect):
    client = connect()
    pubsub = client.pubsub()
    pubsub.subscribe("a", "b")
    pubsub.psubscribe("n.*")
    assert [pubsub.get_message(timeout=20)["type"] for _ in range(3)] == ["subscribe", "subscribe", "psubscribe"]
    client.publish("a", "1")
    client.publish("n.x", "2")
    messages = [pubsub.get_message(timeout=20) for _ in range(2)]
    assert [(message["type"], message["data"]) for message in messages] == [("message", b"1"), ("pmessage", b"2")]
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    pubsub.close()
    assert client.ping()


def test_the_lock(connect):
    client, other = connect(), connect()
    with client.lock("lock", timeout=60):
        assert not other.lock("lock", timeout=60).acquire(blocking=False)
    assert other.lock("lock", timeout=60).acquire(blocking=False)


def test_blocking(connect):
    client, other = connect(), connect()
    results = []
    waiter = threading.Thread(target=lambda: results.append(client.blpop("list", timeout=5)), daemon=True)
    waiter.start()
    time.sleep(0.1)
    other.rpush("list", "v")
    waiter.join(10)
    assert results == [(b"list", b"v")]
    assert client.blpop("none", timeout=0.05) is None


def test_databases(connect):
    clients = [connect(db=number) for number in range(4)]
    for number, client in enumerate(clients):
        client.set("k", number)
    assert [client.get("k") for client in clients] == [b"0", b"1", b"2", b"3"]


def test_scripts(connect):
    client = connect()
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert script(keys=["n"], args=[5]) == 5
    client.script_flush()
    assert script(keys=["n"], args=[5]) == 10


def test_a_monitor(connect):
    client, other = connect(), connect()
    with client.monitor() as monitor:
        other.set("k", "seen")
        commands = iter(monitor.listen())
        assert any(next(commands)["command"] == "SET k seen" for _ in range(20))


def test_many_threads_on_one_pool(connect):
    client = connect()
    wrong = []

    def work(identity):
        for turn in range(100):
            client.set(f"k{identity}", turn)
            if client.get(f"k{identity}") != b"%d" % turn:
                wrong.append((identity, turn))

    threads = [threading.Thread(target=work, args=(identity,), daemon=True) for identity in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []


def test_health_checks_and_reuse(connect):
    client = connect(health_check_interval=1, max_connections=1)
    for _ in range(3):
        assert client.ping()
        time.sleep(0.6)


def test_asyncio(target):
    host, port = target.address

    async def main():
        client = redis.asyncio.Redis(host=host, port=port, socket_timeout=10, client_name="async")
        await client.set("k", "v")
        values = await asyncio.gather(*[client.get("k") for _ in range(50)])
        assert values == [b"v"] * 50
        async with client.pipeline(transaction=True) as pipeline:
            assert await pipeline.set("a", 1).incr("a").execute() == [True, 2]
        pubsub = client.pubsub()
        await pubsub.subscribe("channel")
        assert (await pubsub.get_message(timeout=20))["type"] == "subscribe"
        await client.publish("channel", "m")
        assert (await pubsub.get_message(timeout=20))["data"] == b"m"
        await pubsub.close()
        pop = asyncio.create_task(client.blpop("list", timeout=5))
        await asyncio.sleep(0.1)
        await client.rpush("list", "v")
        assert await pop == (b"list", b"v")
        await client.close()

    asyncio.run(asyncio.wait_for(main(), 30))
