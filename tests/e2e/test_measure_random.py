"""Random pipelines of requests that have no, one or several replies, that wait, are refused, translated, long, or change
lanes: what [latency] counts for each interface agrees with what the clients sent and read."""

import collections
import concurrent.futures
import random
import threading

import pytest

from harness.latency import interfaces
from harness.resp import Client, Error, encode
from harness.rules import launch, reload

RULES = """
[latency]
{options}
[latency:orders]
keys = order:*

[limit:few]
commands = incr getdel
limit = 60
window = 1h

[limit:slowly]
commands = decr
algorithm = funnel
leak = 500/s
capacity = 1
action = delay
max_delay = 20ms

[limit:bytes]
commands = setex
cost = bytes
limit = 1gb
window = 1h

[deny:all]
commands = append
"""
# Reloads go from one to the other while requests are under way.
VARIANTS = (
    "enabled = on\nslowlog_threshold = 0",
    "enabled = on\nslowlog_threshold = 1us",
    "enabled = on\nslowlog_threshold = 1h\nbiglog_request = 1kb",
    "enabled = on\nslowlog_threshold = 0\nbiglog_reply = 1kb\nbiglog_request = 0",
)
OFF = "enabled = off"
# What is not compared: of a long request that is refused only the beginning may have come; of several replies only the
# last counts as one; and whether who goes away while it waits has an answer is chance.
LOOSE = {("append", "bytes_in"), ("subscribe", "bytes_out"), ("unsubscribe", "bytes_out")}
CHANCE = "brpop|blocking"
FIGURES = ("count", "errors", "bytes_in", "bytes_out")
LONG = 70_000
CLIENTS = 4
ROUNDS = 10


class Counting(Client):
    """Knows how many bytes it has read."""

    def __init__(self, address):
        super().__init__(address)
        self.read_bytes = 0

    def read_line(self):
        line = super().read_line()
        self.read_bytes += len(line) + 2
        return line

    def read_exactly(self, count):
        self.read_bytes += count
        return super().read_exactly(count)


class Side:
    """One client: what it sends, and the model of what is counted."""

    def __init__(self, headgate, number, seed):
        self.headgate = headgate
        self.random = random.Random(f"{seed} {number}")
        self.name = number
        self.model = collections.Counter()
        self.connect()

    def connect(self):
        self.client = Counting(self.headgate.address)

    # Steps: (interface, or None if it is not to be counted; command; replies).

    def plain(self):
        key = f"{self.name}:{self.random.randrange(5)}"
        size = self.random.choice((0, 1, 5, 40, 300, 1500))
        return self.random.choice(
            (
                ("set", ("SET", key, "x" * size)),
                ("get", ("GET", key)),
                ("strlen", ("STRLEN", key)),
                ("lpop", ("LPOP", key)),
                ("hget", ("HGET", key, "field")),
                ("orders", ("GET", f"order:{key}")),
                ("orders", ("SET", f"order:{key}", "x" * size)),
                ("incr", ("INCR", f"{self.name}:n")),
                ("getdel", ("GETDEL", key)),
                ("decr", ("DECR", f"{self.name}:m")),
                ("setex", ("SETEX", key, "9", "x" * size)),
                ("append", ("APPEND", key, "x")),
                ("echo", ("ECHO", "e" * size)),
                ("set", ("SET", key)),
            )
        )

    def one(self):
        return [(*self.plain(), 1)]

    def same(self):
        return [(*self.plain(), 1)] * self.random.randrange(1, 40)

    def many(self):
        return [(*self.plain(), 1) for _ in range(self.random.randrange(1, 40))]

    def other(self):
        return [
            self.random.choice(
                (
                    ("cl.throttle", ("CL.THROTTLE", f"{self.name}:t", "5", "10", "60"), 1),
                    ("delifeq", ("DELIFEQ", f"{self.name}:1", "x"), 1),
                    ("eval", ("EVAL", "return redis.call('GET', KEYS[1])", "1", f"{self.name}:1"), 1),
                    ("unknown", ("NONSENSE", "a"), 1),
                    ("client|getname", ("CLIENT", "GETNAME"), 1),
                    ("client|setname", ("CLIENT", "SETNAME", "me"), 1),
                    ("client|id", ("CLIENT", "ID"), 1),
                    ("config|get", ("CONFIG", "GET", "maxmemory"), 1),
                    ("select", ("SELECT", "0"), 1),
                    ("select", ("SELECT", "1000"), 1),
                    ("wait|blocking", ("WAIT", "0", "1"), 1),
                    ("blpop|blocking", ("BLPOP", f"{self.name}:nothing", "0.02"), 1),
                    ("hello", ("HELLO", "2"), 1),
                    ("ping", ("PING",), 1),
                    ("watch", ("WATCH", "a"), 1),
                    ("unwatch", ("UNWATCH",), 1),
                    ("exec", ("EXEC",), 1),
                    ("discard", ("DISCARD",), 1),
                    ("reset", ("RESET",), 1),
                    ("xread|blocking", ("XREAD", "BLOCK", "10", "STREAMS", f"{self.name}:s", "$"), 1),
                    ("xread", ("XREAD", "STREAMS", f"{self.name}:s", "0"), 1),
                )
            )
        ]

    def long(self):
        key, value = f"{self.name}:1", "v" * self.random.randrange(LONG, 3 * LONG)
        return [
            self.random.choice(
                (
                    ("set", ("SET", key, value), 1),
                    ("orders", ("SET", f"order:{key}", value), 1),
                    ("setex", ("SETEX", key, "9", value), 1),
                    ("append", ("APPEND", key, value), 1),
                    ("unknown", ("NONSENSE", value), 1),
                )
            )
        ]

    def transaction(self):
        end = self.random.choice(("exec", "exec", "discard"))
        return [("multi", ("MULTI",), 1), *self.many()[:10], (end, (end,), 1)]

    def subscribed(self):
        channels = [f"{self.name}:c{i}" for i in range(self.random.randrange(1, 4))]
        count = len(channels)
        return [
            ("subscribe", ("SUBSCRIBE", *channels), count),
            ("ping", ("PING",), 1),
            ("unsubscribe", ("UNSUBSCRIBE", *channels), count),
        ]

    def pipeline(self):
        kinds = {
            self.one: 4,
            self.same: 4,
            self.many: 4,
            self.other: 6,
            self.long: 1,
            self.transaction: 2,
            self.subscribed: 1,
        }
        chosen = self.random.choices(list(kinds), list(kinds.values()), k=self.random.randrange(1, 12))
        return [step for kind in chosen for step in kind()]

    def round(self):
        steps = self.pipeline()
        data = b"".join(encode(*command) for _, command, _ in steps)
        sizes = random.Random(self.random.random()) if self.random.random() < 0.5 else None
        writer = threading.Thread(target=self.write, args=(data, sizes), daemon=True)
        writer.start()
        for step in steps:
            self.read(*step)
        writer.join(10)
        if self.random.random() < 0.3:
            self.leave()

    def write(self, data, sizes):
        """At once, or cut anywhere."""
        start = 0
        while start < len(data):
            size = sizes.choice((1, 20, 500, 16_384, 100_000)) if sizes else len(data)
            self.client.send(data[start : start + size])
            start += size

    def read(self, interface, command, replies):
        before = self.client.read_bytes
        reply = None
        for _ in range(replies):
            reply = self.client.read()
            if isinstance(reply, Error):
                break
        if interface is not None:
            took = (1, isinstance(reply, Error), len(encode(*command)), self.client.read_bytes - before)
            self.model.update({(interface, figure): value for figure, value in zip(FIGURES, took)})

    def leave(self):
        """QUIT; or away without a word, perhaps while a request waits."""
        how = self.random.choice(("quit", "away", "waiting", "monitor"))
        if how in ("quit", "monitor"):
            self.client.send(encode(how))
            self.read(how if how == "quit" else None, (how,), 1)
        if how == "waiting":
            self.client.send(encode("BRPOP", f"{self.name}:nothing", "0"))
        self.client.close()
        self.connect()


