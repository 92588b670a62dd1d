"""[lease:NAME] with owner = process: which processes hold locks, told by real processes that are killed, fork, run as
other users, and take their locks on connections that they close. Clients that are Headgates live on when theirs have gone."""

import os
import re
import signal
import tempfile

import pytest

from harness.leases import (
    COMPARE_AND_DELETE, COMPARE_AND_PEXPIRE, LEASE_MS, assert_kept, await_gone, await_keys, await_lease, await_left, counter,
    counters, lease_of, losses, remaining, rule, take,
)
from harness.resp import wait_for
from harness.rules import reload
from harness.servers import Headgate

NOBODY = 65534


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
def test_a_child_that_ends_takes_nothing_from_its_parent(make_shared, redis, threads, start_program, farewell):
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


def test_a_process_that_connects_anew_within_grace(served, redis, start_program):
    headgate, address = served(rule(grace="20s"))
    program, other = start_program(address), start_program(address)
    assert other.send("a", "PING") == "+PONG\r\n"
    take_lock(program, "lock:a")
    await_owner(headgate, "lock:a", program)
    program.close("a")
    await_lease(headgate, "lock:a", "ownerless")
    assert other.send("b", "PING") == "+PONG\r\n"
    assert program.send("b", "PING") == "+PONG\r\n"
    await_lease(headgate, "lock:a", "held")
    assert_kept(redis, ["lock:a"], 8)
    program.kill()
    await_left(redis, "lock:a")


# ---- processes that cannot be told ----


@pytest.mark.root
def test_processes_of_others_fall_back_to_the_connection(make_without_rights, redis, start_program):
    """It is said once, with what to do; whose process can be told is a process still."""
    headgate = make_without_rights(rule())
    strangers = [start_program(headgate.address, user=NOBODY) for _ in range(2)]
    own = start_program(headgate.address, rights=False)
    for number, stranger in enumerate(strangers):
        take_lock(stranger, f"lock:{number}")
    take_lock(own, "lock:own")
    await_owner(headgate, "lock:own", own)
    assert strangers[0].send("idle", "PING") == "+PONG\r\n"
    assert_kept(redis, ["lock:0", "lock:1", "lock:own"])
    wait_for(lambda: "another user's" in headgate.log(), what="the log to say why")
    assert lease_of(headgate, "lock:0")["owner"].startswith("127.0.0.1/default/#")
    strangers[0].close("a")
    await_left(redis, "lock:0")
    assert headgate.log().count("cannot be told") == 1
    assert "docs/leases.md" in headgate.log()
    strangers[1].kill()
    await_left(redis, "lock:1")
    assert_kept(redis, ["lock:own"])
    own.kill()
    await_left(redis, "lock:own")


@pytest.mark.root
def test_unix_sockets_tell_processes_of_others(make_without_rights, redis, start_program, short_path):
    headgate = make_without_rights(rule(), listen=f"unix:{short_path}")
    wait_for(lambda: os.path.exists(short_path), what="the socket")
    stranger, sibling = (start_program(short_path, user=NOBODY) for _ in range(2))
    assert stranger.send("idle", "PING") == sibling.send("idle", "PING") == "+PONG\r\n"
    take_lock(stranger, "lock:a")
    await_owner(headgate, "lock:a", stranger)
    stranger.close("a")
    assert_kept(redis, ["lock:a"])
    stranger.kill()
    await_left(redis, "lock:a")
    assert "cannot be told" not in headgate.log()


@pytest.fixture
def short_path():
    """Of a Unix socket in a directory that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as directory:
        os.chmod(directory, 0o755)
        yield f"{directory}/h.sock"


# ---- other owners, and other configurations ----


@pytest.mark.threads
def test_a_reload_changes_whose_connections_count(make_shared, redis, start_program):
    """What is held is counted by the new owner, as long as the connection that took it is there."""
    headgate = make_shared(rule(owner="connection"), threads=4)
    programs = [start_program(headgate.address) for _ in range(3)]
    for number, program in enumerate(programs):
        assert program.send("idle", "PING") == "+PONG\r\n"
        take_lock(program, f"lock:{number}")
    keys = [f"lock:{number}" for number in range(3)]
    assert all(lease_of(headgate, key)["owner"].startswith("127.0.0.1/default/#") for key in keys)
    with headgate.connect() as client:
        reload(headgate, rule(owner="process"), client)
    for key, program in zip(keys, programs):
        await_owner(headgate, key, program)
        program.close("a")
    assert_kept(redis, keys)
    with headgate.connect() as client:
        reload(headgate, rule(owner="connection"), client)
    assert programs[0].send("new", "SET", "lock:new", "t", "NX", "PX", LEASE_MS) == "+OK\r\n"
    wait_for(lambda: "#" in lease_of(headgate, "lock:new")["owner"], what="the connection to be the owner")
    programs[0].close("new")
    await_left(redis, "lock:new")
    programs[0].kill()
    await_left(redis, "lock:0")
    assert remaining(redis, "lock:1")["lock:1"] > 0
    for program in programs[1:]:
        program.kill()
    await_left(redis, *keys)
    assert not losses(headgate)


# ---- Headgates that are clients of others ----


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
