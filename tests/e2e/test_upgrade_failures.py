"""Upgrades that fail: the process that was there serves on as if nobody had asked."""

import os
import re
import signal
import socket
import subprocess

from harness.admin import stats
from harness.resp import OK, PONG, encode, wait_for
from harness.servers import BINARY, child_environment
from harness.upgrade import is_alive


def assert_goes_on(line, stayer):
    """The process that was there serves, and can be replaced by one that is sound."""
    pid = line.pid()
    assert pid == line.pids[-1]
    wait_for(lambda: line.children() == [], 30, "no child")
    assert stayer("PING") == PONG and line.headgate.serves()
    assert int(stats(line.headgate)["upgrade_failures_total"]) == 1
    line.install(BINARY)
    line.upgrade()
    assert stayer("PING") == PONG and line.headgate.serves()


def test_a_program_that_hangs(make_line):
    line = make_line(upgrade_start_timeout="1s")
    stayer = line.headgate.connect()
    line.install_script("exec sleep 1000")
    result = line.order()
    assert result.returncode == 1
    assert "did not come to serve within upgrade_start_timeout (1000ms)" in result.stderr
    line.headgate.write_config(upgrade_start_timeout="60s")
    line.headgate.signal(signal.SIGHUP)
    line.headgate.await_log("the configuration was reloaded")
    assert_goes_on(line, stayer)


LAST_MOMENT = """
import ctypes, os, signal, socket, sys, time
in_world = hasattr(ctypes.CDLL(None), "headgate_world")  # there it has stopped when kill() returns
line = socket.socket(fileno=3)
line.setblocking(True)
def read_until(word):
    count = 0
    while (message := line.recv(1 << 17).split(b"\\n")[0]) != word:
        assert message, "the old process has gone"
        count += message == b"PORT"
    return count
line.send(b"READY\\n" + b"1" * read_until(b"PORTS"))
read_until(b"STATE")
# What follows is in time, and read when the time is over.
os.kill(os.getppid(), signal.SIGSTOP)
while not in_world and "T (stopped)" not in open(f"/proc/{os.getppid()}/status").read():
    pass
for _ in range(5):
    line.send(b"FAULT\\nnot the last word")
line.send(b"SERVING\\n")
time.sleep(6)
os.kill(os.getppid(), signal.SIGCONT)
time.sleep(600)
"""


def test_a_program_that_serves_at_the_last_moment(make_line):
    """It is not ended although the time is over when its word is read: it may have clients."""
    line = make_line(upgrade_start_timeout="5s")
    script = line.headgate.directory / "program.py"
    script.write_text(LAST_MOMENT)
    line.install_script(f"exec python3 {script}")
    with line.headgate.admin() as admin:
        admin.request("UPGRADE")
        line.headgate.await_log("to take over from this one")
        child = int(re.findall(r"process (\d+) was started as", line.headgate.log())[-1])
        try:
            assert admin.read() == OK
            line.headgate.await_log(f"process {child} serves from now on")
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_with_a_fault(make_line):
    """headgate --upgrade reads it first; by a signal it is the new process that finds the fault."""
    line = make_line()
    stayer = line.headgate.connect()
    line.headgate.write_config(max_clients="many")
    result = line.order()
    assert result.returncode == 1 and "max_clients" in result.stderr
    line.headgate.signal(signal.SIGUSR2)
    line.headgate.await_log("the upgrade failed, and nothing was changed")
    assert "max_clients" in line.headgate.log().split("nothing was changed")[1]
    line.headgate.write_config(max_clients="1000")
    assert_goes_on(line, stayer)


def test_an_address_that_is_taken(make_line):
    line = make_line()
    headgate = line.headgate
    stayer = headgate.connect()
    with socket.create_server(("127.0.0.1", 0)) as other:
        before = headgate.options["listen"]
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        headgate.write_config(listen=f"{before}, {taken}")
        result = line.order()
        assert result.returncode == 1
        assert f"cannot listen on {taken}: Address already in use" in result.stderr
        headgate.write_config(listen=before)
    assert_goes_on(line, stayer)


