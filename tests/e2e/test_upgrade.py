"""A new process takes over from the one that serves: nobody is refused, nobody is closed."""

import os
import signal
import socket

import pytest

from harness.leases import COMPARE_AND_DELETE, counter, lease_of, losses, rule
from harness.resp import PONG, Client, Error, wait_for
from harness.servers import free_port
from harness.upgrade import Former, is_alive
from harness.visitors import Stayers, Visitors


# ---- who is there, and who comes ----


def test_nobody_is_refused_or_closed(make_line, pool):
    """Two upgrades in a row under load: those who stay are served by the first of three processes to the end."""
    line = make_line(pool=pool, threads=4)
    headgate = line.headgate
    blocked = headgate.connect()
    blocked.request("BLPOP", "upgrade:list", 0)
    subscriber = headgate.connect()
    assert subscriber("SUBSCRIBE", "upgrade:news")[0] == b"subscribe"
    stayers, visitors = Stayers(headgate.connect), Visitors(headgate.address)
    for _ in range(2):
        visitors.await_more()
        stayers.await_more()
        line.upgrade()
        visitors.await_more()
        stayers.await_more()
    assert all(is_alive(pid) for pid in line.pids)
    stayers.end()
    visitors.end()
    assert stayers.faults == [] and visitors.faults == []
    with headgate.connect() as fresh:
        assert fresh("PUBLISH", "upgrade:news", "later") == 1
        assert subscriber.read() == [b"message", b"upgrade:news", b"later"]
        assert fresh("RPUSH", "upgrade:list", "item") == 1
        assert blocked.read() == [b"upgrade:list", b"item"]
    # The old ones end when the last of theirs has left, and not before.
    stayers.leave()
    subscriber.close()
    assert blocked("PING") == PONG
    assert is_alive(line.pids[0])
    blocked.close()
    line.await_end(line.pids[0])
    line.await_end(line.pids[1])
    assert headgate.process.wait(60) == 0
    assert headgate.serves()


