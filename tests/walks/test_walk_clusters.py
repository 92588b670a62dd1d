"""A walk through the troubles of a cluster: slots move and stay in two halves, masters step down, hang and are killed at any
turn, processes are late. Clients before one or two Headgates pipeline all kinds of commands, and each reply is checked.

What a client writes is its own: the words of its lists, each of which is one longer than before, and its registers. So an
acknowledged write is there once and in the order in which it was sent, whatever else a reply may show. A connection that
was closed leaves its keys behind, since what was under way may be executed or not: at the end their masters are asked.

Redis replicates behind its acknowledgements. Before most masters go their writes are held up until the replica has all.
Others go as they are (raw): then a list may lose its end, but nothing of which WAIT has said that the replica has it."""

import collections
import contextlib
import math
import random
import threading
import time

import pytest

from harness import world
from harness.admin import stats
from harness.cluster import Cluster, tag_of
from harness.resp import OK, QUEUED, Closed, Error, encode
from harness.upheaval import hold_writes

CLIENTS, SLOTS, TROUBLES = 5, 9, 6
NODE_TIMEOUT_MS = 1500
WAIT_SECONDS, PATIENCE_SECONDS = 60, 90
# So long Headgate may not have heard of what nobody has told it by a redirection: it asks every ten seconds, or some more.
AFTERMATH_SECONDS = 13
MAX_LAG_SECONDS = 3
PUSH = "return {redis.call('RPUSH', KEYS[1], ARGV[1]), ARGV[1]}"
# A script that has written, and then says that it was not executed.
LIE = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.error_reply(ARGV[2])"
# What may be said of a request that was not executed, while its slot moves and while its master goes. own: it has a lane of
# its own, where what has not been sent yet is answered at once when that breaks behind answers. lied: a script has answered on
# it by an error, which may have had several lines, and what looks like redirections is not believed until all is answered; but of
# parts it is, which go where no script does.
NO_LANE = b"ERR headgate: no connection"
MOVING = {"plain": (), "own": (b"UNBLOCKED",), "lied": (b"UNBLOCKED", b"MOVED", b"ASK"),
          "transaction": (b"EXECABORT", b"MOVED", b"ASK", b"TRYAGAIN")}  # fmt: skip
FAILING = {"plain": (b"READONLY",), "own": (b"UNBLOCKED", b"READONLY", NO_LANE)}
FAILING |= {"lied": (*FAILING["own"], b"MOVED", b"CLUSTERDOWN"), "transaction": (*FAILING["own"], b"EXECABORT", b"MOVED", b"CLUSTERDOWN")}


class Wrong(AssertionError):
    """What nothing excuses."""


