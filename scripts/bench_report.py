"""scripts/bench --report: what a request costs directly, by Headgate and by other proxies, written into a page.

The headline is the processor time of proxy and Redis together, as a proxy that sends many requests in one write makes
them cheaper for Redis. The same processes serve all placements. Within a cell the order of the targets is another one in
each round, so that none always follows the same.
"""
import csv
import os
import platform
import re
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

import bench_load
import bench_targets
from bench_load import CELLS
from bench_rounds import Benchmark, Series, number, progress
from bench_targets import HOST, Failure

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/performance.md")
BEGIN, END = "<!-- scripts/bench --report: begin -->\n", "<!-- scripts/bench --report: end -->\n"
# By name, on which of the processors Redis and the load are, and on which the proxy.
PLACEMENTS = {"unpinned": (slice(None), slice(None)), "one-core": (slice(1), slice(1)), "split": (slice(1), slice(1, 2))}
CELL_NAMES = tuple(cell.name for cell in CELLS if cell.size == 64)
AWAY_CELLS = ("c1", "c50", "p16")


class Direct(bench_targets.Target):
    """Redis by a port of its own or of a relay."""

    def __init__(self, redis, port):
        super().__init__("direct", redis.host, port, redis.pid)


class Relay(bench_targets.Child):
    """Delays each direction."""

    def __init__(self, redis, milliseconds):
        port = bench_targets.free_port()
        arguments = f"{port} {redis.port} {round(milliseconds * 1e6)}"
        build = f"cc -std=c11 -D_GNU_SOURCE -O2 -o relay {ROOT}/scripts/bench_relay.c"
        super().__init__("relay", port, ["sh", "-c", f"{build} && exec ./relay {arguments}"])


def place(pid, processors):
    for thread in os.listdir(f"/proc/{pid}/task") if pid else ():
        os.sched_setaffinity(int(thread), processors)


@dataclass
class Table:
    """Targets beside each other, of which the first is Redis itself."""
    name: str
    targets: list
    cells: list
    processors: tuple  # (of Redis and the load, of the proxies)
    benchmark: Benchmark
    series: dict = field(default_factory=lambda: defaultdict(Series))
    writes: dict = field(default_factory=lambda: defaultdict(list))

    def run_round(self, turn, operations):
        place(os.getpid(), self.processors[0])
        for target in self.targets:
            place(target.pid, self.processors[target.name != "direct"])
        turn %= len(self.targets)
        for cell in self.cells:
            for operation in operations:
                bench_load.preload(self.targets[0], cell)
                for target in self.targets[turn:] + self.targets[:turn]:
                    self._measure(target, operation, cell)

    def _measure(self, target, operation, cell):
        before = counted(target)
        run = self.benchmark.measure(target, operation, cell)
        forwarded, writes = (end - start for end, start in zip(counted(target), before))
        self.series[target.name, operation, cell].runs.append(run)
        if writes:
            self.writes[target.name, operation, cell].append(forwarded / writes)

    def rows(self, operations):
        """A dictionary for each line of what is printed."""
        for cell in self.cells:
            for operation in operations:
                direct = self.series["direct", operation, cell]
                for target in self.targets:
                    series = self.series[target.name, operation, cell]
                    cpu = [run.cpu() for run in series.runs]
                    yield {"table": self.name, "cell": f"{operation.upper()} {cell.name}", "target": target.name,
                           "cpu_us": median(cpu), "low": min(cpu), "high": max(cpu),
                           "ratio": median(own / run.cpu() for own, run in zip(cpu, direct.runs)),
                           "proxy_us": series.middle("proxy_cpu"), "redis_us": series.middle("redis_cpu"),
                           "rps": series.middle("rps"), "p50_ms": series.middle("p50"), "p99_ms": series.middle("p99"),
                           "p50_ratio": series.middle("p50") / direct.middle("p50"),
                           "requests_a_write": median(self.writes[target.name, operation, cell] or [0]) or None}


def counted(target):
    """Requests sent on to Redis and writes towards it, of a Headgate."""
    if not isinstance(target, bench_targets.Headgate):
        return 0, 0
    return (target.counters("Traffic").get("requests_forwarded_total", 0),
            target.counters("Upstream").get("upstream_writes_total", 0))


def tables_of(options, redis, keep):
    starters = [bench_targets.STARTERS[name] for name in options.targets]
    proxies = [keep(start(redis, options)) for start in starters]
    proxies += [keep(bench_targets.peer(text, redis, options)) for text in options.peer]
    if any(proxy.pid is None for proxy in proxies):
        raise Failure("--report counts the processor time of each proxy: a --peer has to be a binary, or run here")
    processors = sorted(os.sched_getaffinity(0))
    for name in options.placements:
        chosen = tuple(set(processors[part]) for part in PLACEMENTS[name])
        if not chosen[1]:
            raise Failure(f"--placements {name}: there is one processor only")
        yield Table(name, [Direct(redis, redis.port), *proxies], options.cells, chosen, Benchmark(redis, options.seconds))
    for delay in options.away:
        relay = keep(Relay(redis, delay))
        behind = [bench_targets.Headgate(relay, options, proxy.name, binary=proxy.process.args[0]) for proxy in proxies
                  if isinstance(proxy, bench_targets.Headgate)]
        yield Table(f"{delay:g} ms away", [Direct(redis, relay.port), *map(keep, behind)],
                    [cell for cell in CELLS if cell.name in AWAY_CELLS], (set(processors), set(processors)),
                    Benchmark(redis, options.seconds))


