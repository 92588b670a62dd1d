"""What Headgate knows of a real Redis Cluster, and hears of it: seeds, names, passwords, TLS, failovers, other clusters."""

import socket

import pytest

from harness.cluster import Cluster, key_in
from harness.resp import OK, Error, wait_for
from harness.servers import Redis, free_port

REPLICAS = 1


def serves(headgate, slots=16384):
    with headgate.connect() as client:
        step = slots // 3
        keys = [key_in(range(first, first + step)) for first in range(0, slots - step + 1, step)]
        return [client("SET", key, "v") for key in keys] == [OK] * len(keys)


def test_seeds_that_do_not_answer_are_passed_over(cluster, make_headgate):
    """A port where nobody listens, a Redis without cluster support, somebody who says nothing. A replica is a seed, too."""
    plain = Redis()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        seeds = [f"127.0.0.1:{free_port()}", plain.url, f"127.0.0.1:{silent.getsockname()[1]}", cluster.replicas[0].url]
        headgate = make_headgate(f"cluster://{','.join(seeds)}")
        headgate.await_log("3 of them masters with slots")
        assert serves(headgate)
    plain.discard()


def test_it_starts_before_the_cluster_does(make_headgate):
    node = Cluster(masters=1, replicas=0)
    try:
        seed = node.masters[0]
        seed.kill()
        headgate = make_headgate(f"cluster://{seed.url}", upstream_wait="200ms")
        headgate.await_log("no node of")
        with headgate.connect() as client:
            assert isinstance(client("GET", "key"), Error), "after a bounded time"
        seed.start()
        headgate.await_log("has 1 nodes")
        with headgate.connect() as client:
            wait_for(lambda: client("SET", "key", "v") == OK, 60, "a cluster that serves")
    finally:
        node.discard()


NAMED = ("--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")


@pytest.mark.parametrize("options, host", (((), "127.0.0.1"), (NAMED, "localhost")))
def test_nodes_that_come_and_go_are_told_of(make_headgate, options, host):
    with Cluster(*options, masters=3, replicas=0) as cluster:
        headgate = make_headgate(cluster.url("cluster"))
        headgate.await_log("has 3 nodes")
        node = cluster.add_node()
        slot = min(cluster.slots_of(cluster.masters[0]))
        key = key_in(slot)
        with headgate.connect() as client:
            assert client("SET", key, "v") == OK
            cluster.begin_migration(slot, node)
            cluster.move_keys(slot, cluster.masters[0], node)
            assert client("GET", key) == b"v", "of a node that has no slot yet"
            cluster.end_migration(slot, node)
            assert client("GET", key) == b"v"
            headgate.await_log(f"{host}:{node.cluster_address[1]} has come, as a master")
            cluster.move_slot(slot, cluster.masters[1])
            cluster.await_agreement()
            cluster.remove_node(node)
            headgate.await_log(f"{host}:{node.cluster_address[1]} is gone")
            assert client("GET", key) == b"v"


def test_slots_that_nobody_has(make_headgate):
    with Cluster("--cluster-require-full-coverage", "no", masters=2, replicas=0) as cluster:
        headgate = make_headgate(cluster.url("cluster"), upstream_wait="300ms")
        headgate.await_log("has 2 nodes")
        slot = min(cluster.slots_of(cluster.masters[0]))
        other = key_in(max(cluster.slots_of(cluster.masters[0])))
        for node in cluster.masters:
            node.tell("CLUSTER", "DELSLOTS", slot)
        with headgate.connect() as client:
            wait_for(lambda: client("SET", other, "v") == OK, what="a connection to its node")
            assert client("GET", key_in(slot)) == Error(b"CLUSTERDOWN Hash slot not served"), "in Redis' words"
            assert client("SET", other, "v") == OK, "the others are none the worse"
        headgate.await_log("1 slots of cluster://")


def test_a_password(make_headgate):
    with Cluster(masters=2, replicas=0, password="sesame") as cluster:
        headgate = make_headgate(cluster.url("cluster", password="sesame"))
        headgate.await_log("has 2 nodes")
        assert "sesame" not in headgate.log()
        wrong = make_headgate(cluster.url("cluster", password="wrong"), upstream_wait="200ms")
        wrong.await_log('it answers AUTH by "WRONGPASS')


def test_tls(make_headgate):
    with Cluster(masters=2, replicas=0, tls=True) as cluster:
        headgate = make_headgate(cluster.url("clusters"), tls=True)
        headgate.await_log("has 2 nodes")
        with headgate.connect() as client:
            assert [client("SET", f"key:{number}", "v") for number in range(20)] == [OK] * 20
        assert all(node.ask("DBSIZE") for node in cluster.masters)
