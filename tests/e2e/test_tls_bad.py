"""What bad input on the clients' side gets: a line that says who and what, a clean end, and nobody else disturbed."""

import contextlib
import re
import socket
import ssl
import time

import pytest

from harness import tls
from harness.admin import stats
from harness.certificates import certificates
from harness.resp import OK, PONG, Client, Closed, encode, wait_for
from harness.servers import free_port, sanitizer_overhead
from harness.tls import client_context, connect_raw

CLIENT_HELLO_START = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
# As of a connection that was made already.
BAD_RECORD = b"\x17\x03\x03\x00\x20" + b"x" * 32
GARBAGE = {
    "plain": encode("PING"),
    "inline": b"PING\r\n",
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "zeros": bytes(1000),
    "noise": bytes((7 * number) & 255 for number in range(5000)),
    "sslv2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80\x02\x00\x80\x03\x00\x80\x04\x00\x80" + bytes(26),
    "long_record": b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    "empty_records": b"\x16\x03\x01\x00\x00" * 5000,
    "alert_first": b"\x15\x03\x01\x00\x02\x01\x00",
    "data_first": b"\x17\x03\x03\x00\x10" + b"x" * 16,
    "short_hello": b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
    "hello_that_lies": b"\x16\x03\x01\x00\x08\x01\xff\xff\xff\x03\x03\x00\x00",
    "heartbeat": CLIENT_HELLO_START[:5] + b"\x18\x03\x02\x00\x03\x01\x40\x00" * 100,
}  # fmt: skip


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


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_tls(headgate, name):
    other = headgate.connect()
    raw = connect_raw(headgate.address)
    try:
        raw.sendall(GARBAGE[name])
        raw.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    said = read_to_end(raw)
    assert b"PONG" not in said and len(said) < 100
    assert other("PING") == PONG
    if name != "short_hello":
        await_line(headgate, r"127\.0\.0\.1", "TLS")
    raw.close()


@pytest.mark.parametrize("name", ["plain", "inline", "http"])
def test_plain_text_on_a_port_for_tls(headgate, name):
    """It is closed at once, not at the end of the time for handshakes, and the line says what it was."""
    raw = connect_raw(headgate.address)
    address = "%s:%d" % raw.getsockname()
    raw.sendall(GARBAGE[name])
    read_to_end(raw)
    raw.close()
    await_line(headgate, re.escape(address), "TLS", "plain|not TLS|no TLS|without TLS")


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


def test_tls_on_a_plain_port_byte_by_byte(headgate, port):
    """The first byte tells; but nothing is a request that starts with it."""
    raw = connect_raw(("127.0.0.1", port))
    with contextlib.suppress(OSError):  # it may be closed already
        for byte in CLIENT_HELLO_START:
            raw.sendall(bytes([byte]))
            time.sleep(0.01)
        raw.shutdown(socket.SHUT_WR)
    assert b"PONG" not in read_to_end(raw)
    raw.close()
    assert headgate.serves()


def test_a_flood_of_mistakes_fills_no_disk(headgate, port):
    """The log is bounded, however many there are; established clients are served."""
    other = headgate.connect()
    before = len(headgate.log())
    for number in range(600):
        raw = connect_raw(("127.0.0.1", port) if number % 2 else headgate.address)
        try:
            raw.sendall(CLIENT_HELLO_START if number % 2 else encode("PING"))
        except OSError:
            pass
        if number % 50 == 0:
            assert other("PING") == PONG
        raw.close()
    assert other("PING") == PONG
    assert len(headgate.log()[before:].splitlines()) < 100


# ---- half a handshake, and silence ----


