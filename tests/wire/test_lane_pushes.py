"""Pushes that nobody has asked for, byte by byte, on lanes that no client owns. They go nowhere, and no reply with them.

Any client may have the invalidation messages of CLIENT TRACKING sent to any connection in RESP3 (REDIRECT).
"""

import itertools
import random

import pytest

from harness.admin import stats
from harness.fake_redis import DEFAULT_ANSWERS, reply_in_pieces
from harness.resp import Map, Push, bulk, encode, wait_for

PUSHES = [
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
    b">2\r\n$10\r\ninvalidate\r\n_\r\n",
    b">0\r\n",
    b">1\r\n%1\r\n+$3\r\n>1\r\n:1\r\n",
    b">2\r\n+*1\r\n$9\r\n\r\n+OK\r\n:1\r\n",
]
PUSH = PUSHES[0]


@pytest.fixture
def headgate(fake, make_headgate):
    return make_headgate(fake.url, pool="shared", lanes=1, access_check=0)


def in_resp3(headgate):
    client = headgate.connect()
    assert isinstance(client("HELLO", 3), Map)
    return client


def ask(fake, client, *arguments):
    client.request(*arguments)
    return fake.expect(*arguments)


def dropped(headgate):
    return int(stats(headgate, "upstream")["pushes_dropped_total"])


def desynced(headgate):
    return int(stats(headgate, "upstream")["lanes_desynced_total"])


def await_dropped(headgate, count):
    wait_for(lambda: dropped(headgate) == count, what=f"{count} pushes to be dropped")


def test_before_between_and_behind_replies(fake, headgate):
    one, two = in_resp3(headgate), in_resp3(headgate)
    for number, push in enumerate(PUSHES, 1):
        first, second = ask(fake, one, "GET", "one"), ask(fake, two, "GET", "two")
        assert first.lane is second.lane and first.lane.protocol == 3
        first.lane.send(push)
        first.reply(push + b"$3\r\none\r\n" + push)
        second.reply(push + push + b"$3\r\ntwo\r\n" + push)
        assert one.read() == b"one"
        assert two.read() == b"two"
        await_dropped(headgate, 6 * number)
        for client in (one, two):
            client.assert_silent(0.02)
    assert desynced(headgate) == 0


def test_nothing_of_a_reply_is_taken_for_a_push(fake, headgate):
    """Within a reply, and in an observed one, '>' is a byte like any other."""
    client = in_resp3(headgate)
    for reply in (bulk(PUSH), b"+>1\r\n", b"*2\r\n>1\r\n:1\r\n:2\r\n",
                  b"$1\r\n>\r\n", b"->\r\n"):
        for cut in range(1, len(reply)):
            reply_in_pieces([(ask(fake, client, "GET", "k"), reply)], [cut, 1000])
            assert client.read_exactly(len(reply)) == reply
    assert dropped(headgate) == 0 and desynced(headgate) == 0


def test_pipelines_of_many_clients_in_random_pieces(fake, headgate):
    chance = random.Random(13)
    clients = [in_resp3(headgate) for _ in range(12)]
    pushes = 0
    for turn in range(20):
        counts = [chance.randrange(1, 6) for _ in clients]
        for client, count in zip(clients, counts):
            client.send(b"".join(encode("GET", f"{turn}") for _ in range(count)))
        answers, wanted = [], {}
        for command in fake.next_many(sum(counts)):
            reply = chance.choice([b"+OK\r\n", b":7\r\n", b"*1\r\n$1\r\n>\r\n", bulk("x" * chance.randrange(3000)), b"_\r\n"])
            before = chance.choices(PUSHES, k=chance.choice([0, 0, 1, 3]))
            pushes += len(before)
            answers.append((command, b"".join(before) + reply))
            wanted[command] = reply
        reply_in_pieces(answers, (chance.choice([1, 2, 7, 40, 2000, 60_000]) for _ in range(100_000)))
        # What a client gets is what was sent for its own requests, in their order, as far as that can be told apart.
        expected = sum(len(reply) for reply in wanted.values())
        total = 0

        def all_came():
            nonlocal total
            total += sum(len(client.read_until_quiet(0.02)) for client in clients)
            return total >= expected

        wait_for(all_came, what="all replies")
        assert total == expected
    assert dropped(headgate) == pushes and desynced(headgate) == 0


