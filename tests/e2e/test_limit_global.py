"""[limit:NAME] with scope = global: one limit over several Headgates, kept in their Redis; what on_error decides when that does not.

As in test_limit_local, windows are an hour long. Redis is waited for as long as it takes and errors are refused, unless the
test is about that: so no count depends on how fast the machine is."""

import concurrent.futures
import re
import time

import pytest

from harness.fake_redis import always
from harness.global_limits import (
    EXACT, GRANTED, LEASED, UNDECIDED, Decider, Stopped, asked, connect_to, has_reply, rush, settle, shared, total,
)
from harness.identity import named
from harness.limits import admitted, await_holds, counter, explain, forget, refuses, rule, spend
from harness.relay import Relay
from harness.resp import OK, PONG, Error, wait_for
from harness.target import script_calls


# ---- never more than the limit, and all of it ----


@pytest.mark.threads
def test_two_sidecars_admit_the_limit_together(make_sidecar, redis, kind):
    limit = 250
    rules = EXACT[kind](limit)
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    assert rush(connect_to(headgates, 6), 25) == limit
    assert redis.connect()("GET", "n") == b"%d" % limit
    assert total(headgates, "admitted_total") == limit
    assert total(headgates, "refused_total") == 300 - limit
    assert total(headgates, "undecided_total") == 0


