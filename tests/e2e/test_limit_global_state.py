"""[limit:NAME] with scope = global: the state in Redis, who is refused, held or observed, what a request costs; reloads and the admin
port."""

import time

import pytest

from harness.fake_redis import always
from harness.global_limits import ALL_KINDS, GRANTED, Decider, Stopped, asked, refused_for, rush, shared, total
from harness.identity import named
from harness.limits import admitted, await_holds, counter, explain, forget, refuses, rule, spend
from harness.resp import OK, PONG, Error, encode, wait_for
from harness.rules import reload


# ---- the state in Redis ----


def test_keys_are_in_database_0_whatever_the_client_selected(make_sidecar, redis, pool):
    headgate = make_sidecar(shared(limit=5), pool=pool)
    client = headgate.connect()
    assert client("SELECT", 3) == OK
    assert spend(client, count=3) == 3
    assert spend(headgate.connect()) == 2
    with redis.connect() as observer:
        assert observer("DBSIZE") == 2, "the state, and n"
        observer("SELECT", 3)
        assert observer("KEYS", "*") == [b"n"]


# ---- on the wire ----


def test_nobody_else_waits_for_a_decision(make_sidecar, fake):
    """With lanes of their own, so that the decision can be late while Redis answers all else."""
    decider = Decider(fake)
    headgate = make_sidecar(shared(limit=5), upstream=fake.url, pool="session")
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


def test_a_short_refusal_is_still_a_refusal(make_sidecar, fake):
    """What is over by the time it arrives: asking again and again is not one call a request."""
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake, refused_for(1))
    client = make_sidecar(shared(limit=5), upstream=fake.url).connect()
    client.request("INCR", "n")
    client.socket.settimeout(20)
    try:
        assert refuses(client.read())
    except TimeoutError:
        pytest.fail(f"no reply, and {len(decider.asked)} calls")
    assert len(decider.asked) == 1


# ---- refused clients ----


def test_who_is_refused_is_refused_without_redis(make_sidecar, redis, any_kind):
    """Until the time that the first refusal named, by this Headgate and by any other that was told so."""
    rules = ALL_KINDS[any_kind](10)
    headgates = [make_sidecar(rules), make_sidecar(rules)]
    clients = [headgate.connect() for headgate in headgates]
    # Until nothing is left: what one has leased and not used comes back after some time.
    wait_for(lambda: rush(clients, 1) == 0 and total(headgates, "admitted_total") == 10, what="refusals of all")
    calls, counted = asked(redis), total(headgates, "script_calls_total")
    before = time.monotonic()
    assert rush(clients, 300) == 0
    assert asked(redis) == calls and total(headgates, "script_calls_total") == counted
    wait = explain(clients[0]("INCR", "n"))[2]
    assert wait <= 3_600_501, "the window, and how long leases last"
    if any_kind == "slots":
        assert wait >= 3_600_000 - 10_000 - (time.monotonic() - before) * 1000


# ---- cost ----


def test_cost_in_bytes_of_several_values(make_sidecar, redis):
    """Redis is asked once all of them are known of, and for all of them."""
    request = encode("RPUSH", "l", "a" * 70_000, "b" * 100_000, "c" * 200_000)
    rules = shared(limit=4 * len(request), cost="bytes", commands="rpush", accuracy="leased")
    clients = [make_sidecar(rules).connect() for _ in range(2)]
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
    assert 1 <= count <= 4
    assert redis.connect()("LLEN", "l") == 3 * count


# ---- delay and observe ----


@pytest.mark.parametrize("any_kind", ["slots", "leased funnel"])
def test_a_delay_is_no_part_of_the_time_to_decide(make_sidecar, any_kind):
    """Redis has decided, and the request waits for its turn: longer than decision_timeout."""
    options = {"action": "delay", "max_delay": "60s", "decision_timeout": "1s"}
    if "funnel" in any_kind:
        headgate = make_sidecar(ALL_KINDS[any_kind](8, leak="8/1500ms", **options))
    else:
        headgate = make_sidecar(ALL_KINDS[any_kind](8, window="1500ms", **options))
    clients = [headgate.connect() for _ in range(4)]
    for client in clients:
        client.send(encode("INCR", "n") * 5)
    assert sorted(reply for client in clients for reply in client.read_many(5)) == list(range(1, 21))
    assert counter(headgate, "undecided_total") == 0
    assert counter(headgate, "refused_total") == 0


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_observe_waits_for_nothing(make_sidecar, fake, accuracy):
    """Redis never decides, and what is admitted is forwarded all the same."""
    decider = Decider(fake)
    headgate = make_sidecar(shared(limit=3, action="observe", accuracy=accuracy), upstream=fake.url, pool="session")
    client = headgate.connect()
    for number in range(1, 6):
        client.request("INCR", "n")
        fake.expect("INCR", "n").reply(b":%d\r\n" % number)
        assert client.read() == number
    wait_for(lambda: decider.asked, what="the question")
    assert len(decider.asked) == 1, "all others are asked about together"
    assert counter(headgate, "refused_total") == 0


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


def test_nobody_is_admitted_twice_where_few_are_tracked(make_sidecar):
    """One sidecar has room for x, the other has not, as it has to keep in mind that y is refused: together they admit
    no more than the limit to x."""
    rules = shared(per="name", limit=5, max_clients_tracked=1)
    first, second = make_sidecar(rules), make_sidecar(rules)
    assert spend(named(first, "x")) == 5
    assert spend(named(second, "y")) == 5
    assert spend(named(second, "x")) == 0


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
