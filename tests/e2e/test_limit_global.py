"""[limit:NAME] with scope = global: one limit over several Headgates, kept in their Redis.

As in test_limit_local, windows are an hour long where time is not the point, and the clients' own clock judges where it
is. Redis is waited for as long as it takes and errors are refused, unless the test is about that: so no count depends
on how fast the machine is.
"""

import concurrent.futures
import random
import re
import select
import signal
import threading
import time

import pytest

from harness.admin import await_empty, stats
from harness.attempts import attempt, burst, hammer, judge_funnel
from harness.fake_redis import always
from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import (
    admitted,
    assert_never,
    await_holds,
    counter,
    explain,
    forget,
    funnel,
    limits,
    refuses,
    rule,
    spend,
)
from harness.resp import OK, PONG, QUEUED, Closed, Error, encode, wait_for
from harness.rules import check_file, launch, reload
from harness.target import info, script_calls

UNDECIDED = re.compile(rb"RATELIMITED (\S+): not decided in (\S+|\d+ ms), retry in (\d+) ms")
PATIENT = {"scope": "global", "per": "all", "on_error": "deny", "decision_timeout": "30s"}


# ---- what the tests share ----


def shared(name="a", **options):
    return rule(name, **{**PATIENT, **options})


def shared_funnel(name="a", **options):
    return funnel(name, **{**PATIENT, **options})


# Each kind of state: a rule that admits so much in an hour.
EXACT = {
    "log": lambda most, name="a", **options: shared(name, limit=most, **options),
    "slots": lambda most, name="a", **options: shared(name, limit=most, cost="keys", **options),
    "funnel": lambda most, name="a", **options: shared_funnel(name, capacity=most, **options),
}
LEASED = {
    "leased": lambda most, name="a", **options: shared(name, limit=most, accuracy="leased", **options),
    "leased funnel": lambda most, name="a", **options: shared_funnel(
        name, capacity=most, accuracy="leased", **options
    ),
}
KEYS = {"log": "log", "slots": "slots", "funnel": "funnel", "leased": "slots", "leased funnel": "funnel"}
ALL_KINDS = {**EXACT, **LEASED}


def key_of(kind, subject="all", name="a"):
    return f"hist:{KEYS[kind]}:{name}:{subject}"


@pytest.fixture(params=EXACT)
def kind(request):
    return request.param


@pytest.fixture(params=LEASED)
def leased(request):
    return request.param


@pytest.fixture(params=ALL_KINDS)
def any_kind(request):
    return request.param


@pytest.fixture
def make(redis, make_headgate):
    """As many Headgates before one Redis as are asked for."""

    def make(rules, upstream=None, pool="shared", **options):
        return launch(make_headgate, upstream or redis, pool, rules, **options)

    return make


def connect_to(headgates, count):
    return [headgate.connect() for _ in range(count) for headgate in headgates]


def rush(clients, count, *command):
    """So many requests of each client, all at once; how many were admitted."""
    for client in clients:
        client.send(encode(*(command or ("INCR", "n"))) * count)
    return sum(admitted(client.read_many(count)) for client in clients)


def total(headgates, name):
    return sum(counter(headgate, name) for headgate in headgates)


def asked(redis):
    """How often Redis was asked to run a script, whoever asked."""
    return sum(script_calls(redis).values())


def settle(redis, headgate, clients=20):
    """Until no worker has anything to ask Redis on its own account any more."""
    for _ in range(clients):
        with headgate.connect() as client:
            assert client("PING") == PONG
    wait_for(lambda: int(stats(headgate, "control")["control_script_loads_total"]) >= 1, what="the first script")
    seen = []

    def quiet():
        seen.append(asked(redis))
        time.sleep(0.05)
        return len(seen) > 3 and len(set(seen[-3:])) == 1

    wait_for(quiet, what="no more scripts")


def never_more(attempts, limit, seconds):
    """In no window more than limit, by the sending of the first and the reply to the last in it."""
    taken = [one for one in attempts if one.admitted]
    for first in taken:
        surely = sum(first.sent <= one.sent and one.replied < first.sent + seconds for one in taken)
        assert surely <= limit, f"{surely} in {seconds} s from {first.sent}"


class Stopped:
    """Redis stands still for as long as this lasts."""

    def __init__(self, redis):
        self.redis = redis

    def __enter__(self):
        self.redis.signal(signal.SIGSTOP)

    def __exit__(self, *_):
        self.redis.signal(signal.SIGCONT)


def has_reply(client):
    return bool(select.select([client.socket], [], [], 0)[0])


# ---- never more than the limit, and all of it ----


@pytest.mark.threads
@pytest.mark.parametrize("limit", [1, 100])
def test_two_sidecars_admit_the_limit_together(make, redis, kind, limit):
    rules = EXACT[kind](limit)
    headgates = [make(rules), make(rules, threads=4)]
    assert rush(connect_to(headgates, 6), 25) == limit
    assert redis.connect()("GET", "n") == b"%d" % limit
    assert total(headgates, "admitted_total") == limit
    assert total(headgates, "refused_total") == 300 - limit
    assert total(headgates, "undecided_total") == 0


def test_a_limit_too_large_for_a_log(make, redis):
    rules = shared(limit=1000)
    headgates = [make(rules), make(rules, threads=4)]
    assert rush(connect_to(headgates, 6), 110) == 1000
    assert redis.connect()("KEYS", "hist:*") == [b"hist:slots:a:all"]


@pytest.mark.threads
@pytest.mark.parametrize("limit", [16, 100, 2000])
def test_leased_permits_are_never_more_than_the_limit(make, redis, leased, limit):
    """And most of them are used while there is demand. Permits that expire unused are lost, which happens if a process
    is left without processor time for half a second: hence several trials, of which one has to do."""
    rules = LEASED[leased](limit, on_error="allow")
    headgates = [make(rules), make(rules, threads=4)]
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


@pytest.mark.threads
def test_many_leases_among_workers(make, redis):
    """Small batches for which four workers contend: who comes too late for one is decided on all the same."""
    headgate = make(shared(per="key", limit=40, accuracy="leased", on_error="allow"), threads=4)
    clients = [headgate.connect() for _ in range(16)]
    for turn in range(6):
        assert rush(clients, 10, "INCR", f"k{turn}") <= 40
    assert counter(headgate, "undecided_total") == 0


def test_leases_of_little_demand(make):
    """Who asks seldom is not given what it cannot use: one request in 0.6 s, while leases last 0.5 s at most."""
    client = make(shared(limit=8, accuracy="leased")).connect()
    count = 0
    for turn in range(3):
        time.sleep(0.6 if turn else 0)
        count += spend(client, count=1)
    assert count == 3, f"{count} of 3 requests were admitted, by a limit of 8"


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
@pytest.mark.parametrize("limit", [10, 200])
def test_never_more_in_any_window(make, accuracy, limit):
    rules = shared(limit=limit, window="400ms", accuracy=accuracy)
    headgates = [make(rules), make(rules, threads=4)]
    attempts = hammer(connect_to(headgates, 2), 0.8, "INCR", "n")
    never_more(attempts, limit, 0.4)
    assert sum(one.admitted for one in attempts) >= min(limit, len(attempts)) / 2


