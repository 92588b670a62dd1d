"""A new process takes over from the one that serves: nobody is refused, nobody is closed."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from harness.admin import stats
from harness.http import ask, samples
from harness.latency import ON, await_report, interfaces
from harness.leases import (
    COMPARE_AND_DELETE,
    await_keys,
    counter,
    lease_of,
    leases,
    losses,
    rule,
)
from harness.manager import keep_busy
from harness.resp import OK, PONG, Client, Error, wait_for
from harness.servers import child_environment, free_port
from harness.upgrade import Former, is_alive
from harness.visitors import Stayers, Visitors


# ---- who is there, and who comes ----


@pytest.mark.parametrize("threads", [1, 4])
def test_nobody_is_refused_or_closed(make_line, pool, threads):
    """Two upgrades in a row under load: those who stay are served by the first of three processes to the end."""
    line = make_line(pool=pool, threads=threads)
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


def test_all_kinds_of_addresses_are_taken_over(make_line, tmp_path):
    listener = f"[listener:proxied]\nlisten = unix:{tmp_path}/proxied.sock\nproxy_protocol = required\nproxy_from = unix\n"
    for i in range(17):
        places = ", ".join(f"unix:{tmp_path}/{i}.{j}" for j in range(16))
        listener += f"[listener:{i}]\nlisten = {places}\n"
    http_port = free_port()
    line = make_line(
        listener, listen=f"unix:{tmp_path}/clients.sock", admin=f"unix:{tmp_path}/admin.sock",
        http=f"127.0.0.1:{http_port}", unix_socket_mode="0600",
    )  # fmt: skip
    headgate = line.headgate
    inodes = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert len(inodes) == 3 + 17 * 16
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
        assert headgate.serves()
    line.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_unix_socket_that_was_renamed_into_place_is_known(make_line, tmp_path):
    """One that took over by --take-over has bound it under another name."""
    path = tmp_path / "clients.sock"
    line = make_line(listen=f"unix:{path}")
    other = run_take_over(line)
    line.upgrade()
    with Client(path) as client:
        assert client("PING") == PONG
    assert other.wait(60) == 0
    assert path.exists()


def run_take_over(line):
    """Another one takes over in the older way; the processes from then on are the line's."""
    with open(line.headgate.log_path, "ab") as log:
        other = subprocess.Popen(
            [str(line.program), "-c", str(line.headgate.config_path), "--take-over"],
            stdout=log, stderr=log, env=child_environment(),
        )  # fmt: skip
    wait_for(lambda: line.pid() == other.pid, 30, "the other one")
    line.headgate.terminate()
    line.pids = [other.pid]
    return other


def test_addresses_that_come_and_go(make_line, tmp_path):
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    line = make_line(listen=f"unix:{first}")
    headgate = line.headgate
    stayer = Client(first)
    assert stayer("PING") == PONG
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{second}")
    line.upgrade()
    assert not first.exists()
    with Client(second) as client:
        assert client("PING") == PONG
    assert stayer("PING") == PONG
    stayer.close()


def test_servers_keep_their_addresses(make_line, redis):
    cache = free_port()
    line = make_line(f"[server:cache]\nlisten = 127.0.0.1:{cache}\nupstream = {redis.url}\n")
    headgate = line.headgate
    line.upgrade()
    with Client(("127.0.0.1", cache)) as client:
        assert client("PING") == PONG
    with headgate.admin() as admin:
        figures = admin("SERVER", "cache", "STATS", "traffic").decode()
    assert "\nrequests_total:1\n" in figures.replace("\r", "")


def test_by_a_signal(make_line):
    line = make_line()
    stayer = line.headgate.connect()
    os.kill(line.pid(), signal.SIGUSR2)
    wait_for(lambda: line.pid() != line.pids[0], 30, "the new process")
    line.pids.append(line.pid())
    assert stayer("PING") == PONG and line.headgate.serves()


# ---- what goes on ----


