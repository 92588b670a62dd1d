"""[latency] before a cluster: what is measured of a client's requests at several nodes is that of each of them."""

import pytest

from harness.cluster import Cluster
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


def idle_s(headgate):
    """For how long the client has neither sent nor got anything, by Headgate's own clock. Whole seconds."""
    with headgate.admin() as admin:
        return max(int(line.split("idle=")[1].split()[0]) for line in admin("CLIENTS").decode().splitlines())


@pytest.mark.parametrize("pool", ["shared", "session"])
def test_requests_for_several_nodes_are_measured_as_a_whole(make_headgate, cluster, pool):
    """Once each, with their own bytes, from their beginning until all nodes have answered."""
    headgate = launch(make_headgate, cluster.url(), pool, RULES, cross_slot="split")
    keys = [key for (key,) in cluster.keys_at(1).values()]
    hung = next(iter(cluster.keys_at(1)))
    client = headgate.connect()
    assert client("FLUSHALL") == OK
    assert client("MSET", *[word for name in keys for word in (name, "x" * 4000)]) == OK
    hung.pause()
    client.send(encode("DBSIZE") + encode("MGET", *keys))
    wait_for(lambda: idle_s(headgate) * 1000 > THRESHOLD, 30, "requests that are under way for so long")
    hung.resume()
    assert client.read_many(2) == [3, [b"x" * 4000] * 3]
    assert client("KEYS", "*") is not None
    measured = {name: line["count"] for name, line in interfaces(headgate, "LATENCY").items()}
    assert measured == {"flushall": "1", "mset": "1", "dbsize": "1", "mget": "1", "keys": "1"}
    assert sorted(line["command"] for line in ask(headgate, "SLOWLOG", "100")) == ["DBSIZE", "MGET"]
    assert [line["command"] for line in ask(headgate, "BIGLOG", "100")] == ["MSET"]