class Walk:
    """What all take part in. moved, failed, raw: {slot: until when it counts that it moved, its master went, went raw}."""

    def __init__(self, cluster, headgates, draws):
        self.cluster, self.headgates, self.draws = cluster, headgates, draws
        self.slots = draws.sample(range(16384), SLOTS)
        self.pace = draws.choice((0.01, 0.03, 0.1))
        self.moved, self.failed, self.raw = {}, {}, {}
        self.elected = {}  # when a node became a master
        self.halves = set()  # nodes between which a slot is in two halves
        self.ends = threading.Event()
        self.failures, self.figures = [], collections.Counter()

    @contextlib.contextmanager
    def counts(self, kind, slots, aftermath=AFTERMATH_SECONDS):
        """None: of whichever slots, as a master may have none of these."""
        slots = [None, *slots]
        kind.update(dict.fromkeys(slots, math.inf))
        yield
        kind.update(dict.fromkeys(slots, time.monotonic() + aftermath))

    def guard(self, action):
        try:
            action()
        except BaseException as error:  # pylint: disable=broad-except
            self.failures.append(error)

    def rest(self, most):
        time.sleep(self.draws.uniform(0, most))
        if self.failures:
            raise self.failures[0]

    def slots_of(self, node):
        return [slot for slot in self.slots if slot in self.cluster.slots_of(node)]

    def _choose(self):
        """A master of which no slot is in two halves, and the replica that can take its place."""
        master = self.draws.choice([node for node in self.cluster.current_masters() if node not in self.halves])
        replica = wait_slowly(lambda: self.cluster.replicas_of(master), "a replica of it")[0]
        # The votes of its last election would make it a master again at once, with the epoch of then.
        time.sleep(max(0, self.elected.get(replica, 0) + 4 * NODE_TIMEOUT_MS / 1000 + 2 - time.monotonic()))
        return master, replica

    def step_down(self):
        master, replica = self._choose()
        with self.counts(self.failed, self.slots_of(master)):
            self.cluster.fail_over(replica)
            self.elected[replica] = time.monotonic()
            wait_slowly(lambda: not master.is_master(), "a master that steps down")

    def go(self):
        """Killed at any turn, or stopped for longer than the others wait."""
        master, replica = self._choose()
        is_raw, is_killed = self.draws.random() < 0.4, self.draws.random() < 0.6
        slots, self.figures["raw"] = self.slots_of(master), self.figures["raw"] + is_raw
        with self.counts(self.failed, slots), self.counts(self.raw, slots if is_raw else [], 0):
            if not is_raw:
                hold_writes(master.ask)
            if is_killed:
                world.end(master.process.pid, self.draws.randrange(1, 3000))
                master.asking = None
                master.wait()
            else:
                master.pause()
            wait_slowly(replica.is_master, "a replica that takes over")
            self.elected[replica] = time.monotonic()
            self.rest(2)
            if is_killed:
                master.start()
            else:
                master.resume()
                master.tell("CLIENT", "UNPAUSE")
            wait_slowly(lambda: not master.is_master(), "the old master to see it")

    def hang(self):
        """For less than that: nobody takes its place."""
        node = self.draws.choice(self.cluster.nodes)
        node.pause()
        time.sleep(self.draws.uniform(0, NODE_TIMEOUT_MS / 3000))
        node.resume()

    def cut(self):
        """What it has read it executes, and then closes the connections before it answers."""
        node = self.draws.choice(self.cluster.current_masters())
        with self.counts(self.failed, self.slots_of(node)), node.connect() as direct:
            node.pause()
            time.sleep(self.draws.uniform(0, 0.3))
            direct.request("CLIENT", "KILL", "TYPE", "normal")
            node.resume()
            direct.read()

    def be_late(self):
        process = self.draws.choice(self.cluster.nodes + self.headgates).process
        world.late(process.pid, self.draws.choice((0.001, 0.01, 0.05)), self.draws.choice((50, 500)))
        self.rest(3)
        world.late(process.pid, 0, 0)

    def move(self):
        """A slot with its keys, a few at once; and what else happens while it is in two halves."""
        slot = self.draws.choice(self.slots)
        source = self.cluster.owner(slot)
        target = self.draws.choice([node for node in self.cluster.current_masters() if node is not source])
        with self.counts(self.moved, [slot]):
            self.halves = {source, target}
            self.cluster.begin_migration(slot, target)
            self.rest(0.5)
            while self.cluster.move_keys(slot, source, target, self.draws.randint(1, 8)):
                self.rest(0.2)
                if self.draws.random() < 0.15:
                    self.trouble(self.draws.choice((self.step_down, self.go, self.hang, self.cut)))
            told = [target, source] + (self.cluster.current_masters() if self.draws.random() < 0.5 else [])
            for node in dict.fromkeys(told):
                node.tell("CLUSTER", "SETSLOT", slot, "NODE", target.id)
            self.halves = set()
            wait_slowly(lambda: target.ask("WAIT", 1, 1000) >= 1, "a replica that has all of the slot")

    def trouble(self, kind):
        self.figures[kind.__name__] += 1
        kind()
        self.rest(0)

    def settle(self):
        """All agree. Asked at length, as to ask costs more than to wait."""

        def is_quiet():
            told = [node.cluster_info() for node in self.cluster.alive()]
            return all(info["cluster_state"] == "ok" for info in told) and len({info["cluster_current_epoch"] for info in told}) == 1

        wait_slowly(is_quiet, "a cluster that is well")
        self.cluster.await_agreement()


def wait_slowly(condition, what):
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


class Log:
    """A list that one connection appends words to. words: that were acknowledged, and when they were sent."""

    def __init__(self, walk, slot, name):
        self.walk, self.slot, self.key = walk, slot, f"{{{tag_of(slot)}}}:{name}"
        self.words, self.times, self.pending = [], [], []
        self.durable = 0  # WAIT has said of so many that the replica has them

    def may_have_lost(self):
        """Whether its master went raw after that."""
        return bool(self.times) and self.walk.raw.get(self.slot, -1) >= self.times[-1]

    def grow(self, word, length, sent):
        if self.may_have_lost() and self.durable < length <= len(self.words):
            self.walk.figures["lost"] += len(self.words) + 1 - length
            del self.words[length - 1 :], self.times[length - 1 :]
        self.words.append(word)
        self.times.append(sent)
        if length != len(self.words):
            raise Wrong(f"{self.key} has {length} words, not {self.words}, {self.durable} of them durable")

    def verify(self, found):
        """found: what its master has in the end."""
        kept = self.words[: self.durable] if self.may_have_lost() else self.words
        rest = iter(self.words[len(kept) :] + self.pending)
        if found[: len(kept)] != kept or not all(word in rest for word in found[len(kept) :]):
            raise Wrong(f"{self.key} has {found}, not {kept} of {self.words} and some of {self.pending}")


