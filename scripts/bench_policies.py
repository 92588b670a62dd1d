"""What [limit:NAME] rules cost: variants of one Headgate side by side, each run between two of the plain Headgate,
which has no rules. Four sittings:

1. Rules that apply to everything and refuse nothing; rules for commands that nobody sends. "again" is a second plain
   Headgate: what differs from 1 there is the noise of the machine. Rules that do not apply must cost nothing
   measurable: their ratio plus twice its standard error reaches 1. "latency" has no limits, but all of [latency],
   [counters] and [events]. "all" is everything on together: two limits that admit, a deny rule, a lease rule, and what
   "latency" has.
2. Rules with scope = global that apply to everything and refuse nothing.
3. A flood of refused commands alone, and the same flood served by Redis itself. The ratio is of what a second of the
   server's processor answers: Python cannot send so fast that the server is what bounds the rate.
4. redis-benchmark, under no limit, while others flood, between runs without a flood. The bar is on a flood of
   FLOOD_RATE refused commands a second, in pipelines. A rate is the same demand whatever becomes of it, so that "no
   flood" is what a perfect limit would achieve. Two more kinds have no bar. One is as fast as it can be ("full"): it
   takes a core for its sender whoever answers it, and asks for the more the faster it is refused. The other sends its
   requests one by one ("rate-p1"): the sender, which belongs on another machine, takes four tenths of a core from the
   rest, and nearly all else is the kernel's, for the sockets. Each is also served by Redis, through the plain Headgate,
   which tells what the limit spares the others.
"""
import contextlib
import csv
from dataclasses import dataclass, field, replace
from statistics import median

import bench_flood
import bench_load
import bench_targets
from bench_rounds import Benchmark, Sitting, number, verdict

PARTS = ("five", "other", "key", "lease", "latency", "all", "exact", "leased", "flood")
FLOOD_RATE = 20000

WINDOW = "limit = 1000000000\nwindow = {}\n"
FUNNEL = "algorithm = funnel\ncapacity = 1000000000\nleak = 1000000000/s\n"
FIVE = (("ip", WINDOW.format("1s")), ("user", FUNNEL), ("name", WINDOW.format("60s")), ("connection", FUNNEL),
        ("all", WINDOW.format("60s")))


def five_rules(commands):
    return "".join(f"[limit:{per}]\ncommands = {commands}\nper = {per}\n{numbers}" for per, numbers in FIVE)


LEASE = "[lease:locks]\nkeys = lock:*\n"
LATENCY = "[latency]\nenabled = on\n[counters]\nenabled = on\n[events]\nenabled = on\n"
TWO_LIMITS = f"[limit:ip]\nper = ip\n{WINDOW.format('1s')}[limit:user]\nper = user\n{FUNNEL}"
DENY = "[deny:dangerous]\ncommands = flushall flushdb\n"


def global_rule(accuracy):
    return f"[limit:all]\nscope = global\naccuracy = {accuracy}\nper = user\n{WINDOW.format('1s')}"


RULES = {
    "plain": "",
    "again": "",
    "five": five_rules("*"),
    "other": five_rules("hset"),
    "key": f"[limit:key]\nkeys = *\nper = key\n{WINDOW.format('1s')}",
    "lease": LEASE,
    "latency": LATENCY,
    "all": TWO_LIMITS + DENY + LEASE + LATENCY,
    "exact": global_rule("exact"),
    "leased": global_rule("leased"),
    "flood": "[limit:flood]\nper = ip\nexcept = ip:127.0.0.1\nlimit = 1\nwindow = 1h\n",
}
LOCAL = ("five", "other", "key", "lease", "latency", "all")
GLOBAL = ("exact", "leased")
# Counters of a section, and that which has to be 0.
COUNTERS = {
    "limit": (("admitted", "refused", "script_calls", "undecided"), "undecided"),
    "latency": (("samples", "flushes", "lost_requests"), "lost_requests"),
}
# What of a section has to have been counted; of rules that are not here, nothing is admitted.
PROOF = {"five": {"limit": "admitted"}, "key": {"limit": "admitted"}, "latency": {"latency": "samples"},
         "all": {"limit": "admitted", "latency": "samples"}, "exact": {"limit": "script_calls"},
         "leased": {"limit": "script_calls"}, "flood": {"limit": "refused"}}


