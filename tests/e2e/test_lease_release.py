"""[lease:NAME]: released means released, by whatever way, connection, worker or Headgate; and what is not released is
kept."""

import time


from harness.leases import (
    COMPARE_AND_DELETE, LEASE_MS, assert_kept, assert_untouched, await_keys, await_left, counter, counters, keys_of, lease_of,
    losses, remaining, rule, say, take,
)
from harness.resp import NIL_ARRAY, OK, Error, wait_for

RULE = rule(ttl=f"{LEASE_MS}ms")


# How it is released, and what the client is told: so that the key is gone, or is no business of the watchdog any more.
GONE = {
    "DEL KEY": 1,
    "DEL lock:none KEY other:none": 1,
    "GETDEL KEY": b"t",
    "EVAL RELEASE 1 KEY t": 1,
    "DELIFEQ KEY t": 1,
    "MULTI; PING; UNLINK KEY; EXEC": [b"PONG", 1],
    "RENAME KEY renamed:KEY": OK,
    "RENAMENX KEY renamed:KEY": 1,
    "MOVE KEY 1": 1,
    "PEXPIRE KEY 0": 1,
    "EXPIREAT KEY 1": 1,
    "EVAL EXTEND 1 KEY t 0": 1,
}
STAYS = {"SET KEY other PX 60000": OK, "SET KEY t": OK, "SET KEY other XX": OK, "PSETEX KEY 60000 t": OK, "PERSIST KEY": 1}


def test_released_is_released(make, redis, monitor):
    headgate = make(RULE)
    client = headgate.connect()
    ways = {**GONE, **STAYS, "EVALSHA %s 1 KEY t" % client("SCRIPT", "LOAD", COMPARE_AND_DELETE).decode(): 1}
    keys = {f"lock:{number}": way for number, way in enumerate(ways)}
    for key in keys:
        take(client, key)
    assert client("ZADD", "lock:zrem", time.time(), "id") == 1
    # Each was kept for a while, so that it is something else that ends it.
    wait_for(lambda: all(monitor.renewals(key) for key in keys), what="each to have been renewed")
    for key, way in keys.items():
        assert say(client, way, key) == ways[way], way
    assert client("ZREM", "lock:zrem", "none", "id") == 1
    await_keys(headgate, [])
    assert_untouched(redis, monitor, [*keys, "lock:zrem"])
    assert {keys[key] for key, life in remaining(redis, *keys).items() if life != -2} == set(STAYS)
    await_left(redis, *(f"renamed:{key}" for key in keys))
    assert not losses(headgate)
    assert counters(headgate)["released_total"] == len(ways) + 1 == counters(headgate)["acquired_total"]


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


REFUSED = {
    "EVAL RELEASE 1 KEY wrong": 0,
    "DELIFEQ KEY wrong": 0,
    "EVAL EXTEND 1 KEY wrong 1": None,
    "RENAMENX KEY other:there": 0,
    "MULTI; DEL KEY; DISCARD": OK,
    "MULTI; EVAL RELEASE 1 KEY wrong; EXEC": [0],
    "MULTI; DEL KEY; GET; EXEC": Error(b"EXECABORT Transaction discarded because of previous errors."),
    "SELECT 1; DEL KEY; SELECT 0": OK,
    "GETDEL KEY much": Error(b"ERR wrong number of arguments for 'getdel' command"),
    "PEXPIRE KEY 1 GT": 0,
}


def test_a_refused_release_leaves_it_kept(make, redis):
    headgate = make(RULE)
    client, direct = headgate.connect(), redis.connect()
    assert direct("SET", "other:there", 1) == OK
    keys = {f"lock:{number}": line for number, line in enumerate(REFUSED)}
    for key in [*keys, "lock:aborted"]:
        take(client, key)
    for key, line in keys.items():
        assert say(client, line, key) == REFUSED[line], line
    # WATCH … EXEC that comes too late.
    assert client("WATCH", "other:watched") == OK and direct("INCR", "other:watched") == 1
    assert say(client, "MULTI; DEL KEY; EXEC", "lock:aborted") in (None, NIL_ARRAY)
    client("ZADD", "lock:sem", time.time(), "id")
    assert client("ZREM", "lock:sem", "another") == 0
    assert_kept(redis, [*keys, "lock:aborted"])
    assert keys_of(headgate) == {*keys, "lock:aborted", "lock:sem"}
    assert not losses(headgate) and "released_total" not in counters(headgate)


AT_ONCE = "SET KEY t NX PX MS; DEL KEY"
GIVEN_BACK = [AT_ONCE, "; ".join([AT_ONCE] * 7), f"MULTI; {AT_ONCE}; EXEC", "SETNX KEY t; DEL KEY"]
GIVEN_BACK += ["SET KEY t NX PX MS; EVAL RELEASE 1 KEY t"]


def test_taken_and_released_in_one_pipeline(make, redis, monitor):
    headgate = make(RULE)
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(len(GIVEN_BACK))]
    assert [say(client, line, key) for line, key in zip(GIVEN_BACK, keys)] == [1, 1, [OK, 1], 1, 1]
    await_keys(headgate, [])
    assert_untouched(redis, monitor, keys)
    assert all(life == -2 for life in remaining(redis, *keys).values())
    assert not losses(headgate)
