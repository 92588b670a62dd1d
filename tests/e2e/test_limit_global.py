"""[limit:NAME] with scope = global: one limit over several Headgates, kept in their Redis.

As in test_limit_local, windows are an hour long. Redis is waited for as long as it takes and errors are refused, unless the
test is about that: so no count depends on how fast the machine is.
"""

import concurrent.futures
import struct
import time

import pytest

from harness.global_limits import EXACT, LEASED, Stopped, asked, connect_to, key_of, rush, settle, shared, total
from harness.identity import named
from harness.limits import admitted, await_holds, counter, forget, refuses, rule, spend
from harness.relay import Relay
from harness.resp import OK, PONG, encode, wait_for
from harness.target import script_calls


# ---- never more than the limit, and all of it ----


@pytest.mark.threads
@pytest.mark.parametrize("limit", [60, 250])
def test_two_sidecars_admit_the_limit_together(make_sidecar, redis, kind, limit):
    rules = EXACT[kind](limit)
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    assert rush(connect_to(headgates, 6), 25) == limit
    assert redis.connect()("GET", "n") == b"%d" % limit
    assert total(headgates, "admitted_total") == limit
    assert total(headgates, "refused_total") == 300 - limit
    assert total(headgates, "undecided_total") == 0


@pytest.mark.threads
@pytest.mark.parametrize("limit", [16, 2000])
def test_leased_permits_are_never_more_than_the_limit(make_sidecar, redis, leased, limit):
    """And most of them are used while there is demand. Permits that expire unused are lost, which happens if a process
    is left without processor time for half a second: hence several trials, of which one has to do."""
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


@pytest.mark.parametrize(("first", "local"), [("each", True), ("all", False)])
def test_a_refusal_charges_no_other_rule(make_sidecar, kind, first, local):
    """Twenty keys that another sidecar has used up: each is refused by Redis, when the other rule has granted it."""
    each = rule("each", per="key", limit=1, commands="get decr") if local else EXACT[kind](
        1, "each", per="key", commands="get decr"
    )
    rules = [each, EXACT[kind](10, "all", commands="incr decr")]
    rules = "".join(rules if first == "each" else reversed(rules))
    headgate, other = make_sidecar(rules), make_sidecar(rules)
    keys = [f"k{number}" for number in range(20)]
    user = headgate if local else other
    assert admitted(user.connect().pipeline([("GET", key) for key in keys]), "each") == 20
    client = headgate.connect()
    assert admitted(client.pipeline([("DECR", key) for key in keys]), "each") == 0
    assert spend(client, name="all", count=6) == 6, "refused requests were charged"
    assert admitted(client.pipeline([("DECR", key) for key in keys]), "each") == 0
    assert spend(client, name="all") == 4
    assert spend(other.connect(), name="all") == 0


@pytest.mark.parametrize("first", ["each", "all"])
def test_a_refusal_charges_no_lease(make_sidecar, first):
    rules = [shared("all", limit=100, accuracy="leased"), shared("each", limit=3, per="name")]
    headgate = make_sidecar("".join(rules if first == "all" else reversed(rules)))
    assert spend(named(headgate, "x"), name="each", count=200) == 3
    wait_for(lambda: spend(headgate.connect(), name="each", count=100) == 0, what="a refusal")
    counts = [spend(named(headgate, f"n{number}"), name="each", count=20) for number in range(10)]
    assert counts == [3] * 10, "there are 100 of all, and 36 were admitted"


def permits(redis, name):
    """How many are counted in the window."""
    return int(struct.unpack(">d", redis.connect()("GETRANGE", key_of("slots", name=name), 14, 21))[0])


def test_several_rules_admit_together(make_sidecar, redis):
    """All or nothing, over two sidecars and four workers: each rule is spent to its last permit, and to no more."""
    rules = shared("all", limit=60, commands="incr decr") + shared("key", per="key", limit=10, commands="incr")
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    clients = connect_to(headgates, 5)
    for client in clients:
        client.send(b"".join(encode("INCR", f"k{n % 4}") for n in range(40)))
    replies = [reply for client in clients for reply in client.read_many(40)]
    assert sum(isinstance(reply, int) for reply in replies) <= 40
    # Whoever was refused for the sake of a permit that was then given back may come again.
    wait_for(
        lambda: permits(redis, "all") == sum(isinstance(reply, int) for reply in replies),
        what="all that was granted in vain to be given back",
    )


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