def sleep_until(when):
    time.sleep(max(0.0, when - time.monotonic()))


@pytest.mark.parametrize("part", [0.55, 0.95])
@pytest.mark.parametrize("limit", [10, 200])
def test_permits_come_back_no_sooner(make, limit, part):
    """All but one at once, by one sidecar, and many when part of the window is over, by another, which has not been
    told for how long all is taken."""
    rules = shared(limit=limit, window="600ms")
    clients = [make(rules).connect() for _ in range(2)]
    assert [client("PING") for client in clients] == [PONG, PONG]
    attempts = burst(clients[0], limit - 1, "INCR", "n")
    assert all(one.admitted for one in attempts)
    sleep_until(attempts[0].replied + part * 0.6)
    attempts += burst(clients[1], limit + 10, "INCR", "n")
    never_more(attempts, limit, 0.6)


@pytest.mark.parametrize("late", [0.9, 1.6], ids=["at the end of their time", "after it"])
def test_leases_that_are_spent_late(make, late):
    """One permit of a batch is spent at once, the rest when its time is nearly over, or is over: they are in the window
    from then on, too, and must not come back with the one that was spent at once."""
    window, hold = 1.2, 0.06
    client = make(shared(limit=160, window="1200ms", accuracy="leased")).connect()
    attempts = [attempt(client, "INCR", "n")]
    start = attempts[0].replied
    sleep_until(start + late * hold)
    attempts += burst(client, 300, "INCR", "n")
    sleep_until(start + window - 0.03)
    until = start + window + late * hold
    while time.monotonic() < until:
        attempts += burst(client, 20, "INCR", "n")
    assert sum(one.admitted for one in attempts) > 80
    never_more(attempts, 160, window)


@pytest.mark.parametrize("late", [0.9, 1.6], ids=["at the end of their time", "after it"])
def test_leases_of_a_funnel_that_are_spent_late(make, late):
    client = make(shared_funnel(capacity=160, leak="80/s", accuracy="leased")).connect()
    attempts = [attempt(client, "INCR", "n")]
    sleep_until(attempts[0].replied + late * 0.25)
    attempts += burst(client, 300, "INCR", "n")
    assert sum(one.admitted for one in attempts) > 80
    judge_funnel(attempts, 160, 1 / 80)


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_never_more_than_leaks(make, accuracy):
    rules = shared_funnel(capacity=20, leak="10/250ms", accuracy=accuracy)
    headgates = [make(rules), make(rules, threads=4)]
    attempts = hammer(connect_to(headgates, 2), 0.8, "INCR", "n")
    judge_funnel(attempts, 20, 0.025)
    assert sum(one.admitted for one in attempts) >= 10


