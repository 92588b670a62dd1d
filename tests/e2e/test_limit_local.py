"""[limit:NAME] with scope = local: how much is admitted, by several rules, by all workers, of pipelines, behind a reload; what the
admin port tells and resets. Windows are an hour long, so that counts are exact however slow the machine is. What is admitted
in which time tests/walks shows."""

import re
import time

import pytest

from harness.admin import stats, text
from harness.identity import add_users, authenticated, named
from harness.limits import (
    admitted, assert_never, await_holds, await_tracked, counter, explain, forget, funnel, limits, refuses, rule, spend,
)
from harness.resp import OK, PONG, Error, encode
from harness.rules import reload


# ---- several rules ----


def test_what_can_never_be_is_the_longest_wait(make_shared):
    rules = rule("wait", limit=1, commands="mget") + rule("never", limit=2, cost="keys", commands="mget", window="1s")
    client = make_shared(rules).connect()
    assert client("MGET", "a") == [None]
    assert explain(client("MGET", "a"))[0] == "wait"
    assert_never(client("MGET", "a", "b", "c"), 3, "never")


# ---- action = observe ----


@pytest.mark.parametrize("first", ["ab", "ba"])
def test_what_is_observed_in_one_of_several_buckets_counts_once(make, first):
    """Whichever bucket is found first; and once where both are full."""
    headgate = make(rule("shadow", limit=2, per="key", action="observe", commands="mget"))
    client = headgate.connect()
    for key in first:
        client("MGET", key)
    client("MGET", "a")
    client("MGET", "a", "b")
    assert (counter(headgate, "admitted_total"), counter(headgate, "observed_total")) == (3, 1)
    client("MGET", "b", "b")
    client("MGET", "a", "b")
    assert (counter(headgate, "admitted_total"), counter(headgate, "observed_total")) == (3, 3)


# ---- workers ----


def workers_of(headgate):
    """The numbers of the workers that have clients."""
    with headgate.admin() as admin:
        return set(re.findall(r"worker=(\d+)", text(admin("CLIENTS"))))


@pytest.mark.threads
def test_all_workers_count_together(make, redis):
    limit = 150
    headgate = make(rule(per="user", limit=limit), threads=4)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        assert client("PING") == PONG
    assert len(workers_of(headgate)) == 4
    for client in clients:
        client.send(encode("INCR", "n") * 50)
    assert sum(admitted(client.read_many(50)) for client in clients) == limit
    assert redis.connect()("GET", "n") == b"%d" % limit
    assert counter(headgate, "admitted_total") == limit
    assert counter(headgate, "refused_total") == 1000 - limit


@pytest.mark.threads
def test_all_workers_charge_several_rules_together(make_shared):
    """All or nothing holds between workers, too: each of the rules is spent to its last permit, and to no more."""
    rules = rule("all", per="all", limit=60, commands="incr decr") + rule("key", per="key", limit=10, commands="incr")
    headgate = make_shared(rules, threads=4)
    clients = [headgate.connect() for _ in range(16)]
    for client in clients:
        client.send(b"".join(encode("INCR", f"k{n % 4}") for n in range(80)))
    replies = [reply for client in clients for reply in client.read_many(80)]
    assert sum(isinstance(reply, int) for reply in replies) == 40
    assert sum(refuses(reply, "key") for reply in replies) == 16 * 80 - 40
    assert spend(clients[0], "DECR", "n", count=50, name="all") == 20


# ---- what could slip through ----


def test_a_command_that_is_translated_ends_a_pipeline(make):
    """Requests that are put to the rules together must be so before anything else is sent."""
    headgate = make(rule(per="all", limit=5))
    client = headgate.connect()
    replies = client.pipeline([("INCR", "n")] * 100 + [("DELIFEQ", "x", "y")] + [("INCR", "n")] * 10)
    assert admitted(replies[:100]) == 5 and replies[100] == 0 and admitted(replies[101:]) == 0


@pytest.mark.parametrize(("limit", "latency"), [(0, ""), (63, ""), (64, "[latency]\nenabled = on\n"), (150, "")])
def test_a_pipeline_is_admitted_up_to_the_limit(make, limit, latency):
    """The first ones of it are, however many there are, and each of the others is answered in its place."""
    headgate = make(rule(per="user", limit=limit + 1) + latency)
    client = headgate.connect()
    assert client("INCR", "n") == 1
    replies = client.pipeline([("INCR", "n")] * 300)
    assert replies[:limit] == [number + 2 for number in range(limit)]
    assert all(refuses(reply) for reply in replies[limit:])
    assert (counter(headgate, "admitted_total"), counter(headgate, "refused_total")) == (limit + 1, 300 - limit)
    assert int(stats(headgate, "policies")["policy_replies_total"]) == 300 - limit


@pytest.mark.parametrize("action", ["reject", "observe"])
def test_what_no_rule_means_keeps_its_place_in_a_pipeline(make, action):
    headgate = make(rule(per="user", limit=20, commands="incr incrby", action=action))
    client = headgate.connect()
    pattern = [("INCR", "n"), ("GET", "n"), ("ECHO", "a"), ("INCRBY", "n", "1"), ("GET", "n"), ("PING",)]
    replies = client.pipeline(pattern * 30)
    count = 0
    for number, reply in enumerate(replies):
        kind = pattern[number % len(pattern)][0]
        if kind in ("INCR", "INCRBY"):
            assert refuses(reply) == (count >= 20 and action == "reject")
            count += not refuses(reply)
        expected = {"GET": str(count).encode(), "ECHO": b"a", "PING": PONG}.get(kind)
        assert expected is None or reply == expected
    assert counter(headgate, "observed_total" if action == "observe" else "refused_total") == 40


