"""What the service manager hears, the file with the process' number, and the signal that opens the log anew."""

import re
import signal
import time

import pytest

from harness.manager import Manager, keep_busy
from harness.resp import OK, PONG, wait_for
from harness.servers import BINARY
from harness.threads import stopped_worker


@pytest.fixture
def manager(tmp_path):
    manager = Manager(tmp_path)
    yield manager
    manager.socket.close()


def start(make_headgate, redis, environment, **options):
    headgate = make_headgate(redis, start=False, reload_on_change="off", **options)
    headgate.environment = environment
    headgate.start()
    return headgate


@pytest.mark.parametrize("abstract", [False, True])
def test_it_is_told_when_clients_are_served(redis, make_headgate, tmp_path, abstract):
    """Which holds up nothing if it has no time, and is heard when it has."""
    manager = Manager(tmp_path, abstract)
    keep_busy(manager.name)
    headgate = start(make_headgate, redis, manager.environment(WATCHDOG_USEC="4000"))
    assert headgate.connect()("PING") == PONG
    with headgate.admin() as admin:
        assert admin("PING") == PONG
    manager.await_states("READY")
    assert re.match(r"\d+ clients; Redis ", next(message["STATUS"] for message in manager.take() if "READY" in message))
    manager.socket.close()


def test_a_reload_is_told_with_its_time(redis, make_headgate, manager):
    headgate = start(make_headgate, redis, manager.environment(), threads=4)
    manager.await_states("READY")
    before = time.monotonic_ns() // 1000
    headgate.signal(signal.SIGHUP)
    manager.await_states("READY", "RELOADING", "READY")
    reloading = next(message for message in manager.take() if "RELOADING" in message)
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


@pytest.mark.parametrize("way", ["signal", "at once"])
def test_the_end_is_told(redis, make_headgate, manager, way):
    headgate = start(make_headgate, redis, manager.environment(), drain_timeout="70s")
    manager.await_states("READY")
    if way == "signal":
        headgate.signal(signal.SIGTERM)
    else:
        with headgate.admin() as admin:
            assert admin("SHUTDOWN", "NOW") == OK
    headgate.process.wait(timeout=30)
    assert manager.states() == ["READY", "STOPPING"]
    if way != "at once":
        stopping = next(message for message in manager.take() if "STOPPING" in message)
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 70_000_000


@pytest.mark.real  # One thread that is stopped from outside would keep the baton.
def test_a_worker_that_hangs_is_told_by_silence(redis, make_headgate, manager):
    """One thread of the process is stopped; all others go on."""
    headgate = start(make_headgate, redis, manager.environment(WATCHDOG_USEC="400000"), threads=2)
    wait_for(lambda: manager.count("WATCHDOG") >= 1, what="a sign of life", seconds=30)
    with stopped_worker(headgate):
        # What it had answered before may be on its way.
        time.sleep(0.5)
        with headgate.admin() as admin:
            assert admin("PING") == PONG, "the main thread goes on"
        heard = manager.count("WATCHDOG")
        time.sleep(2)
        assert manager.count("WATCHDOG") == heard
    wait_for(lambda: manager.count("WATCHDOG") > heard, what="a sign of life", seconds=30)


def test_the_number_is_there_while_it_serves(redis, make_headgate, manager, tmp_path):
    path = tmp_path / "headgate.pid"
    headgate = start(make_headgate, redis, manager.environment(), pid_file=path)
    manager.await_states("READY")
    assert path.read_text() == f"{headgate.process.pid}\n"
    assert path.stat().st_mode & 0o022 == 0
    headgate.signal(signal.SIGHUP)
    manager.await_states("READY", "RELOADING", "READY")
    headgate.terminate()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["notify"]


def test_links_are_replaced_and_not_followed(redis, make_headgate, tmp_path):
    path, victim = tmp_path / "headgate.pid", tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    headgate = start(make_headgate, redis, {}, pid_file=path)
    wait_for(lambda: not path.is_symlink(), what="a file of its own", seconds=30)
    assert path.read_text() == f"{headgate.process.pid}\n" and victim.read_text() == "precious"
    path.unlink()
    path.symlink_to(victim)
    headgate.terminate()
    assert path.is_symlink() and victim.read_text() == "precious", "what others have put there stays"


def test_who_takes_over_has_the_file(redis, make_headgate, tmp_path):
    """The old one goes, and leaves it alone."""
    path = tmp_path / "headgate.pid"
    old = start(make_headgate, redis, {}, pid_file=path)
    wait_for(path.exists, what="the number", seconds=30)
    new = make_headgate(redis, start=False, pid_file=path)
    new.port, new.admin_port = old.port, old.admin_port
    new.config_path.write_text(old.config_path.read_text())
    new.launch([BINARY, "-c", str(new.config_path), "--take-over"])
    wait_for(lambda: path.read_text() == f"{new.process.pid}\n", what="the new number", seconds=30)
    old.terminate()
    assert path.read_text() == f"{new.process.pid}\n"
    assert new.serves()
    new.terminate()
    assert not path.exists()


def test_the_log_is_opened_anew(redis, make_headgate):
    headgate = start(make_headgate, redis, {}, log_file="own.log")
    path, rotated = headgate.directory / "own.log", headgate.directory / "own.log.1"
    wait_for(lambda: path.exists() and "serving clients" in path.read_text(), what="the log", seconds=30)
    path.rename(rotated)
    headgate.write_config(max_clients=77, log_file="own.log")
    headgate.signal(signal.SIGUSR1)
    wait_for(lambda: path.exists() and "log_file was opened anew" in path.read_text(), what="the new one", seconds=30)
    with headgate.admin() as admin:
        assert "max_clients = 77" not in admin("CONFIG").decode(), "the configuration was not read"
    assert "reloaded" not in path.read_text()