@pytest.mark.threads
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "rules",
    [
        shared(limit=1_000_000, window="10s", accuracy="leased"),
        shared_funnel(capacity=1_000_000, leak="100000/s", accuracy="leased"),
    ],
    ids=["window", "funnel"],
)
def test_high_rates_take_few_script_calls(make, redis, rules, threads):
    headgate = make(rules, threads=threads)
    settle(redis, headgate)
    before = script_calls(redis)["evalsha"], counter(headgate, "script_calls_total")
    clients = [headgate.connect() for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as executor:
        done = executor.map(lambda client: sum(spend(client, count=500) for _ in range(10)), clients)
    assert sum(done) == 40_000
    calls = counter(headgate, "script_calls_total") - before[1]
    assert 1 <= calls <= 40_000 / 50, f"{calls} calls"
    assert counter(headgate, "admitted_total") == 40_000
    wait_for(
        lambda: script_calls(redis)["evalsha"] - before[0] == counter(headgate, "script_calls_total") - before[1],
        what="Redis to have seen as many calls as were counted",
    )


def test_exact_takes_a_script_call_for_each_of_a_clients_requests(make, redis, kind):
    headgate = make(EXACT[kind](100))
    settle(redis, headgate)
    assert spend(headgate.connect(), count=1) == 1
    before = script_calls(redis)["evalsha"]
    assert spend(headgate.connect(), count=50) == 50
    assert script_calls(redis)["evalsha"] - before == 50
    assert counter(headgate, "script_calls_total") == 51


# ---- refused clients ----


def test_who_is_refused_is_refused_without_redis(make, redis, any_kind):
    """Until the time that the first refusal named, by this Headgate and by any other that was told so."""
    rules = ALL_KINDS[any_kind](10)
    headgates = [make(rules), make(rules)]
    clients = [headgate.connect() for headgate in headgates]
    for client in clients:
        wait_for(lambda: spend(client, count=1) == 0, what="a refusal")
    calls, counted = asked(redis), total(headgates, "script_calls_total")
    before = time.monotonic()
    assert rush(clients, 300) == 0
    assert asked(redis) == calls and total(headgates, "script_calls_total") == counted
    wait = explain(clients[0]("INCR", "n"))[2]
    assert wait <= 3_600_501, "the window, and how long leases last"
    if any_kind == "log":
        assert wait >= 3_600_000 - 10_000 - (time.monotonic() - before) * 1000


SHORT = {
    "log": shared(limit=3, window="300ms"),
    "slots": shared(limit=150, window="300ms"),
    "funnel": shared_funnel(capacity=3, leak="1/200ms"),
    "leased": shared(limit=150, window="300ms", accuracy="leased"),
    "leased funnel": shared_funnel(capacity=3, leak="1/200ms", accuracy="leased"),
}


@pytest.mark.parametrize("rules", SHORT.values(), ids=SHORT)
def test_who_waits_as_told_is_admitted(make, rules):
    headgate = make(rules)
    client = headgate.connect()
    for _ in range(3):
        replies = []
        commands = [("INCR", "n")] * 200
        wait_for(lambda: replies.extend(client.pipeline(commands)) or refuses(replies[-1]), what="a refusal")
        wait = explain(replies[-1])[2]
        assert 1 <= wait <= 700
        time.sleep(wait / 1000)
        assert admitted([client("INCR", "n")]) == 1, f"refused {wait} ms after retry in {wait} ms"


def test_the_texts_of_refusals(make):
    texts = {
        "5 in 1h": shared(limit=5),
        "5 in 1h per user": shared(limit=5, per="user"),
        "5 leaking 5/m": shared_funnel(capacity=5, leak="5/1m"),
    }
    for expected, rules in texts.items():
        client = make(rules).connect()
        replies = client.pipeline([("INCR", "n")] * 40)
        assert refuses(replies[-1])
        name, what, wait = explain(replies[-1])
        assert (name, what.replace("/1m", "/m")) == ("a", expected)
        assert 0 < wait <= 3_600_001


# ---- cost ----


@pytest.mark.parametrize("kind", ["slots", "funnel"])
def test_cost_in_keys(make, kind):
    rules = EXACT[kind](12, commands="mget", **({"cost": "keys"} if kind == "funnel" else {}))
    first, second = make(rules).connect(), make(rules).connect()
    assert spend(first, "MGET", *"abcde", count=1) == 1
    assert spend(second, "MGET", *"abcde", count=3) == 1
    assert spend(second, "MGET", *"abc", count=1) == 0
    assert spend(first, "MGET", *"ab", count=2) == 1
    assert_never(first("MGET", *"abcdefghijklm"), 13)
    assert_never(make(rules).connect()("MGET", *"abcdefghijklm"), 13)


def test_cost_in_bytes(make, redis):
    """Long requests are held, too, and are forwarded whole or not at all."""
    value = "x" * (300 * 1024)
    command = ("SET", "k", value)
    rules = shared(limit=3 * len(encode(*command)), cost="bytes", commands="set")
    clients = [make(rules).connect() for _ in range(2)]
    count = 0
    for number in range(6):
        client = clients[number % 2]
        client.send(encode("SET", "k", value) + encode("ECHO", number))
        reply, echo = client.read_many(2)
        assert echo == b"%d" % number and (reply == OK or refuses(reply))
        count += reply == OK
    assert count == 3
    assert redis.connect()("STRLEN", "k") == len(value)


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_cost_in_bytes_of_several_values(make, redis, accuracy):
    """Redis is asked once all of them are known of, and for all of them."""
    request = encode("RPUSH", "l", "a" * 70_000, "b" * 100_000, "c" * 200_000)
    rules = shared(limit=4 * len(request), cost="bytes", commands="rpush", accuracy=accuracy)
    clients = [make(rules).connect() for _ in range(2)]
    replies = []
    for number in range(7):
        client = clients[0 if number < 2 else 1]
        stream = encode("ECHO", "before") + request + encode("ECHO", "after")
        for start in range(0, len(stream), 69_000):
            client.send(stream[start : start + 69_000])
        before, reply, after = client.read_many(3)
        assert (before, after) == (b"before", b"after")
        replies.append(reply)
    assert replies[0] == 3 and refuses(replies[6])
    count = admitted(replies)
    assert count == 4 if accuracy == "exact" else count <= 4
    assert redis.connect()("LLEN", "l") == 3 * count


def test_leased_costs_larger_than_a_batch(make):
    rules = shared(limit=1000, cost="keys", commands="mget", accuracy="leased")
    client = make(rules).connect()
    assert spend(client, "MGET", "a", count=1) == 1
    assert spend(client, "MGET", *range(700), count=1) == 1
    assert spend(client, "MGET", *range(500), count=1) == 0
    assert_never(client("MGET", *range(1001)), 1001)


# ---- the state in Redis ----


def test_keys_and_types(make, redis, any_kind):
    client = make(ALL_KINDS[any_kind](100)).connect()
    assert spend(client, count=3) == 3
    with redis.connect() as observer:
        key = key_of(any_kind)
        assert observer("KEYS", "hist:*") == [key.encode()]
        assert observer("TYPE", key) == {"log": b"zset"}.get(KEYS[any_kind], b"string")
        life = 3_600_000 * (100 if KEYS[any_kind] == "funnel" else 1) + 500 + 1001
        assert 0 < observer("PTTL", key) <= life


@pytest.mark.parametrize(
    ("per", "subject"),
    [
        ("all", "all"),
        ("ip", "ip:127.0.0.1"),
        ("ip/24", "ip:127.0.0.0/24"),
        ("user", "user:alice"),
        ("name", "name:web"),
        ("key", "key:7"),
        ("user+key", "user:alice\nkey:7"),
        ("ip+name", "ip:127.0.0.1\nname:web"),
    ],
)
def test_subjects_are_called_as_limits_calls_them(make, redis, per, subject):
    headgate = make(shared("api", per=per, limit=1))
    add_users(redis, "alice")
    client = authenticated(headgate, "alice")
    client("CLIENT", "SETNAME", "web")
    assert spend(client, "INCR", "7", count=2, name="api") == 1
    assert redis.connect()("KEYS", "hist:*") == [f"hist:log:api:{subject}".encode()]
    if "\n" not in subject:
        assert [line["offender"] for line in limits(headgate)[1]] == [subject]


def test_keys_are_in_database_0_whatever_the_client_selected(make, redis, pool):
    headgate = make(shared(limit=5), pool=pool)
    client = headgate.connect()
    assert client("SELECT", 3) == OK
    assert spend(client, count=3) == 3
    assert spend(headgate.connect()) == 2
    with redis.connect() as observer:
        assert observer("DBSIZE") == 2, "the state, and n"
        observer("SELECT", 3)
        assert observer("KEYS", "*") == [b"n"]


def test_keys_of_any_bytes(make, redis):
    """Subjects are told apart by both sidecars in the same way, however long they are."""
    rules = shared(per="key", limit=1)
    first, second = make(rules).connect(), make(rules).connect()
    keys = [b"", b"\0", b"\r\n", b" ", b"\n", b"\xff\xfe", b"x" * 5000, b"x" * 4999 + b"y", b"a:b", b"key:1", b"{a}b"]
    assert [spend(first, "INCR", key, count=1) for key in keys] == [1] * len(keys)
    assert [spend(second, "INCR", key, count=1) for key in keys] == [0] * len(keys)
    with redis.connect() as observer:
        states = observer("KEYS", "hist:*")
        assert len(states) == len(keys) and max(map(len, states)) < 1000


def test_state_is_small_however_large_the_limit(make, redis):
    rules = shared(limit=1_000_000, window="1s")
    clients = [make(rules).connect(), make(rules).connect()]
    with redis.connect() as observer:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            rush(clients, 50)
            assert (observer("MEMORY", "USAGE", "hist:slots:a:all") or 0) <= 2048
    leased = make(shared("b", limit=10**9, window="1s", accuracy="leased")).connect()
    for _ in range(10):
        assert spend(leased, count=1000, name="b") == 1000
    assert redis.connect()("MEMORY", "USAGE", "hist:slots:b:all") <= 2048


def test_a_full_log_is_small(make, redis):
    assert spend(make(shared(limit=128)).connect(), count=130) == 128
    with redis.connect() as observer:
        assert observer("ZCARD", "hist:log:a:all") == 128
        assert observer("MEMORY", "USAGE", "hist:log:a:all") <= 32 * 1024


def test_idle_state_expires(make, redis):
    rules = [shared("log", limit=5, window="100ms"), shared("slots", limit=500, window="100ms")]
    rules += [shared_funnel("funnel", capacity=5, leak="5/100ms")]
    rules += [shared("leased", limit=500, window="100ms", accuracy="leased")]
    client = make("".join(rules)).connect()
    assert client("INCR", "n") == 1
    with redis.connect() as observer:
        wait_for(lambda: observer("KEYS", "hist:*") == [], what="the state to expire")


def test_a_script_cache_that_was_flushed(make, redis, any_kind):
    headgate = make(ALL_KINDS[any_kind](100))
    client = headgate.connect()
    for _ in range(3):
        assert spend(client, count=20) == 20
        with redis.connect() as observer:
            assert observer("SCRIPT", "FLUSH", "SYNC") == OK
    assert spend(client, count=20) == 20
    assert counter(headgate, "undecided_total") == 0


def test_state_outlives_the_process(make, redis, any_kind):
    """A sidecar that is restarted, or comes later, finds what the others have used."""
    rules = ALL_KINDS[any_kind](20)
    first = make(rules)
    used = spend(first.connect(), count=100)
    assert 0.8 * 20 <= used <= 20
    assert first.terminate() == 0
    assert spend(make(rules).connect(), count=100) <= 20 - used


# ---- on the wire ----


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_replies_keep_their_place(make, pool, accuracy):
    client = make(shared(limit=20, accuracy=accuracy), pool=pool).connect()
    commands = [command for n in range(200) for command in (("INCR", "n"), ("ECHO", n), ("GET", "n"))]
    replies = client.pipeline(commands)
    count = 0
    for n in range(200):
        reply, echo, value = replies[3 * n : 3 * n + 3]
        count += not refuses(reply)
        assert refuses(reply) or reply == count
        assert echo == b"%d" % n and value == b"%d" % count
    assert 16 <= count <= 20


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_transactions(make, redis, pool, accuracy):
    client = make(shared(limit=8, accuracy=accuracy), pool=pool).connect()
    assert client.pipeline([("MULTI",), ("INCR", "n"), ("INCR", "n"), ("EXEC",)]) == [OK, QUEUED, QUEUED, [1, 2]]
    replies = client.pipeline([("MULTI",), *[("INCR", "n")] * 9, ("SET", "t", 1), ("EXEC",), ("PING",)])
    assert replies[:2] == [OK, QUEUED] and refuses(replies[9]) and replies[10] == QUEUED
    assert replies[11].startswith(b"EXECABORT") and replies[12] == PONG
    assert redis.connect()("MGET", "n", "t") == [b"2", None]


def test_reply_off(make, redis, pool):
    client = make(shared(limit=2), pool=pool).connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * 5 + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("GET", "n") == b"2"
    assert refuses(client("INCR", "n"))
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "n") + encode("GET", "n"))
    assert client.read() == b"2"
    client.assert_silent()


