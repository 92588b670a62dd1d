"""user = NAME: root binds the addresses, and is that user from then on."""

import os
import pathlib
import signal
import socket
import subprocess

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Client, wait_for
from harness.servers import BINARY, run_headgate

pytestmark = pytest.mark.root
USER = "nobody"
UID = 65534


@pytest.fixture
def directory(open_directory):
    """Where that user may look."""
    return pathlib.Path(open_directory)


def status(headgate, field):
    """Of every thread."""
    found = set()
    for task in pathlib.Path(f"/proc/{headgate.process.pid}/task").iterdir():
        lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        found.add(" ".join(lines[field].split()))
    assert len(found) == 1, found
    return found.pop()


@pytest.fixture
def start(redis, make_headgate):
    def start(**options):
        headgate = make_headgate(redis, user=USER, start=False, **options)
        os.chmod(headgate.directory, 0o755)
        headgate.start()
        return headgate

    return start


def test_every_thread_is_that_user(start):
    headgate = start(threads=4)
    assert headgate.connect()("PING") == PONG
    assert status(headgate, "Uid") == f"{UID} {UID} {UID} {UID}"
    assert status(headgate, "Gid") == f"{UID} {UID} {UID} {UID}"
    assert status(headgate, "CapEff") == status(headgate, "CapPrm") == "0" * 16
    assert status(headgate, "NoNewPrivs") == "1"
    assert status(headgate, "Groups") in ("", str(UID))
    headgate.await_log(f"root is given up: this is user {USER}")


def test_unix_sockets_are_that_users(redis, make_headgate, directory):
    own = directory / "own"
    own.mkdir()
    os.chown(own, UID, UID)
    paths = [directory / "socket", own / "socket"]
    headgate = make_headgate(redis, user=USER, start=False, unix_socket_mode="0600")
    os.chmod(headgate.directory, 0o755)
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, " + ", ".join(f"unix:{path}" for path in paths))
    headgate.start()
    for path in paths:
        # All sockets are opened one after the other, and then given to the user.
        wait_for(
            lambda path=path: path.exists() and (path.stat().st_uid, path.stat().st_mode & 0o777) == (UID, 0o600),
            what=f"{path} to be the user's",
        )
        with Client(str(path)) as client:
            assert client("PING") == PONG


def test_a_port_of_root(redis, make_headgate):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 631))
        except OSError:
            pytest.fail("port 631 is in use")
    headgate = make_headgate(redis, user=USER, start=False)
    os.chmod(headgate.directory, 0o755)
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, 127.0.0.1:631")
    headgate.start()
    with Client(("127.0.0.1", 631)) as client:
        assert client("PING") == PONG


@pytest.mark.parametrize("first", (USER, None))
def test_who_takes_over_is_root_at_first(redis, make_headgate, directory, open_binary, first):
    """… from one that was started as root, or was that user from the beginning."""
    os.chown(directory, UID, UID)
    path = directory / "socket"
    old = make_headgate(redis, user=USER, start=False, threads=4)
    os.chmod(old.directory, 0o755)
    old.write_config(listen=f"127.0.0.1:{old.port}, unix:{path}")
    if first is None:
        arguments = {"user": UID, "group": UID, "extra_groups": []}
        old.launch([open_binary, "-c", str(old.config_path)], **arguments)
        old.await_port(old.address)
    else:
        old.start()
    clients = [Client(str(path)), old.connect()]
    for client in clients:
        assert client("PING") == PONG
    new = make_headgate(redis, user=USER, start=False, threads=4)
    os.chmod(new.directory, 0o755)
    new.port = old.port
    new.write_config(listen=f"127.0.0.1:{old.port}, unix:{path}")
    new.launch([BINARY, "--take-over", "-c", str(new.config_path)])
    new.await_port(new.admin_address)
    wait_for(lambda: "admin port on" in new.log(), what="the new one")
    assert status(new, "Uid") == f"{UID} {UID} {UID} {UID}"
    old.signal(signal.SIGTERM)
    old.wait()
    for address in (str(path), old.address):
        with Client(address) as client:
            assert client("SET", "k", 1) == OK
    assert int(stats(new)["clients_accepted_total"]) >= 2


def test_no_such_user(tmp_path):
    file = tmp_path / "h.ini"
    for text, fault in (
        ("user = nobody-like-that\n", "user = nobody-like-that: there is no such user"),
        ("user = nobody\ngroup = no-such-group\n", "group = no-such-group: there is no such group"),
        ("group = nogroup\n", "[headgate] group = nogroup: has no user; expected user beside it"),
    ):
        file.write_text("[headgate]\n" + text)
        result = run_headgate("-c", file)
        assert result.returncode == 1 and fault in result.stderr


def test_standard_output_may_be_the_log(directory):
    """Though it is a pipe that root has made, and /dev/stdout a link."""
    code, said = open_by_root(directory, "/dev/stderr")
    assert code == 0 and "root is given up" in said


def open_by_root(directory, log, user=USER):
    """What a start says, and whether root has written to that user's choice."""
    config = directory / "headgate.ini"
    config.write_text(f"[headgate]\nlisten = unix:{directory}/socket\nadmin =\nuser = {user}\nlog_file = {log}\n")
    process = subprocess.Popen([BINARY, "-c", config], stderr=subprocess.PIPE, text=True)
    try:
        _, said = process.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, said = process.communicate(timeout=30)
    return process.returncode, said


@pytest.mark.parametrize("by", ("a link", "a link on the way", "the directory of a link", "a link for who stays root"))
def test_root_opens_no_log_file_of_that_users_choice(directory, by):
    """It stays open for the user, who could add to any file of root's."""
    theirs, roots = directory / "theirs", directory / "roots"
    theirs.mkdir()
    roots.mkdir()
    os.chown(theirs, UID, UID)
    victim = roots / "log"
    victim.write_text("of root\n")
    victim.chmod(0o600)
    stays = by == "a link for who stays root"
    if by == "a link" or stays:
        (theirs / "log").symlink_to(victim)
        log = theirs / "log"
        os.chown(log, UID, UID, follow_symlinks=False)
    else:
        (theirs / "logs").symlink_to(roots)
        log = theirs / "logs" / "log"
    if by == "the directory of a link":
        (directory / "way").symlink_to(theirs)
        log = directory / "way" / "logs" / "log"
    code, said = open_by_root(directory, log, "" if stays else USER)
    assert victim.read_text() == "of root\n"
    why = "Permission denied" if not stays else "Too many levels of symbolic links"
    assert code == 1 and f"cannot open log_file {log}: {why}" in said


def test_root_opens_a_log_file_where_that_user_has_no_say(directory):
    roots = directory / "roots"
    roots.mkdir()
    (directory / "link").symlink_to(roots)
    for log in (roots / "log", directory / "link" / "other"):
        code, _ = open_by_root(directory, log)
        assert code == 0 and "root is given up" in log.read_text()
