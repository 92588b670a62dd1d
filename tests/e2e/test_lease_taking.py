"""[lease:NAME]: which requests take a lock or a permit that is kept from then on, and which do not.

Many locks of different shapes are looked after at once: a lease lasts as long for one as for all.
"""

import time

import pytest

from harness.leases import (
    COMPARE_AND_DELETE, COMPARE_AND_EXPIRE, COMPARE_AND_PEXPIRE, LEASE, LEASE_MS, LONG, Monitor, assert_kept,
    assert_untouched, await_keys, await_left, counters, keys_of, lease_of, leases, losses, remaining, rule, say, score_of, take,
    transact,
)
from harness.resp import NIL_ARRAY, OK, Error, wait_for


# ---- strings ----


# What is sent, and what Redis says to the last of it. The lease in the file's ttl is that of those without one.
STRINGS = {
    "SET KEY t NX PX MS": OK,
    "SeT KEY t eX 30 Nx": OK,
    "SET KEY t PXAT END NX": OK,
    "SET KEY t NX GET PX MS": None,
    "SETNX KEY t; EXPIRE KEY 30": 1,
    "SETNX KEY t; PEXPIREAT KEY END": 1,
    "SETNX KEY t": 1,
    "MULTI; SET KEY t NX PX MS; EXEC": [OK],
    "MULTI; SETNX KEY t; EXPIRE KEY 30; EXEC": [1, 1],
}


def test_strings_are_kept_and_released(make, redis):
    headgate = make(rule(ttl=f"{LEASE_MS}ms"))
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(len(STRINGS))]
    assert [say(client, line, key) for line, key in zip(STRINGS, keys)] == list(STRINGS.values())
    await_keys(headgate, keys)
    assert_kept(redis, keys, 4)
    found = {lease["key"]: lease for lease in leases(headgate)}
    assert all(lease["kind"] == "string" and int(lease["renewals"]) >= 2 for lease in found.values()), found
    assert all(LEASE_MS / 2 <= int(lease["lease"]) <= 2 * LEASE_MS for lease in found.values()), found
    assert {client("GET", key) for key in keys} == {b"t"}
    assert not losses(headgate)
    assert client("DEL", *keys) == len(keys)
    await_keys(headgate, [])
    assert counters(headgate)["released_total"] == len(keys) == counters(headgate)["acquired_total"]


def test_the_loser_of_setnx_sends_expire_too(make_shared, redis):
    """As in the book: who finds a lock without a time to live gives it one. That does not make the lock its own."""
    headgate = make_shared(rule(ttl=f"{LEASE_MS}ms", owner="connection"))
    winner, loser = headgate.connect(), headgate.connect()
    assert winner("SETNX", "lock:a", "winner") == 1
    assert loser.pipeline([("SETNX", "lock:a", "loser"), ("EXPIRE", "lock:a", 30)]) == [0, 1]
    assert lease_of(headgate, "lock:a")
    loser.reset()
    assert_kept(redis, ["lock:a"], 4)
    winner.reset()
    await_left(redis, "lock:a")


# ---- what is no lock that was taken ----


def test_refused_acquisitions_are_not_watched(make_shared, redis):
    headgate = make_shared(rule())
    client = headgate.connect()
    direct = redis.connect()
    refused = {
        "SET KEY t NX PX MS": None,
        "SETNX KEY t": 0,
        "SET KEY t NX GET PX MS": b"of another",
        "MULTI; SET KEY t NX PX MS; EXEC": [None],
        "MULTI; SETNX KEY t; EXEC": [0],
        "EVAL EXTEND 1 KEY t MS": None,
        "MULTI; SETNX KEY t; DISCARD": OK,
    }
    keys = [f"lock:{number}" for number in range(len(refused))]
    for key in keys:
        assert direct("SET", key, "of another", "PX", 60_000) == OK
    assert [say(client, line, key) for line, key in zip(refused, keys)] == list(refused.values())
    assert client("WATCH", "lock:watched") == direct("SET", "lock:watched", 1) == OK
    assert say(client, "MULTI; SET KEYb t NX PX 60000; SETNX KEYc t; EXEC", "lock:") in (None, NIL_ARRAY)
    time.sleep(LONG)
    assert keys_of(headgate) == set()
    # A transaction's locks are asked for, once.
    assert set(counters(headgate)) <= {"failures_total"}, counters(headgate)
    assert all(life > 50_000 for life in remaining(redis, *keys).values())


def test_keys_of_no_rule_and_other_requests(make_shared, redis):
    headgate = make_shared(rule(keys="lock:* job:[0-9]"))
    client = headgate.connect()
    monitor = Monitor(redis)
    sent = [
        ("SET", "other:a", "t", "NX", "PX", LEASE_MS),
        ("SET", "Lock:a", "t", "NX", "PX", LEASE_MS),
        ("SET", "job:10", "t", "NX", "PX", LEASE_MS),
        ("SET", "lock:plain", "t", "PX", LEASE_MS),
        ("PSETEX", "lock:psetex", LEASE_MS, "t"),
        ("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])", 1, "lock:eval", "t", LEASE_MS),
    ]
    assert client.pipeline(sent) == [OK] * len(sent)
    take(client, "job:7")
    assert keys_of(headgate) == {"job:7"}
    keys = [command[3] if command[0] == "EVAL" else command[1] for command in sent]
    assert_untouched(redis, monitor, keys)
    monitor.close()
    await_left(redis, *keys)
    assert keys_of(headgate) == {"job:7"}


