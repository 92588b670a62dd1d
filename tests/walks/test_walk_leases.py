"""A walk through what may happen to locks and semaphores: owners that take, extend, release, stall and die, others that meddle,
and Headgates, Redis and sentinels in trouble. What Redis itself says, in MONITOR's order and to those who ask it directly,
is compared with a model after each step: nobody loses a lock without a reason, nothing is renewed for who has left it or
never had it, nothing outlives its time, and the counters of each Headgate tell what was done.

The model excuses what Redis itself has lost or ended (of a replica that takes over it is read before what it has), and what
nobody could renew meanwhile, as too little of it was left when a trouble was over; nothing else."""

import collections
import math
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import world
from harness.leases import COMPARE_AND_DELETE, COMPARE_AND_PEXPIRE, counters, keys_of, rule
from harness.resp import OK, Client, Closed, Error, encode, wait_for
from harness.sentinel import Group
from harness.servers import Headgate, Redis

SECONDS = 200  # of the world's time
HASH_TAKE = (
    "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; "
    "return redis.call('pttl', KEYS[1]);"
)
HASH_RELEASE = (
    "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; "
    "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); "
    "if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; "
    "else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;"
)
# Carries bytes between the test and Headgate, which takes it for the owner.
OWNER = """
import select, socket, sys
near, far = socket.socket(fileno=int(sys.argv[1])), socket.create_connection(("127.0.0.1", int(sys.argv[2])))
other = {near: far, far: near}
while True:
    for end in select.select([near, far], [], [])[0]:
        data = end.recv(65536)
        if not data:
            sys.exit()
        other[end].sendall(data)
"""
WEAK = ["weak", "on", "nopass", "~other:*", "+@all"]
LIMIT = 2
OVER = 0.001  # seconds that a permit has which is over, and there
TRAIL = 30  # steps that are told of a failure
SLACK = 0.4  # until an end is noticed, a wheel's step and what lateness makes of it
SETTLED = 2.5  # behind a trouble: connections are made anew, and what has failed is tried again
ENOUGH = 1  # who has so much left when a trouble is over is renewed
WORDS = re.compile(r'"((?:[^"\\]|\\.)*)"')
ENDS = ("released", "unseen", "owner_gone", "lost")
RULES = {
    "conn": {"owner": "connection"},
    "proc": {"owner": "process", "grace": "700ms", "on_owner_gone": "release"},
    "name": {"owner": "client", "grace": "1s"},
    "short": {"owner": "connection", "on_owner_gone": "release"},
}
GRACE = {"conn": 0, "proc": 0.7, "name": 1, "short": 0, "free": 0}
KINDS = ("string", "setnx", "hash", "permit")


def rules(max_hold, ttl):
    common = {"renew": None, "ttl": f"{round(ttl * 1000)}ms", "limit": LIMIT, "prolong_explicit": "yes"}
    texts = {name: rule(name, keys=f"{name}:*", **common, **options) for name, options in RULES.items()}
    return "".join(texts.values()) + f"max_hold = {round(max_hold * 1000)}ms\n"


class Holder:
    """A client with one connection or two, in this process or another; gate: the number of its Headgate."""

    def __init__(self, walk, number, gate, database, is_apart, has_spare):
        self.walk, self.gate, self.database, self.is_apart = walk, gate, database, is_apart
        self.name = f"holder-{number}"
        self.process = None
        self.home = self._connect()
        self.spare = self._connect() if has_spare else None

    def _connect(self):
        if not self.is_apart:
            client = self.walk.gates[self.gate].connect()
        else:
            near, far = socket.socketpair()
            port = self.walk.gates[self.gate].port
            command = [sys.executable, "-I", "-S", "-c", OWNER, str(far.fileno()), str(port)]
            self.process = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)
            far.close()
            client = Client(near)
        assert client("CLIENT", "SETNAME", self.name) == client("SELECT", self.database) == OK
        return client

    def owner(self, rule, client):
        """Who has to live for a lock of that rule which was taken over this connection."""
        return self if rule in ("name", "proc") else client

    def close(self):
        for client in filter(None, (self.home, self.spare)):
            client.close()
        if self.process:
            self.process.kill()
            self.process.wait()


