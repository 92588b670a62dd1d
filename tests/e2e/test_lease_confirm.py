"""confirm = n of a lease rule: an owner hears that it has a lock when n replicas have it; else it hears the opposite."""

import contextlib
import signal
import threading

import pytest

from harness.cluster import Cluster, key_in
from harness.fake_sentinel import FakeSentinel, url_of
from harness.leases import (
    LEASE_MS,
    assert_kept,
    await_keys,
    await_lease,
    counter,
    keys_of,
    leases,
    losses,
    rule,
)
from harness.admin import await_empty, await_outage, stats
from harness.resp import NULL, OK, PONG, QUEUED, Closed, Error, encode, same, wait_for
from harness.rules import check_file, launch

LONG_MS = 60_000
WAIT = "30s"  # far more than replicas take; what is to fail waits for SHORT
SHORT = "300ms"

def follow(replica, master):
    with replica.connect() as direct:
        is_tls = direct("CONFIG", "GET", "tls-replication")[1] == b"yes"
        assert direct("REPLICAOF", master.host, master.tls_port if is_tls else master.port) == OK
        wait_for(lambda: b"master_link_status:up" in direct("INFO", "replication"), 30, "the replica's link")


@pytest.fixture
def servers(make_redis):
    """A master and two replicas, which do not hear of it when one of them hangs."""
    master, *replicas = (make_redis("--repl-timeout", "3600") for _ in range(3))
    for replica in replicas:
        follow(replica, master)
    with master.connect() as direct:
        wait_for(lambda: b"connected_slaves:2" in direct("INFO", "replication"), 30, "two replicas")
        # They count when they have said where they are.
        wait_for(lambda: direct("SET", "warm", 1) == OK and direct("WAIT", 2, 1000) == 2, 30, "replicas that answer")
    return master, *replicas


@contextlib.contextmanager
def hanging(*servers):
    for server in servers:
        server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.signal(signal.SIGCONT)


def confirming(count=1, wait=WAIT, **options):
    return rule("a", kind="string", confirm=count, confirm_wait=wait, owner="connection", **options)


# ---- taken, and not ----


@pytest.mark.parametrize("threads", (1, 4))
def test_a_lock_that_replicas_have_is_taken(servers, make_headgate, pool, threads):
    headgate = launch(make_headgate, servers[0], pool, confirming(2), threads=threads)
    client = headgate.connect()
    for number in range(20):
        assert client("SET", f"lock:{number}", "t", "NX", "PX", LONG_MS) == OK
        for replica in servers[1:]:
            with replica.connect() as direct:
                assert direct("GET", f"lock:{number}") == b"t", "the reply came before the replica had it"
    assert client("SET", "lock:0", "other", "NX", "PX", LONG_MS) is None
    assert counter(headgate, "confirmed_total") == 20 and counter(headgate, "unconfirmed_total") == 0
    assert len(leases(headgate)) == 20 and {lease["state"] for lease in leases(headgate)} == {"held"}


def test_a_lock_that_they_have_not_is_given_back(servers, make_headgate, pool):
    headgate = launch(make_headgate, servers[0], pool, confirming(2, SHORT))
    client = headgate.connect()
    with servers[0].connect() as direct:
        with hanging(servers[1]):
            assert client("SET", "lock:a", "t", "NX", "PX", LONG_MS) is None
            assert direct("EXISTS", "lock:a") == 0
            assert client("SETNX", "lock:b", "t") == 0
            assert direct("EXISTS", "lock:b") == 0
        assert keys_of(headgate) == set()
        assert counter(headgate, "unconfirmed_total") == 2
        assert "not confirmed by 2 replicas, and given back: lock:" in headgate.log()
        wait_for(lambda: client("SET", "lock:a", "t", "NX", "PX", LONG_MS) == OK, 30, "the replica to be back")
        await_keys(headgate, ["lock:a"])
    assert losses(headgate) == {}


def test_one_of_two_replicas_is_enough_where_one_is_asked_for(servers, make_headgate):
    headgate = launch(make_headgate, servers[0], "shared", confirming(1))
    client = headgate.connect()
    with hanging(servers[1]):
        assert client("SET", "lock:a", "t", "NX", "PX", LONG_MS) == OK
    assert counter(headgate, "confirmed_total") == 1


def test_there_are_no_replicas(redis, make_headgate):
    headgate = launch(make_headgate, redis, "shared", confirming(1, SHORT))
    client = headgate.connect()
    assert client("SET", "lock:a", "t", "NX", "PX", LONG_MS) is None
    assert client("EXISTS", "lock:a") == 0
    assert client("SET", "other", "t", "NX") == OK, "no rule names it"


