"""The policy contract, shown by headgate-probe: Headgate with policies that pass, answer, hold and close as told.

The probe obeys the first argument that begins with "probe:" (tests/policy/probe.h says how) and aborts when a request
that it passed or held does not get exactly one on_reply; each test ends with a look at what it has counted.
"""

import signal
import time

import pytest

from harness.admin import stats
from harness.resp import NULL, OK, PONG, QUEUED, Client, Closed, Error, Push, bulk, encode, wait_for
from harness.servers import elapsed, sanitizer_overhead

LONG = 300_000  # beyond cut_through


@pytest.fixture
def probe(redis, pool, make_probe):
    """On top of a real Redis; at the end every request is accounted for, and it ends well."""
    probe = make_probe(redis, pool=pool)
    yield probe
    probe.await_balance()


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


def refused(order):
    return Error(f"PROBE refused {order}".encode())


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
    assert 0.2 <= elapsed(lambda: client("SET", "probe:hold:200:a", "1")) < 2
    assert client("GET", "probe:hold:0:a") is None
    assert client("GET", "probe:pass:a") is None
    probe.await_counts(held=1, passed=3, reply=3, requests=3)


def test_delays_a_refusal(probe, client):
    start = time.monotonic()
    assert client("SET", "probe:delayreply:200:a", "1") == refused("probe:delayreply:200:a")
    assert 0.2 <= time.monotonic() - start < 2
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
    assert 0.25 <= elapsed(lambda: check_equal(client.pipeline(commands), expected)) < 3


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
        client.send(encode("SET", "probe:hold:1500:a", "1") * 2)
    with probe.connect() as other:
        probe.await_counts(held=20)
        start = time.monotonic()
        for number in range(300):
            assert other("SET", "probe:pass:b", number) == OK
        assert time.monotonic() - start < 1.2, "held requests slow down another client"
        assert other.pipeline([("GET", "probe:pass:b"), ("ECHO", "x")]) == [b"299", b"x"]
    for client in held:
        assert client.read_many(2) == [OK, OK]
        client.close()
    probe.await_counts(passed=40 + 301, reply=40 + 301)


def test_much_behind_a_held_request(probe, client):
    """What comes while a request is held is kept within bounds, and served in order afterwards."""
    commands = [("GET", "probe:hold:400:a")]
    commands += [("SET", "probe:pass:b", "x" * 1000) for _ in range(3000)]
    commands += [("GET", "probe:reply:end")]
    assert client.pipeline(commands) == [None] + [OK] * 3000 + [refused("probe:reply:end")]


# ---- transactions ----


def test_a_refusal_spoils_the_transaction(probe, client, redis):
    commands = [("MULTI",), ("SET", "a", "1"), ("SET", "probe:reply:b", "2"), ("SET", "c", "3"), ("EXEC",), ("PING",)]
    replies = client.pipeline(commands)
    assert replies[:4] == [OK, QUEUED, refused("probe:reply:b"), QUEUED]
    assert isinstance(replies[4], Error) and replies[4].startswith(b"EXECABORT")
    assert replies[5] == PONG
    assert redis.connect()("EXISTS", "a", "probe:reply:b", "c") == 0
    assert client.pipeline([("MULTI",), ("INCR", "a"), ("EXEC",)]) == [OK, QUEUED, [1]]


def test_a_refusal_in_a_transaction_step_by_step(probe, client):
    assert client("MULTI") == OK
    assert client("GET", "probe:delayreply:50:a") == refused("probe:delayreply:50:a")
    assert client("SET", "a", "1") == QUEUED
    assert client("EXEC").startswith(b"EXECABORT")
    assert client("GET", "a") is None


def test_discard_after_a_refusal(probe, client):
    commands = [("MULTI",), ("SET", "a", "1"), ("GET", "probe:reply:b"), ("DISCARD",), ("EXISTS", "a")]
    assert client.pipeline(commands) == [OK, QUEUED, refused("probe:reply:b"), OK, 0]
    assert client.pipeline([("MULTI",), ("SET", "a", "1"), ("EXEC",)]) == [OK, QUEUED, [OK]]


