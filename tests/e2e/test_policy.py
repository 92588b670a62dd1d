"""The policy contract, shown by headgate-probe: Headgate with policies that pass, answer, hold and close as told. Here:
requests by themselves and in pipelines, and rules; test_policy_*.py have the rest.

The probe obeys the first argument that begins with "probe:" (tests/policy/probe.h says how) and aborts when a request
that it passed or held does not get exactly one on_reply; each test ends with a look at what it has counted.
"""

import signal
import time

import pytest

from harness.admin import stats
from harness.probe import refused
from harness.resp import OK, PONG, Error, encode, wait_for
from harness.servers import elapsed


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


# ---- one request at a time ----


def test_passes(probe, client):
    assert client("SET", "probe:pass:a", "1") == OK
    assert client("GET", "probe:pass:a") == b"1"
    assert client("NOSUCHCOMMAND", "probe:pass:a")[:19] == b"ERR unknown command"
    probe.await_counts(passed=3, reply=3, errors=1, replied=0, asks=3, lost=0, ownerless=0)


def test_what_no_policy_wants_is_not_shown_to_it(probe, client):
    assert client("ECHO", "probe:reply:a") == b"probe:reply:a"
    probe.await_counts(requests=0)


def test_control_commands_are_not_shown_to_it(probe):
    wait_for(lambda: stats(probe, "control")["control_script_loads_total"] == "1", what="Headgate's own commands")
    assert probe.counts()["requests"] == 0


def test_answers(probe, client, redis):
    assert client("SET", "probe:reply:a", "1") == refused("probe:reply:a")
    assert client("GET", "probe:pass:a") is None
    assert redis.connect()("EXISTS", "probe:reply:a") == 0
    probe.await_counts(replied=1, passed=1, reply=1)
    # The watcher had passed the refused one: for it, another policy answered.
    assert probe.counts("probe:watched")["local"] >= 1


def test_holds(probe, client):
    assert elapsed(lambda: client("SET", "probe:hold:200:a", "1")) >= 0.2
    assert client("GET", "probe:hold:0:a") is None
    assert client("GET", "probe:pass:a") is None
    probe.await_counts(held=1, passed=3, reply=3, requests=3)


def test_delays_a_refusal(probe, client):
    start = time.monotonic()
    assert client("SET", "probe:delayreply:200:a", "1") == refused("probe:delayreply:200:a")
    assert time.monotonic() - start >= 0.2
    assert client("PING") == PONG
    probe.await_counts(held=1, replied=1, passed=1, reply=1)


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


def test_counters_of_the_admin_port(probe, client):
    client.pipeline([("GET", "probe:reply:a"), ("GET", "probe:hold:20:a"), ("GET", "probe:delayreply:20:a")])
    counts = stats(probe, "policies")
    assert counts["policy_replies_total"] == "2"
    assert int(counts["policy_holds_total"]) >= 2
    assert stats(probe, "traffic")["requests_answered_locally_total"] == "2"


def test_inline_commands(probe, client):
    client.send(b"SET probe:reply:a 1\r\nSET probe:pass:a 2\r\nget probe:hold:50:a\r\nGET \"probe:pass:a\"\r\n")
    client.send(b"GET probe:delayreply:50:a\r\nPING\r\n")
    assert client.read_many(6) == [
        refused("probe:reply:a"), OK, None, b"2", refused("probe:delayreply:50:a"), PONG,
    ]
    client.send(b"GET probe:close:a\r\n")
    client.assert_closed()


def test_bytewise(probe, client):
    client.send_bytewise(encode("SET", "probe:reply:a", "1") + encode("GET", "probe:hold:30:a") + encode("PING"))
    assert client.read_many(3) == [refused("probe:reply:a"), None, PONG]


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


def test_a_refusal_waits_for_what_is_before_it(probe, client, redis):
    client.send(encode("BLPOP", "list", "0") + encode("GET", "probe:reply:a") + encode("PING"))
    client.assert_silent()
    redis.connect()("RPUSH", "list", "x")
    assert client.read_many(3) == [[b"list", b"x"], refused("probe:reply:a"), PONG]