def test_counters_begin_anew(make_line):
    """In STATS, LATENCY and metrics of the new process stands what it did itself, and how many are yet with those before."""
    web = free_port()
    line = make_line(ON, http=f"127.0.0.1:{web}")
    headgate = line.headgate
    stayer, first = headgate.connect(), Former(headgate)

    def measured():
        return int(interfaces(headgate, "LATENCY").get("incr", {"count": 0})["count"])

    for _ in range(2):
        for _ in range(50):
            stayer("INCR", "n")
        line.upgrade()
        wait_for(lambda: stats(headgate)["predecessor_clients"] == "1", 30, "the clients of those before")
        stayer("INCR", "n")
        with headgate.connect() as fresh:
            for _ in range(3):
                fresh("INCR", "n")
        wait_for(lambda: measured() == 3, 30, "what it was asked to be measured")
        figures = stats(headgate)
        assert (figures["requests_total"], figures["upgrades_total"]) == ("3", "1")
        shown = samples(ask(type("Web", (), {"http_port": web}), "/metrics").text)
        assert shown["headgate_requests_total"] == "3"
        assert shown['headgate_request_duration_seconds_count{operation="incr"}'] == "3"
    assert stats(first)["requests_total"] == "102"
    stayer.close()
    line.await_end(line.pids[0])
    line.await_end(line.pids[1])
    wait_for(lambda: stats(headgate)["predecessor_clients"] == "0", 30, "no clients of others")
    await_report(headgate, "incr", 108)  # in Redis each is on record, and once


# ---- limits ----


def admitted(client, key, most=100):
    """How many are admitted until one is refused."""
    for count in range(most):
        reply = client("INCR", key)
        if isinstance(reply, Error):
            assert "RATELIMITED" in str(reply)
            return count
    return most


@pytest.mark.parametrize("algorithm", ["sliding-window", "funnel"])
@pytest.mark.parametrize(("amount", "threads"), [(20, 1), (200, 4)])
def test_a_limit_goes_on_in_who_takes_over(make_line, algorithm, amount, threads):
    """It begins with what the one before it has admitted; from then on each counts its own clients."""
    rate = f"limit = {amount}\nwindow = 1h" if algorithm == "sliding-window" else f"capacity = {amount}\nleak = 1/1h"
    line = make_line(f"[limit:all]\nkeys = up:*\nper = key\nalgorithm = {algorithm}\n{rate}\n", threads=threads)
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


def test_connections_are_not_mixed_up(make_line):
    """The numbers of connections are those of a process: another one's says nothing."""
    line = make_line("[limit:all]\nkeys = up:*\nper = connection\nlimit = 10\nwindow = 1h\n")
    stayer = line.headgate.connect()
    assert admitted(stayer, "up:a") == 10
    line.upgrade()
    for _ in range(20):
        with line.headgate.connect() as fresh:
            assert admitted(fresh, "up:a") == 10


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


def test_a_lock_lives_across(held, redis):
    line, program = held()
    line.upgrade()
    await_renewals(redis, ["lock:a"])
    assert leases(line.headgate) == []
    assert program.send("old", "EVAL", COMPARE_AND_DELETE, 1, "lock:a", "t") == ":1\r\n"
    assert_gone(line.first, redis, acquired=1)


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


def test_a_lock_of_who_comes_back_within_grace(held, redis):
    line, program = held(grace="60s")
    program.close("new")
    program.close("old")
    wait_for(lambda: lease_of(line.headgate, "lock:a"), 30, "the lease in the new process")
    assert program.send("again", "GET", "lock:a") == "$1\r\nt\r\n"
    assert program.send("again", "SET", "lock:b", "t", "NX", "PX", LEASE_MS) == "+OK\r\n"
    await_renewals(redis, ["lock:a", "lock:b"])


def test_a_lock_that_is_released_by_the_other_process_is_not_lost(held, redis):
    line, program = held()
    assert program.send("new", "EVAL", COMPARE_AND_DELETE, 1, "lock:a", "t") == ":1\r\n"
    wait_for(lambda: counter(line.first, "unseen_total") == 1, 30, "the end to be seen")
    assert not losses(line.first)


def test_a_lock_is_given_when_the_old_one_is_ended(held, redis):
    line, program = held()
    os.kill(line.pids[0], signal.SIGTERM)
    line.await_end(line.pids[0])
    wait_for(lambda: lease_of(line.headgate, "lock:a"), 30, "the lease in the new process")
    await_renewals(redis, ["lock:a"])


def test_locks_of_clients_with_names(make_line, redis):
    line = make_line(rule(owner="client"))
    old = line.headgate.connect()
    assert old("CLIENT", "SETNAME", "worker-3") == OK
    keys = [f"lock:{number} \n%" for number in range(20)]
    for key in keys:
        assert old("SET", key, b"\0t ", "NX", "PX", LEASE_MS) == OK
    line.upgrade()
    fresh = line.headgate.connect()
    assert fresh("CLIENT", "SETNAME", "worker-3") == OK
    old.close()
    await_keys(line.headgate, keys)
    await_renewals(redis, keys)


