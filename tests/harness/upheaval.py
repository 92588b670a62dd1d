"""Clients whose every reply is checked, and masters that go: what may be seen while a cluster, or servers that sentinels
watch over, are in upheaval.

Each client has an identity, which all that it writes carries, and so must all that it reads. Its counters are its own:
each reply to INCR is one more than the last, so nothing is executed twice, nothing is lost that was acknowledged, and
nothing comes in another order. A request without a reply, as the connection was closed, may have been executed or not;
what was executed the client finds out when it comes again.

Redis replicates behind its acknowledgements. So before a master is killed or stopped, its writes are held up (CLIENT
PAUSE) until its replica has all that was acknowledged: what is lost after that, Headgate has lost. With raw=True it is
not asked first; then counters may run back, by what the figures say.
"""

import collections
import random
import threading
import time

from harness.cluster import tag_of
from harness.resp import OK, Closed, Error, encode, wait_for
from harness.sentinel import Announcements
from harness.world import breathe

# How long a client waits for a reply: a failover, and a machine that is busy with others.
PATIENCE_SECONDS = 90
PAUSE_MS = 60_000
SCRIPT = "return {redis.call('INCR', KEYS[1]), ARGV[1]}"
# What says that a request was not executed, and may be said while masters change.
EXCUSES = (b"ERR headgate: ", b"CLUSTERDOWN", b"TRYAGAIN", b"LOADING", b"MASTERDOWN", b"READONLY", b"UNBLOCKED",
           b"MOVED", b"ASK", b"EXECABORT", b"NOREPLICAS")  # fmt: skip


class Wrong(AssertionError):
    """A reply that nothing excuses."""


