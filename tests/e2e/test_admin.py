"""The admin port."""

import subprocess
import time

import pytest

from harness.admin import await_empty, stats, text
from harness.resp import OK, PONG, Closed, Error, encode, wait_for

SECTIONS = ("Server", "Clients", "Traffic", "Upstream", "Memory")


@pytest.fixture
def headgate(redis, make_headgate):
    return make_headgate(redis, pool="shared", upstream_password="")


@pytest.fixture
def admin(headgate):
    with headgate.admin() as client:
        yield client


def test_ping(admin):
    assert admin("PING") == PONG
    assert admin("ping") == PONG
    admin.send(b"PING\r\n")
    assert admin.read() == PONG


def test_help_names_every_verb(admin):
    help_text = text(admin("HELP"))
    for verb in ("PING", "HELP", "STATS", "CLIENTS", "LANES", "CONFIG", "VERSION", "SHUTDOWN"):
        assert verb in help_text


def test_every_counter_is_explained(headgate, admin):
    explained = text(admin("HELP", "COUNTERS"))
    counted = set(stats(headgate)) - set(stats(headgate, "server")) - {"resident_bytes"}
    assert len(counted) > 20
    for name in counted:
        assert name in explained, name


def test_stats_have_sections(headgate, admin):
    wait_for(lambda: "redis_clock_offset_us" in stats(headgate), what="what Redis tells of itself")
    everything = text(admin("STATS"))
    for section in SECTIONS:
        assert f"# {section}\r\n" in everything
        alone = text(admin("STATS", section.lower()))
        assert alone.startswith(f"# {section}\r\n") and alone.count("# ") == 1
        names = [line.split(":")[0] for line in alone.splitlines()[1:]]
        assert names and all(f"\r\n{name}:" in everything for name in names)
    assert isinstance(admin("STATS", "nonsense"), Error)


def test_stats_count(headgate):
    await_empty(headgate)
    before = stats(headgate)
    clients = [headgate.connect() for _ in range(5)]
    for client in clients:
        client.send(encode("ECHO", "x") * 10)
        client.read_many(10)
    after = stats(headgate)
    assert int(after["clients_connected"]) - int(before["clients_connected"]) == 5
    assert int(after["clients_accepted_total"]) - int(before["clients_accepted_total"]) == 5
    assert int(after["requests_total"]) - int(before["requests_total"]) == 50
    assert int(after["client_bytes_in_total"]) - int(before["client_bytes_in_total"]) == 50 * len(encode("ECHO", "x"))
    assert int(after["client_bytes_out_total"]) - int(before["client_bytes_out_total"]) == 50 * len(b"$1\r\nx\r\n")
    for client in clients:
        client.close()
    wait_for(lambda: stats(headgate)["clients_connected"] == before["clients_connected"], what="the gauge to fall")


def test_stats_tell_of_lanes(headgate):
    client = headgate.connect()
    client("PING")
    assert int(stats(headgate)["lanes_shared"]) >= 1
    client("MULTI")
    assert stats(headgate)["clients_exclusive"] == "1"
    client("EXEC")
    wait_for(lambda: stats(headgate)["clients_exclusive"] == "0", what="the lane to be given back")


def test_clients(headgate, admin):
    client = headgate.connect()
    client("CLIENT", "SETNAME", "visible")
    client("SELECT", 5)
    client("PING")
    lines = [line for line in text(admin("CLIENTS")).splitlines() if "name=visible" in line]
    assert len(lines) == 1
    address = "%s:%d" % client.socket.getsockname()
    assert address in lines[0] and "db=5" in lines[0]


def test_many_clients_are_listed(headgate, admin):
    clients = [headgate.connect() for _ in range(700)]
    for client in clients:
        client("PING")
    assert len(text(admin("CLIENTS")).splitlines()) == 700


def test_lanes(headgate, admin):
    client = headgate.connect()
    client("PING")
    assert any("shared" in line for line in text(admin("LANES")).splitlines())
    client("MULTI")
    assert any("exclusive" in line for line in text(admin("LANES")).splitlines())


def test_config(redis, make_headgate):
    headgate = make_headgate(redis, max_clients=1234, admin_password="open", upstream_password="")
    with headgate.admin() as admin:
        assert admin("AUTH", "open") == OK
        config = text(admin("CONFIG"))
        assert "max_clients = 1234" in config
        assert f"upstream = {redis.url}" in config
        assert "open" not in config.replace("reopen", "")


def test_version(admin):
    version = text(admin("VERSION"))
    assert version[0].isdigit() and version.count(".") == 2


def test_unknown_verbs_and_wrong_arguments(admin):
    wrong = [("NONSENSE",), ("GET", "k"), ("STATS", "a", "b"), ("CLIENTS", "x"), ("FLUSHALL",), ("SHUTDOWN", "x")]
    for command in wrong:
        assert isinstance(admin(*command), Error), command
    assert admin("PING") == PONG


