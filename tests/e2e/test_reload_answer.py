"""What a reload says of itself: in its answer, the log and STATS."""

import signal
import socket
import time

import pytest

from harness.admin import text
from harness.http import ask
from harness.resp import OK, Error, encode, wait_for
from harness.servers import free_port


def stats(headgate):
    with headgate.admin() as admin:
        lines = text(admin("STATS", "reload")).split("\r\n")
    return {name: int(value) for name, value in (line.split(":") for line in lines if ":" in line)}


def reload(headgate, *words):
    with headgate.admin() as admin:
        return admin("RELOAD", *words)


def test_the_answer_says_what_is_another(redis, make_headgate):
    headgate = make_headgate(redis, reload_on_change="off", max_clients=100, admin_password="")
    headgate.write_config(max_clients=99, threads=3, upstream_password="secret", upstream_user="app")
    headgate.write_rules("[deny:all]\ncommands = flushall\n[limit:each]\nlimit = 1\nwindow = 1s\n")
    lines = text(reload(headgate, "verbose")).splitlines()
    assert "threads was changed in the file; that takes a restart, the old value stays" in lines
    for name in ("max_clients", "upstream_user", "upstream_password", "[deny:all]", "[limit:each]"):
        assert f"{name} is another now" in lines
    assert len(lines) == 6 and "secret" not in "".join(lines)
    for line in lines:
        assert f"main: {line}" in headgate.log()
    headgate.write_rules("[deny:all]\ncommands = flushdb\n")
    lines = text(reload(headgate, "VERBOSE")).splitlines()
    assert "[deny:all] is another now" in lines and "[limit:each] is another now" in lines and len(lines) == 3


@pytest.mark.threads
def test_the_answer_comes_when_all_workers_go_by_it(redis, make_headgate):
    """So that none that is asked for behind it comes too early, and each client finds what is new."""
    headgate = make_headgate(redis, reload_on_change="off", threads=3)
    clients = [headgate.connect() for _ in range(8)]
    with headgate.admin() as admin:
        admin.send(encode("RELOAD") * 20 + encode("CONFIG", "SET", "max_clients", 77) + encode("RELOAD", "VERBOSE"))
        assert admin.read_many(21) == [OK] * 21
        assert b"max_clients was set at run time" in admin.read()
        for number in range(20):
            headgate.write_rules(f"[deny:one]\ncommands = strlen\nkeys = key{number}\n")
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
            for client in clients:
                assert isinstance(client("STRLEN", f"key{number}"), Error)


def test_stats_say_when_it_was(redis, make_headgate):
    before = int(time.time())
    headgate = make_headgate(redis, reload_on_change="off")
    first = stats(headgate)
    assert before <= first["last_reload_seconds"] <= int(time.time())
    assert (first["reloads_total"], first["reload_failures_total"], first["reload_failed"]) == (0, 0, 0)

    headgate.write_config(max_clients="many")
    headgate.signal(signal.SIGHUP)
    wait_for(lambda: stats(headgate)["reload_failures_total"] == 1, what="the failure", seconds=30)
    failed = stats(headgate)
    assert (failed["reloads_total"], failed["reload_failed"]) == (0, 1)
    assert failed["last_reload_seconds"] == first["last_reload_seconds"]

    wait_for(lambda: int(time.time()) > first["last_reload_seconds"], what="the next second")
    headgate.write_config(max_clients=99)
    assert reload(headgate) == OK
    done = stats(headgate)
    assert (done["reloads_total"], done["reload_failures_total"], done["reload_failed"]) == (1, 1, 0)
    assert first["last_reload_seconds"] < done["last_reload_seconds"] <= int(time.time())


STAYS = "was changed in the file; that takes a restart, the old value stays"


def test_who_may_come_waits_with_where(redis, make_headgate):
    """The addresses become local in the file, and so password and allow are gone there: they were open to all, and are yet."""
    headgate = make_headgate(redis, start=False, reload_on_change="off")
    ports = {"listen": headgate.port, "admin": headgate.admin_port, "http": free_port()}
    headgate.http_port = ports["http"]
    headgate.write_config(**{name: f"0.0.0.0:{port}" for name, port in ports.items()}, admin_password="p", allow="ip:127.0.0.1")
    headgate.start()
    headgate.write_config(**{name: f"127.0.0.1:{port}" for name, port in ports.items()}, admin_password=None, allow=None)
    with headgate.admin() as admin:
        assert admin("AUTH", "p") == OK
        lines = text(admin("RELOAD", "VERBOSE")).splitlines()
    told = ("listen", "admin", "http", "allow (with listen)", "admin_password (with admin)")
    assert sorted(lines) == sorted(f"{name} {STAYS}" for name in told)
    with headgate.admin() as admin, socket.create_connection(headgate.address, 30, ("127.0.0.2", 0)) as stranger:
        assert admin("CLIENTS").startswith(b"NOAUTH")
        stranger.sendall(encode("PING"))
        assert stranger.recv(100).startswith(b"-DENIED")
    assert ask(headgate, "/stats.json").status == 401
    assert headgate.told("PING") == b"PONG"
