"""[limit:NAME] with scope = global: the state in Redis, replies on the wire, who is refused, held or observed, and
what a request costs."""

import time

import pytest

from harness.fake_redis import always
from harness.global_limits import ALL_KINDS, GRANTED, KEYS, Decider, asked, key_of, refused_for, rush, shared, total
from harness.limits import admitted, counter, explain, refuses, spend
from harness.resp import OK, encode, wait_for


# ---- the state in Redis ----


def test_keys_and_types(make_sidecar, redis, any_kind):
    client = make_sidecar(ALL_KINDS[any_kind](100)).connect()
    assert spend(client, count=3) == 3
    with redis.connect() as observer:
        key = key_of(any_kind)
        assert observer("KEYS", "headgate:hist:*") == [key.encode()]
        assert observer("TYPE", key) == b"string"
        life = 3_600_000 * (100 if KEYS[any_kind] == "funnel" else 1) + 500 + 1001
        assert 0 < observer("PTTL", key) <= life


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


def test_keys_of_any_bytes(make_sidecar, redis):
    """Subjects are told apart by both sidecars in the same way, however long they are."""
    rules = shared(per="key", limit=1)
    first, second = make_sidecar(rules).connect(), make_sidecar(rules).connect()
    keys = [b"", b"\0", b"\r\n", b" ", b"\n", b"\xff\xfe", b"x" * 5000, b"x" * 4999 + b"y", b"a:b", b"key:1", b"{a}b"]
    assert [spend(first, "INCR", key, count=1) for key in keys] == [1] * len(keys)
    assert [spend(second, "INCR", key, count=1) for key in keys] == [0] * len(keys)
    with redis.connect() as observer:
        states = observer("KEYS", "headgate:hist:*")
        assert len(states) == len(keys) and max(map(len, states)) < 1000


@pytest.mark.parametrize("any_kind", ["slots", "leased funnel"])
def test_a_script_cache_that_was_flushed(make_sidecar, redis, any_kind):
    headgate = make_sidecar(ALL_KINDS[any_kind](100))
    client = headgate.connect()
    for _ in range(3):
        assert spend(client, count=20) == 20
        with redis.connect() as observer:
            assert observer("SCRIPT", "FLUSH", "SYNC") == OK
    assert spend(client, count=20) == 20
    assert counter(headgate, "undecided_total") == 0


@pytest.mark.parametrize("any_kind", ["funnel", "leased"])
def test_state_outlives_the_process(make_sidecar, redis, any_kind):
    """A sidecar that is restarted, or comes later, finds what the others have used."""
    rules = ALL_KINDS[any_kind](20)
    first = make_sidecar(rules)
    used = spend(first.connect(), count=100)
    assert 0.8 * 20 <= used <= 20
    assert first.terminate() == 0
    assert spend(make_sidecar(rules).connect(), count=100) <= 20 - used


# ---- on the wire ----


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_replies_keep_their_place(make_sidecar, pool, accuracy):
    client = make_sidecar(shared(limit=20, accuracy=accuracy), pool=pool).connect()
    commands = [command for n in range(200) for command in (("INCR", "n"), ("ECHO", n), ("GET", "n"))]
    replies = client.pipeline(commands)
    count = 0
    for n in range(200):
        reply, echo, value = replies[3 * n : 3 * n + 3]
        count += not refuses(reply)
        assert refuses(reply) or reply == count
        assert echo == b"%d" % n and value == b"%d" % count
    assert 16 <= count <= 20


def test_reply_off(make_sidecar, redis, pool):
    client = make_sidecar(shared(limit=2), pool=pool).connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * 5 + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("GET", "n") == b"2"
    assert b"refused-by-headgate" in client("INCR", "n")
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "n") + encode("GET", "n"))
    assert client.read() == b"2"
    client.assert_silent()


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
