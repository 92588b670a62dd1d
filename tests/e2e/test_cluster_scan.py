"""SCAN before a Redis Cluster that changes under it: what is there from start to end is reported. What else may change is
shown by tests/unit/topology, at random."""

from harness.admin import text
from harness.cluster import Cluster, slot_of
from harness.latency import words_of
from harness.resp import OK, wait_for


def connect(cluster, make_headgate):
    headgate = make_headgate(cluster.url(), connect_timeout="30s", upstream_wait="60s", threads=2)
    client = headgate.connect()
    wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    return headgate, client


def await_map(headgate, client, cluster):
    """Until Headgate has heard of what was done: scanning makes it ask."""
    expected = {"%s:%d" % node.cluster_address: str(len(cluster.slots_of(node))) for node in cluster.current_masters()}

    def knows():
        client("SCAN", 0, "COUNT", 1)
        with headgate.admin() as admin:
            nodes = [words_of(line) for line in text(admin("NODES")).splitlines()]
        return {node["address"]: node["slots"] for node in nodes if node["role"] == "master"} == expected

    wait_for(knows, 60, f"a map with {expected}")


def test_a_new_node_takes_the_lowest_slots_and_others(make_headgate):
    """Two Headgates pass the cursor to each other."""
    with Cluster(replicas=0) as cluster:
        pairs = [connect(cluster, make_headgate) for _ in range(2)]
        clients = [client for _, client in pairs]
        keys = {f"key:{number}".encode() for number in range(600)}
        assert clients[0].pipeline([("SET", key, key) for key in keys]) == [OK] * len(keys)
        first, second, third = sorted(cluster.current_masters(), key=lambda node: min(cluster.slots_of(node)))
        node = cluster.add_node()
        cursor, found, steps = b"0", set(), 0

        def step():
            nonlocal cursor, steps
            cursor, some = clients[steps % 2]("SCAN", cursor, "COUNT", 10)
            assert 0 <= int(cursor) < 1 << 63 and steps < 10000
            found.update(some)
            steps += 1

        def with_keys(keys, of):
            return sorted({slot_of(key) for key in keys} & cluster.slots_of(of))

        while not with_keys(found, second):
            step()
            assert cursor != b"0"
        cluster.reshard([0, *with_keys(keys, first)[:5]], node)
        for pair in pairs:
            await_map(*pair, cluster)
        for _ in range(2):
            step()
        cluster.reshard(with_keys(keys - found, third)[:8], node)
        cluster.await_agreement()
        for pair in pairs:
            await_map(*pair, cluster)
        while cursor != b"0":
            step()
        assert found == keys
