"""What a client that has not authenticated may send: Redis' bounds, by the first header that is beyond them."""

import contextlib
import signal

import pytest

from harness.resp import OK, PONG, Client, Error, encode
from harness.servers import sanitizer_overhead
from harness.target import Target

PASSWORD = "secret"
NOAUTH = Error(b"NOAUTH Authentication required.")
COUNT = b"-ERR Protocol error: unauthenticated multibulk length\r\n"
LENGTH = b"-ERR Protocol error: unauthenticated bulk length\r\n"
HUGE = 400 << 20


@pytest.fixture(scope="module")
def shared_target(request):
    target = Target(request.param, "--requirepass", PASSWORD)
    target.password = PASSWORD
    yield target
    target.finish()


NAMES = ("GET", "AUTH", "HELLO", "SUBSCRIBE", "PSUBSCRIBE", "MULTI", "WATCH", "SELECT", "CLIENT", "BLPOP", "XREAD", "RESET",
         "QUIT", "EVAL", "CONFIG", "ACL", "MONITOR", "SYNC", "WAIT", "DEBUG", "NONSENSE", "CL.THROTTLE", "")


def test_every_kind_of_command_is_bounded(target):
    """By the length of an argument, and by how many there are."""
    for name in NAMES:
        word = encode(name)[4:]
        for data, said in ((b"*2\r\n" + word + b"$16385\r\n", LENGTH), (b"*2\r\n" + word + b"$%d\r\n" % HUGE, LENGTH),
                           (b"*11\r\n" + word, COUNT), (b"*1000000\r\n" + word, COUNT)):
            with target.connect() as client:
                client.send(data)
                assert client.read_to_end() == said, data[:40]


def test_a_header_that_came_before_it_was_known_that_there_is_a_password(make_redis, make_headgate, pool):
    for header in [b"*11\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"*2\r\n$3\r\nGET\r\n$400000\r\n"]:
        redis = make_redis("--requirepass", PASSWORD)
        redis.signal(signal.SIGSTOP)
        client = make_headgate(redis, pool=pool).connect()
        client.send(header)
        client.assert_silent(0.3)
        redis.signal(signal.SIGCONT)
        assert client.read_to_end() == (COUNT if header.startswith(b"*11") else LENGTH), header


def test_up_to_the_bounds(target):
    """Nothing is refused that Redis takes."""
    client = target.connect()
    assert client("GET", *["k"] * 9).startswith(b"ERR wrong number")
    assert client("MGET", *["k"] * 9) == NOAUTH
    assert client("SET", "k", b"v" * 16384) == NOAUTH
    assert client("SUBSCRIBE", *[b"c" * 16384] * 9) == NOAUTH
    assert client("AUTH", b"p" * 16384).startswith(b"WRONGPASS")
    client.send(b"*2\r\n$4\r\nAUTH\r\n$16384\r\n")
    for _ in range(16):
        client.send(b"p" * 1024)
    client.send(b"\r\n")
    assert client.read().startswith(b"WRONGPASS")
    assert client("AUTH", PASSWORD) == OK
    assert client("SET", "k", b"v" * 100_000) == OK


def test_what_went_before_is_answered(target):
    for beyond in [b"*11\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$17000\r\n"]:
        client = target.connect()
        client.send(encode("GET", "k") + encode("CLIENT", "ID") + encode("AUTH", "wrong") + beyond)
        wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
        text = COUNT if beyond.startswith(b"*11") else LENGTH
        assert client.read_to_end() == b"-NOAUTH Authentication required.\r\n" * 2 + wrong + text, beyond


def test_a_password_ahead_in_the_same_pipeline(target):
    """What follows it is judged by its reply."""
    for login in [("AUTH", PASSWORD), ("AUTH", "default", PASSWORD), ("HELLO", 2, "AUTH", "default", PASSWORD)]:
        for pieces in (False, True):
            client = target.connect()
            data = encode(*login) + encode("SET", "k", b"v" * 100_000) + encode("MSET", *["k", "v"] * 50) + encode(
                "SUBSCRIBE", *["c"] * 20)
            for start in range(0, len(data), 7000) if pieces else (0,):
                client.send(data[start : start + 7000] if pieces else data)
            client.read()
            assert client.read_many(2) == [OK, OK], login
            assert [reply[0] for reply in client.read_many(20)] == [b"subscribe"] * 20, login


def test_refused_commands_change_nothing(target):
    """Whatever Headgate makes of them, an AUTH afterwards lets in, and long requests with it."""
    tracking = ("CLIENT", "TRACKING", "ON")
    for before in [("MONITOR",), ("CLIENT", "ID"), tracking, ("AUTH", "wrong"), ("SUBSCRIBE", "a"), ("MULTI",), ("SYNC",)]:
        client = target.connect()
        assert isinstance(client(*before), Error), before
        assert client("AUTH", PASSWORD) == OK, before
        assert client("SET", "k", b"v" * 100_000) == OK, before
        assert client("GET", "k") == b"v" * 100_000, before
        client = target.connect()
        assert isinstance(client(*before), Error), before
        client.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n")
        assert client.read_to_end() == LENGTH, before


def test_after_reset_the_bounds_hold_again(target):
    client = target.connect()
    assert client("AUTH", PASSWORD) == OK
    assert client("SET", "k", b"v" * 100_000) == OK
    assert client("RESET") == b"RESET"
    client.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n")
    assert client.read_to_end() == LENGTH


def test_inline_commands_are_bounded_in_all_only(target):
    """Up to 64 KiB, however many words, and however long they are."""
    client = target.connect()
    for line in ("MGET " + "k " * 20, "SET k " + "v" * 20_000, "GET " + "v" * 20_000, "MGET " + "k " * 30_000):
        client.send(line.encode() + b"\r\n")
        assert client.read() == NOAUTH, line[:20]
    client.send(b"GET " + b"k " * 20 + b"\r\n")
    assert client.read().startswith(b"ERR wrong number of arguments for 'get'")
    client.send(b"AUTH " + b"p" * 20_000 + b"\r\n")
    assert client.read().startswith(b"WRONGPASS")
    client.send(b"AUTH " + PASSWORD.encode() + b"\r\n")
    assert client.read() == OK
    client.send(b"SET k " + b"v" * 20_000 + b"\r\nMGET " + b"k " * 20 + b"\r\n")
    assert client.read() == OK
    assert client.read() == [b"v" * 20_000] * 20


@pytest.mark.parametrize("shared_target", ["shared"], indirect=True, scope="module")
def test_nothing_is_held_for_strangers(target):
    """Fifty of each kind announce 400 MB and send 10 MB, as far as they are let."""
    assert target.connect()("GET", "k") == NOAUTH
    before = target.headgate.rss()
    for name in ("AUTH", "SET"):
        clients = []
        for _ in range(50):
            clients.append(Client(target.address, timeout=2.0))
            with contextlib.suppress(OSError):
                clients[-1].send(b"*2\r\n" + encode(name)[4:] + b"$%d\r\n" % HUGE)
                for _ in range(10):
                    clients[-1].send(b"x" * (1 << 20))
        insider = target.connect()
        assert insider("AUTH", PASSWORD) == OK
        assert insider("PING") == PONG
        grown = target.headgate.peak_rss() - before
        for client in clients:
            client.close()
        assert grown < (30 << 20) + sanitizer_overhead(), (name, grown)
