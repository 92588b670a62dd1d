"""What [latency] costs while many interfaces are flushed, with its defaults. Two Headgates in front of one Redis, one with
[latency] and one without; each interface is a rule for STRLEN of its own keys, so that GETs are not looked at for them.

1. Figures: both are fed the same requests in turn. What flushing takes of Redis' time is told twice: by what Redis itself
   says of its scripts (commandstats), which has the bar, and by how much more processor both processes took.
2. Stalls: redis-benchmark's GETs with 50 clients beside the feeding of the interfaces, through the one that measures and
   through a third that has the same rules and hardly flushes, in turn. To find the rule of each request that is fed
   takes time, too, which is not what flushing costs.

Requests are fed in pipelines of very different lengths, so that each interface has latencies in many buckets.
"""
import contextlib
import math
import random
import socket
import threading
import time
from statistics import geometric_mean, median

import bench_load
import bench_targets
from bench_rounds import Benchmark, Series, Sitting, progress, verdict

REDIS_SHARE_BAR = 0.01
# 4.8 kB in the worker and 4.8 kB for all, a minute that is sealed, names and flights; and what malloc adds.
INTERFACE_BYTES_BAR = 13_000
TAIL_BAR = 1.05  # of the percentiles beside flushes to those without, less two standard errors
PIPELINES_PER_SECOND = 20
PIPELINE = (8, 1500)  # the shortest and the longest
SETTLE_SECONDS = 6.0
ROUND_SECONDS = 15.0  # three flushes
RARELY = "10m"
STALL_ROUNDS = 6  # of GETs, for each round of figures: the last percentiles differ much from run to run
CELL = next(cell for cell in bench_load.CELLS if cell.name == "c50")


def rules_of(count, flush="5s"):
    rules = [f"[latency:i{number:04}]\ncommands = strlen\nkeys = i{number:04}:*\n" for number in range(count)]
    return f"[latency]\nenabled = on\nflush = {flush}\n" + "".join(rules)


class Feeder(threading.Thread):
    """Feeds a Headgate while it is entered: interfaces in random order, each as often as the others."""

    def __init__(self, headgate, interfaces):
        super().__init__(daemon=True)
        self.requests = [b"*2\r\n$6\r\nSTRLEN\r\n$7\r\ni%04d:k\r\n" % number for number in range(interfaces)]
        self.connection = socket.create_connection((headgate.host, headgate.port), timeout=30)
        self.chance = random.Random(1)
        self.queue = []
        self.stopping = threading.Event()
        self.fed = 0
        self.fault = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()
        self.connection.close()
        if self.fault:
            raise bench_targets.Failure(f"the feeder: {self.fault}")

    def run(self):
        try:
            begin, number = time.monotonic(), 0
            while not self.stopping.wait(max(0.0, begin + number / PIPELINES_PER_SECOND - time.monotonic())):
                self._feed(round(math.exp(self.chance.uniform(*map(math.log, PIPELINE)))))
                number += 1
        except OSError as fault:
            self.fault = fault

    def _feed(self, length):
        while len(self.queue) < length:
            self.queue += self.chance.sample(self.requests, len(self.requests))
        self.connection.sendall(b"".join(self.queue[:length]))
        del self.queue[:length]
        left = length * len(b":0\r\n")
        while left > 0:
            part = self.connection.recv(min(left, 65536))
            if not part:
                raise ConnectionError("headgate closed the connection")
            left -= len(part)
        self.fed += length


def ask(redis, command):
    """The lines of a reply that is one text."""
    with socket.create_connection((redis.host, redis.port), timeout=5) as connection:
        connection.sendall(command.encode() + b"\r\n")
        with connection.makefile("rb") as reply:
            return reply.read(int(reply.readline()[1:])).decode().splitlines()


def buckets_on_record(redis):
    """How many an interface has in a minute."""
    script = ("local all, keys = 0, redis.call('KEYS', 'headgate:statistics_i*_for_hist') "
              "for _, key in ipairs(keys) do all = all + redis.call('ZCARD', key) end return tostring(all / math.max(#keys, 1))")
    return float(ask(redis, f'EVAL "{script}" 0')[0])


def command_statistics(redis):
    """Of each command: how often it was called, and the microseconds that it took."""
    lines = ask(redis, "INFO commandstats")
    found = {}
    for line in lines:
        name, _, values = line.partition(":")
        if name.startswith("cmdstat_"):
            words = dict(word.split("=") for word in values.split(","))
            found[name.removeprefix("cmdstat_")] = int(words["calls"]), int(words["usec"])
    return found


class Figures:
    """What a Headgate and Redis took in one round of feeding."""

    def __init__(self, redis, headgate, interfaces):
        with Feeder(headgate, interfaces) as feeder:
            time.sleep(SETTLE_SECONDS)
            start, fed = time.monotonic(), feeder.fed
            before = command_statistics(redis), redis.cpu(), headgate.cpu()
            time.sleep(ROUND_SECONDS)
            after = command_statistics(redis), redis.cpu(), headgate.cpu()
            seconds = time.monotonic() - start
            self.fed = (feeder.fed - fed) / seconds
        calls, self.script_us = self._difference(before[0], after[0], "evalsha")
        self.flushes = calls / seconds
        self.script_share = self.script_us / 1e6 / seconds
        self.script_us /= max(calls, 1)
        self.redis_cores = (after[1] - before[1]) / seconds
        self.headgate_cores = (after[2] - before[2]) / seconds

    @staticmethod
    def _difference(before, after, command):
        none = 0, 0
        return tuple(late - early for early, late in zip(before.get(command, none), after.get(command, none)))


