"""Both sides of exclusive lanes, byte by byte: streams, pushes, subscriptions, and lanes that die."""

import signal
import time

import pytest

from harness.admin import stats
from harness.resp import OK, Client, encode, wait_for
from harness.servers import sanitizer_overhead

MEBIBYTE = 1 << 20


@pytest.fixture
def headgate(fake, make_headgate, pool):
    return make_headgate(fake.url, pool=pool)


def ask(fake, client, *arguments):
    client.request(*arguments)
    return fake.expect(*arguments)


def test_a_huge_request_streams_through(fake, headgate):
    """Redis has the first bytes long before the client has sent the last, and Headgate holds none of them."""
    client = headgate.connect()
    size = 100 * MEBIBYTE
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % size + b"v" * (10 * MEBIBYTE))
    wait_for(lambda: received(fake) > 9 * MEBIBYTE, what="the first bytes to arrive")
    for _ in range(90):
        client.send(b"v" * MEBIBYTE)
    assert headgate.peak_rss() < 64 * MEBIBYTE + sanitizer_overhead()
    client.send(b"\r\n")
    command = fake.next()
    assert [len(argument) for argument in command.arguments] == [3, 1, size]
    command.reply(b"+OK\r\n")
    assert client.read() == OK


def received(fake):
    return max((lane.received for lane in fake.lanes), default=0)


def test_a_huge_reply_streams_through(fake, headgate):
    client, other = headgate.connect(), headgate.connect()
    command = ask(fake, client, "GET", "k")
    size = 64 * MEBIBYTE
    command.reply_part(b"$%d\r\n" % size)
    assert client.read_line() == b"$%d" % size
    for _ in range(64):
        command.reply_part(b"v" * MEBIBYTE)
        client.read_exactly(MEBIBYTE)
    command.reply(b"\r\n")
    assert client.read_exactly(2) == b"\r\n"
    assert headgate.peak_rss() < 64 * MEBIBYTE + sanitizer_overhead()
    ask(fake, other, "GET", "x").reply(b"+x\r\n")
    assert other.read() == b"x"


def test_an_earlier_pipeline_is_answered_before_multi_is_sent(fake, headgate):
    """Effects keep their order: nothing of the transaction reaches Redis while earlier requests are unanswered on
    another connection."""
    client = headgate.connect()
    client.send(encode("SET", "k", 1) + encode("GET", "k") + encode("MULTI") + encode("SET", "k", 2) + encode("EXEC"))
    first, second = fake.expect("SET", "k", "1"), fake.expect("GET", "k")
    later = []
    time.sleep(0.2)
    while not fake.pending.empty():
        later.append(fake.next())
    assert all(command.lane is first.lane for command in later)
    first.reply(b"+OK\r\n")
    second.reply(b"$1\r\n1\r\n")
    replies = {b"MULTI": b"+OK\r\n", b"SET": b"+QUEUED\r\n", b"EXEC": b"*1\r\n+OK\r\n"}
    while len(later) < 3:
        later.append(fake.next())
    assert [command.arguments[0] for command in later] == [b"MULTI", b"SET", b"EXEC"]
    for command in later:
        command.reply(replies[command.arguments[0]])
    assert client.read_many(5) == [OK, b"1", OK, b"QUEUED", [OK]]


def test_a_lane_with_a_leftover_is_not_given_to_the_next(fake, make_headgate):
    """After EXEC the server says one thing too many: the lane must not serve another client."""
    headgate = make_headgate(fake.url, pool="shared")
    client = headgate.connect()
    ask(fake, client, "MULTI").reply(b"+OK\r\n")
    client.read()
    command = ask(fake, client, "EXEC")
    command.reply(b"*0\r\n")
    assert client.read() == []
    wait_for(lambda: stats(headgate)["clients_exclusive"] == "0", what="the lane to be given back")
    command.lane.send(b"+leftover\r\n")
    wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
    for _ in range(3):
        with headgate.connect() as other:
            multi = ask(fake, other, "MULTI")
            assert multi.lane is not command.lane
            multi.reply(b"+OK\r\n")
            assert other.read() == OK
    fake.answers["PING"] = lambda *_: b""
    script = ask(fake, client, "EVAL", "x", "0")
    script.reply(b"-NOSCRIPT No matching script. Please use EVAL.\r\n")
    assert client.read().startswith(b"NOSCRIPT")
    assert ask(fake, client, "MULTI").lane is not script.lane, "a script may have said that, and more behind it"


def reset(headgate, lane, said, meanwhile=bool):
    """What it has said is seen in one turn with its end, and with what happens meanwhile."""
    headgate.signal(signal.SIGSTOP)
    time.sleep(0.05)  # for the kernel to stop all of it
    lane.send(said)
    Client.reset(lane)
    meanwhile()
    headgate.signal(signal.SIGCONT)


def test_who_has_just_got_a_lane_that_breaks_waits_for_another(make_headgate, fake):
    """Nothing of the requests was sent: Redis has reset the connection by the time that its greeting is read."""
    headgate, left = make_headgate(fake.url, pool="shared", exclusive_idle=0), []

    def greet(lane, _arguments):
        if left:
            reset(headgate, lane, b"+OK\r\n", left.pop)
        return b"" if lane.socket.fileno() < 0 else b"+OK\r\n"

    fake.answers["SELECT"] = greet
    with headgate.connect() as client:
        assert client("SELECT", 1) == OK
        ask(fake, client, "GET", "k").reply(b"$-1\r\n")
        assert client.read() is None
        left += [None] * 3
        client.send(encode("BLPOP", "a", 0) + encode("BLPOP", "b", 0))
        for key in ("a", "b"):
            fake.expect("BLPOP", key, "0").reply(b"$2\r\nhi\r\n")
        assert client.read_many(2) == [b"hi", b"hi"] and not left


@pytest.mark.parametrize("command", (("GET", "k"), ("BLPOP", "k", "0")))
def test_who_has_a_part_of_what_nobody_asked_for_is_closed(make_headgate, fake, command):
    """His request was not sent, and another lane's answer to it would be taken for the rest."""
    headgate = make_headgate(fake.url, pool="shared", lanes=1)
    client = headgate.connect()
    asked = ask(fake, client, *command)
    asked.reply(b"*0\r\n")
    assert client.read() == []
    reset(headgate, asked.lane, b"$10\r\nwhose", lambda: client.request(*command))
    assert client.read_to_end() == b"$10\r\nwhose"
