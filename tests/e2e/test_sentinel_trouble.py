"""Sentinels that lie, disagree, hang or know nothing, and servers that are not what they are said to be."""

import signal

import pytest

from harness.admin import send_and_await, stats, text
from harness.fake_sentinel import NOBODY, FakeSentinel, place_of, url_of
from harness.resp import OK, Error, encode, wait_for
from harness.sentinel import NAME

# The sentinels are threads of the test, and may be slow.
OFTEN = {"sentinel_check": "100ms", "sentinel_timeout": "20s"}
HASTY = {**OFTEN, "sentinel_timeout": "500ms"}


@pytest.fixture
def make_sentinel():
    made = []

    def make(server=None):
        made.append(FakeSentinel(server))
        return made[-1]

    yield make
    for sentinel in made:
        sentinel.close()


@pytest.fixture
def servers(make_redis):
    """Two masters that say who they are."""
    both = [make_redis(), make_redis()]
    for number, server in enumerate(both):
        with server.connect() as direct:
            direct("SET", "who", number)
    return both


@pytest.fixture
def sentinels(make_sentinel, servers):
    return [make_sentinel(servers[0]) for _ in range(3)]


def who(headgate):
    return headgate.told("GET", "who")


def await_who(headgate, number):
    wait_for(lambda: who(headgate) == b"%d" % number, 30, f"server {number}")


def nodes(headgate, role=None):
    with headgate.admin() as admin:
        lines = text(admin("NODES")).splitlines()
    found = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]
    return [node for node in found if role in (None, node["role"])]


def await_asked(sentinels, times=3):
    """Until each was asked so often again: whatever it said before has been heard."""
    before = [sentinel.asked for sentinel in sentinels]
    wait_for(lambda: all(one.asked >= was + times for one, was in zip(sentinels, before)), 30, "the sentinels' word")


def error_of(headgate):
    reply = who(headgate)
    return reply if isinstance(reply, Error) else None


def await_error(headgate, words):
    wait_for(lambda: words in (error_of(headgate) or b""), 30, words)


# ---- what one of them says ----


def test_an_answer_from_before_the_switch_changes_nothing(make_sentinel, servers, make_headgate):
    """A sentinel answers on one connection and announces on another: what comes first was not said first."""
    sentinel = make_sentinel(servers[0])
    headgate = make_headgate(url_of([sentinel]), sentinel_check="100ms", sentinel_timeout="1m")
    await_who(headgate, 0)
    sentinel.is_slow = True
    wait_for(lambda: sentinel.waiting, what="a question")
    before = sentinel.word()
    sentinel.switches_to(servers[1])
    await_who(headgate, 1)
    sentinel.answer_at_last(before)
    await_asked([sentinel])
    assert stats(headgate)["topology_changes_total"] == "1"


def test_a_liar_is_overruled(sentinels, servers, make_headgate, pool):
    sentinels[0].says(servers[1])
    headgate = make_headgate(url_of(sentinels), pool=pool, **OFTEN)
    assert who(headgate) == b"0"
    with headgate.connect() as client:
        assert client("SET", "mine", 1) == OK
        sentinels[0].switches_to(servers[1])
        await_asked(sentinels)
        assert client("GET", "mine") == b"1"
    assert "127.0.0.1:%d now" % place_of(servers[1])[1] not in headgate.log()
    assert [node["state"] for node in nodes(headgate, "sentinel")] == ["up"] * 3


def test_the_first_that_answers_is_not_believed(sentinels, servers, make_headgate):
    """It lies, and the others are slow."""
    sentinels[0].says(servers[1])
    for sentinel in sentinels[1:]:
        sentinel.is_slow = True
    headgate = make_headgate(url_of(sentinels), sentinel_check="100ms", sentinel_timeout="60s")
    wait_for(lambda: all(sentinel.asked for sentinel in sentinels), 30, "all to be asked")
    assert nodes(headgate, "master")[0]["state"] == "unknown"
    for sentinel in sentinels[1:]:
        sentinel.answer_at_last()
    await_who(headgate, 0)
    assert stats(headgate, "topology")["topology_changes_total"] == "0"


def test_a_liar_alone_does_not_take_a_master_that_is_well_away(sentinels, servers, make_headgate):
    headgate = make_headgate(url_of(sentinels), **OFTEN)
    assert who(headgate) == b"0"
    sentinels[1].close()
    sentinels[2].close()
    wait_for(lambda: [node["state"] for node in nodes(headgate, "sentinel")] == ["up", "down", "down"], 30, "two to go")
    sentinels[0].switches_to(servers[1])
    await_asked(sentinels[:1])
    assert who(headgate) == b"0"
    # … but one that is not there any more.
    servers[0].kill()
    await_who(headgate, 1)


def test_another_that_cannot_be_reached(sentinels, servers, make_headgate):
    """The one of before is left all the same: what is written there is lost."""
    headgate = make_headgate(url_of(sentinels), upstream_wait="100ms", **OFTEN)
    assert who(headgate) == b"0"
    with headgate.connect() as idle:
        assert idle("GET", "who") == b"0"
        servers[1].kill()
        for sentinel in sentinels[:2]:
            sentinel.switches_to(servers[1])
        await_error(headgate, b"the server that the sentinels name does not answer")
        assert isinstance(idle("SET", "k", 1), Error)
        for sentinel in sentinels[:2]:
            sentinel.switches_to(servers[0])
        wait_for(lambda: idle("SET", "k", 2) == OK, 30, "the one of before")
    assert headgate.log().count("by the word of the sentinels") == 1


