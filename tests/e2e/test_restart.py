"""One Headgate after another: nobody is refused, nobody holds it up, and no address is taken from who has it."""

import fcntl
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from harness.admin import send_and_await
from harness.resp import OK, PONG, Client, Closed, encode, wait_for
from harness.servers import BINARY, elapsed, free_port, run_headgate
from harness.taking_over import successor, take_over
from harness.visitors import Visitors


# ---- who is there, and who comes ----


def test_nobody_is_refused(redis, make_headgate, tmp_path, pool):
    """Clients that connect all the time, by TCP and by a file, and one that blocks, through two restarts."""
    path = tmp_path / "headgate.sock"
    headgate = make_headgate(redis, start=False, pool=pool, unix_socket_mode="0600", drain_timeout="1h")
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{path}", admin=f"unix:{tmp_path}/admin.sock")
    headgate.start()
    visitors = [Visitors(headgate.address, 2), Visitors(path, 2)]

    def await_visitors():
        for some in visitors:
            some.await_more(20)

    for _ in range(2):
        blocked = headgate.connect()
        blocked.request("BLPOP", "none", 0)
        await_visitors()
        second = take_over(make_headgate, headgate)
        await_visitors()
        assert headgate.terminate(timeout=60) == 0
        blocked.assert_closed()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await_visitors()
        with Client(tmp_path / "admin.sock") as admin:
            assert admin("PING") == PONG
        headgate = second
    for some in visitors:
        some.end()
        assert some.faults == []
    assert headgate.terminate() == 0
    assert sorted(os.listdir(tmp_path)) == []


# ---- who has no business there ----


