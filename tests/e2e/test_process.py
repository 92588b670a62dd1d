"""Command line, signals, reload, sockets, threads."""

import signal
import socket
import stat
import time

import pytest

from harness.admin import send_and_await
from harness.names import Names
from harness.resp import OK, PONG, Client, encode, wait_for
from harness.servers import elapsed, free_port, run_headgate
from harness.threads import stopped_worker


def test_a_wrong_command_line():
    for arguments in [("-x",), ("--nonsense",), ("unexpected",), ("-c",)]:
        result = run_headgate(*arguments)
        assert result.returncode == 1, arguments
        assert result.stderr != "" and result.stdout == "", arguments


def test_draining_finishes_what_is_under_way(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, drain_timeout="20s")
    waiting, idle, transaction = headgate.connect(), headgate.connect(), headgate.connect()
    assert idle("PING") == PONG
    send_and_await(headgate, waiting, encode("DEBUG", "SLEEP", "3") + encode("ECHO", "x"))
    headgate.signal(signal.SIGTERM)
    idle.assert_closed()
    transaction.assert_closed()
    with pytest.raises(OSError):
        wait_for(lambda: headgate.connect().close())
    assert waiting.read_many(2) == [OK, b"x"]
    waiting.assert_closed()
    assert headgate.wait() == 0


def test_drain_timeout(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, drain_timeout="500ms")
    client = headgate.connect()
    send_and_await(headgate, client, encode("DEBUG", "SLEEP", "60"))
    assert elapsed(headgate.terminate) > 0.3
    assert headgate.process.returncode == 0
    client.assert_closed()


def test_a_second_signal_ends_it_at_once(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, drain_timeout="60s")
    client = headgate.connect()
    send_and_await(headgate, client, encode("DEBUG", "SLEEP", "60"))
    headgate.signal(signal.SIGTERM)
    time.sleep(0.3)
    assert headgate.is_alive()
    headgate.signal(signal.SIGTERM)
    headgate.wait()
    assert headgate.process.returncode == 0
    client.assert_closed()


@pytest.mark.real  # One thread that is stopped from outside would keep the baton.
@pytest.mark.parametrize("drain_timeout", ["60s", "100ms"])
def test_a_worker_that_hangs_does_not_hold_up_the_end(redis, make_headgate, drain_timeout):
    """The second signal ends it, and so does the first one after drain_timeout."""
    headgate = make_headgate(redis, drain_timeout=drain_timeout)
    client = headgate.connect()
    assert client("PING") == PONG
    with stopped_worker(headgate):
        headgate.signal(signal.SIGTERM)
        headgate.await_log("draining")
        if drain_timeout == "60s":
            headgate.signal(signal.SIGINT)
        headgate.await_log("a thread hangs: ending without it")
    headgate.expected_exit = {headgate.wait()}
    assert headgate.expected_exit == {1}
    client.assert_closed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_at_the_very_end_change_nothing(redis, make_headgate, number):
    """A script, a service manager and a process that has taken over may each send theirs."""
    headgate = make_headgate(redis)
    assert headgate.connect()("PING") == PONG
    headgate.signal(signal.SIGTERM)
    while headgate.process.poll() is None:
        headgate.signal(number)
    assert headgate.process.returncode == 0


def test_unix_sockets_on_both_sides(redis, make_headgate, tmp_path, pool):
    path = tmp_path / "headgate.sock"
    port = free_port()
    headgate = make_headgate(
        f"unix:{redis.socket_path}", pool=pool, start=False, listen=f"127.0.0.1:{port}, unix:{path}",
        unix_socket_mode="0600",
    )
    headgate.port = port
    headgate.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Client(path) as client, headgate.connect() as other:
        assert client("SET", "k", "v") == OK
        assert other("GET", "k") == b"v"
        client.shutdown_write()
        client.assert_closed()
    assert headgate.terminate() == 0
    assert not path.exists()


def test_all_addresses_of_a_name(redis, make_headgate, tmp_path):
    """But for those that the machine does not have, and one that is named beside it."""
    names, ports = Names(tmp_path), [free_port() for _ in range(3)]
    names.set("localhost", "127.0.0.1 127.0.0.2 ::1 2001:db8::1")
    options = {option: f"localhost:{port}" for option, port in zip(("listen", "admin", "http"), ports)}
    options["listen"] += f", [::1]:{ports[0]}"
    headgate = make_headgate(redis, start=False, **options)
    headgate.environment, headgate.port, headgate.admin_port = names.environment(), ports[0], ports[1]
    headgate.start()
    for host in ("127.0.0.1", "127.0.0.2", "::1"):
        for port in ports[:2]:
            with Client((host, port)) as client:
                assert client("PING") == PONG
        socket.create_connection((host, ports[2])).close()