@dataclass(frozen=True)
class Bar:
    ratio: float
    cells: tuple = tuple(cell.name for cell in bench_load.CELLS if cell.bar)
    noise: float = 0.0  # how many standard errors below are still good
    others: dict = field(default_factory=dict)  # the ratio in cells of that name

    def at(self, cell):
        """That of a cell, or None."""
        if cell.name not in self.cells:
            return None
        return replace(self, ratio=self.others.get(cell.name, self.ratio))


BARS = {
    "five": Bar(0.97),
    "other": Bar(1.0, noise=2.0),
    "latency": Bar(0.97),
    "all": Bar(0.97, others={"p16": 0.95, "p64": 0.93}),
    "exact": Bar(0.6, ("c50",)),
    "leased": Bar(0.93, ("c50",)),
    "refused": Bar(1.0),
    "refused-rate": Bar(0.95),
}


class Beside(bench_targets.Target):
    """A server as those see it who flood nothing, while others flood it. flood: arguments of Flood, or None."""

    def __init__(self, name, server, flood=None):
        super().__init__(name, server.host, server.port, server.pid)
        self.flood = flood

    def measure(self, benchmark, operation, cell):
        if self.flood is None:
            return benchmark.measure(self, operation, cell)
        flood = bench_flood.Flood(self, "get", **self.flood)
        with flood:
            run = benchmark.measure(self, operation, cell)
        return bench_flood.FloodedRun(**vars(run), flood=flood.answered / flood.seconds,
                                      sender=flood.cpu / flood.seconds)


def floods():
    """(suffix, arguments) of each kind of flood."""
    return (("rate", {"clients": 200, "pipeline": 16, "rate": FLOOD_RATE}),
            ("rate-p1", {"clients": 200, "pipeline": 1, "rate": FLOOD_RATE}),
            ("full", {"clients": 50, "pipeline": 16}))


class Servers:
    """Redis and the Headgates in front of it that the parts need."""

    def __init__(self, options, stack):
        self.options = options
        self.redis = bench_targets.start_redis(options.redis_port, options.connections)
        stack.callback(self.redis.stop)
        self.headgates = {}
        for name, rules in RULES.items():
            if name in options.policies or name == "plain" or (name == "again" and "other" in options.policies):
                self.headgates[name] = bench_targets.Headgate(self.redis, options, name, rules)
                stack.callback(self.headgates[name].stop)

    def among(self, names):
        return [self.headgates[name] for name in names if name in self.headgates]

    def sittings(self):
        """(title, sitting) of what was asked for."""
        measure = Benchmark(self.redis, self.options.seconds).measure
        local, wide = self.among(("again", *LOCAL)), self.among(GLOBAL)
        if local:
            yield "local rules", self._sitting(self.headgates["plain"], local, measure)
        if wide:
            yield "global rules", self._sitting(self.headgates["plain"], wide, measure, ("c50", "p16"))
        if "flood" in self.headgates:
            yield "a flood alone", self._flood_alone()
            yield "others beside a flood", self._others(Benchmark(self.redis, self.options.seconds))

    def _sitting(self, reference, targets, measure, cells=None):
        cells = [cell for cell in self.options.cells if cells is None or cell.name in cells]
        return Sitting(reference, targets, cells, self.options.operations, measure)

    def _flood_alone(self):
        def measure(target, operation, cell):
            answer = bench_flood.SERVED[operation] if target is self.redis else bench_flood.REFUSED
            return bench_flood.measure_alone(target, operation, cell, answer, self.options.seconds)

        return self._sitting(self.redis, [Beside("refused", self.headgates["flood"])], measure, ("c50", "p16", "p64"))

    def _others(self, benchmark):
        calm = Beside("calm", self.headgates["flood"])
        flooded = []
        for suffix, arguments in floods():
            flooded += [Beside(f"refused-{suffix}", self.headgates["flood"],
                               {**arguments, "answer": bench_flood.REFUSED}),
                        Beside(f"served-{suffix}", self.headgates["plain"],
                               {**arguments, "answer": bench_flood.SERVED["get"]})]
        return self._sitting(calm, flooded, lambda target, *rest: target.measure(benchmark, *rest), ("c1", "c50"))