@pytest.mark.parametrize("resp", (2, 3))
def test_what_each_way_of_taking_is_told(redis, make_headgate, resp):
    """As if another had it; nil as the client's protocol says it."""
    headgate = launch(make_headgate, redis, "shared", confirming(1, "1ms"))
    client = headgate.connect()
    client("HELLO", resp)
    nil = NULL if resp == 3 else None
    for command, told in (
        (("SET", "lock:a", "t", "NX", "PX", LONG_MS), nil),
        (("SET", "lock:a", "t", "EX", "60", "NX"), nil),
        (("SETNX", "lock:a", "t"), 0),
    ):
        assert same(client(*command), told), command
        assert client("EXISTS", "lock:a") == 0


def test_it_is_told_in_its_turn(servers, make_headgate, pool):
    """Replies behind it wait for it, and are those of the requests."""
    headgate = launch(make_headgate, servers[0], pool, confirming(2, SHORT))
    client = headgate.connect()
    with hanging(servers[2]):
        replies = client.pipeline(
            [("INCR", "n"), ("SET", "lock:a", "t", "NX", "PX", LONG_MS), ("INCR", "n"), ("GET", "n"), ("ECHO", "x"),
             ("SETNX", "lock:b", "t"), ("INCR", "n"), ("PING",)]
        )  # fmt: skip
    assert replies == [1, None, 2, b"2", b"x", 0, 3, PONG]
    assert client("EXISTS", "lock:a", "lock:b") == 0


@pytest.mark.parametrize("resp", (2, 3))
def test_messages_wait_for_it(servers, make_headgate, pool, resp):
    """What Redis sends unasked does not come in the place of a reply that is withheld."""
    headgate = launch(make_headgate, servers[0], pool, confirming(2, "3s"))
    subscriber, monitor, other = headgate.connect(), headgate.connect(), headgate.connect()
    for client in (subscriber, monitor):
        client("HELLO", resp)
        client.socket.settimeout(60)
    with hanging(servers[2]):
        subscriber.send(encode("SET", "lock:a", "t", "NX", "PX", LONG_MS) + encode("SUBSCRIBE", "news"))
        monitor.send(encode("SET", "lock:b", "t", "NX", "PX", LONG_MS) + encode("MONITOR"))
        wait_for(lambda: other("EXISTS", "lock:a", "lock:b") == 2, 30, "both to be taken")
        for _ in range(10):
            other("PUBLISH", "news", "early")
        assert [client.read() in (None, NULL) for client in (subscriber, monitor)] == [True, True]
    assert subscriber.read()[:2] == [b"subscribe", b"news"]
    assert other("PUBLISH", "news", "late") == 1
    assert list(subscriber.read()) == [b"message", b"news", b"late"]
    assert monitor.read() == OK
    assert other("PING") == PONG


def test_what_is_kept_behind_it_is_bounded(servers, make_headgate, pool):
    headgate = launch(make_headgate, servers[0], pool, confirming(2, WAIT), client_output_limit="2mb")
    other, client = headgate.connect(), headgate.connect()
    assert other("SET", "large", "x" * 100_000) == OK
    client.socket.settimeout(60)
    with hanging(servers[2]):
        client.send(encode("SET", "lock:a", "t", "NX", "PX", LONG_MS) + encode("GET", "large") * 500)
        with pytest.raises((Closed, OSError)):
            client.read()
    assert stats(headgate)["clients_closed_output_total"] == "1"
    assert other("PING") == PONG


def test_clients_that_do_not_lock_are_not_held_up(servers, make_headgate):
    headgate = launch(make_headgate, servers[0], "shared", confirming(2, WAIT))
    client, other = headgate.connect(), headgate.connect()
    with hanging(servers[1]):
        client.request("SET", "lock:a", "t", "NX", "PX", LONG_MS)
        with servers[0].connect() as direct:
            wait_for(lambda: direct("EXISTS", "lock:a") == 1, 30, "the lock to be there")
        for _ in range(100):
            assert other("PING", "x") == b"x"
        assert keys_of(headgate) == set(), "its owner has not heard of it yet"
    assert client.read() == OK
    await_keys(headgate, ["lock:a"])


def test_many_at_once_wait_their_turn(servers, make_headgate):
    """More than there are connections for."""
    headgate = launch(make_headgate, servers[0], "shared", confirming(2))
    client = headgate.connect()
    keys = [f"lock:{number}" for number in range(300)]
    replies = client.pipeline([("SET", key, "t", "NX", "PX", LONG_MS) for key in keys])
    assert replies == [OK] * 300
    await_keys(headgate, keys)
    assert counter(headgate, "confirmed_total") == 300


