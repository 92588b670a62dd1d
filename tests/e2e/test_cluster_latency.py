"""[latency] before a cluster: what is measured of a client's requests at several nodes is that of each of them."""

import pytest

from harness.cluster import Cluster, slot_of
from harness.latency import ON, ask, interfaces
from harness.resp import OK, encode, wait_for
from harness.rules import launch

# Milliseconds. A node hangs for longer than that, and no request takes as long otherwise, on a slow machine either.
THRESHOLD = 2500
RULES = f"{ON}slowlog_threshold = {THRESHOLD}ms\nbiglog_request = 10kb\n"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(replicas=0, node_timeout=60_000) as made:
        yield made


@pytest.fixture(autouse=True)
def emptied(cluster):
    for node in cluster.current_masters():
        node.ask("FLUSHALL")


class Hanging:
    """A node that takes what is sent to it, and does nothing."""

    def __init__(self, node):
        self.node = node

    def __enter__(self):
        self.node.pause()
        return self

    def __exit__(self, *_):
        self.node.resume()


def measured(headgate):
    return {name: int(line["count"]) for name, line in interfaces(headgate, "LATENCY").items()}


def await_measured(headgate, wanted):
    """Exactly so many of each, and nothing else."""
    wait_for(lambda: measured(headgate) == wanted, 30, f"{wanted} to be measured, and not {measured(headgate)}")


def slow(headgate):
    """[(command, key)] of SLOWLOG, the newest first, and its lines."""
    lines = ask(headgate, "SLOWLOG", "100")
    return [line["command"] for line in lines], lines


def nodes_and_keys(cluster, count=1):
    """[(node, a key of it, …)]"""
    return [(node, *keys) for node, keys in cluster.keys_at(count).items()]


def idle_s(headgate):
    """For how long the client has neither sent nor got anything, by Headgate's own clock. Whole seconds."""
    with headgate.admin() as admin:
        return max(int(line.split("idle=")[1].split()[0]) for line in admin("CLIENTS").decode().splitlines())


def await_slow(headgate):
    """Waits until what is under way is slow."""
    wait_for(lambda: idle_s(headgate) * 1000 > THRESHOLD, 30, "a request that is under way for so long")


@pytest.mark.parametrize("pool", ["shared", "session"])
def test_requests_for_several_nodes_are_measured_as_a_whole(make_headgate, cluster, pool):
    """Once each, with their own bytes, from their beginning until all nodes have answered."""
    headgate = launch(make_headgate, cluster.url(), pool, RULES, cross_slot="split")
    (hung, key), *others = nodes_and_keys(cluster)
    keys = [key, *[name for _, name in others]]
    client = headgate.connect()
    assert client("MSET", *[word for name in keys for word in (name, "x" * 4000)]) == OK
    with Hanging(hung):
        client.send(encode("DBSIZE") + encode("MGET", *keys))
        await_slow(headgate)
    assert client.read_many(2) == [3, [b"x" * 4000] * 3]
    assert client("KEYS", "*") is not None
    await_measured(headgate, {"mset": 1, "dbsize": 1, "mget": 1, "keys": 1})
    assert sorted(slow(headgate)[0]) == ["DBSIZE", "MGET"]
    assert [line["command"] for line in ask(headgate, "BIGLOG", "100")] == ["MSET"]


def test_nothing_is_left_out_and_nothing_counts_twice(make_headgate, cluster):
    """Pipelines over all nodes while slots go to and fro: as many of each command as were sent."""
    headgate = launch(make_headgate, cluster.url(), "shared", RULES)
    nodes = [node for node, *_ in nodes_and_keys(cluster)]
    names = [name for keys in cluster.keys_at(3, "moving").values() for name in keys]
    client = headgate.connect()
    sent = {"set": 0, "get": 0, "incr": 0}
    for round_ in range(12):
        requests = [
            request
            for name in names
            for request in (("SET", name, "x" * 100 * round_), ("GET", name), ("INCR", name + "{n}"), ("GET", name))
        ]
        client.send(b"".join(encode(*request) for request in requests))
        slot = slot_of(names[round_ % len(names)])
        cluster.move_slot(slot, next(node for node in nodes if node is not cluster.owner(slot)))
        replies = client.read_many(len(requests))
        assert replies[1::4] == replies[3::4] == [b"x" * 100 * round_] * len(names)
        for request in requests:
            sent[request[0].lower()] += 1
    await_measured(headgate, sent)
    lines = interfaces(headgate, "LATENCY")
    assert {line["errors"] for line in lines.values()} == {"0"}