@dataclass
class Row:
    """A line of the table. bar: None for what is printed for information."""
    sitting: str
    operation: str
    cell: bench_load.Cell
    name: str
    series: object
    bar: Bar | None

    def good(self):
        """None without a bar."""
        if self.bar is None:
            return None
        return self.series.ratio() + self.bar.noise * (self.series.uncertainty() or 0) >= self.bar.ratio

    def cpu(self):
        """Of Headgate; of Redis where there is none before it."""
        return self.series.middle("proxy_cpu" if self.series.runs[0].proxy_cpu is not None else "redis_cpu")

    def flooded(self, attribute):
        return self.series.middle(attribute) if hasattr(self.series.runs[0], attribute) else None


def rows_of(title, sitting):
    for operation, cell, name, series in sitting.rows():
        bar = BARS.get(name)
        yield Row(title, operation, cell, name, series, bar and bar.at(cell))


def print_rows(title, rows):
    reference = rows[0].name
    print(f"\n{title}: ratio to {reference}, its standard error, lowest and highest round; p99 in ms; CPU in seconds a "
          "million\nrequests; requests a second of a flood beside, and the share of a core that sending takes\n")
    print(f"{'cell':<9}{'variant':<16}{'requests/s':>11}{'ratio':>7}{'error':>7}{'low':>6}{'high':>6}{'bar':>6}{'':>8}"
          f"{'p99':>9}{'CPU':>8}{'flood/s':>9}{'sender':>8}")
    for row in rows:
        series, good = row.series, row.good()
        print(f"{row.operation.upper() + ' ' + row.cell.name:<9}{row.name:<16}{series.middle('rps'):>11.0f}"
              f"{number(series.ratio(), '{:.3f}'):>7}{number(series.uncertainty(), '{:.3f}'):>7}"
              f"{number(min(series.ratios, default=None), '{:.2f}'):>6}"
              f"{number(max(series.ratios, default=None), '{:.2f}'):>6}"
              f"{number(row.bar and row.bar.ratio, '{:.2f}'):>6}{'' if good is None else verdict(good):>8}"
              f"{number(series.middle('p99'), '{:.3f}'):>9}{row.cpu():>8.2f}"
              f"{number(row.flooded('flood'), '{:.0f}'):>9}{number(row.flooded('sender'), '{:.2f}'):>8}")
    for name in dict.fromkeys(row.name for row in rows if row.name != reference):
        ratios = [ratio for row in rows if row.name == name for ratio in row.series.ratios]
        print(f"{'all':<9}{name:<16}{'':>11}{median(ratios):>7.3f}")


def print_counters(servers):
    """That the rules did apply, or did not, and that nothing was let through undecided."""
    print("\ncounters of the rules")
    for headgate in servers.among((*LOCAL, *GLOBAL, "flood")):
        proof = PROOF.get(headgate.name, {"limit": None})
        for section, must in proof.items():
            words, never = COUNTERS[section]
            counters = headgate.counters(section)
            shown = {word: counters.get(f"{section}_{word}_total", 0) for word in words}
            applied = shown[must] > 0 if must else shown["admitted"] == 0
            print(f"{headgate.name:<9}" + "".join(f"{word}={value} " for word, value in shown.items())
                  + verdict(applied and shown[never] == 0))


CSV_COLUMNS = ["sitting", "operation", "cell", "variant", "rounds", "requests_per_second", "ratio", "ratio_error",
               "ratio_low", "ratio_high", "bar", "good", "p50_ms", "p99_ms", "p99_9_ms", "cpu_seconds_per_million",
               "redis_cpu_seconds_per_million", "flood_per_second", "sender_cores"]


def write_csv(rows, path):
    with open(path, "w", encoding="ascii", newline="") as destination:
        writer = csv.writer(destination)
        writer.writerow(CSV_COLUMNS)
        for row in rows:
            series = row.series
            writer.writerow([row.sitting, row.operation, row.cell.name, row.name, len(series.runs),
                             series.middle("rps"), series.ratio(), series.uncertainty(),
                             min(series.ratios, default=None), max(series.ratios, default=None),
                             row.bar and row.bar.ratio, row.good(), series.middle("p50"), series.middle("p99"),
                             series.middle("p999"), row.cpu(), series.middle("redis_cpu"), row.flooded("flood"),
                             row.flooded("sender")])


def run(options):
    """options.policies: those of PARTS that are wanted."""
    everything = []
    with contextlib.ExitStack() as stack:
        servers = Servers(options, stack)
        for title, sitting in servers.sittings():
            sitting.run(options.rounds)
            rows = list(rows_of(title, sitting))
            print_rows(title, rows)
            everything += rows
        print_counters(servers)
    if options.csv:
        write_csv(everything, options.csv)
