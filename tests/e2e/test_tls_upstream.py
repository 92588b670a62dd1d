"""TLS towards Redis: whom Headgate takes for its Redis, what it shows of itself, and what clients see of it."""

import re
import socket
import threading
import time

import pytest

from harness.admin import stats
from harness.certificates import certificates
from harness.fake_redis import FakeRedis
from harness.resp import OK, PONG, QUEUED, Closed, Error, encode, wait_for
from harness.servers import Server
from harness.tls import server_context, towards_redis

MIB = 1 << 20
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


# ---- what is served ----


def test_requests_are_served(headgate):
    client = headgate.connect()
    assert client("SET", "k", "v") == OK
    assert client("GET", "k") == b"v"
    assert client.pipeline([("INCR", "n")] * 20_000) == list(range(1, 20_001))
    assert client("SET", "large", "x" * (8 * MIB)) == OK
    assert client("GET", "large") == b"x" * (8 * MIB)


def test_each_feature_of_a_session(headgate):
    one, two, three = (headgate.connect() for _ in range(3))
    assert one("MULTI") == OK and one("INCR", "n") == QUEUED and one("EXEC") == [1]
    one.request("SUBSCRIBE", "news")
    assert one.read()[0] == b"subscribe"
    assert two("PUBLISH", "news", "x" * MIB) == 1
    assert one.read() == [b"message", b"news", b"x" * MIB]
    three.request("BLPOP", "queue", 0)
    three.assert_silent()
    assert two("RPUSH", "queue", "a") == 1
    assert three.read() == [b"queue", b"a"]


@pytest.mark.threads
def test_all_threads(make_tls_redis, make):
    headgate = make(make_tls_redis(), threads=4)
    clients = [headgate.connect() for _ in range(40)]
    for turn in range(50):
        for number, client in enumerate(clients):
            client.request("SET", f"k{number}", turn)
            client.request("GET", f"k{number}")
        assert [client.read_many(2) for client in clients] == [[OK, b"%d" % turn]] * 40


def test_tls_on_both_sides(make_tls_redis, make_headgate, pool):
    headgate = make_headgate(make_tls_redis(), pool=pool, tls=True)
    client = headgate.connect()
    assert client("SET", "k", "x" * MIB) == OK
    assert client.pipeline([("GET", "k")] * 50) == [b"x" * MIB] * 50


def test_back_pressure(headgate):
    """A client that does not read holds up itself alone."""
    slow, other = headgate.connect(), headgate.connect()
    assert other("SET", "large", "x" * MIB) == OK
    slow.send(encode("GET", "large") * 64)
    for _ in range(100):
        assert other("PING") == PONG
    time.sleep(0.3)
    assert slow.read_many(64) == [b"x" * MIB] * 64


def test_a_restart_of_redis(make_tls_redis, make):
    redis = make_tls_redis()
    headgate = make(redis, upstream_wait="20s")
    client = headgate.connect()
    assert client("SET", "k", 1) == OK
    for _ in range(3):
        redis.kill()
        wait_for(lambda: stats(headgate)["lanes_pooled"] == "0" == stats(headgate)["upstream_up"], what="the outage")
        redis.start()
        wait_for(headgate.serves, what="service")


def test_a_password_by_tls(make_tls_redis, make):
    redis = make_tls_redis(None, "--requirepass", "secret")
    headgate = make(redis, upstream_password="secret")
    assert headgate.connect()("SET", "k", "v") == OK


# ---- who Redis is ----


@pytest.mark.parametrize("name, words", [
    ("wrong_host", ("certificate is not valid for 127.0.0.1",)),
    ("self_signed", ("self[- ]signed",)),
    ("stranger", ("issuer|self[- ]signed|unable to|unknown",)),
])  # fmt: skip
def test_a_certificate_that_is_not_trusted(make_tls_redis, make_shared, name, words):
    headgate = make_shared(make_tls_redis(getattr(certificates(), name)))
    assert_refused(headgate, *words)