class Walker:
    """A client, in a thread."""

    def __init__(self, walk, number):
        self.walk, self.number = walk, number
        self.draws = random.Random(walk.draws.random())
        self.headgate = walk.headgates[number % len(walk.headgates)]
        self.is_session = self.headgate.options["pool"] == "session"
        self.reads_masters = self.headgate.options["reads"] == "master"
        self.serial, self.sent, self.all_logs, self.all_registers = 0, 0.0, [], []
        self.thread = threading.Thread(target=walk.guard, args=(self.run,), daemon=True)

    def _log(self, slot, name):
        self.all_logs.append(Log(self.walk, slot, name))
        return self.all_logs[-1]

    def _connect(self):
        """With keys that no other connection had."""
        self.has_lied, self.wrote = False, -math.inf
        name = self._word().decode()
        self.logs = [self._log(slot, f"log:{name}") for slot in self.walk.slots]
        self.twins = {log: self._log(log.slot, f"twin:{name}") for log in self.logs}
        self.registers = {f"{{{tag_of(slot)}}}:register:{name}": (slot, [None]) for slot in self.walk.slots}
        self.all_registers += self.registers.items()
        self.client = self.headgate.connect()
        self.client.socket.settimeout(PATIENCE_SECONDS)

    def wrong(self, text):
        raise Wrong(f"client {self.number} at {time.monotonic():.3f}, sent at {self.sent:.3f}: {text}")

    def _word(self):
        self.serial += 1
        return f"{self.number}:{self.serial}".encode()

    def excused(self, reply, slots, kind="plain"):
        if not isinstance(reply, Error):
            return False
        if reply.startswith(NO_LANE) and time.monotonic() > self.sent + WAIT_SECONDS:
            self.wrong(f"nobody is away for so long: {reply}")
        if kind != "transaction":
            is_own = kind == "own" or self.is_session
            kind = "lied" if self.has_lied and kind != "parts" else "own" if is_own else "plain"
        failed = self.walk.failed
        if reply.startswith((b"CLUSTERDOWN", b"EXECABORT")):
            slots = {*slots, *failed}  # for want of one master all are down
            if kind in ("plain", "own") and any(when >= self.sent for when in failed.values()):
                # What a later one for the same key, which was executed, has overtaken is not sent again: Headgate counts that.
                self.walk.figures["overtaken"] += 1
                return True
        for words, when in ((MOVING[kind], self.walk.moved), (FAILING[kind], failed)):
            if reply.startswith(words) and any(when.get(slot, -1) >= self.sent for slot in slots):
                self.walk.figures[f"{reply.split()[0].decode()} of {kind}"] += 1
                return True
        return self.wrong(f"{kind} of {slots}: {reply}")

    def same(self, reply, wanted):
        if reply != wanted:
            self.wrong(f"{reply} instead of {wanted}")

    # ---- what is asked: commands, what checks their replies, what they write: (where to, word) ----

    def push(self):
        log, word, is_script = self.draws.choice(self.logs), self._word(), self.draws.random() < 0.2

        def check(reply):
            if not self.excused(reply, [log.slot], "own" if is_script else "plain"):
                length, said = reply if is_script else (reply, word)
                self.same(said, word)
                log.grow(word, length, self.sent)

        command = ("EVAL", PUSH, 1, log.key, word) if is_script else ("RPUSH", log.key, word)
        return [command], check, [(log.pending, word)]

    def lie(self):
        """Not of a slot that moves: the node could say then of the next request what the script has said."""
        if not (slots := [slot for slot in self.walk.slots if self.walk.moved.get(slot, -1) < time.monotonic()]):
            return self.echo()
        slot, word = self.draws.choice(slots), self._word()
        log = self._log(slot, f"lie:{word.decode()}")
        said = f"{self.draws.choice(('MOVED', 'ASK'))} {slot} {self.draws.choice(self.walk.cluster.nodes).url}".encode()

        def check(reply):
            if reply != said:
                self.same(self.excused(reply, [slot], "own"), True)
                return
            self.has_lied = True
            log.grow(word, 1, self.sent)

        return [("EVAL", LIE, 1, log.key, word, said)], check, [(log.pending, word)]

    def transact(self):
        """Both lists have the word, or none has."""
        log, word = self.draws.choice(self.logs), self._word()
        twin = self.twins[log]

        def check(*replies):
            for reply, wanted in zip(replies, (OK, QUEUED, QUEUED)):
                if not self.excused(reply, [log.slot], "transaction"):
                    self.same(reply, wanted)
            if not self.excused(replies[3], [log.slot], "transaction"):
                self.same(replies[:3], (OK, QUEUED, QUEUED))
                log.grow(word, replies[3][0], self.sent)
                twin.grow(word, replies[3][1], self.sent)

        commands = [("MULTI",), ("RPUSH", log.key, word), ("RPUSH", twin.key, word), ("EXEC",)]
        return commands, check, [(log.pending, word), (twin.pending, word)]

    def echo(self):
        word = self._word()
        kind = self.draws.choice(("own", "plain", "plain"))
        command = ("EVAL", "return ARGV[1]", 0, word) if kind == "own" else ("ECHO", word)
        return [command], lambda reply: self.excused(reply, [None], kind) or self.same(reply, word), []

    def read(self):
        log = self.draws.choice(self.logs)

        def check(*replies):
            is_exact = self.reads_masters or time.monotonic() < self.wrote + self.headgate.window
            if any([self.excused(reply, [log.slot]) for reply in replies]) or log.may_have_lost():
                return
            if is_exact:
                self.same((log.key, *replies), (log.key, len(log.words), log.words[-1] if log.words else None))
            elif self.walk.moved.get(log.slot, -1) < self.sent:
                old = sum(sent < self.sent - MAX_LAG_SECONDS - 1 for sent in log.times)
                if not old <= replies[0] <= len(log.words) or replies[1] not in [None, *log.words]:
                    self.wrong(f"{log.key} is read as {replies}: {log.words}, {old} of them old")

        return [("LLEN", log.key), ("LINDEX", log.key, -1)], check, []

    def set_many(self):
        """Of several slots: taken apart, and not atomic."""
        keys, word = self.draws.sample(list(self.registers), self.draws.randint(1, 4)), self._word()
        slots, histories = zip(*(self.registers[key] for key in keys))

        def check(reply):
            is_refused = self.excused(reply, slots, "parts" if len(keys) > 1 else "plain")
            for history in histories:
                history[:] = [*(history if is_refused else []), word]

        return [("MSET", *(part for key in keys for part in (key, word)))], check, [(history, word) for history in histories]

    def get_many(self):
        keys = list(self.registers)

        def check(reply):
            if not self.excused(reply, self.walk.slots, "parts"):
                for key, value in zip(keys, reply):
                    self.check_register(key, value, *self.registers[key], self.reads_masters)

        return [("MGET", *keys)], check, []

    def check_register(self, key, value, slot, history, is_exact=True):
        is_own = value is None or value.startswith(b"%d:" % self.number)
        if not is_own or (is_exact and value not in history and slot not in self.walk.raw):
            self.wrong(f"{key} is {value}, not one of {history}")

    def wait_for_replica(self):
        counts = [(log, len(log.words)) for log in self.logs]

        def check(reply):
            if not self.excused(reply, self.walk.slots, "own") and reply >= 1:
                for log, count in counts:
                    log.durable = log.durable if log.may_have_lost() else max(log.durable, count)

        return [("WAIT", 1, 200)], check, []

    def queue(self):
        slot, word = self.draws.choice(self.walk.slots), self._word()
        key = f"{{{tag_of(slot)}}}:queue:{word.decode()}"

        def check(pushed, popped):
            if not self.excused(pushed, [slot]) and not self.excused(popped, [slot], "own"):
                self.same(popped, [key.encode(), word])

        return [("RPUSH", key, word), ("BLPOP", key, 5)], check, []

    def publish(self):
        tag = tag_of(slot := self.draws.choice(self.walk.slots))
        return [("SPUBLISH", tag, self._word())], lambda reply: self.excused(reply, [slot]), []

    # ---- the rounds ----

    def _round(self):
        kinds = [self.push] * 5 + [self.transact, self.echo, self.read, self.read, self.set_many]
        kinds += [self.get_many, self.publish, self.draws.choice((self.lie, self.queue, self.wait_for_replica))]
        self.sent = time.monotonic()
        self.has_lied = False  # that lane was left when all was answered
        asked = collections.deque()
        for _ in range(self.draws.randint(1, 10)):
            asked.append(self.draws.choice(kinds)())
            self.wrote = self.sent if asked[-1][2] else self.wrote
        try:
            self.client.send(b"".join(encode(*command) for commands, *_ in asked for command in commands))
            while asked:
                replies = self.client.read_many(len(asked[0][0]))
                asked.popleft()[1](*replies)
                self.walk.figures["requests"] += len(replies)
        finally:
            for pending, word in (write for _, _, writes in asked for write in writes):
                pending.append(word)

    def run(self):
        self._connect()
        while not self.walk.ends.is_set():
            try:
                self._round()
            except (Closed, ConnectionError):
                self.walk.figures["closed"] += 1
                self._connect()
            time.sleep(self.draws.expovariate(1 / self.walk.pace))

    def verify(self, owners):
        """What is there in the end."""
        for log in self.all_logs:
            log.verify(owners[log.slot].ask("LRANGE", log.key, 0, -1))
        for key, (slot, history) in self.all_registers:
            self.check_register(key, owners[slot].ask("GET", key), slot, history)