@pytest.mark.threads
def test_leased_permits_are_never_more_than_the_limit(make_sidecar, redis, leased):
    """And most of them are used while there is demand. Permits that expire unused are lost, which happens if a process
    is left without processor time for half a second: hence several trials, of which one has to do."""
    limit = 400
    rules = LEASED[leased](limit, on_error="allow")
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    clients = connect_to(headgates, 8)
    for _ in range(3):
        count = rush(clients, limit // 4)
        assert count <= limit
        assert total(headgates, "undecided_total") == 0
        if count >= 0.8 * limit:
            return
        redis.connect()("FLUSHALL")
        assert [forget(headgate, "a") for headgate in headgates] == [OK, OK]
    pytest.fail(f"{count} of {limit} were admitted")


def test_leases_of_little_demand(make_sidecar):
    """Who asks seldom is not given what it cannot use: one request in 0.6 s, while leases last 0.5 s at most."""
    client = make_sidecar(shared(limit=8, accuracy="leased")).connect()
    count = 0
    for turn in range(3):
        time.sleep(0.6 if turn else 0)
        count += spend(client, count=1)
    assert count == 3, f"{count} of 3 requests were admitted, by a limit of 8"


@pytest.mark.threads
def test_high_rates_take_few_script_calls(make_sidecar, redis):
    # Each new lane asks by a script.
    headgate = make_sidecar(shared(limit=1_000_000, window="10s", accuracy="leased"), threads=4, lanes=1)
    settle(redis, headgate)
    before = asked(redis), counter(headgate, "script_calls_total")
    clients = [headgate.connect() for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as executor:
        done = executor.map(lambda client: sum(spend(client, count=500) for _ in range(3)), clients)
    assert sum(done) == 12_000
    calls = counter(headgate, "script_calls_total") - before[1]
    assert 1 <= calls <= 12_000 / 50, f"{calls} calls"
    assert counter(headgate, "admitted_total") == 12_000
    wait_for(
        lambda: asked(redis) - before[0] == counter(headgate, "script_calls_total") - before[1],
        what="Redis to have seen as many calls as were counted",
    )


def test_exact_takes_a_script_call_for_each_of_a_clients_requests(make_sidecar, redis, kind):
    headgate = make_sidecar(EXACT[kind](100))
    settle(redis, headgate)
    assert spend(headgate.connect(), count=1) == 1
    before = script_calls(redis)["evalsha"]
    assert spend(headgate.connect(), count=50) == 50
    assert script_calls(redis)["evalsha"] - before == 50
    assert counter(headgate, "script_calls_total") == 51


# ---- several rules ----


def test_a_refusal_charges_no_other_rule(make_sidecar, kind):
    """Twenty keys that another sidecar has used up: each is refused by Redis, when the other rule has granted it."""
    rules = EXACT[kind](10, "all", commands="incr decr") + EXACT[kind](1, "each", per="key", commands="get decr")
    headgate, other = make_sidecar(rules), make_sidecar(rules)
    keys = [f"k{number}" for number in range(20)]
    assert admitted(other.connect().pipeline([("GET", key) for key in keys]), "each") == 20
    client = headgate.connect()
    assert admitted(client.pipeline([("DECR", key) for key in keys]), "each") == 0
    assert spend(client, name="all", count=6) == 6, "refused requests were charged"
    assert admitted(client.pipeline([("DECR", key) for key in keys]), "each") == 0
    assert spend(client, name="all") == 4
    assert spend(other.connect(), name="all") == 0


def test_what_is_given_back_is_there_at_once(make_sidecar, redis):
    """From afar, where the script that gives back is not known yet: the next question does not overtake it."""
    relay = Relay(redis, 0.01)
    rules = shared("a", limit=2, commands="incr") + rule("b", per="all", limit=1, keys="x*", commands="incr")
    headgate = make_sidecar(rules, upstream=relay.url)
    clients = [headgate.connect() for _ in range(3)]
    assert [client("PING") for client in clients] == [PONG] * 3
    for number in range(2):
        clients[number].request("INCR", f"x{number}")
    assert sorted(refuses(client.read(), "b") for client in clients[:2]) == [False, True]
    assert clients[2]("INCR", "y") == 1
    relay.close()


def test_what_is_given_back_is_there_for_others(make_sidecar, redis):
    """A permit that one request had for a moment, until another rule refused it, must not cost the next an hour."""
    rules = shared("a", limit=1, commands="get incr") + shared("b", limit=1, commands="get")
    headgate, other = make_sidecar(rules), make_sidecar(shared("b", limit=1, commands="get"))
    assert other.connect()("GET", "n") is None
    both, one = headgate.connect(), headgate.connect()
    assert both("PING") == one("PING") == PONG
    with Stopped(redis):
        both.request("GET", "n")
        await_holds(headgate, 1)
        one.request("INCR", "n")
        await_holds(headgate, 2)
    assert refuses(both.read(), "b")
    reply = one.read()
    if refuses(reply):
        assert one("INCR", "n") == 1, "refused though nobody was admitted"


# ---- on_error ----


BAD_ANSWERS = [
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-NOPERM User x has no permissions to run the 'evalsha' command\r\n",
    b"-NOSCRIPT No matching script. Please use EVAL.\r\n", b"$2\r\nno\r\n", b"*-1\r\n", b"*2\r\n:1\r\n:0\r\n",
    b"*3\r\n+1\r\n+0\r\n+0\r\n", b"*3\r\n*1\r\n:1\r\n:0\r\n:0\r\n",
]


def assert_undecided(reply, timeout="30s", name="a"):
    match = isinstance(reply, Error) and UNDECIDED.fullmatch(reply)
    assert match and match[1] == name.encode(), reply
    assert match[2].decode() in (timeout, {"30s": "30000 ms", "100ms": "100 ms", "200ms": "200 ms"}[timeout])
    assert int(match[3]) >= 1


def spend_undecided(client, mode, limit, count=8, timeout="30s"):
    """What becomes of requests that Redis does not decide on."""
    replies = client.pipeline([("INCR", "n")] * count)
    expected = {"allow": count, "deny": 0, "local": limit}[mode]
    assert admitted(replies) == expected, replies
    if mode == "deny":
        for reply in replies:
            assert_undecided(reply, timeout)
    if mode == "local":
        assert all(explain(reply)[1].startswith(str(limit)) for reply in replies[limit:])


@pytest.mark.parametrize(
    ("mode", "accuracy"), [("allow", "exact"), ("deny", "exact"), ("local", "exact"), ("deny", "leased"), ("local", "leased")]
)
def test_answers_that_decide_nothing(make_sidecar, fake, mode, accuracy):
    """One subject for each, as what one Redis said of another is kept."""
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake)
    rules = shared(limit=3, per="name", accuracy=accuracy, on_error=mode)
    headgate = make_sidecar(rules, upstream=fake.url)
    for number, answer in enumerate(BAD_ANSWERS):
        decider.answer = answer
        spend_undecided(named(headgate, f"n{number}"), mode, 3)
    decider.answer = GRANTED
    fresh = named(headgate, "fresh")
    assert spend(fresh, count=3) == 3
    if mode != "local":
        assert counter(headgate, "undecided_total") == 8 * len(BAD_ANSWERS)


def lines_about(headgate, name):
    return [line for line in headgate.log().splitlines() if re.search(rf"\b{name}\b", line)]


def test_errors_are_logged_once_a_minute_for_each_rule(make_sidecar, fake):
    fake.answers["INCR"] = fake.answers["DECR"] = always(b":1\r\n")
    Decider(fake, BAD_ANSWERS[0])
    rules = shared("quota", limit=3, on_error="allow") + shared("tariff", limit=3, commands="decr", on_error="deny")
    headgate = make_sidecar(rules, upstream=fake.url, threads=4)
    for _ in range(20):
        with headgate.connect() as client:
            assert client("INCR", "n") == 1
            assert_undecided(client("DECR", "n"), name="tariff")
    assert [len(lines_about(headgate, name)) for name in ("quota", "tariff")] == [1, 1], headgate.log_tail()
    assert "OOM" in lines_about(headgate, "quota")[0]


def test_deny_while_redis_stands_still(make_sidecar, redis, pool):
    """It is not waited for longer than decision_timeout, and the permits that it grants later are given back."""
    headgate = make_sidecar(shared("quota", limit=3, decision_timeout="200ms"), pool=pool)
    client = headgate.connect()
    assert client("PING") == PONG
    with Stopped(redis):
        start = time.monotonic()
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert time.monotonic() - start >= 0.2
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert counter(headgate, "undecided_total") == 2
        wait_for(lambda: lines_about(headgate, "quota"), what="a line in the log")
        assert len(lines_about(headgate, "quota")) == 1
    wait_for(lambda: redis.connect()("EXISTS", "headgate:hist:slots:quota:all") == 0, what="permits to be given back")
    wait_for(lambda: client("INCR", "n") == 1, what="Redis to decide in time")


def test_local_while_redis_stands_still(make_sidecar, redis, pool):
    """What this process has admitted, by whomever it was decided, is what counts."""
    headgate = make_sidecar(shared(limit=5, on_error="local", decision_timeout="300ms"), pool=pool)
    clients = [headgate.connect() for _ in range(8)]
    assert [client("PING") for client in clients] == [PONG] * 8
    assert spend(clients[0], count=2) == 2
    with Stopped(redis):
        for client in clients:
            client.request("INCR", "n")
        wait_for(lambda: sum(map(has_reply, clients)) == 5, what="five of eight to be refused")
        refused = [client for client in clients if has_reply(client)]
        assert all(refuses(client.read()) for client in refused)
    assert sorted(client.read() for client in clients if client not in refused) == [3, 4, 5]
