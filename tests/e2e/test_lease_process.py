"""[lease:NAME] with owner = process: which processes hold locks, told by real processes that are killed, fork, run as
other users, and take their locks on connections that they close. Clients that are Headgates live on when theirs have gone."""

import os
import re
import signal

import pytest

from harness.leases import (
    COMPARE_AND_DELETE, COMPARE_AND_PEXPIRE, LEASE_MS, assert_kept, await_gone, await_keys, await_left, counter, counters,
    lease_of, losses, rule, take,
)
from harness.resp import wait_for
from harness.servers import Headgate

def take_lock(program, key, connection="a", ms=LEASE_MS):
    assert program.send(connection, "SET", key, "t", "NX", "PX", ms) == "+OK\r\n"


def await_owner(headgate, key, program):
    """On a busy machine it may take a moment until the process is found."""
    wait_for(lambda: lease_of(headgate, key)["owner"] == f"process:{program.pid}", what=f"the owner of {key}")


# ---- processes that die ----


@pytest.mark.threads
def test_a_killed_process_is_not_hidden_by_a_sibling(served, redis, start_program):
    """Same address, same user, no name: the locks of the one that was killed end, those of the other do not."""
    headgate, address = served(rule(), threads=4)
    dying, sibling, idle = (start_program(address) for _ in range(3))
    assert idle.send("a", "PING") == "+PONG\r\n"
    for number in range(4):
        take_lock(sibling, f"lock:sibling:{number}", f"s{number}")
        take_lock(dying, f"lock:dying:{number}", f"d{number}")
    for number in range(4):
        await_owner(headgate, f"lock:dying:{number}", dying)
    kept, lost = ([f"lock:{name}:{number}" for number in range(4)] for name in ("sibling", "dying"))
    assert_kept(redis, [*kept, *lost])
    dying.kill()
    await_left(redis, *lost)
    await_keys(headgate, kept)
    assert_kept(redis, kept)
    assert counter(headgate, "owner_gone_total") == 4 and not losses(headgate)


def test_a_child_goes_on_with_the_connection_of_its_parent(served, redis, start_program):
    """The connection stays open when its process is killed, as a child of it that was forked still has it: so it is the
    child's from then on, over a Unix socket, too, where it cannot be told whose it is."""
    headgate, address = served(rule())
    program = start_program(address)
    take_lock(program, "lock:a")
    await_owner(headgate, "lock:a", program)
    child = program.fork()
    assert_kept(redis, ["lock:a"])
    program.kill()
    shown = f"process:{child}" if isinstance(address, tuple) else "unix/default/#"
    wait_for(lambda: lease_of(headgate, "lock:a")["owner"].startswith(shown), what="the child to be the owner")
    assert_kept(redis, ["lock:a"], 8)
    os.kill(child, signal.SIGKILL)
    program.children.remove(child)
    await_left(redis, "lock:a")
    await_keys(headgate, [])
    assert counter(headgate, "owner_gone_total") == 1 and not losses(headgate)


@pytest.mark.threads
@pytest.mark.parametrize("farewell", ["expire", "release"])
def test_a_child_that_ends_takes_nothing_from_its_parent(make_shared, redis, start_program, farewell):
    """A child is known, as it took a lock on a connection of its own. So its parent's socket, which it has inherited,
    is found there first; whose lock it is shows when the child ends."""
    headgate = make_shared(rule(on_owner_gone=farewell, grace="1s"), threads=4)
    program = start_program(headgate.address)
    assert program.send("early", "PING") == "+PONG\r\n"
    child, reply = program.fork_to_send("SET", "lock:child", "t", "NX", "PX", LEASE_MS)
    assert reply == "+OK\r\n"
    wait_for(lambda: lease_of(headgate, "lock:child")["owner"] == f"process:{child}", what="the child to be known")
    take_lock(program, "lock:parent", "early")
    wait_for(lambda: lease_of(headgate, "lock:parent")["owner"].startswith("process:"), what="an owner to be found")
    program.kill_child(child)
    (await_gone if farewell == "release" else await_left)(redis, "lock:child")
    await_owner(headgate, "lock:parent", program)
    assert_kept(redis, ["lock:parent"], 10)
    assert program.send("early", "DEL", "lock:parent") == ":1\r\n"
    take_lock(program, "lock:again", "early")
    await_owner(headgate, "lock:again", program)
    assert counters(headgate)["owner_gone_total"] == 1 and not losses(headgate)
    # Of the connection, if the end of the process was seen before that of its connection.
    assert re.search(r" info .*owner gone.*lock:child of (process:|127\.0\.0\.1/)", headgate.log())
    program.kill()
    await_left(redis, "lock:again")
    await_keys(headgate, [])


# ---- pools ----


@pytest.mark.threads
def test_a_pool_that_closes_the_connection_that_took_it(served, redis, start_program):
    """Whichever connection of the process is left: on another worker, never used, or made before the lock was taken."""
    headgate, address = served(rule(), threads=4)
    program, other = start_program(address), start_program(address)
    for number in range(6):
        assert program.send(f"idle{number}", "PING") == "+PONG\r\n"
        assert other.send(f"idle{number}", "PING") == "+PONG\r\n"
    for number in range(6):
        take_lock(program, f"lock:{number}", "taker")
        await_owner(headgate, f"lock:{number}", program)
        program.close("taker")
    keys = [f"lock:{number}" for number in range(6)]
    assert_kept(redis, keys)
    for number in range(5):
        program.close(f"idle{number}")
    assert_kept(redis, keys)
    assert program.send("idle5", "EVAL", COMPARE_AND_DELETE, 1, "lock:0", "t") == ":1\r\n"
    program.close("idle5")
    await_left(redis, *keys)
    await_keys(headgate, [])
    assert counters(headgate)["released_total"] == 1
    assert counter(headgate, "owner_gone_total") == 5 and not losses(headgate)


# ---- Headgates that are clients of others ----


WARNING = "a lock was taken by way of another Headgate"


@pytest.fixture
def sidecar_of():
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
