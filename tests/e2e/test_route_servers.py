"""[route:NAME] server = …: keys that are at another server of the process, for all that is done with them."""

import random
import signal
import subprocess

import pytest

from e2e.test_cluster_path import Counting
from harness.admin import stats
from harness.latency import ON
from harness.leases import LEASE_MS, await_left, await_lease, counter, lease_of, take
from harness.leases import rule as lease
from harness.limits import admitted
from harness.limits import rule as limit
from harness.resp import NIL_ARRAY, NULL, OK, PONG, Closed, Error, encode, wait_for
from harness.servers import BINARY, free_port
from harness.several import Several
from harness.threads import at_once

GEO = "[route:geo]\nkeys = geo:*\nserver = geo\n"
CROSSSLOT = Error(b"CROSSSLOT Keys in request don't hash to the same slot")


@pytest.fixture
def make(make_headgate, make_redis):
    """Headgate before two servers, default and geo: make(rules, threads=…)."""

    def start(rules=GEO, **options):
        return Several(make_headgate, {"geo": make_redis()}, rules, default=make_redis(), pool="shared", **options)

    return start


@pytest.fixture
def several(make):
    return make()


@pytest.fixture
def client(several):
    return several.connect("default")


def held(several, name, *request):
    """What the Redis of that server says by itself."""
    with several.redis[name].connect() as direct:
        return direct(*request)


def keys_at(several, name):
    return sorted(held(several, name, "KEYS", "*"))


# ---- which requests go there ----


@pytest.mark.parametrize("threads", (1, 4))
def test_keys_are_at_their_servers(make, threads):
    several = make(threads=threads)
    client = several.connect("default")
    assert client("SET", "geo:a", 1) == OK and client("SET", "a", 2) == OK
    assert client("MSET", "geo:b", 3, "geo:c", 4) == OK
    assert client("GEOADD", "geo:places", 13.36, 38.11, "Palermo") == 1
    assert keys_at(several, "geo") == [b"geo:a", b"geo:b", b"geo:c", b"geo:places"]
    assert keys_at(several, "default") == [b"a"]
    assert client("MGET", "geo:a", "geo:b") == [b"1", b"3"]
    assert client("GET", "a") == b"2"
    assert several.connect("geo")("GET", "geo:a") == b"1"
    assert several.stat("requests_elsewhere_total", "default") == 4 and several.stat("requests_elsewhere_total", "geo") == 0


@pytest.mark.parametrize("threads", (1, 4))
def test_pipelines_over_both_are_answered_in_order(make, threads):
    several = make(threads=threads)

    def work(number):
        with several.connect("default") as client:
            for turn in range(1, 31):
                said, wanted = [], []
                for key in (f"geo:{number}", f"home:{number}", f"geo:{number}", f"home:{number}"):
                    said += [("INCR", key), ("PING",), ("GET", key)]
                replies = client.pipeline(said)
                for place in range(4):
                    value = 2 * (turn - 1) + 1 + place // 2
                    wanted += [value, PONG, str(value).encode()]
                assert replies == wanted, replies

    at_once(work, 8)


def test_what_is_over_two_servers_is_refused(several, client):
    assert client("MGET", "geo:a", "a") == CROSSSLOT
    assert client("MSET", "a", 1, "geo:a", 1) == CROSSSLOT
    assert client("RENAME", "a", "geo:a") == CROSSSLOT
    assert client("EVAL", "return 1", 2, "geo:a", "a") == CROSSSLOT
    assert client("SORT", "geo:a", "BY", "weight:*") == CROSSSLOT
    assert client("SORT", "geo:a", "BY", "geo:weight:*") == []
    assert client("SORT", "geo:a", "STORE", "a") == CROSSSLOT
    assert keys_at(several, "geo") == keys_at(several, "default") == []
    assert client("PING") == PONG


def test_what_has_no_keys_is_at_the_own_server(several, client):
    assert client("SET", "geo:a", 1) == OK and client("SET", "a", 1) == OK
    assert client("DBSIZE") == 1
    assert client("KEYS", "*") == [b"a"]
    assert client("SCAN", 0)[1] == [b"a"]
    assert client("RANDOMKEY") == b"a"
    assert client("EVAL", "return redis.call('KEYS', '*')", 0) == [b"a"]
    assert client("FLUSHALL") == OK
    assert keys_at(several, "geo") == [b"geo:a"] and keys_at(several, "default") == []


