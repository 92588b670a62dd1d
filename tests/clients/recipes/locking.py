"""Locks and semaphores as clients make them."""

import threading
import time
import uuid

import redis

COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
# Longer than any of the recipes takes: what is seen must not depend on how fast the machine is.
LEASE = 60


def together(count, body):
    """Runs body(number) in so many threads; what they gave, in their order."""
    results = [None] * count

    def run(number):
        results[number] = body(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return results


def guarded(place, acquire, release, rounds=10, workers=4):
    """Workers add to a counter that only a lock protects: reading and writing are two commands."""

    def body(_number):
        client = place.connect()
        for _ in range(rounds):
            token = acquire(client)
            value = int(client.get("counter") or 0)
            client.set("counter", value + 1)
            assert release(client, token)

    together(workers, body)
    return int(place.connect().get("counter"))


def until(attempt, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = attempt()
        if found:
            return found
        time.sleep(0.002)
    raise AssertionError("the lock was never to be had")


# ---- one key ----


def release_by_watch(client, key, token):
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(key)
                if pipe.get(key) != token:
                    pipe.unwatch()
                    return False
                pipe.multi()
                pipe.delete(key)
                pipe.execute()
                return True
            except redis.WatchError:
                continue


def recipe_lock_with_time_out_and_release_by_watch(place):
    def acquire(client):
        token = str(uuid.uuid4())
        until(lambda: client.set("lock:market", token, nx=True, ex=LEASE))
        return token

    added = guarded(place, acquire, lambda client, token: release_by_watch(client, "lock:market", token))
    client = place.connect()
    token = acquire(client)
    stolen = release_by_watch(client, "lock:market", "another")
    return added, stolen, release_by_watch(client, "lock:market", token), client.exists("lock:market")


def recipe_setnx_with_expire_and_its_healing(place):
    """Who finds a lock without a time to live gives it one: its holder may have died in between."""

    def acquire(client):
        token = str(uuid.uuid4())

        def attempt():
            if client.setnx("lock:old", token):
                client.expire("lock:old", LEASE)
                return True
            if client.ttl("lock:old") == -1:
                client.expire("lock:old", LEASE)
            return False

        until(attempt)
        return token

    added = guarded(place, acquire, lambda client, token: client.eval(COMPARE_AND_DELETE, 1, "lock:old", token))
    client = place.connect()
    client.setnx("lock:old", "a holder that has died")
    client.expire("lock:old", LEASE)
    return added, 0 < client.ttl("lock:old") <= LEASE, client.delete("lock:old")


def recipe_set_nx_ex_with_compare_and_delete(place):
    def acquire(client):
        token = str(uuid.uuid4())
        until(lambda: client.set("lock:a", token, nx=True, px=LEASE * 1000))
        return token

    added = guarded(place, acquire, lambda client, token: client.eval(COMPARE_AND_DELETE, 1, "lock:a", token))
    return added, place.connect().eval(COMPARE_AND_DELETE, 1, "lock:a", "none")


def recipe_lock_of_the_library(place):
    """redis-py's own Lock, whose scripts are loaded."""
    locks = {}

    def acquire(client):
        lock = client.lock("lock:library", timeout=LEASE, blocking_timeout=60, sleep=0.002)
        assert lock.acquire()
        locks[id(lock)] = lock
        return id(lock)

    def release(_client, token):
        locks.pop(token).release()
        return True

    added = guarded(place, acquire, release)
    with place.connect().lock("lock:library", timeout=LEASE) as lock:
        seen = lock.owned(), lock.extend(LEASE, replace_ttl=True), lock.reacquire()
    return added, seen


# ---- semaphores ----


def recipe_counting_semaphore(place):
    client = place.connect()

    def acquire(token, limit):
        with client.pipeline() as pipe:
            pipe.zremrangebyscore("semaphore:remote", "-inf", time.time() - LEASE)
            pipe.zadd("semaphore:remote", {token: time.time()})
            pipe.zrank("semaphore:remote", token)
            if pipe.execute()[-1] < limit:
                return True
        client.zrem("semaphore:remote", token)
        return False

    seen = [acquire(f"holder{number}", 3) for number in range(5)]
    return seen, client.zrem("semaphore:remote", "holder1"), acquire("holder7", 3), client.zcard("semaphore:remote")


def acquire_fair(client, name, token, limit):
    owners, counter = f"{name}:owner", f"{name}:counter"
    now = time.time()
    with client.pipeline() as pipe:
        pipe.zremrangebyscore(name, "-inf", now - LEASE)
        pipe.zinterstore(owners, {owners: 1, name: 0})
        pipe.incr(counter)
        number = pipe.execute()[-1]
        pipe.zadd(name, {token: now})
        pipe.zadd(owners, {token: number})
        pipe.zrank(owners, token)
        if pipe.execute()[-1] < limit:
            return True
        pipe.zrem(name, token)
        pipe.zrem(owners, token)
        pipe.execute()
    return False


def release_fair(client, name, token):
    with client.pipeline() as pipe:
        pipe.zrem(name, token)
        pipe.zrem(f"{name}:owner", token)
        return pipe.execute()


def refresh_fair(client, name, token):
    """ZADD adds a member that is gone: then the permit was lost, and the client lets go of it."""
    if client.zadd(name, {token: time.time()}):
        release_fair(client, name, token)
        return False
    return True


def recipe_fair_semaphore_with_counter_and_owner_set(place):
    client, name = place.connect(), "semaphore:fair"
    seen = [acquire_fair(client, name, f"holder{number}", 3) for number in range(5)]
    released = release_fair(client, name, "holder0")
    return seen, released, acquire_fair(client, name, "holder9", 3), client.zrange(f"{name}:owner", 0, -1, withscores=True)


def recipe_refresh_of_a_fair_semaphore(place):
    client, name = place.connect(), "semaphore:kept"
    taken = acquire_fair(client, name, "holder", 2)
    kept = [refresh_fair(client, name, "holder") for _ in range(3)]
    release_fair(client, name, "holder")
    return taken, kept, refresh_fair(client, name, "holder"), client.exists(name, f"{name}:owner")


def recipe_semaphore_without_races(place):
    """The same under a short lock: of many who ask at once exactly as many get in as may."""

    def body(number):
        client, token = place.connect(), f"holder{number}"
        until(lambda: client.set("lock:semaphore", token, nx=True, ex=LEASE))
        try:
            return acquire_fair(client, "semaphore:safe", token, 4)
        finally:
            client.eval(COMPARE_AND_DELETE, 1, "lock:semaphore", token)

    admitted = together(12, body)
    holders = [number for number, is_in in enumerate(admitted) if is_in]
    client = place.connect()
    given_back = [release_fair(client, "semaphore:safe", f"holder{number}") for number in holders]
    return sum(admitted), given_back, client.zcard("semaphore:safe")