def version(target):
    """Whoever does not know the option prints it all the same, in front of how it is used."""
    shown = subprocess.run([target.process.args[0], "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           check=False)
    return target.name + " " + re.search(r"\d+(\.\d+)+", shown.stdout + shown.stderr).group()


def heading(options, redis, tables):
    with open("/proc/cpuinfo", encoding="utf-8") as source:
        model = re.search(r"model name\s*: (.*)", source.read())
    versions = [version(target) for target in (redis, *tables[0].targets[1:]) if isinstance(target, bench_targets.Child)]
    return (f"{time.strftime('%Y-%m-%d')}, {model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, Linux "
            f"{platform.release()}; {', '.join(versions)}, one worker each. Rounds: {options.rounds}, of which these are medians, "
            f"{options.seconds:g} s a run, values of 64 bytes. c: clients; p: pipelines of so many, with 50 clients. "
            "Microseconds of processor a request, Redis and proxy together; low–high: Headgate's lowest and highest round; "
            "a write: requests that Headgate sends in one; p50: Headgate's, as a ratio to direct.")


MEANING = {"unpinned": "the kernel places all processes", "one-core": "all on one processor",
           "split": "Redis and the load on one processor, the proxy on another"}


def markdown(table, operations):
    """Cells without spaces: compact for who counts words, too."""
    rows = list(table.rows(operations))
    names = [target.name for target in table.targets]
    if table.name in MEANING:
        yield f"**{table.name}**: {MEANING[table.name]}."
        columns = [*names, *(("low–high", "a write", "p50") if "headgate" in names else ())]
    else:
        yield f"**{table.name}**, unpinned: each direction is delayed by so much; requests a second, and p50 in ms."
        columns = [*names, *(f"p50 {name}" for name in names)]
    yield ""
    yield f"|{'|'.join(['', *columns])}|"
    yield "|---" * (len(columns) + 1) + "|"
    for start in range(0, len(rows), len(names)):
        line = {row["target"]: row for row in rows[start:start + len(names)]}
        own = line.get("headgate")
        if table.name in MEANING:
            shown = [f"{short(row['cpu_us'])}" for row in line.values()]
            shown += [f"{short(own['low'])}–{short(own['high'])}", number(own["requests_a_write"], "{:.1f}"),
                      f"{own['p50_ratio']:.2f}"] if own else []
        else:
            shown = [f"{row['rps']:.0f}" for row in line.values()] + [f"{row['p50_ms']:.2f}" for row in line.values()]
        yield f"|{'|'.join([rows[start]['cell'], *shown])}|"
    yield ""


def short(value):
    """Three digits."""
    return f"{value:.{2 if value < 10 else 1}f}"


def page_around(path):
    """What stands before and behind the marks of a page."""
    with open(path, encoding="utf-8") as source:
        before, begin, rest = source.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Failure(f"--report {path}: expected a line {BEGIN.strip()} and a line {END.strip()}")
    return before + begin, end + after


def show(rows):
    print(f"\nCPU of proxy and Redis in µs a request (lowest and highest round, ratio to direct), latencies in ms\n\n{'':<13}{'cell':<9}"
          f"{'target':<11}{'CPU':>8}{'low':>8}{'high':>8}{'ratio':>7}{'requests/s':>12}{'p50':>9}{'p99':>9}{'a write':>9}")
    for row in rows:
        print(f"{row['table']:<13}{row['cell']:<9}{row['target']:<11}{row['cpu_us']:>8.2f}{row['low']:>8.2f}"
              f"{row['high']:>8.2f}{row['ratio']:>7.2f}{row['rps']:>12.0f}{row['p50_ms']:>9.3f}{row['p99_ms']:>9.3f}"
              f"{number(row['requests_a_write'], '{:.1f}'):>9}")


def run(options, stack):
    before, after = page_around(options.report)

    def keep(server):
        stack.callback(server.stop)
        return server

    redis = keep(bench_targets.start_redis(options.redis_port, options.connections))
    tables = list(tables_of(options, redis, keep))
    for turn in range(options.rounds):
        for table in tables:
            progress(f"round {turn + 1} of {options.rounds}: {table.name}")
            table.run_round(turn, options.operations)
    rows = [row for table in tables for row in table.rows(options.operations)]
    show(rows)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as destination:
            writer = csv.DictWriter(destination, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    lines = [heading(options, redis, tables), ""] + [line for table in tables for line in markdown(table, options.operations)]
    with open(options.report, "w", encoding="utf-8") as destination:
        destination.write(before + "\n" + "\n".join(lines) + after)
