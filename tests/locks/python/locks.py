"""Locks in Python: HOST PORT LIBRARY. The protocol is told in tests/locks/laboratory.py.

The libraries are redis-py and python-redis-lock; the rest is what applications write by hand, in the shapes of "Redis
in Action" and of the documentation of Redis.
"""

import sys
import time
import uuid

import redis

COMPARE_AND_DELETE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
)


class RedisPy:
    def __init__(self, client, name, lease_ms):
        self.lock = client.lock(name, timeout=lease_ms / 1000)

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def extend(self, lease_ms):
        return self.lock.extend(lease_ms / 1000, replace_ttl=True)

    def release(self):
        self.lock.release()
        return True


class PythonRedisLock:
    """Its keys begin with "lock:"; its leases are whole seconds."""

    renews = False

    def __init__(self, client, name, lease_ms):
        import redis_lock

        self.lock = redis_lock.Lock(client, name, expire=lease_ms // 1000, auto_renewal=self.renews)

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def extend(self, lease_ms):
        self.lock.extend(lease_ms // 1000)
        return True

    def release(self):
        self.lock.release()
        return True


class PythonRedisLockRenewed(PythonRedisLock):
    renews = True


class ByHand:
    def __init__(self, client, name, lease_ms):
        self.client = client
        self.name = name
        self.lease_ms = lease_ms
        self.token = str(uuid.uuid4())


class SetNx(ByHand):
    def acquire(self):
        return bool(self.client.execute_command("SET", self.name, self.token, "NX", "PX", self.lease_ms))

    def release(self):
        return self.client.eval(COMPARE_AND_DELETE, 1, self.name, self.token) == 1


class SetNxGet(SetNx):
    """Nothing was there before: acquired."""

    def acquire(self):
        arguments = ("SET", self.name, self.token, "PX", self.lease_ms, "NX", "GET")
        # redis-py would take the nil for a refusal, as it is without GET.
        connection = self.client.connection_pool.get_connection("SET")
        try:
            connection.send_command(*arguments)
            return connection.read_response() is None
        finally:
            self.client.connection_pool.release(connection)


class BookLock(ByHand):
    """SETNX and EXPIRE; who finds the lock taken without a time to live gives it one. Whole seconds."""

    def acquire(self):
        if self.client.setnx(self.name, self.token):
            self.client.expire(self.name, self.lease_ms // 1000)
            return True
        if self.client.ttl(self.name) < 0:
            self.client.expire(self.name, self.lease_ms // 1000)
        return False

    def release(self):
        with self.client.pipeline() as pipeline:
            while True:
                try:
                    pipeline.watch(self.name)
                    if pipeline.get(self.name) != self.token.encode():
                        return False
                    pipeline.multi()
                    pipeline.delete(self.name)
                    return pipeline.execute() == [1]
                except redis.WatchError:
                    pass


class BookLockWithoutExpire(BookLock):
    """Its owner dies between SETNX and EXPIRE, or has never heard of EXPIRE."""

    def acquire(self):
        return bool(self.client.setnx(self.name, self.token))


class BookSemaphore(ByHand):
    """Of one holder; the score is when it was acquired."""

    def acquire(self):
        now = time.time()
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.zremrangebyscore(self.name, "-inf", now - self.lease_ms / 1000)
            pipeline.zadd(self.name, {self.token: now})
            pipeline.zrank(self.name, self.token)
            rank = pipeline.execute()[-1]
        if rank < 1:
            return True
        self.client.zrem(self.name, self.token)
        return False

    def release(self):
        return self.client.zrem(self.name, self.token) == 1


class BookFairSemaphore(ByHand):
    """Beside the times there is a sorted set of those who wait, in the order of a counter. The name is the set of
    times."""

    def acquire(self):
        owners, counter, now = self.name + ":owner", self.name + ":counter", time.time()
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.zremrangebyscore(self.name, "-inf", now - self.lease_ms / 1000)
            pipeline.zinterstore(owners, {owners: 1, self.name: 0})
            pipeline.incr(counter)
            place = pipeline.execute()[-1]
            pipeline.zadd(self.name, {self.token: now})
            pipeline.zadd(owners, {self.token: place})
            pipeline.zrank(owners, self.token)
            rank = pipeline.execute()[-1]
        if rank < 1:
            return True
        self.release()
        return False

    def release(self):
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.zrem(self.name, self.token)
            pipeline.zrem(self.name + ":owner", self.token)
            return pipeline.execute()[0] == 1


LIBRARIES = {
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "python-redis-lock-renewed": PythonRedisLockRenewed,
    "set-nx": SetNx,
    "set-nx-get": SetNxGet,
    "book-lock": BookLock,
    "book-lock-without-expire": BookLockWithoutExpire,
    "book-semaphore": BookSemaphore,
    "book-fair-semaphore": BookFairSemaphore,
}


def answer(text):
    print(text, flush=True)


def main(host, port, library):
    client = redis.Redis(host=host, port=int(port), socket_timeout=30)
    client.ping()
    held = {}
    answer("ready")
    for line in sys.stdin:
        command, name, *lease = line.split()
        if command == "acquire":
            lock = LIBRARIES[library](client, name, int(lease[0]))
            acquired = lock.acquire()
            if acquired:
                held[name] = lock
            answer("yes" if acquired else "no")
        elif command == "extend":
            answer("yes" if held[name].extend(int(lease[0])) else "no")
        elif command == "release":
            answer("yes" if held.pop(name).release() else "no")
        else:
            answer(f"error unknown command {command}")


main(*sys.argv[1:])
