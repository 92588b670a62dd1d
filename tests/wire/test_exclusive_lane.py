"""Both sides of exclusive lanes, byte by byte: streams, pushes, subscriptions, and lanes that die."""

import signal
import socket
import struct
import time

import pytest

from harness.admin import stats
from harness.resp import OK, Push, bulk, encode, same, wait_for
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


def test_others_are_served_while_one_streams(fake, headgate):
    client, other = headgate.connect(), headgate.connect()
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"v" * 500_000)
    for number in range(5):
        ask(fake, other, "GET", number).reply(b":%d\r\n" % number)
        assert other.read() == number
    client.send(b"v" * 500_000 + b"\r\n")
    command = fake.next()
    assert command.arguments[2] == b"v" * 1_000_000
    command.reply(b"+OK\r\n")
    assert client.read() == OK


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


def test_a_client_that_vanishes_while_streaming(fake, headgate):
    """Half a request must not be continued by anybody else's."""
    client, other = headgate.connect(), headgate.connect()
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"v" * 500_000)
    time.sleep(0.1)
    client.reset()
    ask(fake, other, "GET", "k").reply(b"$-1\r\n")
    assert other.read() is None
    fake.assert_idle(0.2)


def test_blocking_commands_have_a_lane_of_their_own(fake, headgate):
    waiting, other = headgate.connect(), headgate.connect()
    blocked = ask(fake, waiting, "BLPOP", "k", "0")
    served = ask(fake, other, "GET", "k")
    assert blocked.lane is not served.lane
    served.reply(b"+served\r\n")
    assert other.read() == b"served"
    blocked.reply(b"*2\r\n$1\r\nk\r\n$1\r\nv\r\n")
    assert waiting.read() == [b"k", b"v"]


def test_the_lane_of_a_vanished_blocking_client_is_closed_at_once(fake, headgate):
    client = headgate.connect()
    blocked = ask(fake, client, "BLPOP", "k", "0")
    client.close()
    wait_for(lambda: blocked.lane.closed_by_peer, what="the lane to be closed")


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


def test_requests_after_exec_wait_for_it(fake, headgate):
    client = headgate.connect()
    client.send(encode("MULTI") + encode("INCR", "k") + encode("EXEC") + encode("INCR", "k"))
    multi, queued, execute = fake.expect("MULTI"), fake.expect("INCR", "k"), fake.expect("EXEC")
    time.sleep(0.2)
    behind = fake.next() if not fake.pending.empty() else None
    assert behind is None or behind.lane is execute.lane
    multi.reply(b"+OK\r\n")
    queued.reply(b"+QUEUED\r\n")
    execute.reply(b"*1\r\n:1\r\n")
    behind = behind or fake.next()
    behind.reply(b":2\r\n")
    assert client.read_many(4) == [OK, b"QUEUED", [1], 2]


def test_a_transaction_whose_lane_dies(fake, headgate):
    """The client must learn that its transaction is gone; it is never continued on another connection."""
    client = headgate.connect()
    for command in (("MULTI",), ("SET", "k", "1")):
        ask(fake, client, *command).reply(b"+OK\r\n" if command[0] == "MULTI" else b"+QUEUED\r\n")
        client.read()
    fake.close_lanes()
    try:
        client.request("EXEC")
        assert client.read_to_end() == b""
    except ConnectionError:
        pass
    fake.assert_idle(0.3)


def test_subscriptions_and_pushes(fake, headgate):
    client, other = headgate.connect(), headgate.connect()
    command = ask(fake, client, "SUBSCRIBE", "a", "b")
    for byte in b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n":
        command.reply_part(bytes([byte]))
    assert client.read_many(2) == [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2]]
    ask(fake, other, "GET", "k").reply(b"+not a message\r\n")
    assert other.read() == b"not a message"
    for number in range(3):
        command.reply_part(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n" + bulk(number))
        assert client.read() == [b"message", b"a", b"%d" % number]
    other.assert_silent(0.05)
    for kind, count in ((b"psubscribe", -(2**63)), (b"subscribe", 1)):  # of a Redis that lies
        ask(fake, other, kind, "p").reply(b"*3\r\n" + bulk(kind) + bulk("p") + b":%d\r\n" % count)
        assert other.read() == [kind, b"p", count]


def test_pushes_between_replies_on_a_resp3_lane(fake, headgate):
    client, other = headgate.connect(), headgate.connect()
    for each in (client, other):
        each.request("HELLO", 3)
        each.read()
    client.request("CLIENT", "TRACKING", "ON")
    assert client.read() == OK
    command = ask(fake, client, "GET", "k")
    push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
    for byte in push + b"$5\r\nvalue\r\n" + push:
        command.reply_part(bytes([byte]))
    expected = Push([b"invalidate", [b"k"]])
    assert same(client.read(), expected)
    assert client.read() == b"value"
    assert same(client.read(), expected)
    assert ask(fake, other, "GET", "k").lane is not command.lane
    other.assert_silent(0.05)


def test_monitor_lines_are_no_replies(fake, headgate):
    client = headgate.connect()
    command = ask(fake, client, "MONITOR")
    command.reply_part(b"+OK\r\n" + b'+1.0 [0 127.0.0.1:1] "PING"\r\n' * 3)
    assert client.read_many(4) == [OK] + [b'1.0 [0 127.0.0.1:1] "PING"'] * 3
    with headgate.connect() as other:
        ask(fake, other, "GET", "k").reply(b"+x\r\n")
        assert other.read() == b"x"


def test_reply_off(fake, headgate):
    client, other = headgate.connect(), headgate.connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "k", 1) + encode("SET", "k", 2))
    silent = [fake.expect("SET", "k", "1"), fake.expect("SET", "k", "2")]
    for command in silent:
        command.reply(b"")
    ask(fake, other, "GET", "k").reply(b"+other\r\n")
    assert other.read() == b"other"
    client.request("CLIENT", "REPLY", "ON")
    assert client.read() == OK
    ask(fake, client, "GET", "k").reply(b"+heard\r\n")
    assert client.read() == b"heard"


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


def test_who_has_just_got_a_lane_that_breaks_waits_for_another(make_headgate, fake):
    """Nothing of the requests was sent: Redis has reset the connection by the time that its greeting is read."""
    headgate, left = make_headgate(fake.url, pool="shared", exclusive_idle=0), []

    def greet(lane, _arguments):
        if left:
            left.pop()
            headgate.signal(signal.SIGSTOP)
            time.sleep(0.05)  # for the kernel to stop all of it
            lane.send(b"+OK\r\n")
            lane.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            lane.socket.close()
            headgate.signal(signal.SIGCONT)
        return b"" if lane.socket.fileno() < 0 else b"+OK\r\n"

    fake.answers["SELECT"] = greet
    with headgate.connect() as client:
        assert client("SELECT", 1) == OK
        client.request("GET", "k")
        fake.expect("GET", "k").reply(b"$-1\r\n")
        assert client.read() is None
        left += [None] * 3
        client.send(encode("BLPOP", "a", 0) + encode("BLPOP", "b", 0))
        for key in ("a", "b"):
            fake.expect("BLPOP", key, "0").reply(b"$2\r\nhi\r\n")
        assert client.read_many(2) == [b"hi", b"hi"] and not left