def test_a_hold_in_a_transaction(probe, client):
    commands = [("MULTI",), ("SET", "probe:hold:50:a", "1"), ("INCR", "probe:hold:50:a"), ("EXEC",)]
    assert client.pipeline(commands) == [OK, QUEUED, QUEUED, [OK, 2]]


def test_a_refused_multi_begins_no_transaction(probe, client):
    assert client("MULTI", "probe:reply:a") == refused("probe:reply:a")
    assert client("SET", "a", "1") == OK
    assert client("MULTI") == OK
    assert client("EXEC", "probe:reply:b") == refused("probe:reply:b")
    assert client("SET", "a", "2") == QUEUED
    assert client("EXEC").startswith(b"EXECABORT")
    assert client("GET", "a") == b"1"


def test_a_refusal_after_watch_spoils_nothing(probe, client):
    commands = [("WATCH", "a"), ("GET", "probe:reply:a"), ("MULTI",), ("SET", "a", "1"), ("EXEC",)]
    assert client.pipeline(commands) == [OK, refused("probe:reply:a"), OK, QUEUED, [OK]]


def test_closing_in_a_transaction(probe, client, redis):
    client.send(encode("MULTI") + encode("SET", "a", "1"))
    assert client.read_many(2) == [OK, QUEUED]
    client.send(encode("GET", "probe:close:a") + encode("EXEC"))
    client.assert_closed()
    assert redis.connect()("EXISTS", "a") == 0


# ---- CLIENT REPLY ----


def test_refusals_under_reply_off_are_silent(probe, client):
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "1") + encode("GET", "probe:reply:a"))
    client.send(encode("GET", "probe:delayreply:50:b") + encode("GET", "probe:hold:50:c") + encode("SET", "a", "2"))
    client.send(encode("CLIENT", "REPLY", "ON") + encode("GET", "probe:reply:d") + encode("GET", "a"))
    assert client.read_many(3) == [OK, refused("probe:reply:d"), b"2"]
    client.assert_silent()
    probe.await_counts(replied=3)


def test_refusal_under_reply_skip_is_silent(probe, client):
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:reply:a") + encode("SET", "a", "1"))
    assert client.read() == OK
    assert client("GET", "a") == b"1"
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:delayreply:50:a"))
    assert client("GET", "probe:reply:b") == refused("probe:reply:b")
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:hold:50:a"))
    assert client("INCR", "a") == 2
    client.assert_silent()


def test_reply_on_after_a_skipped_refusal(probe, client):
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:reply:a"))
    assert client("CLIENT", "REPLY", "ON") == OK
    assert client.pipeline([("SET", "a", "1"), ("GET", "a")]) == [OK, b"1"]


def test_a_silent_refusal_spoils_the_transaction(probe, client):
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("MULTI") + encode("SET", "a", "1"))
    client.send(encode("GET", "probe:reply:a") + encode("EXEC") + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("EXISTS", "a") == 0


def test_a_refusal_behind_a_skipped_multi(probe, client):
    """Redis begins the transaction without saying so; the refusal is part of it all the same."""
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("MULTI") + encode("SET", "a", "1"))
    client.send(encode("GET", "probe:reply:a") + encode("EXEC") + encode("EXISTS", "a"))
    replies = client.read_many(4)
    assert replies[:2] == [QUEUED, refused("probe:reply:a")]
    assert replies[2].startswith(b"EXECABORT") and replies[3] == 0


# ---- subscriptions ----