def run_rounds(sides, rounds):
    """All of them at once, each in a thread; what has to be waited for."""
    runners = concurrent.futures.ThreadPoolExecutor(len(sides))
    ends = [runners.submit(lambda side=side: [side.round() for _ in range(rounds)]) for side in sides]
    runners.shutdown(wait=False)
    return ends


def measured(headgate):
    counted = collections.Counter()
    for name, line in interfaces(headgate, "LATENCY").items():
        counted.update({(name, figure): int(line[figure]) for figure in FIGURES})
    return counted


def differences(headgate, before, sides):
    model = sum((side.model for side in sides), collections.Counter())
    after = measured(headgate)
    compared = {key for key in after.keys() | model.keys() if key[0] != CHANCE} - LOOSE
    return {key: (after[key] - before[key], model[key]) for key in compared if after[key] - before[key] != model[key]}


@pytest.mark.threads
@pytest.mark.parametrize(("threads", "seed"), ((1, 1), (4, 2)))
def test_counts_agree_with_a_model(redis, make_headgate, pool, threads, seed):
    options = VARIANTS[seed % len(VARIANTS)]
    headgate = launch(make_headgate, redis, pool, RULES.format(options=options), threads=threads)
    sides = [Side(headgate, number, seed) for number in range(CLIENTS)]
    ends = run_rounds(sides, ROUNDS)
    for number in range(6):
        reload(headgate, RULES.format(options=VARIANTS[(seed + number) % len(VARIANTS)]))
    for end in ends:
        end.result(60)
    assert differences(headgate, collections.Counter(), sides) == {}


@pytest.mark.threads
@pytest.mark.parametrize(("threads", "seed"), ((1, 2), (4, 1)))
def test_measuring_that_comes_and_goes(redis, make_headgate, pool, threads, seed):
    """Requests that were under way when it was switched on or off leave nothing behind."""
    headgate = launch(make_headgate, redis, pool, RULES.format(options=VARIANTS[seed % 4]), threads=threads)
    sides = [Side(headgate, number, seed) for number in range(CLIENTS)]
    ends = run_rounds(sides, ROUNDS)
    while not all(end.done() for end in ends):
        for options in (OFF, VARIANTS[seed % 4]):
            reload(headgate, RULES.format(options=options))
    for end in ends:
        end.result(60)
    reload(headgate, RULES.format(options=VARIANTS[seed % 4]), *(side.client for side in sides))
    for side in sides:
        side.model.clear()
    before = measured(headgate)
    for end in run_rounds(sides, 2):
        end.result(60)
    assert differences(headgate, before, sides) == {}
