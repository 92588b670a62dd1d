"""AUTH goes out alone: some versions of Redis give no answer to one that fails while earlier replies are pending."""

import pytest

from harness.admin import stats
from harness.fake_redis import answer_hello, bulk, parse_command
from harness.resp import OK, PONG, Error, encode, wait_for

WRONGPASS = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
RULES = "[deny:forbidden]\ncommands = flushall\n"


class Forgetful:
    """As Redis 7.2 to 7.4: any password but "good" is wrong; the error of an AUTH is dropped if a reply to what came before it is still to be written.
    That is so if it came with something ahead of it, or behind what was not answered yet."""

    def __init__(self, fake):
        self.logins = []
        self.dropped = 0
        self.followed = 0
        fake.answers["AUTH"] = self.answer
        fake.answers["HELLO"] = self.answer_hello

    def answer(self, lane, arguments):
        first, end = parse_command(lane.buffer, 0)
        is_alone = len(lane.owed) == 1 and first == arguments
        if arguments[-1] == b"good":
            return b"+OK\r\n"
        self.logins.append(arguments[1:])
        self.followed += is_alone and len(lane.buffer) > end
        if not is_alone:
            self.dropped += 1
            return None
        return b"-%s\r\n" % WRONGPASS

    def answer_hello(self, lane, arguments):
        if b"AUTH" in [argument.upper() for argument in arguments]:
            place = [argument.upper() for argument in arguments].index(b"AUTH")
            answer = self.answer(lane, arguments) if arguments[place + 2] != b"good" else b"+OK\r\n"
            if answer != b"+OK\r\n":
                return answer
        return answer_hello(lane, arguments)


@pytest.fixture
def forgetful(fake):
    return Forgetful(fake)


@pytest.fixture(params=("", RULES), ids=("without rules", "with rules"))
def headgate(request, fake, forgetful, pool, make_headgate):
    headgate = make_headgate(fake.url, pool=pool, start=False)
    headgate.write_rules(request.param)
    headgate.start()
    yield headgate
    assert forgetful.dropped == 0
    assert forgetful.followed == 0


def is_hello(reply):
    return isinstance(reply, list) and len(reply) > 5


def test_behind_a_hello_and_a_name_of_headgates_own(headgate, forgetful):
    """What a client was told before is told to the lane on which it authenticates."""
    client = headgate.connect()
    assert is_hello(client("HELLO", 3))
    assert client("CLIENT", "SETNAME", "me") == OK
    assert client("PING") == PONG
    for _ in range(3):
        assert client("AUTH", "nobody", "bad") == WRONGPASS
        assert client("PING") == PONG
    assert client("AUTH", "somebody", "good") == OK
    assert client("AUTH", "nobody", "bad") == WRONGPASS
    with headgate.admin() as admin:
        assert b"user=somebody " in admin("CLIENTS")


def test_pipelines_keep_their_order(headgate, forgetful):
    client = headgate.connect()
    words = [("AUTH", "a", "bad"), ("PING",), ("AUTH", "b", "good"), ("AUTH", "c", "bad"), ("AUTH", "bad"), ("PING",),
             ("AUTH", "d", "good"), ("PING",)]
    expected = [WRONGPASS, PONG, OK, WRONGPASS, WRONGPASS, PONG, OK, PONG]
    client.send(b"".join(encode(*word) for word in words) * 5)
    assert client.read_many(5 * len(words)) == expected * 5
    failing = [[part.encode() for part in word[1:]] for word in words if word[-1] == "bad"]
    assert forgetful.logins == failing * 5


def test_hello_with_auth(headgate, forgetful):
    client = headgate.connect()
    client.send(encode("PING") + encode("HELLO", 3, "AUTH", "nobody", "bad") + encode("PING"))
    assert client.read_many(3) == [PONG, WRONGPASS, PONG]
    client.send(encode("PING") + encode("HELLO", 2, "AUTH", "nobody", "good") + encode("PING"))
    replies = client.read_many(3)
    assert replies[::2] == [PONG, PONG] and is_hello(replies[1])


def test_behind_what_is_not_answered_yet(headgate, fake, forgetful):
    client = headgate.connect()
    client.send(encode("GET", "k") + encode("AUTH", "nobody", "bad") + encode("GET", "l"))
    first = fake.expect("GET", "k")
    fake.assert_idle()
    assert forgetful.logins == []
    first.reply(b"+first\r\n")
    fake.expect("GET", "l").reply(b"+second\r\n")
    assert client.read_many(3) == [b"first", WRONGPASS, b"second"]


@pytest.fixture
def mute(fake, pool, make_headgate):
    """Redis gives no answer to AUTH whatever Headgate does: a push was pending, for instance."""
    fake.answers["AUTH"] = lambda _lane, _arguments: None
    return make_headgate(fake.url, pool=pool, auth_timeout="1s")


def test_who_is_not_answered_is_closed(mute):
    client, other = mute.connect(), mute.connect()
    client.send(encode("AUTH", "nobody", "bad") + encode("PING"))
    assert other("PING") == PONG
    client.assert_closed()
    assert "Redis has not answered its AUTH for 1000 ms (auth_timeout)" in mute.log()
    assert other("PING") == PONG


@pytest.mark.parametrize("vanish", ("close", "reset", "shutdown_write"))
def test_who_goes_meanwhile_is_gone(fake, pool, make_headgate, vanish):
    fake.answers["AUTH"] = lambda lane, _arguments: lane.owed.clear()
    headgate = make_headgate(fake.url, pool=pool, auth_timeout="1h")
    client = headgate.connect()
    client.send(encode("AUTH", "nobody", "bad") + encode("PING") * 20_000)
    wait_for(lambda: stats(headgate)["lanes_exclusive"] != "0", what="a lane of its own")
    getattr(client, vanish)()
    wait_for(lambda: stats(headgate)["clients_connected"] == "0", 30, what="the client to be gone")


def test_a_slow_answer_is_waited_for(fake, pool, make_headgate):
    headgate = make_headgate(fake.url, pool=pool, auth_timeout="1h")
    held = []

    def hold_first(lane, _arguments):
        return b"+OK\r\n" if held else held.append(lane.owed.pop())

    fake.answers["AUTH"] = hold_first
    client = headgate.connect()
    client.send(encode("AUTH", "somebody", "good") + encode("GET", "k"))
    wait_for(lambda: held, what="AUTH")
    fake.assert_idle()
    held[0].lane.send(b"+OK\r\n")
    assert client.read() == OK
    fake.expect("GET", "k").reply(bulk("v"))
    assert client.read() == b"v"
