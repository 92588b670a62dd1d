"""[lease:NAME]: released means released, by whatever way, connection, worker or Headgate; and what is not released is
kept."""

import time

import pytest

from harness.leases import (
    COMPARE_AND_DELETE, COMPARE_AND_PEXPIRE, LEASE_MS, assert_kept, assert_untouched, await_counter, await_keys, await_left,
    counter, counters, keys_of, lease_of, losses, remaining, rule, take, transact,
)
from harness.resp import NIL_ARRAY, OK, Error, wait_for

RULE = rule(ttl=f"{LEASE_MS}ms")


def await_renewals(monitor, keys):
    """Each was kept for a while, so that it is something else that ends it."""
    wait_for(lambda: all(monitor.renewals(key) for key in keys), what="each to have been renewed")


# ---- every way ----


def in_transaction(*commands):
    def release(client, key):
        return transact(client, *[tuple(key if word == "KEY" else word for word in command) for command in commands])

    return release


def watched(client, key):
    """As the book does: again, if something has come between."""
    replies = []
    while not isinstance(replies, list) or not replies:
        assert client.pipeline([("WATCH", key), ("GET", key)]) == [OK, b"t"]
        replies = transact(client, ("DEL", key))
    return replies


def by_digest(client, key):
    return client("EVALSHA", client("SCRIPT", "LOAD", COMPARE_AND_DELETE), 1, key, "t")


def by(*command):
    return lambda client, key: client(*[key if word == "KEY" else word for word in command])


# How it is released, and what the client is told.
WAYS = {
    "del": (by("DEL", "KEY"), 1),
    "del-among-others": (by("DEL", "lock:none", "KEY", "other:none"), 1),
    "getdel": (by("GETDEL", "KEY"), b"t"),
    "compare-and-delete": (by("EVAL", COMPARE_AND_DELETE, 1, "KEY", "t"), 1),
    "by-digest": (by_digest, 1),
    "delifeq": (by("DELIFEQ", "KEY", "t"), 1),
    "watch": (watched, [1]),
    "multi-unlink": (in_transaction(("PING",), ("UNLINK", "KEY")), [b"PONG", 1]),
    "rename": (lambda client, key: client("RENAME", key, f"renamed:{key}"), OK),
    "renamenx": (lambda client, key: client("RENAMENX", key, f"renamed:{key}"), 1),
    "move": (by("MOVE", "KEY", 1), 1),
    "set": (by("SET", "KEY", "other", "PX", 60_000), OK),
    "set-for-ever": (by("SET", "KEY", "t"), OK),
    "set-xx": (by("SET", "KEY", "other", "XX"), OK),
    "psetex": (by("PSETEX", "KEY", 60_000, "t"), OK),
    "persist": (by("PERSIST", "KEY"), 1),
    "pexpire-0": (by("PEXPIRE", "KEY", 0), 1),
    "expireat-past": (by("EXPIREAT", "KEY", 1), 1),
    "extend-by-0": (by("EVAL", COMPARE_AND_PEXPIRE, 1, "KEY", "t", 0), 1),
}
# Their keys are there still, and no business of the watchdog any more.
STAY = {"set", "set-for-ever", "set-xx", "psetex", "persist"}


def test_released_is_released(make, redis, monitor):
    headgate = make(RULE)
    client = headgate.connect()
    keys = [f"lock:{way}" for way in WAYS]
    for key in keys:
        take(client, key)
    assert client("ZADD", "lock:zrem", time.time(), "id") == 1
    await_renewals(monitor, keys)
    for way, (release, expected) in WAYS.items():
        assert release(client, f"lock:{way}") == expected, way
    assert client("ZREM", "lock:zrem", "none", "id") == 1
    await_keys(headgate, [])
    assert_untouched(redis, monitor, keys + ["lock:zrem"])
    there = {key for key, life in remaining(redis, *keys).items() if life != -2}
    assert there == {f"lock:{way}" for way in STAY}
    await_left(redis, "renamed:lock:rename", "renamed:lock:renamenx")
    assert not losses(headgate)
    assert counters(headgate)["released_total"] == len(WAYS) + 1 == counters(headgate)["acquired_total"]


def test_a_flush_ends_all(make_shared, redis, monitor):
    headgate = make_shared(RULE)
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(20)]
    for key in keys:
        take(client, key)
    client("ZADD", "lock:sem", time.time(), "id")
    assert client("FLUSHALL") == OK
    await_keys(headgate, [])
    assert_untouched(redis, monitor, keys + ["lock:sem"])
    assert redis.connect()("DBSIZE") == 0


def test_lease_drop(make_shared, redis, monitor):
    """The lock itself is not touched: it ends with its lease."""
    headgate = make_shared(RULE)
    client = headgate.connect()
    for key in ("lock:a", "lock:b"):
        take(client, key)
    assert client("SELECT", 3) == OK
    take(client, "lock:a")
    with headgate.admin() as admin:
        assert admin("LEASE", "DROP", "lock:a") == OK
    assert keys_of(headgate) == {"lock:b"} and counter(headgate, "dropped_total") == 2
    assert_untouched(redis, monitor, ["lock:a"])
    await_left(redis, "lock:a")
    assert lease_of(headgate, "lock:b") and not losses(headgate)


