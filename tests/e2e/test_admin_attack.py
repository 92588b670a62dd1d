"""What must not get through to the admin port: browsers, other users' processes, and who holds its connections."""

import contextlib
import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness.admin import audits, stats, text
from harness.resp import OK, PONG, Client, Closed, Error, encode, wait_for
from harness.servers import free_port

NOBODY = 65534
BODY = b"SHUTDOWN NOW\r\n" * 3
HEADERS = b"Host: 127.0.0.1:6390\r\nUser-Agent: Mozilla/5.0\r\nContent-Length: 42\r\n\r\n"
SESSIONS_MAX = 64
# Of these, that wait for an answer which takes its time.
HELD_MAX = 48

# Everything that could follow a password-less command; more than any table needs.
RULES = "[limit:few]\nper = ip\nlimit = 1000000\nwindow = 60s\n[lease:lock]\nkeys = lock:*\n[latency]\nenabled = on\n"

ORDERS = "RELOAD,LIMIT RESET few,limit reset few,LEASE DROP lock:1,SLOWLOG RESET,slowlog reset,BIGLOG RESET,HOTKEYS RESET"
CHANGES = [tuple(order.split()) for order in f"{ORDERS},KILL ALL,DRAIN,SHUTDOWN,SHUTDOWN NOW".split(",")]
READS = [("PING",), ("STATS",), ("CLIENTS",), ("LIMITS",), ("LEASES",), ("SLOWLOG",), ("HOTKEYS",), ("CONFIG",)]


@pytest.fixture
def headgate(redis, make_headgate):
    return make_headgate(redis, pool="shared")


def with_rules(redis, make_headgate, **options):
    headgate = make_headgate(redis, pool="shared", start=False, **options)
    headgate.write_rules(RULES)
    headgate.start()
    return headgate


# ---- browsers ----


def http(first_line):
    return first_line + b"\r\n" + HEADERS + BODY


OTHERS = [
    *(http(method + b" / HTTP/1.1") for method in b"POST GET PUT DELETE HEAD OPTIONS PATCH CONNECT TRACE PROPFIND".split()),
    http(b"post /x http/1.1"), b"\r\n\n\r\n" + http(b"POST / HTTP/1.1"), b"  \t POST / HTTP/1.1\r\n" + BODY,
    http(b'POST /" HTTP/1.1'), b"POST /\n" + BODY, b"GET /\r\n" + BODY, b"Host: localhost\r\n" + BODY,
    b"Origin: http://example.com\r\n" + BODY, http(b"SHUTDOWN / HTTP/1.1"), http(b"RELOAD HTTP/1.1"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + BODY, encode("POST", "/", "HTTP/1.1") + BODY, encode("Host:", "x") + BODY,
    http(b"GET / HTTP/1.1") + http(b"POST / HTTP/1.1"), http(b"POST\0 / HTTP/1.1"), b"\x16\x03\x01\x02\x00\x01\r\n" + BODY,
    b"\x00\x03\x00\x20\x21\x12\xa4\x42\r\n" + BODY, b"\x01\x02SSH\x7f\r\n" + BODY,
]


def test_other_protocols_are_cut_off(headgate):
    """Whole, and byte by byte."""
    client = headgate.connect()
    for data, send in itertools.product(OTHERS, (Client.send, Client.send_bytewise)):
        with headgate.admin() as admin:
            with contextlib.suppress(OSError):
                send(admin, data)
                admin.shutdown_write()
            assert b"+OK" not in admin.read_to_end(), data
        assert client("PING") == PONG, data


def test_other_protocols_are_cut_off_at_once(headgate):
    """Without waiting for more, and with one line in the log."""
    start = b"POST / HTTP/1.1\r\n"
    for data in (start, b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"\x16\x03", encode("PING") + start + b"PING\r\n"):
        with headgate.admin() as admin:
            admin.send(data)
            assert admin.read_to_end() in (b"", b"+PONG\r\n")
        with headgate.admin() as admin:
            assert admin("PING") == PONG
    wait_for(lambda: headgate.log().count("no Redis client") == 1, what="a line in the log, for all of them")


def test_words_of_http_are_arguments_still(headgate):
    """What a Redis client may well say is answered, and not cut off."""
    with headgate.admin() as admin:
        assert admin("PING", "POST / HTTP/1.1") == b"POST / HTTP/1.1"
        assert isinstance(admin("GET", "k"), Error)
        admin.send(b"GET k\r\nPING Host:\r\n")
        assert isinstance(admin.read(), Error)
        assert admin.read() == b"Host:"


# ---- other users ----

AS_NOBODY = """
import socket, sys
family, address, how, data = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, sys.argv[1:3], sys.argv[3], sys.stdin.buffer.read()
with socket.socket(family) as peer:
    peer.settimeout(20)
    peer.connect((address[0], int(address[1])))
    peer.sendall(data)
    if how == "leave":
        sys.exit(0)
    if how == "half":
        peer.shutdown(socket.SHUT_WR)
    answer = b""
    while answer.count(b"\\n") < data.count(b"*"):
        more = peer.recv(65536)
        if not more:
            break
        answer += more
sys.stdout.buffer.write(answer)
"""


def ask_as(user, address, requests, how="stay"):
    """What a process of that user gets as answers of one line each, over a connection of its own."""
    result = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, address[0], str(address[1]), how],
        input=b"".join(encode(*request) for request in requests), stdout=subprocess.PIPE, timeout=30, user=user, check=True,
    )
    return result.stdout.splitlines()


