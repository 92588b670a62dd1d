"""New processes that crash when they serve already: the one before, which is there yet, serves again."""

import os
import shlex
import signal
import socket
import threading

import pytest

from harness.http import ask
from harness.manager import Manager
from harness.resp import OK, PONG, Client, wait_for
from harness.servers import BINARY, free_port
from harness.visitors import Stayers


def crash(line):
    """The process that serves; the one before it serves then."""
    pid = line.pids[-1]
    assert line.pid() == pid
    os.kill(pid, signal.SIGKILL)
    line.await_end(pid)
    line.pids.remove(pid)
    wait_for(lambda: line.pid() == line.pids[-1], 30, "the one before to serve")
    line.headgate.await_log(f"the process that had taken over, {pid}, has crashed: this one serves again")


def test_nobody_is_refused_under_load(make_line, pool):
    """Who is with the process that crashes loses the connection; who connects is never refused."""
    line = make_line(pool=pool, threads=2)
    stayers = Stayers(line.headgate.connect)
    stayers.await_more()
    for _ in range(3):
        line.upgrade()
        refused = connect_until(line, lambda: crash(line))
        assert refused == []
        stayers.await_more()
    stayers.end()
    assert stayers.faults == []
    stayers.leave()
    assert line.headgate.serves() and line.pid() == line.pids[0]


def connect_until(line, act):
    """Connects again and again while act() runs: the errors of those who were not let in."""
    refused, is_over = [], threading.Event()

    def connect():
        while not is_over.is_set():
            try:
                socket.create_connection(line.headgate.address, timeout=60).close()
            except OSError as error:
                refused.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        act()
    finally:
        is_over.set()
        thread.join()
    return refused


def test_all_kinds_of_addresses_come_back(make_line, tmp_path):
    web = free_port()
    line = make_line(listen=f"unix:{tmp_path}/clients.sock", admin=f"unix:{tmp_path}/admin.sock", http=f"127.0.0.1:{web}")
    inodes = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG
    for _ in range(2):
        line.upgrade()
        crash(line)
        assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == inodes
        with Client(tmp_path / "clients.sock") as client:
            assert client("PING") == PONG
        with Client(tmp_path / "admin.sock") as client:
            assert client("PING") == PONG
        line.headgate.http_port = web
        for _ in range(3):
            assert ask(line.headgate, "/ready").status == 200
        assert line.headgate.serves()
    line.finish()
    assert list(tmp_path.iterdir()) == []


def test_addresses_that_the_new_one_gave_up_stay_closed(make_line, tmp_path):
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    line = make_line(listen=f"unix:{first}", drain_timeout="20s")
    headgate = line.headgate
    stayer = headgate.connect()
    stayer("HELLO", 3)
    assert stayer("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "none") == OK
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{second}")
    line.upgrade()
    crash(line)
    assert not first.exists() and headgate.serves()
    # What is left of the second one is a file that nobody listens on: the next one replaces it.
    line.upgrade()
    with Client(second) as client:
        assert client("PING") == PONG


def test_the_one_before_crashes_while_a_third_one_starts(make_line):
    """The first one serves again, and the third one does not."""
    line = make_line(upgrade_start_timeout="60s")
    first = line.headgate.connect()
    line.upgrade()
    go = line.headgate.directory / "go"
    line.install_script(f'while ! test -e {go}; do sleep 0.1; done; exec {shlex.quote(BINARY)} "$@"')
    order = line.order_later()
    third = wait_for(line.children, 30, "the third one")[0]
    with line.headgate.admin() as admin:
        # It has said all that it says beforehand: that is done in one turn of its loop.
        assert admin("PING") == PONG
    crash(line)
    order.communicate(timeout=60)
    go.touch()
    line.await_end(third)
    line.headgate.await_log("has crashed, and the one before it serves again")
    assert line.headgate.serves() and first("PING") == PONG
    line.install(BINARY)
    line.upgrade()
    assert line.headgate.serves()


def test_the_service_manager_is_told_which_process_it_is(make_line, tmp_path):
    """… and hears of that one that it is alive."""
    manager = Manager(tmp_path)
    line = make_line(environment=manager.environment(WATCHDOG_USEC="2000000"))
    stayer = line.headgate.connect()
    assert stayer("PING") == PONG

    def heard_of(pid):
        """What was heard since that process is the main one."""
        messages = manager.take()
        places = [place for place, message in enumerate(messages) if "MAINPID" in message]
        is_main = bool(places) and messages[places[-1]]["MAINPID"] == str(pid)
        return {name for message in messages[places[-1] :] for name in message} if is_main else set()

    for _ in range(2):
        line.upgrade()
        wait_for(lambda: {"READY", "WATCHDOG"} <= heard_of(line.pids[-1]), 30, "the new process to be the main one")
        crash(line)
        wait_for(lambda: {"READY", "WATCHDOG"} <= heard_of(line.pids[0]), 30, "the old one to be the main one")
    manager.socket.close()


@pytest.mark.parametrize("how", ["SIGTERM", "NOW"])
def test_one_that_is_told_to_end_does_not_come_back(make_line, how):
    line = make_line()
    first = line.headgate.connect()
    assert first("PING") == PONG
    line.upgrade()
    if how == "SIGTERM":
        os.kill(line.pids[1], signal.SIGTERM)
    else:
        with line.headgate.admin() as admin:
            assert admin("SHUTDOWN", "NOW") == OK
    line.await_end(line.pids[1])
    line.await_end(line.pids[0])
    first.assert_closed()
    assert "serves again" not in line.headgate.log()


def test_one_that_is_out_of_service_has_nobody_behind_it(make_line):
    """DRAIN: who connects is refused, and does not wait at a socket that nobody reads."""
    line = make_line()
    first = line.headgate.connect()
    assert first("PING") == PONG
    line.upgrade()
    with line.headgate.admin() as admin:
        admin("DRAIN")
        wait_for(lambda: is_refused(line.headgate.address), 30, "clients to be refused")
    os.kill(line.pids[1], signal.SIGKILL)
    line.headgate.await_log("the process that had taken over has ended; this one goes on with its clients")
    assert is_refused(line.headgate.address) and first("PING") == PONG


def is_refused(address):
    try:
        socket.create_connection(address, timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False
