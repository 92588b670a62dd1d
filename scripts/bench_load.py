"""One run of redis-benchmark against one target, and what it cost the processes."""
import re
import subprocess
from dataclasses import dataclass

from bench_targets import Failure

LONGEST_RUN_SECONDS = 120


@dataclass(frozen=True)
class Cell:
    """A kind of load, and the ratio to direct Redis that Headgate must reach with it."""
    name: str
    clients: int
    pipeline: int
    size: int
    bar: float = 0.0      # 0: no bar
    cpu_bar: float = 0.0  # seconds of Headgate's CPU a million requests

    def smallest_run(self):
        """Each client sends at least a few pipelines, or the run measures its own start."""
        return max(self.clients * self.pipeline * 4, 50)


CELLS = [
    Cell("c1", 1, 1, 64, 0.55),
    Cell("c10", 10, 1, 64),
    Cell("c50", 50, 1, 64, 0.95, 10.0),
    Cell("c200", 200, 1, 64),
    Cell("c500", 500, 1, 64, 1.05),
    Cell("p4", 50, 4, 64),
    Cell("p16", 50, 16, 64, 0.80),
    Cell("p64", 50, 64, 64, 0.95, 0.5),
    Cell("16k", 50, 1, 16 * 1024, 0.75),
    Cell("1m", 10, 1, 1024 * 1024, 0.75),
]


@dataclass
class Run:
    """rps: requests a second; p50, p99 and p999 in milliseconds; cpu: seconds a million requests, or None."""
    rps: float
    p50: float
    p99: float
    p999: float
    proxy_cpu: float | None
    redis_cpu: float | None
    resident: int | None

    def cpu(self):
        """Of proxy and Redis together."""
        return (self.proxy_cpu or 0) + self.redis_cpu


def benchmark(target, operation, cell, requests):
    """The full report of redis-benchmark: only that has enough percentiles."""
    command = ["redis-benchmark", "-h", target.host, "-p", str(target.port), "-t", operation, "-c", str(cell.clients),
               "-P", str(cell.pipeline), "-d", str(cell.size), "-n", str(requests), "--precision", "3",
               *target.load_options]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                timeout=LONGEST_RUN_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{target.name}, {operation} {cell.name}: no end after {LONGEST_RUN_SECONDS} s") from error
    if result.returncode != 0 or "throughput summary" not in result.stdout:
        raise Failure(f"{target.name}, {operation} {cell.name}: redis-benchmark failed:\n"
                      f"{(result.stderr + result.stdout)[-1000:]}")
    return result.stdout


def percentile(report, wanted):
    """The latency that at least that share of the requests kept, from the lines "99.902% <= 1.767 milliseconds"."""
    distribution = report.partition("Latency by percentile distribution:")[2].partition("Cumulative")[0]
    for share, latency in re.findall(r"([\d.]+)% <= ([\d.]+) milliseconds", distribution):
        if float(share) >= wanted:
            return float(latency)
    raise Failure(f"redis-benchmark reported no {wanted} % percentile")


def measure(target, redis, operation, cell, requests):
    """target is the proxy, or for a direct run redis itself, by any of its ports."""
    is_direct = target.pid == redis.pid
    servers = [redis] if is_direct else [target, redis]
    before = [server.cpu() for server in servers]
    report = benchmark(target, operation, cell, requests)
    after = [server.cpu() for server in servers]
    per_million = [None if start is None else (end - start) / requests * 1e6 for start, end in zip(before, after)]
    throughput = float(re.search(r"throughput summary: ([\d.]+|inf) requests per second", report).group(1))
    return Run(rps=throughput, p50=percentile(report, 50), p99=percentile(report, 99), p999=percentile(report, 99.9),
               proxy_cpu=None if is_direct else per_million[0], redis_cpu=per_million[-1],
               resident=target.resident())


def preload(target, cell):
    """Gives the key that the runs use a value of the cell's size, so that GET has something to return."""
    benchmark(target, "set", Cell("preload", 1, 1, cell.size, 0), 1)
