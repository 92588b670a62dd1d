"""[lease:NAME]: released means released, by whatever way, connection, worker or Headgate; and what shows that a lock is held."""

import time

import pytest

from harness.leases import (
    COMPARE_AND_DELETE, COMPARE_AND_EXPIRE, COMPARE_AND_PEXPIRE, LEASE_MS, assert_kept, assert_untouched, await_keys,
    await_left, counters, leases, losses, remaining, rule, say, take, transact,
)
from harness.resp import OK, wait_for

RULE = rule(ttl=f"{LEASE_MS}ms")

# How it is released, and what the client is told: so that the key is gone, or is no business of the watchdog any more.
GONE = {
    "DEL KEY": 1, "DEL lock:none KEY other:none": 1, "GETDEL KEY": b"t", "EVAL RELEASE 1 KEY t": 1, "DELIFEQ KEY t": 1,
    "MULTI; PING; UNLINK KEY; EXEC": [b"PONG", 1], "RENAME KEY renamed:KEY": OK, "RENAMENX KEY renamed:KEY": 1,
    "MOVE KEY 1": 1, "PEXPIRE KEY 0": 1, "EXPIREAT KEY 1": 1, "EVAL EXTEND 1 KEY t 0": 1,
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