# ---- the service manager ----


def test_the_service_manager_follows(make_line, tmp_path):
    """It hears from the old process which one the service is, and then from that one that it is ready, if it has no time either."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        line = make_line(environment={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"})

        def await_message(wanted):
            while not (message := manager.recv(4096).decode()).startswith(wanted):
                pass
            return message

        await_message("READY=1")
        for _ in range(2):
            keep_busy(manager.getsockname())
            line.upgrade()
            assert await_message("MAINPID=") == f"MAINPID={line.pids[-1]}"
            await_message("READY=1")
            await_message("WATCHDOG=1")


def test_who_keeps_a_connection_of_http_comes_to_the_new_one(make_line):
    """As Prometheus does: it would be told of the old one alone for as long as that has clients."""
    http_port = free_port()
    line = make_line(http=f"127.0.0.1:{http_port}")
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG
    kept = http.client.HTTPConnection("127.0.0.1", http_port, timeout=30)

    def ask():
        kept.request("GET", "/stats.json")
        response = kept.getresponse()
        return json.loads(response.read())["process_id"], response.will_close

    assert ask() == (line.pids[0], False)
    line.upgrade()
    assert ask() == (line.pids[0], True), "the answer to what was under way, as it were, is the last"
    assert ask() == (line.pids[1], False)
    assert is_alive(line.pids[0]) and stayer("PING") == PONG


def test_a_proxy_whose_header_is_on_its_way_has_as_long_as_ever(make_line):
    """It may have been lost, and come again: five seconds are for that, and not half of one, as at the end."""
    line = make_line(proxy_protocol="required", proxy_from="127.0.0.1")
    began = time.monotonic()
    with socket.create_connection(line.headgate.address, timeout=60) as late:
        line.upgrade()
        assert late.recv(1) == b""
    assert time.monotonic() - began > 4


# ---- the end ----


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


def test_the_old_one_outlives_a_new_one_that_crashes(make_line):
    line = make_line()
    stayer = line.headgate.connect()
    line.upgrade()
    os.kill(line.pids[1], signal.SIGKILL)
    line.headgate.await_log("has crashed: this one serves again")
    assert stayer("PING") == PONG


def test_clients_do_not_stay_for_ever(make_line):
    line = make_line(upgrade_clients_timeout="1s")
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG
    line.upgrade()
    stayer.assert_closed()
    line.headgate.await_log("upgrade_clients_timeout is over")
    line.await_end(line.pids[0])
    assert line.headgate.serves()


def ask_for_notifications(line):
    """A client of the old process that wants to be told when it is to go to another one."""
    client = line.headgate.connect()
    client("HELLO", 3)
    assert client("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "none") == OK
    line.upgrade()
    return client


def test_clients_are_told_to_go_to_the_new_one(make_line):
    client = ask_for_notifications(make_line(upgrade_clients_timeout="1s", drain_timeout="20s"))
    assert client.read()[0] == b"MOVING"


def test_clients_are_not_told_to_go_where_nobody_is(make_line):
    """The new process ends, and with it the old one."""
    line = make_line(drain_timeout="20s")
    client = ask_for_notifications(line)
    assert client("PING") == PONG
    os.kill(line.pids[1], signal.SIGTERM)
    client.assert_closed()


def test_clients_that_were_told_to_go_do_not_wait_for_who_has_gone(make_line):
    """A service manager ends both processes, the old one first: it has told its clients already, and gives them 10 s."""
    line = make_line(drain_timeout="20s")
    client = ask_for_notifications(line)
    assert client("PING") == PONG
    os.kill(line.pids[0], signal.SIGTERM)
    assert client.read()[0] == b"MOVING"
    start = time.monotonic()
    os.kill(line.pids[1], signal.SIGTERM)
    client.assert_closed()
    assert time.monotonic() - start < 8


def test_clients_are_not_told_to_go_to_a_process_that_has_crashed(make_line):
    line = make_line(drain_timeout="20s")
    client = ask_for_notifications(line)
    assert client("PING") == PONG
    os.kill(line.pids[1], signal.SIGKILL)
    line.headgate.await_log("has crashed: this one serves again")
    os.kill(line.pids[0], signal.SIGTERM)
    client.assert_closed()


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
