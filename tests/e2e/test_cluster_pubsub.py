"""Subscriptions before a cluster: a subscriber stays connected when its node goes, and hears what comes after that."""

import contextlib

import pytest

from harness.admin import stats
from harness.cluster import Cluster
from harness.resp import OK, Closed, Push, wait_for


@pytest.fixture
def cluster():
    with Cluster(replicas=1) as made:
        yield made


def subscribe(client, *command):
    client.request(*command)
    return [client.read() for _ in command[1:]]


def node_of(cluster, channel, hung=None):
    """The one that has the subscriber."""

    def find():
        for node in cluster.alive():
            if node is hung:
                continue
            count = node.ask("PUBSUB", "NUMSUB", channel)[1]
            if count:
                return node
        return None

    return wait_for(find, 30, "a subscriber")


def assert_hears(publisher, client, channel, resp=2, publish="PUBLISH", message_type=b"message"):
    """Messages of the moment between may be lost, so one is sent until it comes; nothing else comes."""
    kind = Push if resp == 3 else list
    for number in range(600):
        with contextlib.suppress(Closed):
            publisher(publish, channel, number)
        client.socket.settimeout(0.1)
        try:
            message = client.read()
            assert type(message) is kind and message[:2] == [message_type, channel.encode()], message
            return
        except TimeoutError:
            continue
        finally:
            client.socket.settimeout(client.timeout)
    raise AssertionError("it hears nothing")


@pytest.mark.parametrize("threads, end, resp", ((1, "kill", 2), (4, "kill", 3), (1, "pause", 3)))
def test_a_subscriber_outlives_its_node(cluster, make_headgate, pool, threads, end, resp):
    headgate = make_headgate(cluster.url(), pool=pool, threads=threads, upstream_wait="60s")
    client = headgate.connect()
    client("HELLO", resp)
    assert len(subscribe(client, "SUBSCRIBE", "news", "gone", "weather")) == 3
    assert len(subscribe(client, "UNSUBSCRIBE", "gone")) == 1
    assert len(subscribe(client, "PSUBSCRIBE", "sport.*")) == 1
    lost = node_of(cluster, "news")
    lost.ask("CONFIG", "RESETSTAT")
    # It hears nothing of it that its lane is asked for a sign of life.
    wait_for(lambda: b"cmdstat_ping" in lost.ask("INFO", "commandstats"), 30, "a sign of life")
    client.assert_silent(0.1)
    publisher = next(node for node in cluster.masters if node is not lost).connect()
    getattr(lost, end)()
    assert_hears(publisher, client, "news", resp)
    moved = node_of(cluster, "news", lost)
    assert moved is not lost
    assert moved.ask("PUBSUB", "NUMSUB", "gone")[1] == 0
    assert moved.ask("PUBSUB", "NUMSUB", "weather")[1] == 1 and moved.ask("PUBSUB", "NUMPAT") == 1
    assert int(stats(headgate)["subscribers_moved_total"]) >= 1
    # Its state is what it was: it may go on with its subscriptions.
    client.request("SUBSCRIBE", "more")
    wait_for(lambda: node_of(cluster, "more", lost).ask("PUBSUB", "NUMSUB", "more")[1] == 1, 30, "the further one")


def test_a_node_that_is_killed_by_its_operator_again_and_again(cluster, make_headgate):
    """CLIENT KILL: the connection goes, and the node stays."""
    headgate = make_headgate(cluster.url())
    client = headgate.connect()
    subscribe(client, "SUBSCRIBE", *[f"c{number}" for number in range(300)])
    for _ in range(5):
        node = node_of(cluster, "c7")
        node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        publisher = node.connect()
        assert_hears(publisher, client, "c7")
        publisher.close()
    assert node_of(cluster, "c299") is not None


def test_who_has_more_than_subscriptions_is_closed(cluster, make_headgate):
    headgate = make_headgate(cluster.url(), pool="session")
    client = headgate.connect()
    assert client("WATCH", "key") == OK
    client.request("SUBSCRIBE", "news")
    assert client.read()[0] == b"subscribe"
    node_of(cluster, "news").ask("CLIENT", "KILL", "TYPE", "pubsub")
    client.assert_closed()


def test_who_has_more_names_than_are_kept_is_closed(cluster, make_headgate):
    headgate = make_headgate(cluster.url())
    client = headgate.connect()
    subscribe(client, "SUBSCRIBE", *[f"{'x' * 1000}{number}" for number in range(100)])
    name = "x" * 1000 + "7"
    node_of(cluster, name).ask("CLIENT", "KILL", "TYPE", "pubsub")
    client.assert_closed()