def test_while_subscribed_in_resp3(probe, client, redis):
    client("HELLO", "3")
    assert client("SUBSCRIBE", "news") == Push([b"subscribe", b"news", 1])
    assert client("GET", "probe:reply:a") == refused("probe:reply:a")
    publisher = redis.connect()
    client.request("SET", "probe:hold:200:a", "1")
    publisher("PUBLISH", "news", "while held")
    assert client.read() == Push([b"message", b"news", b"while held"])
    assert client.read() == OK
    client.send(encode("GET", "probe:hold:200:a") + encode("GET", "probe:delayreply:50:b") + encode("GET", "c"))
    assert client.read_many(3) == [b"1", refused("probe:delayreply:50:b"), NULL]
    assert client("UNSUBSCRIBE") == Push([b"unsubscribe", b"news", 0])
    assert client("GET", "probe:reply:a") == refused("probe:reply:a")


def test_while_subscribed_in_resp2(probe, client, redis):
    assert client("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
    assert client("SUBSCRIBE", "probe:reply:other") == refused("probe:reply:other")
    redis.connect()("PUBLISH", "news", "x")
    assert client.read() == [b"message", b"news", b"x"]
    assert client("SUBSCRIBE", "probe:hold:50:other") == [b"subscribe", b"probe:hold:50:other", 2]
    probe.await_counts(replied=1, held=1)


def test_a_refusal_does_not_cut_a_push_in_two(fake, pool, make_probe):
    probe = make_probe(fake.url, pool=pool)
    client = probe.connect()
    client("HELLO", "3")
    client.request("SUBSCRIBE", "news")
    command = fake.expect("SUBSCRIBE", "news")
    command.reply(b">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
    assert client.read() == Push([b"subscribe", b"news", 1])
    push = b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n" + bulk("x" * 1000)
    command.lane.send(push[:300])
    assert client.read_exactly(300) == push[:300]
    client.request("GET", "probe:reply:a")
    client.assert_silent()
    command.lane.send(push[300:])
    assert client.read_exactly(len(push) - 300) == push[300:]
    assert client.read() == refused("probe:reply:a")
    client.request("GET", "probe:pass:a")
    fake.expect("GET", "probe:pass:a").reply(b"_\r\n")
    client.read()
    client.close()
    probe.await_balance()


# ---- long requests, which are sent on as they come ----


def test_a_long_request_is_passed_and_held(probe, client):
    value = "x" * LONG
    assert client.pipeline([("SET", "probe:pass:a", value), ("STRLEN", "probe:pass:a")]) == [OK, LONG]
    assert client.pipeline([("SET", "probe:hold:150:b", value), ("STRLEN", "probe:hold:0:b")]) == [OK, 0]
    assert client("STRLEN", "probe:hold:150:b") == LONG
    probe.await_counts(lost=0, ownerless=0, replied=0)


@pytest.mark.parametrize("order", ["probe:reply:a", "probe:delayreply:100:a"])
def test_a_long_request_is_refused(probe, client, redis, order):
    """It is refused before it is there as a whole; the rest of it is thrown away and the client goes on."""
    commands = [("GET", "probe:pass:b"), ("SET", order, "x" * LONG), ("SET", "probe:pass:c", "1"), ("ECHO", "end")]
    assert client.pipeline(commands) == [None, refused(order), OK, b"end"]
    assert client.pipeline(commands) == [None, refused(order), OK, b"end"]
    assert redis.connect()("EXISTS", order) == 0


def test_a_long_request_is_refused_bit_by_bit(probe, client):
    data = encode("SET", "probe:reply:a", "x" * LONG)
    for start in range(0, len(data), 40_000):
        client.send(data[start : start + 40_000])
        time.sleep(0.01)
    assert client.read() == refused("probe:reply:a")
    assert client("PING") == PONG


def test_a_long_refusal_spoils_the_transaction(probe, client):
    commands = [("MULTI",), ("SET", "probe:reply:a", "x" * LONG), ("SET", "b", "1"), ("EXEC",), ("EXISTS", "b")]
    replies = client.pipeline(commands)
    assert replies[:3] == [OK, refused("probe:reply:a"), QUEUED]
    assert replies[3].startswith(b"EXECABORT") and replies[4] == 0


def test_a_long_request_closes_the_client(probe, client):
    with pytest.raises((OSError, Closed)):
        client.send(encode("SET", "probe:close:a", "x" * LONG))
        client.read()
    probe.await_counts(closed=1)


def test_a_client_that_leaves_within_a_long_request(probe):
    data = encode("SET", "probe:pass:a", "x" * LONG)
    for part, leave in ((100_000, Client.close), (100_000, Client.reset), (50, Client.reset)):
        client = probe.connect()
        client.send(data[:part])
        time.sleep(0.1)
        leave(client)
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:pass:a") == 0


def long_push(order):
    return encode("RPUSH", order, "x" * LONG, *map(str, range(1000)), "y" * LONG)


@pytest.mark.parametrize("size", [7_000, 100_000, 10_000_000])
def test_a_long_request_that_is_wanted_whole(probe, client, redis, size):
    data = encode("GET", "probe:pass:b") + long_push("probe:whole:0:a") + encode("LLEN", "probe:whole:0:a")
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    assert client.read_many(3) == [None, 1002, 1002]
    assert redis.connect()("LRANGE", "probe:whole:0:a", 0, -1) == [
        b"x" * LONG,
        *(b"%d" % number for number in range(1000)),
        b"y" * LONG,
    ]
    assert probe.counts()["wanted"] > 0


def test_a_long_request_that_is_wanted_whole_may_then_be_held(probe, client):
    """What is behind it comes behind it."""
    commands = [("SET", "probe:whole:100:a", "x" * LONG), ("STRLEN", "probe:whole:0:a"), ("ECHO", "e")]
    assert elapsed(lambda: client.pipeline(commands)) >= 0.1
    assert client.pipeline(commands) == [OK, 0, b"e"]
    probe.await_counts(held=2, lost=0, ownerless=0, replied=0)


def test_who_was_asked_before_a_request_was_wanted_whole_is_not_asked_again(probe, client):
    """The watcher would abort."""
    data = long_push("probe:whole:0:a")
    for start in range(0, len(data), 30_000):
        client.send(data[start : start + 30_000])
        time.sleep(0.002)
    assert client.read() == 1002
    wanted = probe.counts()["wanted"]
    assert 0 < wanted < 15, "the second long value announces nothing new"


def test_a_long_request_that_is_wanted_whole_in_a_transaction(probe, client):
    client.send(encode("MULTI") + long_push("probe:whole:0:a") + encode("EXEC"))
    assert client.read_many(3) == [OK, QUEUED, [1002]]


@pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.shutdown_write])
def test_a_client_that_leaves_within_a_request_that_is_wanted_whole(probe, leave):
    data = long_push("probe:whole:0:a")
    for part in (70_000, LONG + 100, LONG + 10_000, len(data) - 1):
        client = probe.connect()
        before = probe.counts()["wanted"]
        client.send(data[:part])
        wait_for(lambda: probe.counts()["wanted"] > before, what="the policy to want more")
        leave(client)
        if leave is Client.shutdown_write:
            client.assert_closed()
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:whole:0:a") == 0


