"""Subcommands of CLIENT: which of them cost a client its place on the shared lanes, and whose rights they ask about."""

import pytest

from harness.admin import stats
from harness.resp import OK, QUEUED, Error, Map, encode, wait_for
from harness.target import client_list

UNTOUCHED = "0"


def on_lanes_of_their_own(headgate):
    return stats(headgate, "clients")["clients_exclusive"]


TAKEN = """
CLIENT GETREDIR|CLIENT HELP|CLIENT IMPORT-SOURCE ON|CLIENT CAPA redirect|CLIENT KILL ID 999999|CLIENT KILL ADDR 127.0.0.1:1 SKIPME yes
CLIENT LIST|CLIENT LIST TYPE pubsub|CLIENT NO-TOUCH ON|CLIENT NO-SUCH-THING|CLIENT PAUSE 0|CLIENT PAUSE x|CLIENT SETNAME x
CLIENT SETINFO LIB-NAME x|CLIENT TRACKINGINFO|CLIENT UNBLOCK 999999|CLIENT UNPAUSE|CLIENT REPLY ON|CLIENT
""".strip().replace("\n", "|").split("|")
REFUSED = """
READONLY|READWRITE|ASKING|HELLO 3 BAD|HELLO 2 AUTH|HELLO 3 SETNAME|HELLO x|WAIT|WAIT x y|WAIT 0 x|WAIT 0 -1|WAITAOF 1 0
CLIENT SETNAME|CLIENT SETNAME a b|CLIENT GETNAME x|CLIENT SETINFO|CLIENT SETINFO LIB-NAME|CLIENT SETINFO BAD x
CLIENT ID x|CLIENT INFO x|CLIENT TRACKING|CLIENT TRACKING BAD|CLIENT TRACKING ON BAD|CLIENT REPLY
CLIENT REPLY ON x|CLIENT NO-EVICT|CLIENT NO-EVICT BAD|CLIENT CACHING|CLIENT CACHING YES
""".strip().replace("\n", "|").split("|")


def test_what_leaves_nothing_behind_costs_no_lane(redis, make_headgate):
    """Nor does what Redis refuses. It was taken for something that may have, and the client kept a lane for life."""
    headgate = make_headgate(redis, pool="shared")
    for words in TAKEN + REFUSED:
        client, other = headgate.connect(), headgate.connect()
        with redis.connect() as direct:
            expected = direct(*words.split())
        assert words in TAKEN or isinstance(expected, Error), words
        client.send(encode("SET", "k", 2) + encode(*words.split()) + encode("GET", "k"))
        replies = client.read_many(3)
        assert replies[::2] == [OK, b"2"] and (replies[1] == expected or "LIST" in words), words
        assert other("GET", "k") == b"2", words
        assert on_lanes_of_their_own(headgate) == UNTOUCHED, words
        client.close()
        other.close()


def test_what_does_keeps_its_lane(redis, make_headgate):
    for command in [("NO-EVICT", "ON"), ("REPLY", "OFF"), ("TRACKING", "ON"), ("KILL", "127.0.0.1:1")]:
        headgate = make_headgate(redis, pool="shared")
        client = headgate.connect()
        client.send(encode("HELLO", 3) + encode("CLIENT", *command) + encode("SET", "k", 1))
        assert isinstance(client.read(), Map), command
        with redis.connect() as direct:
            wait_for(lambda: direct("GET", "k") == b"1", what="the SET")
        assert on_lanes_of_their_own(headgate) == "1", command


def test_an_unknown_subcommand_that_is_taken_keeps_its_lane(fake, make_headgate):
    """It may have left anything there."""
    headgate = make_headgate(fake.url, pool="shared")
    client, other = headgate.connect(), headgate.connect()
    assert client("CLIENT", "NEWFANGLED", "ON") == OK
    fake.answers["CLIENT"] = lambda _lane, _arguments: b"-ERR something else went wrong\r\n"
    assert isinstance(other("CLIENT", "NEWFANGLED", "ON"), Error)
    for one in (client, other):
        one.request("GET", "k")
        fake.expect("GET", "k").reply(b"+v\r\n")
        assert one.read() == b"v"
    assert on_lanes_of_their_own(headgate) == "2"


def acl_log(direct):
    return [dict(zip(entry[::2], entry[1::2]))[b"object"] for entry in direct("ACL", "LOG")]


@pytest.mark.parametrize("version", (2, 3))
def test_nobody_is_written_down_for_what_headgate_does(redis, make_headgate, pool, version):
    """PING and CLIENT SETNAME of its own were in ACL LOG, under the user's name."""
    headgate = make_headgate(redis, pool=pool)
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "low", "on", ">pw", "~*", "+get", "+multi", "+exec", "+subscribe", "&*")
        client = headgate.connect()
        assert isinstance(client("HELLO", version, "AUTH", "low", "pw", "SETNAME", "lowly"), (Map, list))
        assert client("GET", "k") is None or version == 3
        assert client("MULTI") == OK
        assert client("GET", "k") == QUEUED
        names = [entry["name"] for entry in client_list(direct) if entry["user"] == "low" and entry["multi"] != "-1"]
        assert names == ["lowly"]
        assert len(client("EXEC")) == 1
        subscriber = headgate.connect()
        assert subscriber("AUTH", "low", "pw") == OK
        assert subscriber("SUBSCRIBE", "c")[0] == b"subscribe"
        assert acl_log(direct) == []


@pytest.mark.parametrize("subcommand", [("SETNAME", "x"), ("GETNAME",)])
def test_a_right_that_is_taken_at_redis_itself_is_gone(redis, make_headgate, pool, subcommand):
    """It held for as long as the profile lived: who has shown it once was answered by Headgate from then on."""
    headgate = make_headgate(redis, pool=pool, access_check="100ms")
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all")
        client = headgate.connect()
        assert client("AUTH", "half", "pw") == OK

        def is_refused():
            reply = client("CLIENT", *subcommand)
            assert not isinstance(reply, Error) or reply.startswith(b"NOPERM")
            return isinstance(reply, Error)

        for given, right in ((True, "+"), (False, "-"), (True, "+")):
            direct("ACL", "SETUSER", "half", f"{right}client|{subcommand[0].lower()}")
            wait_for(lambda: is_refused() != given, what=f"{right} to be noticed")
        if pool == "shared":
            assert on_lanes_of_their_own(headgate) == UNTOUCHED


def refusals(direct, what):
    entries = [dict(zip(entry[::2], entry[1::2])) for entry in direct("ACL", "LOG", 1000)]
    return sum(int(entry[b"count"]) for entry in entries if entry[b"object"] == what)


def test_a_user_who_may_not_ping_is_written_down_once(redis, make_headgate):
    """What a script has answered in parts, or by an error, is told from the next answers by a PING on its lane."""
    headgate = make_headgate(redis, pool="shared")
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "low", "on", ">pw", "~*", "+eval", "+get")
        for _ in range(10):
            client = headgate.connect()
            assert client("AUTH", "low", "pw") == OK
            assert client("EVAL", "return redis.error_reply('a')", 0) == Error(b"ERR a")
            assert client("EVAL", "return {1}", 0) == [1]
            assert client("GET", "k") is None
            client.close()
        # A second one may be on its way before the answer to the first was read; twenty answers asked for one.
        assert 1 <= refusals(direct, b"ping") <= 2
        assert direct("PING") == b"PONG"
    counts = stats(headgate, "upstream")
    wait_for(lambda: int(stats(headgate, "upstream")["exclusive_returned_total"]) >= 18, what="lanes to be given back")
    assert int(counts["lanes_desynced_total"]) == 0, counts
