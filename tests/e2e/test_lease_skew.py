"""[lease:NAME]: semaphores whose clients' clocks differ, and leases that end at a date by Redis' clock, which is another
than Headgate's. A permit that is renewed is never in a newcomer's way less than one that was just taken, and is never
swept up by it."""

import time

import pytest

from harness.admin import stats
from harness import world
from harness.leases import (
    LEASE_MS, assert_kept, await_keys, await_lease, counters, losses, rule, sweep_and_add, sweep_and_add_fairly, transact,
)
from harness.resp import OK, wait_for
from harness.threads import at_once

# A third of it is what clocks may differ by; half of that is left to a slow machine.
LEASE = 3.0
THIRD = LEASE / 3
SKEWS = (-THIRD / 2, -0.2, 0.0, 0.0, 0.2, THIRD / 2)
# Renewals come each third of a lease.
SECONDS = 3 * LEASE


def step_by_step(client, key, token, now):
    """Its clock is read long before the others know of it."""
    client("ZREMRANGEBYSCORE", key, "-inf", now - LEASE)
    time.sleep(0.02)
    client("ZADD", key, now, token)
    return client("ZRANK", key, token)


# The rank that the token has: of the book's semaphores, with scores of the start, or of the end.
RECIPES = {
    "by-start": lambda client, key, token, now: sweep_and_add(client, key, token, now, now - LEASE),
    "by-expiry": lambda client, key, token, now: sweep_and_add(client, key, token, now + LEASE, now),
    "step-by-step": step_by_step,
    "fair": lambda client, key, token, now: sweep_and_add_fairly(client, key, token, now, now - LEASE),
}


def poll(headgate, take, key, limit, skews, until):
    """Clients with such clocks that want a permit until then: attempts, and who got one."""
    attempts, granted = [], []

    def work(number):
        client = headgate.connect()
        while time.monotonic() < until:
            token = f"poller-{number}-{len(attempts)}"
            attempts.append(token)
            if take(client, key, token, time.time() + skews[number]) < limit:
                granted.append((token, skews[number]))
            transact(client, ("ZREM", key, token), ("ZREM", f"{key}:owner", token))
            time.sleep(0.1)
        client.close()

    at_once(work, len(skews), seconds=SECONDS + 60)
    return attempts, granted


@pytest.mark.parametrize(("name", "limit"), zip(RECIPES, (1, 2, 1, 2)))
def test_a_renewed_permit_is_not_given_to_another(make_shared, redis, name, limit):
    """Holders that keep their permits for many leases, and those who want one all the time with other clocks. Without
    Headgate a holder is safe once it is older than the clocks differ; with it, it has to stay so."""
    headgate = make_shared(rule(ttl=f"{LEASE * 1000:.0f}ms", owner="connection", renew="1/3"), threads=4)
    holders = [headgate.connect() for _ in range(limit)]
    for number, client in enumerate(holders):
        assert RECIPES[name](client, "lock:a", f"holder-{number}", time.time()) < limit
    # The recipe's own: who comes this soon may have an older stamp.
    time.sleep(THIRD)
    attempts, granted = poll(headgate, RECIPES[name], "lock:a", limit, SKEWS, time.monotonic() + SECONDS)
    assert not granted, f"{len(granted)} of {len(attempts)} attempts got a permit beside the holders"
    assert len(attempts) > 50
    members = redis.connect()("ZRANGE", "lock:a", 0, -1)
    assert sorted(members) == sorted(f"holder-{number}".encode() for number in range(limit))
    for number, client in enumerate(holders):
        assert client("ZREM", "lock:a", f"holder-{number}") == 1
    await_keys(headgate, [])
    found = counters(headgate)
    assert (found["acquired_total"], found["released_total"]) == (limit, limit), found
    assert not losses(headgate) and "unseen_total" not in found


# ---- dates ----

HOUR = 3600


def start_ahead(seconds, redis, make_headgate):
    """A Headgate whose calendar is ahead by so much, and that knows where Redis' clock stands."""
    headgate = make_headgate(redis, start=False)
    headgate.write_rules(rule())
    with world.ahead(seconds):
        headgate.start()
    wait_for(lambda: "redis_clock_offset_us" in stats(headgate), what="Redis' clock to be known")
    return headgate


def assert_kept_to_its_date(redis, headgate, began, now):
    """A lock that ends LEASE_MS after Redis' now is renewed, and is not lost. began: before Redis was asked for it."""
    client = headgate.connect()
    assert client("SET", "lock:a", "t", "NX", "PXAT", int(now * 1000) + LEASE_MS) == OK
    # Where Redis' clock stands is known but for half of what the question took, which is less than all of this.
    lease_ms = int(await_lease(headgate, "lock:a")["lease"])
    assert 0 < lease_ms <= LEASE_MS + 1000 * (time.monotonic() - began) / 2
    assert_kept(redis, ["lock:a"])
    assert client("DEL", "lock:a") == 1
    await_keys(headgate, [])
    assert not losses(headgate)


@pytest.mark.world
@pytest.mark.parametrize(("before", "later"), [(HOUR, HOUR), (0, -HOUR), (-HOUR, HOUR)])
def test_dates_are_those_of_redis(redis, make_headgate, before, later):
    """Headgate's calendar is wrong from the beginning, is set while it runs, or both."""
    began = time.monotonic()
    headgate = start_ahead(before, redis, make_headgate)
    world.skew(headgate.process.pid, later)
    assert_kept_to_its_date(redis, headgate, began, time.time())


def times_told(redis):
    with redis.connect() as direct:
        line = next((line for line in direct("INFO", "commandstats").split() if line.startswith(b"cmdstat_time:")), b"calls=0,")
    return int(line.split(b"calls=")[1].split(b",")[0])


@pytest.mark.world
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_clock_that_both_have_is_set(redis, make_headgate, step):
    """One machine, whose clock is set, or which has slept: Redis is asked anew."""
    headgate = start_ahead(0, redis, make_headgate)
    before = times_told(redis)
    began = time.monotonic()
    for server in (redis, headgate):
        world.skew(server.process.pid, step)
    wait_for(lambda: times_told(redis) > before, what="Redis to be asked for its clock")
    # What is asked behind that is answered behind it.
    assert_kept_to_its_date(redis, headgate, began, time.time() + step)
