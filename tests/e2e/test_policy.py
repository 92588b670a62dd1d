"""The policy contract, shown by headgate-probe: Headgate with policies that pass, answer, hold and close as told. Here:
requests by themselves and in pipelines, and rules; test_policy_*.py have the rest.

The probe obeys the first argument that begins with "probe:" (tests/policy/probe.h says how) and aborts when a request
that it passed or held does not get exactly one on_reply; each test ends with a look at what it has counted.
"""

import signal

import pytest

from harness.admin import stats
from harness.probe import refused
from harness.resp import OK, Error, wait_for
from harness.servers import elapsed


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


# ---- one request at a time ----


def test_control_commands_are_not_shown_to_it(probe):
    wait_for(lambda: stats(probe, "control")["control_script_loads_total"] == "1", what="Headgate's own commands")
    assert probe.counts()["requests"] == 0


def test_resumes(probe, client):
    client.request("SET", "probe:wait:a", "1")
    probe.await_counts(held=1)
    client.assert_silent()
    with probe.connect() as other:
        assert other("GET", "probe:release:a") == OK
        assert client.read() == OK
        assert other("GET", "probe:release:a") == OK, "nobody waits: nothing happens"
    probe.await_counts(held=1, passed=1, reply=1)


@pytest.mark.parametrize("order", ["probe:close:a", "probe:delayclose:100:a"])
def test_closes(probe, client, redis, order):
    client.request("SET", order, "1")
    client.assert_closed()
    assert redis.connect()("EXISTS", order) == 0
    probe.await_counts(closed=1, passed=0, open=0)
    assert stats(probe, "policies")["policy_closes_total"] == "1"


def test_commands_that_take_an_exclusive_lane(probe, client, redis):
    redis.connect()("RPUSH", "list", "a", "b")
    assert client("BLPOP", "probe:reply:a", "list", "0") == refused("probe:reply:a")
    assert client("BLPOP", "probe:hold:50:a", "list", "0") == [b"list", b"a"]
    assert client("SUBSCRIBE", "probe:reply:channel") == refused("probe:reply:channel")
    assert client("SELECT", "probe:reply:1") == refused("probe:reply:1")
    assert client("WATCH", "probe:hold:50:a") == OK
    assert client("UNWATCH") == OK
    assert client("CLIENT", "SETNAME", "probe:reply:name") == refused("probe:reply:name")
    assert client("CLIENT", "GETNAME") is None
    assert client("CLIENT", "SETNAME", "probe:hold:50:name") == OK
    assert client("CLIENT", "GETNAME") == b"probe:hold:50:name"
    assert client("LLEN", "list") == 1
    assert client("QUIT", "probe:hold:50:a") == OK
    client.assert_closed()


# ---- pipelines ----


def test_a_refusal_keeps_its_place(probe, client):
    commands, replies = [], []
    for number in range(200):
        commands += [("SET", "probe:pass:n", number), ("GET", f"probe:reply:{number}"), ("GET", "probe:pass:n")]
        replies += [OK, refused(f"probe:reply:{number}"), str(number).encode()]
        commands.append(("ECHO", number))
        replies.append(str(number).encode())
    assert client.pipeline(commands) == replies
    probe.await_counts(passed=400, reply=400, replied=200)


def test_held_requests_keep_the_order_of_effects(probe, client):
    commands = [("SET", "a", "1"), ("INCRBY", "a", "0"), ("SET", "probe:hold:100:b", "1"), ("INCR", "a")]
    commands += [("GET", "probe:delayreply:100:c"), ("INCR", "a"), ("GET", "probe:hold:50:b"), ("ECHO", "end")]
    commands += [("INCR", "a")]
    expected = [OK, 1, OK, 2, refused("probe:delayreply:100:c"), 3, None, b"end", 4]
    assert elapsed(lambda: check_equal(client.pipeline(commands), expected)) >= 0.25


def check_equal(left, right):
    assert left == right


def test_much_behind_a_held_request(probe, client):
    """What comes while a request is held is kept within bounds, and served in order afterwards."""
    commands = [("GET", "probe:hold:400:a")]
    commands += [("SET", "probe:pass:b", "x" * 1000) for _ in range(3000)]
    commands += [("GET", "probe:reply:end")]
    assert client.pipeline(commands) == [None] + [OK] * 3000 + [refused("probe:reply:end")]


# ---- rules in the ini file, and counters ----


@pytest.mark.threads
def test_rules_of_the_ini_file_and_reload(redis, pool, make_probe):
    """Rules come from the file, a reload changes them, and what did not change keeps its state."""
    probe = make_probe(redis, pool=pool, threads=1)
    kept = "[probe:kept]\nrefuse = k\nafter = 2\n"
    probe.write_rules(kept + "[probe:gone]\nrefuse = g\n")
    reload(probe, rules=2)
    client = probe.connect()
    assert client("SET", "g", "1") == Error(b"PROBE gone")
    assert client("SET", "k", "1") == OK
    probe.write_rules(kept + "[probe:fresh]\nrefuse = f\n[probe:third]\nrefuse = t\n")
    reload(probe, rules=3)
    assert client.pipeline([("SET", "g", "1"), ("SET", "f", "1"), ("GET", "k")]) == [OK, Error(b"PROBE fresh"), b"1"]
    assert client("GET", "k") == Error(b"PROBE kept")
    assert stats(probe, "probe")["probe_refused_total"] == "3"
    client.close()
    probe.await_balance()


def reload(probe, rules):
    probe.signal(signal.SIGHUP)
    wait_for(lambda: stats(probe, "probe")["probe_rules"] == str(rules), what="the new rules")
