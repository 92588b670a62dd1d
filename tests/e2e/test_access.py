"""A password that is set, or taken away, while Headgate runs: all workers know it, however it was done."""

import contextlib
import time

import pytest

from harness.admin import await_outage, stats
from harness.resp import NIL_ARRAY, OK, PONG, QUEUED, Closed, Error, encode, wait_for
from harness.target import client_list

NOAUTH = Error(b"NOAUTH Authentication required.")
THREADS = 4
NEWCOMERS = 8


def looks(headgate):
    return int(stats(headgate, "upstream")["access_looks_total"])


@pytest.fixture
def direct(redis):
    """An operator at Redis itself, who stays connected."""
    with redis.connect() as client:
        yield client


@pytest.fixture
def headgate(redis, make_headgate):
    """Nothing but what clients do tells it. Each worker has shared lanes from before."""
    headgate = make_headgate(redis, threads=THREADS, access_check=0)
    warm(headgate)
    return headgate


def warm(headgate):
    return [client for client in newcomers(headgate) if client("PING") == PONG]


def newcomers(headgate, count=NEWCOMERS):
    return [headgate.connect() for _ in range(count)]


def replies_to_newcomers(headgate):
    """Of clients of every worker."""
    return [client("SET", "k", 1) for client in newcomers(headgate)]


def shared_by(headgate):
    """How many clients share a lane, that is, have none of their own."""
    facts = stats(headgate)
    return int(facts["clients_connected"]) - int(facts["clients_exclusive"])


SETTERS = {
    "plainly": [("CONFIG", "SET", "requirepass", "secret")],
    "among others": [("CONFIG", "SET", "maxmemory-samples", "5", "RequirePass", "secret")],
    "for the user": [("ACL", "SETUSER", "default", ">secret", "resetpass", ">secret")],
    "in a transaction": [("MULTI",), ("SET", "a", 1), ("CONFIG", "SET", "requirepass", "secret"), ("EXEC",)],
    "for the user in a transaction": [("MULTI",), ("ACL", "SETUSER", "default", "resetpass", ">secret"), ("EXEC",)],
    "behind what is not answered": [("CLIENT", "REPLY", "SKIP"), ("PING",), ("CONFIG", "SET", "requirepass", "secret")],
    "at length": [("ACL", "SETUSER", "default", "resetpass", ">secret", *["+get"] * 20000)],
}


@pytest.mark.threads
@pytest.mark.parametrize("commands", SETTERS.values(), ids=SETTERS)
def test_a_password_set_by_a_client_holds_for_all_workers_at_once(redis, headgate, commands):
    client = headgate.connect()
    client.send(b"".join(encode(*command) for command in commands))
    replies = client.read_many(len(commands) - 2 * (commands[0][1:2] == ("REPLY",)))
    assert not any(isinstance(reply, Error) for reply in replies)
    assert replies_to_newcomers(headgate) == [NOAUTH] * NEWCOMERS


OPENINGS = (("PING",), ("HELLO", 3), ("SELECT", 1))


@pytest.mark.parametrize("pool, by_client", (("direct", True), ("shared", True), ("shared", False), ("session", False)))
def test_who_is_there_goes_on(redis, direct, make_headgate, pool, by_client):
    options = {"pool": pool, "access_check": 0, "lane_idle_timeout": "100ms"}
    server = redis if pool == "direct" else make_headgate(redis, **options)
    there = [server.connect() for _ in range(6)]
    for client, opening in zip(there[3:], OPENINGS):
        client(*opening)
    assert [client("SET", "k", 1) for client in there] == [OK] * 6
    assert (there[0] if by_client else direct)("CONFIG", "SET", "requirepass", "secret") == OK
    time.sleep(0.5)  # What may be closed as idle is; none of it may be what they go on with.
    for client in there[3:]:
        assert client("GET", "k") == b"1" and client.pipeline([("MULTI",), ("EXEC",)]) == [OK, []]
    there[0].request("BLPOP", "q", 0)
    wait_for(lambda: b"blocked_clients:1" in direct("INFO", "clients"), what="it to block")
    said = there[1].pipeline([
        ("MULTI",), ("INCR", "n"), ("EXEC",), ("EVAL", "return 1", 0), ("BLPOP", "none", "0.01"), ("WATCH", "k"),
        ("UNWATCH",), ("HELLO", 3), ("GET", "k"), ("SELECT", 3), ("SET", "k", 3), ("SELECT", 0)])
    assert said[:7] == [OK, QUEUED, [1], 1, NIL_ARRAY, OK, OK] and b"proto" in said[7] and said[8:] == [b"1", OK, OK, OK]
    assert there[2].pipeline([("MULTI",), ("INCR", "n"), ("EXEC",), ("RPUSH", "q", "x")]) == [OK, QUEUED, [2], 1]
    assert there[0].read() == [b"q", b"x"]