def test_a_request_that_is_wanted_whole_is_bounded(redis, pool, make_probe):
    probe = make_probe(redis, pool=pool, max_request="1mb")
    client = probe.connect()
    client.send(encode("GET", "probe:pass:a"))
    with pytest.raises((OSError, Closed)):
        client.send(b"*100\r\n$5\r\nRPUSH\r\n$15\r\nprobe:whole:0:a\r\n")
        for _ in range(97):
            client.send(bulk(b"x" * 500_000))
        client.read_many(2)
    assert probe.peak_rss() < 64 * 2**20 + sanitizer_overhead()
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:whole:0:a") == 0


def test_a_long_name(probe, client):
    """A policy sees of an endless name only what is there."""
    client.send(b"*2\r\n$400000\r\nABC")
    time.sleep(0.1)
    client.send(b"D" * 399_997 + b"\r\n$1\r\na\r\n")
    assert client.read().startswith(b"ERR unknown command")


# ---- the upstream dies ----


def test_redis_dies_with_requests_under_way(probe, redis):
    """All that was sent is lost, for each of the client's requests."""
    clients = [probe.connect() for _ in range(5)]
    for client in clients:
        assert client.pipeline([("SET", "probe:pass:a", "1")] * 10) == [OK] * 10
    redis.signal(signal.SIGSTOP)
    for client in clients:
        client.send(encode("SET", "probe:pass:a", "1") * 10)
    probe.await_counts(passed=100, reply=50)
    redis.kill()
    for client in clients:
        client.assert_closed()
    probe.await_counts(reply=50, lost=50, ownerless=0)
    redis.start()
    wait_for(probe.serves, what="Redis to be back")