class Listener:
    """A subscriber of shard channels, in a thread: what each client has published comes in its order, and once at most."""

    def __init__(self, walk, resp):
        self.walk, self.resp = walk, resp
        self.channels = {tag_of(slot).encode() for slot in (walk.slots if resp == 3 else walk.slots[:1])}
        self.last = collections.defaultdict(int)
        self.heard = set()
        self.thread = threading.Thread(target=walk.guard, args=(self.run,), daemon=True)

    def _connect(self):
        client = self.walk.headgates[-1].connect()
        client.socket.settimeout(1)
        client("HELLO", self.resp)
        for channel in sorted(self.channels):
            client.request("SSUBSCRIBE", channel)
        return client

    def _hear(self, client, kind, channel, word):
        if channel not in self.channels:
            raise Wrong(f"a listener has got {kind} of {channel}")
        if kind == b"sunsubscribe":
            client.request("SSUBSCRIBE", channel)
        if kind == b"smessage":
            who, serial = map(int, word.split(b":"))
            if serial <= self.last[channel, who]:
                raise Wrong(f"a listener has got {word} of {channel} behind {self.last[channel, who]}")
            self.last[channel, who] = serial
            self.heard.add(channel)
        self.walk.figures[kind.decode()] += 1

    def run(self):
        client = self._connect()
        while not self.walk.ends.is_set():
            try:
                self._hear(client, *client.read())
            except TimeoutError:
                pass
            except (Closed, ConnectionError):
                self.walk.figures["listeners closed"] += 1
                client = self._connect()

    def verify(self):
        """All channels are heard again."""
        self.heard.clear()
        wait_slowly(lambda: self.walk.failures or self.heard == self.channels, f"{self.channels}, not only {self.heard}")


