"""Command line, signals, reload, sockets, threads."""

import os
import signal
import socket
import stat
import threading
import time

import pytest

from harness.admin import await_empty, send_and_await
from harness.names import Names
from harness.resp import OK, PONG, Client, Closed, Error, Status, encode, wait_for
from harness.servers import elapsed, free_port, run_headgate
from harness.threads import at_once, stopped_worker

# ---- command line ----


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_version():
    result = run_headgate("-v")
    assert result.returncode == 0
    assert result.stdout.startswith("headgate ") and result.stdout.strip().split()[1][0].isdigit()
    assert result.stderr == ""


def test_help():
    result = run_headgate("--help")
    assert result.returncode == 0
    for word in ("-c", "-t", "-T", "-v", "--help"):
        assert word in result.stdout


@pytest.mark.parametrize("arguments", [("-x",), ("--nonsense",), ("unexpected",), ("-c",)])
def test_a_wrong_command_line(arguments):
    result = run_headgate(*arguments)
    assert result.returncode == 1
    assert result.stderr != "" and result.stdout == ""


def test_checking_a_sound_file(tmp_path):
    path = write(tmp_path / "good.ini", "[headgate]", "listen = 127.0.0.1:7000", "pool = session")
    result = run_headgate("-t", "-c", path)
    assert result.returncode == 0, result.stderr


def test_checking_the_defaults():
    assert run_headgate("-t").returncode == 0


def test_printing_the_configuration(tmp_path):
    options = ("threads = 3", "client_idle_timeout = 10m", "upstream_password = hidden")
    path = write(tmp_path / "some.ini", "[headgate]", *options)
    result = run_headgate("-T", "-c", path)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert "threads = 3" in lines and "client_idle_timeout = 10m" in lines
    assert "listen = 127.0.0.1:6380" in lines and "upstream = 127.0.0.1:6379" in lines
    assert "admin = 127.0.0.1:6390" in lines and "pool = shared" in lines
    assert "hidden" not in result.stdout
    again = write(tmp_path / "again.ini", *[line for line in lines if "password" not in line])
    assert run_headgate("-t", "-c", again).returncode == 0


def test_all_faults_at_once(tmp_path):
    path = write(
        tmp_path / "bad.ini", "[headgate]", "pool = neither", "nonsense = 1", "threads = 0", "lanes = many",
        "client_idle_timeout = 5 parsecs", "listen = nowhere", "threads = 2", "[unknown]", "x = 1",
    )
    for option in ("-t", None):
        result = run_headgate(*filter(None, [option, "-c", path]))
        assert result.returncode == 1
        for line in (2, 3, 4, 5, 6, 7, 8, 9):
            assert f"{path}:{line}: " in result.stderr, result.stderr
        for word in ("pool = neither", "shared", "session", "nonsense", "threads", "lanes = many", "unknown"):
            assert word in result.stderr, result.stderr


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.ini", tmp_path):
        result = run_headgate("-c", path)
        assert result.returncode == 1
        assert len(result.stderr.splitlines()) == 1 and str(path) in result.stderr


@pytest.mark.parametrize("option", ["listen", "admin"])
def test_a_port_in_use(make_redis, tmp_path, option):
    redis = make_redis()
    options = {"listen": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}", "upstream": redis.url}
    options[option] = redis.url if option == "listen" else f"127.0.0.1:{redis.port}"
    options["upstream"] = f"127.0.0.1:{free_port()}"
    path = write(tmp_path / "headgate.ini", "[headgate]", *[f"{name} = {value}" for name, value in options.items()])
    result = run_headgate("-c", path)
    assert result.returncode == 1
    assert str(redis.port) in result.stderr and "in use" in result.stderr.lower()


def test_an_unwritable_log_file(tmp_path):
    options = (f"log_file = {tmp_path}/none/log", f"listen = 127.0.0.1:{free_port()}")
    path = write(tmp_path / "headgate.ini", "[headgate]", *options)
    result = run_headgate("-c", path)
    assert result.returncode == 1
    assert "log" in result.stderr and len(result.stderr.splitlines()) == 1


# ---- SIGTERM and SIGINT ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_headgate_ends_at_once(redis, make_headgate, pool, number):
    headgate = make_headgate(redis, pool=pool, drain_timeout="1h")
    clients = [headgate.connect() for _ in range(10)]
    for client in clients:
        assert client("PING") == PONG
    headgate.signal(number)
    headgate.wait(60)
    assert headgate.process.returncode == 0
    for client in clients:
        client.assert_closed()


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


def test_draining_answers_a_whole_pipeline(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, drain_timeout="20s")
    client = headgate.connect()
    send_and_await(headgate, client, encode("DEBUG", "SLEEP", "0.5") + encode("ECHO", "x") * 100)
    headgate.signal(signal.SIGTERM)
    assert client.read() == OK
    assert client.read_many(100) == [b"x"] * 100
    client.assert_closed()
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


def test_ending_while_redis_is_away(redis, make_headgate):
    headgate = make_headgate(redis, upstream_wait="60s", drain_timeout="500ms")
    client = headgate.connect()
    redis.kill()
    send_and_await(headgate, client, encode("GET", "k"))
    headgate.signal(signal.SIGTERM)
    headgate.wait()
    assert headgate.process.returncode == 0


