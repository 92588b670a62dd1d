"""[lease:NAME]: what is counted. Each recipe, contended for, ends with the exact number acquired, released and lost."""

import time

import pytest

from harness.leases import (
    LEASE, LEASE_MS, await_counter, await_keys, counters, lease_of, losses, rule, score_of, take, take_fair_permit,
    take_permit, transact,
)
from harness.resp import OK, wait_for

# As long as no machine stands still: here nothing is to run out.
LONG_LEASE_MS = 20_000


def release_permit(client, key, token):
    return client("ZREM", key, token) == 1


def release_fair(client, key, token):
    return transact(client, ("ZREM", key, token), ("ZREM", f"{key}:owner", token)) == [1, 1]


@pytest.mark.parametrize("fair", [False, True], ids=["counting", "fair"])
def test_a_limit_that_is_not_said(make_shared, redis, fair):
    """The lowest rank is a permit, and what is kept for a while; what was given back sooner may have been refused."""
    headgate = make_shared(rule(ttl=f"{LONG_LEASE_MS}ms", owner="connection"))
    first, second = headgate.connect(), headgate.connect()
    take_it = take_fair_permit if fair else take_permit
    release = release_fair if fair else release_permit
    assert take_it(first, "lock:a", "first", 2, LEASE)
    assert take_it(second, "lock:a", "second", 2, LEASE)
    assert release(second, "lock:a", "second")
    assert not take_it(second, "lock:a", "refused", 1, LEASE)
    assert take_it(second, "lock:a", "kept", 2, LEASE)
    await_counter(headgate, "acquired_total", 2)
    assert release(second, "lock:a", "kept")
    assert release(first, "lock:a", "first")
    await_keys(headgate, [])
    assert counters(headgate)["released_total"] == 2 and not losses(headgate)
    assert headgate.log().count("say limit = N") == 1


def test_a_limit_that_is_said(make_shared, redis):
    """Who has a higher rank has no permit, however long it stays in the set: it runs out there."""
    headgate = make_shared(rule(ttl=f"{LEASE_MS}ms", limit=1))
    first, second = headgate.connect(), headgate.connect()
    assert take_permit(first, "lock:a", "first", 1)
    now = time.time()
    sent = (("ZREMRANGEBYSCORE", "lock:a", "-inf", now - LEASE), ("ZADD", "lock:a", now, "x"), ("ZRANK", "lock:a", "x"))
    assert transact(second, *sent) == [0, 1, 1]
    assert [lease["owner"] for lease in [lease_of(headgate, "lock:a")]], "one lease"
    wait_for(lambda: score_of(redis, "lock:a", "first") > now, what="a renewal of the one that holds it")
    assert redis.connect()("ZREMRANGEBYSCORE", "lock:a", "-inf", now) == 1
    assert not take_permit(second, "lock:a", "another", 1)
    assert redis.connect()("ZRANGE", "lock:a", 0, -1) == [b"first"]
    assert counters(headgate)["acquired_total"] == 1 and not losses(headgate)
    assert "say limit" not in headgate.log()


# ---- what was lost, and what nobody can know ----


BY_VALUE = "if redis.call('get', ARGV[1]) == ARGV[2] then redis.call('del', ARGV[1]) return {1} end return {0}"


def delete_by_function(client, name):
    code = f"#!lua name={name}\nredis.register_function('{name}', function(keys, argv) redis.call('del', argv[1]) end)"
    assert client("FUNCTION", "LOAD", "REPLACE", code) == name.encode()


UNDECLARED = {
    "the key is a value": lambda client, key: client("EVAL", BY_VALUE, 0, key, "t"),
    "another, that says it": lambda client, key: client("EVAL", "return {redis.call('del', KEYS[1]), 1}", 1, key),
    "a flush": lambda client, key: client("EVAL", "redis.call('flushdb')", 0),
    "a function": lambda client, key: client("FCALL", "unseen", 0, key),
    "many values": lambda client, key: client("EVAL", "redis.call('del', ARGV[1500])", 1, "x", *["y"] * 1499, key),
    "a long one": lambda client, key: client("EVAL", BY_VALUE, 0, key, "t", "x" * 300_000),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_a_release_by_a_script_that_does_not_say_its_keys(make_shared, redis, name):
    """Nobody knows what that has done: to any lock of its database. Another one's are lost as ever."""
    headgate = make_shared(rule(owner="connection"), threads=4, cut_through="64kb")
    client, other = headgate.connect(), headgate.connect()
    delete_by_function(client, "unseen")
    for number in range(3):
        take(client, "lock:a", ms=LEASE_MS)
        UNDECLARED[name]((client, other)[number % 2], "lock:a")
    await_keys(headgate, [])
    found = counters(headgate)
    assert (found["acquired_total"], found.get("unseen_total")) == (3, 3), found
    assert "lost" not in headgate.log()
    time.sleep(0.3)
    assert client("SELECT", 1) == OK
    take(client, "lock:elsewhere", ms=LEASE_MS)
    assert other("EVAL", "return 1", 0) == 1
    with redis.connect() as direct:
        assert direct.pipeline([("SELECT", 1), ("DEL", "lock:elsewhere")]) == [OK, 1]
    await_keys(headgate, [])
    assert losses(headgate) == {"gone": 1}, counters(headgate)


def test_scripts_that_say_no_keys_and_change_nothing(make_shared, redis):
    """The next renewal shows that the lock is there: what is lost later is lost."""
    headgate = make_shared(rule())
    client = headgate.connect()
    take(client, "lock:a", ms=LEASE_MS)
    for _ in range(20):
        assert client("EVAL", "return redis.call('pttl', KEYS[1])", 1, "lock:a") > 0, "it has run out"
        assert client("EVAL", "return redis.call('time')", 0)
        assert client("EVAL_RO", "return ARGV[1]", 0, "lock:a") == b"lock:a"
        time.sleep(0.05)
    renewals = int(lease_of(headgate, "lock:a")["renewals"])
    wait_for(lambda: int(lease_of(headgate, "lock:a")["renewals"]) > renewals + 1, what="two renewals")
    assert client("EVAL_RO", "return ARGV[1]", 0, "lock:a") == b"lock:a"
    redis.connect()("DEL", "lock:a")
    await_keys(headgate, [])
    assert losses(headgate) == {"gone": 1}, counters(headgate)
