"""Leases behind sentinels: they go with the data; those that a failover has lost are said to be."""

import pytest

from harness.fake_sentinel import FakeSentinel, url_of
from harness.leases import LEASE_MS, await_lease, counter, lease_of, losses, rule, take
from harness.resp import OK, wait_for

RULE = rule(ttl=f"{LEASE_MS}ms")


@pytest.fixture
def servers(make_redis):
    """A master and its replica."""
    master, replica = make_redis(), make_redis()
    with replica.connect() as direct:
        port = master.tls_port if replica_speaks_tls(replica) else master.port
        assert direct("REPLICAOF", master.host, port) == OK
        wait_for(lambda: b"master_link_status:up" in direct("INFO", "replication"), 30, "the replica's link")
    return master, replica


def replica_speaks_tls(replica):
    with replica.connect() as direct:
        return direct("CONFIG", "GET", "tls-replication")[1] == b"yes"


@pytest.fixture
def sentinels(servers):
    made = [FakeSentinel(servers[0]) for _ in range(3)]
    yield made
    for sentinel in made:
        sentinel.close()


def fail_over(sentinels, servers, meanwhile=lambda: None):
    """As sentinels do it: the replica is a master first."""
    master, replica = servers
    with replica.connect() as direct:
        assert direct("REPLICAOF", "NO", "ONE") == OK
    meanwhile()
    for sentinel in sentinels:
        sentinel.switches_to(replica)


def await_renewals(headgate, count):
    before = counter(headgate, "renewals_total")
    wait_for(lambda: counter(headgate, "renewals_total") >= before + count, 30, "renewals")


def test_a_lease_is_renewed_at_the_new_master(sentinels, servers, make_headgate, pool):
    """Even if the last renewal has not reached that: it was at the one of before."""
    headgate = make_headgate(url_of(sentinels), pool=pool, threads=4, start=False)
    headgate.write_rules(RULE)
    headgate.start()
    with headgate.connect() as client, servers[1].connect() as direct:
        take(client, "lock:a", ms=3000)
        await_lease(headgate, "lock:a")
        wait_for(lambda: direct("EXISTS", "lock:a") == 1, 30, "the replica to have it")
        fail_over(sentinels, servers, lambda: await_renewals(headgate, 1))
        await_renewals(headgate, 2)
        assert lease_of(headgate, "lock:a")["state"] == "held"
        assert direct("PTTL", "lock:a") > 0
        assert client("DEL", "lock:a") == 1
    assert sum(losses(headgate).values()) == 0
