"""CLIENT TRACKING ON OPTIN in pool = shared: Redis remembers nothing for who has said it until CLIENT CACHING YES, so it
costs no lane until then; and nobody can tell that Redis was not told before."""

import itertools
import time

import pytest

from harness.admin import await_outage, stats
from harness.resp import NULL, OK, QUEUED, Closed, Error, Map, Push, Set, encode, wait_for
from harness.target import Target, client_list, info

OPTIN = ("CLIENT", "TRACKING", "ON", "OPTIN")
CACHE = ("CLIENT", "CACHING", "YES")
INFO = ("CLIENT", "TRACKINGINFO")
NO_CACHING = b"ERR CLIENT CACHING can be called only when the client is in tracking mode"


def exclusive(headgate):
    return int(stats(headgate, "clients")["clients_exclusive"])


def until_shared(headgate):
    wait_for(lambda: exclusive(headgate) == 0, what="all clients to share lanes")


def tracking_clients(redis):
    with redis.connect() as direct:
        return int(info(direct, "clients")["tracking_clients"])


def given_back(headgate):
    return int(stats(headgate, "upstream")["exclusive_returned_total"])


def nobody_has_a_lane(headgate):
    facts = stats(headgate)
    return facts["clients_exclusive"] == "0" and facts["lanes_exclusive"] == facts["lanes_pooled"]


def opted_in(headgate, resp=3):
    client = headgate.connect()
    assert isinstance(client("HELLO", resp), (Map, list))
    assert client(*OPTIN) == OK
    return client


def wrote(redis, key, value="w"):
    with redis.connect() as direct:
        assert direct("SET", key, value) == OK


def invalidated(*keys):
    return Push([b"invalidate", list(keys)])


# ---- what it costs ----


@pytest.mark.parametrize("resp", (2, 3))
@pytest.mark.parametrize("words", (OPTIN, ("client", "tracking", "on", "optin"), ("cLiEnT", "TRACKing", "oN", "OptiN")))
def test_who_opts_in_shares_lanes(redis, make_headgate, words, resp):
    headgate = make_headgate(redis, pool="shared", lanes=1)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        client.send(encode("HELLO", resp) + encode(*words) + encode("SET", "k", "v") + encode("GET", "k"))
        assert client.read_many(4)[1:] == [OK, OK, b"v"]
        assert client("GET", "k") == b"v"
    until_shared(headgate)
    wait_for(lambda: tracking_clients(redis) == 0, what="tracking to end")
    assert all(client(*words) == OK and client("GET", "k") == b"v" for client in clients)
    until_shared(headgate)


