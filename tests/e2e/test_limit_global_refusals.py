"""[limit:NAME] with scope = global: clients that are refused, held or observed, and what a request costs."""

import time

import pytest

from harness.global_limits import ALL_KINDS, Decider, asked, rush, shared, shared_funnel, total
from harness.limits import admitted, counter, explain, refuses
from harness.resp import PONG, encode, wait_for


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


SHORT = {
    "slots": shared(limit=150, window="300ms"),
    "funnel": shared_funnel(capacity=3, leak="1/200ms"),
    "leased": shared(limit=150, window="300ms", accuracy="leased"),
    "leased funnel": shared_funnel(capacity=3, leak="1/200ms", accuracy="leased"),
}


@pytest.mark.parametrize("rules", SHORT.values(), ids=SHORT)
def test_who_waits_as_told_is_admitted(make_sidecar, rules):
    headgate = make_sidecar(rules)
    client = headgate.connect()
    for _ in range(3):
        replies = []
        commands = [("INCR", "n")] * 200
        wait_for(lambda: replies.extend(client.pipeline(commands)) or refuses(replies[-1]), what="a refusal")
        wait = explain(replies[-1])[2]
        assert 1 <= wait <= 700
        time.sleep(wait / 1000)
        assert admitted([client("INCR", "n")]) == 1, f"refused {wait} ms after retry in {wait} ms"


# ---- cost ----


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_cost_in_bytes_of_several_values(make_sidecar, redis, accuracy):
    """Redis is asked once all of them are known of, and for all of them."""
    request = encode("RPUSH", "l", "a" * 70_000, "b" * 100_000, "c" * 200_000)
    rules = shared(limit=4 * len(request), cost="bytes", commands="rpush", accuracy=accuracy)
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
    assert count == 4 if accuracy == "exact" else count <= 4
    assert redis.connect()("LLEN", "l") == 3 * count


# ---- delay and observe ----


def test_delay_over_two_sidecars(make_sidecar):
    """Nobody is refused, each client's requests stay in order, and together they are no faster than the funnel."""
    rules = shared_funnel(capacity=1, leak="1/50ms", action="delay", max_delay="60s")
    clients = [make_sidecar(rules).connect(), make_sidecar(rules, threads=4).connect()]
    start = time.monotonic()
    for number, client in enumerate(clients):
        client.send(b"".join(encode("INCR", f"k{number}") + encode("ECHO", turn) for turn in range(6)))
    for client in clients:
        assert client.read_many(12) == [reply for turn in range(6) for reply in (turn + 1, b"%d" % turn)]
    assert time.monotonic() - start >= 11 * 0.05


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


@pytest.mark.parametrize("any_kind", ["funnel", "leased"])
def test_beyond_max_delay_is_refused_at_once(make_sidecar, any_kind):
    client = make_sidecar(ALL_KINDS[any_kind](16, action="delay", max_delay="1s")).connect()
    replies = client.pipeline([("INCR", "n")] * 40 + [("PING",)])
    assert replies[40] == PONG
    assert 10 <= admitted(replies[:40]) <= 16
    assert explain(replies[39])[2] > 1000


def test_observe(make_sidecar):
    headgate = make_sidecar(shared(limit=3, action="observe"))
    client = headgate.connect()
    assert client.pipeline([("INCR", "n")] * 10) == list(range(1, 11))
    wait_for(lambda: counter(headgate, "observed_total") == 7, what="7 requests to be observed")
    assert counter(headgate, "refused_total") == 0 and counter(headgate, "admitted_total") == 3


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