def test_a_transaction_counts_when_it_is_executed(redis, headgate):
    """Until then Redis wants no password, and clients share; nor does it if it is thrown away, or fails."""
    client = headgate.connect()
    for end in ("DISCARD", "EXEC"):
        assert client("MULTI") == OK
        assert client("CONFIG", "SET", "requirepass", "secret") == QUEUED
        assert replies_to_newcomers(headgate) == [OK] * NEWCOMERS
        if end == "EXEC":
            client("NONSENSE")
        client(end)
        assert replies_to_newcomers(headgate) == [OK] * NEWCOMERS
    client.pipeline([("MULTI",), ("CONFIG", "SET", "requirepass", "secret")])
    assert replies_to_newcomers(headgate) == [OK] * NEWCOMERS
    assert client("EXEC") == [OK]
    assert replies_to_newcomers(headgate) == [NOAUTH] * NEWCOMERS


@pytest.mark.threads
def test_a_password_taken_away_at_redis_is_found_out(make_redis, make_headgate):
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, threads=THREADS, access_check="100ms")
    strangers = newcomers(headgate)
    # Who asks before Headgate knows has no lane yet when it is answered.
    for _ in range(2):
        assert [stranger("GET", "k") for stranger in strangers] == [NOAUTH] * NEWCOMERS
    assert shared_by(headgate) == 0
    with redis.connect() as direct:
        assert direct("AUTH", "secret") == OK
        assert direct("CONFIG", "SET", "requirepass", "") == OK

    def all_share():
        assert [stranger("GET", "k") for stranger in strangers] == [None] * NEWCOMERS
        return shared_by(headgate) == NEWCOMERS

    wait_for(all_share, what="those who are there to share lanes")
    assert [client("GET", "k") for client in newcomers(headgate)] == [None] * NEWCOMERS
    assert shared_by(headgate) == 2 * NEWCOMERS


@pytest.mark.threads
def test_who_was_not_let_in_has_nothing_for_others(direct, redis, make_headgate):
    headgate = make_headgate(redis, access_check=0, exclusive_idle=0)
    client = headgate.connect()
    assert client("CONFIG", "SET", "requirepass", "secret") == OK
    strangers = [stranger for stranger in newcomers(headgate) if stranger("GET", "k") == NOAUTH]
    assert client("CONFIG", "SET", "requirepass", "") == OK
    wait_for(lambda: "wants no password any more" in headgate.log(), what="it to be known")
    assert direct("CONFIG", "SET", "requirepass", "secret") == OK
    assert strangers[0]("GET", "k") == NOAUTH and len(strangers) == NEWCOMERS


def test_a_look_leaves_nothing_and_disturbs_nobody(redis, direct, make_headgate):
    headgate = make_headgate(redis, access_check="100ms")
    client = headgate.connect()
    assert client("SET", "k", 1) == OK
    wait_for(lambda: stats(headgate, "upstream")["lanes_pooled"] == "1", what="a lane to be ready")
    lanes = stats(headgate, "upstream")["lanes_opened_total"]
    before = looks(headgate)
    client.request("BLPOP", "none", 3)
    wait_for(lambda: looks(headgate) >= before + 5, what="five looks")
    # On a slow machine there is a look at any time. Without them there are the lanes, and who asks.
    headgate.write_config(access_check=0)
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
    wait_for(lambda: len(client_list(direct)) <= 4, what="no connection of a look to be left")
    assert client.read() is not None
    assert int(stats(headgate, "upstream")["lanes_opened_total"]) <= int(lanes) + 1
    assert stats(headgate, "upstream")["access_changes_total"] == "0"
    assert stats(headgate, "upstream")["lanes_failed_total"] == "0"