def assert_refused(line):
    assert line.startswith(b"-NOPERM "), line
    for way in (b"admin_password", b"Unix socket", b"admin_changes"):
        assert way in line, line


@pytest.mark.root
def test_other_users_change_nothing(redis, make_headgate):
    """By whatever family of addresses: the peer's socket may be one of IPv6, and ours one of IPv4."""
    port = free_port()
    headgate = with_rules(redis, make_headgate, admin=f"127.0.0.1:{free_port()}, [::1]:{port}")
    admin_port = int(headgate.options["admin"].partition(",")[0].rpartition(":")[2])
    addresses = ("127.0.0.1", admin_port), ("::1", port), ("::ffff:127.0.0.1", admin_port)
    for how, address in (("stay", addresses[0]), ("half", addresses[0]), ("stay", addresses[1]), ("stay", addresses[2])):
        lines = ask_as(NOBODY, address, CHANGES, how)
        assert len(lines) == len(CHANGES)
        for line in lines:
            assert_refused(line)
    for address in addresses:
        wait_for(lambda address=address: ask_as(0, address, [("RELOAD",)]) == [b"+OK"], what="the reload to be taken")
    with headgate.connect() as client:
        assert client("PING") == PONG


@pytest.mark.root
def test_other_users_are_not_let_in(redis, make_headgate):
    """Nor do they keep a place, or have others lose theirs."""
    headgate = with_rules(redis, make_headgate)
    requests = [*READS, ("MONITOR",), ("TRACE",), ("TOP",), ("HELLO", "3"), ("COMMAND", "DOCS"), ("NONSENSE",)]
    for line in ask_as(NOBODY, headgate.admin_address, requests):
        assert_refused(line)
    headgate.await_log(f"it is of the user with id {NOBODY}")
    assert int(stats(headgate)["admin_refused_total"]) == len(requests)
    assert b"-ERR" in ask_as(NOBODY, headgate.admin_address, [("AUTH", "x")])[0]
    assert ask_as(NOBODY, headgate.admin_address, [("QUIT",)]) == [b"+OK"]


def test_who_was_known_stays_so_without_descriptors(redis, make_headgate):
    headgate = with_rules(redis, make_headgate)
    pid = headgate.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with headgate.admin() as admin, headgate.connect() as client:
        assert admin("PING") == client("PING") == PONG
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        assert admin("CONFIG", "SET", "log_level", "debug") == OK
        assert admin("SLOWLOG", "RESET") == OK
        assert admin("KILL", "ALL") == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert audits(headgate, "KILL ALL, by 127.0.0.1:")[0].endswith(f"(uid {os.getuid()}): done")


@pytest.mark.root
def test_a_password_lets_anybody_change(redis, make_headgate):
    headgate = with_rules(redis, make_headgate, admin_password="sesame")
    requests = [("RELOAD",), ("AUTH", "wrong"), ("RELOAD",), ("AUTH", "sesame"), ("RELOAD",)]
    lines = ask_as(NOBODY, headgate.admin_address, requests)
    assert [line.split()[0] for line in lines] == [b"-NOAUTH", b"-WRONGPASS", b"-NOAUTH", b"+OK", b"+OK"]