def start(cluster, make_headgate, draws):
    """A Headgate of some kind."""
    reads, window = draws.choice(("master", "master", "prefer-replica")), draws.choice((0, 2))
    pool = draws.choice(("shared", "session")) if reads == "master" else "shared"
    headgate = make_headgate(
        cluster.url(), pool=pool, reads=reads, threads=draws.choice((1, 1, 2)), cross_slot="split", max_lag=f"{MAX_LAG_SECONDS}s",
        read_own_writes=f"{window}s", sentinel_check="200ms", upstream_wait=f"{WAIT_SECONDS}s",
    )  # fmt: skip
    headgate.window = window
    return headgate


@pytest.fixture
def cluster():
    with Cluster(replicas=1, node_timeout=NODE_TIMEOUT_MS) as made:
        yield made


@pytest.mark.world
def test_a_walk(cluster, make_headgate, record_property):
    draws = world.draws()
    headgates = [start(cluster, make_headgate, draws) for _ in range(draws.choice((1, 1, 2)))]
    walk = Walk(cluster, headgates, draws)
    walkers = [Walker(walk, number) for number in range(CLIENTS)]
    listeners = [Listener(walk, resp) for resp in (2, 3)]
    for each in walkers + listeners:
        each.thread.start()
    try:
        for _ in range(TROUBLES):
            walk.rest(1)
            kinds = (walk.go, walk.step_down, walk.hang, walk.be_late, walk.cut)
            walk.trouble(walk.move if draws.random() < 0.4 else draws.choice(kinds))
            walk.settle()
        for listener in listeners:
            listener.verify()
    finally:
        walk.ends.set()
        for each in walkers + listeners:
            each.thread.join()
    walk.rest(0)
    assert walk.figures["overtaken"] <= sum(int(stats(one, "upstream")["redirects_ended_total"]) for one in headgates)
    owners = {slot: cluster.owner(slot) for slot in walk.slots}
    for walker in walkers:
        walker.verify(owners)
    for name, count in walk.figures.items():
        record_property(name, count)
