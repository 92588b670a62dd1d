"""What TLS costs: Headgate (and HAProxy, stunnel) with TLS towards Redis, towards clients and on both sides, beside
direct TLS, which is what an application would have without them. Also what a handshake and an idle client cost."""
import contextlib
import csv
import socket
import ssl
import time
from dataclasses import replace
from statistics import median

import bench_memory
import bench_storm
import bench_tls_targets
from bench_load import CELLS
from bench_rounds import Benchmark, Sitting, number, progress, verdict
from bench_targets import Failure

# The ratio to direct TLS that Headgate must reach, by way and cell.
BARS = {
    ("up", "c50"): 1.05, ("up", "c500"): 1.7, ("up", "p16"): 0.9, ("up", "1m"): 0.8,
    ("down", "c50"): 0.85, ("down", "c500"): 1.0, ("down", "p16"): 0.75, ("down", "1m"): 0.8,
    ("both", "c50"): 0.8, ("both", "c500"): 1.0, ("both", "p16"): 0.7,
}
CELL_NAMES = ("c1", "c50", "c500", "p16", "1m")
CPU_BAR_CELL = "c500"    # there, with TLS to Redis, proxy and Redis together take less than Redis with direct TLS
IDLE_BAR = 16 * 1024     # bytes for each idle client by TLS
HANDSHAKE_BAR = 1.2      # of the CPU that openssl s_server takes for a full handshake
HANDSHAKES = 1500
HANDSHAKE_ROUNDS = 5


PARTS = ("load", "handshakes", "storm", "memory")


def cells_of(names):
    known = {cell.name: cell for cell in CELLS}
    for name in names:
        if name not in CELL_NAMES:
            raise Failure(f"--cells {name}: with --tls expected one of {', '.join(CELL_NAMES)}")
    return [replace(known[name], bar=0.0, cpu_bar=0.0) for name in names]


# --- throughput ---------------------------------------------------------------------------------------------------------


def total_cpu(series):
    """Seconds a million requests, of Redis and of the proxy if there is one."""
    proxy, redis = series.middle("proxy_cpu"), series.middle("redis_cpu")
    return redis + (proxy or 0.0)


def print_runs(sitting):
    print("\nCPU in seconds a million requests, of the proxy, of Redis and of both; ratio to direct TLS (lowest and highest "
          "round);\nup: TLS to Redis, down: TLS to clients\n")
    print(f"{'cell':<9}{'target':<15}{'requests/s':>11}{'ratio':>7}{'low':>6}{'high':>6}{'p50':>9}{'p99':>9}{'proxy':>8}"
          f"{'Redis':>8}{'both':>8}")
    for operation, cell, name, series in sitting.rows():
        print(f"{operation.upper() + ' ' + cell.name:<9}{name:<15}{series.middle('rps'):>11.0f}"
              f"{number(series.ratio(), '{:.2f}'):>7}{number(min(series.ratios, default=None), '{:.2f}'):>6}"
              f"{number(max(series.ratios, default=None), '{:.2f}'):>6}{series.middle('p50'):>9.3f}"
              f"{series.middle('p99'):>9.3f}{number(series.middle('proxy_cpu'), '{:.2f}'):>8}"
              f"{series.middle('redis_cpu'):>8.2f}{total_cpu(series):>8.2f}")


def best_peer(sitting, way, operation, cell):
    """(name, ratio) of the fastest other proxy in that way, or None."""
    peers = [(target.name.split()[0], sitting.series[target.name, operation, cell].ratio()) for target in sitting.targets
             if target.name.endswith(f" {way}") and not target.name.startswith("headgate")]
    return max(peers, key=lambda pair: pair[1], default=None)


def print_bars(sitting):
    print(f"\n{'Headgate':<16}{'ratio':>7}{'bar':>7}{'':>9}{'best peer':>14}{'ratio':>7}")
    for operation, cell, name, series in sitting.rows():
        program, _, way = name.partition(" ")
        if program != "headgate":
            continue
        bar = BARS.get((way, cell.name))
        ratio = series.ratio()
        line = f"{operation.upper() + ' ' + cell.name + ' ' + way:<16}{ratio:>7.2f}"
        line += f"{bar:>7.2f}{verdict(ratio >= bar):>9}" if bar else " " * 16
        peer = best_peer(sitting, way, operation, cell)
        line += f"{peer[0]:>14}{peer[1]:>7.2f}{'ahead' if ratio > peer[1] else 'BEHIND':>9}" if peer else ""
        print(line)
        if way == "up" and cell.name == CPU_BAR_CELL:
            direct = total_cpu(sitting.series[sitting.reference.name, operation, cell])
            both = total_cpu(series)
            print(f"  CPU of proxy and Redis: {both:.2f} s a million requests, with direct TLS {direct:.2f}: "
                  f"{verdict(both < direct)}")


# --- handshakes ---------------------------------------------------------------------------------------------------------