class Checked:
    """One client, in a thread."""

    def __init__(self, crowd, number):
        self.crowd, self.number = crowd, number
        self.random = random.Random(crowd.seed * 1000 + number)
        self.tags = [tag_of(slot) for slot in self.random.sample(range(0, 16384, 512), 6)]
        self.seen = dict.fromkeys((f"{{{tag}}}:n:{number}" for tag in self.tags), 0)
        self.pairs = dict.fromkeys((f"{{{tag}}}:pair:{number}" for tag in self.tags[:2]), 0)
        self.unknown = {}  # counter: how many INCRs of it have had no reply
        self.serial = self.rounds = self.requests = self.reconnects = self.lost = 0
        self.errors = collections.Counter()
        self.longest = 0.0
        self.raw = 0
        self.client = None

    # ---- what is asked: (commands, what checks their replies) ----

    def _word(self):
        self.serial += 1
        return f"{self.number}:{self.serial}".encode()

    def _any_key(self):
        return self.random.choice(list(self.seen))

    def _count(self):
        key = self._any_key()
        return [("INCR", key), ("GET", key)], lambda replies: self._counted(key, *replies), [key]

    def _count_by_script(self):
        key, word = self._any_key(), self._word()

        def check(replies):
            (reply,) = replies
            if not self._excused(reply):
                self._expect(reply[1:], [word])
                self._counted(key, reply[0])
            else:
                self._counted(key, reply)

        return [("EVAL", SCRIPT, 1, key, word)], check, [key]

    def _pair(self):
        """Two counters of one slot in one transaction: always equal."""
        key = self.random.choice(list(self.pairs))

        def check(replies):
            result = replies[-1]
            if self._excused(result):
                self.unknown.pop(key, None)
                return
            self._expect(result, [result[0]] * 2)
            self._grown(self.pairs, key, result[0])

        return [("MULTI",), ("INCR", key), ("INCR", key + "'"), ("EXEC",)], check, [key]

    def _echo(self):
        word = self._word()
        return [("ECHO", word)], lambda replies: self._same(replies[0], word), []

    def _write_and_read(self):
        key, word = f"{{{self.random.choice(self.tags)}}}:v:{self.number}", self._word()

        def check(replies):
            if not self._excused(replies[0]):
                self._same(replies[1], word)

        return [("SET", key, word), ("GET", key)], check, []

    def _read_many(self):
        """Of several nodes at once; what is before it in the pipeline was executed before it."""
        keys = list(self.seen)

        def check(replies):
            if not self._excused(replies[0]):
                for key, value in zip(keys, replies[0]):
                    self._at_least(key, int(value or 0))

        return [("MGET", *keys)], check, []

    def _queue(self):
        key, word = f"{{{self.random.choice(self.tags)}}}:q:{self.number}:{self._word().decode()}", self._word()

        def check(replies):
            pushed, popped = replies
            if not self._excused(pushed) and not self._excused(popped):
                self._expect(popped, [key.encode(), word])

        return [("RPUSH", key, word), ("BLPOP", key, 2)], check, []

    # ---- what is right ----

    def _excused(self, reply):
        if not isinstance(reply, Error):
            return False
        if not reply.startswith(EXCUSES):
            raise Wrong(f"client {self.number}: {reply}")
        self.errors[reply.decode() if reply.startswith(b"ERR") else reply.split(b" ")[0].decode()] += 1
        return True

    def _expect(self, got, wanted):
        if list(got) != list(wanted):
            raise Wrong(f"client {self.number}: {got} instead of {wanted}")

    def _same(self, reply, wanted):
        if not self._excused(reply) and reply != wanted and not self._ran_back() and not self.crowd.is_unplanned():
            raise Wrong(f"client {self.number}: {reply} instead of {wanted}")

    def _ran_back(self):
        """Whether a master was killed that may have lost what it had acknowledged."""
        return self.raw != self.crowd.raw

    def _grown(self, counters, key, value):
        wanted = counters[key] + 1
        if value < wanted and (self._ran_back() or self.crowd.is_unplanned()):
            self.lost += wanted - value
        elif value != wanted:
            raise Wrong(f"client {self.number}: {key} is {value} instead of {wanted}")
        counters[key] = value
        self.unknown.pop(key, None)

    def _counted(self, key, count, value=None):
        if self._excused(count):
            self.unknown.pop(key, None)
            return
        self._grown(self.seen, key, count)
        if value is not None and not self._excused(value) and value != str(count).encode() and not self._ran_back():
            raise Wrong(f"client {self.number}: {key} is read as {value}, and was {count}")

    def _at_least(self, key, value):
        if value < self.seen[key] and not self._ran_back() and not self.crowd.is_unplanned():
            raise Wrong(f"client {self.number}: {key} is read as {value}, and was {self.seen[key]}")

    # ---- the rounds ----

    def _send_round(self):
        kinds = [self._count, self._count, self._count_by_script, self._pair, self._echo, self._write_and_read]
        kinds += [self._read_many] if self.crowd.splits else []
        asked, counted = [], set()
        for _ in range(self.random.randint(1, 12)):
            commands, check, keys = self.random.choice(kinds + ([self._queue] if self.random.random() < 0.1 else []))()
            if counted.isdisjoint(keys):
                asked.append((commands, check, keys))
                counted.update(keys)
        for _, _, keys in asked:
            self.unknown.update(dict.fromkeys(keys, 1))
        self.client.send(b"".join(encode(*command) for commands, *_ in asked for command in commands))
        return asked

    def _round(self):
        began = time.monotonic()
        for commands, check, _ in self._send_round():
            check(self.client.read_many(len(commands)))
            self.requests += len(commands)
        self.longest = max(self.longest, time.monotonic() - began)
        self.rounds += 1
        if self._ran_back() and self.crowd.settled == self.crowd.raw:
            self._look_again()

    def _answered(self, *command):
        """Its reply when it is no error any more."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while isinstance(reply := self.client(*command), Error):
            self._excused(reply)
            if time.monotonic() > deadline:
                raise Wrong(f"client {self.number}: nothing but {reply}")
            time.sleep(0.02)
        return reply

    def _look_again(self):
        """What became of the requests that had no reply; and, after a master was killed raw, of all."""
        ran_back, self.raw = self._ran_back() or self.raw != self.crowd.settled, self.crowd.settled
        for counters in (self.seen, self.pairs):
            for key, seen in counters.items():
                value = int(self._answered("GET", key) or 0)
                most = seen + self.unknown.get(key, 0)
                if value < seen and (ran_back or self.crowd.is_unplanned()):
                    self.lost += seen - value
                elif not seen <= value <= most:
                    raise Wrong(f"client {self.number}: {key} is {value}, not {seen} to {most}")
                counters[key] = value
        self.unknown.clear()
        for key, value in self.pairs.items():
            self._expect([int(self._answered("GET", key + "'") or 0)], [value])

    def _come(self):
        began = time.monotonic()
        self._connect_and_look(began + PATIENCE_SECONDS)
        self.longest = max(self.longest, time.monotonic() - began)

    def _connect_and_look(self, deadline):
        while True:
            try:
                self.client = self.crowd.connect()
                self.client.timeout = PATIENCE_SECONDS
                self.client.socket.settimeout(PATIENCE_SECONDS)
                return self._look_again()
            except (Closed, ConnectionError):
                if time.monotonic() > deadline:
                    raise Wrong(f"client {self.number}: closed again and again") from None
                time.sleep(0.02)

    def run(self):
        try:
            self._come()
            while not self.crowd.ends.is_set():
                try:
                    self._round()
                    breathe()
                except (Closed, ConnectionError):
                    self.reconnects += 1
                    self._come()
            self.client.close()
        except BaseException as error:  # pylint: disable=broad-except
            self.crowd.failures.append(error)


class Crowd:
    """So many of these clients. splits: requests for several slots are taken apart."""

    def __init__(self, connect, clients, splits, seed=1):
        self.connect, self.splits, self.seed = connect, splits, seed
        self.ends = threading.Event()
        self.failures = []
        self.raw = self.settled = 0  # masters that were killed raw; … of which are replaced
        self.unplanned = None  # tells whether there was a failover that nobody has asked for, since it was asked last
        self.lock = threading.Lock()
        self.clients = [Checked(self, number) for number in range(clients)]
        self.threads = [threading.Thread(target=client.run, daemon=True) for client in self.clients]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        self.check()

    def is_unplanned(self):
        """Whether somebody has failed over by himself, which nobody had held up the writes for. A busy machine is enough.
        Asked only if something has run back."""
        with self.lock:
            if self.unplanned is not None and self.unplanned():
                self.raw += 1
                self.settled = self.raw
            return self.raw > 0 and any(client.raw != self.raw for client in self.clients)

    def check(self):
        if self.failures:
            raise self.failures[0]

    def await_rounds(self, more=2):
        """So many more of each client."""
        wanted = [client.rounds + more for client in self.clients]
        wait_for(
            lambda: self.failures or all(client.rounds >= least for client, least in zip(self.clients, wanted)),
            2 * PATIENCE_SECONDS,
            "further rounds of all clients",
        )
        self.check()

    def total(self, name):
        return sum(getattr(client, name) for client in self.clients)


def hold_writes(ask):
    """Has a master hold up its writes, until a replica has all that were acknowledged. ask: says a command to it."""
    assert ask("CLIENT", "PAUSE", PAUSE_MS, "WRITE") == OK
    wait_for(lambda: ask("WAIT", 1, 1000) >= 1, 60, "a replica that has all")


class ClusterUpheaval:
    """What happens to a cluster of masters with one replica each."""

    kinds = ("agree", "kill", "stop", "reshard")

    def __init__(self, cluster, seed=1):
        self.cluster = cluster
        self.random = random.Random(seed)

    def agree(self, crowd, raw):
        del crowd, raw
        self.cluster.fail_over(self.cluster.replica_of(self.random.choice(self.cluster.current_masters())))

    def _hold(self, crowd, master, raw):
        if raw:
            crowd.raw += 1
        else:
            hold_writes(master.ask)

    def _choose(self):
        """A master, and the replica that can take its place: one that was started again is known as such after a while."""
        master = self.random.choice(self.cluster.current_masters())
        wait_for(lambda: self.cluster.replicas_of(master), 60, "a replica of it")
        return master, self.cluster.replica_of(master)

    def kill(self, crowd, raw):
        lost, _ = self._choose()
        self._hold(crowd, lost, raw)
        lost.kill()
        self.cluster.await_failover(lost)
        crowd.settled = crowd.raw
        crowd.await_rounds()
        lost.start()

    def stop(self, crowd, raw):
        lost, replica = self._choose()
        self._hold(crowd, lost, raw)
        lost.pause()
        try:
            wait_for(lambda: replica.is_master(), 60, "a replica that takes over")
            crowd.settled = crowd.raw
            crowd.await_rounds()
        finally:
            lost.resume()
        lost.tell("CLIENT", "UNPAUSE")
        wait_for(lambda: not lost.is_master(), 60, "the old master to see it")

    def reshard(self, crowd, raw):
        """Slots with keys of clients go to another master, while a third one fails over."""
        del crowd, raw
        masters = self.cluster.current_masters()
        self.random.shuffle(masters)
        source, target, third = masters[:3]
        slots = self.random.sample([slot for slot in self.cluster.slots_of(source) if slot % 512 == 0] or [0], 1)
        failures = []

        def fail_over():
            try:
                self.cluster.fail_over(self.cluster.replica_of(third))
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        thread = threading.Thread(target=fail_over)
        thread.start()
        try:
            for slot in slots:
                if self.cluster.owner(slot, source) is source:
                    self._move(slot, source, target)
        finally:
            thread.join()
        assert not failures, failures[0]

    def _move(self, slot, source, target):
        """As Cluster.move_slot(), but told to these two only, as others may be just about to fail over."""
        target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while self.cluster.move_keys(slot, source, target, 5):
            time.sleep(0.005)
        target.tell("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        source.tell("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def settle(self):
        """All agree, and each master knows of its replica."""
        count = len(self.cluster.nodes) // 2

        def is_whole():
            masters = self.cluster.current_masters()
            return len(masters) == count and all(self._has_replica(master) for master in masters)

        self.cluster.await_agreement()
        wait_for(is_whole, 60, "a replica of each master")

    @staticmethod
    def _has_replica(master):
        return any(known[1] == master.id for known in master.cluster_nodes().values())


class SentinelUpheaval:
    """What happens to a master with replicas that sentinels watch over."""

    kinds = ("agree", "kill", "stop")

    def __init__(self, group, seed=1):
        self.group = group
        self.random = random.Random(seed)
        self.heard = Announcements(group.sentinels[:1])
        self.planned = 0

    def _is_unplanned(self):
        """Whether sentinels have announced more than was asked of them. Who announces may be behind a little."""
        deadline = time.monotonic() + 5
        while len(self.heard.heard) <= self.planned and time.monotonic() < deadline:
            time.sleep(0.05)
        found = len(self.heard.heard) > self.planned
        self.planned = max(self.planned, len(self.heard.heard))
        return found

    def agree(self, crowd, raw):
        """SENTINEL FAILOVER: the old master goes on being one until the sentinels tell it otherwise."""
        self._hold(crowd, self.group.master(), raw)
        self.group.failover()
        crowd.settled = crowd.raw

    def _hold(self, crowd, master, raw):
        self.planned = len(self.heard.heard) + 1
        crowd.unplanned = self._is_unplanned
        if raw:
            crowd.raw += 1
            return
        with self.group.direct(master) as client:
            hold_writes(client)

    def _await_another(self, lost):
        address = (lost.host, lost.sentinel_port)
        # Sentinels that were not given the processor for two seconds do nothing for thirty.
        wait_for(lambda: all(one.master() != address for one in self.group.sentinels), 240, "another master")

    def kill(self, crowd, raw):
        lost = self.group.master()
        self._hold(crowd, lost, raw)
        lost.kill()
        self._await_another(lost)
        crowd.settled = crowd.raw
        crowd.await_rounds()
        lost.start()

    def stop(self, crowd, raw):
        lost = self.group.master()
        self._hold(crowd, lost, raw)
        lost.signal(19)
        try:
            self._await_another(lost)
            crowd.settled = crowd.raw
            crowd.await_rounds()
        finally:
            lost.signal(18)

    def settle(self):
        """Those that were masters become replicas some ten seconds later; here they are told. Sentinels of which one has
        not ended its failover yet may begin another by themselves, and nobody would have held up the writes."""
        master = self.group.master()
        for server in self.group.servers:
            with self.group.direct(server) as client:
                if server is not master:
                    client("REPLICAOF", master.host, master.sentinel_port)
                client("CLIENT", "UNPAUSE")
        self.group.await_agreement()
        self.group.await_whole()


def upheave(upheaval, crowd, count, raw=False, say=None):
    """So many troubles, each kind in turn, each followed by rounds of all clients; {kind: how often}."""
    done = dict.fromkeys(upheaval.kinds, 0)
    for number in range(count):
        kind = upheaval.kinds[number % len(upheaval.kinds)]
        began = time.monotonic()
        getattr(upheaval, kind)(crowd, raw)
        crowd.await_rounds()
        upheaval.settle()
        crowd.await_rounds()
        done[kind] += 1
        if say:
            say(f"{number + 1}: {kind}, {time.monotonic() - began:.1f} s")
    return done