class Lock:
    """One that Redis has granted to a token."""

    def __init__(self, key, database, token, lease, gate):
        self.key, self.database, self.token, self.lease = key, database, token, lease
        self.rule, self.kind, _ = key.split(":")
        self.taken = self.granted = time.monotonic()  # asked for; answered, before which it may have waited in Headgate
        self.owners = {}  # each with the number of its Headgate
        self.gates = {gate}  # that watch it
        self.watched = set()  # that did
        self.left_at = {}  # when its owners at each have gone
        self.ends = None  # when it must be gone at the latest; None: it has to be there
        self.renewed_until = math.inf  # when it may be renewed at the latest
        self.doubted_until = 0  # it may be gone, for a reason that is known
        self.is_sure = True  # how its end is counted
        self.left = lease  # seconds, as Redis has told last
        self.late = 0  # by so much Redis may have come to a renewal, which has a time to live and no end

    def __repr__(self):
        return f"{self.key} of {self.token} in {self.database}"

    @property
    def is_kept(self):
        return self.ends is None

    def look(self):
        """Requests that show it."""
        if self.kind == "permit":
            return [("ZSCORE", self.key, self.token), ("PTTL", self.key)]
        if self.kind == "hash":
            return [("HEXISTS", self.key, self.token), ("PTTL", self.key)]
        return [("GET", self.key), ("PTTL", self.key)]

    def read(self, found, life):
        """Seconds that it has; 0: it is not there."""
        if self.kind == "permit":
            # One that is over is renewed all the same, if it could not be before and nobody has swept it up.
            least = OVER if self.is_kept and self.doubted_until else 0
            return max(least, float(found) + self.lease - time.time()) if found else 0
        is_there = found == 1 if self.kind == "hash" else found == self.token.encode()
        return (math.inf if life == -1 else life / 1000) if is_there and life != -2 else 0