def test_long_requests_count_together_where_their_keys_are_not_seen(make):
    """Their keys cannot be told apart, so they share one limit, whatever the glob is."""
    headgate = make(rule(per="key", keys="{*}:*", limit=2, commands="mset"))
    client = headgate.connect()
    replies = [client("MSET", "t:a", "v" * 300_000) for _ in range(6)]
    assert replies[:2] == [OK, OK] and all(refuses(reply) for reply in replies[2:])


# ---- reload ----


def test_state_survives_a_reload(make):
    before = rule(per="ip", limit=5)
    headgate = make(before, threads=4)
    clients = [headgate.connect() for _ in range(4)]
    assert spend(clients[0], count=3) == 3
    others = rule("first", limit=100, commands="decr") + "{}" + rule("last", limit=100, commands="decr")
    reload(headgate, others.format(rule(per="ip", limit=5, commands="incr get")), *clients)
    assert [spend(client) for client in clients] == [2, 0, 0, 0]
    reload(headgate, before, *clients)
    assert [spend(client) for client in clients] == [0, 0, 0, 0]


SLOW = funnel(per="all", capacity=1, leak="1/2s", action="delay", max_delay="10m")
REFUSED = Error(b"DENIED x: incr is not allowed")


@pytest.mark.parametrize(("after", "reply"), [("", 2), (SLOW + "[deny:x]\ncommands = incr\n", REFUSED)])
def test_a_rule_goes_or_comes_while_a_request_is_held(make, after, reply):
    """It is served with what waits behind it, soon or when its time has come; or refused. It is counted once."""
    seen = "[deny:seen]\ncommands = incr\naction = observe\n"
    headgate = make(seen + SLOW)
    first, held = headgate.connect(), headgate.connect()
    assert first("INCR", "n") == 1
    held.send(encode("INCR", "n") + encode("ECHO", "behind"))
    await_holds(headgate, 1)
    reload(headgate, seen + after, first)
    assert held.read_many(2) == [reply, b"behind"]
    assert first("GET", "n") == (b"1" if after else b"2")
    assert stats(headgate, "deny")["deny_observed_total"] == "2"


# ---- the admin port ----


def test_limits(make, redis):
    headgate = make(rule("api", per="user", limit=5, window="60s") + rule("other", per="ip", limit=9, commands="get"),
                    threads=4)
    add_users(redis, "alice", "bob")
    start = time.monotonic()
    assert spend(authenticated(headgate, "alice"), count=7, name="api") == 5
    assert spend(authenticated(headgate, "bob"), count=2, name="api") == 2
    await_tracked(headgate, 2)
    rules, offenders = limits(headgate)
    passed = (time.monotonic() - start) * 1000
    assert set(rules) == {"api", "other"}
    expected = {"per": "user", "admitted": "7", "refused": "2", "delayed": "0", "observed": "0", "tracked": "2"}
    assert expected.items() <= rules["api"].items()
    assert {"per": "ip", "admitted": "0", "refused": "0", "tracked": "0"}.items() <= rules["other"].items()
    assert [(line["offender"], line["rule"], line["refused"]) for line in offenders] == [("user:alice", "api", "2")]
    assert 60_000 - passed <= int(offenders[0]["next_admission_ms"]) <= 60_001


def test_limits_lists_the_worst(make_shared):
    headgate = make_shared(rule(per="name", limit=1))
    for number in range(15):
        assert spend(named(headgate, f"n{number}"), count=2 + number) == 1
    _, offenders = limits(headgate)
    assert 1 <= len(offenders) <= 10
    assert ("name:n14", "15") in [(line["offender"], line["refused"]) for line in offenders]


def test_reset_of_a_rule(make):
    headgate = make(rule(per="name", limit=5) + rule("b", per="ip", limit=100), threads=4)
    clients = [named(headgate, name) for name in ("x", "y", "x")]
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert forget(headgate, "a") == OK
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert limits(headgate)[0]["b"]["admitted"] == "20", "the other rule has lost nothing"
    assert forget(headgate, "a", "name:x") == OK
    assert [spend(client) for client in clients] == [5, 0, 0]
    # An unset variable of a shell must not forget everything.
    for unknown in (("none",), ("a", "name:nobody"), ("none", "name:x"), ("a", ""), ()):
        assert isinstance(forget(headgate, *unknown), Error), unknown
    assert [spend(client) for client in clients] == [0, 0, 0]


@pytest.mark.parametrize("per", ["ip/24", "user+key"])
def test_reset_of_an_offender(make_shared, per):
    """The words of LIMITS are those that LIMIT RESET takes."""
    headgate = make_shared(rule(per=per, limit=5))
    client = named(headgate, "me")
    assert spend(client, "INCR", "k") == 5
    _, offenders = limits(headgate)
    assert len(offenders) == 1
    assert forget(headgate, "a", offenders[0]["offender"]) == OK
    assert spend(client, "INCR", "k") == 5
