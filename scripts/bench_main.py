#!/usr/bin/env python3
"""Headgate beside direct Redis and other proxies: throughput, latency, processor time and memory, in one sitting.

Every run against a proxy stands between two runs against Redis itself, and its ratio is to the mean of these two, so
that a machine that slows down for a while slows both. What is printed are medians over the rounds. With --policies it
is Headgate with rules, between runs of the same Headgate without.
"""
import argparse
import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import bench_cluster
import bench_latency
import bench_leases
import bench_memory
import bench_policies
import bench_report
import bench_targets
import bench_tls
import bench_tls_targets
from bench_load import CELLS
from bench_rounds import OPERATIONS, Benchmark, Sitting, number, progress, verdict
from bench_targets import Failure

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IDLE_CLIENT_BAR = 4096  # bytes
SETTLED_BAR = 2.0       # resident memory a while after the bench, as a multiple of that before


@dataclass
class Memory:
    """resident bytes of the instance that took the load: before, and after the settling time; idle: of another."""
    start: int | None
    settled: int | None = None
    idle: bench_memory.IdleCost | None = None


def parse_arguments():
    cell_names = [cell.name for cell in CELLS]
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="alternating rounds, of which medians are taken (5; --report: 10)")
    parser.add_argument("--seconds", type=float, help="length of one run (2; --report: 0.5)")
    parser.add_argument("--cells", help=f"any of {','.join(cell_names)}")
    parser.add_argument("--operations", help=f"any of {','.join(OPERATIONS)}")
    parser.add_argument("--targets", help=f"any of {','.join(bench_targets.STARTERS)}")
    parser.add_argument("--report", nargs="?", const=bench_report.PAGE, metavar="FILE",
                        help="instead: CPU of proxy and Redis together, beside all others, written between the marks of "
                             "%(const)s or of that file")
    parser.add_argument("--placements", help=f"with --report: any of {','.join(bench_report.PLACEMENTS)}")
    parser.add_argument("--away", type=lambda text: list(map(float, text.split(","))), default=[], metavar="MS,MS",
                        help="with --report: also with Redis so many milliseconds away")
    parser.add_argument("--policies", nargs="?", const=",".join(bench_policies.PARTS), metavar="PARTS",
                        help="instead: what rules cost, and what a flood of refused commands does to others; "
                             "any of %(const)s")
    parser.add_argument("--leases", nargs="?", type=int, const=100_000, metavar="COUNT",
                        help="instead: what the watch over so many locks (%(const)s) costs")
    parser.add_argument("--latency", nargs="?", type=int, const=100, metavar="COUNT",
                        help="instead: what [latency] costs while so many interfaces (%(const)s) are flushed")
    parser.add_argument("--tls", nargs="?", const=",".join(bench_tls.PARTS), metavar="PARTS",
                        help="instead: TLS towards Redis, towards clients and on both sides, beside direct TLS; any of "
                             "%(const)s; --targets are then some of " + ",".join(bench_tls_targets.STARTERS))
    parser.add_argument("--cluster", action="store_true",
                        help="instead: before a Redis Cluster of three masters, beside redis-benchmark --cluster")
    parser.add_argument("--ways", default=",".join(bench_tls_targets.WAYS), help="with --tls: any of %(default)s")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=WHAT",
                        help="another proxy: HOST:PORT, best in front of the Redis of the bench (--redis-port); or what "
                             "is started: predixy's binary, or another one of Headgate; with --tls: haproxy or stunnel")
    parser.add_argument("--redis-port", type=int, help="where the bench starts its Redis (a free port)")
    parser.add_argument("--pool", choices=("shared", "session"), default="shared", help="Headgate's pool mode")
    parser.add_argument("--threads", type=int, default=1, help="Headgate's workers (1)")
    parser.add_argument("--headgate", metavar="BINARY", help="measure this binary instead of building the release")
    parser.add_argument("--idle", type=int, default=10000, metavar="CLIENTS",
                        help="idle clients (10000); 0 leaves them out")
    parser.add_argument("--settle", type=float, default=60.0,
                        help="seconds from the last run to the last look at memory")
    parser.add_argument("--csv", metavar="FILE", help="write every figure there")
    parser.add_argument("--quick", action="store_true", help="one short round, 1000 idle clients: to see that it works")
    options = parser.parse_args()
    options.rounds = options.rounds or (10 if options.report else 5)
    options.seconds = options.seconds or (0.5 if options.report else 2.0)
    options.redis_port = options.redis_port or bench_targets.free_port()
    if options.quick:
        options.rounds, options.seconds, options.settle = 1, 0.3, 2.0
        options.idle = min(options.idle, 1000)
    if options.tls:
        choose_tls(options)
        return options
    if options.cluster:
        options.cells = bench_cluster.cells_of(chosen(options.cells, bench_cluster.CELL_NAMES, "--cells"))
        options.operations = chosen(options.operations, OPERATIONS, "--operations")
        options.targets, options.idle = chosen(options.targets or "headgate", ("headgate",), "--targets"), 0
        return options
    usual = bench_report.CELL_NAMES if options.report else [cell.name for cell in CELLS if cell.bar]
    names = chosen(options.cells, cell_names, "--cells") if options.cells else usual
    options.cells = [CELLS[cell_names.index(name)] for name in names]
    options.operations = chosen(options.operations, OPERATIONS, "--operations")
    options.targets = [] if options.targets == "" else chosen(options.targets, bench_targets.STARTERS, "--targets")
    if options.report:
        options.idle = 0
        options.placements = chosen(options.placements, bench_report.PLACEMENTS, "--placements")
    if options.policies:
        options.policies = chosen(options.policies, bench_policies.PARTS, "--policies")
        options.idle, options.targets = 0, ["headgate"]
    if options.leases or options.latency:
        options.idle, options.targets = 0, ["headgate"]
    return options