def measure_figures(options, redis, plain, measuring):
    rounds = {plain.name: [], measuring.name: []}
    print(f"\n{'':<10}{'fed/s':>8}{'flushes/s':>11}{'us each':>9}{'scripts':>9}{'redis':>8}{'headgate':>10}"
          "   shares of a core")
    for number in range(options.rounds):
        for headgate in (plain, measuring):
            progress(f"round {number + 1} of {options.rounds}: feeding {headgate.name}")
            figures = Figures(redis, headgate, options.latency)
            rounds[headgate.name].append(figures)
            print(f"{headgate.name:<10}{figures.fed:>8.0f}{figures.flushes:>11.1f}{figures.script_us:>9.0f}"
                  f"{figures.script_share:>9.4f}{figures.redis_cores:>8.4f}"
                  f"{figures.headgate_cores:>10.4f}", flush=True)
    return rounds


def more(rounds, attribute):
    """How much more it is with [latency]."""
    plain, measuring = (median(getattr(figures, attribute) for figures in series) for series in rounds.values())
    return measuring - plain


class Fed(bench_targets.Target):
    """A Headgate as those see it who ask it for GETs while its interfaces are fed."""

    def __init__(self, headgate, interfaces):
        super().__init__(headgate.name, headgate.host, headgate.port, headgate.pid)
        self.interfaces = interfaces

    def measure(self, benchmark, operation, cell):
        with Feeder(self, self.interfaces):
            return benchmark.measure(self, operation, cell)


def measure_stalls(options, redis, rare, measuring):
    """The runs of GET, as a series of each; ratios are those of both percentiles to the runs before and after."""
    benchmark = Benchmark(redis, max(options.seconds, 1.0))
    sides = [Fed(headgate, options.latency) for headgate in (rare, measuring)]
    sitting = Sitting(sides[0], sides[1:], [CELL], ["get"],
                      lambda target, *cell: target.measure(benchmark, *cell))
    sitting.run(STALL_ROUNDS * options.rounds)
    reference, series = (sitting.series[side.name, "get", CELL] for side in sides)
    print(f"\n{'GET c50':<10}{'requests/s':>11}{'p50':>9}{'p99':>9}{'p99.9':>9}   ms")
    for side, of_side in zip(sides, (reference, series)):
        print(f"{side.name:<10}{of_side.middle('rps'):>11.0f}{of_side.middle('p50'):>9.3f}{of_side.middle('p99'):>9.3f}"
              f"{of_side.middle('p999'):>9.3f}")
    print()
    for attribute, name in (("p99", "p99"), ("p999", "p99.9")):
        before_and_after = zip(reference.runs[::2], reference.runs[1::2])
        ratios = Series(ratios=[getattr(run, attribute)
                                / geometric_mean((getattr(before, attribute), getattr(after, attribute)))
                                for run, (before, after) in zip(series.runs, before_and_after)])
        error = ratios.uncertainty() or 0.0
        print(f"{name} of GET beside flushes: {ratios.ratio():.3f} of that without, standard error {error:.3f}; at most "
              f"{TAIL_BAR:.2f} less two of them: {verdict(ratios.ratio() - 2 * error <= TAIL_BAR)}")


def run(options):
    count = options.latency
    with contextlib.ExitStack() as stack:
        redis = bench_targets.start_redis(options.redis_port, options.connections)
        stack.callback(redis.stop)
        plain = bench_targets.Headgate(redis, options, "plain")
        stack.callback(plain.stop)
        measuring = bench_targets.Headgate(redis, options, "latency", rules_of(count))
        stack.callback(measuring.stop)

        rare = bench_targets.Headgate(redis, options, "rare", rules_of(count, flush=RARELY))
        stack.callback(rare.stop)

        # Buffers are warm before memory is looked at: one interface has had as much to do as all of them will have.
        with Feeder(measuring, 1):
            time.sleep(SETTLE_SECONDS)
        before = measuring.resident()
        rounds = measure_figures(options, redis, plain, measuring)
        bytes_each = (measuring.resident() - before) / max(count - 1, 1)
        share = median(figures.script_share for figures in rounds[measuring.name])
        print(f"\n{buckets_on_record(redis):.0f} buckets in a minute of an interface")
        print(f"flushing {count} interfaces takes {100 * share:.2f} % of Redis' time by its own account, at most "
              f"{100 * REDIS_SHARE_BAR:g} % of it for 100: {verdict(share <= REDIS_SHARE_BAR * max(count / 100, 1))}")
        print(f"by the processor: {100 * more(rounds, 'redis_cores'):.2f} % of a core more in Redis, "
              f"{100 * more(rounds, 'headgate_cores'):.2f} % more in Headgate, measuring included")
        print(f"memory: {bytes_each:.0f} bytes for each interface, at most {INTERFACE_BYTES_BAR} with one worker: "
              f"{verdict(bytes_each <= INTERFACE_BYTES_BAR or options.threads > 1)}")
        measure_stalls(options, redis, rare, measuring)
        counters = measuring.counters("latency")
        lost = counters["latency_lost_requests_total"] + counters["latency_flush_failures_total"]
        print(f"{counters['latency_interfaces']} interfaces, {counters['latency_samples_total']} requests measured, "
              f"{counters['latency_flushes_total']} flushes, none failed and nothing was lost: {verdict(lost == 0)}")
