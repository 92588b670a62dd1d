"""Slow, greedy, idle and too many clients: bounded memory, and nobody else waits."""

import contextlib
import resource
import socket
import threading
import time

import pytest

from harness.admin import await_empty, await_outage, stats
from harness.http import ask
from harness.resp import OK, PONG, Closed, encode, wait_for
from harness.servers import free_port, sanitizer_overhead

MEBIBYTE = 1 << 20
VALUE = b"v" * MEBIBYTE


def test_a_subscriber_that_does_not_read(redis, make_headgate, pool):
    """What it does not read stays in Redis, whose own limit decides; it is there when the subscriber reads at last."""
    headgate = make_headgate(redis, pool=pool, client_output_limit="1mb")
    client, other = headgate.connect(), headgate.connect()
    client("SUBSCRIBE", "a")
    with redis.connect() as publisher:
        publisher("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0")
        for _ in range(64):
            assert publisher.pipeline([("PUBLISH", "a", VALUE)]) == [1]
    assert headgate.peak_rss() < 64 * MEBIBYTE + sanitizer_overhead()
    assert other("PING") == PONG
    for _ in range(64):
        assert client.read() == [b"message", b"a", VALUE]


def test_a_request_that_never_ends_takes_no_memory(redis, make_headgate, pool):
    """100 MiB of a request whose end does not come."""
    headgate = make_headgate(redis, pool=pool)
    client, other = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (300 * MEBIBYTE))
    for _ in range(100):
        client.send(VALUE)
    assert headgate.peak_rss() < 64 * MEBIBYTE + sanitizer_overhead()
    assert other("EXISTS", "k") == 0
    client.close()
    assert other("EXISTS", "k") == 0


def test_memory_comes_back(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    with headgate.connect() as client:
        assert client("PING") == PONG
    before = headgate.rss()
    clients = [headgate.connect() for _ in range(300)]
    for client in clients:
        client.send(encode("SET", "k", b"v" * 60_000) + encode("GET", "k") * 5)
    for client in clients:
        client.read_many(6)
        client.close()
    limit = 2 * before + 8 * MEBIBYTE + sanitizer_overhead()
    wait_for(lambda: headgate.rss() < limit, 30, f"RSS below {limit >> 20} MiB")


def test_idle_clients_are_small(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", max_clients=5_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8_192, hard), hard))
    try:
        warm = [headgate.connect() for _ in range(50)]
        before = headgate.rss()
        clients = [headgate.connect() for _ in range(1_000)]
        for client in clients:
            assert client("PING") == PONG
        per_client = (headgate.rss() - before) / len(clients)
        assert per_client < 8192 + sanitizer_overhead() / len(clients), per_client
        for client in clients + warm:
            client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_max_clients(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, max_clients=2)
    await_empty(headgate)
    one, two = headgate.connect(), headgate.connect()
    assert one("PING") == two("PING") == PONG
    three = headgate.connect()
    assert three.read_to_end() == b"-ERR max number of clients reached\r\n"
    assert one("PING") == PONG
    two.close()
    wait_for(headgate.serves, what="the free place to be given")


def test_idle_clients_are_closed(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, client_idle_timeout="3s")
    idle, busy, blocked, silent, half, subscriber = (headgate.connect() for _ in range(6))
    assert subscriber("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    half.send(b"*2\r\n$4\r\nECHO\r\n$5\r\nhe")
    assert idle("PING") == PONG
    blocked.request("BLPOP", "none", "4.5")
    start = time.monotonic()
    while time.monotonic() - start < 4:
        assert busy("PING") == PONG
        time.sleep(0.05)
    assert not busy.is_closed()
    wait_for(lambda: idle.is_closed() and silent.is_closed(), what="the idle ones to be closed")
    half.assert_closed()
    assert repr(blocked.read()) == "NIL_ARRAY"
    # Who waits for something is not idle, as in Redis.
    assert busy("PUBLISH", "a", "m") == 1 and subscriber.read() == [b"message", b"a", b"m"]


def test_max_request(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, max_request="1mb")
    client, other = headgate.connect(), headgate.connect()
    assert client.pipeline([("SET", "k", VALUE)]) == [OK]
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (MEBIBYTE + 1))
    assert client.read_to_end() == b"-ERR Protocol error: invalid bulk length\r\n"
    assert other("STRLEN", "k") == MEBIBYTE


@contextlib.contextmanager
def knocking(address, count=100):
    """So many others come at once, again and again; what they are told."""
    told, ended = [], threading.Event()

    def knock():
        while not ended.is_set():
            crowd = [socket.create_connection(address, timeout=60) for _ in range(count)]
            for visitor in crowd:
                with visitor, contextlib.suppress(ConnectionError):
                    told.append(visitor.recv(100))

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield told
    finally:
        ended.set()
        thread.join(120)


def let_in(headgate, count):
    """So many clients. One may be refused for a moment, until idle lanes have made room."""
    clients = []
    while len(clients) < count:
        client = headgate.connect()
        with contextlib.suppress(Closed, OSError):
            clients += [client] if client("PING") == PONG else []
    return clients


def begin_all(clients):
    for client in clients:
        client.request("MULTI")
    assert [client.read() for client in clients] == [OK] * len(clients)


@pytest.mark.parametrize("pool", ("shared", "session"))
def test_descriptors_are_kept_for_lanes_operators_and_probes(redis, make_headgate, pool):
    """ulimit -n of 64 and a hundred who knock all the time: as many are let in as may have a lane of their own, which
    they have, all at once, also behind idle lanes of others, and after a restart of Redis. Operators are let in and
    obeyed, and a probe has its answer."""
    headgate = make_headgate(redis, pool=pool, start=False, tls=False)
    headgate.http_port = free_port()
    headgate.write_config(http=f"127.0.0.1:{headgate.http_port}")
    headgate.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    await_empty(headgate)
    most = int(stats(headgate)["clients_max"])
    assert most >= 5 and f"max_clients is lowered from 10000 to {most}," in headgate.log()
    for database in (1, 2):
        before = let_in(headgate, most)
        assert [client("SELECT", database) for client in before] == [OK] * most
        begin_all(before)
        for client in before:
            assert client("EXEC") == []
            client.close()
        await_empty(headgate)
    clients = let_in(headgate, most)
    begin_all(clients)
    with headgate.admin() as present, knocking(headgate.address) as told:
        for is_restarted in (False, True):
            with headgate.admin() as newcomer:
                for operator in (present, newcomer):
                    assert operator("CONFIG", "SET", "max_clients", 5000) == OK
                    assert operator("RELOAD") == OK and operator("KILL", "name=nobody") == 0
            assert ask(headgate, "/live").status == 200
            assert [client("EXEC") for client in clients] == [[]] * most
            if pool == "shared" and not is_restarted:
                redis.kill()
                await_outage(headgate)
                redis.start()
            begin_all(clients)
        wait_for(lambda: len(told) >= 100, what="a hundred to be told")
    assert set(told) <= {b"-ERR max number of clients reached\r\n", b""}
    assert stats(headgate)["clients_max"] == str(most)
    clients.pop().close()
    wait_for(headgate.serves, what="the next one to have the place")