def hello(context=None):
    """What a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = (context or client_context()).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        peer.do_handshake()
    return outgoing.read()


SILENCES = {"nothing": b"", "byte": b"\x16", "header": CLIENT_HELLO_START[:5], "half": None, "whole": None}


@pytest.mark.parametrize("name", SILENCES)
def test_silence_within_the_handshake(headgate, name):
    """Each is closed when its time is over, and who has ended the handshake is not."""
    restart(headgate, tls_handshake_timeout="500ms")
    idle = headgate.connect()
    start = hello()
    first = {**SILENCES, "half": start[: len(start) // 2], "whole": start}[name]
    begin = time.monotonic()
    raw = connect_raw(headgate.address)
    raw.sendall(first)
    read_to_end(raw)
    assert time.monotonic() - begin > 0.3
    raw.close()
    assert idle("PING") == PONG
    if name != "nothing":
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


def test_silent_clients_take_little_memory(headgate):
    """Half of a handshake, a thousand times; and all of it is given back."""
    restart(headgate, tls_handshake_timeout="60s", max_clients=5000)
    start = hello()
    headgate.serves()
    before = headgate.rss()
    raws = [connect_raw(headgate.address, 60) for _ in range(1000)]
    for raw in raws:
        raw.sendall(start[:-1])
    wait_for(lambda: int(stats(headgate, "clients")["clients_connected"]) >= 1000, what="all of them")
    assert headgate.serves()
    assert headgate.rss() < before + 1000 * 100_000 + sanitizer_overhead()
    for raw in raws:
        raw.close()
    wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "0", what="their end")


def test_a_hello_without_end(headgate):
    """A ClientHello of many records, as long as lengths can say, is not kept."""
    before = headgate.rss()
    raw = connect_raw(headgate.address, 30)
    try:
        raw.sendall(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff\x03\x03" + b"\x00" * 16378)
        for _ in range(2000):
            raw.sendall(b"\x16\x03\x01\x40\x00" + b"\x00" * 16384)
    except OSError:
        pass
    assert headgate.rss() < before + (8 << 20) + sanitizer_overhead()
    raw.close()
    assert headgate.serves()


def test_cuts_at_each_byte_of_a_handshake(headgate):
    """The client goes after so many bytes of its first flight, in every way to go."""
    start = hello()
    for length in range(1, len(start), 9):
        raw = connect_raw(headgate.address)
        raw.sendall(start[:length])
        if length % 2:
            client = Client(raw)
            client.reset()
        else:
            raw.close()
    assert headgate.serves()
    wait_for(lambda: int(stats(headgate, "clients")["clients_connected"]) <= 1, what="their end")


def test_bits_that_tip(headgate):
    """One wrong bit anywhere, in the handshake and in records behind it: the connection ends, and only that."""
    other = headgate.connect()
    for position in range(0, 2400, 37):
        sent = 0

        def tip(data):
            nonlocal sent
            data = bytearray(data)
            if sent <= position < sent + len(data):
                data[position - sent] ^= 1 << (position & 7)
            sent += len(data)
            return [bytes(data)]

        raw = connect_raw(headgate.address, 10)
        try:
            client = Client(tls.TlsSocket(raw, client_context(), cut=tip))
            for _ in range(40):
                assert client("ECHO", "y" * 40) == b"y" * 40
        except (OSError, Closed):
            pass
        finally:
            raw.close()
        assert other("PING") == PONG


def test_truncated_and_repeated_records(headgate):
    """A record sent twice, and one cut short, do not pass as requests."""
    for way in ("twice", "short"):
        client = headgate.connect()
        assert client("SET", "n", 0) == OK
        peer = client.socket
        peer.tls.write(encode("INCR", "n"))
        record = peer.outgoing.read()
        peer.raw.sendall(record * 2 if way == "twice" else record[:-1])
        peer.raw.shutdown(socket.SHUT_WR)
        with pytest.raises((OSError, Closed)):
            for _ in range(3):
                client.read()
        assert headgate.connect()("GET", "n") in ((b"0", b"1") if way == "twice" else (b"0",))


def test_a_bad_record_behind_half_a_request(headgate):
    """Both come at once: what was good is taken, and the end is not forgotten over it."""
    for half in (encode("PING")[:-3], b"*2\r\n$3\r\nGET\r\n$100000\r\nx"):
        peer = headgate.connect().socket
        peer.tls.write(half)
        peer.raw.sendall(peer.outgoing.read() + BAD_RECORD)
        read_to_end(peer.raw)
        peer.close()
    assert headgate.serves()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("name, words", [
    ("client_expired", "expired"), ("client_stranger", "issuer|unknown|self[- ]signed"),
    ("client_self_signed", "self[- ]signed"), ("server", "purpose|unsuitable|usage"), (None, "certificate"),
])  # fmt: skip
def test_what_is_said_of_a_certificate(headgate, version, name, words):
    """The line says which client, and what was wrong with it."""
    restart(headgate, client_certificates="required", tls_ca=certificates().ca)
    raw = connect_raw(headgate.address)
    address = "%s:%d" % raw.getsockname()
    identity = getattr(certificates(), name) if name else None
    with pytest.raises((OSError, Closed)):
        Client(tls.TlsSocket(raw, client_context(identity, version)))("PING")
    raw.close()
    await_line(headgate, re.escape(address), words)