def test_ending_under_load(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool)
    wrong = []

    def work(identity):
        try:
            with headgate.connect() as client:
                for turn in range(100_000):
                    word = b"%d-%d" % (identity, turn)
                    client.send(encode("ECHO", word) * 10)
                    if client.read_many(10) != [word] * 10:
                        wrong.append(word)
        except (Closed, ConnectionError):
            pass

    threads = [threading.Thread(target=work, args=(identity,), daemon=True) for identity in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert headgate.terminate() == 0
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert wrong == []


# ---- SIGHUP ----


def test_a_reload_takes_what_it_can(redis, make_headgate):
    headgate = make_headgate(redis, max_clients=100)
    client = headgate.connect()
    assert client("PING") == PONG
    headgate.write_config(max_clients=1)
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: refused(headgate), what="the new limit")
    assert client("PING") == PONG
    headgate.write_config(max_clients=50)
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: not refused(headgate), what="the newest limit")


def refused(headgate):
    with headgate.connect() as client:
        try:
            client.request("PING")
            return isinstance(client.read(), Error)
        except (Closed, ConnectionError):
            return True


def test_a_faulty_reload_changes_nothing_and_says_why(redis, make_headgate):
    headgate = make_headgate(redis, max_clients=100)
    client = headgate.connect()
    headgate.write_config(max_clients=1, nonsense="x")
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: "nonsense" in headgate.log(), what="the fault in the log")
    assert not refused(headgate)
    assert client("PING") == PONG
    headgate.write_config(max_clients=100, nonsense=None)
    os.unlink(headgate.config_path)
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: "No such file" in headgate.log(), what="the missing file in the log")
    assert not refused(headgate)


def test_a_reload_tells_of_what_takes_a_restart(redis, make_headgate):
    headgate = make_headgate(redis)
    headgate.write_config(threads=2)
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: "threads" in headgate.log() and "restart" in headgate.log(), what="the option in the log")
    with headgate.connect() as client:
        assert client("PING") == PONG


def test_a_reload_reopens_the_log(redis, make_headgate, tmp_path):
    log = tmp_path / "headgate.log"
    headgate = make_headgate(redis, log_file=log)
    wait_for(log.exists, what="the log file")
    os.rename(log, tmp_path / "headgate.log.1")
    headgate.signal(signal.SIGHUP)
    wait_for(log.exists, what="the new log file")
    assert headgate.terminate() == 0
    assert log.read_text() != ""


def test_reloads_under_load(redis, make_headgate):
    headgate = make_headgate(redis, threads=2)
    clients = [headgate.connect() for _ in range(10)]
    for turn in range(20):
        headgate.write_config(client_idle_timeout=f"{turn + 100}s")
        headgate.signal(signal.SIGHUP)
        for client in clients:
            client.send(encode("ECHO", turn) * 20)
        for client in clients:
            assert client.read_many(20) == [b"%d" % turn] * 20


# ---- sockets ----


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


def test_a_stale_unix_socket_is_replaced(redis, make_headgate, tmp_path):
    path = tmp_path / "headgate.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    port = free_port()
    headgate = make_headgate(redis, start=False, listen=f"127.0.0.1:{port}, unix:{path}")
    headgate.port = port
    headgate.start()
    with Client(path) as client:
        assert client("PING") == PONG


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


def test_an_upstream_by_name(redis, make_headgate):
    headgate = make_headgate(f"localhost:{redis.port}")
    with headgate.connect() as client:
        assert client("PING") == PONG


# ---- threads ----


@pytest.mark.threads
def test_four_workers(redis, make_headgate, pool):
    """Clients spread over workers see one Redis, in order, with everything that shared state can do."""
    headgate = make_headgate(redis, pool=pool, threads=4)
    wrong = []

    def work(identity):
        with headgate.connect() as client:
            client("CLIENT", "SETNAME", f"client-{identity}")
            for turn in range(60):
                word = b"%d-%d" % (identity, turn)
                key = f"k{identity}"
                client.send(
                    encode("ECHO", word) * 5 + encode("SET", key, word) + encode("MULTI") + encode("GET", key)
                    + encode("EXEC") + encode("RPUSH", key + "l", word) + encode("BLPOP", key + "l", 0)
                    + encode("CLIENT", "GETNAME")
                )
                expected = [word] * 5 + [OK, OK, Status(b"QUEUED"), [word], 1, [key.encode() + b"l", word]]
                expected.append(b"client-%d" % identity)
                replies = client.read_many(12)
                if replies != expected:
                    wrong.append((expected, replies))

    at_once(work, 24, seconds=60)
    assert wrong == []


@pytest.mark.threads
def test_publishing_across_workers(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, threads=4)
    subscribers = [headgate.connect() for _ in range(16)]
    for client in subscribers:
        client("SUBSCRIBE", "a")
    publisher = headgate.connect()
    for number in range(50):
        assert publisher("PUBLISH", "a", number) == 16
    for client in subscribers:
        assert client.read_many(50) == [[b"message", b"a", b"%d" % number] for number in range(50)]


@pytest.mark.threads
def test_max_clients_over_all_workers(redis, make_headgate):
    headgate = make_headgate(redis, threads=4, max_clients=10)
    await_empty(headgate)
    clients = [headgate.connect() for _ in range(10)]
    for client in clients:
        assert client("PING") == PONG
    late = headgate.connect()
    assert late.read_to_end() == b"-ERR max number of clients reached\r\n"


@pytest.mark.threads
def test_reload_admin_and_end_with_four_workers(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, threads=4)
    clients = [headgate.connect() for _ in range(12)]
    for turn in range(10):
        headgate.write_config(client_idle_timeout=f"{turn + 100}s")
        headgate.signal(signal.SIGHUP)
        with headgate.admin() as admin:
            for verb in ("STATS", "CLIENTS", "LANES", "CONFIG"):
                assert isinstance(admin(verb), bytes)
        for client in clients:
            assert client("ECHO", turn) == b"%d" % turn
    assert headgate.terminate() == 0