@pytest.mark.parametrize("name", ["nul_name", "nul_alternative"])
def test_a_name_with_a_nul_is_no_name(make_tls_redis, make_shared, name):
    redis = make_tls_redis(getattr(certificates(), name))
    headgate = make_shared(f"rediss://localhost:{redis.tls_port}")
    assert_refused(headgate, "certificate is not valid for localhost")


@pytest.mark.parametrize("name", ["expired", "wrong_host", "self_signed", "stranger", "nul_name"])
def test_verification_can_be_switched_off(make_tls_redis, make_shared, name):
    """Then each start says so."""
    headgate = make_shared(make_tls_redis(getattr(certificates(), name)), upstream_verify="off")
    assert_served(headgate)
    assert re.search("warning.*verif|verif.*warning|upstream_verify", headgate.log())
    headgate.terminate()
    before = len(headgate.log())
    headgate.start()
    assert re.search("upstream_verify", headgate.log()[before:])


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


# ---- what Headgate shows of itself ----


def test_a_certificate_that_redis_asks_for(make_tls_redis, make_shared):
    redis = make_tls_redis(None, "--tls-auth-clients", "yes")
    assert_served(make_shared(redis, **towards_redis(certificates().client)))
    # Redis says what it misses after the handshake of TLS 1.3, by an alert.
    assert_refused(make_shared(redis), "certificate required|handshake failure|certificate")
    assert_refused(make_shared(redis, **towards_redis(certificates().client_stranger)), "unknown ca|certificate")


# ---- what is not TLS at all ----


def test_redis_without_tls(redis, make_shared):
    """Redis takes a ClientHello for a request and closes, or stays silent."""
    headgate = make_shared(f"rediss://{redis.url}")
    assert_refused(headgate, r"TLS")


def test_tls_where_plain_was_expected(make_tls_redis, make_headgate):
    redis = make_tls_redis()
    headgate = make_headgate(f"127.0.0.1:{redis.tls_port}", **QUICK)
    assert isinstance(headgate.told("GET", "k"), Error)
    wait_for(lambda: re.search(rf"127\.0\.0\.1:{redis.tls_port}: .*rediss://", headgate.log()), what="a hint")


class Deaf(Server):
    """It takes connections and says so many bytes of a handshake, and then nothing."""

    def __init__(self, first=b""):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.first = first
        self.taken = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                connection, _ = self.listener.accept()
                connection.sendall(self.first)
                self.taken.append(connection)
        except OSError:
            pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.taken:
            connection.close()


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03\x00\x7a\x02", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR no\r\n"])
def test_half_a_handshake_and_silence(make_shared, first):
    """The time to connect bounds the handshake, too; clients hear an error, and it is tried again."""
    deaf = Deaf(first)
    try:
        headgate = make_shared(f"rediss://127.0.0.1:{deaf.port}", connect_timeout="300ms")
        assert isinstance(headgate.told("GET", "k"), Error)
        wait_for(lambda: len(deaf.taken) >= 3, what="further attempts")
        assert headgate.is_alive()
        # Not a line for each attempt.
        assert len(headgate.log().splitlines()) < 50
    finally:
        deaf.close()


def test_a_server_that_renews_its_keys(make_shared):
    """openssl s_server as a server can be told to send new keys; here a scripted Redis does it between replies."""
    fake = FakeRedis(server_context(version="TLSv1.3"))
    try:
        headgate = make_shared(fake.url, lanes=1, upstream_wait="20s")
        client = headgate.connect()
        for number in range(200):
            client.request("GET", str(number))
            fake.expect("GET", str(number)).reply(b"$1000\r\n" + b"%01000d" % number + b"\r\n")
            assert client.read() == b"%01000d" % number
    finally:
        fake.close()