# ---- what does not release it ----


def aborted(client, direct, key):
    """WATCH … EXEC that comes too late."""
    assert client("WATCH", "other:watched") == OK
    assert direct("INCR", "other:watched") > 0
    reply = client.pipeline([("MULTI",), ("DEL", key), ("EXEC",)])[-1]
    assert reply is None or reply is NIL_ARRAY


def test_a_refused_release_leaves_it_kept(make, redis):
    headgate = make(RULE)
    client, direct = headgate.connect(), redis.connect()
    assert direct("SET", "other:there", 1) == OK
    digest = client("SCRIPT", "LOAD", COMPARE_AND_DELETE)
    refused = {
        "evalsha": (by("EVALSHA", digest, 1, "KEY", "wrong"), 0),
        "delifeq": (by("DELIFEQ", "KEY", "wrong"), 0),
        "extend": (by("EVAL", COMPARE_AND_PEXPIRE, 1, "KEY", "wrong", 1), None),
        "renamenx": (by("RENAMENX", "KEY", "other:there"), 0),
        "discard": (lambda client, key: client.pipeline([("MULTI",), ("DEL", key), ("DISCARD",)])[-1], OK),
        "multi": (in_transaction(("EVALSHA", digest, 1, "KEY", "wrong")), [0]),
        "abort": (lambda client, key: aborted(client, direct, key), None),
        "queued-badly": (
            lambda client, key: client.pipeline([("MULTI",), ("DEL", key), ("GET",), ("EXEC",)])[-1][:9],
            b"EXECABORT",
        ),
        "other-database": (
            lambda client, key: client.pipeline([("SELECT", 1), ("DEL", key), ("SELECT", 0)]),
            [OK, 0, OK],
        ),
        "error": (lambda client, key: isinstance(client("GETDEL", key, "too many"), Error), True),
        "pexpire-gt": (by("PEXPIRE", "KEY", 1, "GT"), 0),
    }
    keys = [f"lock:{name}" for name in refused]
    for key in keys:
        take(client, key)
    for name, (attempt, expected) in refused.items():
        assert attempt(client, f"lock:{name}") == expected, name
    client("ZADD", "lock:sem", time.time(), "id")
    assert client("ZREM", "lock:sem", "another") == 0
    assert_kept(redis, keys)
    assert keys_of(headgate) == {*keys, "lock:sem"}
    assert not losses(headgate) and "released_total" not in counters(headgate)


# ---- released and taken at once ----


GIVEN_BACK = {
    "del": [("SET", "KEY", "t", "NX", "PX", LEASE_MS), ("DEL", "KEY")],
    "script": [("SET", "KEY", "t", "NX", "PX", LEASE_MS), ("EVAL", COMPARE_AND_DELETE, 1, "KEY", "t")],
    "often": [("SET", "KEY", "t", "NX", "PX", LEASE_MS), ("DEL", "KEY")] * 7,
    "multi": [("MULTI",), ("SET", "KEY", "t", "NX", "PX", LEASE_MS), ("DEL", "KEY"), ("EXEC",)],
    "setnx": [("SETNX", "KEY", "t"), ("DEL", "KEY")],
}


def for_key(commands, key):
    return [tuple(key if word == "KEY" else word for word in command) for command in commands]


def test_taken_and_released_in_one_pipeline(make, redis, monitor):
    headgate = make(RULE)
    client = headgate.connect()
    keys = {f"lock:{name}": commands for name, commands in GIVEN_BACK.items()}
    for key, commands in keys.items():
        client.pipeline(for_key(commands, key))
    await_keys(headgate, [])
    assert_untouched(redis, monitor, keys)
    assert all(life == -2 for life in remaining(redis, *keys).values())
    assert not losses(headgate)


# ---- many locks ----


@pytest.mark.threads
def test_hundreds_of_locks(make_shared, redis):
    headgate = make_shared(RULE, threads=4)
    clients = [headgate.connect() for _ in range(4)]
    keys = [f"lock:{number}" for number in range(800)]
    for number, client in enumerate(clients):
        mine = keys[number::4]
        replies = client.pipeline([("SET", key, f"token{number}", "NX", "PX", 2 * LEASE_MS) for key in mine])
        assert replies == [OK] * len(mine)
    assert counter(headgate, "held") == 800
    assert_kept(redis, keys, 10)
    assert not losses(headgate)
    for number, client in enumerate(clients):
        mine = keys[number::4]
        commands = [("EVAL", COMPARE_AND_DELETE, 1, key, f"token{number}") for key in mine]
        assert client.pipeline(commands) == [1] * len(mine)
    await_counter(headgate, "released_total", 800)
    assert counter(headgate, "held") == 0
