"""Clusters, and servers that sentinels watch over, in upheaval: no reply for somebody else, nothing executed twice, no
order lost. A short run of what scripts/test-failovers does at length."""

import pytest

from harness.cluster import Cluster
from harness.sentinel import Group
from harness.upheaval import ClusterUpheaval, Crowd, SentinelUpheaval, Wrong, upheave

CLIENTS = 3


@pytest.mark.threads
@pytest.mark.parametrize("pool", ("shared", "session"))
def test_a_cluster(make_headgate, pool):
    with Cluster(replicas=1) as cluster:
        headgate = make_headgate(cluster.url(), pool=pool, threads=4, upstream_wait="60s", cross_slot="split")
        with Crowd(headgate.connect, CLIENTS, splits=True) as crowd:
            crowd.await_rounds()
            upheave(ClusterUpheaval(cluster), crowd, 4)
        assert crowd.total("requests") > 100


@pytest.mark.threads
@pytest.mark.parametrize("pool", ("shared", "session"))
def test_sentinels(make_headgate, pool):
    group = Group(down_after=4000)
    try:
        headgate = make_headgate(group.url, pool=pool, threads=4, upstream_wait="60s")
        with Crowd(headgate.connect, CLIENTS, splits=True) as crowd:
            crowd.await_rounds()
            upheave(SentinelUpheaval(group), crowd, 3)
        assert crowd.total("requests") > 100
    finally:
        group.discard()


def test_the_clients_find_what_is_wrong(redis):
    """Directly at Redis, with somebody who meddles."""
    with redis.connect() as direct:
        with pytest.raises(Wrong), Crowd(redis.connect, 4, splits=True) as crowd:
            crowd.await_rounds()
            key = next(iter(crowd.clients[0].seen))
            while not crowd.failures:
                direct("DECR", key)


def test_the_clients_find_replies_of_others(redis):
    def connect():
        client = redis.connect()
        read_many = client.read_many
        client.read_many = lambda count: [b"9:9" if reply == b"1:4" else reply for reply in read_many(count)]
        return client

    with pytest.raises(Wrong), Crowd(connect, 4, splits=True) as crowd:
        crowd.await_rounds(200)


def test_the_clients_find_nothing_at_redis_itself(redis):
    with Crowd(redis.connect, 4, splits=True) as crowd:
        crowd.await_rounds(5)
    assert crowd.total("requests") > 100 and crowd.total("lost") == 0
