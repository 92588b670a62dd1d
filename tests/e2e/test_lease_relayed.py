"""[lease:NAME] in a Headgate whose clients are another Headgate's lanes: that one lives on when its clients have gone."""

import pytest

from harness.leases import COMPARE_AND_PEXPIRE, LEASE_MS, await_left, await_keys, await_lease, counters, losses, rule, take
from harness.servers import Headgate

WARNING = "a lock was taken by way of another Headgate"


@pytest.fixture
def sidecar_of():
    """Starts a Headgate before another one."""
    started = []

    def start(headgate, **options):
        started.append(Headgate(f"127.0.0.1:{headgate.port}", tls=False, **options))
        return started[-1]

    yield start
    for sidecar in started:
        sidecar.finish()


def settle(client):
    """Takes part in the connection that clients share."""
    assert client("PING")


def test_who_dies_behind_another_headgate_keeps_no_lock(make_shared, redis, sidecar_of):
    """A Headgate's connection lives longer than its clients: their locks end with their leases."""
    owners = ("process", "connection", "client")
    headgate = make_shared("".join(rule(owner, keys=f"lock:{owner}", owner=owner) for owner in owners), tls=False)
    sidecar = sidecar_of(headgate)
    client, other = sidecar.connect(), sidecar.connect()
    settle(other)
    for owner in owners:
        take(client, f"lock:{owner}")
    client.reset()
    await_left(redis, *(f"lock:{owner}" for owner in owners))
    headgate.await_log(WARNING)
    assert counters(headgate).get("renewals_total", 0) == 0


@pytest.mark.parametrize("pool", ["shared", "session"])
def test_a_process_that_is_a_headgate_owns_nothing(make_shared, redis, sidecar_of, pool):
    """Its connections of one client each, too, as it is one process for all of them."""
    headgate = make_shared(rule(), tls=False)
    sidecar = sidecar_of(headgate, pool=pool)
    client, other = sidecar.connect(), sidecar.connect()
    settle(other)
    take(client, "lock:a")
    # Until the kernel has told which process it is, the connection counts for itself.
    headgate.await_log(WARNING)
    assert client("EVAL", COMPARE_AND_PEXPIRE, 1, "lock:a", "t", LEASE_MS) == 1
    client.reset()
    await_left(redis, "lock:a")
    await_keys(headgate, [])


def test_a_sidecar_that_starts_may_not_have_ended_any_lock(make_shared, redis, sidecar_of):
    """What Headgate sends for itself is known: a lock that is gone then is lost, and not unseen."""
    headgate = make_shared(rule(renew=None), tls=False)
    client = headgate.connect()
    take(client, "lock:a", ms=6000)
    assert sidecar_of(headgate).connect()("PING")
    assert redis.connect()("DEL", "lock:a") == 1
    await_keys(headgate, [])
    assert losses(headgate) == {"gone": 1}


def test_a_connection_for_each_client_shows_that_he_lives(make_shared, redis, sidecar_of):
    """pool = session there, and owner = connection here."""
    headgate = make_shared(rule(owner="connection"), tls=False)
    sidecar = sidecar_of(headgate, pool="session")
    client = sidecar.connect()
    take(client, "lock:a")
    await_lease(headgate, "lock:a")
    client.reset()
    await_left(redis, "lock:a")
    await_keys(headgate, [])
    assert counters(headgate)["owner_gone_total"] == 1
    assert WARNING not in headgate.log()
