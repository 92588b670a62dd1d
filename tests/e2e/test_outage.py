"""Redis not there, going away, hanging, refusing, answering garbage; and coming back."""

import contextlib
import re
import signal
import socket
import time

import pytest

from harness.admin import await_ended, await_outage, send_and_await, stats
from harness.fake_redis import FakeRedis
from harness.resp import OK, PONG, QUEUED, Closed, Error, encode, wait_for


def await_service(headgate, seconds=30):
    wait_for(headgate.serves, seconds, "Headgate to serve again")


def restart(redis, headgate):
    redis.kill()
    await_outage(headgate)
    redis.start()


def is_error(reply):
    return isinstance(reply, Error)


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


def test_requests_under_way_on_the_shared_lane_are_lost_and_only_they(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    idle = [headgate.connect() for _ in range(5)]
    busy = [headgate.connect() for _ in range(5)]
    for client in idle + busy:
        assert client("PING") == PONG
    redis.signal(signal.SIGSTOP)
    for client in busy:
        send_and_await(headgate, client, encode("GET", "k"))
    redis.kill()
    for client in busy:
        client.assert_closed()
    assert f"a connection to Redis at {headgate.options['upstream']} broke: " in headgate.log()
    assert f"whoever waited on it ({len(busy)} requests), or has it alone, is closed" in headgate.log()
    redis.start()
    for client in idle:
        assert client("GET", "k") is None


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


def test_requests_wait_for_the_reconnection(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", upstream_wait="60s")
    clients = [headgate.connect() for _ in range(10)]
    for client in clients:
        assert client("PING") == PONG
    redis.kill()
    await_outage(headgate)
    for number, client in enumerate(clients):
        client.send(encode("SET", f"k{number}", number) + encode("GET", f"k{number}"))
    time.sleep(0.5)
    redis.start()
    for number, client in enumerate(clients):
        assert client.read_many(2) == [OK, b"%d" % number]


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


def test_who_has_sent_all_and_waits_for_a_lane_of_its_own_is_closed(redis, make_headgate, pool):
    """The lane never comes; the client has ended its input, gets its errors, and keeps no descriptor."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="200ms")
    await_service(headgate)
    redis.kill()
    await_outage(headgate)
    for requests in [[("BLPOP", "k", 0)], [("MULTI",), ("SET", "k", 1)], [("SUBSCRIBE", "c")]]:
        client = headgate.connect()
        client.send(b"".join(encode(*request) for request in requests))
        client.shutdown_write()
        for request in requests:
            assert client.read().startswith(b"ERR headgate: no connection to Redis"), request
        client.assert_closed()


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


def test_what_follows_a_request_that_has_waited_too_long_goes_with_it(redis, make_headgate, pool):
    """Redis comes back when MULTI was answered by an error: INCR and EXEC, which came later, do not run by themselves."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="3s")
    client = headgate.connect()
    assert client("PING") == PONG
    redis.kill()
    await_outage(headgate)
    client = headgate.connect()
    client.send(encode("MULTI"))
    time.sleep(1)
    client.send(encode("INCR", "k") + encode("EXEC"))
    assert is_error(client.read())
    redis.start()
    for _ in range(2):
        assert client.read().startswith(b"ERR headgate: no connection to Redis")
    await_service(headgate)
    with headgate.connect() as other:
        assert other("GET", "k") is None


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


def test_an_upstream_that_drops_packets(make_headgate):
    """A listening socket whose queue is full: connecting takes for ever, and connect_timeout ends it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        headgate = make_headgate(f"127.0.0.1:{port}", connect_timeout="300ms", upstream_wait="1s")
        with headgate.connect() as client:
            assert is_error(client("GET", "k"))
        for filler in fillers:
            filler.close()


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


LOOP = "redis.log(redis.LOG_WARNING, 'begun') while true do end"
ENDLESS = f"#!lua name=endless\nredis.register_function('endless', function() {LOOP} end)"


@pytest.mark.parametrize("kind", ("SCRIPT", "FUNCTION"))
def test_what_ends_a_script_goes_through(redis, make_headgate, pool, kind):
    """Of clients of all kinds, also if it comes before Redis says that it is busy; the others hear that from Redis."""
    target = make_headgate(redis, pool=pool, exclusive_ready=0, upstream_wait="100ms", connect_timeout="100ms")
    other = redis.connect()
    assert other("CONFIG", "SET", "busy-reply-threshold", 20) == OK and other("FUNCTION", "LOAD", ENDLESS) == b"endless"
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


def test_a_redis_that_hangs_for_too_long(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", upstream_reply_timeout="500ms")
    await_service(headgate)
    client = headgate.connect()
    redis.signal(signal.SIGSTOP)
    try:
        client.request("GET", "k")
        client.assert_closed()
    finally:
        redis.signal(signal.SIGCONT)
    await_service(headgate)


GARBAGE = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0\r\n", b"$abc\r\n", b"*-5\r\n", b"$5\r\nhelloXX", b"garbage"]


def test_garbage_for_a_reply(make_headgate, fake, pool):
    """The lane is closed, and whoever waited on it; new lanes serve on."""
    headgate = make_headgate(fake.url, pool=pool)

    def is_served(client):
        client.request("GET", "fine")
        fake.expect("GET", "fine").reply(b"+fine\r\n")
        return client.read() == b"fine"

    idle = headgate.connect()
    assert is_served(idle)
    for garbage in GARBAGE:
        client = headgate.connect()
        client.request("GET", "k")
        command = fake.expect("GET", "k")
        command.reply(garbage)
        client.assert_closed()
        wait_for(lambda: command.lane.closed_by_peer, what=f"the lane to be closed behind {garbage}")
        assert is_served(idle), garbage
        with headgate.connect() as later:
            assert is_served(later), garbage


def test_garbage_for_every_hand_shake(make_headgate):
    """Something that is no Redis at all."""
    fake = FakeRedis()
    try:
        for name in ("HELLO", "AUTH", "SELECT", "CLIENT", "INFO", "COMMAND", "PING", "SCRIPT", "EVALSHA", "GET"):
            fake.answers[name] = lambda _lane, _arguments: b"220 mail.example.org ESMTP\r\n"
        headgate = make_headgate(fake.url, upstream_wait="300ms")
        with headgate.connect() as client:
            client.request("GET", "k")
            reply = client.read_until_quiet(1)
            assert reply == b"" or reply.startswith(b"-"), reply
        assert headgate.is_alive()
        lanes = len(fake.lanes)
        time.sleep(1)
        assert len(fake.lanes) - lanes < 60, "a storm of reconnections"
    finally:
        fake.close()