def test_redis_dies_while_a_request_is_held(redis, make_probe):
    """In shared mode a client that only waits for a policy has nothing to lose."""
    probe = make_probe(redis, pool="shared")
    client = probe.connect()
    assert client("SET", "probe:hold:50:a", "1") == OK
    client.send(encode("SET", "probe:hold:400:a", "2") + encode("GET", "probe:hold:0:a"))
    probe.await_counts(held=2, open=1)
    redis.restart()
    assert client.read_many(2) == [OK, None]
    client.close()
    probe.await_balance()
    probe.await_counts(lost=0, ownerless=0)


def test_redis_dies_while_a_request_is_held_in_session_mode(redis, make_probe):
    """There the client's own connection is gone, and so is the client."""
    probe = make_probe(redis, pool="session")
    client = probe.connect()
    assert client("SET", "a", "1") == OK
    client.send(encode("SET", "probe:hold:60000:a", "2") + encode("GET", "a"))
    probe.await_counts(held=1)
    redis.restart()
    client.assert_closed()
    wait_for(probe.serves, what="Redis to be back")
    probe.await_balance()
    assert probe.counts()["ownerless"] + probe.counts()["lost"] >= 1


def test_a_held_request_in_a_transaction_is_lost_with_it(redis, pool, make_probe):
    probe = make_probe(redis, pool=pool)
    client = probe.connect()
    assert client("MULTI") == OK
    client.request("SET", "probe:hold:60000:a", "2")
    probe.await_counts(held=1)
    redis.restart()
    client.assert_closed()
    wait_for(probe.serves, what="Redis to be back")
    probe.await_balance()


def test_redis_stays_away(redis, make_probe):
    probe = make_probe(redis, pool="shared", upstream_wait="200ms")
    client = probe.connect()
    assert client("PING") == PONG
    redis.kill()
    wait_for(lambda: stats(probe, "upstream")["lanes_failed_total"] != "0", what="the loss of Redis to be noticed")
    client.send(encode("SET", "probe:pass:a", "1") + encode("GET", "probe:reply:b") + encode("GET", "probe:hold:50:c"))
    replies = client.read_many(3)
    assert replies[0].startswith(b"ERR headgate: no connection to Redis"), replies
    assert replies[1] == refused("probe:reply:b")
    assert replies[2].startswith(b"ERR headgate: no connection to Redis"), replies
    probe.await_counts(replied=1, lost=2, reply=1, held=1)
    client.close()
    probe.await_balance()


# ---- the client dies ----


def test_a_client_is_reset_while_held(probe, redis):
    client = probe.connect()
    client.send(encode("SET", "probe:hold:60000:a", "1") + encode("SET", "b", "1"))
    probe.await_counts(held=1)
    client.reset()
    probe.await_counts(open=0, ownerless=1, passed=0)
    assert redis.connect()("EXISTS", "probe:hold:60000:a", "b") == 0


def test_a_client_that_sent_all_and_left_is_served(probe, redis):
    """As Redis does: what came before the end of the stream is executed, though nobody reads the reply."""
    client = probe.connect()
    client.send(encode("SET", "probe:hold:200:a", "1") + encode("SET", "b", "1"))
    probe.await_counts(held=1)
    client.close()
    wait_for(lambda: redis.connect()("EXISTS", "probe:hold:200:a", "b") == 2, what="the held request")
    probe.await_counts(open=0, passed=2, held=1)


