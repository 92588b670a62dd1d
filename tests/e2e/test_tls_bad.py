"""What bad input on the clients' side gets: a line that says who and what, a clean end, and nobody else disturbed."""

import re
import socket
import ssl
import time

import pytest

from harness import tls
from harness.certificates import certificates
from harness.resp import PONG, Client, Closed, encode, wait_for
from harness.servers import free_port
from harness.tls import client_context, connect_raw

CLIENT_HELLO_START = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
# tests/fuzz/fuzz_tls.c has more.
GARBAGE = {
    "plain": encode("PING"),
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "noise": bytes((7 * number) & 255 for number in range(5000)),
    "long_record": b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    "short_hello": b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
}


@pytest.fixture
def port():
    """Of a plain listener beside the one for TLS."""
    return free_port()


@pytest.fixture
def headgate(redis, make_headgate, port):
    headgate = make_headgate(redis, start=False, tls=True, tls_handshake_timeout="30s")
    headgate.write_config(upstream_ca=None, upstream=redis.url, listen=f"{headgate.options['listen']}, 127.0.0.1:{port}")
    headgate.start()
    return headgate


def restart(headgate, **options):
    headgate.terminate()
    headgate.write_config(**options)
    headgate.start()
    return headgate


def await_line(headgate, *patterns):
    """A line of the log, or of what was logged of the kind, that has all of these."""

    def found():
        lines = headgate.log().splitlines()
        return any(all(re.search(pattern, line, re.I) for pattern in patterns) for line in lines)

    wait_for(found, what=f"a line with {patterns}")


def read_to_end(raw):
    """What came before the end; it comes to an end."""
    data = b""
    try:
        while chunk := raw.recv(1 << 16):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def test_what_is_no_tls(headgate):
    for name in GARBAGE:
        other = headgate.connect()
        raw = connect_raw(headgate.address)
        try:
            raw.sendall(GARBAGE[name])
            raw.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        said = read_to_end(raw)
        assert b"PONG" not in said and len(said) < 100, name
        assert other("PING") == PONG, name
        if name != "short_hello":
            await_line(headgate, r"127\.0\.0\.1", "TLS")
        raw.close()


def test_tls_on_a_plain_port(headgate, port):
    other = Client(("127.0.0.1", port))
    raw = connect_raw(("127.0.0.1", port))
    address = "%s:%d" % raw.getsockname()
    with pytest.raises((ssl.SSLError, OSError)):
        tls.TlsSocket(raw, client_context())
    await_line(headgate, re.escape(address), "TLS", "plain|listen|rediss|without TLS")
    assert other("PING") == PONG
    other.close()
    raw.close()


def hello(context=None):
    """What a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = (context or client_context()).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        peer.do_handshake()
    return outgoing.read()


def test_silence_within_the_handshake(headgate):
    """Each is closed when its time is over, and who has ended the handshake is not."""
    restart(headgate, tls_handshake_timeout="500ms")
    idle, start, begin = headgate.connect(), hello(), time.monotonic()
    raws = [connect_raw(headgate.address) for _ in range(5)]
    for raw, first in zip(raws, (b"", b"\x16", CLIENT_HELLO_START[:5], start[: len(start) // 2], start)):
        raw.sendall(first)
    for raw in raws:
        read_to_end(raw)
        assert time.monotonic() - begin > 0.3
        raw.close()
    assert idle("PING") == PONG
    await_line(headgate, r"127\.0\.0\.1", "handshake|TLS")


def test_a_drip_does_not_prolong_the_handshake(headgate):
    """A byte now and then keeps nobody alive."""
    restart(headgate, tls_handshake_timeout="1s")
    raw = connect_raw(headgate.address)
    begin = time.monotonic()
    try:
        for byte in hello() * 100:
            raw.sendall(bytes([byte]))
            time.sleep(0.05)
            assert time.monotonic() - begin < 20
    except OSError:
        pass
    raw.close()
    wait_for(lambda: serves_quietly(headgate), what="others to be served")


def test_silent_clients_count(headgate):
    """Who does not end its handshake takes a place among max_clients, and gives it back."""
    restart(headgate, tls_handshake_timeout="1s", max_clients=20)
    raws = [connect_raw(headgate.address) for _ in range(20)]
    for raw in raws:
        raw.sendall(b"\x16")
    try:
        wait_for(lambda: not serves_quietly(headgate), what="all places to be taken")
        wait_for(lambda: serves_quietly(headgate), what="a place")
    finally:
        for raw in raws:
            raw.close()


def serves_quietly(headgate):
    try:
        return headgate.serves()
    except OSError:
        return False


def test_what_is_said_of_a_certificate(headgate):
    """The line says which client, and what was wrong with it."""
    restart(headgate, client_certificates="required", tls_ca=certificates().ca)
    for name, words in WRONG_WITH_IT.items():
        raw = connect_raw(headgate.address)
        address = "%s:%d" % raw.getsockname()
        identity = getattr(certificates(), name) if name else None
        with pytest.raises((OSError, Closed)):
            Client(tls.TlsSocket(raw, client_context(identity)))("PING")
        raw.close()
        await_line(headgate, re.escape(address), words)
        time.sleep(1.1)  # one line a second is logged


WRONG_WITH_IT = {
    "client_expired": "expired", "client_stranger": "issuer|unknown|self[- ]signed", "client_self_signed": "self[- ]signed",
    "server": "purpose|unsuitable|usage", None: "certificate",
}  # fmt: skip


def test_the_end_waits_for_no_handshake(headgate):
    """Who has begun its handshake and is silent does not hold it up."""
    restart(headgate, drain_timeout="30s", tls_handshake_timeout="60s")
    raws = [connect_raw(headgate.address) for _ in range(5)]
    for raw in raws[1:]:
        raw.sendall(b"\x16\x03\x01")
    assert headgate.terminate(20) == 0
    for raw in raws:
        raw.close()