def test_they_disagree(make_sentinel, servers, make_headgate):
    sentinels = [make_sentinel(server) for server in servers]
    headgate = make_headgate(url_of(sentinels), upstream_wait="100ms", **OFTEN)
    await_error(headgate, b"the sentinels do not agree where it is")
    sentinels[1].says(servers[0])
    await_who(headgate, 0)
    sentinels[1].switches_to(servers[1])
    await_asked(sentinels)
    assert who(headgate) == b"0"
    assert headgate.log().count("do not agree where the master") == 2


def test_no_such_master(sentinels, servers, make_headgate):
    for sentinel, answer in zip(sentinels, (NOBODY, b"-IDONTKNOW\r\n", b"-ERR No such master with that name\r\n")):
        sentinel.answer = answer
    headgate = make_headgate(url_of(sentinels), upstream_wait="100ms", **OFTEN)
    await_error(headgate, b"the sentinels know no master of that name")
    await_asked(sentinels)
    assert headgate.log().count(f"knows no master of the name {NAME}") == 3
    sentinels[0].answer = None
    await_who(headgate, 0)


NONSENSE = (
    b"*2\r\n$0\r\n\r\n$4\r\n6379\r\n",
    b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n",
    b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n",
    b"*2\r\n$9\r\n127.0\n0.1\r\n$4\r\n6379\r\n",
    b"*2\r\n$9\r\n127.0.0.1\r\n$6\r\n006379\r\n",
    b"*2\r\n$300\r\n" + b"a" * 300 + b"\r\n$4\r\n6379\r\n",
    b"*2147483647\r\n",
    b"*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n",
    b"$1048576\r\n" + b"x" * (1 << 20) + b"\r\n",
    b"*1\r\n" * 40 + b"$1\r\n1\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"-NOAUTH Authentication required.\r\n",
    b"-ERR unknown command 'SENTINEL'\r\n",
    b":1\r\n",
)


def test_nonsense(sentinels, make_headgate):
    """One that answers so has no say; and it is said once."""
    headgate = make_headgate(url_of(sentinels), **HASTY)
    assert who(headgate) == b"0"
    for number, answer in enumerate(NONSENSE, 1):
        sentinels[0].answer = answer
        wait_for(lambda: nodes(headgate, "sentinel")[0]["state"] == "down", 30, f"it to have no say: {answer[:50]}")
        await_asked(sentinels[:1])
        assert headgate.log().count(f"sentinel 127.0.0.1:{sentinels[0].port} does not answer") == number, answer[:50]
        assert who(headgate) == b"0"
        sentinels[0].answer = None
        wait_for(lambda: nodes(headgate, "sentinel")[0]["state"] == "up", 30, "it to be heard again")


# ---- what the server says ----


def test_a_server_that_is_no_master(sentinels, servers, make_headgate):
    """Nothing goes there, whatever the sentinels say, until it is one."""
    with servers[1].connect() as direct:
        assert direct("REPLICAOF", "127.0.0.1", 1) == OK
    for sentinel in sentinels:
        sentinel.says(servers[1])
    headgate = make_headgate(url_of(sentinels), upstream_wait="100ms", **OFTEN)
    await_error(headgate, b"the server that the sentinels name is no master")
    with servers[1].connect() as direct:
        assert b"\r\ncmdstat_get:" not in direct("INFO", "commandstats")
        assert direct("REPLICAOF", "NO", "ONE") == OK
    await_who(headgate, 1)


def test_a_server_that_is_demoted_and_promoted_again(sentinels, servers, make_headgate, pool):
    headgate = make_headgate(url_of(sentinels), pool=pool, upstream_wait="60s", **OFTEN)
    with headgate.connect() as client, servers[0].connect() as direct:
        assert client("GET", "who") == b"0"
        for number in range(1, 4):
            assert direct("REPLICAOF", "127.0.0.1", 1) == OK
            wait_for(lambda: headgate.log().count("no master any more") == number, 30, "it to be noticed")
            client.request("SET", "k", number)
            client.assert_silent()
            assert direct("REPLICAOF", "NO", "ONE") == OK
            assert client.read() == OK
            assert client("GET", "k") == b"%d" % number


def test_a_lane_that_breaks_while_it_is_left(sentinels, servers, make_headgate):
    """An answer is waited for on it for a moment, and its server ends within that: at the next one it is as any other."""
    headgate = make_headgate(url_of(sentinels), pool="shared", **OFTEN)
    await_who(headgate, 0)
    servers[0].signal(signal.SIGSTOP)
    with headgate.connect() as client:
        send_and_await(headgate, client, encode("GET", "who"))
        for sentinel in sentinels:
            sentinel.switches_to(servers[1])
        wait_for(lambda: "127.0.0.1:%d now" % place_of(servers[1])[1] in headgate.log(), 30, "Headgate to leave")
        servers[0].kill()
        client.assert_closed()
    await_who(headgate, 1)
    with headgate.admin() as admin:
        wait_for(lambda: text(admin("LANES")).count("use=shared") == 1, 30, "the lane without a place to be closed")


def test_a_replica_greets(sentinels, servers, make_headgate):
    """By HELLO: a lane that is opened anew, before the master was asked again."""
    headgate = make_headgate(url_of(sentinels), sentinel_check="1h", upstream_wait="100ms", access_check="100ms")
    assert who(headgate) == b"0"
    with servers[0].connect() as direct:
        assert direct("REPLICAOF", "127.0.0.1", 1) == OK
        assert direct("CLIENT", "KILL", "TYPE", "normal") >= 1
    headgate.await_log("it is a replica, and no master")  # clients may be told of what comes a moment later only
    with servers[0].connect() as direct:
        assert direct("REPLICAOF", "NO", "ONE") == OK
    await_who(headgate, 0)
