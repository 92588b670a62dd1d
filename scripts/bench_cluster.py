"""Headgate before a Redis Cluster: three masters, random keys, beside redis-benchmark --cluster, which knows the slots
itself and asks each node for its own (from three threads, as it does of itself).

A proxy is asked by plain redis-benchmark with random keys, as it is one server to its clients. What a request costs is
the processor time of the proxy and of all nodes together: a proxy that sends many requests in one write makes them
cheaper for Redis. What redis-benchmark takes is not counted, but takes its share of the cores: with three threads more
than with one.
"""
import contextlib
import csv
import subprocess
import time
from dataclasses import dataclass
from statistics import median

import bench_load
import bench_targets
from bench_load import Cell
from bench_rounds import Benchmark, Sitting, number, verdict
from bench_targets import HOST, Failure

MASTERS = 3
KEYS = 20000
VALUE_BYTES = 64
# So many of them are set for each key: it is drawn at random, and hardly one is left out.
FILL = 8
RANDOM_KEYS = ("-r", str(KEYS))
SETTLE_SECONDS = 60

CELLS = (
    Cell("c50", 50, 1, VALUE_BYTES, 0.75),
    Cell("c500", 500, 1, VALUE_BYTES, 0.80),
    Cell("p16", 50, 16, VALUE_BYTES, 0.80),
)
CELL_NAMES = tuple(cell.name for cell in CELLS)


def cells_of(names):
    return [cell for cell in CELLS if cell.name in names]