# ---- scripts ----


def test_an_extension_shows_that_a_lock_is_held(make_shared, redis):
    """Taken where Headgate did not see it, as before a restart: from the first proof on it is kept."""
    headgate = make_shared(rule())
    client = headgate.connect()
    digest = client("SCRIPT", "LOAD", COMPARE_AND_PEXPIRE)
    proofs = {
        "lock:eval": lambda key: client("EVAL", COMPARE_AND_PEXPIRE, 1, key, "t", LEASE_MS) == 1,
        "lock:evalsha": lambda key: client("EVALSHA", digest.upper(), 1, key, "t", LEASE_MS) == 1,
        "lock:seconds": lambda key: client("EVAL", COMPARE_AND_EXPIRE, 1, key, "t", LEASE_MS // 1000) == 1,
        "lock:multi": lambda key: transact(client, ("EVALSHA", digest, 1, key, "t", LEASE_MS)) == [1],
        # Compares nothing.
        "lock:set-xx": lambda key: client("SET", key, "t", "XX", "PX", LEASE_MS) == OK,
    }
    with redis.connect() as direct:
        assert direct.pipeline([("SET", key, "t", "PX", 5 * LEASE_MS) for key in proofs]) == [OK] * len(proofs)
    assert [key for key, proof in proofs.items() if not proof(key)] == []
    kept = list(proofs)[:-1]
    await_keys(headgate, kept)
    assert_kept(redis, kept)
    assert not losses(headgate)


@pytest.mark.threads
def test_a_text_is_learned_for_all_workers(make_shared, redis):
    """One client loads a script, others call it by its digest: of whatever worker."""
    headgate = make_shared(rule(), threads=4)
    clients = [headgate.connect() for _ in range(8)]
    release = clients[0]("SCRIPT", "LOAD", COMPARE_AND_DELETE)
    extend = clients[0]("SCRIPT", "LOAD", COMPARE_AND_PEXPIRE)
    for number, client in enumerate(clients):
        take(client, f"lock:{number}", ms=5 * LEASE_MS)
    for number, client in enumerate(clients):
        assert client("EVALSHA", extend, 1, f"lock:{number}", "t", 6 * LEASE_MS) == 1
    assert {lease["lease"] for lease in leases(headgate)} == {str(6 * LEASE_MS)}
    for number, client in enumerate(reversed(clients)):
        assert client("EVALSHA", release, 1, f"lock:{number}", "t") == 1
    await_keys(headgate, [])
    assert counters(headgate)["released_total"] == 8


# ---- semaphores ----


UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}


def test_units_and_meanings_of_scores(make_shared, redis):
    """Scores in three units, as the time of the start or of the end: each goes on in its own."""
    text = ""
    for unit in UNITS:
        options = {"ttl": f"{LEASE_MS}ms"}
        text += rule(f"start{unit}", keys=f"sem:start:{unit}", score="acquired", **options)
        text += rule(f"end{unit}", keys=f"sem:end:{unit}", score="expires", **options)
        text += rule(f"swept{unit}", keys=f"sem:swept:{unit}", **options)
    headgate = make_shared(text)
    client = headgate.connect()
    began = {}
    for unit, factor in UNITS.items():
        now = time.time()
        began[f"sem:start:{unit}"] = now
        assert client("ZADD", f"sem:start:{unit}", f"{now * factor:.17g}", "id") == 1
        began[f"sem:end:{unit}"] = now + LEASE
        assert client("ZADD", f"sem:end:{unit}", f"{(now + LEASE) * factor:.17g}", "id") == 1
        # Who sweeps up to now has scores of the end.
        began[f"sem:swept:{unit}"] = now + LEASE
        key = f"sem:swept:{unit}"
        replies = client.pipeline(
            [("ZREMRANGEBYSCORE", key, 0, f"{now * factor:.17g}"), ("ZADD", key, f"{(now + LEASE) * factor:.17g}", "id")]
        )
        assert replies == [0, 1]
    await_keys(headgate, began)

    def moved(key):
        return score_of(redis, key, "id") / UNITS[key.rsplit(":", 1)[1]] - began[key]

    wait_for(lambda: all(moved(key) > 0.1 for key in began), what="each to be renewed")
    assert all(moved(key) < 60 for key in began), {key: moved(key) for key in began}
    assert not losses(headgate)


def test_members_that_are_no_permits(make_shared, redis):
    """Scores that are no times, several members, options, without a time: a sorted set of other things."""
    headgate = make_shared(rule(keys="sem:*"))
    client = headgate.connect()
    now = time.time()
    sent = [
        ("ZADD", "sem:rank", 17, "id"),
        ("ZADD", "sem:infinite", "+inf", "id"),
        ("ZADD", "sem:option", "CH", now, "id"),
        ("ZADD", "sem:two", now, "a", now, "b"),
        ("ZADD", "sem:far", now + 10 * 366 * 86400, "id"),
        ("ZINCRBY", "sem:by", now, "id"),
    ]
    replies = client.pipeline(sent)
    assert not any(isinstance(reply, Error) for reply in replies), replies
    assert isinstance(client("ZADD", "sem:bad", "x", "id"), Error)
    time.sleep(0.3)
    assert keys_of(headgate) == set()
