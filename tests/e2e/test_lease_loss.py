"""[lease:NAME]: how a lease ends that nobody has released: lost to others, held for max_hold, with Redis away."""

import collections
import os
import time

import pytest

from harness.leases import (
    LEASE_MS, assert_untouched, await_gone, await_keys, await_lease, counter, counters, lease_of, losses, remaining, rule,
    say, score_of, take,
)
from harness.resp import OK, Error, wait_for

RULE = rule(ttl=f"{LEASE_MS}ms")

# What somebody does behind Headgate's back, and what the lock or permit is lost for.
LOCKS = {
    "DEL KEY": "gone", "RENAME KEY other:renamed": "gone", "SET KEY other PX 60000": "taken", "PERSIST KEY": "persisted",
    "PEXPIRE KEY 20000": "shortened", "DEL KEY; RPUSH KEY t": "type",
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


# ---- Redis ----


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


def test_whose_locks_a_drain_does_not_renew(make_shared, redis, monitor):
    """What was released or dropped; and of an owner that has gone for good, or may come back elsewhere, within grace."""
    grace, after = (rule(name, keys=f"lock:{name}", owner="connection", **more) for name, more in (("within", {"grace": "60s"}), ("after", {})))
    headgate = make_shared(grace + after + RULE)
    client, dying = headgate.connect(), headgate.connect()
    keys = ["lock:released", "lock:dropped", "lock:within", "lock:after"]
    for key in ("lock:held", *keys):
        take(dying if key in keys[2:] else client, key, ms=3000 if key in keys[2:] else LEASE_MS)
    dying.reset()
    assert client("DEL", "lock:released") == 1
    with headgate.admin() as admin:
        assert admin("LEASE", "DROP", "lock:dropped") == OK
    await_keys(headgate, ["lock:held", "lock:within"])
    await_lease(headgate, "lock:within", "ownerless")
    start = monitor.mark(redis)
    assert headgate.terminate() == 0
    monitor.mark(redis)
    assert monitor.renewals("lock:held", start) and not [line for key in keys for line in monitor.of(key, start)]
