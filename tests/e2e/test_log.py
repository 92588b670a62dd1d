"""The log: JSON lines, the system's log, and what no client can make of it."""

import json
import signal
import socket
import sys

import pytest

from harness.resp import OK, PONG, wait_for
from harness.servers import BINARY


def test_every_line_is_json(redis, make_headgate):
    headgate = make_headgate(redis, log_format="json", log_level="debug")
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", b'"}\xff\\u0000') is not None
    client.socket.sendall(b"*1\r\nX\xff\"\r\n")
    headgate.await_log("closing client 127.0.0.1:")
    with headgate.admin() as admin:
        admin.socket.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert admin.socket.recv(100) == b""
    headgate.terminate()
    lines = [json.loads(line) for line in headgate.log().splitlines()]
    assert len(lines) > 8
    about = ["client", "name", "user", "identity", "rule", "client_id", "lane"]
    for line in lines:
        assert list(line)[:3] == ["time", "level", "module"] and list(line)[-1] == "message"
        assert [name for name in about if name in line] == list(line)[3:-1]
    closing = [line for line in lines if "closing client 127.0.0.1:" in line["message"]]
    assert closing and closing[0]["level"] == "info" and closing[0]["module"] == "client"
    host, port = client.socket.getsockname()
    assert closing[0]["client"] == f"{host}:{port}" and closing[0]["user"] == "default"
    assert isinstance(closing[0]["client_id"], int)
    lanes = [line for line in lines if line["message"].startswith("lane ")]
    assert lanes and all(line["message"].split()[1] == str(line["lane"]) for line in lanes)


def test_json_says_of_whom_a_line_is(redis, make_headgate):
    """The name that the client gave itself, the lane that it had, and the rule that closed it."""
    headgate = make_headgate(redis, pool="session", log_format="json", tls=False)
    with headgate.connect() as client:
        assert client("CLIENT", "SETNAME", 'worker-7","level":"error') == OK
        client.send(b"*1\r\nX\r\n")
        client.read_to_end()
    headgate.await_log("closing client")
    (line,) = [line for line in map(json.loads, headgate.log().splitlines()) if "closing" in line["message"]]
    assert line["name"] == 'worker-7","level":"error' and line["level"] == "info"
    assert line["lane"] > 0 and line["client_id"] > 0


def test_a_reload_changes_the_format(redis, make_headgate):
    headgate = make_headgate(redis, reload_on_change="off")
    headgate.write_config(log_format="json")
    headgate.signal(signal.SIGHUP)
    headgate.await_log('"message":"the configuration was reloaded')
    headgate.write_config(log_format="text")
    headgate.signal(signal.SIGHUP)
    headgate.await_log("main: the configuration was reloaded")


SYSLOG = r"""
import ctypes, os, socket, sys
# A /dev of its own, in which the log is whatever the test says.
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0, os.strerror(ctypes.get_errno())
assert libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) == 0
os.makedirs(sys.argv[1] + "/dev", exist_ok=True)
assert libc.mount(b"tmpfs", (sys.argv[1] + "/dev").encode(), b"tmpfs", 0, None) == 0
for name in ("null", "urandom", "random"):
    open(sys.argv[1] + "/dev/" + name, "w").close()
    assert libc.mount(("/dev/" + name).encode(), (sys.argv[1] + "/dev/" + name).encode(), None, 0x1000, None) == 0
os.symlink(sys.argv[1] + "/log", sys.argv[1] + "/dev/log")
assert libc.mount((sys.argv[1] + "/dev").encode(), b"/dev", None, 0x2000, None) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


class SystemLog:
    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.lines = []

    def text(self):
        while True:
            try:
                self.lines.append(self.socket.recv(8192).decode())
            except BlockingIOError:
                return "\n".join(self.lines)

    def close(self):
        self.socket.close()
        self.path.unlink()


@pytest.mark.root
def test_the_systems_log(redis, make_headgate, tmp_path):
    """It is there, is started anew, and hangs."""
    log = SystemLog(tmp_path / "log")
    headgate = make_headgate(redis, start=False, log_file="syslog", reload_on_change="off")
    headgate.launch([sys.executable, "-c", SYSLOG, str(tmp_path), BINARY, "-c", str(headgate.config_path)])
    headgate.await_port(headgate.address)
    wait_for(lambda: "serving clients on" in log.text(), what="the line", seconds=30)
    line = next(line for line in log.lines if "serving clients on" in line)
    assert line.startswith("<30>") and f" headgate[{headgate.process.pid}]: info  main: serving" in line
    assert "\n" not in line and "serving clients on" not in headgate.log()

    log.close()
    log = SystemLog(tmp_path / "log")

    def is_reached():
        headgate.signal(signal.SIGUSR1)
        return "log_file was opened anew" in log.text()

    wait_for(is_reached, what="the new log", seconds=30)
    log.close()
    log = SystemLog(tmp_path / "log")

    def is_reached_by_itself():
        headgate.signal(signal.SIGHUP)
        return "the configuration was reloaded" in log.text()

    wait_for(is_reached_by_itself, what="the newest log", seconds=30)
    # Nobody empties it any more.
    client = headgate.connect()
    for _ in range(300):
        with socket.create_connection(headgate.address) as connection:
            connection.sendall(b"*1\r\nX\r\n")
            assert connection.recv(100).startswith(b"-ERR Protocol error")
    assert client("PING") == PONG
    headgate.terminate()
    log.close()


@pytest.mark.root
@pytest.mark.parametrize("missing", [True, False])
def test_a_systems_log_that_is_not_there(redis, make_headgate, tmp_path, missing):
    """At the start it is a fault, as for a file; in a reload the old log stays."""
    headgate = make_headgate(redis, start=False, reload_on_change="off", log_file="syslog" if missing else "")
    headgate.launch([sys.executable, "-c", SYSLOG, str(tmp_path), BINARY, "-c", str(headgate.config_path)])
    if missing:
        assert headgate.wait(30) == 1
        assert "cannot open log_file syslog: No such file or directory" in headgate.log()
        headgate.expected_exit = {1}
    else:
        headgate.await_port(headgate.address)
        headgate.write_config(log_file="syslog")
        headgate.signal(signal.SIGHUP)
        headgate.await_log("cannot open log_file syslog: No such file or directory; going on with the old one")
        assert headgate.connect()("PING") == PONG
