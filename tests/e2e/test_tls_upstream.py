"""TLS towards Redis: whom Headgate takes for its Redis, what it shows of itself, and what clients see of it."""

import re
import socket

import pytest

from harness.admin import stats
from harness.certificates import certificates
from harness.fake_redis import FakeRedis
from harness.resp import OK, Closed, Error, encode, wait_for
from harness.tls import server_context, towards_redis

QUICK = {"upstream_wait": "300ms", "connect_timeout": "2s"}


@pytest.fixture
def make_tls_redis(make_redis):
    """A redis-server with TLS: make_tls_redis(identity, "--option", "value")."""

    def make(identity=None, *options):
        certificate, key = identity or certificates().server
        return make_redis("--tls-cert-file", certificate, "--tls-key-file", key, *options, tls=True)

    return make


@pytest.fixture
def make(pool, make_headgate):
    """A Headgate whose clients are plain, in front of a Redis with TLS."""

    def start(redis, **options):
        return make_headgate(redis.tls_url, pool=pool, **{**towards_redis(), **options})

    return start


@pytest.fixture
def make_shared(make_headgate):
    def start(redis, **options):
        url = redis if isinstance(redis, str) else redis.tls_url
        return make_headgate(url, **{**towards_redis(), **QUICK, **options})

    return start


@pytest.fixture
def headgate(make, make_tls_redis):
    return make(make_tls_redis())


def assert_refused(headgate, *words):
    """Clients hear an error, as when Redis is away; and the log says once which server it was and what was wrong."""
    with headgate.connect() as client:
        assert isinstance(client("GET", "k"), Error)
    wait_for(lambda: all(re.search(word, headgate.log(), re.I) for word in words), what=f"{words} in the log")
    line = next(line for line in headgate.log().splitlines() if re.search(words[0], line, re.I))
    assert re.search(r"localhost|127\.0\.0\.1", line), line
    assert stats(headgate)["upstream_up"] == "0"


def assert_served(headgate):
    """As soon as there is a lane, for which requests do not wait long here."""
    wait_for(lambda: headgate.told("SET", "k", "v") == OK, what="a client to be served")


@pytest.mark.parametrize("name", ["nul_name", "nul_alternative"])
def test_a_name_with_a_nul_is_no_name(make_tls_redis, make_shared, name):
    redis = make_tls_redis(getattr(certificates(), name))
    headgate = make_shared(f"rediss://localhost:{redis.tls_port}")
    assert_refused(headgate, "certificate is not valid for localhost")


def test_another_name_to_expect(make_tls_redis, make_shared):
    redis = make_tls_redis(certificates().named)
    assert_refused(make_shared(redis), "certificate is not valid for 127.0.0.1")
    assert_served(make_shared(redis, upstream_server_name="redis.example"))
    assert_refused(make_shared(redis, upstream_server_name="other.example"), "other.example")


def test_the_name_is_told(fake_tls, make_shared):
    """SNI: a name, and no address (which RFC 6066 forbids)."""
    names = []
    fake_tls.context.sni_callback = lambda _connection, name, _context: names.append(name) and None
    port = fake_tls.port
    for options in ({"upstream_server_name": "localhost"}, {}):
        headgate = make_shared(f"rediss://127.0.0.1:{port}", **options)
        wait_for(lambda: stats(headgate)["upstream_up"] == "1", what="a lane")
    assert "localhost" in names and names[-1] is None and "127.0.0.1" not in names


def test_the_authorities_of_the_system_are_the_usual_ones(make_tls_redis, make_headgate, monkeypatch):
    redis = make_tls_redis()
    trusting = make_headgate(redis.tls_url, start=False, **QUICK)
    trusting.environment["SSL_CERT_FILE"] = str(certificates().ca)
    trusting.start()
    assert_served(trusting)
    assert_refused(make_headgate(redis.tls_url, **QUICK), "certificate|issuer")


@pytest.fixture
def fake_tls():
    server = FakeRedis(server_context())
    yield server
    server.close()


def test_a_certificate_that_redis_asks_for(make_tls_redis, make_shared):
    redis = make_tls_redis(None, "--tls-auth-clients", "yes")
    assert_served(make_shared(redis, **towards_redis(certificates().client)))
    # Redis says what it misses after the handshake of TLS 1.3, by an alert.
    assert_refused(make_shared(redis), "certificate required|handshake failure|certificate")
    assert_refused(make_shared(redis, **towards_redis(certificates().client_stranger)), "unknown ca|certificate")


def test_tls_where_plain_was_expected(make_tls_redis, make_headgate):
    redis = make_tls_redis()
    headgate = make_headgate(f"127.0.0.1:{redis.tls_port}", **QUICK)
    assert isinstance(headgate.told("GET", "k"), Error)
    wait_for(lambda: re.search(rf"127\.0\.0\.1:{redis.tls_port}: .*rediss://", headgate.log()), what="a hint")


def test_silence_in_place_of_a_handshake(make_shared):
    """The time to connect bounds the handshake, too; clients hear an error, and it is tried again."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as deaf:
        headgate = make_shared(f"rediss://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout="300ms")
        assert isinstance(headgate.told("GET", "k"), Error)
        wait_for(lambda: int(stats(headgate)["lanes_failed_total"]) >= 3, what="further attempts")
        # Not a line for each attempt.
        assert len(headgate.log().splitlines()) < 50


def test_a_bad_record_behind_a_reply(fake_tls, make_shared):
    """Both come at once: who waits for another reply of the lane is let go, as when it breaks."""
    headgate = make_shared(fake_tls.url, lanes=1, upstream_wait="20s")
    client = headgate.connect()
    client.send(encode("GET", "first") + encode("GET", "second"))
    first, _ = fake_tls.expect("GET", "first"), fake_tls.expect("GET", "second")
    peer = first.lane.socket
    peer.tls.write(b"$5\r\nfirst\r\n")
    peer.raw.sendall(peer.outgoing.read() + b"\x17\x03\x03\x00\x20" + b"x" * 32)
    assert client.read() == b"first"
    with pytest.raises(Closed):
        client.read()