def test_inline(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    client = headgate.connect()
    for _ in range(2):
        client.send(b"client \"tracking\" on \"opt\\x69n\"\r\nclient tracking ON 'optin'\r\nSET k v\r\nGET k\r\n")
        assert client.read_many(4)[1:] == [OK, OK, b"v"]
    until_shared(headgate)
    client.send(b"client caching yes\r\nGET k\r\n")
    assert client.read_many(2) == [OK, b"v"]
    assert exclusive(headgate) == 1


def test_who_caches_has_a_lane_until_tracking_ends(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    client = opted_in(headgate)
    assert client("SET", "k", 1) == OK
    until_shared(headgate)
    for _ in range(3):
        assert client(*CACHE) == OK
        assert client("GET", "k") is not None
        wrote(redis, "k")
        assert client.read() == invalidated(b"k")
        assert exclusive(headgate) == 1 and tracking_clients(redis) == 1
        assert client("CLIENT", "TRACKING", "OFF") == OK
        assert client("GET", "k") == b"w"
        until_shared(headgate)
        wait_for(lambda: tracking_clients(redis) == 0, what="the lane to be closed")
        assert client(*CACHE).startswith(NO_CACHING)
        assert client(*OPTIN) == OK
        until_shared(headgate)


@pytest.mark.parametrize(
    "commands",
    [
        [INFO],
        [("CLIENT", "GETREDIR")],
        [("CLIENT", "INFO")],
        [("CLIENT", "LIST")],
        [("CLIENT", "CACHING", "NO")],
        [("CLIENT", "CACHING", "MAYBE")],
        [("CLIENT", "CACHING")],
        [("CLIENT", "TRACKING", "ON", "BCAST")],
        [("CLIENT", "TRACKING", "BAD")],
        [("MULTI",), ("GET", "k"), ("EXEC",)],
        [("MULTI",), ("DISCARD",)],
        [("WATCH", "k"), ("MULTI",), ("SET", "k", 1), ("EXEC",)],
        [("WATCH", "k"), ("UNWATCH",)],
        [("EVAL", "return {1}", 0)],
        [("BLPOP", "none", "0.01")],
        [("SUBSCRIBE", "c"), ("UNSUBSCRIBE", "c")],
        [("RESET",), ("HELLO", 3)],
        [("SELECT", 3)],
        [("HELLO", 2)],
        [("NO-SUCH-COMMAND",)],
        [("CLIENT", "NO-SUCH-THING")],
    ],
    ids=str,
)
def test_what_caches_nothing_costs_no_lane_for_long(redis, make_headgate, commands):
    """… nor leaves tracking behind for who gets the lane next."""
    headgate = make_headgate(redis, pool="shared", client_id_timeout="100ms")
    client = opted_in(headgate)
    for command in commands:
        client(*command)
    client("GET", "k")
    until_shared(headgate)
    if not str(commands[0][0]).startswith("NO-SUCH"):
        wait_for(lambda: tracking_clients(redis) == 0, what="tracking to end")
    other = headgate.connect()
    assert isinstance(other("HELLO", 3), Map)
    assert other("MULTI") == OK
    assert other("GET", "k") == QUEUED
    with redis.connect() as direct:
        assert direct("FLUSHALL") == OK
    assert other("EXEC") == [NULL]
    other.assert_silent(0.05)


def test_a_transaction_gives_its_lane_back(redis, make_headgate):
    """It costs Redis no new connection."""
    headgate = make_headgate(redis, pool="shared", access_check="1d")
    client = opted_in(headgate)
    assert client("GET", "n") is NULL
    wait_for(lambda: nobody_has_a_lane(headgate), what="the lane on which Redis was asked to be given back")
    with redis.connect() as direct:
        returned, connections = given_back(headgate), 0
        for turn in range(10):
            assert client("MULTI") == OK
            assert client("INCR", "n") == QUEUED
            assert client("EXEC") == [turn + 1]
            assert client("GET", "n") == b"%d" % (turn + 1)
            wait_for(lambda: given_back(headgate) == returned + turn + 1, what="the lane to be given back")
            assert info(direct, "clients")["tracking_clients"] == "0"
            seen, connections = connections, int(info(direct, "stats")["total_connections_received"])
            assert seen in (0, connections)


# ---- nobody can tell ----

PAUSE = "pause"

SCENARIOS = {
    "opted in": [OPTIN, INFO, ("CLIENT", "GETREDIR"), ("GET", "k"), "SET k", INFO],
    "twice": [OPTIN, OPTIN, INFO, ("client", "tracking", "on", "optin", "optin"), INFO],
    "words with a NUL": [("CLIENT", "TRACKING", b"on\0x", b"optin\0"), INFO],
    "cut words": [("CLIENT", "TRACKING", "ON", "OPTI"), ("CLIENT", "TRACK", "ON", "OPTIN"), ("CLIENT", "CACHING", "Y"), INFO],
    "more than that": [OPTIN + ("NOLOOP",), INFO, OPTIN, INFO],
    "other modes": [
        OPTIN,
        ("CLIENT", "TRACKING", "ON", "BCAST"),
        ("CLIENT", "TRACKING", "ON", "OPTOUT"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "BCAST"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "OPTOUT"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "PREFIX", "k"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "REDIRECT", "0"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "REDIRECT", "x"),
        ("CLIENT", "TRACKING", "OFF", "x"),
        INFO,
    ],
    "cached": [OPTIN, CACHE, ("GET", "k"), "SET k", ("GET", "k"), "SET k"],
    "cached as rueidis does": [OPTIN, CACHE, ("MULTI",), ("PTTL", "k"), ("GET", "k"), ("EXEC",), "SET k", ("GET", "l"), "SET l"],
    "cached within MULTI": [OPTIN, ("MULTI",), CACHE, ("GET", "k"), ("EXEC",), "SET k", INFO],
    "asked within MULTI": [OPTIN, ("WATCH", "k"), ("MULTI",), INFO, ("CLIENT", "CACHING", "NO"), ("EXEC",), CACHE, ("GET", "k"), "SET k"],
    "asked for within MULTI": [("MULTI",), OPTIN, ("EXEC",), CACHE, ("GET", "k"), "SET k"],
    "ended within MULTI": [OPTIN, ("MULTI",), ("CLIENT", "TRACKING", "OFF"), ("EXEC",), CACHE, INFO],
    "a transaction, then cached": [OPTIN, ("MULTI",), ("GET", "k"), ("EXEC",), "SET k", CACHE, ("GET", "k"), "SET k"],
    "caching no": [OPTIN, ("CLIENT", "CACHING", "NO"), ("GET", "k"), "SET k"],
    "caching is for one command": [OPTIN, CACHE, ("PING",), ("GET", "k"), "SET k", CACHE, INFO, ("GET", "l"), "SET l"],
    "a name between": [OPTIN, CACHE, ("CLIENT", "SETNAME", "n"), ("CLIENT", "GETNAME"), ("GET", "k"), "SET k"],
    "never opted in": [CACHE, INFO, ("CLIENT", "TRACKING", "OFF"), CACHE],
    "ended": [OPTIN, ("CLIENT", "TRACKING", "OFF"), INFO, CACHE, ("GET", "k"), "SET k", ("CLIENT", "TRACKING", "OFF")],
    "ended and begun": [OPTIN, CACHE, ("GET", "k"), ("CLIENT", "TRACKING", "OFF"), OPTIN, INFO, ("GET", "l"), "SET l"],
    "all of it": [OPTIN, ("CLIENT", "TRACKING", "ON"), INFO, ("GET", "k"), "SET k", CACHE],
    "all, then some": [("CLIENT", "TRACKING", "ON"), OPTIN, INFO, ("GET", "k"), "SET k", CACHE, ("GET", "l"), "SET l"],
    "ended ahead of MULTI": [OPTIN, ("CLIENT", "TRACKING", "OFF"), ("MULTI",), ("EXEC",), INFO, CACHE],
    "ended while it has a lane": [OPTIN, ("WATCH", "k"), ("CLIENT", "TRACKING", "OFF"), ("MULTI",), ("EXEC",), INFO, CACHE],
    "other modes ahead of MULTI": [OPTIN, ("CLIENT", "TRACKING", "ON", "BCAST"), ("MULTI",), CACHE, ("GET", "k"), ("EXEC",), "SET k"],
    "RESET": [OPTIN, ("RESET",), INFO, CACHE, OPTIN, INFO],
    "RESET of who caches": [OPTIN, CACHE, ("GET", "k"), ("RESET",), INFO, "SET k", CACHE],
    "another version": [OPTIN, ("HELLO", 2), INFO, CACHE, ("GET", "k"), "SET k", ("HELLO", 3), CACHE, ("GET", "k"), "SET k", INFO],
    "another database": [OPTIN, ("SELECT", 3), CACHE, ("GET", "k"), INFO, "SET k"],
    "behind SUBSCRIBE": [("HELLO", 3), ("SUBSCRIBE", "c"), OPTIN, INFO, CACHE, ("GET", "k"), "SET k", ("UNSUBSCRIBE",), INFO],
    "ahead of SUBSCRIBE": [("HELLO", 3), OPTIN, ("SUBSCRIBE", "c"), INFO, ("UNSUBSCRIBE",), CACHE, ("GET", "k"), "SET k"],
    "who may only listen": [("HELLO", 2), OPTIN, ("SUBSCRIBE", "c"), CACHE, INFO, ("MULTI",), ("UNSUBSCRIBE",), CACHE, INFO],
    "who may only listen later": [("HELLO", 3), OPTIN, ("PSUBSCRIBE", "c"), ("HELLO", 2), CACHE, ("PUNSUBSCRIBE",), CACHE, INFO],
    "scripts": [OPTIN, ("EVAL", "return redis.call('GET', 'k')", 0), "SET k", CACHE, ("EVAL", "return redis.call('GET', 'k')", 0), "SET k"],
    "unknown": [OPTIN, ("NO-SUCH-COMMAND",), ("CLIENT", "NO-SUCH"), INFO, CACHE, ("GET", "k"), "SET k"],
    "who remains": [OPTIN, ("CLIENT", "NO-EVICT", "ON"), INFO, CACHE, ("GET", "k"), "SET k"],
    "waited": [OPTIN, ("WAIT", 0, 0), INFO, CACHE, ("GET", "k"), "SET k"],
}


def told(client, commands, redis, together):
    """What the client reads, pushes apart: their place among replies is not the same from one version to the next."""
    replies, pushes = [], []

    def read(count):
        while count > 0:
            reply = client.read()
            is_push = isinstance(reply, Push) and reply[0] == b"invalidate"
            pushes.extend([reply] if is_push else [])
            replies.extend([] if is_push else [reply])
            count -= 0 if is_push else 1

    parts = [list(part) for _, part in itertools.groupby(commands, key=lambda command: isinstance(command, str))]
    for part in parts:
        if part[0] == PAUSE:
            time.sleep(0.12)
        elif isinstance(part[0], str):
            wrote(redis, part[0].split()[1])
        elif together:
            client.send(b"".join(encode(*command) for command in part))
            read(len(part))
        else:
            for command in part:
                client.send(encode(*command))
                read(1)
        client.send(encode("ECHO", "seen"))
        read(1)
    return [sorted(reply) if isinstance(reply, Set) else reply for reply in replies], pushes


def without_ids(replies):
    return [[one for one in reply if not isinstance(one, int)] if isinstance(reply, (Map, list)) else reply for reply in replies]


# In RESP2 messages to subscribers look like replies: those scenarios are of RESP3 alone.
VERSIONS = [(name, resp) for name in SCENARIOS for resp in (2, 3) if resp == 3 or "SUBSCRIBE" not in name]


@pytest.mark.parametrize("together", (False, True), ids=("one-by-one", "pipelined"))
@pytest.mark.parametrize(("scenario", "resp"), VERSIONS)
@pytest.mark.parametrize("shared_target", ["shared"], indirect=True)
def test_nobody_can_tell(target, scenario, together, resp):
    """Whether Redis is asked, as it is the first time, or not."""
    commands = SCENARIOS[scenario]
    for _ in range(3):
        results = []
        for client in (target.direct(), target.connect()):
            wrote(target.redis, "k")
            wrote(target.redis, "l")
            client("HELLO", resp)
            results.append(told(client, commands, target.redis, together))
        (expected, expected_pushes), (replies, pushes) = results
        assert list(map(repr, without_ids(replies))) == list(map(repr, without_ids(expected)))
        assert pushes == expected_pushes


@pytest.fixture(scope="module")
def forgetful():
    """Redis has to show what a user may do if it was not asked within a PAUSE."""
    target = Target("shared", access_check="100ms")
    yield target
    target.finish()


@pytest.mark.xdist_group("forgetful")
@pytest.mark.parametrize("together", (False, True), ids=("one-by-one", "pipelined"))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nobody_can_tell_where_redis_is_asked(forgetful, scenario, together):
    try:
        results = []
        for client in (forgetful.direct(), forgetful.connect()):
            wrote(forgetful.redis, "k")
            wrote(forgetful.redis, "l")
            client("HELLO", 3)
            commands = [SCENARIOS[scenario][0], PAUSE, *SCENARIOS[scenario][1:]]
            results.append(told(client, [PAUSE, *commands], forgetful.redis, together))
        (expected, expected_pushes), (replies, pushes) = results
        assert list(map(repr, without_ids(replies))) == list(map(repr, without_ids(expected)))
        assert pushes == expected_pushes
    finally:
        forgetful.clean()


@pytest.mark.parametrize("how", ("OFF", "SKIP"))
def test_without_replies(target, how):
    for _ in range(2):
        client = target.connect()
        client("HELLO", 3)
        assert client(*OPTIN) == OK
        assert client("SET", "k", 1) == OK
        skip = encode("CLIENT", "REPLY", how)
        client.send(skip + encode(*CACHE) + (skip if how == "SKIP" else b"") + encode("GET", "k"))
        client.send(encode("CLIENT", "REPLY", "ON") if how == "OFF" else b"")
        assert how == "SKIP" or client.read() == OK
        assert client("PING") == b"PONG"
        wrote(target.redis, "k")
        assert client.read() == invalidated(b"k")


def flags_of(line):
    return dict(word.split("=", 1) for word in line.split())["flags"]


def test_flags(target):
    for _ in range(2):
        client = target.connect()
        assert client(*OPTIN) == OK
        assert client("GET", "k") is None
        assert flags_of(client("CLIENT", "INFO").decode()) == "t"
        own = client("CLIENT", "ID")
        assert [entry["flags"] for entry in client_list(client) if entry["id"] == str(own)] == ["t"]


def test_monitor(target):
    """Nothing can be said on its connection behind that."""
    for _ in range(2):
        client = target.connect()
        client("HELLO", 3)
        assert client(*OPTIN) == OK
        client.send(encode("MONITOR"))
        assert client.read() == OK
        client.send(encode(*INFO))
        reply = client.read()
        while not isinstance(reply, Map):
            reply = client.read()
        assert sorted(reply[1]) == [b"on", b"optin"]


def test_one_difference_flushes_are_not_told_to_who_cached_nothing(redis, make_headgate):
    """Nothing that it has could be stale."""
    headgate = make_headgate(redis, pool="shared")
    clients = [opted_in(headgate) for _ in range(2)]
    for client in clients:
        assert client("GET", "k") is NULL
    until_shared(headgate)
    assert clients[0](*CACHE) == OK
    assert clients[0]("GET", "k") is NULL
    with redis.connect() as direct:
        assert direct("FLUSHALL") == OK
    assert clients[0].read() == Push([b"invalidate", NULL])
    clients[1].assert_silent(0.1)
    assert clients[1]("GET", "k") is NULL


# ---- rights ----


def refusals(direct, what):
    entries = [dict(zip(entry[::2], entry[1::2])) for entry in direct("ACL", "LOG", 1000)]
    return sum(int(entry[b"count"]) for entry in entries if entry[b"object"] == what)


def test_rights_are_those_of_redis(redis, make_headgate, pool):
    """Also where the default user has shown that he may; and each refusal is the client's own."""
    headgate = make_headgate(redis, pool=pool)
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-client|tracking")
        assert opted_in(headgate)("PING") == b"PONG"
        for count in range(1, 4):
            client = headgate.connect()
            assert client("AUTH", "half", "pw") == OK
            for command in (OPTIN, ("CLIENT", "TRACKING", "OFF")):
                reply = client(*command)
                assert isinstance(reply, Error) and reply.startswith(b"NOPERM"), reply
            assert client(*CACHE).startswith(NO_CACHING)
            assert refusals(direct, b"client|tracking") == 2 * count
        if pool == "shared":
            until_shared(headgate)


def test_a_right_that_is_taken_is_gone(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, access_check="100ms")
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all")
        client = headgate.connect()
        assert client("AUTH", "half", "pw") == OK
        for given, right in ((True, "+"), (False, "-"), (True, "+")):
            direct("ACL", "SETUSER", "half", f"{right}client|tracking")
            wait_for(lambda: isinstance(client(*OPTIN), Error) != given, what=f"{right} to be noticed")


def test_who_could_not_be_told_does_not_cache(redis, make_headgate):
    """Were CLIENT CACHING refused only, a library that does not look at its answer would cache for ever."""
    headgate = make_headgate(redis, pool="shared", access_check="1d")
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all")
        client = headgate.connect()
        assert client("AUTH", "half", "pw") == OK
        for _ in range(2):
            assert client(*OPTIN) == OK
        direct("ACL", "SETUSER", "half", "-client|tracking")
        assert client("GET", "k") is None
        client.send(encode(*CACHE) + encode("GET", "k"))
        with pytest.raises((Closed, OSError)):
            for _ in range(2):
                client.read()


def test_without_a_password_yet(make_redis, make_headgate):
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, pool="shared")
    client = headgate.connect()
    assert client(*OPTIN).startswith(b"NOAUTH")
    assert client("AUTH", "secret") == OK
    assert client(*CACHE).startswith(NO_CACHING)
    for _ in range(2):
        assert client(*OPTIN) == OK
    assert client("GET", "k") is None
    until_shared(headgate)


# ---- Redis goes, and comes ----


def test_who_opted_in_outlives_redis(redis, make_headgate):
    """It has cached nothing that could be stale. What could not be sent is said anew to the next connection."""
    headgate = make_headgate(redis, pool="shared", upstream_wait="300ms")
    wait_for(lambda: stats(headgate)["upstream_up"] == "1", what="Headgate to reach Redis")
    client = opted_in(headgate)
    assert client("SET", "k", 1) == OK
    until_shared(headgate)
    redis.kill()
    await_outage(headgate)
    for command in (CACHE, INFO, ("MULTI",), CACHE):
        assert isinstance(client(*command), Error)
    redis.start()
    wait_for(lambda: client("SET", "k", 2) == OK, what="Redis")
    assert client(*CACHE) == OK
    assert client("GET", "k") == b"2"
    wrote(redis, "k")
    assert client.read() == invalidated(b"k")


# ---- rules ----


def refused(reply, text):
    return isinstance(reply, Error) and reply.startswith(text)


@pytest.mark.parametrize("together", (False, True), ids=("one-by-one", "pipelined"))
def test_who_was_refused_caching_is_not_told_what_it_would_cache(redis, make_sidecar, pool, together):
    """rueidis would cache it for ever: it does not look at the answer to CLIENT CACHING. What is behind that is as it was."""
    headgate = make_sidecar("[limit:few]\ncommands = client\nper = connection\nlimit = 3\nwindow = 1h\n", pool=pool)

    def ask(client, *commands):
        if not together:
            return [client(*command) for command in commands]
        client.send(b"".join(encode(*command) for command in commands))
        return client.read_many(len(commands))

    for reading in ([("GET", "k")], [("EVAL", "return redis.call('GET', 'k')", 0)], [("MULTI",), ("GET", "k"), ("EXEC",)]):
        client = opted_in(headgate)
        wrote(redis, "k")
        assert ask(client, CACHE, ("GET", "k"), CACHE) == [OK, b"w", OK]
        wrote(redis, "k")
        assert client.read() == invalidated(b"k")
        assert client("GET", "k") == b"w"
        first, name, second, *others, last = ask(client, CACHE, ("CLIENT", "GETNAME"), *reading, ("GET", "k"))
        assert refused(first, b"RATELIMITED few") and refused(name, b"RATELIMITED few")
        assert refused(second, b"ERR headgate: CLIENT CACHING ahead of it was refused")
        assert last == b"w"
        if others:
            assert others[0] == b"w" and refused(others[1], b"ERR EXEC without MULTI")
        client.close()


def test_who_was_refused_caching_may_leave_it(make_sidecar):
    headgate = make_sidecar("[limit:few]\ncommands = client\nper = connection\nlimit = 1\nwindow = 1h\n")
    client = opted_in(headgate)
    client.send(encode(*CACHE) + b"\r\n*0\r\n" + encode("RESET") + encode("GET", "k"))
    first, *others = client.read_many(3)
    assert refused(first, b"RATELIMITED few") and others == [b"RESET", None]
    other = headgate.connect()
    assert other("CLIENT", "GETNAME") is None
    other.send(encode(*CACHE) + encode("GET", "k"))
    first, second = other.read_many(2)
    assert refused(first, b"RATELIMITED few") and second is None


def test_caching_that_redis_was_away_for(redis, make_headgate):
    """What comes behind it when Redis is back would not be told of; what was given up with it is over."""
    headgate = make_headgate(redis, pool="shared", lanes=1, upstream_wait="200ms", access_check="1d")
    wait_for(lambda: stats(headgate)["upstream_up"] == "1", what="Headgate to reach Redis")
    client = opted_in(headgate)
    assert client("GET", "k") is NULL
    until_shared(headgate)
    for requests, answer in ((1, Error), (2, type(NULL))):
        redis.kill()
        await_outage(headgate)
        client.send(encode(*CACHE) + encode("GET", "k") * (requests - 1))
        assert all(refused(reply, b"ERR headgate: no connection") for reply in client.read_many(requests))
        redis.start()
        wait_for(lambda: stats(headgate)["upstream_up"] == "1", what="Headgate to see that Redis is back")
        assert isinstance(client("GET", "k"), answer)
        assert client("GET", "k") is NULL
