"""No malloc per request once warm: check_malloc.py HEADGATE MALLOC_WATCHER

redis-benchmark keeps 50 clients busy with GET and SET. It is warm once all of them have waited for the same Redis, of
each of a cluster: then as many connections and buffers are there as these clients can ever need at once. From then on
requests that reach Redis and calls that allocate are counted in slices of as many requests. What requests allocate is in
every slice. What comes by time is in some: buffers that nobody needed are given back every two seconds, and allocated again
when a process was not let in for a moment, however busy the machine is. So there has to be a slice without a call that
allocates, and over all of them less than one call in 1,000 requests (before a cluster, in 100), to free included. What the
warm-up has left over is given back first: until then it is counted anew.
"""

import os
import pathlib
import signal
import struct
import subprocess
import sys

os.environ["HEADGATE_BINARY"] = str(pathlib.Path(sys.argv[1]).resolve())
WATCHER = pathlib.Path(sys.argv[2]).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.admin import text
from harness.cluster import Cluster
from harness.resp import wait_for
from harness.servers import BINARY, Headgate, Redis, preloaded
from harness.target import info

CLIENTS = 50
SLICES = 20
ROUNDS = 4
MOST_PER_REQUEST = 1 / 1000
# Replies wait for their turn in blocks, of which those that nobody needs are given back ten times a second.
MOST_PER_REQUEST_OF_CLUSTER = 1 / 100
# Of all nodes of a cluster.
KEYS = 1000
# While one of them is stopped, the others must not take it for lost.
NODE_TIMEOUT_MS = 300_000
KEY = "key:__rand_int__"  # the one that redis-benchmark uses
# Requests to count, pipeline, bytes of a value. A slice has more than 1,000 requests.
WORKLOADS = [(60_000, 1, 64), (100_000, 16, 64), (30_000, 1, 16384), (30_000, 16, 16384)]


class CountedHeadgate(Headgate):
    """Headgate whose calls to the allocator are counted in a file."""

    def start(self):
        self.counts_path = self.directory / "malloc-counts"
        self.counts_path.write_bytes(bytes(40))
        preload = preloaded(WATCHER, self.directory, "HEADGATE_MALLOC_ORDERS", self.counts_path)
        self.launch(["env", *(f"{name}={value}" for name, value in preload.items()), BINARY, "-c", str(self.config_path)])
        self.await_port(self.address)

    def allocations(self):
        _, _, allocated, _, freed = struct.unpack("=QQQQQ", self.counts_path.read_bytes())
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

    def requests():
        return commands_served(servers) - since

    wait_for(lambda: requests() >= least, 60, f"{least} requests")
    return requests()


def fields(headgate, verb):
    with headgate.admin() as admin:
        lines = text(admin(verb)).splitlines()
    return [dict(word.partition("=")[::2] for word in line.split()) for line in lines]


def all_wait_for(headgate, address):
    """Whether each client has requests under way, or not taken as yet, and no other Redis owes an answer."""
    elsewhere = [lane for lane in fields(headgate, "LANES") if lane["pending"] != "0" and lane["to"] != address]
    waiting = [client for client in fields(headgate, "CLIENTS") if (client["pending"], client["qbuf"]) != ("0", "0")]
    return not elsewhere and len(waiting) == CLIENTS


def warm_up(servers, headgate):
    # Before that redis-benchmark asks Redis how it is configured, over another connection.
    wait_for(lambda: len(fields(headgate, "CLIENTS")) == CLIENTS, 60, "all clients to be connected")
    for server in servers:
        server.signal(signal.SIGSTOP)
        try:
            wait_for(lambda: all_wait_for(headgate, server.url), 60, f"all clients to wait for {server.url}")
        finally:
            server.signal(signal.SIGCONT)


def count_slice(servers, headgate, least):
    """(allocations, frees, requests), of so many requests or some more."""
    served, counts = commands_served(servers), headgate.allocations()
    requests = await_requests(servers, served, least)
    return *(after - before for before, after in zip(counts, headgate.allocations())), requests


def is_little(slices, keys):
    allocated, freed, requests = map(sum, zip(*slices))
    return max(allocated, freed) < requests * (MOST_PER_REQUEST_OF_CLUSTER if keys else MOST_PER_REQUEST)


def measure(servers, headgate, least, pipeline, size, keys):
    """The slices, while the load goes on."""
    with headgate.connect() as client:
        client("SET", KEY, "x" * size)
    loads = [start_load(headgate, command, pipeline, size, keys) for command in ("get", "set")]
    clients = [server.connect() for server in servers]
    try:
        warm_up(servers, headgate)
        await_requests(clients, commands_served(clients), least // 4)
        for _ in range(ROUNDS):
            slices = [count_slice(clients, headgate, least // SLICES) for _ in range(SLICES)]
            if is_little(slices, keys):
                break
        assert all(load.poll() is None for load in loads), "redis-benchmark ended early"
        return slices
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
# says to Redis, however many requests there were: none comes within the time of the test.
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
    with Cluster(replicas=0, node_timeout=NODE_TIMEOUT_MS) as cluster:
        return check_before(cluster.url(), cluster.nodes, pool, "", ", cluster", KEYS)


def check_before(upstream, servers, pool, rules, what, keys):
    failures = 0
    headgate = CountedHeadgate(upstream, pool=pool, start=False)
    headgate.write_rules(rules)
    headgate.start()
    try:
        assert headgate.allocations()[0] > 100, "the counter counts nothing"
        for least, pipeline, size in WORKLOADS:
            slices = measure(servers, headgate, least, pipeline, size, keys)
            allocated, freed, requests = map(sum, zip(*slices))
            good = min(counts[0] for counts in slices) == 0 and is_little(slices, keys)
            failures += not good
            print(
                f"{'ok  ' if good else 'FAIL'} pool = {pool}{what}, pipeline {pipeline}, {size} bytes: "
                f"{allocated} allocations, {freed} frees in {requests} requests, "
                f"none in {sum(counts[0] == 0 for counts in slices)} of {SLICES} slices",
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