def test_a_lock_without_a_lease_is_healed_after_it(servers, make_headgate):
    headgate = launch(make_headgate, servers[0], "shared", confirming(2, ttl=f"{LEASE_MS}ms"))
    client = headgate.connect()
    assert client("SETNX", "lock:a", "t") == 1
    await_lease(headgate, "lock:a")
    assert_kept(servers[0], ["lock:a"])


# ---- who goes, and what goes ----


@pytest.mark.parametrize("how", ("close", "reset"))
def test_a_client_that_goes_meanwhile(servers, make_headgate, pool, how):
    """Nobody watches a lock whose owner was not told of it."""
    headgate = launch(make_headgate, servers[0], pool, confirming(2, "2s"))
    with servers[0].connect() as direct:
        with hanging(servers[1]):
            client = headgate.connect()
            client.request("SET", "lock:a", "t", "NX", "PX", LONG_MS)
            wait_for(lambda: direct("EXISTS", "lock:a") == 1, 30, "the lock to be there")
            getattr(client, how)()
            await_empty(headgate)
            assert keys_of(headgate) == set()
        other = headgate.connect()
        wait_for(lambda: other("SET", "lock:b", "t", "NX", "PX", LONG_MS) == OK, 30, "a lock of another")
        assert keys_of(headgate) == {"lock:b"}


def test_its_owner_releases_it_meanwhile(servers, make_headgate):
    """In one pipeline: what is gone is not said to be held."""
    headgate = launch(make_headgate, servers[0], "shared", confirming(2, WAIT))
    client = headgate.connect()
    taken, released = client.pipeline([("SET", "lock:a", "t", "NX", "PX", LONG_MS), ("DEL", "lock:a")])
    assert taken in (OK, None) and released == 1
    await_keys(headgate, [])


def test_the_master_dies_meanwhile(servers, make_headgate):
    headgate = launch(make_headgate, servers[0], "shared", confirming(2, "2s"))
    client = headgate.connect()
    with hanging(servers[1]):
        client.request("SET", "lock:a", "t", "NX", "PX", LONG_MS)
        with servers[0].connect() as direct:
            wait_for(lambda: direct("EXISTS", "lock:a") == 1, 30, "the lock to be there")
        servers[0].kill()
        assert client.read() is None
    assert counter(headgate, "unconfirmed_total") == 1 and keys_of(headgate) == set()


def test_a_reload_and_the_end_of_the_process(servers, make_headgate):
    headgate = launch(make_headgate, servers[0], "shared", confirming(2, "2s"))
    clients = [headgate.connect() for _ in range(8)]
    with hanging(servers[1]):
        for number, client in enumerate(clients):
            client.request("SET", f"lock:{number}", "t", "NX", "PX", LONG_MS)
        with servers[0].connect() as direct:
            wait_for(lambda: direct("DBSIZE") >= 8, 30, "the locks to be there")
        headgate.write_rules("")
        with headgate.admin() as admin:
            assert admin("RELOAD") == OK
        assert [client.read() for client in clients] == [None] * 8
        for number, client in enumerate(clients):
            client.request("SET", f"lock:{number}", "t", "NX", "PX", LONG_MS)
        assert [client.read() for client in clients] == [OK] * 8, "there is no rule any more"


# ---- where it cannot be said ----


def test_what_cannot_be_told_otherwise_is_refused(redis, make_headgate, pool):
    headgate = launch(make_headgate, redis, pool, confirming(1, SHORT))
    client = headgate.connect()
    reply = client("SET", "lock:a", "t", "NX", "PX", LONG_MS, "GET")
    assert isinstance(reply, Error) and b"[lease:a] has its locks confirmed" in reply
    assert client("MULTI") == OK
    assert client("INCR", "n") == QUEUED
    reply = client("SET", "lock:a", "t", "NX", "PX", LONG_MS)
    assert isinstance(reply, Error) and b"confirmed" in reply
    assert client("EXEC").startswith(b"EXECABORT")
    assert client("EXISTS", "lock:a", "n") == 0
    # Nobody is told anything here, so nobody is told that it has the lock.
    assert client("SET", "lock:b", "t", "XX", "PX", LONG_MS) is None


@pytest.mark.parametrize("kind", ("auto", "hash", "semaphore"))
def test_a_rule_that_cannot_be_kept_is_refused(tmp_path, kind):
    checked = check_file(tmp_path, ["keys = lock:*", f"kind = {kind}", "confirm = 1"], "lease:a")
    assert checked.returncode == 1 and "confirm" in checked.stderr and "kind = string" in checked.stderr


