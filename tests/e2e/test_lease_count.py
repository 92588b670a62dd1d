"""[lease:NAME]: what is counted. Each recipe, contended for, ends with the exact number acquired, released and lost."""

import threading
import time

import pytest

from harness.leases import (
    LEASE, LEASE_MS, await_counter, await_keys, counters, lease_of, losses, rule, score_of, take, take_fair_permit,
    take_permit, transact,
)
from harness.resp import OK, wait_for
from harness.threads import at_once

CONTENDERS = 4
ROUNDS = 30
# As long as no machine stands still: here nothing is to run out.
LONG_LEASE_MS = 20_000
LONG_LEASE = LONG_LEASE_MS / 1000
HASH_LOCK = (
    "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; "
    "return redis.call('pttl', KEYS[1]);"
)
HASH_UNLOCK = (
    "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; "
    "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); "
    "if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; "
    "else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;"
)
# What Headgate cannot know: it compares and deletes as well, and says more.
UNKNOWN_RELEASE = """
local held = redis.call('get', KEYS[1])
if held == ARGV[1] then redis.call('del', KEYS[1]) return {1, held} end
return {0, held}
"""


# ---- recipes: (take, release) of a client, a key and a token; each is true if it came about ----


def set_nx(client, key, token):
    return client("SET", key, token, "NX", "PX", LONG_LEASE_MS) == OK


def setnx(client, key, token):
    return client("SETNX", key, token) == 1


def setnx_and_expire(client, key, token):
    return setnx(client, key, token) and client("EXPIRE", key, LONG_LEASE_MS // 1000) == 1


def watched(client, key, token):
    while True:
        assert client.pipeline([("WATCH", key), ("GET", key)]) == [OK, token.encode()]
        replies = transact(client, ("DEL", key))
        if isinstance(replies, list) and replies:
            return replies == [1]


def by(*command):
    def release(client, key, token):
        words = {"KEY": key, "TOKEN": token}
        return client(*[words.get(word, word) for word in command]) == 1

    return release


def take_hash(client, key, token):
    return client("EVAL", HASH_LOCK, 1, key, LONG_LEASE_MS, token) is None


def release_hash(client, key, token):
    return client("EVAL", HASH_UNLOCK, 2, key, "channel", 0, LONG_LEASE_MS, token) == 1


def permit(limit):
    return lambda client, key, token: take_permit(client, key, token, limit, LONG_LEASE)


def fair_permit(limit):
    return lambda client, key, token: take_fair_permit(client, key, token, limit, LONG_LEASE)


def take_permit_step_by_step(client, key, token):
    now = time.time()
    client("ZREMRANGEBYSCORE", key, "-inf", now - LONG_LEASE)
    assert client("ZADD", key, now, token) == 1
    if client("ZRANK", key, token) < 1:
        return True
    client("ZREM", key, token)
    return False


def release_fair(client, key, token):
    return transact(client, ("ZREM", key, token), ("ZREM", f"{key}:owner", token)) == [1, 1]


RECIPES = {
    "del": (set_nx, by("DEL", "KEY")),
    "watch": (set_nx, watched),
    "setnx-expire-watch": (setnx_and_expire, watched),
    "hash": (take_hash, release_hash),
    "semaphore-2": (permit(2), by("ZREM", "KEY", "TOKEN")),
    "semaphore-step-by-step": (take_permit_step_by_step, by("ZREM", "KEY", "TOKEN")),
    "fair-2": (fair_permit(2), release_fair),
}


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.acquired = self.released = self.refused = 0

    def add(self, **what):
        with self.lock:
            for name, count in what.items():
                setattr(self, name, getattr(self, name) + count)


def contend(headgate, key, recipe, tally, rounds, hold):
    """Each of the contenders takes it so many times, over a connection of its own, and keeps it for no time or some."""
    take_it, release_it = recipe
    clients = [headgate.connect() for _ in range(CONTENDERS)]

    def work(number):
        done = 0
        attempts = 0
        while done < rounds:
            attempts += 1
            token = f"token-{number}-{attempts}"
            if not take_it(clients[number], key, token):
                tally.add(refused=1)
                time.sleep(0.0005 * (number + 1))
                continue
            done += 1
            tally.add(acquired=1)
            if done % 3 == 0:
                time.sleep(hold)
            assert release_it(clients[number], key, token), "it was released, and was not there any more"
            tally.add(released=1)

    at_once(work, CONTENDERS, seconds=120)
    for client in clients:
        client.close()


def assert_counted(headgate, tally):
    """Once nothing is on file any more."""
    await_keys(headgate, [], 20)
    found = counters(headgate)
    expected = {"acquired_total": tally.acquired, "released_total": tally.released}
    assert {name: found.get(name, 0) for name in expected} == expected, (found, tally.refused)
    assert not losses(headgate) and "unseen_total" not in found, found


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_is_counted_exactly(make_shared, redis, name):
    """By clients that take it from each other's hands: the answer to a release comes after the next one has it."""
    options = {"keys": "lock:*", "ttl": f"{LONG_LEASE_MS}ms", "owner": "connection", "prolong_explicit": "on"}
    if name.endswith("-2"):
        options["limit"] = 2
    headgate = make_shared(rule(**options), threads=4)
    tally = Tally()
    contend(headgate, "lock:a", RECIPES[name], tally, ROUNDS, hold=0.002)
    assert tally.acquired == CONTENDERS * ROUNDS
    assert_counted(headgate, tally)
    assert "lost" not in headgate.log()


@pytest.mark.parametrize("fair", [False, True], ids=["counting", "fair"])
def test_a_limit_that_is_not_said(make_shared, redis, fair):
    """The lowest rank is a permit, and what is kept for a while; what was given back sooner may have been refused."""
    headgate = make_shared(rule(ttl=f"{LONG_LEASE_MS}ms", owner="connection"))
    first, second = headgate.connect(), headgate.connect()
    take_it = take_fair_permit if fair else take_permit
    release = release_fair if fair else by("ZREM", "KEY", "TOKEN")
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


def test_a_release_by_a_script_that_nobody_knows(make_shared, redis):
    """Neither released nor lost: a count of its own."""
    headgate = make_shared(rule(ttl=f"{LONG_LEASE_MS}ms", owner="connection"), threads=4)
    tally = Tally()

    def release(client, key, token):
        return client("EVAL", UNKNOWN_RELEASE, 1, key, token)[0] == 1

    contend(headgate, "lock:a", (set_nx, release), tally, ROUNDS, hold=0.002)
    await_keys(headgate, [], 20)
    found = counters(headgate)
    assert (found["acquired_total"], found.get("unseen_total")) == (tally.acquired, tally.acquired)
    assert not losses(headgate) and "released_total" not in found


BY_VALUE = "if redis.call('get', ARGV[1]) == ARGV[2] then redis.call('del', ARGV[1]) return {1} end return {0}"


def delete_by_function(client, name):
    code = f"#!lua name={name}\nredis.register_function('{name}', function(keys, argv) redis.call('del', argv[1]) end)"
    assert client("FUNCTION", "LOAD", "REPLACE", code) == name.encode()


UNDECLARED = {
    "the key is a value": lambda client, key: client("EVAL", BY_VALUE, 0, key, "t"),
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