def test_who_half_closes_gets_all_replies(make, pool):
    client = make(shared(limit=2), pool=pool).connect()
    client.send(encode("INCR", "n") * 4 + encode("ECHO", "end"))
    client.shutdown_write()
    replies = client.read_many(5)
    assert replies[:2] == [1, 2] and admitted(replies[2:4]) == 0 and replies[4] == b"end"
    client.assert_closed()


def test_blocking_commands_and_subscriptions(make, redis, pool):
    client = make(shared(limit=2, commands="blpop subscribe"), pool=pool).connect()
    client.request("BLPOP", "list", 0)
    client.assert_silent()
    redis.connect()("RPUSH", "list", "x")
    assert client.read() == [b"list", b"x"]
    assert client("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    assert refuses(client("SUBSCRIBE", "b"))


class Decider:
    """Stands in for the scripts of limits: answer is bytes, or None for no answer until the test gives one."""

    def __init__(self, fake, answer=None):
        self.asked = []
        self.answer = answer
        self.pass_on = fake.received_command
        fake.received_command = self.receive

    def receive(self, command):
        name, *arguments = command.arguments
        # Scripts without keys are Headgate's own business.
        if name.upper() not in (b"EVALSHA", b"EVAL") or arguments[1] == b"0":
            self.pass_on(command)
            return
        self.asked.append(command)
        if self.answer is not None:
            command.reply(self.answer)

    def await_asked(self, count):
        wait_for(lambda: len(self.asked) >= count, what=f"{count} questions to Redis")

    def say(self, number, text):
        """Answers a question that was left open."""
        self.asked[number].reply(text)


GRANTED = b"*2\r\n:1\r\n:0\r\n"


def refused_for(microseconds):
    return b"*2\r\n:0\r\n:%d\r\n" % microseconds


def test_nobody_else_waits_for_a_decision(make, fake):
    """With lanes of their own, so that the decision can be late while Redis answers all else."""
    decider = Decider(fake)
    headgate = make(shared(limit=5), upstream=fake.url, pool="session")
    client, other = headgate.connect(), headgate.connect()
    client.send(encode("INCR", "n") + encode("ECHO", "behind"))
    decider.await_asked(1)
    other.request("ECHO", "other")
    fake.expect("ECHO", "other").reply(b"$5\r\nother\r\n")
    assert other.read() == b"other"
    fake.assert_idle()
    decider.say(0, GRANTED)
    fake.expect("INCR", "n").reply(b":1\r\n")
    fake.expect("ECHO", "behind").reply(b"$6\r\nbehind\r\n")
    assert client.read_many(2) == [1, b"behind"]
    client.send(encode("INCR", "n") + encode("ECHO", "behind"))
    decider.await_asked(2)
    decider.say(1, refused_for(60_000_000))
    fake.expect("ECHO", "behind").reply(b"$6\r\nbehind\r\n")
    assert explain(client.read())[2] in range(59_000, 60_001)
    assert client.read() == b"behind"


def test_a_short_refusal_is_still_a_refusal(make, fake):
    """What is over by the time it arrives: asking again and again is not one call a request."""
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake, refused_for(1))
    client = make(shared(limit=5), upstream=fake.url).connect()
    client.request("INCR", "n")
    client.socket.settimeout(3)
    try:
        assert refuses(client.read())
    except TimeoutError:
        pytest.fail(f"no reply, and {len(decider.asked)} calls")
    assert len(decider.asked) == 1


def test_who_leaves_while_it_is_decided_takes_nothing(make, redis, pool, kind):
    headgate = make(EXACT[kind](5), pool=pool)
    client = headgate.connect()
    assert spend(client, count=1) == 1
    leaving = [headgate.connect() for _ in range(3)]
    for one in leaving:
        assert one("PING") == PONG
    with Stopped(redis):
        for one in leaving:
            one.send(encode("INCR", "n") * 2)
        await_holds(headgate, 4)
        for one in leaving:
            one.reset()
        wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "1", what="them to be gone")
    assert spend(client) == 4
    assert redis.connect()("GET", "n") == b"5"


def test_who_leaves_while_leases_are_fetched(make, redis, pool, leased):
    headgate = make(LEASED[leased](40), pool=pool)
    leaving = [headgate.connect() for _ in range(20)]
    for one in leaving:
        assert one("PING") == PONG
    with Stopped(redis):
        for one in leaving:
            one.send(encode("INCR", "n") * 2)
        await_holds(headgate, 20)
        for one in leaving:
            one.reset()
    await_empty(headgate)
    assert spend(headgate.connect(), count=100) <= 40
    assert int(redis.connect()("GET", "n") or 0) <= 40


# ---- several rules ----


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("first", ["each", "all"])
def test_a_refusal_charges_no_other_rule(make, kind, first, local):
    """Twenty keys that another sidecar has used up: each is refused by Redis, when the other rule has granted it."""
    each = rule("each", per="key", limit=1, commands="get decr") if local else EXACT[kind](
        1, "each", per="key", commands="get decr"
    )
    rules = [each, EXACT[kind](10, "all", commands="incr decr")]
    rules = "".join(rules if first == "each" else reversed(rules))
    headgate, other = make(rules), make(rules)
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
def test_a_refusal_charges_no_lease(make, leased, first):
    rules = [LEASED[leased](100, "all"), shared("each", limit=3, per="name")]
    headgate = make("".join(rules if first == "all" else reversed(rules)))
    assert spend(named(headgate, "x"), name="each", count=200) == 3
    wait_for(lambda: spend(headgate.connect(), name="each", count=100) == 0, what="a refusal")
    counts = [spend(named(headgate, f"n{number}"), name="each", count=20) for number in range(10)]
    assert counts == [3] * 10, "there are 100 of all, and 36 were admitted"


