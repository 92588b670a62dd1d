"""HTTP against who means harm: other sites, wrong names and passwords, garbage, slow and many connections."""

import contextlib
import http.client
import itertools
import os
import socket
import time

import pytest

from harness.admin import stats
from harness.http import TIMEOUT, ask, basic, start_with_http, stats_json
from harness.resp import PONG, wait_for
from harness.servers import Redis

PATHS = ("/", "/metrics", "/stats.json", "/counters.json")


def raw(headgate):
    return socket.create_connection(("127.0.0.1", headgate.http_port), timeout=TIMEOUT)


def rest_of(client):
    """All that comes until the other end closes; a reset is an end, too."""
    told = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(65536):
            told += more
    return told


def say(headgate, data):
    with raw(headgate) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
        return rest_of(client)


def is_well(headgate):
    """It answers, and serves clients."""
    with headgate.connect() as client:
        assert client("PING") == PONG
    assert ask(headgate, "/live").status == 200
    return True


OTHER_SITES = [
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1"},  # another port is another site
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    {"Host": "evil.example:6391"}, {"Host": "localhost.evil.example"}, {"Host": "127.0.0.1.evil.example"}, {"Host": ""},
]


def test_other_sites_are_refused(http_of_file):
    for headers, path in itertools.product(OTHER_SITES, PATHS):
        assert ask(http_of_file, path, headers=headers).status == 403, (headers, path)
    for first in (b"GET /stats.json HTTP/1.1\r\nHost: localhost\r\n", b"GET http://evil.example/stats.json HTTP/1.1\r\n"):
        assert b" 403 " in say(http_of_file, first + b"Host: 127.0.0.1\r\n\r\n")[:40], first
    head = b"GET /live HTTP/1.0\r\nHost: localhost\r\n"
    for line in (b"Origin: http://localhost\r\n", b"Sec-Fetch-Site: none\r\n"):
        assert b" 200 " in say(http_of_file, head + line + b"\r\n")[:40], line
        assert b" 403 " in say(http_of_file, head + 2 * line + b"\r\n")[:40], "two of them are none"


@pytest.fixture(scope="module")
def http_of_file(shared_redis):
    headgate = start_with_http(shared_redis)
    yield headgate
    headgate.finish()


@pytest.fixture(scope="module")
def shared_redis():
    redis = Redis()
    yield redis
    redis.discard()


def test_a_link_leads_to_the_page_and_nowhere_else(http_of_file):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask(http_of_file, "/", headers=link).status == 200
    assert ask(http_of_file, "/stats.json", headers=link).status == 403


def test_own_names_and_numbers_are_served(http_of_file):
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:6391", "[::1]:80", "10.0.0.1", "192.0.2.7:1"):
        assert ask(http_of_file, "/stats.json", headers={"Host": host}).status == 200
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert ask(http_of_file, "/stats.json", headers=headers).status == 200, host


def test_nothing_can_be_changed(http_of_file):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
        answer = ask(http_of_file, "/stats.json", method=method, body=b"x" if method in ("POST", "PUT") else None)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD"), method


def test_password(started, redis):
    headgate = started(redis, admin_password="hush:hush")
    for path in PATHS:
        refused = ask(headgate, path)
        assert (refused.status, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        assert ask(headgate, path, headers=basic("hush:hush")).status == 200
    for path in ("/live", "/ready"):
        assert ask(headgate, path).status in (200, 503)


def test_wrong_password(started, redis):
    headgate = started(redis, admin_password="hush")
    for value in ("", " ", " x", " ====", " aHVzaA==", " " + "A" * 4096, " OmhusA=="):
        assert ask(headgate, "/stats.json", headers={"Authorization": "Basic" + value}).status == 401, value
    assert ask(headgate, "/stats.json", headers={"Authorization": "Bearer hush"}).status == 401
    for wrong in ("", "hus", "hushh", "HUSH", "hush\0x"):
        assert ask(headgate, "/stats.json", headers=basic(wrong)).status == 401, wrong
    assert is_well(headgate)
    assert "hush" not in headgate.log()


def test_password_that_changes(started, redis):
    headgate = started(redis, admin_password="old")
    kept = http.client.HTTPConnection("127.0.0.1", headgate.http_port, timeout=TIMEOUT)
    assert ask(headgate, "/counters.json", headers=basic("old"), connection=kept).status == 200
    headgate.write_config(admin_password="new")
    headgate.signal(1)
    headgate.await_log("the configuration was reloaded")
    assert ask(headgate, "/counters.json", headers=basic("old"), connection=kept).status == 401
    assert ask(headgate, "/counters.json", headers=basic("new")).status == 200


def test_long_bodies_are_not_taken(http_of_file):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    before = http_of_file.rss()
    assert b" 413 " in say(http_of_file, head + b"x" * 1_000_000)[:40]
    assert http_of_file.rss() < before + (8 << 20)


def test_hundreds_of_idle_connections_keep_nobody_out(started, redis):
    headgate = started(redis)
    files_before = count_files(headgate)
    idle = []
    for _ in range(400):
        idle.append(raw(headgate))
        if len(idle) % 100 == 0:
            assert is_well(headgate)
    assert is_well(headgate)
    wait_for(lambda: count_files(headgate) <= files_before + 80, what="the idle ones to be closed")
    for client in idle:
        client.close()
    wait_for(lambda: count_files(headgate) <= files_before + 2, what="all to be closed")


def count_files(headgate):
    return len(os.listdir(f"/proc/{headgate.process.pid}/fd"))


def test_who_sends_a_byte_now_and_then_is_ended(started, redis):
    headgate = started(redis)
    with raw(headgate) as slow:
        begun = time.monotonic()
        slow.sendall(b"GET /live HTTP/1.1\r\nX: ")
        slow.settimeout(0.5)
        ended = False
        while not ended and time.monotonic() - begun < 60:
            try:
                slow.sendall(b"y")
                ended = slow.recv(1) == b""
            except TimeoutError:
                pass
            except OSError:
                ended = True
        assert ended and is_well(headgate)


def test_probes_are_answered_though_all_read_nothing(started, redis):
    headgate = started(redis)
    lazy = []
    for _ in range(70):
        client = raw(headgate)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        lazy.append(client)
    for path in ("/live", "/ready", "/live"):
        assert ask(headgate, path).status == 200
    headgate.await_log("ended a connection for another one")
    assert count_files(headgate) < 64 + 40, "they are no more than before"
    for client in lazy:
        client.close()


def test_a_hung_redis_holds_nothing_up(started, redis):
    headgate = started(redis)
    with headgate.connect() as client:
        assert client("PING") == PONG
        redis.signal(19)
        client.send(b"GET k\r\n")
        begun = time.monotonic()
        shown = stats_json(headgate)
        assert shown["clients"]["count"] == 1
        assert ask(headgate, "/metrics").status == 200
        assert time.monotonic() - begun < 20
        redis.signal(18)
        assert client.read() is None
    assert int(stats(headgate)["requests_lost_total"]) == 0