@pytest.mark.parametrize("option", ("listen", "admin"))
def test_a_second_one_by_mistake_is_told_so(redis, make_headgate, tmp_path, option):
    headgate = make_headgate(redis)
    options = {"listen": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}", "upstream": redis.url}
    options[option] = headgate.options[option]
    path = tmp_path / "headgate.ini"
    path.write_text("[headgate]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
    result = run_headgate("-c", path)
    assert result.returncode == 1 and "in use" in result.stderr.lower() and options[option] in result.stderr
    for _ in range(20):
        assert headgate.serves()


def test_a_file_that_is_somebody_elses_by_now_stays(redis, make_headgate, tmp_path):
    path = tmp_path / "headgate.sock"
    headgate = make_headgate(redis, start=False)
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{path}")
    headgate.start()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        assert headgate.terminate() == 0
        assert path.exists()


# ---- a take-over that fails ----


@pytest.fixture
def serving(redis, make_headgate, tmp_path):
    """A Headgate on Unix sockets and TCP ports, for clients and for operators."""
    headgate = make_headgate(redis, start=False)
    headgate.write_config(
        listen=f"127.0.0.1:{headgate.port}, unix:{tmp_path}/h.sock",
        admin=f"127.0.0.1:{headgate.admin_port}, unix:{tmp_path}/admin.sock",
    )
    headgate.start()
    return headgate


def files(directory):
    return {entry.name: entry.inode() for entry in os.scandir(directory) if entry.name.endswith(".sock")}


@pytest.mark.parametrize(("option", "place"), (("listen", "taken"), ("admin", "nowhere")))
def test_a_take_over_that_fails_takes_nothing(redis, serving, tmp_path, option, place):
    """One of its addresses, the last of its kind, cannot be had: who serves goes on, and nobody notices."""
    wrong = {"taken": redis.url, "nowhere": f"unix:{tmp_path}/none/h.sock"}[place]
    config = tmp_path / "second.ini"
    addresses = {name: serving.options[name] for name in ("listen", "admin")}
    addresses[option] += f", {wrong}"
    lines = [f"{name} = {value}\n" for name, value in addresses.items()]
    config.write_text(f"[headgate]\nupstream = 127.0.0.1:{free_port()}\n" + "".join(lines))
    visitors, others = Visitors(serving.address), Visitors(tmp_path / "h.sock")
    before = files(tmp_path)
    for _ in range(3):
        visitors.await_more(20)
        others.await_more(20)
        result = run_headgate("-c", config, "--take-over")
        assert result.returncode == 1 and f"cannot listen on {wrong}: " in result.stderr
        assert files(tmp_path) == before
    visitors.await_more()
    others.await_more()
    visitors.end()
    others.end()
    assert visitors.faults == [] and others.faults == []
    with Client(tmp_path / "admin.sock") as admin:
        assert admin("PING") == PONG


def take_over_at(path, tmp_path, binary=BINARY, by=()):
    """What becomes of a take-over of that Unix socket, by a program that starts it."""
    config = tmp_path / "second.ini"
    config.write_text(f"[headgate]\nlisten = unix:{path}\nadmin =\nupstream = 127.0.0.1:{free_port()}\n")
    command = [*by, binary, "-c", config, "--take-over"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_unix_socket_of_another_program_is_left_alone(redis, tmp_path):
    path = redis.socket_path
    inode = path.stat().st_ino
    result = take_over_at(path, tmp_path)
    assert result.returncode == 1 and "in use" in result.stderr.lower()
    assert f"process {redis.process.pid} (redis-server) listens on it, which is not Headgate" in result.stderr
    assert path.stat().st_ino == inode
    with Client(path) as client:
        assert client("PING") == PONG


@pytest.mark.root
def test_a_headgate_of_another_user_is_left_alone(serving, tmp_path, open_binary):
    """As with TCP, where the kernel sees to it."""
    # All of which the other user can get at, wherever the tests lie.
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.is_relative_to(tempfile.gettempdir()) and parent != pathlib.Path(tempfile.gettempdir()):
            parent.chmod(0o755)
    (tmp_path / "h.sock").chmod(0o777)
    by = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    result = take_over_at(tmp_path / "h.sock", tmp_path, open_binary, by)
    assert result.returncode == 1 and "is left alone: user 0 listens on it" in result.stderr
    with Client(tmp_path / "h.sock") as client:
        assert client("PING") == PONG


@pytest.mark.root
def test_who_is_in_another_container_is_left_alone(serving, tmp_path):
    """Its process has no number there, so that it cannot be told whether it is a Headgate."""
    before = files(tmp_path)
    result = take_over_at(tmp_path / "h.sock", tmp_path, by=("unshare", "--pid", "--fork", "--kill-child"))
    assert result.returncode == 1 and "another container" in result.stderr and "end it first" in result.stderr
    assert files(tmp_path) == before
    with Client(tmp_path / "h.sock") as client:
        assert client("PING") == PONG


LEAVE_DEAD = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"


def test_what_is_left_of_those_who_have_died_is_no_obstacle(redis, make_headgate, tmp_path):
    """A socket at the place, and one beside it by which somebody of the same number was about to take over."""
    path = tmp_path / "h.sock"
    headgate = make_headgate(redis, start=False)
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{path}")
    leave = f"{sys.executable} -c '{LEAVE_DEAD}'"
    script = f'{leave} {path}; {leave} {path}.$$; exec "$0" -c {headgate.config_path} --take-over'
    headgate.launch(["bash", "-c", script, BINARY])
    headgate.await_port(headgate.address)
    with Client(path) as client:
        assert client("PING") == PONG
    assert headgate.terminate() == 0
    assert files(tmp_path) == {}


# ---- while one drains ----


def test_another_may_start_while_one_drains(redis, make_headgate, tmp_path):
    """Without any ado: neither the clients' addresses nor the operators' are held."""
    headgate = make_headgate(redis, start=False, drain_timeout="30s")
    headgate.write_config(
        listen=f"127.0.0.1:{headgate.port}, unix:{tmp_path}/a.sock",
        admin=f"127.0.0.1:{headgate.admin_port}, unix:{tmp_path}/b.sock",
    )
    headgate.start()
    busy = headgate.connect()
    send_and_await(headgate, busy, encode("DEBUG", "SLEEP", "4"))
    headgate.signal(signal.SIGTERM)
    wait_for(lambda: "draining" in headgate.log(), what="the drain")
    second = successor(make_headgate, headgate)
    second.start()
    assert headgate.is_alive()
    assert busy.read() == OK
    assert headgate.wait() == 0
    with Client(tmp_path / "a.sock") as client, Client(tmp_path / "b.sock") as admin:
        assert client("PING") == PONG and admin("PING") == PONG
    assert second.serves()


def test_who_blocks_only_now_is_given_a_moment(redis, make_headgate, pool):
    """What is pushed meanwhile is with the client, or there if it was closed before; never gone."""
    headgate = make_headgate(redis, pool=pool, drain_timeout="1m")
    clients = [headgate.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client.request("BLPOP", f"list{number}", 0)
    with redis.connect() as observer:
        wait_for(lambda: b"blocked_clients:20" in observer("INFO", "clients"), what="the clients to block")
        headgate.signal(signal.SIGTERM)
        for number in range(20):
            observer("RPUSH", f"list{number}", "v")
        assert headgate.wait() == 0
        for number, client in enumerate(clients):
            left = observer("LLEN", f"list{number}")
            try:
                assert client.read() == [b"list%d" % number, b"v"]
                assert left == 0
            except Closed:
                assert left == 1, "popped, and lost"


# ---- sockets that are handed over ----


def launch_with(headgate, sockets):
    """As systemd does: they are 3 and what follows, and LISTEN_PID is the process itself."""
    # What they are called (FileDescriptorName) is of no matter: they are known by their addresses.
    names = ":".join(["headgate.socket", "clients", "clients"][: len(sockets)])
    script = f'exec env LISTEN_PID=$$ LISTEN_FDS={len(sockets)} LISTEN_FDNAMES={names} "$@"'
    numbers = " ".join(f"{3 + place}<&{sock.fileno()}" for place, sock in enumerate(sockets))
    closing = " ".join(f"{sock.fileno()}<&-" for sock in sockets)
    command = ["bash", "-c", f"exec {numbers} {closing}; {script}", "bash", BINARY, "-c", str(headgate.config_path)]
    headgate.launch(command, pass_fds=[sock.fileno() for sock in sockets])


def high(sock):
    """The same socket under a number that is not in the way."""
    return socket.socket(fileno=fcntl.fcntl(sock.detach(), fcntl.F_DUPFD_CLOEXEC, 100))


@pytest.fixture
def handed(tmp_path):
    """What a socket unit has: clients' ports by TCP and by file, and an operators' one."""
    sockets = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))]
    sockets.append(socket.socket(socket.AF_UNIX))
    sockets[2].bind(str(tmp_path / "headgate.sock"))
    sockets[2].listen()
    sockets = [high(sock) for sock in sockets]
    yield sockets
    for sock in sockets:
        sock.close()


def test_a_restart_behind_a_socket_unit(redis, make_headgate, handed, tmp_path):
    """The sockets stay open: who comes in between waits, by TCP and by file, and nobody is refused."""
    path = tmp_path / "headgate.sock"
    headgate = make_headgate(redis, start=False, drain_timeout="20s")
    headgate.port, headgate.admin_port = (sock.getsockname()[1] for sock in handed[:2])
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, unix:{path}", admin=f"127.0.0.1:{headgate.admin_port}")
    launch_with(headgate, handed)
    visitors, others = Visitors(headgate.address), Visitors(path)
    for _ in range(2):
        visitors.await_more()
        others.await_more()
        with headgate.admin() as admin:
            assert admin("PING") == PONG
        with Client(path) as blocked:
            blocked.request("BLPOP", "none", 0)
            time.sleep(0.2)
            assert elapsed(headgate.terminate) < 10
            assert headgate.process.returncode == 0
        launch_with(headgate, handed)
    visitors.await_more()
    visitors.end()
    others.end()
    assert visitors.faults == [] and others.faults == []
    assert path.exists(), "it is the unit's"
