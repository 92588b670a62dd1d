"""The lock libraries under test: the program each is in, and what its locks are in Redis."""

import dataclasses
import pathlib
import time

HERE = pathlib.Path(__file__).parent
BUILT = HERE.parents[1] / "build-locks"

PYTHON = [BUILT / "python" / "bin" / "python", HERE / "python" / "locks.py"]
DEBIAN_PYTHON = ["/usr/bin/python3", HERE / "python" / "locks.py"]
NODE = ["node", BUILT / "node" / "locks.js"]
GO = [BUILT / "go" / "locks"]
RUST = [BUILT / "rust" / "target" / "debug" / "headgate-locks"]
PHP = ["php", HERE / "php" / "locks.php"]


def java(version, archive="-XX:SharedArchiveFile"):
    """What takes the shortest time to start: with its classes as java/archive.py has kept them; without, if it cannot read
    that file."""
    place = BUILT / "java" / version
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", f"{archive}={place}/classes.jsa"]
    return ["java", *options, "-cp", f"{place}/*", "Locks"]


# ---- who holds a lock, as Redis tells: the token, or None when nobody does or it has no time to live ----


def string(look, key, _lease):
    return look("GET", key) if look("PTTL", key) >= 0 else None


def hash_lock(look, key, _lease):
    fields = [field for field in look("HKEYS", key) if field != b"mode"]
    assert len(fields) < 2, fields
    return fields[0] if fields and look("PTTL", key) >= 0 else None


def only_member(look, key, least):
    members = look("ZRANGE", key, f"({least}", "+inf", "BYSCORE")
    assert len(members) < 2, members
    return members[0] if members else None


def by_start_in_seconds(look, key, lease):
    """The score is when it was acquired."""
    return only_member(look, key, time.time() - lease / 1000)


def by_start(look, key, lease):
    return only_member(look, key, int(time.time() * 1000) - lease)


def by_expiry(look, key, _lease):
    return only_member(look, key, int(time.time() * 1000))


def symfony(look, key, _lease):
    """Beside the token there is a member that says that it may write. The key must last as long as they."""
    members = look("ZRANGE", key, f"({int(time.time() * 1000)}", "+inf", "BYSCORE")
    tokens = [member for member in members if member != b"__write__"]
    assert len(tokens) < 2, members
    return tokens[0] if len(members) == 2 and look("PTTL", key) >= 0 else None


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    program: list
    argument: str
    holder: object = string
    keys: tuple = ("{}",)  # of a lock with that name
    lease: int = 2000  # ms; what is kept must be renewed in time on a busy machine, too
    renews: bool = False  # by itself
    reentrant: bool = False
    extends: bool = False  # when its owner says so
    rival: bool = True  # others may try to take it and fail
    brief: bool = False  # an older version of one that goes through all tests
    unix: bool = False  # it comes by a Unix socket
    rule: dict = dataclasses.field(default_factory=dict)  # what its rule needs

    def command(self, host, port):
        watchdog = [self.lease] if self.program[0] == "java" else []
        return [str(word) for word in [*self.program, host, port, self.argument, *watchdog]]

    def keys_of(self, name):
        return [key.replace("{}", name) for key in self.keys]


def redisson(version, argument, holder=hash_lock, **facts):
    """Locks with the lease that its watchdog gives are left to it; for the others a lease is asked."""
    rule = {} if argument == "permit" else {"prolong_explicit": "yes"}
    if facts.get("renews"):
        rule = {"watchdog": f"redisson:{Library.lease}ms"}
    return Library(f"redisson-{version}-{argument}", java(version), argument, holder, rule=rule, **facts)


PERMITS = {"holder": by_expiry, "keys": ("{{}}:timeout",)}

LIBRARIES = [
    Library("redis-py", PYTHON, "redis-py", extends=True),
    Library("redis-py-of-debian", DEBIAN_PYTHON, "redis-py", brief=True),
    Library("python-redis-lock", PYTHON, "python-redis-lock", keys=("lock:{}",), extends=True),
    Library(
        "python-redis-lock-renewed", PYTHON, "python-redis-lock-renewed", keys=("lock:{}",), renews=True
    ),
    Library("set-nx", PYTHON, "set-nx"),
    Library("set-nx-get", PYTHON, "set-nx-get"),
    Library("book-lock", PYTHON, "book-lock"),
    Library("book-lock-without-expire", PYTHON, "book-lock-without-expire"),
    Library("book-semaphore", PYTHON, "book-semaphore", by_start_in_seconds),
    Library("book-fair-semaphore", PYTHON, "book-fair-semaphore", by_start_in_seconds, rival=False),
    Library("ioredis", NODE, "ioredis"),
    Library("node-redlock-4", NODE, "node-redlock-4", extends=True),
    Library("node-redlock-5", NODE, "node-redlock-5", extends=True),
    Library("node-redlock-5-two-keys", NODE, "node-redlock-5-two-keys", keys=("{}", "{}:second")),
    Library("node-redlock-5-using", NODE, "node-redlock-5-using", renews=True),
    Library("redis-semaphore-mutex", NODE, "redis-semaphore-mutex", keys=("mutex:{}",)),
    # They renew themselves when a fifth of the lease is left: that has to be enough on a busy machine.
    Library(
        "redis-semaphore-mutex-renewed", NODE, "redis-semaphore-mutex-renewed", keys=("mutex:{}",), lease=5000,
        renews=True,
    ),
    Library(
        "redis-semaphore-semaphore", NODE, "redis-semaphore-semaphore", by_start, keys=("semaphore:{}",),
        rule={"libraries": "redis-semaphore:renew"},
    ),
    Library(
        "redis-semaphore-semaphore-renewed", NODE, "redis-semaphore-semaphore-renewed", by_start,
        keys=("semaphore:{}",), lease=5000, renews=True,
    ),
    Library("redsync", GO, "redsync"),
    Library("redislock", GO, "redislock", extends=True),
    Library("go-redis", GO, "go-redis"),
    # It closes its connection with the reply. Of TCP it is told by then whose that was on an idle machine only.
    Library("rslock", RUST, "rslock", extends=True, unix=True),
    Library("laravel", PHP, "laravel"),
    Library("symfony", PHP, "symfony", symfony),
    redisson("4.7.0", "lock", reentrant=True),
    redisson("4.7.0", "watchdog", reentrant=True, renews=True),
    redisson("4.7.0", "fair", reentrant=True),
    redisson("4.7.0", "fair-watchdog", reentrant=True, renews=True),
    redisson("4.7.0", "read", reentrant=True, rival=False),
    redisson("4.7.0", "read-watchdog", reentrant=True, renews=True, rival=False),
    redisson("4.7.0", "write", reentrant=True),
    redisson("4.7.0", "spin", reentrant=True),
    redisson("4.7.0", "fenced", reentrant=True),
    redisson("4.7.0", "multi", keys=("{}", "{}:second")),
    redisson("4.7.0", "permit", **PERMITS),
    redisson("3.45.1", "lock", reentrant=True, brief=True),
    redisson("3.45.1", "watchdog", renews=True, brief=True),
    redisson("3.45.1", "read", rival=False, brief=True),
    redisson("3.17.7", "lock", reentrant=True, brief=True),
    redisson("3.17.7", "watchdog", renews=True, brief=True),
    redisson("3.17.7", "fair", brief=True),
    redisson("3.17.7", "read", rival=False, brief=True),
]
