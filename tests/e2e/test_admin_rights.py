"""The two passwords of the admin port, and the lines that changes leave in the log."""

import os
import re

import pytest

from harness.admin import audits
from harness.http import ask, basic
from harness.resp import OK, PONG, Client, Error, wait_for

READ = {"admin_password": "all of it", "admin_read_password": "only looking"}


@pytest.fixture
def headgate(redis, make_headgate):
    return make_headgate(redis, reload_on_change="off", upstream_password="", **READ)


def test_who_only_looks_changes_nothing(headgate):
    with headgate.admin() as admin:
        assert admin("STATS") == Error(b"NOAUTH Authentication required.")
        assert admin("AUTH", "only looking") == OK
        for verb in (("STATS",), ("CLIENTS",), ("CONFIG", "GET", "*"), ("HELP",), ("SLOWLOG",)):
            assert not str(admin(*verb)).startswith("NO"), verb
        for verb in (
            ("RELOAD",), ("SHUTDOWN", "NOW"), ("CONFIG", "SET", "max_clients", "5"), ("LOGLEVEL", "debug"), ("PAUSE",),
            ("LIMIT", "RESET", "x"), ("SLOWLOG", "RESET"),
        ):
            answer = admin(*verb)
            assert isinstance(answer, Error) and bytes(answer).startswith(b"NOPERM"), verb
        assert isinstance(admin("AUTH", "wrong"), Error)
        assert isinstance(admin("LOGLEVEL", "debug"), Error)
        assert admin("LOGLEVEL") == b"info"
        assert admin("AUTH", "default", "all of it") == OK
        assert admin("LOGLEVEL", "debug") == OK
        assert admin("AUTH", "only looking") == OK
        assert isinstance(admin("LOGLEVEL", "info"), Error)
    log = headgate.log()
    assert "all of it" not in log and "only looking" not in log
    assert audits(headgate, "a wrong password was given by 127.0.0.1:")
    assert len(audits(headgate, "RELOAD, by 127.0.0.1:")) == 1
    assert "refused, as who asks may change nothing" in audits(headgate, "RELOAD")[0]


def test_both_rotate_by_a_reload(headgate):
    with headgate.admin() as there:
        assert there("AUTH", "only looking") == OK
        with headgate.admin() as admin:
            assert admin("AUTH", "all of it") == OK
            headgate.write_config(admin_read_password="another one")
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        with headgate.admin() as admin:
            assert isinstance(admin("AUTH", "only looking"), Error)
            assert admin("AUTH", "another one") == OK
            assert isinstance(admin("RELOAD"), Error)
        assert there("PING") == PONG


def test_http_may_be_looked_at_with_either(redis, started):
    headgate = started(redis, **READ)
    for password, status in (("all of it", 200), ("only looking", 200), ("", 401), ("only", 401)):
        assert ask(headgate, "/stats.json", headers=basic(password)).status == status, password
    headgate = started(redis, admin_password="all of it")
    assert ask(headgate, "/stats.json", headers=basic("")).status == 401, "nothing empty is a password"
    with headgate.admin() as admin:
        assert isinstance(admin("AUTH", ""), Error)


def test_a_change_leaves_one_line(redis, make_headgate):
    headgate = make_headgate(redis, reload_on_change="off", upstream_password="")
    with headgate.admin() as admin:
        port = admin.socket.getsockname()[1]
        who = rf"by 127\.0\.0\.1:{port} \(uid \d+\)"
        assert admin("CONFIG", "SET", "max_clients", "70", "upstream_password", "open sesame") == OK
        assert isinstance(admin("CONFIG", "SET", "max_clients", "many"), Error)
        assert isinstance(admin("CONFIG", "SET", "upstream_pasword", "open sesame"), Error)
        assert admin("PAUSE", "WRITE", "60000") == OK
        assert admin("RESUME") == OK
        assert isinstance(admin("LIMIT", "RESET", "nobody"), Error)
        assert admin("STATS").startswith(b"#") and admin("PING") == PONG
        assert isinstance(admin("LIMIT", "RESET"), Error)
        expected = [
            rf"CONFIG SET max_clients 70 upstream_password \*{{8}}, {who}: done",
            rf"CONFIG SET max_clients many, {who}: \[headgate\] max_clients = many: is not a whole number; .*",
            rf"CONFIG SET upstream_pasword \*{{8}}, {who}: .*unknown option; .*", rf"PAUSE WRITE 60000, {who}: done",
            rf"RESUME, {who}: done", rf"LIMIT RESET nobody, {who}: ERR .*",
        ]
        found = audits(headgate)
        assert len(found) == len(expected), found
        for line, pattern in zip(found, expected, strict=True):
            assert re.fullmatch(pattern, line), (line, pattern)
    assert "sesame" not in headgate.log()


def test_a_password_within_an_address_is_not_shown(headgate):
    with headgate.admin() as admin:
        assert admin("AUTH", "all of it") == OK
        for name in ("upstream", "upstraem", "listen"):
            for value in ("alice:sesame@db:6379", "redis://alice:sesame@db:6379", ":sesame@db,other:1"):
                answer = admin("CONFIG", "SET", name, value)
                assert isinstance(answer, Error) and b"sesame" not in bytes(answer), answer
            assert len(audits(headgate, f"CONFIG SET {name} ")) == 3
    assert "sesame" not in headgate.log()


UNQUOTED = [
    ("upstream_password open sesame friend", "upstream_password ********"),
    ("upstream_password open sesame", "upstream_password ********"),
    ("upstream_password open sesame friend or foe", "upstream_password ********"),
    ("UPSTREAM_PASSWORD open sesame=friend or", "UPSTREAM_PASSWORD ********"),
    ("upstream_password = open sesame friend", "upstream_password ********"),
    ("upstream_password=sesame friend", "upstream_password ********"),
    ("upstream_pasword open sesame friend", "upstream_pasword ********"),
    ("upstream_password open max_clients sesame", "upstream_password ******** ********"),
    ("upstream_password open max_clients sesame 7", "upstream_password ******** ********"),
    ("max_clients 70 upstream_password open sesame friend", "max_clients ******** upstream_password ********"),
    ("upstream redis://alice:sesame friend@db:6379 or", "upstream ********"),
    ("limit:serch.limit sesame", "limit:serch.limit ********"),
    ("limit:serch.limit=sesame friend", "limit:serch.limit ********"),
]


def test_a_secret_of_several_words_is_not_shown(headgate):
    """Nobody has quoted it, so that it came as further names and values."""
    with headgate.admin() as admin:
        assert admin("AUTH", "all of it") == OK
        for given, shown in UNQUOTED:
            answer = admin("CONFIG", "SET", *given.split())
            assert admin("CONFIG", "GET", "max_clients")[1] != b"70", "nothing was changed"
            assert isinstance(answer, Error) and b"sesame" not in bytes(answer) and b"friend" not in bytes(answer), answer
            assert audits(headgate)[-1].startswith(f"CONFIG SET {shown}, by "), audits(headgate)
    assert "sesame" not in headgate.log()


def test_who_comes_by_a_socket_is_known(redis, make_headgate, tmp_path):
    headgate = make_headgate(redis, admin=f"unix:{tmp_path}/admin.sock", reload_on_change="off")
    with Client(str(tmp_path / "admin.sock")) as admin:
        assert admin("LOGLEVEL", "debug") == OK
    assert audits(headgate, "LOGLEVEL debug, by ")[0].endswith(f"(uid {os.getuid()}, process {os.getpid()}): done")