def test_held_requests_keep_the_order_of_effects(probe, client):
    commands = [("SET", "a", "1"), ("INCRBY", "a", "0"), ("SET", "probe:hold:100:b", "1"), ("INCR", "a")]
    commands += [("GET", "probe:delayreply:100:c"), ("INCR", "a"), ("GET", "probe:hold:50:b"), ("ECHO", "end")]
    commands += [("INCR", "a")]
    expected = [OK, 1, OK, 2, refused("probe:delayreply:100:c"), 3, None, b"end", 4]
    assert elapsed(lambda: check_equal(client.pipeline(commands), expected)) >= 0.25


def check_equal(left, right):
    assert left == right


def test_what_is_before_a_held_request_is_answered_meanwhile(probe, client):
    client.send(encode("SET", "a", "1") + encode("GET", "probe:reply:a") + encode("GET", "probe:wait:a"))
    client.send(encode("GET", "a"))
    assert client.read_many(2) == [OK, refused("probe:reply:a")]
    client.assert_silent()
    with probe.connect() as other:
        other("GET", "probe:release:a")
    assert client.read_many(2) == [None, b"1"]


def test_a_held_client_delays_nobody_else(probe):
    held = [probe.connect() for _ in range(20)]
    for client in held:
        client.send(encode("SET", "probe:hold:6000:a", "1") + encode("SET", "probe:hold:10:a", "1"))
    with probe.connect() as other:
        probe.await_counts(held=20)
        for number in range(100):
            assert other("SET", "probe:pass:b", number) == OK
        assert probe.counts()["open"] == 20, "those that are held are held still"
        assert other.pipeline([("GET", "probe:pass:b"), ("ECHO", "x")]) == [b"99", b"x"]
    for client in held:
        assert client.read_many(2) == [OK, OK]
        client.close()
    probe.await_counts(passed=40 + 101, reply=40 + 101)


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


def test_a_reload_with_a_faulty_rule_changes_nothing(redis, make_probe):
    probe = make_probe(redis)
    probe.write_rules("[probe:a]\nrefuse = k\n")
    reload(probe, rules=1)
    probe.write_rules("[probe:a]\nrefuse = other\n[probe:b]\nafter = 5\n")
    probe.signal(signal.SIGHUP)
    wait_for(lambda: "[probe:b] refuse =: names no key" in probe.log(), what="the fault in the log")
    with probe.connect() as client:
        assert client("GET", "k") == Error(b"PROBE a")
        assert client("GET", "other") is None


def test_reloads_while_requests_are_held(redis, pool, make_probe):
    probe = make_probe(redis, pool=pool, threads=2)
    clients = [probe.connect() for _ in range(10)]
    for i in range(20):
        for client in clients:
            client.send(encode("SET", f"probe:hold:{i}:a", i))
        probe.write_rules(f"[probe:r{i}]\nrefuse = k{i}\n")
        probe.signal(signal.SIGHUP)
        assert [client.read() for client in clients] == [OK] * 10
    wait_for(lambda: clients[0]("GET", "k19") == Error(b"PROBE r19"), what="the last rule")
    for client in clients:
        client.close()
    probe.await_balance()


def test_counters_of_policies_are_explained(redis, make_probe):
    probe = make_probe(redis)
    with probe.admin() as admin:
        assert b"# Probe\r\nprobe_rules:0\r\nprobe_refused_total:0" in admin("STATS", "probe")
        assert b"# Probe\r\n" in admin("STATS")
        assert admin("HELP", "probe_refused_total") == b"probe_refused_total (counter): requests refused by a rule\n"
        assert b"probe_rules (gauge): " in admin("HELP", "COUNTERS")


def reload(probe, rules):
    probe.signal(signal.SIGHUP)
    wait_for(lambda: stats(probe, "probe")["probe_rules"] == str(rules), what="the new rules")
