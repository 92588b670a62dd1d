"""Headgate before the master that sentinels know: found, followed, and never another."""

import pytest

from harness.admin import stats
from harness.resp import OK, Closed, encode, wait_for
from harness.sentinel import Group


@pytest.fixture
def group(sentinel_group):
    """One that all tests of this file use one after the other: each leaves it with a master and a replica at least."""
    sentinel_group.await_agreement(replicas=1)
    return sentinel_group


def answers_from(headgate, server):
    """Whether a new client of Headgate is at that server."""
    try:
        with headgate.connect() as client:
            return client("CONFIG", "GET", "port") == [b"port", str(server.port).encode()]
    except (Closed, OSError):
        return False


def await_server(headgate, server):
    wait_for(lambda: answers_from(headgate, server), 60, "Headgate to be at that server")


def changes(headgate):
    return int(stats(headgate, "topology")["topology_changes_total"])


def test_finds_the_master_and_follows_it(group, make_headgate, pool):
    headgate = make_headgate(group.url, pool=pool, threads=4)
    await_server(headgate, group.master())
    idle = [headgate.connect() for _ in range(6)]
    assert all(client("SET", f"k{number}", number) == OK for number, client in enumerate(idle))
    before = group.master()
    group.failover()
    after = group.await_agreement(replicas=1)
    assert after is not before
    await_server(headgate, after)
    # They had nothing under way, and no state: they have not noticed. Each worker hears of it by itself.
    ports = [str(after.port).encode()] * 6
    wait_for(lambda: [client("CONFIG", "GET", "port")[1] for client in idle] == ports, 60, "all workers to be there")
    assert all(client("SET", f"k{number}", "x") == OK for number, client in enumerate(idle))
    assert changes(headgate) >= 1


def test_who_is_held_meanwhile_does_not_notice(group, make_headgate, pool):
    """PAUSE is for this: what was not sent yet goes to the new master."""
    headgate = make_headgate(group.url, pool=pool, threads=2)
    before = group.master()
    await_server(headgate, before)
    clients = [headgate.connect() for _ in range(6)]
    assert all(client("SET", f"k{number}", number) == OK for number, client in enumerate(clients))
    with headgate.admin() as admin:
        assert admin("PAUSE") == OK
    for client in clients:
        client.send(encode("CONFIG", "GET", "port"))
    wait_for(lambda: stats(headgate, "pause")["pause_held"] == "6", what="all to be held")
    seen = changes(headgate)
    group.failover()
    after = group.await_agreement(replicas=1)
    assert after is not before
    wait_for(lambda: changes(headgate) > seen, 60, "Headgate to know the new master")
    with headgate.admin() as admin:
        assert admin("RESUME") == OK
    assert [client.read() for client in clients] == [[b"port", str(after.port).encode()]] * 6


def test_what_becomes_of_state(group, make_headgate, pool):
    """Who has something on the old connection that the new server would lack is closed, as Redis would have done."""
    headgate = make_headgate(group.url, pool=pool)
    await_server(headgate, group.master())
    subscriber, blocked, transaction, watcher, plain = [headgate.connect() for _ in range(5)]
    subscriber("SUBSCRIBE", "news")
    blocked.request("BLPOP", "nothing", 0)
    assert transaction("MULTI") == OK
    assert watcher("WATCH", "key") == OK
    assert plain("SET", "key", "y") == OK
    group.failover()
    group.await_agreement(replicas=1)
    for client in (subscriber, blocked, transaction, watcher):
        client.read_to_end()
    assert plain("SET", "key", "x") == OK
    with headgate.connect() as client:
        assert client("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]


def demote(master, group):
    """Behind the sentinels, which need a minute or more to put that right, or never do while all wait for each other."""
    other = next(server for server in group.servers if server is not master)
    with master.connect() as direct:
        assert direct("REPLICAOF", other.host, other.port) == OK


def promote(master, group):
    with master.connect() as direct:
        assert direct("REPLICAOF", "NO", "ONE") == OK
    group.await_agreement()


def test_readonly_is_noticed(group, make_headgate):
    """Long before the master is asked again at its time."""
    headgate = make_headgate(group.url, sentinel_check="1h", upstream_wait="60s")
    master = group.await_agreement()
    await_server(headgate, master)
    with headgate.connect() as client:
        assert client("SET", "k", 1) == OK
        demote(master, group)
        reply = client("SET", "k", 2)
        assert reply == OK or reply.startswith(b"READONLY")
        headgate.await_log("is no master any more by its own word")
    assert int(stats(headgate, "topology")["upstream_readonly_total"]) >= 1
    promote(master, group)


def test_starts_while_nothing_is_up(make_headgate):
    group = Group()
    try:
        for server in group.sentinels + group.servers:
            server.kill()
        headgate = make_headgate(group.url, upstream_wait="60s")
        with headgate.connect() as client:
            client.send(encode("SET", "k", "v"))
            headgate.await_log("does not answer")
            for server in group.servers:
                server.start()
            for sentinel in group.sentinels:
                sentinel.start()
            assert client.read() == OK
            assert client("GET", "k") == b"v"
    finally:
        group.discard()
