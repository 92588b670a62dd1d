"""scripts/run beside what runs already: it sees who has its addresses before it prints any, and says what to do."""

import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading

import pytest

from harness.resp import Client, wait_for
from harness.servers import REPOSITORY, free_port
from running import Run, can_be_bound, tour_port

NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.fixture
def run():
    """Starts scripts/run; those that still run at the end are ended."""
    runs = []

    def start(*arguments, **options):
        runs.append(Run(*arguments, **options))
        return runs[-1]

    yield start
    for started in runs:
        started.end()


@pytest.fixture
def port():
    return tour_port()


class Stranger:
    """A program that takes connections and is no Redis: it says greeting, and nothing else."""

    def __init__(self, port, greeting=b""):
        self.socket = socket.create_server(("127.0.0.1", port))
        self.greeting = greeting
        self.connections = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        try:
            while True:
                self.connections.append(self.socket.accept()[0])
                self.connections[-1].sendall(self.greeting)
        except OSError:
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        for connection in [self.socket, *self.connections]:
            connection.close()


@pytest.fixture
def stranger():
    strangers = []

    def start(*arguments):
        strangers.append(Stranger(*arguments))

    yield start
    for started in strangers:
        started.close()


def answers(port):
    try:
        with Client(("127.0.0.1", port)) as client:
            return client("PING") == b"PONG"
    except OSError:
        return False


def process_id(port):
    with Client(("127.0.0.1", port)) as client:
        return int(re.search(rb"process_id:(\d+)", client("INFO"))[1])


# ---- who has the ports ----


def test_a_second_one_sees_the_first(run, port):
    first = run("--port", port).await_start()
    said = run("--port", port).refused()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f"a Headgate has 127.0.0.1:{port + 10} already: process {process_id(port + 10)} of {user}, version " in said
    assert f"in front of 127.0.0.1:{port - 1}, with " in said and "tour.ini." in said
    assert f"Ctrl-C in its terminal or as {user}: redis-cli -p {port + 10} SHUTDOWN" in said
    assert "Building" not in said
    other = int(re.search(r"scripts/run --port (\d+)", said)[1])
    assert all(can_be_bound(other + offset) for offset in (-1, 0, 10))
    assert first.process.poll() is None and answers(port) and answers(port - 1)
    # What it advises works.
    asked = re.search(r"Ask it how it is: (redis-cli .*)", said)[1]
    assert "headgate_version" in subprocess.run(asked.split(), capture_output=True, text=True, timeout=20).stdout
    run("--port", other).await_start()
    ended = re.search(r"as \w+: (redis-cli .*)", said)[1]
    subprocess.run(ended.split(), check=True, timeout=20, capture_output=True)
    assert first.process.wait(30) == 0
    run("--port", port).await_start()


def test_two_at_once(run, port):
    """One of them serves, however they meet; the other says why not, and no address."""
    runs = [run("--port", port) for _ in range(2)]
    wait_for(lambda: [each for each in runs if each.process.poll() is not None], 60, "one of them to give up")
    wait_for(lambda: any("Five things" in each.printed() for each in runs), 60, "one of them to serve")
    lost, served = sorted(runs, key=lambda each: each.process.poll() is None)
    assert served.process.poll() is None and answers(port)
    assert lost.process.returncode != 0 and "Five things" not in lost.printed()
    assert re.search(r"already|Address already in use|did not start", lost.printed())


@pytest.mark.parametrize("offset", [0, 10, 11], ids=["clients' port", "operators' port", "the page's port"])
def test_another_program_has_a_port(run, port, stranger, offset):
    stranger(port + offset)
    said = run("--port", port).refused()
    assert f"another program listens on 127.0.0.1:{port + offset} already." in said
    assert f"ss -ltnxp | grep {port + offset}" in said and "scripts/run --port " in said
    assert can_be_bound(port - 1), "a Redis was started"


def test_a_redis_has_the_port(run, port, make_redis):
    make_redis(port=port)
    said = run("--port", port).refused()
    assert f"another program listens on 127.0.0.1:{port} already (it speaks as Redis does)." in said


def test_a_headgate_with_another_admin_port_has_it(run, port, redis, make_headgate):
    headgate = make_headgate(redis, start=False)
    headgate.write_config(admin=f"127.0.0.1:{port + 10}", admin_password="secret")
    headgate.start()
    said = run("--port", port).refused()
    assert f"listens on 127.0.0.1:{port + 10} already (a Redis or a Headgate that wants a password)." in said


def test_a_file_of_ones_own_is_looked_at_in_the_same_way(run, redis, make_headgate, tmp_path):
    headgate = make_headgate(redis)
    said = run("-c", headgate.config_path).refused()
    assert f"a Headgate has 127.0.0.1:{headgate.admin_port} already: process {headgate.process.pid} of " in said
    assert "listen, admin and http in its file" in said and "--port" not in said
    file = tmp_path / "unix.ini"
    file.write_text(f"[headgate]\nlisten = unix:{redis.socket_path}\nadmin =\nupstream = {redis.url}\n")
    assert f"another program listens on unix:{redis.socket_path} already (it speaks" in run("-c", file).refused()


# ---- Redis ----


def test_a_redis_that_is_there_is_used_and_left(run, port, make_redis):
    redis = make_redis(port=port - 1)
    started = run("--port", port).await_start()
    assert f"Redis answers at 127.0.0.1:{port - 1} already; using it" in started.printed()
    assert answers(port)
    assert started.interrupt() == 130
    assert redis.is_alive() and answers(port - 1)


