"""Listeners: several at once, of different kinds, and the PROXY protocol on those that require it."""

import re
import signal

import pytest

from harness.admin import stats, text
from harness.limits import rule
from harness.proxy_header import binary, connect, line
from harness.resp import OK, PONG, Client, Closed, wait_for
from harness.rules import reload
from harness.servers import Server, free_port, run_headgate
from harness.tls import client_context, towards_clients
from harness.tls import connect as connect_tls

PATIENCE = 20.0


def listener(name, listen, **options):
    lines = [f"[listener:{name}]", f"listen = {listen}", *(f"{key} = {value}" for key, value in options.items())]
    return "\n".join(lines) + "\n"


class Place:
    """A Headgate with a listener where the PROXY protocol is required, beside its plain one."""

    def __init__(self, make_shared, rules="", proxy_from="127.0.0.1", **options):
        self.address = ("127.0.0.1", free_port())
        self.rules = rules
        self.headgate = make_shared(self.sections(proxy_from), **options)

    def sections(self, proxy_from):
        url = f"127.0.0.1:{self.address[1]}"
        return self.rules + listener("front", url, proxy_protocol="required", proxy_from=proxy_from)

    def connect(self, header, **options):
        return connect(self.address, header, **options)

    def addresses(self):
        with self.headgate.admin() as admin:
            return re.findall(r"addr=(\S+)", text(admin("CLIENTS")))

    def counter(self, name):
        return int(stats(self.headgate, "clients")[name])


@pytest.fixture
def front(make_shared):
    return Place(make_shared)


def is_closed(client):
    with client, pytest.raises((Closed, ConnectionError)):
        client("PING")
    return True


# ---- headers where none is taken ----


@pytest.mark.parametrize("header", [line("10.1.2.3"), b"PROXY UNKNOWN\r\n", binary("2001:db8::1")])
def test_a_header_where_none_is_taken(front, header):
    """It is closed, as its client would take the error for the reply to its first request; and a line says what to set."""
    other = front.headgate.connect()
    client = connect(front.headgate.address, header + b"PING\r\n")
    address = "%s:%d" % client.socket.getsockname()
    assert is_closed(client)
    assert front.counter("proxies_unexpected_total") == 1
    (said,) = [entry for entry in front.headgate.log().splitlines() if address in entry]
    assert "PROXY header" in said and "proxy_protocol = required" in said and "proxy_from" in said
    assert other("PING") == PONG


# ---- listeners ----


def test_a_password_in_an_address_is_warned_of_and_shown_nowhere(redis, make_headgate):
    secret = "s3cr%65t"
    redis.connect()("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all")
    headgate = make_headgate(f"redis://app:{secret}@{redis.url}")
    with headgate.connect() as client:
        assert client("ACL", "WHOAMI") == b"app"
    with headgate.admin() as admin:
        shown = text(admin("CONFIG")) + text(admin("INFO"))
    for output in (headgate.log(), shown, run_headgate("-T", "-c", headgate.config_path).stdout):
        assert "s3cret" not in output and secret not in output
    warning = run_headgate("-t", "-c", headgate.config_path).stderr
    assert "upstream holds a password" in warning and "upstream_password" in warning
    headgate.await_log("upstream holds a password")


# ---- the PROXY protocol ----


@pytest.mark.threads
@pytest.mark.parametrize(
    "header, shown",
    [
        (line("192.0.2.7"), "192.0.2.7:4711"),
        (binary("192.0.2.7", more=b"\x04\xea\x60" + b"x" * 60000), "192.0.2.7:4711"),
        (binary("/run/client.sock"), "unix"),
    ],
    ids=["line", "much-more", "unix"],
)
def test_the_client_is_the_one_that_the_header_names(make_shared, header, shown):
    """Also when its requests come in the same packet, or the header byte by byte."""
    front = Place(make_shared, threads=4)
    with front.connect(header + b"*1\r\n$4\r\nPING\r\n") as client:
        assert client.read() == PONG
        assert shown in front.addresses()
        assert client("SET", "k", "v") == OK
    slow = Client(front.address)
    with slow:
        slow.send_bytewise(header[:300])
        slow.send(header[300:])
        assert slow("GET", "k") == b"v"
        assert shown in front.addresses()
    assert front.counter("clients_proxied_total") == 2
    assert front.counter("proxies_refused_total") == 0


@pytest.mark.parametrize(
    "bytes_sent, why",
    [
        (b"*1\r\n$4\r\nPING\r\n", "a Redis request without a PROXY header ahead"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS without a PROXY header ahead"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", "a PROXY line with faulty addresses or ports"),
        (binary("192.0.2.7")[:13].replace(b"\x21", b"\x31"), "a PROXY header of an unknown version or command"),
    ],
    ids=["request", "tls", "addresses", "version"],
)
def test_what_is_no_header_is_closed_at_once(front, bytes_sent, why):
    with front.connect(bytes_sent) as client, pytest.raises((Closed, ConnectionError)):
        client.read()
    assert front.counter("proxies_refused_total") == 1
    front.headgate.await_log("closed client 127.0.0.1:")
    front.headgate.await_log(why)
    assert front.headgate.serves()


def test_a_header_that_does_not_come_is_not_waited_for(front):
    """Half of one, none at all, and one whose skipped part never comes: each is closed after its time."""
    halves = [b"", b"PROXY TCP4 1.1", binary("192.0.2.7")[:20], binary("192.0.2.7", more=bytes(5000))[:-1]]
    waiting = [front.connect(half, timeout=PATIENCE) for half in halves]
    with front.connect(line("192.0.2.7")) as client:
        assert client("PING") == PONG, "nobody waits for them"
    for client in waiting:
        with client, pytest.raises((Closed, ConnectionError)):
            client.read()
    assert front.counter("proxies_refused_total") == len(halves)
    front.headgate.await_log("no whole PROXY header in time")