def one_handshake(target, context, session=None):
    with socket.create_connection((target.host, target.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(connection, server_hostname=target.host, session=session) as tls:
            return tls.session


def handshake_cpu(target, certificate, version):
    """Milliseconds of the server's CPU for a full handshake: the context is new, so that nothing is resumed."""
    context = certificate.client_context(version)
    before = target.cpu()
    for _ in range(HANDSHAKES):
        one_handshake(target, context)
    # What is left to do for the last ones.
    time.sleep(0.1)
    return (target.cpu() - before) / HANDSHAKES * 1e3


def measure_handshakes(targets, certificate):
    """Rounds that alternate; the first target is openssl s_server."""
    for label, version in (("TLS 1.3", ssl.TLSVersion.TLSv1_3), ("TLS 1.2", ssl.TLSVersion.TLSv1_2)):
        spent = {target.name: [] for target in targets}
        for turn in range(HANDSHAKE_ROUNDS):
            progress(f"handshakes, {label}, round {turn + 1} of {HANDSHAKE_ROUNDS}")
            for target in targets:
                spent[target.name].append(handshake_cpu(target, certificate, version))
        reference = median(spent[targets[0].name])
        print(f"\na full handshake, {label}, ECDSA P-256: CPU in ms, ratio to openssl s_server")
        for name, values in spent.items():
            ratio = median(values) / reference
            bar = f"   at most {HANDSHAKE_BAR:g}: {verdict(ratio <= HANDSHAKE_BAR)}" if name.startswith("headgate") else ""
            print(f"  {name:<15}{median(values):>7.3f}{ratio:>7.2f}{bar}")


# --- memory -------------------------------------------------------------------------------------------------------------


def measure_idle(options, certificate):
    """On fresh servers, one after the other."""
    print("\nmemory: bytes for each idle client by TLS, and for one that has sent a PING\n")
    for name in ("redis", *options.targets):
        if name != "redis" and "down" not in bench_tls_targets.STARTERS[name][1]:
            continue
        count = options.idle // 2 if name in ("haproxy", "stunnel") else options.idle
        progress(f"{count} idle clients of {name} by TLS")
        with contextlib.ExitStack() as stack:
            redis = bench_tls_targets.start_redis(certificate, options.connections)
            stack.callback(redis[0].stop)
            target = redis[1]
            if name != "redis":
                target = bench_tls_targets.STARTERS[name][0]("down", redis, options, certificate)
                stack.callback(target.stop)
            try:
                cost = bench_memory.measure_idle(target, redis[0], count, certificate.client_context())
            except Failure as failure:
                print(f"{name:<11}{failure}")
                continue
            line = (f"{name:<11}{cost.bytes_per_idle_client():>8.0f}{cost.bytes_per_used_client():>8.0f}   "
                    f"{cost.served} of {cost.clients} answered")
            if name == "headgate":
                line += f"   at most {IDLE_BAR}: {verdict(cost.bytes_per_idle_client() <= IDLE_BAR)}"
            print(line)


# --- all ----------------------------------------------------------------------------------------------------------------

CSV_COLUMNS = ["operation", "cell", "clients", "pipeline", "value_bytes", "target", "rounds", "requests_per_second", "ratio",
               "ratio_low", "ratio_high", "bar", "p50_ms", "p99_ms", "proxy_cpu_seconds_per_million",
               "redis_cpu_seconds_per_million"]


def write_csv(sitting, path):
    with open(path, "w", encoding="ascii", newline="") as destination:
        writer = csv.writer(destination)
        writer.writerow(CSV_COLUMNS)
        for operation, cell, name, series in sitting.rows():
            program, _, way = name.partition(" ")
            writer.writerow([operation, cell.name, cell.clients, cell.pipeline, cell.size, name, len(series.runs),
                             series.middle("rps"), series.ratio(), min(series.ratios, default=None),
                             max(series.ratios, default=None),
                             BARS.get((way, cell.name)) if program == "headgate" else None]
                            + [series.middle(column) for column in ("p50", "p99", "proxy_cpu", "redis_cpu")])


def measure_throughput(options, certificate):
    with contextlib.ExitStack() as stack:
        def keep(server):
            stack.callback(server.stop)
            return server

        plain, by_tls = bench_tls_targets.start_redis(certificate, options.connections)
        keep(plain)
        plain.name = "direct plain"
        proxies = bench_tls_targets.start_proxies((plain, by_tls), options, certificate, options.targets, keep)
        sitting = Sitting(by_tls, [plain, *proxies], options.cells, options.operations,
                          Benchmark(by_tls, options.seconds).measure)
        sitting.run(options.rounds)
        print_runs(sitting)
        print_bars(sitting)
        if options.csv:
            write_csv(sitting, options.csv)


def run_handshakes(options, certificate):
    with contextlib.ExitStack() as stack:
        redis = bench_tls_targets.start_redis(certificate, options.connections)
        stack.callback(redis[0].stop)
        targets = [bench_tls_targets.OpensslServer(certificate)]
        stack.callback(targets[0].stop)
        for name in options.targets:
            targets.append(bench_tls_targets.STARTERS[name][0]("down", redis, options, certificate))
            stack.callback(targets[-1].stop)
        measure_handshakes([*targets, redis[1]], certificate)


def run(options):
    certificate = bench_tls_targets.Certificate()
    try:
        if "load" in options.tls:
            measure_throughput(options, certificate)
        if "handshakes" in options.tls:
            run_handshakes(options, certificate)
        if "storm" in options.tls:
            bench_storm.run(options, verdict)
        if "memory" in options.tls:
            measure_idle(options, certificate)
    finally:
        certificate.remove()
