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
from harness.resp import OK, PONG, Closed, Error, encode, wait_for
from harness.servers import elapsed, free_port, sanitizer_overhead

MEBIBYTE = 1 << 20


class Load:
    """Clients that each write and read keys of their own until told to stop. A lost connection is made anew; an answer
    that is neither right nor an error is a failure."""

    def __init__(self, headgate, count):
        self.headgate = headgate
        self.going = True
        self.served = [0] * count
        self.lost = 0
        self.failures = []
        self.threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _work(self, number):
        while self.going and not self.failures:
            try:
                with self.headgate.connect() as client:
                    self._serve(client, number)
            except (Closed, OSError):
                self.lost += 1
                time.sleep(0.01)
            except AssertionError as failure:
                self.failures.append(failure)

    def _serve(self, client, number):
        counter = 0
        while self.going:
            counter += 1
            word = f"{number}:{counter}"
            commands = [("SET", f"key:{number}", word), ("GET", f"key:{number}"), ("ECHO", word), ("MULTI",)]
            commands += [("ECHO", word), ("EXEC",)]
            replies = client.pipeline(commands)
            if any(isinstance(reply, Error) for reply in replies):
                return
            expected = [OK, word.encode(), word.encode(), OK, b"QUEUED", [word.encode()]]
            assert replies == expected, f"{replies} instead of {expected}"
            self.served[number] += 1

    def finish(self):
        self.going = False
        for thread in self.threads:
            thread.join(15)
            assert not thread.is_alive(), "a client waits for ever"
        assert not self.failures, self.failures[0]


@pytest.fixture
def load():
    loads = []

    def start(headgate, count=20):
        loads.append(Load(headgate, count))
        return loads[-1]

    yield start
    for started in loads:
        started.finish()


def await_progress(load):
    """Every client has been served once more."""
    before = list(load.served)
    wait_for(lambda: all(now > then for now, then in zip(load.served, before)), what="every client to be served")


def test_ten_restarts_under_load(redis, make_headgate, load):
    headgate = make_headgate(redis, threads=2)
    idle = [headgate.connect() for _ in range(20)]
    for number, client in enumerate(idle):
        assert client("SELECT", number % 3) == OK
    running = load(headgate)
    for _ in range(10):
        await_progress(running)
        redis.restart()
    await_progress(running)
    for client in idle:
        assert not client.is_closed()
        assert client("PING") == PONG


def test_lanes_killed_under_load(redis, make_headgate, load):
    headgate = make_headgate(redis, threads=2)
    idle = [headgate.connect() for _ in range(20)]
    assert all(client("PING") == PONG for client in idle)
    running = load(headgate)
    with redis.connect() as killer:
        # On a busy machine nothing may be under way at any of sixty moments.
        for count in range(1000):
            killer("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.03)
            if count >= 60 and running.lost > 0:
                break
    await_progress(running)
    assert running.lost > 0
    assert all(client("PING") == PONG for client in idle)


def test_a_hanging_redis_takes_no_memory(redis, make_headgate, stopped):
    """Twenty clients have 24 MB each to say. They are not read from while nobody takes it; then all of it arrives."""
    headgate = make_headgate(redis)
    request = encode("SET", "key", b"v" * 60_000) * 40
    clients = [headgate.connect() for _ in range(20)]
    before = headgate.rss()

    def talk(client):
        for _ in range(10):
            client.send(request)

    with stopped(redis):
        talkers = [threading.Thread(target=talk, args=(client,), daemon=True) for client in clients]
        for talker in talkers:
            talker.start()
        time.sleep(2)
        grown = headgate.rss() - before
    assert grown < 48 * MEBIBYTE, f"{grown >> 20} MiB"
    for client in clients:
        assert client.read_many(400) == [OK] * 400


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
        worst = max(elapsed(lambda: client("PING")) for _ in range(50))
    going = False
    for thread in threads:
        thread.join(15)
    assert worst < 20, f"{worst:.1f} s for a PING"


def test_two_thousand_clients_come_and_reset(redis, make_headgate):
    headgate = make_headgate(redis, threads=2)
    with headgate.connect() as steady:
        assert steady("PING") == PONG
        descriptors = len(os.listdir(f"/proc/{headgate.process.pid}/fd"))
        for _ in range(4):
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


def test_two_hundred_clients_that_never_read(redis, make_headgate):
    headgate = make_headgate(redis, client_output_limit="1mb")
    with headgate.connect() as client:
        client("SET", "value", b"v" * 30_000)
        deaf = [headgate.connect() for _ in range(200)]
        for other in deaf:
            other.send(encode("GET", "value") * 60)
        worst = max(elapsed(lambda: client("PING")) for _ in range(20))
        assert worst < 20, f"{worst:.1f} s for a PING"
        bound = 300 * MEBIBYTE + 2 * sanitizer_overhead()
        assert headgate.peak_rss() < bound, f"{headgate.peak_rss() >> 20} MiB"
        for other in deaf:
            other.close()
        wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "1", what="the others to be gone")


def test_a_full_disk_for_the_log(redis, make_headgate, load):
    """What cannot be logged is not logged."""
    headgate = make_headgate(redis, log_file="/dev/full", log_level="debug")
    running = load(headgate, 4)
    await_progress(running)
    redis.restart()
    await_progress(running)


def test_half_open_connections(redis, make_headgate):
    """They closed their writing half, in the middle of all kinds of things: replies come, and then the end."""
    headgate = make_headgate(redis)
    word = encode("ECHO", "word")
    for sent, received in [
        (b"", b""),
        (word * 3, b"$4\r\nword\r\n" * 3),
        (word + b"*2\r\n$4\r\nEC", b"$4\r\nword\r\n"),
        (word + encode("MULTI") + word, b"$4\r\nword\r\n+OK\r\n+QUEUED\r\n"),
        (encode("BLPOP", "none", 0), b""),
        (word + b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000\r\n" + b"v" * 100_000, b"$4\r\nword\r\n"),
        (encode("SUBSCRIBE", "c"), b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
    ]:
        client = headgate.connect()
        client.send(sent)
        client.shutdown_write()
        assert client.read_to_end() == received
    with headgate.connect() as client:
        assert client("GET", "k") is None


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
