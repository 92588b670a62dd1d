"""Locks and semaphores as clients make them."""

import threading
import time
import uuid

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


def recipe_set_nx_ex_with_compare_and_delete(place):
    def acquire(client):
        token = str(uuid.uuid4())
        until(lambda: client.set("lock:a", token, nx=True, px=LEASE * 1000))
        return token

    added = guarded(place, acquire, lambda client, token: client.eval(COMPARE_AND_DELETE, 1, "lock:a", token))
    return added, place.connect().eval(COMPARE_AND_DELETE, 1, "lock:a", "none")


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