class Nodes(bench_targets.Target):
    """The masters of a cluster, as one target: asked directly, by who knows the slots."""

    load_options = ("--cluster", *RANDOM_KEYS)

    def __init__(self, connections, stack):
        options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
        self.nodes = []
        for _ in range(MASTERS):
            # The bus is at the port with 10000 added by default, which may be too high.
            bus = ("--cluster-port", str(bench_targets.free_port()))
            node = bench_targets.start_redis(bench_targets.free_port(), connections, (*options, *bus))
            stack.callback(node.stop)
            self.nodes.append(node)
        super().__init__("direct", HOST, self.nodes[0].port, self.nodes[0].pid)
        self._join()

    def _join(self):
        command = ["redis-cli", "--cluster", "create", *self.addresses(), "--cluster-yes"]
        made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Failure(f"the cluster was not made:\n{(made.stdout + made.stderr)[-2000:]}")
        deadline = time.monotonic() + SETTLE_SECONDS
        while not all(self._is_whole(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise Failure("the nodes do not agree on the cluster")
            time.sleep(0.1)

    @staticmethod
    def _is_whole(node):
        asked = subprocess.run(["redis-cli", "-p", str(node.port), "CLUSTER", "INFO"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, check=False)
        return "cluster_state:ok" in asked.stdout and f"cluster_size:{MASTERS}" in asked.stdout

    def addresses(self):
        return [f"{node.host}:{node.port}" for node in self.nodes]

    @property
    def upstream(self):
        return "cluster://" + ",".join(self.addresses())

    def predixy_pool(self):
        servers = "".join(f"    + {address}\n" for address in self.addresses())
        return f"ClusterServerPool {{\n  Servers {{\n{servers}  }}\n}}\n"

    def cpu(self):
        return sum(node.cpu() for node in self.nodes)

    def resident(self):
        return sum(node.resident() for node in self.nodes)


class Headgate(bench_targets.Headgate):
    load_options = RANDOM_KEYS


def peer(text, nodes, settings):
    target = bench_targets.peer(text, nodes, settings)
    target.load_options = RANDOM_KEYS
    return target


def fill(target):
    """Gives each key a value. Those that redis-benchmark draws with --cluster are others."""
    bench_load.benchmark(target, "set", Cell("fill", 50, 16, VALUE_BYTES, 0), KEYS * FILL)


@dataclass
class Row:
    """A line of the table, beside the same load for the nodes themselves."""
    operation: str
    cell: Cell
    name: str
    series: object
    direct: object

    def cpu(self):
        """Seconds a million requests, of the proxy and all nodes; None of a peer that cannot be looked into."""
        runs = self.series.runs
        if self is not self.direct and any(run.proxy_cpu is None for run in runs):
            return None
        return median((run.proxy_cpu or 0) + run.redis_cpu for run in runs)

    def cpu_ratio(self):
        return None if self.cpu() is None else self.cpu() / self.direct.cpu()


def rows_of(sitting):
    direct = None
    for operation, cell, name, series in sitting.rows():
        row = Row(operation, cell, name, series, direct)
        if name == sitting.reference.name:
            direct = row.direct = row
        yield row


def print_rows(rows):
    print("\nratio to direct by redis-benchmark --cluster (lowest and highest round), latencies in ms, CPU in seconds a "
          "million\nrequests: of the proxy, of all nodes, of both, and as a ratio to direct\n")
    print(f"{'cell':<9}{'target':<11}{'requests/s':>11}{'ratio':>7}{'low':>6}{'high':>6}{'p50':>9}{'p99':>9}"
          f"{'proxy':>8}{'nodes':>8}{'both':>8}{'ratio':>7}")
    for row in rows:
        series = row.series
        print(f"{row.operation.upper() + ' ' + row.cell.name:<9}{row.name:<11}{series.middle('rps'):>11.0f}"
              f"{number(series.ratio(), '{:.2f}'):>7}{number(min(series.ratios, default=None), '{:.2f}'):>6}"
              f"{number(max(series.ratios, default=None), '{:.2f}'):>6}{series.middle('p50'):>9.3f}"
              f"{series.middle('p99'):>9.3f}{number(series.middle('proxy_cpu'), '{:.2f}'):>8}"
              f"{series.middle('redis_cpu'):>8.2f}{number(row.cpu(), '{:.2f}'):>8}"
              f"{number(row.cpu_ratio(), '{:.2f}'):>7}")


def print_bars(rows):
    """Headgate against what it promises, and against each peer in both."""
    print()
    for row in (row for row in rows if row.name == "headgate"):
        ratio = row.series.ratio()
        line = f"{row.operation.upper() + ' ' + row.cell.name:<9}{ratio:>6.2f}, bar {row.cell.bar:.2f}: "
        line += verdict(ratio >= row.cell.bar)
        for other in rows:
            is_peer = other.direct is row.direct and other.name not in (row.name, row.direct.name)
            if is_peer:
                line += f"; {other.name} {other.series.ratio():.2f}: "
                line += "ahead" if ratio > other.series.ratio() else "BEHIND"
                if other.cpu() is not None:
                    line += f", CPU {other.cpu():.2f}: {'ahead' if row.cpu() < other.cpu() else 'BEHIND'}"
        print(line)


CSV_COLUMNS = ["operation", "cell", "target", "rounds", "requests_per_second", "ratio", "ratio_error", "ratio_low",
               "ratio_high", "bar", "p50_ms", "p99_ms", "p99_9_ms", "proxy_cpu_seconds_per_million",
               "nodes_cpu_seconds_per_million", "cpu_seconds_per_million", "cpu_ratio"]


def write_csv(rows, path):
    with open(path, "w", encoding="ascii", newline="") as destination:
        writer = csv.writer(destination)
        writer.writerow(CSV_COLUMNS)
        for row in rows:
            series = row.series
            writer.writerow([row.operation, row.cell.name, row.name, len(series.runs), series.middle("rps"),
                             series.ratio(), series.uncertainty(), min(series.ratios, default=None),
                             max(series.ratios, default=None), row.cell.bar if row.name == "headgate" else None,
                             series.middle("p50"), series.middle("p99"), series.middle("p999"),
                             series.middle("proxy_cpu"), series.middle("redis_cpu"), row.cpu(), row.cpu_ratio()])


def run(options):
    with contextlib.ExitStack() as stack:
        nodes = Nodes(options.connections, stack)
        proxies = []
        if "headgate" in options.targets:
            proxies.append(Headgate(nodes, options))
            stack.callback(proxies[-1].stop)
        for text in options.peer:
            proxies.append(peer(text, nodes, options))
            stack.callback(proxies[-1].stop)
        for target in (nodes, *proxies[:1]):
            fill(target)
        sitting = Sitting(nodes, proxies, options.cells, options.operations, Benchmark(nodes, options.seconds).measure)
        sitting.run(options.rounds)
    rows = list(rows_of(sitting))
    print_rows(rows)
    print_bars(rows)
    if options.csv:
        write_csv(rows, options.csv)