def test_several_rules_admit_together(make, redis):
    """All or nothing, over two sidecars and four workers: each rule is spent to its last permit, and to no more."""
    rules = shared("all", limit=60, commands="incr decr") + shared("key", per="key", limit=10, commands="incr")
    headgates = [make(rules), make(rules, threads=4)]
    clients = connect_to(headgates, 5)
    for client in clients:
        client.send(b"".join(encode("INCR", f"k{n % 4}") for n in range(40)))
    replies = [reply for client in clients for reply in client.read_many(40)]
    assert sum(isinstance(reply, int) for reply in replies) <= 40
    # Whoever was refused for the sake of a permit that was then given back may come again.
    wait_for(
        lambda: redis.connect()("ZCARD", "hist:log:all:all") == sum(isinstance(reply, int) for reply in replies),
        what="all that was granted in vain to be given back",
    )


def test_what_is_given_back_is_there_for_others(make, redis):
    """A permit that one request had for a moment, until another rule refused it, must not cost the next an hour."""
    rules = shared("a", limit=1, commands="get incr") + shared("b", limit=1, commands="get")
    headgate, other = make(rules), make(shared("b", limit=1, commands="get"))
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


def test_the_refusal_names_the_longest_wait(make):
    windows = {"short": "20m", "middle": "2h", "long": "3d"}
    rules = "".join(shared(name, limit=1, window=window) for name, window in windows.items())
    first, second = make(rules).connect(), make(rules).connect()
    assert first("INCR", "n") == 1
    for client in (first, second, second):
        name, what, wait = explain(client("INCR", "n"))
        assert name == "long" and wait > 2 * 86_400_000


# ---- delay and observe ----


def test_delay_over_two_sidecars(make):
    """Nobody is refused, each client's requests stay in order, and together they are no faster than the funnel."""
    rules = shared_funnel(capacity=1, leak="1/50ms", action="delay", max_delay="60s")
    clients = [make(rules).connect(), make(rules, threads=4).connect()]
    start = time.monotonic()
    for number, client in enumerate(clients):
        client.send(b"".join(encode("INCR", f"k{number}") + encode("ECHO", turn) for turn in range(6)))
    for client in clients:
        assert client.read_many(12) == [reply for turn in range(6) for reply in (turn + 1, b"%d" % turn)]
    assert time.monotonic() - start >= 11 * 0.05


def test_delay_in_a_leased_window(make):
    rules = shared(limit=40, window="250ms", accuracy="leased", action="delay", max_delay="60s")
    headgate = make(rules)
    client = headgate.connect()
    start = time.monotonic()
    assert client.pipeline([("INCR", "n")] * 100) == list(range(1, 101))
    assert time.monotonic() - start >= 0.5
    assert counter(headgate, "refused_total") == 0
    assert counter(headgate, "delayed_total") >= 1


def test_a_delay_is_no_part_of_the_time_to_decide(make, any_kind):
    """Redis has decided, and the request waits for its turn: longer than decision_timeout."""
    options = {"action": "delay", "max_delay": "60s", "decision_timeout": "1s"}
    if "funnel" in any_kind:
        headgate = make(ALL_KINDS[any_kind](8, leak="8/1500ms", **options))
    else:
        headgate = make(ALL_KINDS[any_kind](8, window="1500ms", **options))
    clients = [headgate.connect() for _ in range(4)]
    for client in clients:
        client.send(encode("INCR", "n") * 5)
    assert sorted(reply for client in clients for reply in client.read_many(5)) == list(range(1, 21))
    assert counter(headgate, "undecided_total") == 0
    assert counter(headgate, "refused_total") == 0


def test_beyond_max_delay_is_refused_at_once(make, any_kind):
    client = make(ALL_KINDS[any_kind](16, action="delay", max_delay="1s")).connect()
    replies = client.pipeline([("INCR", "n")] * 40 + [("PING",)])
    assert replies[40] == PONG
    assert 10 <= admitted(replies[:40]) <= 16
    assert explain(replies[39])[2] > 1000


def test_observe(make, redis, kind):
    headgate = make(EXACT[kind](3, action="observe"))
    client = headgate.connect()
    assert client.pipeline([("INCR", "n")] * 10) == list(range(1, 11))
    wait_for(lambda: counter(headgate, "observed_total") == 7, what="7 requests to be observed")
    assert counter(headgate, "refused_total") == 0 and counter(headgate, "admitted_total") == 3


def test_observe_with_leases(make, redis, leased):
    headgate = make(LEASED[leased](20, action="observe"))
    client = headgate.connect()
    for turn in range(10):
        assert client.pipeline([("INCR", "n")] * 10) == list(range(turn * 10 + 1, turn * 10 + 11))
        time.sleep(0.01)
    wait_for(lambda: counter(headgate, "observed_total") > 0, what="requests to be observed")
    assert counter(headgate, "admitted_total") + counter(headgate, "observed_total") == 100
    assert counter(headgate, "refused_total") == 0


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_observe_waits_for_nothing(make, fake, accuracy):
    """Redis never decides, and what is admitted is forwarded all the same."""
    Decider(fake)
    headgate = make(shared(limit=3, action="observe", accuracy=accuracy), upstream=fake.url, pool="session")
    client = headgate.connect()
    for number in range(1, 6):
        client.request("INCR", "n")
        fake.expect("INCR", "n").reply(b":%d\r\n" % number)
        assert client.read() == number
    assert counter(headgate, "refused_total") == 0


# ---- on_error ----


BAD_ANSWERS = [
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-NOPERM User x has no permissions to run the 'evalsha' command\r\n",
    b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-MISCONF Redis is configured to save RDB snapshots\r\n",
    b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    b"-HEADGATE the state of this limit was overwritten\r\n",
    b":1\r\n",
    b"+OK\r\n",
    b"$2\r\nno\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n:1\r\n",
    b"*2\r\n+1\r\n+0\r\n",
    b"*2\r\n*1\r\n:1\r\n:0\r\n",
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


@pytest.mark.parametrize("mode", ["allow", "deny", "local"])
@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_answers_that_decide_nothing(make, fake, mode, accuracy):
    """One subject for each, as what one Redis said of another is kept."""
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake)
    rules = shared(limit=3, per="name", accuracy=accuracy, on_error=mode)
    headgate = make(rules, upstream=fake.url)
    for number, answer in enumerate(BAD_ANSWERS):
        decider.answer = answer
        spend_undecided(named(headgate, f"n{number}"), mode, 3)
    decider.answer = GRANTED
    fresh = named(headgate, "fresh")
    assert spend(fresh, count=3) == 3
    if mode != "local":
        assert counter(headgate, "undecided_total") == 8 * len(BAD_ANSWERS)


@pytest.mark.parametrize("mode", ["allow", "deny", "local"])
def test_undecided_requests_are_counted(make, fake, mode):
    fake.answers["INCR"] = always(b":1\r\n")
    Decider(fake, BAD_ANSWERS[0])
    headgate = make(shared(limit=3, on_error=mode), upstream=fake.url)
    assert spend(headgate.connect(), count=8) == {"allow": 8, "deny": 0, "local": 3}[mode]
    assert counter(headgate, "undecided_total") == 8


