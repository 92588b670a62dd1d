"""[limit:NAME] with scope = local: what a reload keeps, how many are tracked, and what a file may say."""

import time

import pytest

from harness.admin import stats
from harness.identity import named
from harness.limits import admitted, await_holds, await_tracked, counter, funnel, rule, spend
from harness.resp import Error, encode
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