def test_nobody_has_rights_that_he_did_not_bring(redis, make_headgate):
    """Redis starts anew, with a password: who was there before has none of what others then open with it."""
    headgate = make_headgate(redis, pool="shared")
    there = [headgate.connect() for _ in OPENINGS]
    for before, opening in zip(there, OPENINGS):
        before(*opening)
    redis.kill()
    await_outage(headgate)
    redis.options = ("--requirepass", "secret")
    redis.start()
    for before in there:
        with contextlib.suppress(Closed):
            wait_for(lambda before=before: before("GET", "k") == NOAUTH, what="Redis to be back")
    others = [headgate.connect() for _ in range(4)]
    for other in others:
        assert other.pipeline([("AUTH", "secret"), ("MULTI",), ("EXEC",)]) == [OK, OK, []]
    for before in there:
        with contextlib.suppress(Closed, ConnectionError):
            assert before("SET", "k", 1) == NOAUTH
        before.close()
    assert [other("EXISTS", "k") for other in others] == [0] * 4


ANSWERS = (
    b"-DENIED Redis is running in protected mode", b"-ERR max number of clients reached",
    b"-LOADING Redis is loading the dataset in memory", b"-NOPERM this user has no permissions to run the 'ping' command",
    b"nonsense", b"-NOAUTH Authentication required.",
)


def test_what_a_look_makes_of_answers(fake, make_headgate):
    headgate = make_headgate(fake.url, access_check="100ms")
    client = headgate.connect()

    def serves():
        client.request("GET", "k")
        fake.expect("GET", "k").reply(b"+value\r\n")
        return client.read() == b"value"

    assert serves()
    for answer in ANSWERS:
        fake.answers["HELLO"] = fake.answers["PING"] = lambda _lane, _arguments, answer=answer: answer + b"\r\n"
        before = looks(headgate)
        wait_for(lambda: looks(headgate) >= before + 3, what="three looks")
        assert stats(headgate, "upstream")["access_changes_total"] == str(int(answer.startswith(b"-NOAUTH")))
        assert serves()


def test_a_look_that_is_not_answered_ends(fake, make_headgate):
    headgate = make_headgate(fake.url, access_check="100ms", connect_timeout="300ms")
    client = headgate.connect()
    client.send(encode("GET", "k"))
    fake.expect("GET", "k").reply(b"+first\r\n")
    assert client.read() == b"first"
    fake.answers["HELLO"] = lambda _lane, _arguments: None
    before = looks(headgate)
    wait_for(lambda: looks(headgate) >= before + 3, what="three looks")
    wait_for(lambda: len(fake.open_lanes()) <= 3, what="looks that have ended")


def test_who_was_let_in_may_still_subscribe_within_a_transaction(make_redis, make_headgate):
    """Connections that are made ahead are found not to be let in."""
    redis = make_redis()
    headgate = make_headgate(redis, pool="session", exclusive_ready=8, access_check=0)
    clients, other = [headgate.connect() for _ in range(2)], headgate.connect()
    for client in clients:
        assert client("PING") == PONG
    with redis.connect() as direct:
        assert direct("CONFIG", "SET", "requirepass", "secret") == OK
    other("GET", "k")
    headgate.await_log("wants a password; clients share no lane")
    assert clients[0].pipeline([("MULTI",), ("SUBSCRIBE", "a")]) == [OK, QUEUED]
    assert [clients[1](*command) for command in (("MULTI",), ("SUBSCRIBE", "a"))] == [OK, QUEUED]
