"""[limit:NAME] with scope = global: reloads, the admin port, and what a file may say."""

import re

import pytest

from harness.fake_redis import always
from harness.global_limits import ALL_KINDS, GRANTED, Decider, Stopped, shared
from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import await_holds, counter, forget, limits, refuses, rule, spend
from harness.resp import OK, PONG, Error, wait_for
from harness.rules import check_file, reload


# ---- reload, the admin port, the file ----


CHANGES = {"commands": {"commands": "incr get"}, "accuracy": {"accuracy": "leased"}}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_state_survives_a_reload(make_sidecar, changes):
    headgate = make_sidecar(shared(limit=5), threads=4)
    clients = [headgate.connect() for _ in range(4)]
    assert spend(clients[0], count=3) == 3
    others = rule("first", limit=100, commands="decr") + "{}" + shared("last", limit=100, commands="decr")
    reload(headgate, others.format(shared(**{"limit": 5, **changes})), *clients)
    assert [spend(client) for client in clients] == [2, 0, 0, 0]
    reload(headgate, shared(limit=5), *clients)
    assert [spend(client) for client in clients] == [0, 0, 0, 0]


def test_a_reload_while_it_is_decided(make_sidecar, redis):
    """Those who wait are decided on by the new rules, once; nothing is charged twice."""
    headgate = make_sidecar(shared(limit=5))
    clients = [headgate.connect() for _ in range(4)]
    assert [client("PING") for client in clients] == [PONG] * 4
    with Stopped(redis):
        for client in clients[:3]:
            client.request("INCR", "n")
        await_holds(headgate, 3)
        headgate.write_rules(shared(limit=5) + rule("b", limit=100, commands="decr"))
        with headgate.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        wait_for(lambda: "b" in limits(headgate)[0], what="the new rules")
    replies = [client.read() for client in clients[:3]]
    assert all(isinstance(reply, int) for reply in replies), replies
    assert spend(clients[3]) == 2


def test_a_rule_that_is_gone_holds_nobody(make_sidecar, fake):
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake)
    headgate = make_sidecar(shared(limit=5), upstream=fake.url, pool="session")
    client = headgate.connect()
    client.request("INCR", "n")
    decider.await_asked(1)
    headgate.write_rules("")
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
    assert client.read() == 1
    decider.say(0, GRANTED)
    assert client("INCR", "n") == 1


def test_reset_deletes_the_state(make_sidecar, redis, any_kind):
    rules = ALL_KINDS[any_kind](20, per="name") + shared("other", per="name", limit=100, commands="get")
    headgate, fresh = make_sidecar(rules, threads=4), make_sidecar(rules)
    clients = [named(headgate, name) for name in ("x", "y")]
    for client in clients:
        assert 16 <= spend(client, count=60) <= 20
        assert client("GET", "n") is not None
    with redis.connect() as observer:
        assert observer("DBSIZE") == 5
        assert forget(headgate, "a", "name:x") == OK
        assert observer("DBSIZE") == 4, "it is answered when Redis has forgotten"
        assert spend(named(fresh, "y"), count=1) == 0
        assert 16 <= spend(clients[0], count=60) <= 20
        assert forget(headgate, "a") == OK
        assert observer("KEYS", "headgate:hist:*:a:*") == []
        assert observer("DBSIZE") == 3, "the other rule has lost nothing"
    assert [16 <= spend(client, count=60) <= 20 for client in clients] == [True, True]
    assert isinstance(forget(headgate, "none"), Error)
    assert forget(headgate, "a", "name:nobody") == OK, "who is not known here may be counted in Redis"
    assert isinstance(forget(headgate, "a", "name:\\x2"), Error)


def test_reset_outdoes_a_decision_under_way(make_sidecar, redis):
    """A refusal that Redis gave before the reset says nothing any more after it."""
    rules = shared(limit=1)
    headgate, other = make_sidecar(rules), make_sidecar(rules)
    assert other.connect()("INCR", "n") == 1
    client = headgate.connect()
    assert client("PING") == PONG
    with headgate.admin() as admin:
        with Stopped(redis):
            client.request("INCR", "n")
            await_holds(headgate, 1)
            admin.request("LIMIT", "RESET", "a")
            admin.assert_silent()
        assert admin.read() == OK
    reply = client.read()
    if refuses(reply):
        assert client("INCR", "n") == 2


def test_users_are_the_same_for_all_sidecars(make_sidecar, redis):
    rules = shared(per="user", limit=5, except_="name:operator*")
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    add_users(redis, "alice", "bob")
    assert spend(authenticated(headgates[0], "alice"), count=3) == 3
    assert spend(authenticated(headgates[1], "alice")) == 2
    assert spend(authenticated(headgates[1], "bob")) == 5
    assert spend(headgates[0].connect()) == 5
    assert spend(named(headgates[1], "operator-1")) == 10
    assert spend(connect_from(headgates[1], "127.0.0.2")) == 0, "the default user, wherever it comes from"


def test_nobody_is_admitted_twice_where_few_are_tracked(make_sidecar):
    """One sidecar has room for x, the other has not, as it has to keep in mind that y is refused: together they admit
    no more than the limit to x."""
    rules = shared(per="name", limit=5, max_clients_tracked=1)
    first, second = make_sidecar(rules), make_sidecar(rules)
    assert spend(named(first, "x")) == 5
    assert spend(named(second, "y")) == 5
    assert spend(named(second, "x")) == 0


def test_rules_that_cannot_be(tmp_path):
    for options, fault in {
        "per = user+connection": "per|scope",
        "accuracy = rough": "accuracy",
        "on_error = maybe": "on_error",
        "decision_timeout = 0": "decision_timeout",
        "accuracy = leased\nwindow = 19ms": "accuracy",
        "accuracy = leased\nalgorithm = funnel\ncapacity = 79\nleak = 10/ms": "accuracy",
    }.items():
        most = [] if "funnel" in options else ["limit = 5"] if "window" in options else ["limit = 5", "window = 1s"]
        done = check_file(tmp_path, [*most, "scope = global", options])
        assert done.returncode == 1
        assert re.search(rf"h\.ini:[1-9]: \[limit:a\] ({fault}) =.*: .+; expected .+", done.stderr), done.stderr


def test_keys_without_room_are_asked_about_in_any_order(make_sidecar):
    """Where no more are tracked, each request has subjects of its own: neither their order nor a repetition matters."""
    rules = shared("a", per="key", limit=3, max_clients_tracked=1, on_error="local", commands="incr mget")
    headgate = make_sidecar(rules)
    client = headgate.connect()
    assert client("INCR", "one") == 1
    for keys in (["aa", "bb"], ["bb", "aa"], ["cc", "cc"], ["aa", "dd", "bb"]):
        assert client("MGET", *keys) == [None] * len(keys)
    assert refuses(client("MGET", "bb", "aa"))
    assert counter(headgate, "script_calls_total") < 60