def test_the_old_one_is_ended_with_another_order_behind(make_line):
    """The order under way is given up at the end; what stands behind it on its connection starts nothing."""
    line = make_line(upgrade_start_timeout="60s")
    line.install_script("exec sleep 1000")
    with line.headgate.admin() as admin, line.headgate.admin() as other:
        assert other("PING") == PONG
        admin.send(encode("UPGRADE") * 3)
        children = wait_for(line.children, 30, "the new process")
        assert other("SHUTDOWN", "NOW") == OK
        answers = admin.read_to_end()
    line.await_end(line.pids[-1])
    assert answers.count(b"-ERR nothing was changed: the process") == 3, answers
    assert not is_alive(children[0]) and line.headgate.log().count("was started as") == 1


def test_a_drain_ends_the_upgrade_that_is_under_way(make_line):
    """The sockets that the new process is to be given are closed by a drain, and the file of a Unix socket is removed."""
    line = make_line(upgrade_start_timeout="60s", drain_timeout="20s")
    line.install_script("exec sleep 1000")
    order = line.order_later()
    children = wait_for(line.children, 30, "the new process")
    with line.headgate.admin() as admin:
        wait_for(lambda: admin("DRAIN") == 0, 20, "the end of the harness' own client")
        _, errors = order.communicate(timeout=60)
        assert order.returncode == 1 and "DRAIN has taken the process out of service" in errors
        assert not is_alive(children[0])
    # It is ordered anew, then: the new process opens the addresses itself, and is in service.
    line.install(BINARY)
    line.upgrade()
    assert line.headgate.serves()


def test_who_gave_way_cannot_be_asked_again(make_line):
    line = make_line()
    stayer = line.headgate.connect()
    line.upgrade()
    line.headgate.signal(signal.SIGUSR2)
    line.headgate.await_log("another process has taken over already")
    assert stayer("PING") == PONG


def test_nobody_else_can_hand_over(make_line):
    """The variable is Headgate's own: what does not name a hand-over is said, and harms nobody."""
    for value in ("0", "77", "x", "1"):
        result = subprocess.run(
            [BINARY, "-c", "/nowhere"], capture_output=True, text=True, timeout=60,
            env={**child_environment(), "HEADGATE_UPGRADE_FD": value},
        )  # fmt: skip
        assert result.returncode == 1 and "names no hand-over" in result.stderr


def test_a_hand_over_that_is_not_understood():
    """Nothing of another version brings it down: it says so, and ends."""
    for words in [[], [b"HELLO\n2", b"PORTS\n"], [b"PORTS\n"], [b""], [b"HELLO\n1", b"PORT\n0 0 0 /x"], [b"\xff" * 1000]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            # It ends at the first one that it does not understand.
            for word in words:
                ours.send(word)
            process = subprocess.Popen(
                [BINARY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()],
                env={**child_environment(), "HEADGATE_UPGRADE_FD": str(theirs.fileno())},
            )  # fmt: skip
            theirs.close()
            ours.shutdown(socket.SHUT_WR)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 1 and "headgate: no upgrade: " in errors, words


def test_an_old_process_that_ends_half_way(make_headgate, redis):
    """Nobody would serve: so the new one does, and what goes wrong from then on is told to nobody."""
    headgate = make_headgate(redis, start=False, pid_file="/nowhere/pid")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        headgate.environment["HEADGATE_UPGRADE_FD"] = str(theirs.fileno())
        headgate.launch([BINARY, "-c", str(headgate.config_path)], pass_fds=[theirs.fileno()])
        theirs.close()
        ours.settimeout(60)
        ours.send(b"HELLO\n1")
        ours.send(b"PORTS\n")
        assert ours.recv(4096).startswith(b"READY\n")
    headgate.await_log("the process to take over from has ended by itself")
    headgate.await_log("cannot write pid_file")
    wait_for(headgate.serves, 30, "the new one to serve")
