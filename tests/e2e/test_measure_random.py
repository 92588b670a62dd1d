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
CLIENTS = 4
ROUNDS = 3
# What each is counted as, and the request. {k}: a key of the client's own, {v}: a value.
PLAIN = """set SET {k} {v}; get GET {k}; strlen STRLEN {k}; lpop LPOP {k}; hget HGET {k} field; orders GET order:{k}
orders SET order:{k} {v}; incr INCR {k}:n; getdel GETDEL {k}; decr DECR {k}:m; setex SETEX {k} 9 {v}; append APPEND {k} x
echo ECHO {v}; set SET {k}""".replace("\n", ";").split(";")
OTHER = """cl.throttle CL.THROTTLE {k}:t 5 10 60; delifeq DELIFEQ {k} x; eval EVAL return(KEYS[1]) 1 {k}; unknown NONSENSE a
client|getname CLIENT GETNAME; client|setname CLIENT SETNAME me; client|id CLIENT ID; config|get CONFIG GET maxmemory
select SELECT 0; select SELECT 1000; wait|blocking WAIT 0 1; blpop|blocking BLPOP {k}:nothing 0.02; hello HELLO 2; ping PING
watch WATCH a; unwatch UNWATCH; exec EXEC; discard DISCARD; reset RESET; xread XREAD STREAMS {k}:s 0
xread|blocking XREAD BLOCK 10 STREAMS {k}:s $""".replace("\n", ";").split(";")
LONG = ["set SET {k} {v}", "orders SET order:{k} {v}", "setex SETEX {k} 9 {v}", "append APPEND {k} {v}", "unknown NONSENSE {v}"]


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

    def some(self, table, sizes=(0, 1, 5, 40, 300, 1500)):
        name, *words = self.random.choice(table).split()
        key, value = f"{self.name}:{self.random.randrange(5)}", "x" * self.random.choice(sizes)
        return name, [word.format(k=key, v=value) for word in words], 1

    def plain(self):
        return [self.some(PLAIN)]

    def same(self):
        return self.plain() * self.random.randrange(1, 40)

    def many(self):
        return [self.some(PLAIN) for _ in range(self.random.randrange(1, 40))]

    def other(self):
        return [self.some(OTHER)]

    def long(self):
        return [self.some(LONG, range(70_000, 210_000))]

    def transaction(self):
        end = self.random.choice(("exec", "exec", "discard"))
        return [("multi", ("MULTI",), 1), *self.many()[:10], (end, (end,), 1)]

    def subscribed(self):
        channels = [f"{self.name}:c{i}" for i in range(self.random.randrange(1, 4))]
        count = len(channels)
        ping = ("ping", ("PING",), 1)
        return [("subscribe", ("SUBSCRIBE", *channels), count), ping, ("unsubscribe", ("UNSUBSCRIBE", *channels), count)]

    def pipeline(self):
        kinds = [self.plain, self.same, self.many, self.other] * 4 + [self.other, self.transaction] * 2 + [self.long, self.subscribed]
        return [step for kind in self.random.choices(kinds, k=self.random.randrange(1, 12)) for step in kind()]

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
def test_counts_agree_with_a_model(redis, make_headgate, pool):
    """First while reloads go from one variant to the other; then behind some that have switched it off and on, which leave
    nothing of the requests that were under way."""
    headgate = launch(make_headgate, redis, pool, RULES.format(options=VARIANTS[2]), threads=4)
    sides = [Side(headgate, number, 2) for number in range(CLIENTS)]
    ends = run_rounds(sides, ROUNDS)
    for number in range(6):
        reload(headgate, RULES.format(options=VARIANTS[number % len(VARIANTS)]))
    for end in ends:
        end.result(60)
    assert differences(headgate, collections.Counter(), sides) == {}
    ends = run_rounds(sides, ROUNDS)
    for options in (OFF, VARIANTS[1]) * 3:
        reload(headgate, RULES.format(options=options))
    for end in ends:
        end.result(60)
    reload(headgate, RULES.format(options=VARIANTS[1]), *(side.client for side in sides))
    for side in sides:
        side.model.clear()
    before = measured(headgate)
    for end in run_rounds(sides, 2):
        end.result(60)
    assert differences(headgate, before, sides) == {}