def choose_tls(options):
    """Headgate and GET alone, unless it is said otherwise."""
    known = tuple(bench_tls_targets.STARTERS)
    options.tls = chosen(options.tls, bench_tls.PARTS, "--tls")
    options.ways = chosen(options.ways, bench_tls_targets.WAYS, "--ways")
    options.cells = bench_tls.cells_of(chosen(options.cells, bench_tls.CELL_NAMES, "--cells"))
    options.operations = chosen(options.operations or "get", OPERATIONS, "--operations")
    options.targets = chosen(",".join([options.targets or "headgate", *options.peer]), known, "--targets")


def chosen(text, known, option):
    """The names in the text; all, without one."""
    names = text.split(",") if text is not None else list(known)
    for name in names:
        if name not in known:
            raise Failure(f"{option} {name}: expected one of {', '.join(known)}")
    return names


def prepare(options):
    """Everything that can fail before the first measurement."""
    # A relay needs two files a client; beside them, every process needs some for everything else.
    options.connections = bench_memory.raise_file_limit(2 * options.idle + 5000) - 500
    if "headgate" in options.targets and not options.headgate:
        build = subprocess.run([os.path.join(ROOT, "scripts/build"), "release"], capture_output=True, text=True,
                               check=False)
        if build.returncode != 0:
            raise Failure(f"the build failed:\n{(build.stdout + build.stderr)[-3000:]}")
    options.headgate = os.path.abspath(options.headgate or os.path.join(ROOT, "build/headgate"))


class Bench:
    """Redis, the proxies in front of it, and what was measured."""

    def __init__(self, options, stack):
        self.options = options
        self.stack = stack
        self.redis = self._keep(bench_targets.start_redis(options.redis_port, options.connections))
        self.proxies = [self._keep(bench_targets.STARTERS[name](self.redis, options)) for name in options.targets]
        self.proxies += [self._keep(bench_targets.peer(text, self.redis, options)) for text in options.peer]
        self.memory = {proxy.name: Memory(proxy.resident()) for proxy in self.proxies}
        self.sitting = Sitting(self.redis, self.proxies, options.cells, options.operations,
                               Benchmark(self.redis, options.seconds).measure)

    def _keep(self, server):
        self.stack.callback(server.stop)
        return server

    def run_idle_clients(self):
        """On instances of their own, one after the other: what earlier load left behind would hide what they take."""
        for name in self.options.targets if self.options.idle else ():
            count = min(self.options.idle, bench_targets.most_clients(name, self.options))
            progress(f"{count} idle clients of {name}")
            with contextlib.ExitStack() as stack:
                redis = bench_targets.start_redis(bench_targets.free_port(), self.options.connections)
                stack.callback(redis.stop)
                proxy = bench_targets.STARTERS[name](redis, self.options)
                stack.callback(proxy.stop)
                self.memory[name].idle = bench_memory.measure_idle(proxy, redis, count)

    def settle(self):
        progress(f"settling for {self.options.settle:g} s")
        time.sleep(self.options.settle)
        for proxy in self.proxies:
            self.memory[proxy.name].settled = proxy.resident()


def mebibytes(value):
    return number(None if value is None else value / 2**20, "{:.1f}")


def print_runs(bench):
    print("\nlatencies in ms, CPU in seconds a million requests, ratio to direct Redis (lowest and highest round)\n")
    print(f"{'cell':<9}{'target':<11}{'requests/s':>11}{'ratio':>7}{'low':>6}{'high':>6}{'p50':>9}{'p99':>9}"
          f"{'p99.9':>9}{'CPU':>8}{'Redis':>8}{'RSS MB':>9}")
    for operation, cell, name, series in bench.sitting.rows():
        print(f"{operation.upper() + ' ' + cell.name:<9}{name:<11}{series.middle('rps'):>11.0f}"
              f"{number(series.ratio(), '{:.2f}'):>7}{number(min(series.ratios, default=None), '{:.2f}'):>6}"
              f"{number(max(series.ratios, default=None), '{:.2f}'):>6}{series.middle('p50'):>9.3f}"
              f"{series.middle('p99'):>9.3f}{series.middle('p999'):>9.3f}"
              f"{number(series.middle('proxy_cpu'), '{:.2f}'):>8}{number(series.middle('redis_cpu'), '{:.2f}'):>8}"
              f"{mebibytes(series.middle('resident')):>9}")


