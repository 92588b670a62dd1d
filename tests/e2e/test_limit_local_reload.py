"""[limit:NAME] with scope = local: what a reload keeps, how many are tracked, and what the admin port tells and resets."""

import time

import pytest

from harness.admin import stats, text
from harness.identity import add_users, authenticated, named
from harness.limits import admitted, await_holds, await_tracked, counter, forget, funnel, limits, rule, spend
from harness.resp import OK, Error, encode
from harness.rules import reload


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


def test_observing_goes_on_with_the_same_state(make_shared):
    headgate = make_shared(rule(limit=5))
    client = headgate.connect()
    assert spend(client, count=3) == 3
    reload(headgate, rule(limit=5, action="observe"), client)
    assert spend(client) == 10
    assert counter(headgate, "observed_total") == 8
    reload(headgate, rule(limit=5), client)
    assert spend(client) == 0


def test_a_rule_comes_and_goes(make):
    headgate = make("")
    client = headgate.connect()
    assert spend(client) == 10
    reload(headgate, rule(limit=2), client)
    assert spend(client) == 2
    reload(headgate, rule("b", limit=3), client)
    assert spend(client, name="b") == 3, "another name is another rule"
    reload(headgate, "", client)
    assert spend(client) == 10


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


def test_a_rule_that_is_gone_holds_nobody(make):
    """They need not wait for what no rule asks of them any more."""
    headgate = make(funnel(per="all", capacity=1, leak="1/60s", action="delay", max_delay="10m"))
    clients = [headgate.connect() for _ in range(4)]
    assert clients[0]("INCR", "n") == 1
    for client in clients[1:]:
        client.send(encode("INCR", "n") + encode("ECHO", "behind"))
    await_holds(headgate, 3)
    reload(headgate, "", clients[0])
    assert sorted(client.read() for client in clients[1:]) == [2, 3, 4]
    assert [client.read() for client in clients[1:]] == [b"behind"] * 3


# ---- how many are tracked ----


def test_more_subjects_than_are_tracked(make):
    """The first three have a state each, the other seven one together: nobody gets more than the limit."""
    headgate = make(rule(per="name", limit=5, max_clients_tracked=3), threads=4)
    clients = [named(headgate, f"name-{number}") for number in range(10)]
    counts = [spend(client) for client in clients]
    again = [spend(client) for client in clients]
    assert counts[:3] == [5, 5, 5]
    assert sum(counts[3:]) == 5
    assert sum(again) == 0
    assert counter(headgate, "untracked_total") > 0
    await_tracked(headgate, 3, 4)  # that which the others share may be counted or not


def test_idle_subjects_make_room_at_once(make_shared):
    """Three names, then three others when there is nothing to remember of the first, though these are still connected:
    each has its own state."""
    headgate = make_shared(rule(per="name", limit=1, window="150ms", max_clients_tracked=3))
    for turn in range(3):
        clients = [named(headgate, f"{turn}-{number}") for number in range(3)]
        assert [admitted([client("INCR", "n")]) for client in clients] == [1, 1, 1]
        time.sleep(0.15)
    assert counter(headgate, "untracked_total") == 0


def test_idle_subjects_are_forgotten(make_shared):
    """One subject that is not idle comes after the others, and shows that the gauge has seen them."""
    rules = rule("window", per="key", limit=5, window="250ms") + funnel("funnel", per="key", capacity=5, leak="5/250ms")
    headgate = make_shared(rules + rule("long", per="key", limit=1, commands="decr"))
    commands = [("INCR", f"k{number}") for number in range(2000)]
    assert admitted(headgate.connect().pipeline([*commands, ("DECR", "long")])) == 2001
    await_tracked(headgate, 1)


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


def test_offenders_cannot_forge_lines(make_shared):
    """Keys are anybody's text."""
    headgate = make_shared(rule(per="key", limit=1))
    client = headgate.connect()
    keys = [b"x\r\nrule=forged per=ip admitted=1", b"y\noffender=forged", b"z refused=999", b"\xff\0\x1b[2J"]
    for key in keys:
        assert spend(client, "INCR", key) == 1
    with headgate.admin() as admin:
        lines = text(admin("LIMITS")).split("\n")
    assert len([line for line in lines if line.strip()]) == 1 + len(keys)
    assert all(line.rstrip("\r").isprintable() for line in lines)
    rules, offenders = limits(headgate)
    assert set(rules) == {"a"} and "forged" not in [line["offender"] for line in offenders]


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


@pytest.mark.parametrize("per", ["ip/24", "connection", "all", "user+key"])
def test_reset_of_an_offender(make_shared, per):
    """The words of LIMITS are those that LIMIT RESET takes."""
    headgate = make_shared(rule(per=per, limit=5))
    client = named(headgate, "me")
    assert spend(client, "INCR", "k") == 5
    _, offenders = limits(headgate)
    assert len(offenders) == 1
    assert forget(headgate, "a", offenders[0]["offender"]) == OK
    assert spend(client, "INCR", "k") == 5