class Walk:
    def __init__(self, random):
        self.random = random
        self.gates, self.holders, self.locks = [], [], []
        self.figures = collections.Counter()
        self.tokens = 0
        self.redis_skew = 0
        self.trail = []
        self.monitor = self.direct = None

    # ---- the servers ----

    def start(self):
        draw = self.random
        # Without a rule nobody gives those a time to live that were taken without.
        keys = [f"{rule}:{kind}:0" for rule in GRACE for kind in KINDS if (rule, kind) != ("free", "setnx")]
        self.keys = draw.sample(keys, 7) + ["proc:string:0", "name:string:0"]
        self.group = Group(replicas=1, down_after=1000) if draw.random() < 0.3 else None
        # A failover takes some seconds.
        self.lease = round(draw.uniform(6, 10) if self.group else draw.uniform(1.5, 5), 1)
        self.max_hold = self.lease * draw.uniform(1.5, 3)
        self.redis = self.group.master() if self.group else Redis("--user", *WEAK)
        self.arm()
        if not self.group and draw.random() < 0.3:
            self.redis_skew = draw.choice([-1, 1]) * draw.uniform(1, 5000)
            world.skew(self.redis.process.pid, self.redis_skew)
        for _ in range(2):
            gate = Headgate(self.group.url if self.group else self.redis, pool=draw.choice(["shared", "shared", "session"]),
                            threads=draw.choice([1, 1, 3]), start=False, upstream_wait="60s")  # fmt: skip
            gate.write_rules(rules(self.max_hold, self.lease))
            self.gates.append(gate)
            gate.start()
            if draw.random() < 0.4:
                world.skew(gate.process.pid, draw.uniform(-4000, 4000))
            if draw.random() < 0.4:
                world.late(gate.process.pid, 0.02, draw.choice([20, 200]))
        self.counts = [self.fresh() for _ in self.gates]

    def arm(self):
        """Connects to what is the master now."""
        for client in filter(None, (self.monitor, self.direct)):
            client.close()
        self.direct, self.monitor = self.redis.connect(), self.redis.connect()
        if self.group:
            assert self.direct("ACL", "SETUSER", *WEAK) == OK
        assert self.monitor("MONITOR") == OK
        self.claims = {(lock.database, lock.key, lock.token) for lock in self.locks}

    @staticmethod
    def fresh():
        return {name: [0, 0] for name in ("acquired", *ENDS)}

    def tell(self, gate, name, is_sure=True):
        """What one Headgate has to have counted: from so many to so many."""
        self.counts[gate][name][0] += is_sure
        self.counts[gate][name][1] += 1

    def tell_end(self, lock, name, gates=None):
        for gate in gates or lock.gates:
            for other in ENDS if not lock.is_sure else [name]:
                self.tell(gate, other, lock.is_sure)

    # ---- what is right ----

    def wrong(self, text):
        logs = [f"{gate.name} {number}:\n{gate.log_tail()}" for number, gate in enumerate(self.gates)]
        pytest.fail("\n".join([f"at {time.monotonic():.3f}: {text}", *self.trail[-(TRAIL):], *logs]))

    def say(self, text):
        self.trail.append(f"{time.monotonic():.3f} {text}")

    def left(self, client, *further):
        """What a server says of all locks: [(lock, seconds)], and what else it is asked."""
        asked = [command for lock in self.locks for command in (("SELECT", lock.database), *lock.look())]
        client.send(b"".join(encode(*command) for command in [*further, *asked]))
        first = client.read_many(len(further))
        replies = client.read_many(len(asked))
        return [(lock, lock.read(*replies[3 * at + 1 : 3 * at + 3])) for at, lock in enumerate(self.locks)], *first

    def look(self):
        """Redis is asked for all locks, and each is judged; then what was renewed until then is."""
        self.tokens += 1
        mark = f"mark-{self.tokens}"
        found, (seconds, micros), _ = self.left(self.direct, ("TIME",), ("ECHO", mark))
        now = time.monotonic()
        self.offset = now - int(seconds) - int(micros) / 1e6
        self.judge_renewals(mark)
        for lock, left in found:
            self.judge(lock, left, now)

    def judge(self, lock, left, now):
        before, lock.left = lock.left, left
        if lock.is_kept and lock.rule == "short" and now > lock.taken + self.max_hold - SLACK:
            if lock.doubted_until or not lock.is_sure:
                lock.is_sure = False
                self.tell_end(lock, "lost")
            self.leave(lock, lock.granted + self.max_hold, lock.granted + self.max_hold + lock.late, "max_hold")
            left = 0 if left == OVER else left
        if left > 0:
            if lock.ends and now > lock.ends:
                self.wrong(f"{lock} lives on for {left:.3f} s, {now - lock.ends:.3f} s beyond its end")
            if now > lock.doubted_until and left > lock.lease / 3:
                lock.doubted_until = 0
            if lock.kind not in ("setnx", "permit") and left > lock.lease + SLACK and lock.is_sure:
                self.wrong(f"{lock} has {left:.3f} s, more than its lease of {lock.lease}")
            return
        if lock.is_kept and not lock.doubted_until:
            self.wrong(f"{lock} is lost, {now - lock.taken:.3f} s after it was taken; it had {before:.3f} s")
        if lock.is_kept:
            self.figures["excused"] += 1
            self.tell_end(lock, "lost")
        self.locks.remove(lock)

    def judge_renewals(self, mark):
        token = own = None
        while mark not in (line := self.monitor.read().decode()):
            words = WORDS.findall(line)
            time_word, database = line.split()[:2]
            name, key, when = words[0].upper(), (int(database[1:]), *words[1:2]), float(time_word) + self.offset
            is_script = " lua] " in line
            if name in ("EVAL", "EVALSHA"):
                own = name == "EVAL" and not words[1].startswith("--")
                count = int(words[2])
                token = words[3 + count] if len(words) > 3 + count else None
            elif name in ("SET", "SETNX") and not is_script:
                self.claims.add((*key, words[2]))
            elif name in ("ZADD", "HINCRBY") and (own or not is_script):
                self.claims.add((*key, words[3 if name == "ZADD" else 2]))
            elif name in ("DEL", "UNLINK"):
                self.claims = {claim for claim in self.claims if claim[:2] != key}
            elif name in ("ZREM", "HDEL"):
                self.claims.discard((*key, words[2]))
            elif name in ("PEXPIRE", "ZADD") and is_script and not own:
                self.judge_renewal((*key, token), when)

    def judge_renewal(self, claim, when):
        self.figures["renewals"] += 1
        if claim not in self.claims:
            self.wrong(f"{claim} is renewed, which nobody has")
        for lock in self.locks:
            if (lock.database, lock.key, lock.token) == claim and when > lock.renewed_until:
                self.wrong(f"{lock} is renewed {when - lock.renewed_until:.3f} s too late")

    def leave(self, lock, since, until, why):
        """It is not renewed any more from then on, and gone at the latest then."""
        self.say(f"{lock} is to end: {why}, by {until:.3f}")
        late = SLACK if lock.is_sure and not lock.doubted_until else SLACK + SETTLED
        lock.renewed_until = since + late
        lock.ends = until + late + SLACK

    # ---- troubles ----

    def doubt(self, gates, begun, saved=()):
        """Nobody could renew since then until now, at these Headgates. saved: (lock, until when it was there to be kept)."""
        now = time.monotonic()
        saved = dict(saved)
        for lock, left in self.left(self.direct)[0]:
            for gate in [gate for gate, when in lock.left_at.items() if gate in gates and when > begun - SLACK]:
                # Whether its owner was seen to go before the trouble nobody knows.
                del lock.left_at[gate]
                if lock.is_sure:
                    self.counts[gate]["owner_gone"][0] -= 1
                    for name in ENDS:
                        self.counts[gate][name][1] += name != "owner_gone"
            if len(gates) > 1:
                lock.late = max(lock.late, now - begun)
            if not (lock.gates | lock.watched).intersection(gates):
                continue
            if not lock.is_kept:
                lock.ends += now - begun + SETTLED
                lock.renewed_until += now - begun + SETTLED
            elif left == 0 and saved.get(lock, 0) > now + SLACK and not lock.doubted_until:
                self.wrong(f"{lock} is lost, and was there until {saved[lock]:.3f}")
            elif left < ENOUGH or (lock.rule == "short" and now > lock.taken + self.max_hold - SLACK):
                lock.doubted_until, lock.is_sure = now + SETTLED, False
                self.say(f"{lock} is in doubt")
            else:
                self.figures["survived"] += 1
                self.say(f"{lock} has {left:.3f} s")

    def end_owner(self, owner, is_sure=True):
        """It lives no more."""
        now = time.monotonic()
        for lock in [lock for lock in self.locks if owner in lock.owners]:
            gate = lock.owners.pop(owner)
            lock.is_sure = lock.is_sure and is_sure
            if gate not in lock.owners.values() and lock.is_kept and gate in lock.gates:
                self.tell_end(lock, "owner_gone", [gate])
                lock.gates.discard(gate)
                lock.watched.add(gate)
                lock.left_at[gate] = now
            elif lock.rule == "short" and now < lock.granted + self.max_hold + SLACK:
                # That, or max_hold: whichever Headgate saw first.
                self.tell(gate, "owner_gone", False)
            if not lock.owners and lock.is_kept:
                self.leave(lock, now, now + GRACE[lock.rule] + max(lock.lease, self.lease) + (lock.kind == "setnx"), "no owner")

    def gone(self, holder, is_sure=True):
        """All its connections are closed."""
        self.say(f"{holder.name} is gone")
        for owner in (holder, holder.home, holder.spare):
            self.end_owner(owner, is_sure)
        holder.close()
        self.holders.remove(holder)
        self.figures["owners gone"] += 1

    def ask(self, holder, *commands, client=None, meanwhile=lambda: None):
        """Replies, or None if the connection was closed: then nothing is known."""
        self.figures["requests"] += len(commands)
        client = client or holder.home
        try:
            client.send(b"".join(encode(*command) for command in commands))
            meanwhile()
            return client.read_many(len(commands))
        except (Closed, OSError):
            return None

    # ---- steps ----

    def some_holder(self, is_apart=None, database=None):
        fit = [one for one in self.holders if is_apart in (None, one.is_apart)]
        fit = [one for one in fit if database in (None, one.database)]
        return self.random.choice(fit) if fit else None

    def some_lock(self, accept=lambda lock: True):
        fit = [lock for lock in self.locks if lock.is_kept and not lock.doubted_until and lock.owners and accept(lock)]
        return self.random.choice(fit) if fit else None

    def some_held(self, accept=lambda lock: True):
        """A lock, one that can act for it, and over which connection."""
        lock = self.some_lock(accept)
        fit = [(lock, holder, client) for holder in self.holders for client in (holder.home, holder.spare)
               if lock and client and holder.owner(lock.rule, client) in lock.owners]  # fmt: skip
        return self.random.choice(fit) if fit else (None, None, None)

    def come(self):
        if len(self.holders) >= 7:
            self.go()
            return
        is_apart = self.random.random() < 0.4 and sum(one.is_apart for one in self.holders) < 3
        self.figures["holders"] += 1
        has_spare = not is_apart and self.random.random() < 0.5
        gate, database = self.random.choices((0, 1), k=2)
        self.holders.append(Holder(self, self.figures["holders"], gate, database, is_apart, has_spare))

    def go(self):
        if holder := self.some_holder():
            self.gone(holder)

    def swap(self):
        """The connection over which it has taken locks is closed; the process, or the name, lives on."""
        holder = self.some_holder(False)
        if holder and holder.spare:
            self.say(f"{holder.name} closes a connection")
            old, holder.home, holder.spare = holder.home, holder.spare, None
            old.close()
            self.end_owner(old)

    def taking(self, database, key, token, ms):
        kind = key.split(":")[1]
        if kind == "string":
            until = round((time.time() + self.redis_skew) * 1000) + ms
            return self.random.choice([[("SET", key, token, "NX", "PX", ms)], [("set", key, token, "px", ms, "nx")],
                                       [("SET", key, token, "NX", "PXAT", until)],
                                       [("MULTI",), ("SET", key, token, "PX", ms, "NX"), ("EXEC",)]])  # fmt: skip
        if kind == "setnx":
            # Whoever says PEXPIRE without having it would change the lock of another.
            is_free = all((lock.database, lock.key) != (database, key) for lock in self.locks)
            return [("SETNX", key, token)] + [("PEXPIRE", key, ms)] * (is_free and self.random.random() < 0.5)
        if kind == "hash":
            return [("EVAL", HASH_TAKE, 1, key, ms, token)]
        now = time.time()
        return [("MULTI",), ("ZREMRANGEBYSCORE", key, "-inf", now - ms / 1000), ("ZADD", key, now, token),
                ("ZRANK", key, token), ("EXEC",)]  # fmt: skip

    @staticmethod
    def is_granted(kind, replies):
        if isinstance(replies[-1], Error) or (isinstance(replies[-1], list) and any(isinstance(one, Error) for one in replies[-1])):
            return False
        if kind == "permit":
            return replies[-1][2] < LIMIT
        if kind == "hash":
            return replies[0] is None
        return replies[0] == 1 if kind == "setnx" else replies[-1] in (OK, [OK])

    def take(self, meanwhile=None, holder=None):
        holder = holder or self.some_holder()
        if not holder:
            return
        # All connections of this process are one owner to Headgate; the stamp of a permit that waits is older than anybody knows.
        key = self.random.choice([key for key in self.keys if holder.is_apart or not key.startswith("proc")
                                  if not meanwhile or ":permit:" not in key])  # fmt: skip
        _, kind, _ = key.split(":")
        self.tokens += 1
        token = f"t{self.tokens}"
        ms = round(self.lease * 1000) if kind in ("permit", "setnx") else round(self.lease * self.random.uniform(0.4, 1) * 1000)
        commands = self.taking(holder.database, key, token, ms)
        lock = Lock(key, holder.database, token, ms / 1000, holder.gate)
        self.say(f"{holder.name} at {holder.gate} takes {key} as {token} for {ms} ms: {commands[0][0]}")
        replies = self.ask(holder, *commands, meanwhile=meanwhile or (lambda: None))
        if replies is None:
            self.unknown(holder, lock)
        elif self.is_granted(kind, replies):
            if meanwhile:
                lock.doubted_until, lock.is_sure = time.monotonic() + SETTLED, False
            self.granted(holder, lock)
        else:
            self.figures["refused"] += 1
            if kind == "permit":
                self.ask(holder, ("ZREM", key, token))

    def granted(self, holder, lock):
        self.figures["granted"] += 1
        same = [other for other in self.locks if (other.database, other.key) == (lock.database, lock.key)]
        others = [other for other in same if other.is_kept and not other.doubted_until]
        if len(others) >= (LIMIT if lock.kind == "permit" else 1):
            self.wrong(f"{lock} is granted, and {others} have it")
        if lock.kind != "permit":
            for other in same:
                if other.is_kept:
                    self.tell_end(other, "lost")
                self.locks.remove(other)
        self.locks.append(lock)
        lock.granted = time.monotonic()
        if lock.rule == "free":
            self.leave(lock, lock.taken, time.monotonic() + lock.lease, "no rule")
        else:
            self.tell(holder.gate, "acquired", lock.is_sure)
            lock.owners[holder.owner(lock.rule, holder.home)] = holder.gate

    def unknown(self, holder, lock):
        """It may have been taken, by one of whom nothing is left."""
        lock.is_sure = False
        self.tell(holder.gate, "acquired", False)
        self.tell_end(lock, "owner_gone")
        self.locks.append(lock)
        now = time.monotonic()
        self.leave(lock, now, now + GRACE[lock.rule] + self.lease + 1, "unknown")
        self.gone(holder, False)

    def releasing(self, lock):
        key, token = lock.key, lock.token
        if lock.kind == "permit":
            return [("ZREM", key, token)]
        if lock.kind == "hash":
            return [("EVAL", HASH_RELEASE, 2, key, "channel", 0, round(lock.lease * 1000), token)]
        return self.random.choice([[("EVAL", COMPARE_AND_DELETE, 1, key, token)], [("DEL", key)],
                                   [("WATCH", key), ("GET", key), ("MULTI",), ("UNLINK", key), ("EXEC",)]])  # fmt: skip

    def release(self):
        """Behind a request that blocks it is kept until its turn comes."""
        blocked = self.random.choice((0, 0, 0, self.random.uniform(0.1, 2 * self.lease)))
        lock, holder, client = self.some_held(lambda lock: not blocked or lock.rule != "short")
        if not lock:
            return
        commands = [("BLPOP", "other:list", blocked)] * bool(blocked) + self.releasing(lock)
        self.say(f"{holder.name} releases {lock}: {commands[0][0]} {blocked:.3f}")
        replies = self.ask(holder, *commands, client=client, meanwhile=lambda: self.wait(blocked))
        if replies is None or replies[-1] not in (1, [1]):
            self.wrong(f"{holder.name} cannot release {lock}: {replies}")
        self.released(lock, holder)

    def released(self, lock, holder):
        for gate in lock.gates - {holder.gate}:
            for name in ENDS:
                self.tell(gate, name, False)
        self.tell_end(lock, "released", [holder.gate])
        self.locks.remove(lock)
        self.figures["released"] += 1

    def race(self):
        """Several take the same at once, and who has it releases it meanwhile: one gets it at most. Of permits the stamps decide,
        which may overtake each other on the way."""
        key, database = self.random.choice([key for key in self.keys if ":permit:" not in key]), self.random.randrange(2)
        held, owner, client = self.some_held(lambda lock: (lock.key, lock.database) == (key, database))
        runners = [one for one in self.holders if one.database == database and one is not owner
                   and (one.is_apart or not key.startswith("proc"))]  # fmt: skip
        self.random.shuffle(runners)
        self.say(f"{[one.name for one in runners]} take {key}, which {owner and owner.name} releases")
        taken = []

        def take(runners):
            if runners:
                self.tokens += 1
                lock = Lock(key, database, f"t{self.tokens}", self.lease, runners[0].gate)
                commands = self.taking(database, key, lock.token, round(self.lease * 1000))
                commands = commands[:1] if lock.kind == "setnx" else commands
                taken.append((runners[0], lock, self.ask(runners[0], *commands, meanwhile=lambda: take(runners[1:]))))

        if held:
            replies = self.ask(owner, *self.releasing(held), client=client, meanwhile=lambda: take(runners))
            if replies is None or replies[-1] not in (1, [1]):
                self.wrong(f"{owner.name} cannot release {held}: {replies}")
            self.released(held, owner)
        else:
            take(runners)
        for holder, lock, replies in taken:
            if replies is None:
                self.unknown(holder, lock)
            elif self.is_granted(lock.kind, replies):
                self.figures["won"] += 1
                self.granted(holder, lock)

    def release_unread(self):
        """Its connection is closed before the answer comes."""
        lock, holder, client = self.some_held(lambda lock: lock.rule != "proc")
        if not lock or holder.is_apart:
            return
        self.say(f"{holder.name} releases {lock}, and does not read")
        client.send(b"".join(encode(*command) for command in self.releasing(lock)))
        lock.is_sure = False
        self.tell_end(lock, "released")
        now = time.monotonic()
        self.leave(lock, now, now + lock.lease, "released unread")
        self.gone(holder)

    def extend(self):
        """By the token; by another client, too, which is one more owner then."""
        lock = self.some_lock(lambda lock: lock.kind in ("string", "setnx") and lock.rule in ("conn", "name"))
        holder = lock and self.some_holder(database=lock.database)
        if not holder:
            return
        self.say(f"{holder.name} at {holder.gate} extends {lock}")
        replies = self.ask(holder, ("EVAL", COMPARE_AND_PEXPIRE, 1, lock.key, lock.token, round(lock.lease * 1000)))
        if replies != [1]:
            self.wrong(f"{holder.name} cannot extend {lock}: {replies}")
        if holder.gate not in lock.gates or len(lock.gates) > 1:
            self.tell(holder.gate, "acquired", False)
            lock.is_sure = False
            lock.gates.add(holder.gate)
        lock.owners[holder.owner(lock.rule, holder.home)] = holder.gate

    def meddle(self):
        """What is refused, or finds another token, changes nothing."""
        lock, holder = self.some_lock(), self.some_holder(False)
        if not lock or not holder:
            return
        kind = self.random.choice(["weak", "token", "watch", "select"])
        self.say(f"{holder.name} meddles with {lock}: {kind}")
        if kind == "weak":
            with self.gates[holder.gate].connect() as client:
                assert client("AUTH", "weak", "x") == client("SELECT", lock.database) == OK
                refused = [client(*self.releasing(lock)[0]), client("EVAL", COMPARE_AND_DELETE, 1, lock.key, lock.token)]
                refused += [client("PEXPIRE", lock.key, 1), client("SET", lock.key, lock.token, "XX", "PX", 1)]
            assert all(isinstance(reply, Error) for reply in refused), refused
            # Whether the script has come to it Headgate has to find out.
            self.wait(0.5)
        elif kind == "token":
            scripts = [("EVAL", COMPARE_AND_DELETE, 1, lock.key, "nobody")] if lock.kind in ("string", "setnx") else []
            scripts += [("EVAL", HASH_RELEASE, 2, lock.key, "channel", 0, 1000, "nobody")] if lock.kind == "hash" else []
            scripts += [("ZREM", lock.key, "nobody")] if lock.kind == "permit" else []
            assert self.ask(holder, *scripts) in ([0], [None])
        elif kind == "watch":
            self.ask(holder, ("WATCH", lock.key), ("PING",))
            self.wait(self.random.uniform(0, self.lease))
            if holder in self.holders:
                self.ask(holder, ("UNWATCH",))
        else:
            other = 1 - lock.database
            # Permits that are over stay in the set until the next one asks.
            if lock.kind != "permit" and not any((one.database, one.key) == (other, lock.key) for one in self.locks):
                replies = self.ask(holder, ("MULTI",), ("SELECT", other), ("DEL", lock.key), ("EXEC",), ("SELECT", holder.database))
                assert replies[3] == [OK, 0], replies

    def delete(self):
        """By one who does not have it: it is gone, and stays so."""
        lock = self.some_lock(lambda lock: lock.kind != "permit")
        holder = lock and self.some_holder(False, lock.database)
        if not holder:
            return
        is_direct = self.random.random() < 0.5
        self.say(f"{'somebody' if is_direct else holder.name} deletes {lock}")
        if is_direct:
            assert [self.direct("SELECT", lock.database), self.direct("DEL", lock.key)] == [OK, 1]
            # Before max_hold the last renewal may be behind it: then nobody looks.
            lock.is_sure = lock.is_sure and lock.rule != "short"
        else:
            assert self.ask(holder, ("DEL", lock.key)) == [1]
            lock.is_sure = lock.is_sure and lock.gates == {holder.gate}
        self.tell_end(lock, "lost" if is_direct else "released")
        self.locks.remove(lock)
        if lock.rule == "short" or is_direct:
            self.wait(lock.lease)

    def stop_owner(self):
        """It hangs, and its connection is open."""
        if holder := self.some_holder(True):
            self.say(f"{holder.name} hangs")
            holder.process.send_signal(signal.SIGSTOP)
            self.wait(self.random.uniform(0, 2 * self.lease))
            holder.process.send_signal(signal.SIGCONT)

    def kill_owner(self):
        """Wherever it is: taking a lock, or behind that."""
        if not (holder := self.some_holder(True)):
            return
        self.say(f"{holder.name} is about to be killed")
        world.end(holder.process.pid, self.random.randrange(1, 60))
        self.take(holder=holder)
        wait_for(lambda: holder.process.poll() is not None, 60, "the end of the owner")
        self.figures["killed"] += 1
        if holder in self.holders:
            self.gone(holder)

    def trouble(self):
        """A Headgate or Redis does nothing for a while, or Redis refuses all that writes. What is asked for while one hangs is
        done behind it."""
        gates = self.random.choice(([0], [1], [0, 1], [0, 1], [0, 1]))
        server = self.redis if len(gates) > 1 else self.gates[gates[0]]
        kind = self.random.choice(("hangs", "cuts", "refusals") if server is self.redis else ("hangs",))
        # Of several servers sentinels would choose another.
        most = 0.4 if self.group and server is self.redis and kind != "refusals" else 1.5 * self.lease
        begun = time.monotonic()
        seconds = self.random.uniform(0, most)
        self.say(f"{server.name}: {kind} for {seconds:.3f} s")
        self.figures[kind] += 1
        if kind == "refusals":
            assert self.direct("CONFIG", "SET", "min-replicas-to-write", 9) == OK
            time.sleep(seconds)
            assert self.direct("CONFIG", "SET", "min-replicas-to-write", 0) == OK
            self.doubt(gates, begun)
            return
        server.signal(signal.SIGSTOP)

        def meanwhile():
            time.sleep(seconds)
            server.signal(signal.SIGCONT)
            self.doubt(gates, begun)

        if kind == "cuts":
            # What it has read it executes, and then closes the connections before it answers.
            time.sleep(seconds)
            self.direct.request("CLIENT", "KILL", "TYPE", "normal")
            server.signal(signal.SIGCONT)
            self.direct.read()
            self.settle(begun)
            return
        if self.random.random() < 0.5:
            self.take(meanwhile)
        if time.monotonic() < begun + seconds:
            meanwhile()
        time.sleep(0.3)

    def restart_redis(self):
        """It comes back with nothing; or, behind sentinels, another takes its place, with what has reached that."""
        if self.group:
            self.fail_over()
            return
        begun = time.monotonic()
        self.say("Redis is killed")
        self.redis.kill()
        time.sleep(self.random.uniform(0, self.lease))
        self.redis.start()
        if self.redis_skew:
            world.skew(self.redis.process.pid, self.redis_skew)
        self.figures["restarts"] += 1
        self.settle(begun)

    def fail_over(self):
        old = self.redis
        replica = next(server for server in self.group.servers if server is not old)
        is_raw = self.random.random() < 0.6
        if is_raw:
            # What is renewed meanwhile is not renewed in the end.
            self.say("the replica is left behind")
            replica.signal(signal.SIGSTOP)
            self.take()
            self.wait(self.random.uniform(0.1, 0.5) * self.lease)
        begun = time.monotonic()
        self.say(f"failover, {'by a kill' if is_raw else 'asked for'}")
        if is_raw:
            old.kill()
            replica.signal(signal.SIGCONT)
            wait_for(lambda: self.group.info(replica, "master_link_status") == "down", 60, "a replica that is alone")
        else:
            assert self.direct.pipeline([("SET", "other:mark", 1), ("WAIT", 1, 0)])[1] == 1
        with replica.connect() as direct:
            saved = [(lock, time.monotonic() + left) for lock, left in self.left(direct)[0]]
        if not is_raw:
            self.group.failover()
        for sentinel in self.group.sentinels:
            wait_for(lambda one=sentinel: self.group.server_at(one.master()) is replica, 60, "another master")
        self.redis = replica
        self.settle(begun, saved)
        if is_raw:
            old.start()
        with old.connect() as direct:
            direct("REPLICAOF", replica.host, replica.port)
        # A sentinel that had begun, too, may choose anew.
        begun = time.monotonic()
        time.sleep(4)
        self.redis = self.group.await_agreement()
        self.group.await_whole()
        if self.redis is not replica:
            self.settle(begun)
        self.figures["failovers"] += 1

    def settle(self, begun, saved=()):
        """Until both serve again. Connections that were lost with Redis are made anew by their owners."""
        for gate in self.gates:
            wait_for(lambda one=gate: one.told("SET", "other:served", self.tokens) == OK, 60, "Headgate to serve")
        for holder in list(self.holders):
            clients = [client for client in (holder.home, holder.spare) if client]
            if any(self.ask(holder, ("PING",), client=client) is None for client in clients):
                self.gone(holder, False)
        self.arm()
        self.doubt([0, 1], begun, saved)

    def restart_gate(self):
        """Killed: it knows nothing of what it has kept, which ends."""
        number = self.random.randrange(2)
        self.say(f"Headgate {number} is killed")
        self.gates[number].kill()
        now = time.monotonic()
        self.figures["gate kills"] += 1
        for lock in [lock for lock in self.locks if number in lock.gates]:
            lock.gates.discard(number)
            lock.is_sure = False
            lock.owners = {owner: gate for owner, gate in lock.owners.items() if gate != number}
            if lock.is_kept and not lock.owners:
                self.leave(lock, now, now + lock.lease if lock.kind != "setnx" else math.inf, "Headgate killed")
        for holder in [holder for holder in self.holders if holder.gate == number]:
            self.gone(holder, False)
        self.gates[number].start()
        self.counts[number] = self.fresh()

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self.lease / 4))
            self.look()

    def rest(self):
        """When all that was to end has ended, Headgates tell what was done."""
        self.say("rest")
        self.wait(2 * self.lease + 3)
        for number, gate in enumerate(self.gates):
            self.compare(number, gate)

    def compare(self, number, gate):
        told = counters(gate)
        found = {name: told.get(f"{name}_total", 0) for name in ("acquired", *ENDS)}
        found["lost"] = sum(value for name, value in told.items() if name.startswith("lost_"))
        # A permit that is over, and in the set as nobody has swept it up, may have been given up.
        doubted = sum(lock.doubted_until > 0 for lock in self.locks if number in lock.gates)
        for name, (least, most) in self.counts[number].items():
            if not least <= found[name] <= most + doubted * (name == "lost"):
                self.wrong(f"Headgate {number} counts {found[name]} {name}, not {least} to {most}: {told}")
        kept = {lock.key for lock in self.locks if lock.is_kept and number in lock.gates and not lock.doubted_until}
        loose = {lock.key for lock in self.locks if number in lock.gates} - kept
        if not kept <= keys_of(gate) <= kept | loose:
            self.wrong(f"Headgate {number} has {keys_of(gate)} on file, not {kept}, perhaps {loose}")
        ended = sum(found[name] for name in ENDS) + told.get("max_hold_total", 0)
        if not ended - found["released"] <= found["acquired"] - told.get("held", 0) <= ended:
            self.wrong(f"Headgate {number} counts what does not add up: {told}")

    def finish(self):
        for holder in list(self.holders):
            self.gone(holder)
        self.rest()
        found = [self.direct.pipeline([("SELECT", database), ("KEYS", "*")])[1] for database in (0, 1)]
        left = {key for key in sum(found, []) if not key.startswith((b"other:", b"headgate:"))}
        # Permits that are over stay until the next one asks.
        left -= {key for key in left if b":permit:" in key}
        # Of those that were taken without a time to live, who was to give them one was killed.
        left -= {lock.key.encode() for lock in self.locks if lock.ends == math.inf}
        if left or any(counters(gate).get("held") for gate in self.gates):
            self.wrong(f"left behind: {left}, {[keys_of(gate) for gate in self.gates]}")

    def run(self):
        steps = {self.come: 8, self.go: 2, self.swap: 3, self.take: 25, self.race: 8, self.release: 13, self.release_unread: 2, self.extend: 5,
                 self.meddle: 7, self.delete: 3, self.stop_owner: 2, self.kill_owner: 2, self.trouble: 5,
                 self.restart_redis: 4 if self.group else 1, self.restart_gate: 0.7, self.rest: 1}  # fmt: skip
        for _ in range(3):
            self.come()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.random.choices(list(steps), list(steps.values()))[0]()
            self.look()
            if self.random.random() < 0.3:
                self.wait(self.random.uniform(0, self.lease))
        self.finish()

    def close(self):
        for holder in self.holders:
            holder.close()
        for server in [*self.gates, *([self.group] if self.group else [self.redis])]:
            server.discard()


@pytest.mark.world
def test_leases(record_property):
    walk = Walk(world.draws())
    try:
        walk.start()
        walk.run()
        for gate in walk.gates:
            gate.check_log()
        for name, count in walk.figures.items():
            record_property(name, count)
    finally:
        walk.close()