def lines_about(headgate, name):
    return [line for line in headgate.log().splitlines() if re.search(rf"\b{name}\b", line)]


@pytest.mark.parametrize("threads", [1, 4])
def test_errors_are_logged_once_a_minute_for_each_rule(make, fake, threads):
    fake.answers["INCR"] = fake.answers["DECR"] = always(b":1\r\n")
    Decider(fake, BAD_ANSWERS[0])
    rules = shared("quota", limit=3, on_error="allow") + shared("tariff", limit=3, commands="decr", on_error="deny")
    headgate = make(rules, upstream=fake.url, threads=threads)
    for _ in range(20):
        with headgate.connect() as client:
            assert client("INCR", "n") == 1
            assert_undecided(client("DECR", "n"), name="tariff")
    assert [len(lines_about(headgate, name)) for name in ("quota", "tariff")] == [1, 1], headgate.log_tail()
    assert "OOM" in lines_about(headgate, "quota")[0]


@pytest.mark.parametrize("mode", ["deny", "local"])
def test_state_that_was_overwritten(make, redis, any_kind, mode):
    """By another type, and by a text that is no state. Once it is deleted, a new window begins."""
    rules = ALL_KINDS[any_kind](3, per="name", on_error=mode)
    headgate = make(rules)
    wrong = {"type": ("SADD", "x"), "text": ("SET", "hello")}
    for name, (command, value) in wrong.items():
        key = key_of(any_kind, f"name:{name}")
        client = named(headgate, name)
        with redis.connect() as vandal:
            assert not isinstance(vandal(command, key, value), Error)
            spend_undecided(client, mode, 3)
            assert vandal("TYPE", key) == {"type": b"set", "text": b"string"}[name], "it was overwritten in turn"
            assert vandal("DEL", key) == 1
        again = spend(client, count=20)
        assert again <= 3 and (mode == "local" or again >= 1)


def test_state_that_is_deleted(make, redis, any_kind):
    """A new window begins: no more than the limit once more."""
    rules = ALL_KINDS[any_kind](20)
    clients = [make(rules).connect() for _ in range(2)]
    assert 16 <= rush(clients, 20) <= 20
    with redis.connect() as vandal:
        assert vandal("DEL", key_of(any_kind)) == 1
    assert rush([*clients, make(rules).connect()], 40) <= 20