def test_all_kinds_of_addresses_are_taken_over(make_line, redis, tmp_path):
    cache, http_port = free_port(), free_port()
    listener = f"[listener:proxied]\nlisten = unix:{tmp_path}/proxied.sock\nproxy_protocol = required\nproxy_from = unix\n"
    for i in range(17):  # more than 256 sockets
        port = free_port()
        places = ", ".join(f"unix:{tmp_path}/{i}.{j}" if i == 0 else f"127.0.0.{j + 2}:{port}" for j in range(16))
        listener += f"[listener:{i}]\nlisten = {places}\n"
    listener += f"[server:cache]\nlisten = 127.0.0.1:{cache}\nupstream = {redis.url}\n"
    line = make_line(
        listener, listen=f"unix:{tmp_path}/clients.sock", admin=f"unix:{tmp_path}/admin.sock",
        http=f"127.0.0.1:{http_port}", unix_socket_mode="0600",
    )  # fmt: skip
    headgate = line.headgate
    inodes = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert len(inodes) == 3 + 16
    for _ in range(2):
        line.upgrade()
        line.await_end(line.pids[-2])
        assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == inodes
        with Client(tmp_path / "clients.sock") as client:
            assert client("PING") == PONG
        with Client(tmp_path / "proxied.sock") as client:
            client.send(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n")
            assert client("PING") == PONG
        with Client(tmp_path / "admin.sock") as client:
            assert client("PING") == PONG
        with socket.create_connection(("127.0.0.1", http_port), timeout=20) as web:
            web.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            assert b" 200 " in web.recv(4096)
        with Client(("127.0.0.1", cache)) as client:
            assert client("PING") == PONG
        assert headgate.serves()
    line.finish()
    assert list(tmp_path.iterdir()) == []


# ---- limits ----


def admitted(client, key, most=100):
    """How many are admitted until one is refused."""
    for count in range(most):
        reply = client("INCR", key)
        if isinstance(reply, Error):
            assert "RATELIMITED" in str(reply)
            return count
    return most


def test_a_limit_goes_on_in_who_takes_over(make_line, amount=100):
    """It begins with what the one before it has admitted; from then on each counts its own clients."""
    line = make_line(f"[limit:all]\nkeys = up:*\nper = key\nalgorithm = funnel\ncapacity = {amount}\nleak = 1/1h\n", threads=4)
    headgate = line.headgate
    part = amount // 5
    stayers = [headgate.connect() for _ in range(2)]
    assert [admitted(stayer, "up:a", part) for stayer in stayers] == [part, part]
    line.upgrade()
    with headgate.connect() as second:
        assert admitted(second, "up:a", part) == part
        line.upgrade()
        with headgate.connect() as third:
            assert admitted(third, "up:a", amount) == amount - 3 * part
        assert admitted(second, "up:a", amount) == amount - 3 * part
    assert admitted(stayers[0], "up:a", amount) == amount - 2 * part


# ---- leases ----


# Renewed after a third of it: a machine may stand still for seconds.
LEASE_MS = 9000


def await_renewals(redis, keys):
    """Until each of them has more left than before, which nobody but Headgate gives it."""
    direct = redis.connect()
    least = {key: LEASE_MS for key in keys}
    renewed = set()

    def are_renewed():
        for key in keys:
            left = direct("PTTL", key)
            assert left > 0, f"{key} is gone"
            renewed.update({key} if left > least[key] else ())
            least[key] = min(least[key], left)
        return renewed == set(keys)

    wait_for(are_renewed, 60, f"{keys} to be renewed")


def await_release(redis, key):
    wait_for(lambda: redis.connect()("EXISTS", key) == 0, 30, f"{key} to be gone")


@pytest.fixture
def held(make_line, start_program):
    """A line whose first process, which can be asked yet, has a lock of a program's connection "old"; then another
    process serves."""

    def make(**options):
        line = make_line(rule(**options), threads=2)
        program = start_program(line.headgate.address)
        assert program.send("old", "SET", "lock:a", "t", "NX", "PX", LEASE_MS) == "+OK\r\n"
        wait_for(lambda: (lease_of(line.headgate, "lock:a") or {}).get("owner") == f"process:{program.pid}", 30, "the owner")
        line.first = Former(line.headgate)
        line.upgrade()
        assert program.send("new", "PING") == "+PONG\r\n"
        return line, program

    return make


def assert_gone(process, redis, acquired):
    await_release(redis, "lock:a")
    wait_for(lambda: counter(process, "released_total") == 1, 30, "the release to be counted")
    assert counter(process, "acquired_total") == acquired and not losses(process)


def test_a_lock_goes_to_the_process_that_its_owner_is_left_with(held, redis):
    line, program = held()
    program.close("old")
    wait_for(lambda: lease_of(line.headgate, "lock:a"), 30, "the lease in the new process")
    assert lease_of(line.headgate, "lock:a")["owner"] == f"process:{program.pid}"
    await_renewals(redis, ["lock:a"])
    # The old one has no more clients, and its end changes nothing; nor does another upgrade.
    line.await_end(line.pids[0])
    second = Former(line.headgate)
    line.upgrade()
    await_renewals(redis, ["lock:a"])
    assert program.send("new", "EVAL", COMPARE_AND_DELETE, 1, "lock:a", "t") == ":1\r\n"
    assert_gone(second, redis, acquired=0)


def test_a_lock_of_who_has_gone_altogether(held, redis):
    line, program = held()
    program.close("old")
    wait_for(lambda: lease_of(line.headgate, "lock:a"), 30, "the lease in the new process")
    program.close("new")
    await_release(redis, "lock:a")
    assert not losses(line.headgate)


def test_a_lock_that_is_released_by_the_other_process_is_not_lost(held, redis):
    line, program = held()
    assert program.send("new", "EVAL", COMPARE_AND_DELETE, 1, "lock:a", "t") == ":1\r\n"
    wait_for(lambda: counter(line.first, "unseen_total") == 1, 30, "the end to be seen")
    assert not losses(line.first)


# ---- the end ----


def test_a_lock_is_given_when_the_old_one_is_ended(held, redis):
    line, program = held()
    os.kill(line.pids[0], signal.SIGTERM)
    line.await_end(line.pids[0])
    wait_for(lambda: lease_of(line.headgate, "lock:a"), 30, "the lease in the new process")
    await_renewals(redis, ["lock:a"])


def test_the_end_of_the_new_one_is_the_end_of_the_old_one(make_line):
    line = make_line()
    stayer = line.headgate.connect()
    line.upgrade()
    assert stayer("PING") == PONG
    os.kill(line.pids[1], signal.SIGTERM)
    stayer.assert_closed()
    line.await_end(line.pids[0])
    line.await_end(line.pids[1])


def test_who_ends_all_processes_at_once_cuts_off_nobody(make_line, redis):
    """A service manager and a terminal do. The signal may come to the old one behind the word of the new one: it is no
    second order."""
    line = make_line(drain_timeout="60s")
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG
    line.upgrade()
    redis.signal(signal.SIGSTOP)
    try:
        stayer.request("PING")
        os.kill(line.pids[1], signal.SIGTERM)
        wait_for(lambda: line.headgate.log().count("draining: no new clients") == 2, 30, "both to drain")
        os.kill(line.pids[0], signal.SIGTERM)
        line.headgate.await_log("told to end, too")
    finally:
        redis.signal(signal.SIGCONT)
    assert stayer.read() == PONG
    stayer.assert_closed()
    line.await_end(line.pids[0])
    assert line.headgate.wait(60) == 0


def test_clients_do_not_stay_for_ever(make_line):
    line = make_line(upgrade_clients_timeout="1s")
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG
    line.upgrade()
    stayer.assert_closed()
    line.headgate.await_log("upgrade_clients_timeout is over")
    line.await_end(line.pids[0])
    assert line.headgate.serves()


def test_what_the_new_one_is_told_the_old_one_hears(make_line, tmp_path):
    """A log that was rotated, and rules that have changed, are those of both."""
    log = tmp_path / "log"
    line = make_line(log_file=log)
    stayer = line.headgate.connect()
    line.upgrade()
    log.rename(tmp_path / "log.1")
    os.kill(line.pids[1], signal.SIGUSR1)
    wait_for(lambda: log.exists() and log.read_text().count("log_file was opened anew") == 2, 30, "both logs")
    assert stayer("PING") == PONG
    line.headgate.write_rules("[deny:some]\ncommands = PING\n")
    os.kill(line.pids[1], signal.SIGHUP)
    wait_for(lambda: "DENIED" in str(stayer("PING")), 30, "the old one to have the rule")
