"""[lease:NAME]: how a lease ends that nobody has released: lost to others, held for max_hold, with Redis away."""

import collections
import os
import time

import pytest

from harness.leases import (
    LEASE_MS, LONG, Monitor, assert_kept, assert_untouched, await_counter, await_gone, await_keys, await_lease, counter,
    counters, keys_of, lease_of, losses, remaining, rule, say, score_of, take,
)
from harness.resp import OK, Error, wait_for
from harness.rules import launch

RULE = rule(ttl=f"{LEASE_MS}ms")


# What somebody does behind Headgate's back, and what the lock or permit is lost for.
LOCKS = {
    "DEL KEY": "gone",
    "RENAME KEY other:renamed": "gone",
    "SET KEY other PX 60000": "taken",
    "PERSIST KEY": "persisted",
    "PEXPIRE KEY 20000": "shortened",
    "DEL KEY; RPUSH KEY t": "type",
}
PERMITS = {"ZREMRANGEBYSCORE KEY -inf +inf": "gone", "ZADD KEY 1 other; ZREM KEY id": "taken", "DEL KEY; SET KEY id": "type"}
SAID = {"taken": "taken by another", "persisted": "made persistent", "type": "of another type"}


def test_what_others_do_is_a_loss(make, redis, monitor):
    """Each is counted for its reason, logged, never brought back, and never asked about again."""
    headgate = make(RULE + rule("sem", keys="sem:*", ttl=f"{LEASE_MS}ms"))
    client, direct = headgate.connect(), redis.connect()
    keys = {f"lock:{number}": line for number, line in enumerate(LOCKS)}
    for key in [*keys, "lock:untouched"]:
        take(client, key)
    for number, line in enumerate(PERMITS):
        assert client("ZADD", f"sem:{number}", time.time(), "id") == 1
        keys[f"sem:{number}"] = line
    # Who holds them is looked up beside; until then it is a connection.
    wait_for(lambda: lease_of(headgate, "lock:0")["owner"] == f"process:{os.getpid()}", what="the owner's process")
    for key, line in keys.items():
        assert not isinstance(say(direct, line, key), Error)
    await_keys(headgate, ["lock:untouched"])
    reasons = {**LOCKS, **PERMITS}
    assert losses(headgate) == collections.Counter(reasons.values())
    assert "released_total" not in counters(headgate)
    assert_untouched(redis, monitor, keys)
    left = remaining(redis, *keys)
    assert {line for key, line in keys.items() if left[key] == -2} == {"DEL KEY", "RENAME KEY other:renamed", list(PERMITS)[0]}
    assert [left[key] for key, line in keys.items() if line == "PERSIST KEY"] == [-1]
    log = headgate.log()
    for key, line in keys.items():
        assert f"lock lost ({SAID.get(reasons[line], reasons[line])}): {key} of process:{os.getpid()}, held for " in log, line
    assert "lock:untouched" not in log


def test_losses_do_not_fill_the_log(make_shared, redis):
    headgate = make_shared(RULE)
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(300)]
    assert client.pipeline([("SET", key, "t", "NX", "PX", LEASE_MS) for key in keys]) == [OK] * 300
    redis.connect()("FLUSHALL")
    await_keys(headgate, [])
    assert losses(headgate) == {"gone": 300}
    assert 1 <= headgate.log().count("lock lost (gone)") <= 100


# ---- Redis ----


@pytest.mark.parametrize(("pool", "pause"), [("session", 0), ("shared", LONG)], ids=["session", "after a lease"])
def test_redis_comes_back_empty(redis, make_headgate, pool, pause):
    """Every lock is lost, none is brought back, and each is asked for a few times at most."""
    headgate = launch(make_headgate, redis, pool, rule())
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(100)]
    assert client.pipeline([("SET", key, "t", "NX", "PX", 800 if pause else LEASE_MS) for key in keys]) == [OK] * len(keys)
    keeper = headgate.connect()
    redis.kill()
    time.sleep(pause)
    redis.start()
    monitor = Monitor(redis)
    await_keys(headgate, [])
    if pause:
        assert sum(losses(headgate).values()) == 100, counters(headgate)
        assert set(losses(headgate)) <= {"gone", "unreachable"}
    else:
        # Where each client has a connection of its own, it is closed, and with it goes the owner.
        assert sum(losses(headgate).values()) + counters(headgate).get("owner_gone_total", 0) == 100
    start = monitor.mark(redis)
    time.sleep(LONG)
    assert redis.connect()("DBSIZE") == 0
    scripts = [line for line in monitor.lines if '"lock:' in line]
    monitor.close()
    assert len(scripts) <= 4 * len(keys), "a storm"
    assert not [line for line in monitor.lines[start:] if '"lock:' in line]
    keeper.close()
    wait_for(headgate.serves, what="Headgate to serve again")
    client = headgate.connect()
    take(client, "lock:1")
    assert_kept(redis, ["lock:1"])