@pytest.mark.parametrize("mode", ["allow", "deny", "local"])
def test_a_user_who_may_not_run_scripts(make, make_redis, mode):
    redis = make_redis()
    with redis.connect() as client:
        assert client("ACL", "SETUSER", "sidecar", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval") == OK
    headgate = make(
        shared("quota", limit=3, on_error=mode), redis, upstream_user="sidecar", upstream_password="secret"
    )
    client = headgate.connect()
    replies = client.pipeline([("INCR", "n")] * 8)
    assert admitted(replies, "quota") == {"allow": 8, "deny": 0, "local": 3}[mode]
    assert len([line for line in lines_about(headgate, "quota") if "NOPERM" in line]) == 1


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
@pytest.mark.parametrize("mode", ["allow", "deny", "local"])
def test_a_redis_that_wants_a_password_of_each(make, make_redis, mode, accuracy):
    """Headgate has none of its own to run scripts with."""
    headgate = make(shared("quota", limit=3, on_error=mode, accuracy=accuracy), make_redis("--requirepass", "secret"))
    client = headgate.connect()
    assert client("AUTH", "secret") == OK
    replies = client.pipeline([("INCR", "n")] * 8)
    assert admitted(replies, "quota") == {"allow": 8, "deny": 0, "local": 3}[mode]
    assert len(lines_about(headgate, "quota")) == 1


@pytest.mark.parametrize("mode", ["allow", "deny", "local"])
def test_a_replica(make, redis, make_redis, mode):
    replica = make_redis("--replicaof", "127.0.0.1", str(redis.port))
    with replica.connect() as observer:
        wait_for(lambda: info(observer, "replication").get("master_link_status") == "up", what="the replica")
    headgate = make(shared(limit=3, commands="get", on_error=mode), replica)
    assert spend(headgate.connect(), "GET", "n", count=8) == {"allow": 8, "deny": 0, "local": 3}[mode]
    assert redis.connect()("KEYS", "hist:*") == []


def test_deny_while_redis_stands_still(make, redis, pool):
    """It is not waited for longer than decision_timeout, and the permits that it grants later are given back."""
    headgate = make(shared("quota", limit=3, decision_timeout="200ms"), pool=pool)
    client = headgate.connect()
    assert client("PING") == PONG
    with Stopped(redis):
        start = time.monotonic()
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert time.monotonic() - start >= 0.2
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert counter(headgate, "undecided_total") == 2
    wait_for(lambda: redis.connect()("EXISTS", "hist:log:quota:all") == 0, what="permits to be given back")
    wait_for(lambda: client("INCR", "n") == 1, what="Redis to decide in time")


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_decisions_that_do_not_come_are_logged(make, redis, accuracy):
    """Once a minute, as errors are."""
    headgate = make(shared("quota", limit=3, decision_timeout="100ms", accuracy=accuracy))
    client = headgate.connect()
    assert client("PING") == PONG
    with Stopped(redis):
        for _ in range(3):
            assert_undecided(client("INCR", "n"), "100ms", "quota")
        wait_for(lambda: lines_about(headgate, "quota"), 3, what="a line in the log")
        assert len(lines_about(headgate, "quota")) == 1


def test_leases_that_do_not_come(make, redis, leased):
    """Those who wait for what another worker fetches do not wait longer than the others."""
    headgate = make(LEASED[leased](100, decision_timeout="200ms"), threads=4)
    clients = [headgate.connect() for _ in range(12)]
    assert [client("PING") for client in clients] == [PONG] * 12
    with Stopped(redis):
        for client in clients:
            client.request("INCR", "n")
        for client in clients:
            assert_undecided(client.read(), "200ms")
        assert counter(headgate, "undecided_total") == 12
    wait_for(lambda: spend(clients[0], count=1) == 1, what="Redis to decide in time")


def test_allow_while_redis_stands_still(make, redis, pool):
    """The request itself waits for Redis as any other."""
    headgate = make(shared(limit=3, on_error="allow", decision_timeout="100ms"), pool=pool)
    clients = [headgate.connect() for _ in range(6)]
    assert [client("PING") for client in clients] == [PONG] * 6
    with Stopped(redis):
        for client in clients:
            client.request("INCR", "n")
        wait_for(lambda: counter(headgate, "undecided_total") == 6, what="all to be undecided")
        clients[0].assert_silent()
    assert sorted(client.read() for client in clients) == [1, 2, 3, 4, 5, 6]


def test_local_while_redis_stands_still(make, redis, pool):
    """What this process has admitted, by whomever it was decided, is what counts."""
    headgate = make(shared(limit=5, on_error="local", decision_timeout="300ms"), pool=pool)
    clients = [headgate.connect() for _ in range(8)]
    assert [client("PING") for client in clients] == [PONG] * 8
    start = time.monotonic()
    assert spend(clients[0], count=2) == 2
    if time.monotonic() - start > 0.3:
        pytest.skip("too slow a machine to know who decided")
    with Stopped(redis):
        for client in clients:
            client.request("INCR", "n")
        wait_for(lambda: sum(map(has_reply, clients)) == 5, what="five of eight to be refused")
        refused = [client for client in clients if has_reply(client)]
        assert all(refuses(client.read()) for client in refused)
    assert sorted(client.read() for client in clients if client not in refused) == [3, 4, 5]


@pytest.mark.threads
def test_local_counts_for_all_workers(make, redis):
    headgate = make(shared(limit=10, on_error="local"), threads=4)
    with redis.connect() as vandal:
        vandal("SADD", "hist:log:a:all", "x")
    assert rush([headgate.connect() for _ in range(12)], 10) == 10


@pytest.mark.parametrize(
    ("kind", "mode"), [("log", "allow"), ("log", "deny"), ("slots", "local"), ("leased", "deny"), ("leased", "local")]
)
def test_redis_gone_and_back_empty(make, redis, kind, mode):
    """While it is gone on_error decides (and what is admitted finds no Redis); then another window begins."""
    headgate = make(ALL_KINDS[kind](20, on_error=mode, decision_timeout="100ms"), upstream_wait="200ms")
    client = headgate.connect()
    first = spend(client, count=10)
    redis.kill()
    time.sleep(0.7 if kind == "leased" else 0.05)  # leases are gone
    reply = client("INCR", "n")
    if mode == "deny":
        assert_undecided(reply, "100ms")
    else:
        assert refuses(reply) or reply.startswith(b"ERR headgate: no connection to Redis")
    redis.start()
    wait_for(lambda: not isinstance(client("GET", "n"), Error), what="Redis to be back")
    again = spend(client, count=100)
    if mode != "allow":
        assert first <= 10 and again <= 20
    if mode == "deny":
        wait_for(lambda: spend(client, count=1) == 1 or again > 0, what="Redis to decide again")


# ---- reload, the admin port, the file ----


CHANGES = {
    "nothing": {},
    "commands": {"commands": "incr get"},
    "on_error": {"on_error": "allow"},
    "action": {"action": "delay", "max_delay": "1s"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_state_survives_a_reload(make, changes):
    headgate = make(shared(limit=5), threads=4)
    clients = [headgate.connect() for _ in range(4)]
    assert spend(clients[0], count=3) == 3
    others = rule("first", limit=100, commands="decr") + "{}" + shared("last", limit=100, commands="decr")
    reload(headgate, others.format(shared(**{"limit": 5, **changes})), *clients)
    assert [spend(client) for client in clients] == [2, 0, 0, 0]
    reload(headgate, shared(limit=5), *clients)
    assert [spend(client) for client in clients] == [0, 0, 0, 0]


def test_reloads_under_load_admit_no_more(make, leased):
    headgate = make(LEASED[leased](100), threads=4)
    clients = [headgate.connect() for _ in range(8)]
    count = 0
    for turn in range(5):
        for client in clients:
            client.send(encode("INCR", "n") * 5)
        reload(headgate, LEASED[leased](100, commands="incr get" if turn % 2 else "incr"))
        count += sum(admitted(client.read_many(5)) for client in clients)
    assert 1 <= count <= 100


def test_a_reload_while_it_is_decided(make, redis, kind):
    """Those who wait are decided on by the new rules, once; nothing is charged twice."""
    headgate = make(EXACT[kind](5))
    clients = [headgate.connect() for _ in range(4)]
    assert [client("PING") for client in clients] == [PONG] * 4
    with Stopped(redis):
        for client in clients[:3]:
            client.request("INCR", "n")
        await_holds(headgate, 3)
        headgate.write_rules(EXACT[kind](5) + rule("b", limit=100, commands="decr"))
        with headgate.admin() as admin:
            assert admin("RELOAD") == OK
        wait_for(lambda: "b" in limits(headgate)[0], what="the new rules")
    replies = [client.read() for client in clients[:3]]
    assert all(isinstance(reply, int) for reply in replies), replies
    assert spend(clients[3]) == 2


def test_a_rule_that_is_gone_holds_nobody(make, fake):
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake)
    headgate = make(shared(limit=5), upstream=fake.url, pool="session")
    client = headgate.connect()
    client.request("INCR", "n")
    decider.await_asked(1)
    headgate.write_rules("")
    with headgate.admin() as admin:
        assert admin("RELOAD") == OK
    assert client.read() == 1
    decider.say(0, GRANTED)
    assert client("INCR", "n") == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_reset_deletes_the_state(make, redis, any_kind, threads):
    rules = ALL_KINDS[any_kind](20, per="name") + shared("other", per="name", limit=100, commands="get")
    headgate, fresh = make(rules, threads=threads), make(rules)
    clients = [named(headgate, name) for name in ("x", "y")]
    for client in clients:
        assert 16 <= spend(client, count=60) <= 20
        assert client("GET", "n") is not None
    with redis.connect() as observer:
        assert observer("DBSIZE") == 5
        assert forget(headgate, "a", "name:x") == OK
        wait_for(lambda: observer("DBSIZE") == 4, what="one state to be deleted")
        assert spend(named(fresh, "y"), count=1) == 0
        assert 16 <= spend(clients[0], count=60) <= 20
        assert forget(headgate, "a") == OK
        wait_for(lambda: observer("KEYS", "hist:*:a:*") == [], what="all states of the rule to be deleted")
        assert observer("DBSIZE") == 3, "the other rule has lost nothing"
    assert [16 <= spend(client, count=60) <= 20 for client in clients] == [True, True]
    assert isinstance(forget(headgate, "none"), Error)
    assert forget(headgate, "a", "name:nobody") == OK, "who is not known here may be counted in Redis"
    assert isinstance(forget(headgate, "a", "name:\\x2"), Error)


def test_reset_outdoes_a_decision_under_way(make, redis):
    """A refusal that Redis gave before the reset says nothing any more after it."""
    rules = shared(limit=1)
    headgate, other = make(rules), make(rules)
    assert other.connect()("INCR", "n") == 1
    client = headgate.connect()
    assert client("PING") == PONG
    with Stopped(redis):
        client.request("INCR", "n")
        await_holds(headgate, 1)
        assert forget(headgate, "a") == OK
    reply = client.read()
    if refuses(reply):
        wait_for(lambda: redis.connect()("EXISTS", "hist:log:a:all") == 0, what="the state to be deleted")
        assert client("INCR", "n") == 2


def test_limits_shows_who_is_refused(make, redis, any_kind):
    headgate = make(ALL_KINDS[any_kind](10, "api", per="user"))
    add_users(redis, "alice", "bob")
    start = time.monotonic()
    count = spend(authenticated(headgate, "alice"), count=30, name="api")
    assert spend(authenticated(headgate, "bob"), count=1, name="api") == 1
    rules, offenders = limits(headgate)
    expected = {"per": "user", "admitted": str(count + 1), "refused": str(30 - count), "delayed": "0", "observed": "0"}
    assert expected.items() <= rules["api"].items()
    assert [(line["offender"], line["rule"]) for line in offenders] == [("user:alice", "api")]
    assert offenders[0]["refused"] == str(30 - count)
    passed = (time.monotonic() - start) * 1000
    wait = int(offenders[0]["next_admission_ms"])
    assert 0 < wait <= 3_600_000 + 600
    if KEYS[any_kind] == "log":
        assert wait >= 3_600_000 - passed


def test_users_are_the_same_for_all_sidecars(make, redis):
    rules = shared(per="user", limit=5, except_="name:operator*")
    headgates = [make(rules), make(rules, threads=4)]
    add_users(redis, "alice", "bob")
    assert spend(authenticated(headgates[0], "alice"), count=3) == 3
    assert spend(authenticated(headgates[1], "alice")) == 2
    assert spend(authenticated(headgates[1], "bob")) == 5
    assert spend(headgates[0].connect()) == 5
    assert spend(named(headgates[1], "operator-1")) == 10
    assert spend(connect_from(headgates[1], "127.0.0.2")) == 0, "the default user, wherever it comes from"


def test_nobody_is_admitted_twice_where_few_are_tracked(make):
    """One sidecar has room for x, the other has not, as it has to keep in mind that y is refused: together they admit
    no more than the limit to x."""
    rules = shared(per="name", limit=5, max_clients_tracked=1)
    first, second = make(rules), make(rules)
    assert spend(named(first, "x")) == 5
    assert spend(named(second, "y")) == 5
    assert spend(named(second, "x")) == 0


def global_file(*options):
    window = () if any(option.startswith(("window", "leak")) for option in options) else ("window = 1s",)
    limit = () if any(option.startswith("capacity") for option in options) else ("limit = 5",)
    return [*limit, *window, "scope = global", *options]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["accuracy = leased"],
        ["accuracy = leased", "window = 20ms"],
        ["accuracy = leased", "algorithm = funnel", "capacity = 80", "leak = 10/ms"],
        ["accuracy = exact", "window = 1us"],
        ["accuracy = exact", "per = user+key", "on_error = deny", "decision_timeout = 5ms"],
        ["on_error = local", "action = delay", "max_delay = 1s", "accuracy = leased"],
        ["on_error = allow", "action = observe", "cost = bytes"],
    ],
    ids=str,
)
def test_rules_that_can_be(tmp_path, options):
    done = check_file(tmp_path, global_file(*options))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "at_fault"),
    [
        (["per = connection"], "per|scope"),
        (["per = user+connection"], "per|scope"),
        (["per = connection", "accuracy = leased"], "per|scope"),
        (["accuracy = rough"], "accuracy"),
        (["on_error = maybe"], "on_error"),
        (["decision_timeout = 0"], "decision_timeout"),
        (["accuracy = leased", "window = 19ms"], "accuracy"),
        (["accuracy = leased", "algorithm = funnel", "capacity = 79", "leak = 10/ms"], "accuracy"),
        (["decision_timeout = 5"], "decision_timeout"),
        (["decision_timeout = -5ms"], "decision_timeout"),
    ],
    ids=str,
)
def test_rules_that_cannot_be(tmp_path, options, at_fault):
    done = check_file(tmp_path, global_file(*options))
    assert done.returncode == 1
    assert re.search(rf"h\.ini:[1-9]: \[limit:a\] ({at_fault}) =.*: .+; expected .+", done.stderr), done.stderr