def test_a_redis_with_a_password(run, port, make_redis, tmp_path):
    make_redis("--requirepass", "secret", port=port - 1)
    said = run("--port", port).refused()
    assert f"Redis at 127.0.0.1:{port - 1} wants a password." in said
    assert "upstream_password = " in said and "scripts/run --port " in said
    # What it advises works.
    file = tmp_path / "tour.ini"
    tour = (REPOSITORY / "conf" / "examples" / "tour.ini").read_text()
    for usual, chosen in (("6379", port - 1), ("6380", port), ("6390", port + 10)):
        tour = tour.replace(f":{usual}", f":{chosen}")
    file.write_text(tour.replace("[headgate]\n", "[headgate]\nupstream_password = secret\n"))
    started = run("-c", file).await_start()
    assert "wants a password; Headgate has one" in started.printed()
    assert answers(port)


def test_clients_may_bring_the_password(run, port, make_redis, tmp_path):
    redis = make_redis("--requirepass", "secret", port=port - 1)
    file = tmp_path / "own.ini"
    file.write_text(f"[headgate]\nlisten = 127.0.0.1:{port}\nadmin = 127.0.0.1:{port + 10}\nupstream = {redis.url}\n")
    started = run("-c", file).await_start()
    assert "clients must authenticate, or set upstream_password" in started.printed()


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["mute", "HTTP"])
def test_what_has_the_port_of_redis_is_no_redis(run, port, stranger, greeting):
    stranger(port - 1, greeting)
    said = run("--port", port).refused()
    assert f"what listens at 127.0.0.1:{port - 1} is no Redis" in said
    assert "upstream = HOST:PORT" in said and "scripts/run --port " in said


def test_the_admin_port_of_a_headgate_is_no_redis(run, port, redis, make_headgate):
    headgate = make_headgate(redis, start=False)
    headgate.write_config(admin=f"127.0.0.1:{port - 1}")
    headgate.start()
    assert f"the admin port of a Headgate is at 127.0.0.1:{port - 1}, not a Redis" in run("--port", port).refused()


# ---- a file of one's own ----


def test_a_file_of_ones_own_is_no_tour(run, redis, tmp_path):
    port, admin, file = free_port(), free_port(), tmp_path / "own.ini"
    # [latency] has an upstream, too, which is not the one that is meant.
    file.write_text(
        f"[headgate]\nlisten = 127.0.0.1:{port}\nadmin = 127.0.0.1:{admin}\nupstream = {redis.url}\n"
        "[latency]\nenabled = on\nupstream = 127.0.0.1:1\n"
    )
    started = run("-c", file).await_start()
    printed = started.printed()
    assert f"Try: redis-cli -p {port} PING" in printed and "Five things" not in printed
    assert f"  Redis         {redis.url}\n" in printed
    assert answers(port)


def test_without_an_admin_port(run, redis, tmp_path):
    file = tmp_path / "own.ini"
    file.write_text(f"[headgate]\nlisten = unix:{tmp_path}/h.sock\nadmin =\nupstream = {redis.url}\n")
    started = run("-c", file).await_start()
    assert f"Try: redis-cli -s {tmp_path}/h.sock PING" in started.printed()
    assert "  admin         (none)\n" in started.printed()


def test_a_faulty_file_starts_nothing(run, port, tmp_path):
    file = tmp_path / "own.ini"
    file.write_text(f"[headgate]\nlisten = nowhere\nupstream = 127.0.0.1:{port - 1}\n")
    assert "listen = nowhere" in run("-c", file).refused()
    assert can_be_bound(port - 1)


def test_questions_go_to_headgate(run, tmp_path):
    asked = run("-v")
    assert asked.process.wait(60) == 0 and "headgate 0." in asked.printed()
    asked = run("--help")
    assert asked.process.wait(60) == 0 and "--port PORT" in asked.printed()
    assert "expected a number" in run("--port", "80").refused()


# ---- ends, and other users ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left(run, port, number):
    started = run("--port", port).await_start()
    redis, headgate = process_id(port - 1), process_id(port + 10)
    directory = os.readlink(f"/proc/{redis}/cwd")
    started.process.send_signal(number)
    assert started.process.wait(60) == {signal.SIGINT: 130}.get(number, 143)
    for process in (redis, headgate):
        assert not os.path.exists(f"/proc/{process}")
    assert not os.path.exists(directory)


@pytest.fixture
def clone():
    """Where scripts/run finds what it needs, readable for everybody, with a build/ that the caller owns."""
    directory = tempfile.mkdtemp(prefix="headgate-test-clone-")
    os.chmod(directory, 0o755)
    for name in ("scripts", "conf"):
        shutil.copytree(REPOSITORY / name, f"{directory}/{name}")
    shutil.copytree(REPOSITORY / "tests" / "clients", f"{directory}/tests/clients", ignore=lambda *_: ["programs"])
    os.mkdir(f"{directory}/build")
    yield directory
    os.chmod(f"{directory}/build", stat.S_IRWXU)
    shutil.rmtree(directory)


def as_another_user(clone):
    """Where root has built, nobody runs it; elsewhere the tree is made as another user's is."""
    if os.getuid() == 0:
        return [*NOBODY, f"{clone}/scripts/run"]
    os.chmod(f"{clone}/build", stat.S_IRUSR | stat.S_IXUSR)
    return [f"{clone}/scripts/run"]


def test_where_another_user_has_built(run, port, clone):
    said = run("--port", port, command=as_another_user(clone)).refused()
    owner = pwd.getpwuid(os.stat(f"{clone}/build").st_uid).pw_name
    assert f"{clone}/build belongs to {owner}, and " in said
    assert re.search(rf"sudo chown -R \w+ {clone}/build", said)


def test_another_user_is_told_whose_headgate_it_is(run, port, clone):
    run("--port", port).await_start()
    said = run("--port", port, command=as_another_user(clone)).refused()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f"process {process_id(port + 10)} of {user}." in said
    assert f"as {user}: redis-cli" in said
