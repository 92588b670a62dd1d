"""Things that break while there is much to do. What is under way may be lost with its connection; nothing else is."""

import os
import pathlib
import random
import resource
import socket
import threading
import time

import pytest

from harness.admin import stats
from harness.fake_redis import FakeRedis
from harness.resp import OK, PONG, Error, encode, wait_for
from harness.servers import elapsed, free_port

MEBIBYTE = 1 << 20


def test_a_hanging_redis_takes_no_memory(redis, make_headgate, stopped):
    """Twenty clients have 10 MB each to say. They are not read from while nobody takes it; then all of it arrives."""
    headgate = make_headgate(redis)
    request = encode("SET", "key", b"v" * 60_000) * 40
    clients = [headgate.connect() for _ in range(20)]
    before = headgate.rss()

    def talk(client):
        for _ in range(4):
            client.send(request)

    with stopped(redis):
        talkers = [threading.Thread(target=talk, args=(client,), daemon=True) for client in clients]
        for talker in talkers:
            talker.start()
        time.sleep(2)
        grown = headgate.rss() - before
    assert grown < 48 * MEBIBYTE, f"{grown >> 20} MiB"
    for client in clients:
        assert client.read_many(160) == [OK] * 160


def test_nobody_starves_behind_a_slow_redis(redis, make_headgate):
    """More than a lane takes comes from some clients all the time; the others get their turn."""
    headgate = make_headgate(redis, lanes=1)
    going = True

    def pour():
        with headgate.connect() as client:
            while going:
                client.pipeline([("SET", "key", b"v" * 60_000)] * 100)

    threads = [threading.Thread(target=pour, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    with headgate.connect() as client:
        worst = max(elapsed(lambda: client("PING")) for _ in range(20))
    going = False
    for thread in threads:
        thread.join(15)
    assert worst < 20, f"{worst:.1f} s for a PING"


def test_a_thousand_clients_come_and_reset(redis, make_headgate):
    headgate = make_headgate(redis, threads=2)
    with headgate.connect() as steady:
        assert steady("PING") == PONG
        descriptors = len(os.listdir(f"/proc/{headgate.process.pid}/fd"))
        for _ in range(2):
            clients = [headgate.connect() for _ in range(500)]
            for number, client in enumerate(clients):
                word = [b"", encode("SET", "k", number), b"*3\r\n$3\r\nSET", encode("BLPOP", "none", 0)][number % 4]
                client.send(word)
            for client in clients:
                client.reset()
            assert steady("PING") == PONG
        wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "1", what="the others to be gone")
        wait_for(
            lambda: len(os.listdir(f"/proc/{headgate.process.pid}/fd")) <= descriptors + 70,
            what="their descriptors to be closed",
        )
        wait_for(lambda: "blocked_clients:0" in steady("INFO", "clients").decode(), what="nobody to block")


def test_a_redis_that_accepts_and_says_nothing(make_headgate):
    """The greeting has the time that answers have, when requests wait for it."""
    fake = FakeRedis()
    try:
        fake.answers["HELLO"] = lambda _lane, _arguments: None
        headgate = make_headgate(fake.url, connect_timeout="300ms", upstream_reply_timeout="1s", upstream_wait="1s")
        with headgate.connect() as client:
            start = time.monotonic()
            client.request("GET", "k")
            assert isinstance(client.read(), Error)
            assert 0.9 < time.monotonic() - start < 20
            assert len(fake.lanes) > 1
            del fake.answers["HELLO"]
            fake.answers["GET"] = lambda _lane, _arguments: b"+v\r\n"
            wait_for(lambda: client("GET", "k") == b"v", what="the greeting to succeed")
    finally:
        fake.close()


def test_descriptors_run_out_for_lanes_too(redis, make_headgate):
    """Two workers and the listener fight for the last descriptors but an operator's. When there is room again, all is well again: at the
    latest when clients that wait for a lane, and may have closed no more than their writing half, had their error."""
    headgate = make_headgate(redis, threads=2, upstream_wait="1s")
    with headgate.connect() as steady:
        wait_for(lambda: steady("PING") == PONG, what="Redis to be there")
        in_use = len(os.listdir(f"/proc/{headgate.process.pid}/fd"))
        resource.prlimit(headgate.process.pid, resource.RLIMIT_NOFILE, (in_use + 40,) * 2)
        crowd = [socket.create_connection(headgate.address, timeout=10) for _ in range(120)]
        for connection in crowd:
            connection.sendall(encode("BLPOP", "none", 0))
        for _ in range(10):
            redis.connect()("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.05)
        with headgate.admin() as operator:
            assert operator("RELOAD") == OK
        for connection in random.sample(crowd, len(crowd)):
            connection.close()
        wait_for(headgate.serves, what="new clients to be served")
        with headgate.admin() as admin:
            admin("LANES")  # all workers have answered, and so looked at their connections since the last was killed
        assert steady("PING") == PONG
        assert steady.pipeline([("MULTI",), ("PING",), ("EXEC",)])[2] == [PONG]


@pytest.mark.parametrize("port", ("admin", "http"))
def test_a_port_rests_without_descriptors(redis, make_headgate, port):
    """Who waits there costs no processor time, and is let in when there is room again."""
    address = ("127.0.0.1", free_port())
    headgate = make_headgate(redis, http="%s:%d" % address)
    asked, answer = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"
    if port == "admin":
        address, asked, answer = headgate.admin_address, encode("PING"), b"+PONG\r\n"
    with headgate.admin() as first:
        assert first("PING") == PONG
        resource.prlimit(headgate.process.pid, resource.RLIMIT_NOFILE, (3, 4096))
        with socket.create_connection(address, timeout=1) as second:
            second.sendall(asked)
            before = processor_seconds(headgate)
            with pytest.raises(TimeoutError):
                second.recv(1)
            assert processor_seconds(headgate) - before < 0.5
            resource.prlimit(headgate.process.pid, resource.RLIMIT_NOFILE, (1024, 4096))
            second.settimeout(30)
            assert second.recv(4096).startswith(answer)


def processor_seconds(headgate):
    fields = pathlib.Path(f"/proc/{headgate.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_full_disk_for_the_log(redis, make_headgate):
    """What cannot be logged is not logged."""
    headgate = make_headgate(redis, log_file="/dev/full", log_level="debug")
    redis.restart()
    wait_for(headgate.serves, what="new clients to be served")