# ---- all at once ----


class Soak:
    """Clients of a random mind. Whatever happens to Redis, each request has one sane reply, or its client is closed."""

    def __init__(self, headgates, seed):
        self.headgates = headgates
        self.random = random.Random(seed)
        self.counts = {"INCR": 0, "DECR": 0}
        self.served = 0
        self.wrong = []

    def check(self, command, reply):
        lost = isinstance(reply, Error) and reply.startswith(b"ERR headgate: no connection to Redis")
        if command[0] == "ECHO":
            sane = lost or reply == command[1]
        elif command[0] in ("MULTI", "EXEC"):
            sane = lost or reply == OK or isinstance(reply, list) or isinstance(reply, Error)
        else:
            sane = lost or isinstance(reply, int) or reply == QUEUED or refuses(reply, command[0].lower())
            self.counts[command[0]] += isinstance(reply, int)
        if isinstance(reply, list):
            self.counts["INCR"] += sum(isinstance(element, int) for element in reply)
        if not sane:
            self.wrong.append((command, reply))
        self.served += 1

    def commands(self):
        batch = []
        for _ in range(self.random.choice((1, 1, 3, 20))):
            echo = ("ECHO", b"%d" % self.random.getrandbits(32))
            batch.append(self.random.choice((("INCR", "n"), ("DECR", "d"), echo)))
        if self.random.random() < 0.1:
            batch += [("MULTI",), ("INCR", "n"), ("EXEC",)]
        return batch

    def visit(self, until):
        with self.random.choice(self.headgates).connect() as client:
            while time.monotonic() < until and self.random.random() > 0.02:
                batch = self.commands()
                client.send(b"".join(encode(*command) for command in batch))
                if self.random.random() < 0.01:
                    client.reset()
                    return
                for command in batch:
                    self.check(command, client.read())

    def run(self, until):
        while time.monotonic() < until:
            try:
                self.visit(until)
            except (Closed, ConnectionError):
                continue
            except (TimeoutError, AssertionError) as error:
                self.wrong.append(repr(error))
                return


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_soak(make, redis, accuracy):
    """on_error = deny: what is admitted was granted by a Redis, of which each has the limit to give; local: that, and
    what each process admits of itself."""
    limit, times = 300, 3
    options = {"accuracy": accuracy, "decision_timeout": "50ms", "limit": limit}
    rules = shared("incr", **options) + shared("decr", commands="decr", **{**options, "on_error": "local"})
    headgates = [make(rules), make(rules, threads=4)]
    until = time.monotonic() + 2.4
    workers = [Soak(headgates, seed) for seed in range(6)]
    threads = [threading.Thread(target=worker.run, args=(until,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for _ in range(times - 1):
        time.sleep(0.8)
        redis.restart()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert [worker.wrong for worker in workers] == [[]] * len(workers)
    assert 1 <= sum(worker.counts["INCR"] for worker in workers) <= times * limit
    assert 1 <= sum(worker.counts["DECR"] for worker in workers) <= times * limit + len(headgates) * limit
    assert sum(worker.served for worker in workers) > 100
    for headgate in headgates:
        await_empty(headgate)
        wait_for(headgate.serves, what="service after all that")


def test_keys_without_room_are_asked_about_in_any_order(make):
    """Where no more are tracked, each request has subjects of its own: neither their order nor a repetition matters."""
    headgate = make(shared("a", per="key", limit=3, max_clients_tracked=1, on_error="local", commands="incr mget"))
    client = headgate.connect()
    assert client("INCR", "one") == 1
    for keys in (["aa", "bb"], ["bb", "aa"], ["cc", "cc"], ["aa", "dd", "bb"]):
        assert client("MGET", *keys) == [None] * len(keys)
    assert refuses(client("MGET", "bb", "aa"))
    assert counter(headgate, "script_calls_total") < 60
