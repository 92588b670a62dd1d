"""[limit:NAME] with scope = global: the state in Redis, and replies on the wire."""

import time

import pytest

from harness.fake_redis import always
from harness.global_limits import (
    ALL_KINDS,
    GRANTED,
    KEYS,
    Decider,
    key_of,
    refused_for,
    rush,
    shared,
    shared_funnel,
)
from harness.identity import add_users, authenticated
from harness.limits import admitted, counter, explain, limits, refuses, spend
from harness.resp import OK, PONG, QUEUED, encode, wait_for


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
def test_subjects_are_called_as_limits_calls_them(make_sidecar, redis, per, subject):
    headgate = make_sidecar(shared("api", per=per, limit=1))
    add_users(redis, "alice")
    client = authenticated(headgate, "alice")
    client("CLIENT", "SETNAME", "web")
    assert spend(client, "INCR", "7", count=2, name="api") == 1
    assert redis.connect()("KEYS", "headgate:hist:*") == [f"headgate:hist:slots:api:{subject}".encode()]
    if "\n" not in subject:
        assert [line["offender"] for line in limits(headgate)[1]] == [subject]


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


def test_state_is_small_however_large_the_limit(make_sidecar, redis):
    rules = shared(limit=1_000_000, window="1s")
    clients = [make_sidecar(rules).connect(), make_sidecar(rules).connect()]
    with redis.connect() as observer:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            rush(clients, 50)
            assert (observer("MEMORY", "USAGE", "headgate:hist:slots:a:all") or 0) <= 2048
    leased = make_sidecar(shared("b", limit=10**9, window="1s", accuracy="leased")).connect()
    for _ in range(10):
        assert spend(leased, count=1000, name="b") == 1000
    assert (redis.connect()("MEMORY", "USAGE", "headgate:hist:slots:b:all") or 0) <= 2048


def test_idle_state_expires(make_sidecar, redis):
    rules = [shared("small", limit=5, window="100ms"), shared("slots", limit=500, window="100ms")]
    rules += [shared_funnel("funnel", capacity=5, leak="5/100ms")]
    rules += [shared("leased", limit=500, window="100ms", accuracy="leased")]
    client = make_sidecar("".join(rules)).connect()
    assert client("INCR", "n") == 1
    with redis.connect() as observer:
        wait_for(lambda: observer("KEYS", "headgate:hist:*") == [], what="the state to expire")


def test_a_script_cache_that_was_flushed(make_sidecar, redis, any_kind):
    headgate = make_sidecar(ALL_KINDS[any_kind](100))
    client = headgate.connect()
    for _ in range(3):
        assert spend(client, count=20) == 20
        with redis.connect() as observer:
            assert observer("SCRIPT", "FLUSH", "SYNC") == OK
    assert spend(client, count=20) == 20
    assert counter(headgate, "undecided_total") == 0


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


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_transactions(make_sidecar, redis, pool, accuracy):
    client = make_sidecar(shared(limit=8, accuracy=accuracy), pool=pool).connect()
    assert client.pipeline([("MULTI",), ("INCR", "n"), ("INCR", "n"), ("EXEC",)]) == [OK, QUEUED, QUEUED, [1, 2]]
    replies = client.pipeline([("MULTI",), *[("INCR", "n")] * 9, ("SET", "t", 1), ("EXEC",), ("PING",)])
    assert replies[:2] == [OK, QUEUED] and refuses(replies[9]) and replies[10] == QUEUED
    assert replies[11].startswith(b"EXECABORT") and replies[12] == PONG
    assert redis.connect()("MGET", "n", "t") == [b"2", None]


def test_reply_off(make_sidecar, redis, pool):
    client = make_sidecar(shared(limit=2), pool=pool).connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * 5 + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("GET", "n") == b"2"
    assert b"refused-by-headgate" in client("INCR", "n")
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "n") + encode("GET", "n"))
    assert client.read() == b"2"
    client.assert_silent()


def test_who_half_closes_gets_all_replies(make_sidecar, pool):
    client = make_sidecar(shared(limit=2), pool=pool).connect()
    client.send(encode("INCR", "n") * 4 + encode("ECHO", "end"))
    client.shutdown_write()
    replies = client.read_many(5)
    assert replies[:2] == [1, 2] and admitted(replies[2:4]) == 0 and replies[4] == b"end"
    client.assert_closed()


def test_blocking_commands_and_subscriptions(make_sidecar, redis, pool):
    client = make_sidecar(shared(limit=2, commands="blpop subscribe"), pool=pool).connect()
    client.request("BLPOP", "list", 0)
    client.assert_silent()
    redis.connect()("RPUSH", "list", "x")
    assert client.read() == [b"list", b"x"]
    assert client("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    assert refuses(client("SUBSCRIBE", "b"))


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
