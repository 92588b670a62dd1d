"""Shard channels whose slot goes to another node, by resharding or by a failover: their subscribers go along."""

import pytest

from e2e import test_cluster_pubsub
from harness.admin import stats
from harness.cluster import key_in, slot_of
from harness.resp import wait_for

REPLICAS = 1


def channels_of(cluster, count=1):
    """So many channels of one slot, and its owner."""
    owner = cluster.current_masters()[0]
    first = key_in(cluster.slots_of(owner), "shard")
    return [first, *(f"{{{first}}}{number}" for number in range(1, count))], owner


def subscribe(client, *channels):
    for channel in channels:
        client.request("SSUBSCRIBE", channel)
        assert client.read()[:2] == [b"ssubscribe", channel.encode()]


def is_subscribed(node, channel, count=1):
    return node.ask("PUBSUB", "SHARDNUMSUB", channel)[1] == count


def assert_hears(publisher, client, channel, resp):
    test_cluster_pubsub.assert_hears(publisher, client, channel, resp, "SPUBLISH", b"smessage")


def read_all(client, publisher, channel):
    """What has come up to a last message, which is the first that has this text."""
    publisher("SPUBLISH", channel, "last")
    while (message := client.read())[2] != b"last":
        assert message[0] == b"smessage", message


@pytest.mark.parametrize("threads, resp", ((1, 2), (4, 3)))
def test_a_subscriber_goes_along_with_its_slot(cluster, make_headgate, pool, threads, resp):
    headgate = make_headgate(cluster.url(), pool=pool, threads=threads)
    client, publisher = headgate.connect(), headgate.connect()
    client("HELLO", resp)
    channels, owner = channels_of(cluster, 5)
    subscribe(client, *channels)
    other = next(node for node in cluster.current_masters() if node is not owner)
    for target in (other, owner, other, owner):
        cluster.move_slot(slot_of(channels[0]), target)
        for channel in channels:
            wait_for(lambda channel=channel: is_subscribed(target, channel), 60, "a subscriber at the new node")
        for channel in channels:
            assert_hears(publisher, client, channel, resp)
    assert int(stats(headgate)["subscribers_moved_total"]) >= 4
    read_all(client, publisher, channels[0])
    client.request("SUNSUBSCRIBE", *channels[:2])
    assert [client.read() for _ in range(2)] == [
        [b"sunsubscribe", channels[0].encode(), 4],
        [b"sunsubscribe", channels[1].encode(), 3],
    ]


def test_who_has_channels_of_two_slots_hears_of_it(cluster, make_headgate):
    """As from Redis: the other channel stays where it is."""
    headgate = make_headgate(cluster.url())
    client, publisher = headgate.connect(), headgate.connect()
    owner = cluster.current_masters()[0]
    slots = cluster.slots_of(owner)
    gone = key_in(slots)
    kept = key_in(slots - {slot_of(gone)})
    subscribe(client, gone, kept)
    other = next(node for node in cluster.current_masters() if node is not owner)
    cluster.move_slot(slot_of(gone), other)
    assert client.read() == [b"sunsubscribe", gone.encode(), 1]
    assert_hears(publisher, client, kept, 2)
    # With one slot left, that is followed again.
    read_all(client, publisher, kept)
    cluster.move_slot(slot_of(kept), other)
    wait_for(lambda: is_subscribed(other, kept), 60, "a subscriber at the new node")
    assert_hears(publisher, client, kept, 2)
    for key in (gone, kept):
        cluster.move_slot(slot_of(key), owner)