def test_redis_comes_back_as_it_was_before(make_shared, redis):
    """From a file that is older than a renewal, and than a time to live: who has the locks has them still."""
    headgate = make_shared(rule(ttl="20s", renew="1/8"))
    client, direct = headgate.connect(), redis.connect()
    take(client, "lock:a", ms=20_000)
    assert client("SETNX", "lock:endless", "t") == 1
    assert direct("SAVE") == OK
    await_counter(headgate, "healed_total", 1)
    wait_for(lambda: int(lease_of(headgate, "lock:a")["renewals"]) > 0, what="a renewal")
    redis.kill()
    redis.start()
    await_counter(headgate, "healed_total", 2)
    wait_for(lambda: losses(headgate) or int(lease_of(headgate, "lock:a")["renewals"]) > 1, what="another one")
    assert keys_of(headgate) == {"lock:a", "lock:endless"} and not losses(headgate)


def test_headgate_may_not_run_scripts(make_shared, redis):
    """Renewals fail: counted, logged once, and the lock ends as lost."""
    direct = redis.connect()
    assert direct("ACL", "SETUSER", "gate", "on", ">secret", "~*", "&*", "+@all", "-eval", "-evalsha") == OK
    headgate = make_shared(rule(), upstream_user="gate", upstream_password="secret")
    client = headgate.connect()
    for key in ("lock:a", "lock:b", "lock:c"):
        take(client, key, ms=3000)
    await_gone(redis, "lock:a", "lock:b", "lock:c")
    await_keys(headgate, [])
    assert counter(headgate, "failures_total") >= 3
    assert losses(headgate) == {"unreachable": 3}
    log = headgate.log()
    assert log.count("policy: rule lease: NOPERM") == 1, log
    assert "lock lost (not renewed in time): lock:a of " in log


# ---- Headgate ----


@pytest.mark.threads
@pytest.mark.parametrize(("late_ms", "threads"), [(0, 1), (1000, 4)], ids=["", "late"])
def test_a_drain_renews_once_more(make_shared, redis, monitor, threads, late_ms):
    """So that clients have a whole lease to come back in, however late Redis answers."""
    headgate = make_shared(rule(renew="9/10", ttl="4s"), threads=threads)
    clients = [headgate.connect() for _ in range(8)]
    keys = {f"lock:{number}": client for number, client in enumerate(clients)}
    for key, client in keys.items():
        take(client, key, ms=6000)
    assert clients[0]("ZADD", "lock:sem", (score := time.time()), "id") == 1
    time.sleep(1.5)
    assert max(remaining(redis, *keys).values()) < 4700
    with headgate.admin() as admin:
        leases = admin("LEASES").decode()
    start = monitor.mark(redis)
    if late_ms:
        assert redis.connect()("CLIENT", "PAUSE", late_ms) == OK
    assert headgate.terminate() == 0
    monitor.mark(redis)
    renewals = {key: monitor.renewals(key, start) for key in keys}
    assert all(lines[-1:] and '"6000"' in lines[-1] for lines in renewals.values()), (renewals, leases)
    # Of a permit whose rank counts two thirds: its score stays as old as it may.
    assert score_of(redis, "lock:sem", "id") > score + 0.1


def test_a_drain_does_not_bring_back_what_was_released(make_shared, redis, monitor):
    headgate = make_shared(RULE)
    client = headgate.connect()
    for key in ("lock:released", "lock:dropped", "lock:held"):
        take(client, key)
    assert client("DEL", "lock:released") == 1
    with headgate.admin() as admin:
        assert admin("LEASE", "DROP", "lock:dropped") == OK
    start = monitor.mark(redis)
    assert headgate.terminate() == 0
    monitor.mark(redis)
    assert monitor.renewals("lock:held", start)
    assert not monitor.of("lock:released", start) and not monitor.of("lock:dropped", start)


def test_a_drain_and_the_owner_that_left_before(make_shared, redis, monitor):
    """Who has gone for good is not helped; who may come back elsewhere is neither, as nothing is renewed in grace."""
    headgate = make_shared(rule("within", keys="lock:within", grace="60s") + rule("after", keys="lock:after"))
    client = headgate.connect()
    take(client, "lock:within", ms=3000)
    take(client, "lock:after", ms=3000)
    client.reset()
    await_keys(headgate, ["lock:within"])
    await_lease(headgate, "lock:within", "ownerless")
    start = monitor.mark(redis)
    assert headgate.terminate() == 0
    assert not monitor.renewals("lock:within", start) and not monitor.renewals("lock:after", start)
