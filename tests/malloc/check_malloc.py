"""No malloc per request once warm: check_malloc.py HEADGATE MALLOC_COUNTER

redis-benchmark keeps 50 clients busy with GET and SET; while it runs, after some time to get warm, calls to the
allocator and requests that reach Redis are counted over the same time. Less than one call in 1,000 requests is "none"
(before a cluster, in 100): the rest is what happens in the background ten times a second.
"""

import os
import pathlib
import struct
import subprocess
import sys
import time

os.environ["HEADGATE_BINARY"] = str(pathlib.Path(sys.argv[1]).resolve())
COUNTER = pathlib.Path(sys.argv[2]).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.cluster import Cluster
from harness.servers import BINARY, Headgate, Redis
from harness.target import info

CLIENTS = 50
WARM_UP_SECONDS = 1.5
MOST_PER_REQUEST = 1 / 1000
# Replies wait for their turn in blocks, of which those that nobody needs are given back ten times a second.
MOST_PER_REQUEST_OF_CLUSTER = 1 / 100
# Of all nodes of a cluster.
KEYS = 1000
KEY = "key:__rand_int__"  # the one that redis-benchmark uses
# Requests to count, pipeline, bytes of a value.
WORKLOADS = [(60_000, 1, 64), (100_000, 16, 64), (30_000, 1, 16384), (30_000, 16, 16384)]


class CountedHeadgate(Headgate):
    """Headgate whose calls to the allocator are counted in a file."""

    def start(self):
        self.counts_path = self.directory / "malloc-counts"
        self.counts_path.write_bytes(bytes(16))
        preload = [f"LD_PRELOAD={COUNTER}", f"HEADGATE_MALLOC_COUNTS={self.counts_path}"]
        self.launch(["env", *preload, BINARY, "-c", str(self.config_path)])
        self.await_port(self.address)

    def allocations(self):
        allocated, freed = struct.unpack("=QQ", self.counts_path.read_bytes())
        return allocated, freed


def start_load(headgate, command, pipeline, size, keys):
    """Half of the clients, for as long as they are let. keys: so many; 0: one."""
    return subprocess.Popen(
        ["redis-benchmark", "-p", str(headgate.port), "-q", "-t", command, "-n", "1000000000"]
        + ["-c", str(CLIENTS // 2), "-P", str(pipeline), "-d", str(size)]
        + (["-r", str(keys)] if keys else []),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def commands_served(servers):
    return sum(int(info(client, "stats")["total_commands_processed"]) for client in servers)


def await_requests(servers, since, least):
    """How many there were since then, once there were so many."""
    deadline = time.monotonic() + 60
    while (requests := commands_served(servers) - since) < least:
        assert time.monotonic() < deadline, f"only {requests} requests within 60 s"
        time.sleep(0.1)
    return requests


def measure(servers, headgate, least, pipeline, size, keys):
    """(allocations, frees, requests) while the load goes on."""
    loads = [start_load(headgate, command, pipeline, size, keys) for command in ("get", "set")]
    clients = [server.connect() for server in servers]
    try:
        with headgate.connect() as client:
            client("SET", KEY, "x" * size)
        time.sleep(WARM_UP_SECONDS)
        # On a slow machine that is not enough.
        await_requests(clients, commands_served(clients), least // 4)
        served, counts = commands_served(clients), headgate.allocations()
        requests = await_requests(clients, served, least)
        allocated, freed = (after - before for before, after in zip(counts, headgate.allocations()))
        assert all(load.poll() is None for load in loads), "redis-benchmark ended early"
        return allocated, freed, requests
    finally:
        for client in clients:
            client.close()
        for load in loads:
            load.kill()
            load.wait()


# Local rules of all kinds that look at nothing but the client; none refuses.
RULES = "".join(
    f"[limit:{per}]\nper = {per}\n{amount}\n"
    for per, amount in [
        ("ip", "limit = 1000000000\nwindow = 1s"),
        ("user+name", "algorithm = funnel\ncapacity = 1000000000\nleak = 1000000000/s"),
        ("connection", "limit = 1000000000\nwindow = 1h"),
        ("key", "limit = 1000000000\nwindow = 60s"),
    ]
).replace("limit:user+name", "limit:both")


# All that measures, told apart by key and by user; no request is slow enough to be kept. A flush allocates, for what it
# says to Redis, however many requests there were: some 60 calls, which is too many where 30,000 requests are counted, so
# that none comes within the time of the test.
LATENCY = (
    "[latency]\nenabled = on\nflush = 10m\nslowlog_threshold = 10s\nby = user\n[latency:keys]\ncommands = get\nkeys = key:*\n"
    "[counters]\nenabled = on\n[events]\nenabled = on\n"
)


def check(pool, rules="", what=""):
    """The number of workloads that allocated."""
    redis = Redis()
    try:
        return check_before(redis, [redis], pool, rules, what, 0)
    finally:
        redis.discard()


def check_cluster(pool):
    with Cluster(replicas=0) as cluster:
        return check_before(cluster.url(), cluster.nodes, pool, "", ", cluster", KEYS)


def check_before(upstream, servers, pool, rules, what, keys):
    failures = 0
    headgate = CountedHeadgate(upstream, pool=pool, start=False)
    headgate.write_rules(rules)
    headgate.start()
    try:
        assert headgate.allocations()[0] > 100, "the counter counts nothing"
        for least, pipeline, size in WORKLOADS:
            allocated, freed, requests = measure(servers, headgate, least, pipeline, size, keys)
            good = max(allocated, freed) < requests * (MOST_PER_REQUEST_OF_CLUSTER if keys else MOST_PER_REQUEST)
            failures += not good
            print(
                f"{'ok  ' if good else 'FAIL'} pool = {pool}{what}, pipeline {pipeline}, {size} bytes: "
                f"{allocated} allocations, {freed} frees in {requests} requests",
                flush=True,
            )
        headgate.finish()
    finally:
        headgate.discard()
    return failures


failures = check("shared") + check("session") + check("shared", RULES, ", limits")
failures += check("shared", LATENCY, ", latency")
failures += check_cluster("shared") + check_cluster("session")
sys.exit(1 if failures else 0)
