"""[lease:NAME]: whose connections show that a holder lives, what becomes of its locks when it has gone, in which
database they are, and what another configuration changes."""

import socket
import time

import pytest

from harness.identity import add_users, authenticated, connect_from, named
from harness.leases import (
    LEASE_MS, assert_kept, assert_untouched, await_gone, await_keys, await_lease, await_left, counter, keys_of, lease_of,
    leases, losses, remaining, rule, score_of, take, transact,
)
from harness.resp import OK, wait_for
from harness.rules import reload


def await_processes(headgate, keys):
    """The process of a connection can be found as long as that is there."""
    wait_for(lambda: all(lease_of(headgate, key)["owner"].startswith("process:") for key in keys), what="processes to be found")


# ---- a holder that is gone ----


def test_the_locks_of_a_dead_client_are_released(make_shared, redis):
    """on_owner_gone = release: at once, however long their leases are; what somebody else has by then stays."""
    headgate = make_shared(rule(on_owner_gone="release"))
    client, direct = headgate.connect(), redis.connect()
    keys = ["lock:a", "lock:b", "lock:taken", "lock:list"]
    for key in keys:
        take(client, key, ms=60_000)
    now = time.time()
    assert transact(client, ("ZREMRANGEBYSCORE", "lock:sem", "-inf", now - 60), ("ZADD", "lock:sem", now, "id")) == [0, 1]
    await_keys(headgate, [*keys, "lock:sem"])
    await_lease(headgate, "lock:sem")
    assert direct("SET", "lock:taken", "of another", "PX", 60_000) == OK
    assert direct.pipeline([("DEL", "lock:list"), ("RPUSH", "lock:list", "t")]) == [1, 1]
    assert direct("ZADD", "lock:sem", now, "other") == 1
    assert client("QUIT") == OK
    await_gone(redis, "lock:a", "lock:b")
    wait_for(lambda: score_of(redis, "lock:sem", "id") is None, what="the permit to be released")
    await_keys(headgate, [])
    assert direct("GET", "lock:taken") == b"of another"
    assert direct("LRANGE", "lock:list", 0, -1) == [b"t"]
    assert score_of(redis, "lock:sem", "other") == now
    assert counter(headgate, "owner_gone_total") == 5


@pytest.mark.parametrize("end", ["reset", "ended first"])
def test_an_answer_that_nobody_hears(make_shared, redis, end):
    """Its process lives, and has another connection: what it does not know of it does not keep."""
    headgate = make_shared(rule())
    client, other = headgate.connect(), headgate.connect()
    take(other, "lock:heard")
    assert redis.connect()("CLIENT", "PAUSE", 300, "WRITE") == OK
    client.request("SET", "lock:a", "t", "NX", "PX", LEASE_MS)
    if end == "ended first":
        client.socket.shutdown(socket.SHUT_WR)
    wait_for(lambda: remaining(redis, "lock:a")["lock:a"] > 0, what="the lock to be granted")
    if end == "reset":
        client.reset()
    await_left(redis, "lock:a")
    await_keys(headgate, ["lock:heard"])
    assert counter(headgate, "owner_gone_total") == 1 and not losses(headgate)


# ---- who is the same ----


def test_owners_are_told_apart(make_shared, redis):
    """Of owner = client: by address, user and name; the ones that stay are others."""
    headgate = make_shared(rule(owner="client"))
    add_users(redis, "alice", "bob")
    dying = {
        "lock:web": named(headgate, "web"), "lock:alice": call(authenticated(headgate, "alice"), "cron"),
        "lock:address": call(connect_from(headgate, "127.0.0.2"), "cron"), "lock:nobody": headgate.connect(),
    }
    for key, client in dying.items():
        take(client, key)
    staying = [
        named(headgate, "cron"), call(authenticated(headgate, "bob"), "cron"),
        call(connect_from(headgate, "127.0.0.3"), "cron"), headgate.connect(),
    ]
    take(staying[0], "lock:cron")
    owners = {lease["key"]: lease["owner"] for lease in leases(headgate)}
    assert owners.pop("lock:nobody").startswith("127.0.0.1/default/#")
    assert owners == {
        "lock:web": "127.0.0.1/default/web", "lock:alice": "127.0.0.1/alice/cron", "lock:address": "127.0.0.2/default/cron",
        "lock:cron": "127.0.0.1/default/cron",
    }
    for client in dying.values():
        client.reset()
    await_keys(headgate, ["lock:cron"])
    await_left(redis, *dying)
    assert headgate.log().count("owner = client") == 1
    assert_kept(redis, ["lock:cron"], 1)


def call(client, name):
    assert client("CLIENT", "SETNAME", name) == OK
    return client


# ---- databases ----


def test_swapped_databases(make_shared, redis, monitor):
    """The lock is elsewhere then: not renewed, neither there nor here. One of another database that stays is."""
    headgate = make_shared(rule())
    client, other = headgate.connect(), headgate.connect()
    assert other("SELECT", 3) == OK
    take(client, "lock:a")
    take(other, "lock:b")
    assert client("SWAPDB", 0, 1) == OK
    await_keys(headgate, ["lock:b"])
    assert_untouched(redis, monitor, ["lock:a"])
    wait_for(lambda: monitor.renewals("lock:b"), what="a renewal")
    assert all("[3 lua]" in line for line in monitor.renewals("lock:b"))


# ---- other configurations ----


@pytest.mark.threads
def test_a_rule_that_is_added(make_shared, redis):
    """Clients that were connected before count as owners, each for what it takes from then on."""
    headgate = make_shared("", threads=4)
    clients = [headgate.connect() for _ in range(6)]
    take(clients[0], "lock:before")
    reload(headgate, rule(), *clients)
    keys = [f"lock:{number}" for number in range(5)]
    for client, key in zip(clients, keys):
        take(client, key)
    await_processes(headgate, keys)
    for client in clients[: len(keys)]:
        client.close()
    assert_kept(redis, keys)
    assert keys_of(headgate) == set(keys), "what was taken before is not known"
    clients[5].reset()
    await_left(redis, *keys)
    await_keys(headgate, [])