# ---- connections that are held ----


def fill(headgate, count, data=b""):
    peers = []
    for _ in range(count):
        peers.append(headgate.admin())
        if data:
            peers[-1].send(data)
    return peers


def close_all(peers):
    for peer in peers:
        peer.close()


def test_idle_connections_make_room(headgate):
    with headgate.admin() as oldest:
        assert oldest("PING") == PONG
        peers = fill(headgate, SESSIONS_MAX - 1)
        for peer in peers:
            assert peer("PING") == PONG
        assert oldest("PING") == PONG
        # Now the first of the others has been idle longest.
        with headgate.admin() as another:
            assert another("PING") == PONG
            peers[0].assert_closed()
            assert oldest("PING") == PONG
            assert all(peer("PING") == PONG for peer in peers[1:])
    close_all(peers)


def test_who_waits_for_an_answer_keeps_its_place(redis, make_headgate):
    """REPORT waits for Redis, which does not answer. Not all places are for those who wait."""
    headgate = with_rules(redis, make_headgate)
    with headgate.admin() as admin:
        assert text(admin("REPORT", "*")) is not None
    redis.signal(signal.SIGSTOP)
    askers = fill(headgate, SESSIONS_MAX, encode("REPORT", "*"))
    for asker in askers[HELD_MAX:]:
        assert b"too many" in asker.read()
    for _ in range(2 * SESSIONS_MAX):
        with headgate.admin() as admin:
            assert admin("PING") == PONG
    redis.signal(signal.SIGCONT)
    for asker in askers[:HELD_MAX]:
        assert asker.read() is not None
    close_all(askers)


def test_without_a_password_given_connections_go_first(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="sesame")
    with headgate.admin() as oldest:
        assert oldest("AUTH", "sesame") == OK
        # Half a request keeps no place either.
        peers = fill(headgate, SESSIONS_MAX - 1, b"*2\r\n$4\r\nAU")
        more = fill(headgate, SESSIONS_MAX)
        assert oldest("PING") == PONG
        with headgate.admin() as another:
            assert another("AUTH", "sesame") == OK
            assert oldest("PING") == PONG
    close_all(peers + more)


# ---- before the password ----


def test_long_requests_are_not_held_before_the_password(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="sesame")
    with headgate.admin() as admin:
        admin.send(b"*2\r\n$4\r\nAUTH\r\n$12000\r\n" + b"x" * 5000)
        assert b"invalid bulk length" in admin.read_to_end()
    with headgate.admin() as admin:
        admin.send(b"AUTH " + b"x" * 6000)
        assert b"too long" in admin.read_to_end()
    with headgate.admin() as admin:
        assert admin("AUTH", "sesame") == OK
        assert admin("PING", "x" * 12000) == b"x" * 12000


def test_nothing_but_auth_and_quit_is_obeyed_before_the_password(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="sesame")
    with headgate.admin() as admin:
        for request in [*READS, *CHANGES, ("HELP",), ("COMMAND",), ("VERSION",), ("NONSENSE",)]:
            assert admin(*request) == Error(b"NOAUTH Authentication required."), request
        for wrong in ("", "s", "sesam", "sesame ", "sesamesesame", "Sesame", "x" * 1000):
            assert admin("AUTH", wrong).startswith(b"WRONGPASS"), wrong
        assert admin("QUIT") == OK
        admin.assert_closed()


def test_who_does_not_read_is_not_answered_for_long_before_the_password(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="sesame")
    before = headgate.rss()
    peers = []
    for _ in range(SESSIONS_MAX):
        peers.append(socket.create_connection(headgate.admin_address))
        peers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peers[-1].setblocking(False)
    for _ in range(40):
        for peer in peers:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                peer.send(b"PING\r\n" * 2000)
        time.sleep(0.01)
    grown = headgate.rss() - before
    for peer in peers:
        peer.close()
    assert grown < (24 << 20), grown
    with headgate.admin() as admin:
        try:
            assert admin("AUTH", "sesame") == OK
        except Closed:
            raise AssertionError("no way in") from None