# ---- several servers ----


def test_behind_sentinels_and_after_a_failover(servers, make_headgate):
    """A lock that was confirmed is there at the replica that takes over."""
    master, first, second = servers
    sentinels = [FakeSentinel(master) for _ in range(3)]
    try:
        headgate = launch(make_headgate, url_of(sentinels), "shared", confirming(2))
        client = headgate.connect()
        assert client("SET", "lock:a", "t", "NX", "PX", LONG_MS) == OK
        with first.connect() as direct:
            assert direct("REPLICAOF", "NO", "ONE") == OK
        follow(second, first)
        master.kill()
        await_outage(headgate)
        for sentinel in sentinels:
            sentinel.switches_to(first)
        other = headgate.connect()
        wait_for(lambda: other("SET", "lock:a", "other", "NX", "PX", LONG_MS) is None, 30, "the new master's answer")
        headgate.write_rules(confirming(1))
        with headgate.admin() as admin:
            assert admin("RELOAD") == OK
        wait_for(lambda: other("SET", "lock:b", "t", "NX", "PX", LONG_MS) == OK, 30, "a lock at the new master")
    finally:
        for sentinel in sentinels:
            sentinel.close()


def test_before_a_cluster(make_headgate):
    with Cluster(replicas=1) as cluster:
        headgate = launch(make_headgate, cluster.url(), "shared", confirming(1, "2s"))
        client = headgate.connect()
        keys = {master: key_in(cluster.slots_of(master), "lock:") for master in cluster.current_masters()}
        for key in keys.values():
            assert client("SET", key, "t", "NX", "PX", LONG_MS) == OK
        await_keys(headgate, keys.values())
        assert client("DEL", next(iter(keys.values()))) == 1
        lost, key = next(iter(keys.items()))
        replica = cluster.replica_of(lost)
        replica.tell("CONFIG", "SET", "cluster-replica-no-failover", "yes")
        with hanging(replica):
            assert client("SET", key, "t", "NX", "PX", LONG_MS) is None
            other = next(master for master in keys if master is not lost)
            fresh = key_in(cluster.slots_of(other), "lock:more")
            assert client("SET", fresh, "t", "NX", "PX", LONG_MS) == OK, "another shard has its own replica"
        assert lost.ask("EXISTS", key) == 0


def test_in_a_slot_that_moves(make_headgate):
    """The question goes after the key: MOVED and ASK are followed."""
    with Cluster(replicas=1) as cluster:
        headgate = launch(make_headgate, cluster.url(), "shared", confirming(1))
        client = headgate.connect()
        source, target = cluster.masters[:2]
        slot = min(cluster.slots_of(source))
        key, next_key = key_in(slot, "lock:"), key_in(slot, "lock:next")
        assert client("SET", key, "t", "NX", "PX", LONG_MS) == OK
        cluster.begin_migration(slot, target)
        cluster.move_keys(slot, source, target)
        assert client("SET", next_key, "t", "NX", "PX", LONG_MS) == OK
        assert target.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 2
        cluster.end_migration(slot, target)
        assert client("DEL", key) == 1
        assert client("SET", key, "t", "NX", "PX", LONG_MS) == OK
        assert counter(headgate, "unconfirmed_total") == 0


def test_clients_that_lock_in_the_midst_of_it(servers, make_headgate):
    """Replicas that hang and come back while clients of two Headgates lock: nobody who was told so has not got it, and
    two never have it at once."""
    headgates = [launch(make_headgate, servers[0], "shared", confirming(2, "50ms"), threads=4) for _ in range(2)]
    failures, stop = [], threading.Event()
    told = [0]

    def lock(headgate, number):
        try:
            with headgate.connect() as client, servers[0].connect() as direct:
                while not stop.is_set():
                    token = f"{number}"
                    reply = client("SET", "lock:a", token, "NX", "PX", LONG_MS)
                    if reply == OK:
                        told[0] += 1
                        assert direct("GET", "lock:a") == token.encode()
                        assert client("DEL", "lock:a") == 1
                    else:
                        assert reply is None, reply
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=lock, args=(headgates[number % 2], number)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            before = told[0]
            with hanging(servers[1]):
                count = counter(headgates[0], "unconfirmed_total")
                wait_for(lambda c=count: counter(headgates[0], "unconfirmed_total") > c or failures, 60, "a refusal")
            wait_for(lambda b=before: told[0] > b + 2 or failures, 60, "locks that are taken")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert losses(headgates[0]) == losses(headgates[1]) == {}
