"""SCAN before a Redis Cluster that changes under it: what is there from start to end is reported."""

import pytest

from harness.admin import text
from harness.cluster import Cluster, slot_of
from harness.resp import OK, wait_for


@pytest.fixture
def cluster():
    with Cluster(replicas=1) as made:
        yield made


def connect(cluster, make_headgate, **options):
    headgate = make_headgate(cluster.url(), connect_timeout="30s", upstream_wait="60s", **options)
    client = headgate.connect()
    wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    return headgate, client


def fill(client, count=600):
    keys = [f"key:{number}".encode() for number in range(count)]
    assert client.pipeline([("SET", key, key) for key in keys]) == [OK] * count
    return set(keys)


def in_order(cluster):
    """The masters with slots, by their lowest ones."""
    owned = {node: cluster.slots_of(node) for node in cluster.current_masters()}
    return sorted((node for node in owned if owned[node]), key=lambda node: min(owned[node]))


def await_map(headgate, client, cluster):
    """Until Headgate has heard of what was done: scanning makes it ask."""
    addresses = {node: "%s:%d" % node.cluster_address for node in in_order(cluster)}
    expected = {address: str(len(cluster.slots_of(node))) for node, address in addresses.items()}

    def knows():
        client("SCAN", 0, "COUNT", 1)
        with headgate.admin() as admin:
            lines = text(admin("NODES")).splitlines()
        nodes = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]
        return {node["address"]: node["slots"] for node in nodes if node["role"] == "master"} == expected

    wait_for(knows, 60, f"a map with {expected}")


def slots_with_keys(keys, slots):
    return sorted({slot_of(key) for key in keys} & set(slots))


class Scan:
    """One step at a time."""

    def __init__(self, *clients, options=()):
        self.clients, self.options = clients, options
        self.cursor, self.steps = b"0", 0
        self.found = set()

    @property
    def is_over(self):
        return self.steps > 0 and self.cursor == b"0"

    def step(self, count=10):
        client = self.clients[self.steps % len(self.clients)]
        self.cursor, keys = client("SCAN", self.cursor, "COUNT", count, *self.options)
        assert 0 <= int(self.cursor) < 1 << 63
        self.found.update(keys)
        self.steps += 1

    def step_until(self, keys):
        """Until one of those is found."""
        while not self.found & set(keys):
            assert not self.is_over
            self.step()

    def finish(self):
        while not self.is_over:
            assert self.steps < 10000
            self.step()
        return self.found


def keys_at(keys, cluster, node):
    slots = cluster.slots_of(node)
    return {key for key in keys if slot_of(key) in slots}


def test_a_new_node_takes_the_lowest_slots(cluster, make_headgate):
    """Two Headgates pass the cursor to each other."""
    (one, client), (other, another) = (connect(cluster, make_headgate, threads=2) for _ in range(2))
    keys = fill(client)
    first, second, third = in_order(cluster)
    node = cluster.add_node()
    scan = Scan(client, another)
    scan.step_until(keys_at(keys, cluster, second))
    cluster.reshard([0, *slots_with_keys(keys, cluster.slots_of(first))[:5]], node)
    await_map(one, client, cluster)
    await_map(other, another, cluster)
    scan.step()
    scan.step()
    cluster.reshard(slots_with_keys(keys - scan.found, cluster.slots_of(third))[:8], node)
    cluster.await_agreement()
    await_map(one, client, cluster)
    await_map(other, another, cluster)
    assert scan.finish() == keys