def test_long_requests_go_there_whole(make):
    several = make(cut_through="16kb")
    client = several.connect("default")
    value = b"v" * 300_000
    assert client("SET", "geo:a", value) == OK and client("GET", "geo:a") == value
    assert client("MSET", "geo:a", value, "a", value) == CROSSSLOT
    assert held(several, "geo", "STRLEN", "geo:a") == 300_000 and keys_at(several, "default") == []


def test_scripts_are_at_their_first_key(several, client):
    assert client("EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, "geo:a") == OK
    assert keys_at(several, "geo") == [b"geo:a"]
    digest = client("SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])")
    assert client("EVALSHA", digest, 1, "geo:a").startswith(b"NOSCRIPT"), "it was loaded at the own server"
    assert client("EVAL", "return redis.call('GET', KEYS[1])", 1, "geo:a") == b"x"
    assert client("EVALSHA", digest, 1, "geo:a") == b"x"


# ---- states of a connection ----


@pytest.mark.parametrize("key, name", (("geo:a", "geo"), ("a", "default")))
def test_a_transaction_is_at_the_server_of_its_first_key(several, client, key, name):
    other = "a" if name == "geo" else "geo:a"
    assert client.pipeline([("MULTI",), ("INCR", key), ("GET", key), ("EXEC",)]) == [OK, b"QUEUED", b"QUEUED", [1, b"1"]]
    assert keys_at(several, name) == [key.encode()]
    assert client("MULTI") == OK and client("INCR", key) == b"QUEUED"
    assert client("GET", other) == CROSSSLOT
    assert client("EXEC").startswith(b"EXECABORT")
    assert client("GET", key) == b"1" and client("GET", other) is None
    replies = client.pipeline([("MULTI",), ("GET", other), ("INCR", key), ("EXEC",), ("GET", key)])
    assert replies[2] == CROSSSLOT and replies[3].startswith(b"EXECABORT") and replies[4] == b"1"


def test_a_transaction_there_has_nothing_without_keys(several, client):
    """It would be done at a server that is not the client's."""
    assert client("SET", "geo:a", 1) == OK
    for request in (("FLUSHDB",), ("PUBLISH", "c", "m"), ("EVAL", "return redis.call('FLUSHDB')", 0)):
        assert client("MULTI") == OK and client("GET", "geo:a") == b"QUEUED"
        assert client(*request) == CROSSSLOT
        assert client("EXEC").startswith(b"EXECABORT")
    assert keys_at(several, "geo") == [b"geo:a"]


def test_watches(several, client):
    assert client("WATCH", "geo:a") == OK
    assert client("GET", "a") == CROSSSLOT, "the watch ties the client to one server"
    assert held(several, "geo", "SET", "geo:a", "other") == OK
    assert client("MULTI") == OK and client("SET", "geo:a", "mine") == b"QUEUED"
    assert client("EXEC") == NIL_ARRAY
    assert client("GET", "geo:a") == b"other" and client("GET", "a") is None
    assert client("WATCH", "geo:a") == OK and client("UNWATCH") == OK
    assert client("GET", "a") is None
    assert client("WATCH", "a", "geo:a") == CROSSSLOT


def test_blocking(several, client):
    client.request("BLPOP", "geo:q", 0)
    client.request("FLUSHDB")
    client.request("BLPOP", "q", 0)
    wait_for(lambda: b"blocked_clients:1" in held(several, "geo", "INFO", "clients"), 30, "it to wait there")
    with several.connect("default") as other:
        assert other("SET", "a", 1) == OK
        assert other("RPUSH", "geo:q", "job") == 1
        assert client.read() == [b"geo:q", b"job"]
        assert client.read() == OK
        assert other("GET", "a") is None, "FLUSHDB was said to the own server"
        assert other("RPUSH", "q", "other") == 1
    assert client.read() == [b"q", b"other"]


@pytest.mark.parametrize("resp", (2, 3))
@pytest.mark.parametrize(
    "rest, replies",
    (
        ([("SET", "a", 1), ("GET", "geo:a")], [OK, b"1"]),
        ([("CLIENT", "REPLY", "SKIP"), ("SET", "a", 1), ("GET", "geo:a")], [b"1"]),
    ),
)
def test_who_ends_its_stream_behind_wait(several, client, resp, rest, replies):
    """What is for the other server has to wait for it, and is carried out all the same."""
    assert client("HELLO", resp)
    assert client("SET", "geo:a", 1) == OK
    several.redis["geo"].signal(signal.SIGSTOP)
    client.send(b"".join(encode(*command) for command in [("SET", "geo:a", 1), ("WAIT", 0, 0), *rest]))
    client.shutdown_write()
    # It has seen the end by then.
    several.stat("clients_connected")
    several.redis["geo"].signal(signal.SIGCONT)
    assert client.read_many(2 + len(replies)) == [OK, 0, *replies]
    client.assert_closed()
    assert keys_at(several, "default") == [b"a"]


def test_pubsub_is_at_the_own_server(several, client):
    subscriber = several.connect("default")
    assert subscriber("SUBSCRIBE", "geo:channel") == [b"subscribe", b"geo:channel", 1]
    assert held(several, "default", "PUBSUB", "NUMSUB", "geo:channel") == [b"geo:channel", 1]
    assert client.pipeline([("SET", "geo:a", 1), ("PUBLISH", "geo:channel", "m")]) == [OK, 1]
    assert subscriber.read() == [b"message", b"geo:channel", b"m"]
    assert subscriber("UNSUBSCRIBE") == [b"unsubscribe", b"geo:channel", 0]
    assert subscriber("GET", "geo:a") == b"1"


def test_select_and_resp3_hold_there(several, client):
    assert client("SELECT", 2) == OK
    assert client("SET", "geo:a", 1) == OK and client("SET", "a", 1) == OK
    assert keys_at(several, "geo") == []
    with several.redis["geo"].connect() as direct:
        assert direct("SELECT", 2) == OK and direct("KEYS", "*") == [b"geo:a"]
    assert not isinstance(client("HELLO", 3), Error)
    assert client("HSET", "geo:h", "f", "v") == 1
    assert client("HGETALL", "geo:h").dict() == {b"f": b"v"}
    assert client.pipeline([("SELECT", 0), ("GET", "geo:a"), ("SELECT", 2), ("GET", "geo:a")]) == [OK, NULL, OK, b"1"]


def test_wait_speaks_of_where_the_last_write_went(several, client):
    assert client("SET", "geo:a", 1) == OK
    assert client("WAIT", 0, 100) == 0
    assert held(several, "geo", "INFO", "commandstats").count(b"cmdstat_wait:") == 1
    assert client("GET", "a") is None and client("GET", "geo:a") == b"1"


def test_wait_behind_a_lane_of_its_own_speaks_of_that_server(several, client):
    """A blocking request has a lane of its own, and what follows stays on it."""
    said = [("BLPOP", "geo:none", "0.1"), ("SET", "geo:a", 1), ("WAIT", 0, 100), ("SET", "geo:a", 2), ("WAIT", 0, 100)]
    assert client.pipeline(said) == [NIL_ARRAY, OK, 0, OK, 0]
    assert b"cmdstat_wait:calls=2," in held(several, "geo", "INFO", "commandstats")
    assert b"cmdstat_wait" not in held(several, "default", "INFO", "commandstats")


def test_client_reply_off_holds_for_all_servers(several, client):
    client.request("CLIENT", "REPLY", "OFF")
    client.request("SET", "a", 1)
    client.request("SET", "geo:a", 1)
    assert client("CLIENT", "REPLY", "ON") == OK
    assert client("GET", "geo:a") == b"1"
    assert keys_at(several, "geo") == [b"geo:a"]


# ---- credentials ----


def test_each_has_its_own_password(make_headgate, make_redis):
    redis = {"default": make_redis(), "geo": make_redis()}
    for name, server in redis.items():
        with server.connect() as direct:
            assert direct("ACL", "SETUSER", "bob", "on", ">pass", "+@all", "~*") == OK
            assert direct("CONFIG", "SET", "requirepass", f"secret-{name}") == OK
    several = Several(
        make_headgate,
        {"geo": redis["geo"]},
        GEO,
        default=redis["default"],
        own={"geo": {"upstream_password": "secret-geo"}},
        upstream_password="secret-default",
    )
    with several.connect("default") as client, several.connect("default") as bob:
        assert client.pipeline([("SET", "geo:a", 1), ("SET", "a", 2), ("GET", "geo:a")]) == [OK, OK, b"1"]
        assert client("MULTI") == OK and client("INCR", "geo:a") == b"QUEUED" and client("EXEC") == [2]
        assert bob("AUTH", "bob", "pass") == OK
        assert bob.pipeline([("ACL", "WHOAMI"), ("GET", "geo:a"), ("GET", "a")]) == [b"bob", b"2", b"2"]
    with redis["geo"].connect() as direct:
        assert direct("AUTH", "secret-geo") == OK
        assert b"user=bob" in direct("CLIENT", "LIST")


def test_who_has_not_authenticated_hears_so(make_headgate, make_redis):
    redis = {"default": make_redis(), "geo": make_redis()}
    for server in redis.values():
        with server.connect() as direct:
            assert direct("CONFIG", "SET", "requirepass", "secret") == OK
    several = Several(make_headgate, {"geo": redis["geo"]}, GEO, default=redis["default"])
    with several.connect("default") as client:
        for request in (("GET", "a"), ("GET", "geo:a"), ("SET", "geo:a", 1), ("MULTI",), ("GET", "geo:a")):
            assert client(*request).startswith(b"NOAUTH"), request
        assert client("AUTH", "secret") == OK
        assert client.pipeline([("SET", "geo:a", 1), ("GET", "a"), ("GET", "geo:a")]) == [OK, None, b"1"]


def test_a_password_that_only_the_other_one_wants(make_headgate, make_redis):
    redis = {"default": make_redis(), "geo": make_redis()}
    several = Several(make_headgate, {"geo": redis["geo"]}, GEO, default=redis["default"])
    with redis["geo"].connect() as direct:
        assert direct("CONFIG", "SET", "requirepass", "secret") == OK
    with several.connect("default") as client:
        for _ in range(3):
            assert client("GET", "geo:a").startswith(b"NOAUTH")
            assert client("SET", "a", 1) == OK
            assert client.pipeline([("GET", "geo:a"), ("GET", "a")])[1] == b"1"
        replies = client.pipeline([("MULTI",), ("GET", "geo:a"), ("GET", "a"), ("EXEC",), ("GET", "a")])
        assert replies[0] == OK and replies[1].startswith(b"NOAUTH")
        assert replies[3].startswith(b"EXECABORT") and replies[4] == b"1"


def with_users(make_headgate, make_redis, **users):
    """Each server lets its clients in as the user app, whose password is its name; further users by server."""
    redis = {"default": make_redis(), "geo": make_redis()}
    for name, server in redis.items():
        with server.connect() as direct:
            for user, password in [("app", name), *users.get(name, [])]:
                assert direct("ACL", "SETUSER", user, "on", f">{password}", "+@all", "~*", "&*") == OK
    return Several(
        make_headgate,
        {"geo": redis["geo"]},
        GEO,
        default=redis["default"],
        own={"geo": {"upstream_user": "app", "upstream_password": "geo"}},
        upstream_user="app",
        upstream_password="default",
        upstream_wait="2s",
    )


def reload(several):
    with several.headgate.admin() as admin:
        assert admin("RELOAD") == OK


def test_a_reload_changes_the_user_there(make_headgate, make_redis):
    several = with_users(make_headgate, make_redis, geo=[("next", "other")])
    client = several.connect("default")
    assert client("SET", "geo:a", 1) == OK
    several.own["geo"] = {"upstream_user": "next", "upstream_password": "other"}
    several.write(GEO)
    reload(several)
    with several.redis["geo"].connect() as direct:
        assert direct("ACL", "DELUSER", "app") == 1
        for asking in (several.connect("default"), several.connect("default")):
            assert asking("GET", "geo:a") == b"1"
        assert b"user=next" in direct("CLIENT", "LIST")
    with several.connect("default") as again:
        assert again.pipeline([("INCR", "geo:a"), ("MULTI",), ("GET", "geo:a"), ("EXEC",)])[-1] == [b"2"]


def test_a_reload_changes_the_own_user(make_headgate, make_redis):
    """Who is there already is at the other server whom that server says, and nobody hears of the own password there."""
    several = with_users(make_headgate, make_redis, default=[("next", "other")])
    client = several.connect("default")
    assert client("SET", "geo:a", 1) == OK
    several.headgate.write_config(upstream_user="next", upstream_password="other")
    several.write(GEO)
    reload(several)
    assert client("SELECT", 3) == OK and client("SET", "geo:b", 1) == OK and client("SELECT", 0) == OK
    assert client.pipeline([("GET", "geo:a"), ("GET", "a"), ("HELLO", "3"), ("INCR", "geo:a")])[-1] == 2
    assert held(several, "geo", "ACL", "LOG") == []


def test_a_user_who_comes_to_be_there_is_let_in(make_headgate, make_redis):
    several = with_users(make_headgate, make_redis, default=[("bob", "pass")])
    with several.connect("default") as bob:
        assert bob("AUTH", "bob", "pass") == OK
        assert bob("GET", "geo:a").startswith(b"ERR headgate: no connection to Redis")
        assert bob("SET", "a", 1) == OK
        with several.redis["geo"].connect() as direct:
            assert direct("ACL", "SETUSER", "bob", "on", ">pass", "+@all", "~*") == OK
        wait_for(lambda: bob("GET", "geo:a") is None, 60, "bob to be let in")


# ---- policies ----


def test_a_lease_is_renewed_where_its_lock_is(make):
    several = make(GEO + lease(keys="geo:lock:*", ttl=f"{LEASE_MS}ms"))
    client = several.connect("default")
    take(client, "geo:lock:a")
    await_lease(several.headgate, "geo:lock:a")
    before = counter(several.headgate, "renewals_total")
    wait_for(lambda: counter(several.headgate, "renewals_total") > before + 2, 30, "renewals")
    assert lease_of(several.headgate, "geo:lock:a")["state"] == "held"
    assert held(several, "geo", "PTTL", "geo:lock:a") > 0 and keys_at(several, "default") == []
    client.close()
    await_left(several.redis["geo"], "geo:lock:a")


def test_commands_that_are_added_work_there(several, client):
    assert client("SET", "geo:a", "t") == OK
    assert client("DELIFEQ", "geo:a", "other") == 0 and client("DELIFEQ", "geo:a", "t") == 1
    assert client("CL.THROTTLE", "geo:throttle", 1, 2, 60)[0] == 0
    assert keys_at(several, "geo") == [b"geo:throttle"] and keys_at(several, "default") == []


def test_limits_and_denials_hold(make):
    rules = GEO + limit("few", commands="get", keys="geo:*", limit=3, per="all") + "[deny:no]\nkeys = geo:secret\n"
    several = make(rules)
    client = several.connect("default")
    assert admitted(client.pipeline([("GET", "geo:a")] * 8), "few") == 3
    assert client("SET", "geo:secret", 1).startswith(b"DENIED")
    assert client("MULTI") == OK and client("SET", "geo:a", 1) == b"QUEUED"
    assert client("SET", "geo:secret", 1).startswith(b"DENIED")
    assert client("EXEC").startswith(b"EXECABORT")
    assert keys_at(several, "geo") == []


# ---- trouble ----


def test_a_server_that_is_away_harms_only_its_keys(make):
    several = make(upstream_wait="1s")
    client, other = several.connect("default"), several.connect("default")
    assert client("SET", "geo:a", 1) == OK
    several.redis["geo"].kill()

    def is_away():
        """Who asks while the connection is just being lost is closed."""
        with several.connect("default") as asking:
            try:
                return isinstance(asking("GET", "geo:a"), Error)
            except Closed:
                return False

    wait_for(is_away, 30, "the loss to be noticed")
    other.request("GET", "geo:a")
    assert [client("SET", "a", turn) for turn in range(20)] == [OK] * 20
    assert other.read().startswith(b"ERR headgate: no connection to Redis")
    assert stats(several.headgate)["upstream_up"] in ("0", "1") and client("GET", "a") == b"19"
    several.redis["geo"].start()
    wait_for(lambda: other("SET", "geo:b", 2) == OK, 60, "it to be back")
    assert client.pipeline([("GET", "geo:b"), ("GET", "a")]) == [b"2", b"19"]


def test_lanes_show_where_they_lead(several, client):
    assert client("SET", "geo:a", 1) == OK
    lines = [line for line in several.ask("LANES").splitlines() if "server=default" in line]
    assert {line.rsplit(" to=", 1)[1].rsplit(":", 1)[1] for line in lines} == {
        str(several.headgate._upstream(redis)).rsplit(":", 1)[1] for redis in several.redis.values()
    }


# ---- by many at once ----


def unit(chance, key, counts):
    """Some requests with that key, and what they are answered."""

    def count():
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    kind = chance.randrange(7)
    if kind == 0:
        return [("MULTI",), ("INCR", key), ("INCR", key), ("EXEC",)], [OK, b"QUEUED", b"QUEUED", [count(), count()]]
    if kind == 1:
        return [("RPUSH", key + ":q", "job"), ("BLPOP", key + ":q", 0)], [1, [key.encode() + b":q", b"job"]]
    if kind == 2:
        return [("WATCH", key), ("MULTI",), ("INCR", key), ("EXEC",)], [OK, OK, b"QUEUED", [count()]]
    if kind == 3:
        return [("EVAL", "return redis.call('INCR', KEYS[1])", 1, key)], [count()]
    if kind == 4:
        return [("PING",), ("ECHO", key), ("INCR", key)], [PONG, key.encode(), count()]
    if kind == 5:
        return [("MULTI",), ("DISCARD",), ("INCR", key)], [OK, OK, count()]
    return [("INCR", key)] * 3, [count(), count(), count()]


POLICIES = ON + limit("wide", commands="*", limit=1_000_000, per="user") + lease(keys="lock:*")


@pytest.mark.parametrize("threads, rules", ((1, ""), (4, ""), (1, POLICIES), (4, POLICIES)))
def test_random_pipelines(make, threads, rules):
    """Of ordinary requests, transactions, watches, scripts and what blocks, at either server."""
    several = make(GEO + rules, threads=threads)

    def work(number):
        chance, counts = random.Random(number), {}
        client = several.connect("default")
        for _ in range(60):
            requests, wanted = [], []
            for _ in range(chance.randrange(1, 12)):
                more, replies = unit(chance, chance.choice((f"geo:{number}", f"home:{number}")), counts)
                requests += more
                wanted += replies
            assert client.pipeline(requests) == wanted, (number, requests)

    at_once(work, 8)


def test_counts_stay_whole_whatever_happens(make):
    """Connections are killed at both, and rules come and go, but not those for keys that are counted."""
    several = make(threads=2)
    keys = ("geo:{0}:{1}", "home:{0}:{1}")

    def keys_of(number):
        return [key.format(number, place) for key in keys for place in range(3)]

    with Counting(lambda: several.connect("default"), 6, keys_of, may_close=True) as counting:
        counting.await_rounds(2)
        for turn in range(6):
            held(several, ("geo", "default")[turn % 2], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            several.write(GEO + f"[route:more]\nkeys = unused:{turn}:*\nserver = geo\n")
            with several.headgate.admin() as admin:
                assert admin("RELOAD") == OK
            counting.await_rounds(2)
        several.redis["geo"].signal(signal.SIGSTOP)
        several.redis["geo"].signal(signal.SIGCONT)
        counting.await_rounds(2)
    assert counting.reconnects > 0


# ---- settings ----


def test_reloads_take_effect_in_the_midst_of_pipelines(make):
    several = make("")
    clients = [several.connect("default") for _ in range(4)]
    for number, client in enumerate(clients):
        assert client("SET", f"geo:{number}", "home") == OK
        assert held(several, "geo", "SET", f"geo:{number}", "geo") == OK
    for rules, wanted in ((GEO, b"geo"), ("", b"home"), (GEO, b"geo")):
        for client in clients:
            client.send(encode("PING") * 50)
        several.write(rules)
        with several.headgate.admin() as admin:
            assert admin("RELOAD") == OK
        for number, client in enumerate(clients):
            assert client.read_many(50) == [PONG] * 50
            wait_for(lambda n=number, c=client: c("GET", f"geo:{n}") == wanted, 30, "the rules to hold")
            assert client.pipeline([("GET", f"geo:{number}"), ("EXISTS", "a"), ("PING",)]) == [wanted, 0, PONG]


def test_a_reload_sends_no_keys_to_a_server_that_takes_a_restart(make, make_redis):
    """Its keys would be written at the own server, and be gone after that restart."""
    several = make()
    client = several.connect("default")
    several.redis["new"], several.ports["new"] = make_redis(), free_port()
    several.write(GEO + "[route:new]\nkeys = new:*\nserver = new\n")
    reply = several.reply("RELOAD")
    assert isinstance(reply, Error) and b"[route:new] server = new: is a server that this process does not have" in reply
    several.write(GEO)
    reload(several)
    assert client.pipeline([("SET", "geo:a", 1), ("GET", "geo:a")]) == [OK, b"1"]


def test_a_reload_goes_by_the_pool_that_is_in_force(make_headgate, make_redis):
    several = Several(make_headgate, {"geo": make_redis()}, default=make_redis(), pool="session")
    several.headgate.write_config(pool="shared")
    several.write(GEO)
    reply = several.reply("RELOAD")
    assert isinstance(reply, Error) and b"needs pool = shared" in reply
    assert several.connect("default")("SET", "geo:a", 1) == OK
    assert keys_at(several, "geo") == []


def test_each_of_two_servers_may_send_keys_to_the_other(make):
    """To its Redis, and not to where its clients come: so nothing goes round in a circle."""
    several = make(GEO + "[route:back]\nkeys = home:*\nserver = default\n[route:round]\nkeys = geo:*\nserver = default\n")
    with several.connect("default") as client, several.connect("geo") as other:
        assert client.pipeline([("SET", "geo:a", 1), ("SET", "home:a", 2)]) == [OK, OK]
        assert other.pipeline([("GET", "geo:a"), ("GET", "home:a"), ("SET", "b", 3)]) == [b"1", b"2", OK]
    assert keys_at(several, "default") == [b"home:a"] and keys_at(several, "geo") == [b"b", b"geo:a"]


def test_a_rule_for_the_server_itself_leaves_keys_there(make):
    several = make("[route:own]\nkeys = geo:own:*\nserver = default\n" + GEO)
    client = several.connect("default")
    assert client.pipeline([("SET", "geo:own:a", 1), ("SET", "geo:a", 1)]) == [OK, OK]
    assert keys_at(several, "default") == [b"geo:own:a"] and keys_at(several, "geo") == [b"geo:a"]
    with several.connect("geo") as other:
        assert other("GET", "geo:own:a") == b"1", "for clients of the other server it is a rule like others"


def check(tmp_path, text):
    path = tmp_path / "h.ini"
    path.write_text(text)
    return subprocess.run([BINARY, "-t", "-c", path], capture_output=True, text=True, timeout=30)


SERVERS = "[headgate]\nlisten = 127.0.0.1:1\nupstream = 127.0.0.1:2\n[server:geo]\nlisten = 127.0.0.1:3\nupstream = 127.0.0.1:4\n"


@pytest.mark.parametrize(
    "text, fault",
    (
        (SERVERS + "[route:a]\nkeys = a:*\nserver = goe\n", "is no server of this file"),
        (SERVERS + "[route:a]\nserver = geo\n", "does not go with server"),
        (SERVERS + "[route:a]\nkeys = a:*\nserver = geo\nreads = master\n", "does not go with server"),
        (SERVERS + "[route:a]\nkeys = a:*\nserver = geo\ncommands = get\n", "does not go with server"),
        (SERVERS + "[route:a]\nkeys = a:*\nserver = geo\nclients = name:x\n", "does not go with server"),
        (SERVERS.replace("127.0.0.1:4", "cluster://127.0.0.1:4") + GEO, "has keys in several places itself"),
        (SERVERS.replace("127.0.0.1:4", "sentinel://127.0.0.1:4/m") + GEO, "has keys in several places itself"),
        (SERVERS.replace("127.0.0.1:2", "cluster://127.0.0.1:2") + GEO, "before sentinels or a cluster"),
        (SERVERS.replace("[server", "pool = session\n[server") + GEO, "needs pool = shared"),
        (SERVERS + "upstream_password = x\n" + GEO, "who has no password could use it"),
    ),
)
def test_what_is_refused(tmp_path, text, fault):
    checked = check(tmp_path, text)
    assert checked.returncode != 0 and fault in checked.stderr + checked.stdout


def test_what_does_nothing_is_warned_of(tmp_path):
    checked = check(tmp_path, SERVERS + GEO + "servers = geo\n")
    assert checked.returncode == 0 and "does nothing" in checked.stderr + checked.stdout
    checked = check(tmp_path, SERVERS + GEO)
    assert checked.returncode == 0 and "warning" not in (checked.stderr + checked.stdout).lower()