def test_a_server_that_cuts_its_records(make_shared):
    """Each record in pieces, which arrive one by one; and many records in one piece."""
    fake = FakeRedis(server_context())
    try:
        headgate = make_shared(fake.url, lanes=1, upstream_wait="20s")
        client = headgate.connect()
        client.request("GET", "first")
        command = fake.expect("GET", "first")
        command.lane.socket.cut = lambda data: [data[at : at + 7] for at in range(0, len(data), 7)]
        command.reply(b"$5000\r\n" + b"x" * 5000 + b"\r\n")
        assert client.read() == b"x" * 5000
        client.request("GET", "second")
        command = fake.expect("GET", "second")
        peer = command.lane.socket
        peer.cut = lambda data: [data]
        for byte in b"$300\r\n" + b"y" * 300 + b"\r\n":
            peer.tls.write(bytes([byte]))
        peer.raw.sendall(peer.outgoing.read())
        assert client.read() == b"y" * 300
    finally:
        fake.close()


def test_a_bad_record_behind_a_reply(make_shared):
    """Both come at once: who waits for another reply of the lane is let go, as when it breaks."""
    fake = FakeRedis(server_context())
    try:
        headgate = make_shared(fake.url, lanes=1, upstream_wait="20s")
        client = headgate.connect()
        client.send(encode("GET", "first") + encode("GET", "second"))
        first, _ = fake.expect("GET", "first"), fake.expect("GET", "second")
        peer = first.lane.socket
        peer.tls.write(b"$5\r\nfirst\r\n")
        peer.raw.sendall(peer.outgoing.read() + b"\x17\x03\x03\x00\x20" + b"x" * 32)
        assert client.read() == b"first"
        with pytest.raises(Closed):
            client.read()
    finally:
        fake.close()


def test_a_server_that_ends_by_close_notify(make_shared):
    """A lane that its server closes so is replaced, as one that is closed by the socket."""
    fake = FakeRedis(server_context())
    try:
        headgate = make_shared(fake.url, lanes=1, upstream_wait="20s")
        client = headgate.connect()
        client.request("GET", "k")
        command = fake.expect("GET", "k")
        command.reply(b"+v\r\n")
        assert client.read() == b"v"
        command.lane.socket.close_notify()
        wait_for(lambda: command.lane.closed_by_peer, what="Headgate to leave the lane")
        other = headgate.connect()
        other.request("GET", "k")
        fake.expect("GET", "k").reply(b"+v\r\n")
        assert other.read() == b"v"
    finally:
        fake.close()


# ---- statistics ----


def test_statistics_on_a_server_of_their_own_by_tls(make_tls_redis, redis, make_headgate):
    target = make_tls_redis(None, "--tls-auth-clients", "yes")
    headgate = make_headgate(redis, start=False)
    identity = certificates().client
    headgate.write_rules(f"[latency]\nenabled = on\nflush = 1s\nupstream = {target.tls_url}\nupstream_ca = {certificates().ca}\n"
                         f"upstream_certificate = {identity.certificate}\nupstream_key = {identity.key}\n")  # fmt: skip
    headgate.start()
    client = headgate.connect()
    for _ in range(50):
        client("GET", "k")
    with target.connect() as direct:
        wait_for(lambda: direct("DBSIZE") > 0, what="figures on the server for statistics")


def test_statistics_on_a_server_that_is_not_trusted(make_tls_redis, redis, make_headgate):
    target = make_tls_redis(certificates().wrong_host)
    headgate = make_headgate(redis, start=False)
    headgate.write_rules(f"[latency]\nenabled = on\nflush = 1s\nupstream = {target.tls_url}\nupstream_ca = {certificates().ca}\n")
    headgate.start()
    client = headgate.connect()
    for _ in range(50):
        client("GET", "k")
    wait_for(lambda: "certificate is not valid for 127.0.0.1" in headgate.log(), what="a line on the certificate")
    with target.connect() as direct:
        assert direct("DBSIZE") == 0
    assert client("GET", "k") is None
