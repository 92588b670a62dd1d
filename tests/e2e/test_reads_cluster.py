"""What only reads is read from the replicas of a cluster's masters, each slot from its own."""

import pytest

from harness.admin import stats
from harness.cluster import Cluster, tag_of
from harness.reads import nodes
from harness.resp import OK, wait_for

FAST = {"sentinel_check": "100ms", "sentinel_timeout": "20s", "read_own_writes": "0", "upstream_wait": "60s"}


@pytest.fixture(scope="module")
def shared():
    with Cluster(replicas=1) as made:
        yield made


@pytest.fixture
def own():
    with Cluster(replicas=1) as made:
        yield made


def fit(headgate):
    return {int(node["address"].rsplit(":", 1)[1]) for node in nodes(headgate, "replica")
            if node["state"] == "up" and node["lag"] != ""}  # fmt: skip


def await_fit(headgate, replicas):
    wait_for(lambda: fit(headgate) == {node.port for node in replicas}, 60, "these replicas to be fit")


def start(cluster, make_headgate, reads="prefer-replica", **options):
    headgate = make_headgate(cluster.url(), reads=reads, **{**FAST, **options})
    await_fit(headgate, cluster.replicas)
    return headgate


def calls(node, command):
    for line in node.ask("INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:calls="):
            return int(line.split("=")[1].split(",")[0])
    return 0


def reset(cluster):
    for node in cluster.alive():
        node.tell("CONFIG", "RESETSTAT")


def keys_of_all(count=12):
    return [f"{{{tag_of(slot)}}}" for slot in range(100, 16384, 16384 // count)]


def written(headgate, keys, value="v"):
    """At the masters and their replicas."""
    for key in keys:
        with headgate.connect() as client:
            assert client("SET", key, value) == OK
            assert client("WAIT", 1, 30_000) == 1


def test_reads_reach_the_replicas_of_their_slots(shared, make_headgate):
    headgate = start(shared, make_headgate, threads=4)
    keys = keys_of_all()
    written(headgate, keys)
    clients = [headgate.connect() for _ in range(4)]
    reset(shared)
    for client in clients:
        assert client.pipeline([("GET", key) for key in keys]) == [b"v"] * len(keys)
        assert [client("GET", key) for key in keys] == [b"v"] * len(keys)
    assert [calls(node, "get") for node in shared.masters] == [0] * 3
    counts = [calls(node, "get") for node in shared.replicas]
    assert sum(counts) == 2 * len(keys) * len(clients) and all(count > 0 for count in counts)
    assert int(stats(headgate, "topology")["reads_replica_total"]) == sum(counts)
    assert stats(headgate, "upstream")["redirects_total"] == "0"
    wait_for(lambda: sum(int(node["reads"]) for node in nodes(headgate, "replica")) == sum(counts), 30, "NODES to tell")


@pytest.mark.parametrize("split", ("refuse", "split"))
def test_pipelines_see_their_own_writes(shared, make_headgate, split):
    headgate = start(shared, make_headgate, cross_slot=split)
    client = headgate.connect()
    keys = keys_of_all()
    for number in range(10):
        said = [request for key in keys for request in (("SET", key, number), ("GET", key), ("STRLEN", key))]
        replies = client.pipeline(said)
        assert replies[1::3] == [str(number).encode()] * len(keys)
        if split == "split":
            said = [("MSET", *(word for key in keys for word in (key, f"m{number}"))), ("MGET", *keys), ("GET", keys[3])]
            assert client.pipeline(said) == [OK, [f"m{number}".encode()] * len(keys), f"m{number}".encode()]
