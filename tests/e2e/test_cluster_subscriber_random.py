"""Subscribers of RESP3 that ask for channels and keys at random, in pipelines, while slots go to and fro: each reply is in
its place, each confirmation has the number that one Redis would give, and no shard message comes twice."""

import itertools
import random
import threading

from harness.admin import stats
from harness.cluster import key_in, slot_of
from harness.resp import OK, Push, encode
from harness.rules import launch
from harness.threads import at_once
from harness.world import breathe

NAMES = 5  # of each kind, and shard channels of each node
ROUNDS = 12


class Subscriber:
    """One connection; what it has asked for, and what it has to hear."""

    def __init__(self, headgate, tags, seed):
        self.random = random.Random(seed)
        self.tags, self.seed = tags, seed
        self.client = headgate.connect()
        self.client("HELLO", 3)
        self.channels = {"": set(), "P": set(), "S": set()}
        self.last = {}

    def count(self, kind):
        return len(self.channels["S"]) if kind == "S" else len(self.channels[""]) + len(self.channels["P"])

    def names_of(self, kind):
        numbers = self.random.sample(range(NAMES), self.random.randrange(1, 4))
        tag = self.random.choice(self.tags)
        return [f"{{{tag}}}ch{n}" if kind == "S" else f"news{n}{'*' if kind == 'P' else ''}" for n in numbers]

    def about_keys(self):
        key = f"{{{self.random.choice(self.tags)}}}key{self.seed}"
        value = f"{self.random.random()}:".ljust(self.random.choice((1, 100, 60_000)), "v")
        yield ("SET", key, value), [OK]
        yield ("GET", key), [value.encode()]

    def end_all(self, kind):
        """Confirmed in any order."""
        count, names = self.count(kind), set(self.channels[kind])
        self.channels[kind].clear()
        command = f"{kind}UNSUBSCRIBE"
        counts = range(count - 1, count - 1 - len(names), -1) if names else [count]
        yield (command,), [(command.lower().encode(), names, number) for number in counts]

    def about_channels(self):
        kind, is_end = self.random.choice(("", "P", "S", "S")), self.random.random() < 0.4
        if is_end and self.random.random() < 0.2:
            yield from self.end_all(kind)
            return
        command, names = kind + ("UNSUBSCRIBE" if is_end else "SUBSCRIBE"), self.names_of(kind)
        wanted = []
        for name in names:
            (self.channels[kind].discard if is_end else self.channels[kind].add)(name)
            wanted.append((command.lower().encode(), {name}, self.count(kind)))
        yield (command, *names), wanted

    def read(self):
        """The next that is no message."""
        while isinstance(reply := self.client.read(), Push) and reply[0].endswith(b"message"):
            number, before = int(reply[-1].split(b":")[0]), self.last.get(reply[1], -1)
            # Nodes tell each other of what is published in no order.
            assert reply[0] != b"smessage" or number > before, (reply[:2], number, before)
            self.last[reply[1]] = number
        return reply

    def check(self, wanted):
        reply = self.read()
        if not isinstance(wanted, tuple):
            assert reply == wanted
            return
        kind, names, count = wanted
        assert isinstance(reply, Push) and (reply[0], reply[2]) == (kind, count), (wanted, reply)
        assert not names or reply[1].decode() in names, (wanted, reply)

    def go(self, rounds):
        for _ in range(rounds):
            makers = [self.random.choice((self.about_keys, self.about_channels)) for _ in range(self.random.randrange(1, 20))]
            pairs = [pair for maker in makers for pair in maker()]
            self.client.send(b"".join(encode(*command) for command, _ in pairs))
            for wanted in itertools.chain.from_iterable(wanted for _, wanted in pairs):
                self.check(wanted)
        self.client.close()


def publish(headgate, tags, stop):
    client = headgate.connect()
    for number in itertools.count():
        if stop.is_set():
            break
        channel = number % NAMES
        client("SPUBLISH", f"{{{tags[number % len(tags)]}}}ch{channel}", f"{number}:".ljust(number % 4000, "x"))
        client("PUBLISH", f"news{channel}", f"{number}:".ljust(number % 4000, "y"))
        breathe()
    client.close()


def move(cluster, tags, stop):
    chance = random.Random(1)
    while not stop.is_set():
        slot = slot_of(chance.choice(tags))
        owner = cluster.owner(slot)
        cluster.move_slot(slot, chance.choice([node for node in cluster.masters if node is not owner]))
        # Nodes that have not heard of it yet would have the slot go back.
        cluster.await_agreement()
        stop.wait(0.01)


def test_subscribers_at_random(cluster, make_headgate, pool):
    rules = "[latency]\nenabled = yes\n"
    rules += "[limit:all]\ncommands = get set subscribe ssubscribe\nlimit = 1000000\nwindow = 60s\nper = ip\n"
    headgate = launch(make_headgate, cluster.url(), pool, rules, threads=2, upstream_wait="30s")
    tags = [key_in(cluster.slots_of(node), "tag") for node in cluster.masters]
    stop = threading.Event()
    others = [threading.Thread(target=work, args=(of, tags, stop)) for work, of in ((publish, headgate), (move, cluster))]
    for other in others:
        other.start()
    try:
        at_once(lambda seed: Subscriber(headgate, tags, seed).go(ROUNDS), 4, seconds=240)
    finally:
        stop.set()
        for other in others:
            other.join()
    assert int(stats(headgate)["lanes_desynced_total"]) == 0
