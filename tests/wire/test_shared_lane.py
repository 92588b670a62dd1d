"""The test writes both sides of a shared lane byte by byte: replies find their clients and nobody else."""

import random

import pytest

from harness.admin import stats
from harness.fake_redis import DEFAULT_ANSWERS, reply_in_pieces
from harness.resp import bulk, encode, wait_for


@pytest.fixture
def headgate(fake, make_headgate):
    return make_headgate(fake.url, pool="shared", lanes=1)


def ask(fake, client, *arguments):
    """Sends a request and returns it as it arrived at the fake Redis."""
    client.request(*arguments)
    return fake.expect(*arguments)


def test_the_request_is_the_same_bytes(fake, headgate):
    client = headgate.connect()
    client.send(b"*2\r\n$3\r\ngEt\r\n$1\r\nk\r\n")
    fake.expect("gEt", "k").reply(b"$1\r\nv\r\n")
    assert client.read() == b"v"


SHAPES = [
    b"+\r\n", b"-\r\n", b":-9223372036854775808\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"*2\r\n*0\r\n*1\r\n$-1\r\n",
    b"-ERR a\tb \xff\r\n", b"+" + b"s" * 70_000 + b"\r\n", b"$11\r\n\r\n+OK\r\n:1\r\n\r\n",
]
SHAPES_OF_RESP3 = [
    b"_\r\n", b"#t\r\n", b",inf\r\n", b"(12345678901234567890\r\n", b"=7\r\ntxt:abc\r\n", b"!5\r\nERR x\r\n", b"%0\r\n", b"~0\r\n",
    b"%1\r\n+k\r\n~2\r\n:1\r\n#f\r\n", b"*2\r\n%1\r\n_\r\n_\r\n=5\r\ntxt:\n\r\n", b"|1\r\n+ttl\r\n:3600\r\n$3\r\none\r\n",
]


@pytest.mark.parametrize("version", (2, 3))
def test_many_clients_and_random_pieces(fake, headgate, version):
    """Requests of many clients interleaved, replies of random shape in random pieces."""
    chance = random.Random(7)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients if version == 3 else []:
        client("HELLO", 3)
    for turn in range(10):
        counts = [chance.randrange(1, 6) for _ in clients]
        for number, client in enumerate(clients):
            client.send(b"".join(encode("GET", f"{turn}-{number}-{index}") for index in range(counts[number])))
        answers, wanted = [], [b""] * len(clients)
        for command in fake.next_many(sum(counts)):
            key = command.arguments[1]
            own = [bulk(key), b"+%s\r\n" % key, b"*2\r\n%s:1\r\n" % bulk(key), bulk(key * 3_000), b"-E %s\r\n" % key]
            reply = chance.choice(own + (SHAPES_OF_RESP3 if version == 3 else SHAPES))
            answers.append((command, reply))
            wanted[int(key.split(b"-")[1])] += reply
        reply_in_pieces(answers, (chance.choice([1, 2, 5, 17, 100, 4_096, 60_000]) for _ in range(10_000)))
        for client, data in zip(clients, wanted):
            assert client.read_exactly(len(data)) == data
    for client in clients:
        client.assert_silent(0.01)


def test_a_client_that_sent_half_a_command_blocks_nobody(fake, headgate):
    stalled, other = headgate.connect(), headgate.connect()
    stalled.send(b"*2\r\n$3\r\nGET\r\n$5\r\nst")
    ask(fake, other, "GET", "other").reply(b"+fine\r\n")
    assert other.read() == b"fine"
    fake.assert_idle(0.1)
    stalled.send(b"all\r\n")
    fake.expect("GET", "stall").reply(b"+late\r\n")
    assert stalled.read() == b"late"


def test_a_client_that_vanishes_in_the_middle_of_its_reply(fake, headgate):
    gone, other = headgate.connect(), headgate.connect()
    lost = ask(fake, gone, "GET", "lost")
    kept = ask(fake, other, "GET", "kept")
    lost.reply_part(b"*3\r\n$3\r\nabc\r\n$10\r\n01234")
    assert gone.read_line() == b"*3"
    gone.reset()
    lost.reply_part(b"56789\r\n")
    lost.reply(b":7\r\n")
    kept.reply(b"+kept\r\n")
    assert other.read() == b"kept"
    other.assert_silent(0.05)


def test_a_reply_that_answers_no_request(fake, headgate):
    """The lane is closed at once. Nobody waited for anything, so nobody is closed, and nobody sees it."""
    clients = [headgate.connect() for _ in range(3)]
    for unasked in (b"+OK\r\n", b"$5\r\nhello\r\n", b"-ERR out of the blue\r\n", b"*0\r\n"):
        for number, client in enumerate(clients):
            command = ask(fake, client, "GET", number)
            command.reply(b":%d\r\n" % number)
            assert client.read() == number
        command.lane.send(unasked)
        wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
        for client in clients:
            client.assert_silent(0.05)


def test_one_reply_too_many(fake, headgate):
    """The reply is delivered, what follows it is not: not to the same client, and not to the next that asks."""
    client, other = headgate.connect(), headgate.connect()
    command = ask(fake, client, "GET", "k")
    command.reply(b"+mine\r\n+whose?\r\n")
    assert client.read() == b"mine"
    wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
    client.assert_silent(0.05)
    ask(fake, other, "GET", "k").reply(b"+theirs\r\n")
    assert other.read() == b"theirs"


def test_a_lane_that_dies_closes_exactly_who_waited(fake, headgate):
    waiting = [headgate.connect() for _ in range(5)]
    idle = [headgate.connect() for _ in range(5)]
    for number, client in enumerate(idle):
        ask(fake, client, "GET", number).reply(b"+seen\r\n")
        assert client.read() == b"seen"
    commands = [ask(fake, client, "GET", "x") for client in waiting]
    commands[0].reply(b"+answered in time\r\n")
    assert waiting[0].read() == b"answered in time"
    commands[1].reply_part(b"$100\r\nhalf a reply")
    commands[1].lane.close()
    for client in waiting[1:]:
        client.read_to_end()
    for client in idle + waiting[:1]:
        assert not client.is_closed()
        ask(fake, client, "GET", "again").reply(b"+again\r\n")
        assert client.read() == b"again"


def test_requests_not_yet_written_survive(fake, headgate):
    """While no lane is up, requests wait; the next lane carries them, in order."""
    client = headgate.connect()
    command = ask(fake, client, "GET", "first")
    command.reply(b"+first\r\n")
    assert client.read() == b"first"
    before, fake.answers = fake.answers, dict.fromkeys(DEFAULT_ANSWERS, lambda lane, _arguments: lane.close())
    command.lane.close()
    wait_for(lambda: stats(headgate, "upstream")["lanes_shared"] == "0", what="the lane to be gone for Headgate, too")
    client.send(encode("GET", "a") + encode("GET", "b"))
    client.assert_silent(0.3)
    fake.answers = before
    for key in (b"a", b"b"):
        fake.expect("GET", key).reply(b"+%s\r\n" % key)
    assert client.read_many(2) == [b"a", b"b"]


def test_profiles_share_no_lane(fake, headgate):
    """RESP2 and RESP3, and each database, and each user, have lanes of their own."""
    lanes = set()
    for profile in ((), ("HELLO", 3), ("SELECT", 3), ("AUTH", "someone", "password")):
        with headgate.connect() as client:
            assert not profile or client(*profile)
            command = ask(fake, client, "GET", "k")
            lanes.add(command.lane)
            command.reply(b"+x\r\n")
            assert client.read() == b"x"
    assert len(lanes) == 4