def print_memory(bench):
    print(f"\nmemory: RSS in MB before and {bench.options.settle:g} s after the load; on a fresh instance, bytes for "
          "each idle client,\nand for one that has sent a PING, what Redis pays for each, how many were answered, and RSS "
          "after they left\n")
    print(f"{'target':<11}{'before':>8}{'after':>8}{'idle':>8}{'used':>8}{'Redis':>8}{'answered':>15}{'left':>8}")
    for name, memory in bench.memory.items():
        line = f"{name:<11}{mebibytes(memory.start):>8}{mebibytes(memory.settled):>8}"
        if memory.idle:
            idle = memory.idle
            line += (f"{idle.bytes_per_idle_client():>8.0f}{idle.bytes_per_used_client():>8.0f}"
                     f"{idle.redis_bytes_per_client():>8.0f}{f'{idle.served} of {idle.clients}':>15}"
                     f"{mebibytes(idle.left):>8}")
        print(line)


def print_bars(bench):
    """Headgate against what it promises."""
    print(f"\n{'Headgate':<9}{'ratio':>7}{'bar':>7}{'':>9}{'CPU':>8}{'bar':>7}")
    for operation, cell, name, series in bench.sitting.rows():
        if name != "headgate":
            continue
        ratio, cpu = series.ratio(), series.middle("proxy_cpu")
        line = f"{operation.upper() + ' ' + cell.name:<9}{ratio:>7.2f}"
        line += f"{cell.bar:>7.2f}{verdict(ratio >= cell.bar):>9}" if cell.bar else " " * 16
        line += f"{cpu:>8.2f}"
        line += f"{cell.cpu_bar:>7.2f}  {verdict(cpu <= cell.cpu_bar)}" if cell.cpu_bar else ""
        print(line)
    memory = bench.memory["headgate"]
    if memory.idle:
        idle = memory.idle
        print(f"an idle client: {idle.bytes_per_idle_client():.0f} bytes, at most {IDLE_CLIENT_BAR}: "
              f"{verdict(idle.bytes_per_idle_client() <= IDLE_CLIENT_BAR)}")
        print(f"idle clients served: {idle.served} of {idle.clients}: {verdict(idle.served == idle.clients)}")
    growth = memory.settled / memory.start
    print(f"RSS after the load: {growth:.2f} times that before, at most {SETTLED_BAR:g}: "
          f"{verdict(growth <= SETTLED_BAR)}")


CSV_COLUMNS = ["operation", "cell", "clients", "pipeline", "value_bytes", "target", "rounds", "requests_per_second",
               "ratio", "ratio_low", "ratio_high", "bar", "p50_ms", "p99_ms", "p99_9_ms",
               "proxy_cpu_seconds_per_million",
               "redis_cpu_seconds_per_million", "rss_bytes"]
MEMORY_COLUMNS = ["target", "rss_before_bytes", "rss_after_bytes", "settle_seconds", "idle_clients", "idle_served",
                  "bytes_per_idle_client", "bytes_per_used_client", "redis_bytes_per_client",
                  "rss_after_idle_left_bytes"]


def write_csv(bench, path):
    """Two tables with a header each, one empty line between them."""
    with open(path, "w", encoding="ascii", newline="") as destination:
        writer = csv.writer(destination)
        writer.writerow(CSV_COLUMNS)
        for operation, cell, name, series in bench.sitting.rows():
            writer.writerow([operation, cell.name, cell.clients, cell.pipeline, cell.size, name, len(series.runs),
                             series.middle("rps"), series.ratio(), min(series.ratios, default=None),
                             max(series.ratios, default=None), cell.bar if name == "headgate" else None]
                            + [series.middle(column) for column in ("p50", "p99", "p999", "proxy_cpu", "redis_cpu",
                                                                    "resident")])
        destination.write("\r\n")
        writer.writerow(MEMORY_COLUMNS)
        for name, memory in bench.memory.items():
            idle = memory.idle
            writer.writerow([name, memory.start, memory.settled, bench.options.settle]
                            + ([idle.clients, idle.served, idle.bytes_per_idle_client(), idle.bytes_per_used_client(),
                                idle.redis_bytes_per_client(), idle.left] if idle else [None] * 6))


def run(options):
    prepare(options)
    if options.report:
        with contextlib.ExitStack() as stack:
            bench_report.run(options, stack)
        return
    if options.tls:
        bench_tls.run(options)
        return
    if options.cluster:
        bench_cluster.run(options)
        return
    if options.leases:
        bench_leases.run(options)
        return
    if options.latency:
        bench_latency.run(options)
        return
    if options.policies:
        bench_policies.run(options)
        return
    with contextlib.ExitStack() as stack:
        bench = Bench(options, stack)
        bench.run_idle_clients()
        bench.sitting.run(options.rounds)
        bench.settle()
        print_runs(bench)
        print_memory(bench)
        if "headgate" in bench.memory:
            print_bars(bench)
        if options.csv:
            write_csv(bench, options.csv)


def main():
    # SIGTERM unwinds like Ctrl-C, so that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(parse_arguments())
    except Failure as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
