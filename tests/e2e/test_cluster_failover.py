"""Redis Cluster behind one address, when masters go: by agreement, killed, and hanging."""

import pytest

from harness.admin import await_end_seen, stats
from harness.cluster import Cluster, tag_of
from harness.resp import OK, Error, wait_for


@pytest.fixture
def cluster():
    with Cluster(replicas=1) as made:
        yield made


def questions_about_the_map(nodes):
    return sum(int(node.info("commandstats")["cmdstat_cluster|slots"].split("=")[1].split(",")[0]) for node in nodes)


def test_requests_at_a_master_that_hangs_are_given_up(cluster, make_headgate, pool):
    """When another has taken over, not when it has answered: nobody knows what became of them. Meanwhile it is looked
    again and again whether one has."""
    headgate = make_headgate(cluster.url(), pool=pool, threads=4, upstream_wait="60s", upstream_reply_timeout=0)
    lost = cluster.masters[0]
    keys = [f"{{{tag_of(slot)}}}:n" for slot in (1, 2, 3, 4)]
    clients = [headgate.connect() for _ in keys]
    for client, key in zip(clients, keys):
        assert client("INCR", key) == 1
    wait_for(lambda: cluster.replica_of(lost).ask("DBSIZE") == lost.ask("DBSIZE"), 30, "the replica to have all")
    replica = cluster.replica_of(lost)
    replica.tell("CONFIG", "SET", "cluster-replica-no-failover", "yes")
    asked = [node for node in cluster.masters if node is not lost]
    before = questions_about_the_map(asked)
    lost.pause()
    for client, key in zip(clients, keys):
        client.request("INCR", key)
    wait_for(lambda: questions_about_the_map(asked) > before + 25, 30, "questions about the map")
    replica.tell("CONFIG", "SET", "cluster-replica-no-failover", "no")
    cluster.await_failover(lost)
    for client, key in zip(clients, keys):
        client.assert_closed()
        assert headgate.connect()("INCR", key) == 2, "it was not executed, as its node hung"
    lost.resume()


def test_a_node_that_is_down_harms_its_own_slots_only(cluster, make_headgate):
    headgate = make_headgate(cluster.url(), upstream_wait="1s")
    for replica in cluster.replicas:
        replica.tell("CONFIG", "SET", "cluster-replica-no-failover", "yes")
    for node in cluster.alive():
        node.tell("CONFIG", "SET", "cluster-require-full-coverage", "no")
    lost = cluster.masters[0]
    here, there = (f"{{{tag_of(slot)}}}" for slot in (500, 9000))
    client, other = headgate.connect(), headgate.connect()
    wait_for(lambda: client("SET", here, 1) == OK and other("SET", there, 1) == OK, what="both to be served")
    lost.kill()
    client.request("GET", here)
    for _ in range(100):
        assert other("GET", there) == b"1"
    # The client whose request was under way is closed; who comes later is told so.
    wait_for(lambda: isinstance(headgate.connect()("GET", here), Error), 60, "an error for what is gone")
    assert other("GET", there) == b"1"
    assert [headgate.connect()("EVAL", "return 1", 0) for _ in range(8)] == [1] * 8, "any node will do"


def kill_owner(cluster, headgate, slot):
    """Headgate knows that it cannot be reached, and not yet that another takes over."""
    lost = cluster.owner(slot)
    lost.kill()
    await_end_seen(headgate, lost.cluster_address[1])
    wait_for(lambda: int(stats(headgate)["lanes_failed_total"]) > 0, what="attempts to reach it")
    return lost


LIBRARY = "#!lua name=lib\nredis.register_function('f', function() return 7 end)"


def test_what_is_loaded_everywhere_is_at_who_takes_over(cluster, make_headgate, pool):
    """A master has died, and was not reached any more: its part is for the one in its place."""
    headgate = make_headgate(cluster.url(), pool=pool, upstream_wait="10m")
    headgate.await_log("3 of them masters with slots")
    key = f"{{{tag_of(500)}}}key"
    with headgate.connect() as client:
        assert client("SET", key, 1) == OK
    lost = kill_owner(cluster, headgate, 500)
    loads, library = headgate.connect(), headgate.connect()
    loads.request("SCRIPT", "LOAD", "return 9")
    library.request("FUNCTION", "LOAD", LIBRARY)
    cluster.await_failover(lost)
    for client in (loads, library):
        client.socket.settimeout(30)
    digest = loads.read()
    assert library.read() == b"lib"
    assert loads("EVALSHA", digest, 1, key) == 9
    assert library("FCALL", "f", 1, key) == 7