def test_who_ends_before_the_header_is_forgotten(front):
    """A balancer that only looks whether the port is open is no matter for the log."""
    for _ in range(20):
        Client(front.address).close()
    front.connect(b"PROXY TC").close()
    wait_for(lambda: front.counter("proxies_refused_total") == 1, what="the end to be seen")
    front.headgate.await_log("ended before a whole PROXY header")
    for _ in range(300):
        front.connect(b"GET / HTTP/1.0\r\n\r\n").close()
    wait_for(lambda: front.counter("proxies_refused_total") == 301, what="all to be counted")
    assert front.headgate.log().count("something else than a PROXY header") < 30


def test_nobody_else_is_believed(make_shared):
    """A reload changes whom; nobody who is there is closed by it."""
    front = Place(make_shared, proxy_from="10.0.0.0/8, unix")
    assert is_closed(front.connect(line("192.0.2.7")))
    front.headgate.await_log("it is not in proxy_from")
    reload(front.headgate, front.sections("127.0.0.0/8"))
    with front.connect(line("192.0.2.7")) as client:
        assert client("PING") == PONG
        reload(front.headgate, front.sections("10.0.0.0/8"))
        wait_for(lambda: is_closed(front.connect(line("192.0.2.7"))), what="nobody to be believed")
        assert client("PING") == PONG


def test_who_is_about_to_send_a_header_is_served_by_a_process_that_ends(front):
    """As who has just connected: otherwise a restart would be seen by clients of proxies."""
    header = line("192.0.2.7") + b"*1\r\n$4\r\nPING\r\n"
    with front.connect(header[:20]) as client:
        settled = front.connect(line("192.0.2.8"))
        assert settled("PING") == PONG
        front.headgate.signal(signal.SIGTERM)
        wait_for(lambda: "draining" in front.headgate.log(), what="the end to begin")
        client.send(header[20:])
        assert client.read() == PONG
        settled.close()
    assert front.headgate.wait() == 0


def test_those_who_wait_count_as_clients(make_shared):
    """Or somebody could hold more descriptors than max_clients."""
    front = Place(make_shared, max_clients=5)
    wait_for(lambda: front.counter("clients_connected") == 0, what="the look for the start to be gone")
    waiting = [front.connect(b"PROXY ") for _ in range(5)]
    with front.headgate.connect() as client:
        assert b"max number of clients" in client.read()
    for client in waiting:
        client.close()


def test_tls_begins_behind_the_header(make_shared):
    """Also in the same packet."""
    ahead = [binary("192.0.2.7", more=b"\x04\x04\x00" + bytes(1024))]
    address = ("127.0.0.1", free_port())
    rules = listener("front", f"rediss://127.0.0.1:{address[1]}", proxy_protocol="required", proxy_from="127.0.0.1")
    headgate = make_shared(rules, **towards_clients())
    with connect_tls(address, client_context(), cut=lambda data: [ahead.pop() + data] if ahead else [data]) as client:
        assert client("PING") == PONG
        with headgate.admin() as admin:
            assert "addr=192.0.2.7:4711" in text(admin("CLIENTS"))
    with connect(address, b"\x16\x03\x01\x02\x00\x01") as client, pytest.raises((Closed, ConnectionError)):
        client.read()
    headgate.await_log("TLS without a PROXY header ahead")


# ---- rules ----


def spend(client, count=6):
    replies = [client("INCR", "n") for _ in range(count)]
    return sum(isinstance(reply, int) for reply in replies)


@pytest.mark.parametrize("per", ["ip", "process"])
def test_limits_are_of_the_client_and_not_of_the_proxy(make_shared, per):
    """The process at the other end is the proxy's: who is passed on is known by its address instead."""
    front = Place(make_shared, rules=rule(limit=3, per=per))
    with front.connect(line("192.0.2.7")) as first, front.connect(binary("192.0.2.7", 5)) as same:
        assert spend(first) == 3
        assert spend(same) == 0
    with front.connect(line("192.0.2.8")) as other:
        assert spend(other) == 3


# ---- a real proxy ----


HAPROXY = """
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
listen one
    bind 127.0.0.1:{one}
    server headgate 127.0.0.1:{front} send-proxy
listen two
    bind 127.0.0.1:{two}
    server headgate 127.0.0.1:{front} send-proxy-v2 proxy-v2-options crc32c,unique-id
"""


@pytest.fixture
def haproxy(front):
    """HAProxy before the listener: where it speaks version 1, and where version 2 with what it can add to it."""
    ports = {"one": free_port(), "two": free_port()}
    server = Server("haproxy")
    config = server.directory / "haproxy.cfg"
    config.write_text(HAPROXY.format(front=front.address[1], **ports))
    server.launch(["haproxy", "-db", "-f", str(config)])
    for port in ports.values():
        server.await_port(("127.0.0.1", port))
    yield ports
    server.discard()


def test_what_haproxy_sends_is_understood(front, haproxy):
    """The client's own address, as that of its socket."""
    for port in haproxy.values():
        with Client(("127.0.0.1", port)) as client:
            assert client("SET", "k", "v" * 100_000) == OK
            assert client("GET", "k") == b"v" * 100_000
            assert "127.0.0.1:%d" % client.socket.getsockname()[1] in front.addresses()
    assert front.counter("proxies_refused_total") == 0