def test_no_data_on_the_admin_port(redis, admin):
    assert isinstance(admin("SET", "k", "v"), Error)
    with redis.connect() as client:
        assert client("DBSIZE") == 0


def test_the_admin_password(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="open sesame")
    with headgate.admin() as admin:
        for command in (("STATS",), ("CLIENTS",), ("CONFIG",), ("SHUTDOWN",), ("NONSENSE",)):
            assert admin(*command) == Error(b"NOAUTH Authentication required."), command
        assert admin("AUTH", "wrong").startswith(b"WRONGPASS")
        assert isinstance(admin("STATS"), Error)
        assert admin("AUTH", "open sesame") == OK
        assert isinstance(admin("STATS"), bytes) and not isinstance(admin("STATS"), Error)
    with headgate.admin() as another:
        assert isinstance(another("STATS"), Error)
    assert "open sesame" not in headgate.log()


def test_shutdown(redis, make_headgate):
    headgate = make_headgate(redis)
    client = headgate.connect()
    assert client("PING") == PONG
    with headgate.admin() as admin:
        admin.request("SHUTDOWN")
        assert admin.read() == OK
    assert headgate.wait() == 0
    client.assert_closed()


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"*x\r\n", id="bad-count"),
        pytest.param(b"*1\r\n+PING\r\n", id="no-bulk"),
        pytest.param(b"\0" * 1000 + b"\r\n", id="zeroes"),
        pytest.param(b"x" * 200_000, id="endless-line"),
        pytest.param(b"*3\r\n$-5\r\n", id="negative-length"),
        pytest.param(b"*1000000\r\n$1\r\nx\r\n", id="many-arguments"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b'STATS "open\r\n', id="open-quotes"),
        pytest.param(b"*1\r\n$100000000\r\n" + b"x" * 100_000, id="long-bulk"),
    ],
)
def test_garbage_on_the_admin_port(headgate, garbage):
    with headgate.connect() as client:
        with headgate.admin() as admin:
            try:
                admin.send(garbage)
                admin.shutdown_write()
                admin.read_to_end()
            except OSError:
                pass
        with headgate.admin() as admin:
            assert admin("PING") == PONG
        assert client("PING") == PONG


def test_one_byte_at_a_time(admin):
    admin.send_bytewise(encode("PING") + encode("STATS", "server") + b"VERSION\r\n")
    assert admin.read() == PONG
    assert admin.read().startswith(b"# Server")
    assert b"." in admin.read()


def test_a_pipeline(admin):
    admin.send((encode("PING") + encode("STATS") + encode("CLIENTS")) * 50)
    replies = admin.read_many(150)
    assert replies[::3] == [PONG] * 50
    assert all(reply.startswith(b"# Server") for reply in replies[1::3])


def test_an_admin_that_never_reads_blocks_no_client(headgate):
    clients = [headgate.connect() for _ in range(200)]
    for client in clients:
        assert client("PING") == PONG
    with headgate.admin() as admin:
        admin.socket.setblocking(False)
        data = (encode("CLIENTS") + encode("STATS")) * 500
        deadline = time.monotonic() + 1.0
        while data and time.monotonic() < deadline:
            try:
                data = data[admin.socket.send(data) :]
            except BlockingIOError:
                time.sleep(0.01)
        for client in clients[:50]:
            assert client("PING") == PONG
    with headgate.admin() as another:
        assert another("PING") == PONG


def test_too_many_admins_do_not_starve_clients(headgate):
    admins = []
    for _ in range(200):
        admins.append(headgate.admin())
    with headgate.connect() as client:
        assert client("PING") == PONG
    for admin in admins:
        admin.close()
    wait_for(lambda: answers(headgate), what="the admin port to answer again")


def answers(headgate):
    with headgate.admin() as admin:
        try:
            return admin("PING") == PONG
        except (Closed, ConnectionError):
            return False


def test_redis_cli(headgate):
    result = subprocess.run(
        ["redis-cli", "-p", str(headgate.admin_port), "STATS"], capture_output=True, text=True, timeout=10
    )
    assert result.returncode == 0
    assert "# Server" in result.stdout and "clients_connected:" in result.stdout


def test_no_admin_port(redis, make_headgate):
    headgate = make_headgate(redis, admin="")
    with headgate.connect() as client:
        assert client("PING") == PONG
    with pytest.raises(OSError):
        headgate.admin()


def test_the_admin_port_answers_while_redis_is_away(redis, headgate, admin):
    redis.kill()
    for verb in ("PING", "STATS", "CLIENTS", "LANES", "CONFIG", "HELP"):
        assert not isinstance(admin(verb), Error), verb
