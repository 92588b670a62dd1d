"""The admin port."""

import contextlib
import time

import pytest

from harness.admin import audits, await_empty, stats
from harness.resp import OK, PONG, Error, encode, wait_for


@pytest.fixture
def headgate(redis, make_headgate):
    return make_headgate(redis, pool="shared", upstream_password="")


@pytest.fixture
def admin(headgate):
    with headgate.admin() as client:
        yield client


def test_stats_count(headgate):
    await_empty(headgate)
    before = stats(headgate)
    clients = [headgate.connect() for _ in range(5)]
    for client in clients:
        client.send(encode("ECHO", "x") * 10)
        client.read_many(10)
    after = stats(headgate)
    assert int(after["clients_connected"]) - int(before["clients_connected"]) == 5
    assert int(after["clients_accepted_total"]) - int(before["clients_accepted_total"]) == 5
    assert int(after["requests_total"]) - int(before["requests_total"]) == 50
    assert int(after["client_bytes_in_total"]) - int(before["client_bytes_in_total"]) == 50 * len(encode("ECHO", "x"))
    assert int(after["client_bytes_out_total"]) - int(before["client_bytes_out_total"]) == 50 * len(b"$1\r\nx\r\n")
    for client in clients:
        client.close()
    wait_for(lambda: stats(headgate)["clients_connected"] == before["clients_connected"], what="the gauge to fall")


def test_shutdown(redis, make_headgate):
    headgate = make_headgate(redis)
    client = headgate.connect()
    assert client("PING") == PONG
    with headgate.admin() as admin:
        admin.request("SHUTDOWN")
        assert admin.read() == OK
    assert headgate.wait() == 0
    client.assert_closed()
    assert len(audits(headgate, "SHUTDOWN, by 127.0.0.1:")) == 1


GARBAGE = [
    b"*x\r\n", b"*1\r\n+PING\r\n", b"\0" * 1000 + b"\r\n", b"x" * 200_000, b"*3\r\n$-5\r\n", b"*1000000\r\n$1\r\nx\r\n",
    b'STATS "open\r\n', b"*1\r\n$100000000\r\n" + b"x" * 100_000,
]


def test_garbage_on_the_admin_port(headgate):
    client = headgate.connect()
    for garbage in GARBAGE:
        with headgate.admin() as admin, contextlib.suppress(OSError):
            admin.send(garbage)
            admin.shutdown_write()
            admin.read_to_end()
        with headgate.admin() as admin:
            assert admin("PING") == client("PING") == PONG


def test_an_admin_that_never_reads_blocks_no_client(headgate):
    clients = [headgate.connect() for _ in range(200)]
    for client in clients:
        assert client("PING") == PONG
    with headgate.admin() as admin:
        admin.socket.setblocking(False)
        data = (encode("CLIENTS") + encode("STATS")) * 500
        deadline = time.monotonic() + 1.0
        while data and time.monotonic() < deadline:
            try:
                data = data[admin.socket.send(data) :]
            except BlockingIOError:
                time.sleep(0.01)
        for client in clients[:50]:
            assert client("PING") == PONG
    with headgate.admin() as another:
        assert another("PING") == PONG


def test_the_admin_port_answers_while_redis_is_away(redis, headgate, admin):
    redis.kill()
    for verb in ("PING", "STATS", "CLIENTS", "LANES", "CONFIG", "HELP"):
        assert not isinstance(admin(verb), Error), verb
    for command in ("NONSENSE",), ("SET", "k", "v"), ("STATS", "a", "b"), ("CLIENTS", "x"), ("FLUSHALL",), ("SHUTDOWN", "x"):
        assert isinstance(admin(*command), Error), command