def test_a_client_that_half_closes_gets_its_replies(probe):
    client = probe.connect()
    client.send(encode("SET", "a", "1") + encode("GET", "probe:hold:200:a") + encode("GET", "probe:reply:a"))
    client.shutdown_write()
    assert client.read_many(3) == [OK, None, refused("probe:reply:a")]
    client.assert_closed()


def test_clients_die_with_requests_under_way(probe, redis):
    redis.signal(signal.SIGSTOP)
    clients = [probe.connect() for _ in range(10)]
    if probe.options["pool"] == "shared":
        for client in clients:
            client.send(encode("SET", "probe:pass:a", "1") * 5 + encode("GET", "probe:reply:a"))
        probe.await_counts(passed=50, replied=10)
        for client in clients:
            client.reset()
        probe.await_counts(open=0, ownerless=50)
        redis.signal(signal.SIGCONT)
    else:
        redis.signal(signal.SIGCONT)
        redis_client = redis.connect()
        for client in clients:
            client.send(encode("BLPOP", "probe:pass:list", "0") + encode("GET", "probe:reply:a"))
        probe.await_counts(passed=10, replied=10)
        for client in clients:
            client.reset()
        probe.await_counts(open=0, ownerless=10)
        assert redis_client("RPUSH", "probe:pass:list", "x") == 1
    with probe.connect() as client:
        assert client("ECHO", "still there") == b"still there"


# ---- time-outs and the end ----


def test_a_held_client_is_not_idle(redis, pool, make_probe):
    probe = make_probe(redis, pool=pool, client_idle_timeout="800ms")
    with probe.connect() as client:
        assert client("SET", "probe:hold:2000:a", "1") == OK
    probe.await_balance()


def test_drain_waits_for_held_requests(probe, redis, pool, make_probe):
    draining = make_probe(redis, pool=pool)
    client = draining.connect()
    client.send(encode("SET", "probe:hold:400:drained", "1"))
    draining.await_counts(held=1)
    draining.signal(signal.SIGTERM)
    assert client.read() == OK
    client.assert_closed()
    assert draining.wait() == 0
    assert redis.connect()("EXISTS", "probe:hold:400:drained") == 1


def test_the_end_at_once_leaves_no_record(redis, pool, make_probe):
    """The probe aborts if a request is open when its worker ends."""
    probe = make_probe(redis, pool=pool)
    client = probe.connect()
    client.send(encode("SET", "probe:hold:60000:a", "1"))
    probe.await_counts(held=1)
    probe.signal(signal.SIGTERM)
    time.sleep(0.1)
    probe.signal(signal.SIGTERM)
    assert probe.wait() == 0
    client.assert_closed()


def test_everything_at_once(redis, pool, make_probe):
    """Many clients on two workers with every verdict, some of which vanish; each record is ended in the end."""
    probe = make_probe(redis, pool=pool, threads=2)
    orders = ["pass:a", "reply:a", "hold:20:a", "delayreply:20:a", "pass:b", "hold:5:b"]
    for round_number in range(3):
        clients = [probe.connect() for _ in range(40)]
        for number, client in enumerate(clients):
            commands = [encode("SET", "probe:" + orders[(number + i) % len(orders)], i) for i in range(30)]
            client.send(b"".join(commands) + encode("ECHO", number))
        for number, client in enumerate(clients):
            if number % 4 == round_number:
                client.reset()
                continue
            replies = client.read_many(31)
            assert replies[30] == str(number).encode()
            for i, reply in enumerate(replies[:30]):
                order = "probe:" + orders[(number + i) % len(orders)]
                assert reply == (refused(order) if "reply" in order else OK)
            client.close()
    # Each worker counts for itself.
    wait_for(lambda: all(probe.counts()["open"] == 0 for _ in range(4)), what="the end of all requests")


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