def test_on_a_pooled_lane_and_while_it_is_taken(fake, make_headgate):
    """A client that takes the lane in the midst of such a push sees nothing of it, and is answered in order."""
    headgate = make_headgate(fake.url, lanes=1, access_check=0, exclusive_ready=0)
    client = in_resp3(headgate)
    ask(fake, client, "WATCH", "k").reply(b"+OK\r\n")
    assert client.read() == b"OK"
    assert client("UNWATCH") == b"OK"
    wait_for(lambda: stats(headgate)["lanes_pooled"] == "1", what="the lane to be pooled")
    lane = next(lane for lane in reversed(fake.open_lanes()) if lane.protocol == 3)
    lane.send(PUSH)
    await_dropped(headgate, 1)
    lane.send(PUSH[:12])
    assert stats(headgate)["lanes_pooled"] == "1"
    watch = ask(fake, client, "WATCH", "k")
    assert watch.lane is lane
    lane.send(PUSH[12:])
    watch.reply(b"+OK\r\n")
    assert client.read() == b"OK"
    assert dropped(headgate) == 2
    # Now the lane is the client's own: what Redis pushes there is for it to see.
    lane.send(PUSH)
    assert client.read() == Push([b"invalidate", [b"k"]])
    assert dropped(headgate) == 2 and desynced(headgate) == 0


@pytest.mark.parametrize("pieces", ([1], [40]))
def test_during_the_greeting(fake, headgate, pieces):
    """The connection has its id before it is ready. Shared and exclusive lanes, before and behind their last reply."""
    hello = {}

    def pushed(answer):
        def reply(lane, arguments):
            data = answer(lane, arguments)
            return data if lane.protocol != 3 else hello_or_pushed(lane, arguments, data)
        return reply

    def hello_or_pushed(lane, arguments, data):
        data = (PUSH if lane in hello else b"") + data + PUSH
        hello[lane] = True
        size = itertools.cycle(pieces)
        while data:
            piece = next(size)
            lane.send(data[:piece])
            data = data[piece:]
        return b""

    client = in_resp3(headgate)
    for name in ("HELLO", "CLIENT", "PING", "SELECT"):
        fake.answers[name] = pushed(DEFAULT_ANSWERS[name])
    one = ask(fake, client, "GET", "k")
    fake.answers.clear()
    assert one.lane in hello
    one.reply(b"+one\r\n")
    assert client.read() == b"one"
    wait_for(lambda: dropped(headgate) >= 3, what="the pushes to be dropped")
    assert desynced(headgate) == 0


def test_in_resp2_nothing_of_the_kind_may_come(fake, headgate):
    client = headgate.connect()
    command = ask(fake, client, "GET", "k")
    command.lane.send(PUSH)
    client.assert_closed()
    wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
    assert desynced(headgate) == 1 and dropped(headgate) == 0


@pytest.mark.parametrize("data", [b"+OK\r\n", b"|1\r\n+a\r\n:1\r\n" + PUSH, PUSH + b":1\r\n", b">x\r\n", b">2\r\nx"])
def test_what_cannot_be_told_closes_the_lane(fake, headgate, data):
    """Replies to nothing, pushes with an attribute, and what is no RESP."""
    client = in_resp3(headgate)
    command = ask(fake, client, "GET", "k")
    command.reply(b"+mine\r\n")
    assert client.read() == b"mine"
    command.lane.send(data)
    wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
    client.assert_silent(0.05)
    later = ask(fake, client, "GET", "later")
    later.reply(b"+later\r\n")
    assert client.read() == b"later"
    assert desynced(headgate) == 1
