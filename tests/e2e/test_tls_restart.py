"""Clients by TLS while one Headgate follows another, ends, or has no place left."""

import threading

import pytest

from harness import tls
from harness.admin import await_empty
from harness.global_limits import Stopped
from harness.resp import OK, PONG, Closed, encode, wait_for
from harness.servers import BINARY


class Visitors:
    """So many clients that connect by TLS, ask, and leave, over and over; what went wrong is kept."""

    def __init__(self, address, count=6):
        self.address = address
        self.served = 0
        self.faults = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _work(self):
        while not self.ended.is_set():
            try:
                with tls.connect(self.address) as client:
                    assert client("PING") == PONG
                    self.served += 1
            except (OSError, Closed, AssertionError) as fault:
                self.faults.append(repr(fault))

    def await_more(self, count=60):
        before = self.served
        wait_for(lambda: self.faults or self.served > before + count, 60, "visitors to be served")
        assert self.faults == []

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(30)
        assert self.faults == []


@pytest.fixture
def headgate(make_tls):
    return make_tls(drain_timeout="20s")


@pytest.fixture
def make_tls(redis, make_headgate):
    def start(**options):
        headgate = make_headgate(redis, start=False, tls=True, **options)
        headgate.write_config(upstream_ca=None, upstream=redis.url)
        headgate.start()
        return headgate

    return start


def take_over(make_headgate, headgate):
    options = {name: value for name, value in headgate.options.items() if name != "upstream"}
    second = make_headgate(headgate.options["upstream"], start=False, tls=True, **options)
    second.port, second.admin_port = headgate.port, headgate.admin_port
    second.launch([BINARY, "-c", str(second.config_path), "--take-over"])
    wait_for(lambda: "serving clients on" in second.log() or not second.is_alive(), 30, "the second one")
    assert second.is_alive(), second.log()
    return second


def test_nobody_is_refused(headgate, make_headgate):
    """Also not who was within its handshake."""
    visitors = Visitors(headgate.address)
    for _ in range(2):
        visitors.await_more()
        second = take_over(make_headgate, headgate)
        visitors.await_more()
        assert headgate.terminate() == 0
        visitors.await_more()
        headgate = second
    visitors.end()


def test_the_end_waits_for_no_handshake(make_tls):
    """Who has begun its handshake and is silent does not hold it up."""
    headgate = make_tls(drain_timeout="30s", tls_handshake_timeout="60s")
    idle = headgate.connect()
    assert idle("PING") == PONG
    raws = [tls.connect_raw(headgate.address) for _ in range(5)]
    for raw in raws[1:]:
        raw.sendall(b"\x16\x03\x01")
    assert headgate.terminate(20) == 0
    for raw in raws:
        raw.close()


def test_replies_that_are_due_are_sent_at_the_end(make_tls, redis):
    headgate = make_tls(drain_timeout="20s")
    client = headgate.connect()
    assert client("SET", "large", "x" * 100_000) == OK
    with Stopped(redis):
        client.send(encode("GET", "large") * 50)
        client.assert_silent()
        headgate.signal(15)
        headgate.await_log("draining")
    assert client.read_many(50) == [b"x" * 100_000] * 50
    assert client.socket.read_close_notify()
    assert headgate.wait() == 0


def test_a_client_too_many(make_tls):
    """It learns nothing more than that it is closed, or Redis' own error; those who are there do not notice."""
    headgate = make_tls(max_clients=5)
    await_empty(headgate)
    clients = [headgate.connect() for _ in range(5)]
    assert [client("PING") for client in clients] == [PONG] * 5
    for _ in range(10):
        try:
            with tls.connect(headgate.address) as client:
                assert client("PING") == b"ERR max number of clients reached"
        except (OSError, Closed):
            pass
    assert [client("PING") for client in clients] == [PONG] * 5
    clients.pop().close()
    wait_for(lambda: serves(headgate), what="a place")


def serves(headgate):
    try:
        with tls.connect(headgate.address) as client:
            return client("PING") == PONG
    except (OSError, Closed):
        return False


def test_bytes_behind_the_end(headgate):
    """What stands behind close_notify is not for anybody, in TLS or not."""
    other = headgate.connect()
    client = headgate.connect()
    client.send(encode("PING"))
    client.socket.close_notify()
    client.socket.raw.sendall(encode("INCR", "n") + b"\x17\x03\x03\x00\x10" + b"x" * 16)
    assert client.read() == PONG
    assert other("GET", "n") is None
