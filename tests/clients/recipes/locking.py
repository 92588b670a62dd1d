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


# ---- kinds of locks ----

REENTRANT_LOCK = """
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('expire', KEYS[1], ARGV[2])
    return 1
end
return 0
"""
REENTRANT_UNLOCK = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
local held = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if held > 0 then return held end
redis.call('del', KEYS[1])
return 0
"""


def recipe_reentrant_lock(place):
    client = place.connect()
    lock, unlock = client.register_script(REENTRANT_LOCK), client.register_script(REENTRANT_UNLOCK)
    seen = [lock(["lock:reentrant"], [owner, LEASE]) for owner in ("a", "a", "b", "a")]
    seen += [unlock(["lock:reentrant"], [owner]) for owner in ("b", "a", "a", "a", "a")]
    return seen, lock(["lock:reentrant"], ["b", LEASE]), unlock(["lock:reentrant"], ["b"])


def recipe_fair_lock(place):
    """Who asked first has it first: a list of those who wait, and each waits for a message of its own."""
    clients = [place.connect() for _ in range(4)]
    order = []
    for number, client in enumerate(clients):
        client.rpush("fair:waiting", number)
    clients[0].lpush("fair:turn:0", "go")

    def body(number):
        client = clients[number]
        assert client.blpop(f"fair:turn:{number}", 60)
        assert client.set("lock:fair", number, nx=True, ex=LEASE)
        order.append(number)
        client.lpop("fair:waiting")
        client.eval(COMPARE_AND_DELETE, 1, "lock:fair", number)
        follower = client.lindex("fair:waiting", 0)
        if follower is not None:
            client.lpush(f"fair:turn:{follower}", "go")

    together(4, body)
    return order


def recipe_read_write_lock(place):
    """Readers are counted in a hash; a writer wants nobody there."""
    read = """
    if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
    redis.call('hset', KEYS[1], 'mode', 'read')
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('expire', KEYS[1], ARGV[2])
    return 1
    """
    write = """
    if redis.call('exists', KEYS[1]) == 1 then return 0 end
    redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)
    redis.call('expire', KEYS[1], ARGV[2])
    return 1
    """
    leave = """
    if redis.call('hincrby', KEYS[1], ARGV[1], -1) <= 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
    if redis.call('hlen', KEYS[1]) == 1 then return redis.call('del', KEYS[1]) end
    return 0
    """
    client, key = place.connect(), ["lock:rw"]
    read, write, leave = (client.register_script(text) for text in (read, write, leave))
    seen = [read(key, ["a", LEASE]), read(key, ["b", LEASE]), write(key, ["c", LEASE])]
    seen += [leave(key, ["a"]), leave(key, ["b"]), write(key, ["c", LEASE]), read(key, ["a", LEASE]), leave(key, ["c"])]
    return seen


def recipe_multi_lock(place):
    """All of several locks or none, whatever the order in which they are named."""
    client, token = place.connect(), "holder"
    names = [f"lock:multi:{number}" for number in range(3)]

    def acquire(wanted):
        taken = []
        for name in sorted(wanted):
            if not client.set(name, token, nx=True, ex=LEASE):
                for back in taken:
                    client.eval(COMPARE_AND_DELETE, 1, back, token)
                return False
            taken.append(name)
        return True

    first = acquire(names)
    blocked = acquire([*names[1:], "lock:multi:9"]), client.exists("lock:multi:9")
    released = [client.eval(COMPARE_AND_DELETE, 1, name, token) for name in names]
    at_once = client.msetnx(dict.fromkeys(names, token)), client.msetnx({names[0]: token, "lock:multi:9": token})
    return first, blocked, released, at_once, client.delete(*names)


def recipe_redlock_over_five_servers(place):
    """A lock counts if most servers gave it; of those that did not, what was given is given back."""
    addresses = [place.address, *place.others]
    clients = [place.connect(address) for address in addresses]

    def acquire(token):
        taken = [bool(client.set("lock:red", token, nx=True, px=LEASE * 1000)) for client in clients]
        if sum(taken) > len(clients) // 2:
            return True
        release(token)
        return False

    def release(token):
        return sum(client.eval(COMPARE_AND_DELETE, 1, "lock:red", token) for client in clients)

    first, second = acquire("a"), acquire("b")
    clients[-1].set("lock:red", "an old one", ex=LEASE)
    released = release("a")
    clients[0].set("lock:red", "another old one", ex=LEASE)
    third = acquire("c")
    return len(clients), first, second, released, third, release("c"), [client.delete("lock:red") for client in clients]


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
