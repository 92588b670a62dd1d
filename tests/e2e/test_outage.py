"""Redis not there, going away, hanging, refusing, answering garbage; and coming back."""

import contextlib
import re
import time

import pytest

from harness.admin import await_ended, await_outage, stats
from harness.resp import OK, PONG, QUEUED, Closed, Error, encode, wait_for


def await_service(headgate, seconds=30):
    wait_for(headgate.serves, seconds, "Headgate to serve again")


def is_error(reply):
    return isinstance(reply, Error)


def restart(redis, headgate):
    redis.kill()
    await_outage(headgate)
    redis.start()


def test_idle_clients_notice_no_restart(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    clients = [headgate.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client("CLIENT", "SETNAME", f"name-{number}")
        client("SELECT", number % 4)
        assert client("SET", "k", number) == OK
    restart(redis, headgate)
    for number, client in enumerate(clients):
        assert client("SET", "mine", number) == OK
        assert client("CLIENT", "GETNAME") == b"name-%d" % number
    with redis.connect() as observer:
        observer("SELECT", 3)
        assert observer("GET", "mine") == b"19"


def test_who_is_closed_by_redis_reads_why(redis, make_headgate, pool):
    """One line, however many there are; nothing of lanes on which nobody waited."""
    headgate = make_headgate(redis, pool=pool, access_check=0)
    idle = headgate.connect()
    assert idle("PING") == PONG
    with headgate.admin() as admin:
        wait_for(lambda: set(re.findall(rb"pending=(\d+)", admin("LANES"))) == {b"0"}, what="Headgate's own commands")
    began = time.monotonic()
    with redis.connect() as direct:
        killed = direct("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    # What is sent on a connection of which the end has not been seen yet is lost.
    assert killed > 0
    await_ended(headgate, killed)
    if pool == "shared":
        assert idle("PING") == PONG
        assert " broke: " not in headgate.log()
    idle = [headgate.connect() for _ in range(5)]
    for client in idle:
        assert client("WATCH", "k") == OK
    with redis.connect() as direct:
        assert direct("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= len(idle)
    for client in idle:
        client.assert_closed()
    # One a second.
    assert 1 <= headgate.log().count(" broke: ") <= 2 + int(time.monotonic() - began)


@pytest.mark.parametrize("request_", (("GET", "k"), ("SET", "k", b"v" * 3_000_000)), ids=("short", "long"))
def test_waiting_requests_get_an_error_in_the_end(redis, make_headgate, pool, request_):
    """However long they are; and the client goes on behind them."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="500ms")
    redis.kill()
    await_outage(headgate)
    client = headgate.connect()
    for _ in range(2):
        assert client(*request_).startswith(b"ERR headgate: no connection to Redis")
    redis.start()
    wait_for(lambda: client("GET", "k") is None, 30, "the same client to be served again")


def test_a_value_that_redis_refuses_by_its_length(make_redis, make_headgate, pool):
    """It says so, and reads no more of the connection. Through Headgate all that comes is read, too, so that the client
    finds the answer."""
    redis = make_redis("--proto-max-bulk-len", "1mb")
    headgate = make_headgate(redis, pool=pool, tls=False)
    for place in (redis, headgate):
        for _ in range(20):
            with place.connect() as client:
                with contextlib.suppress(OSError if place is redis else Closed):
                    client.send(encode("GET", "a") + encode("SET", "k", b"x" * 3_000_000) + encode("GET", "a"))
                assert client.read() is None
                assert client.read() == b"ERR Protocol error: invalid bulk length"


def connect_and_kill(redis, headgate, pool, count):
    """Clients that have been served before Redis went away; in pool = session, where they went with it, others."""
    clients = [headgate.connect() for _ in range(count)]
    for client in clients:
        wait_for(lambda client=client: client("PING") == PONG, what="Redis to be there")
    redis.kill()
    await_outage(headgate)
    return [headgate.connect() for _ in range(count)] if pool == "session" else clients


PRESUMED = [
    ("MULTI",), ("WATCH", "k"), ("SELECT", 5), ("AUTH", "default", "any"), ("HELLO", 3), ("RESET",),
    ("CLIENT", "TRACKING", "ON"), ("CLIENT", "TRACKING", "ON", "OPTIN"),
]  # fmt: skip


def test_who_is_refused_what_the_next_requests_count_on_is_closed(redis, make_headgate, pool):
    """They may be under way already, and come to a Redis that is back: outside of MULTI, or to another database."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="300ms")
    clients = connect_and_kill(redis, headgate, pool, len(PRESUMED))
    lost = int(stats(headgate)["clients_closed_lost_total"])
    for client, presumed in zip(clients, PRESUMED):
        client.send(encode(*presumed))
    for client in clients:
        assert client.read().startswith(b"ERR headgate: no connection to Redis")
    redis.start()
    await_service(headgate)
    for client, presumed in zip(clients, PRESUMED):
        with pytest.raises((Closed, ConnectionError)):
            client.send(encode("INCR", "k"))
            pytest.fail(f"{presumed}: {client.read()}")
    assert int(stats(headgate)["clients_closed_lost_total"]) == lost + len(PRESUMED)
    with headgate.connect() as other:
        assert other("GET", "k") is None


LOST_IN_SILENCE = [
    ("MULTI",), ("SELECT", 5), ("WATCH", "k"), ("CLIENT", "TRACKING", "ON"), ("SUBSCRIBE", "c"), ("SET", "other", "v"),
]  # fmt: skip


def test_who_loses_what_has_no_answer_is_closed(redis, make_headgate, pool):
    """It cannot be told by an error, and would go on as if it were within MULTI, say: what was meant for that would run
    by itself."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="300ms")
    cases = [(how, lost) for how in ("SKIP", "OFF") for lost in LOST_IN_SILENCE]
    clients = connect_and_kill(redis, headgate, pool, len(cases))
    for client, (how, lost) in zip(clients, cases):
        client.send(encode("CLIENT", "REPLY", how) + encode(*lost) + encode("INCR", "k"))
    for client, case in zip(clients, cases):
        with pytest.raises((Closed, ConnectionError)):
            for _ in range(2):
                assert is_error(client.read()), case
                client.send(encode("INCR", "k"))
            pytest.fail(f"{case} is not closed")
    redis.start()
    await_service(headgate)
    with headgate.connect() as other:
        assert other("GET", "k") is None and other("DBSIZE") == 0


def test_too_many_waiting_requests(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", upstream_wait="60s", upstream_wait_requests=10)
    client = headgate.connect()
    assert client("PING") == PONG
    redis.kill()
    await_outage(headgate)
    clients = [headgate.connect() for _ in range(30)]
    for client in clients:
        client.request("GET", "k")
    wait_for(lambda: sum(1 for client in clients if readable(client)) >= 20, 30, "the surplus to be refused at once")
    refused = [client for client in clients if readable(client)]
    assert len(refused) == 20
    assert all(is_error(client.read()) for client in refused)
    redis.start()
    for client in set(clients) - set(refused):
        assert client.read() is None


def readable(client):
    client.socket.settimeout(0.0)
    try:
        return client.socket.recv(1, 2) != b""
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(client.timeout)


BUSY = {"paused": ("CLIENT", "PAUSE", 1200, "ALL"), "asleep": ("DEBUG", "SLEEP", "1.2")}
KINDS = {"RESP2": [], "RESP3": [("HELLO", 3)], "a password": [("AUTH", "u", "pw")], "a database": [("SELECT", 5)]}


@pytest.mark.parametrize("busy", BUSY)
def test_a_busy_redis_is_waited_for(make_redis, make_headgate, pool, busy):
    """However long it takes, as the connection stands: for those, too, who need another one meanwhile."""
    redis = make_redis("--enable-debug-command", "yes")
    target = make_headgate(redis, pool=pool, upstream_wait="100ms", connect_timeout="100ms")
    other = redis.connect()
    assert other("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all") == OK
    clients = [(target.connect(), opening) for opening in KINDS.values() for _ in range(3)]
    for client, opening in clients:
        assert not any(is_error(reply) for reply in client.pipeline([*opening, ("SET", "k", 1)]))
    other.request(*BUSY[busy])
    for number, (client, _) in enumerate(clients):
        client.request(*(("GET", "k"), ("SET", "k", 1), ("MULTI",))[number % 3])
    assert [client.read() for client, _ in clients] == [b"1", OK, OK] * len(KINDS)
    assert [client.pipeline([("GET", "k"), ("EXEC",)]) for client, _ in clients[2::3]] == [[QUEUED, [b"1"]]] * len(KINDS)


LOOP = "redis.log(redis.LOG_WARNING, 'begun') while true do for _ = 1, 1000 do end redis.call('TIME') end"  # to look takes time
ENDLESS = f"#!lua name=endless\nredis.register_function('endless', function() {LOOP} end)"


@pytest.mark.parametrize("kind", ("SCRIPT", "FUNCTION"))
def test_what_ends_a_script_goes_through(redis, make_headgate, pool, kind):
    """Of clients of all kinds, also if it comes before Redis says that it is busy; the others hear that from Redis."""
    target = make_headgate(redis, pool=pool, exclusive_ready=0, upstream_wait="100ms", connect_timeout="100ms")
    other = redis.connect()
    assert other("CONFIG", "SET", "busy-reply-threshold", 1) == OK and other("FUNCTION", "LOAD", ENDLESS) == b"endless"
    assert other("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all") == OK
    assert target.connect().pipeline([("SELECT", 7), ("GET", "k")]) == [OK, None]
    for begun, opening in enumerate(KINDS.values()):
        clients = [target.connect() for _ in range(3)]
        for client in clients:
            assert not any(is_error(reply) for reply in client.pipeline([*opening, ("PING",)]))
        run = ("EVAL", LOOP, 0) if kind == "SCRIPT" else ("FCALL", "endless", 0)
        clients[0].request(*run)
        wait_for(lambda begun=begun: redis.log().count("begun") > begun, what="the script to begin")
        clients[1].request(*run)
        with target.connect() as elsewhere:
            elsewhere.send(encode("SELECT", 7) + encode("GET", "k"))
            assert clients[2](kind, "KILL") == OK and b"Script killed" in clients[0].read()
        assert clients[1].read() is not None
