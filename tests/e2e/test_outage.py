"""Redis not there, going away, hanging, refusing, answering garbage; and coming back."""

import contextlib
import re
import signal
import socket
import threading
import time

import pytest

from harness.admin import await_ended, await_outage, send_and_await, stats
from harness.fake_redis import FakeRedis
from harness.resp import OK, PONG, QUEUED, Closed, Error, encode, wait_for
from harness.servers import elapsed, free_port


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


def test_protocol_and_user_survive_a_restart(make_redis, make_headgate):
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, pool="shared")
    client, stranger = headgate.connect(), headgate.connect()
    client("HELLO", 3, "AUTH", "default", "secret")
    client("SELECT", 2)
    assert client("SET", "k", 1) == OK
    restart(redis, headgate)
    assert client("SET", "k", 1) == OK
    assert client("HGETALL", "none") == []
    assert repr(client("GET", "none")) == "NULL"
    assert b"db=2" in client("CLIENT", "INFO")
    assert is_error(stranger("GET", "k"))


def test_clients_with_requests_under_way_are_closed(redis, make_headgate, pool):
    """They cannot know what became of them; the others stay, in shared mode."""
    headgate = make_headgate(redis, pool=pool)
    idle, waiting, transaction = headgate.connect(), headgate.connect(), headgate.connect()
    assert idle("PING") == PONG
    transaction("MULTI")
    transaction("SET", "k", 1)
    waiting.request("BLPOP", "k", 0)
    with redis.connect() as observer:
        wait_for(lambda: b"blocked_clients:1" in observer("INFO", "clients"), what="the client to block")
    redis.kill()
    waiting.assert_closed()
    transaction.assert_closed()
    redis.start()
    await_service(headgate)
    if pool == "shared":
        assert idle("PING") == PONG


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


def test_so_do_pipelines_each_command_its_own(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", upstream_wait="300ms")
    client = headgate.connect()
    wait_for(lambda: client("PING") == PONG, what="Redis to be there")
    redis.kill()
    await_outage(headgate)
    client.send(b"".join(encode("SET", "k", number) for number in range(100)))
    assert all(is_error(reply) for reply in client.read_many(100))
    redis.start()
    wait_for(lambda: not is_error(client("GET", "k")), 30, "the same client to be served again")
    assert client("GET", "k") is None


@pytest.mark.parametrize("requests", [[("BLPOP", "k", 0)], [("MULTI",), ("SET", "k", 1)], [("SUBSCRIBE", "c")]])
def test_who_has_sent_all_and_waits_for_a_lane_of_its_own_is_closed(redis, make_headgate, pool, requests):
    """The lane never comes; the client has ended its input, gets its errors, and keeps no descriptor."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="200ms")
    await_service(headgate)
    redis.kill()
    await_outage(headgate)
    client = headgate.connect()
    client.send(b"".join(encode(*request) for request in requests))
    client.shutdown_write()
    for _ in requests:
        assert client.read().startswith(b"ERR headgate: no connection to Redis")
    client.assert_closed()


def test_an_error_for_want_of_a_lane_leaves_no_state(redis, make_headgate):
    """BLPOP and SUBSCRIBE that were never sent are forgotten: what comes next takes the shared lane."""
    headgate = make_headgate(redis, pool="shared", upstream_wait="200ms")
    with headgate.connect() as client:
        wait_for(lambda: client("PING") == PONG, what="Redis to be there")
        redis.kill()
        await_outage(headgate)
        for request in (("BLPOP", "k", 0), ("SUBSCRIBE", "c")):
            assert client(*request).startswith(b"ERR headgate: no connection to Redis")
        redis.start()
        wait_for(lambda: client("PING") == PONG, what="Redis to be back")
        with headgate.admin() as admin:
            assert b"lane=shared" in admin("CLIENTS")
            assert b"lane=blocking" not in admin("CLIENTS")
        assert client("SET", "k", 1) == OK


def connect_and_kill(redis, headgate, pool):
    """A client that has been served before Redis went away; in pool = session, where that one went with it, another."""
    client = headgate.connect()
    wait_for(lambda: client("PING") == PONG, what="Redis to be there")
    redis.kill()
    await_outage(headgate)
    return headgate.connect() if pool == "session" else client


PRESUMED = {
    "MULTI": ("MULTI",),
    "WATCH": ("WATCH", "k"),
    "SELECT": ("SELECT", 5),
    "AUTH": ("AUTH", "default", "any"),
    "HELLO": ("HELLO", 3),
    "RESET": ("RESET",),
    "TRACKING": ("CLIENT", "TRACKING", "ON"),
    "OPTIN": ("CLIENT", "TRACKING", "ON", "OPTIN"),
}


@pytest.mark.parametrize("presumed", PRESUMED.values(), ids=PRESUMED)
def test_who_is_refused_what_the_next_requests_count_on_is_closed(redis, make_headgate, pool, presumed):
    """They may be under way already, and come to a Redis that is back: outside of MULTI, or to another database."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="300ms")
    client = connect_and_kill(redis, headgate, pool)
    lost = int(stats(headgate)["clients_closed_lost_total"])
    client.send(encode(*presumed))
    assert client.read().startswith(b"ERR headgate: no connection to Redis")
    redis.start()
    await_service(headgate)
    with pytest.raises((Closed, ConnectionError)):
        client.send(encode("INCR", "k"))
        client.read()
    assert int(stats(headgate)["clients_closed_lost_total"]) == lost + 1
    with headgate.connect() as other:
        assert other("GET", "k") is None


LOST_IN_SILENCE = {
    "MULTI": [("MULTI",)],
    "SELECT": [("SELECT", 5)],
    "WATCH": [("WATCH", "k")],
    "TRACKING": [("CLIENT", "TRACKING", "ON")],
    "SUBSCRIBE": [("SUBSCRIBE", "c")],
    "SET": [("SET", "other", "v")],
}


@pytest.mark.parametrize("how", ("SKIP", "OFF"))
@pytest.mark.parametrize("lost", LOST_IN_SILENCE.values(), ids=LOST_IN_SILENCE)
def test_who_loses_what_has_no_answer_is_closed(redis, make_headgate, pool, how, lost):
    """It cannot be told by an error, and would go on as if it were within MULTI, say: what was meant for that would run
    by itself."""
    headgate = make_headgate(redis, pool=pool, upstream_wait="300ms")
    client = connect_and_kill(redis, headgate, pool)
    client.send(encode("CLIENT", "REPLY", how) + b"".join(encode(*request) for request in lost))
    client.send(encode("INCR", "k"))
    with pytest.raises((Closed, ConnectionError)):
        for _ in range(2):
            assert is_error(client.read())
            client.send(encode("INCR", "k"))
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


def test_redis_absent_at_start(make_headgate, make_redis, pool):
    port = free_port()
    headgate = make_headgate(f"127.0.0.1:{port}", pool=pool, upstream_wait="300ms")
    client = headgate.connect()
    assert is_error(client("GET", "k"))
    assert "connect" in headgate.log().lower()
    make_redis(port=port)
    await_service(headgate)
    wait_for(lambda: not is_error(client("GET", "k")), 30, "the early client to be served")


def test_a_request_sent_before_redis_is_there(make_headgate, make_redis, pool):
    port = free_port()
    headgate = make_headgate(f"127.0.0.1:{port}", pool=pool, upstream_wait="9s")
    client = headgate.connect()
    client.request("SET", "k", 1)
    time.sleep(0.3)
    make_redis(port=port)
    assert client.read() == OK


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


def test_redis_at_its_client_limit(make_redis, make_headgate):
    """maxclients reached: Redis says so (not by TLS) and closes; Headgate reports it and recovers when there is room."""
    redis = make_redis()
    occupant = redis.connect()
    wait_for(lambda: b"connected_clients:1\r" in occupant("INFO", "clients"), what="nobody else to be connected")
    assert occupant("CONFIG", "SET", "maxclients", "1") == OK
    headgate = make_headgate(redis, pool="shared", upstream_wait="300ms", tls=False)
    client = headgate.connect()
    assert is_error(client("GET", "k"))
    wait_for(lambda: "max number of clients" in headgate.log(), what="the reason in the log")
    assert occupant("CONFIG", "SET", "maxclients", "100") == OK
    wait_for(lambda: not is_error(client("GET", "k")), 30, "service after there is room")


@pytest.mark.parametrize("commands", ([("MULTI",), ("INCR", "k"), ("EXEC",)], [("MULTI",)]), ids=("pipelined", "alone"))
def test_no_part_of_a_transaction_that_redis_has_no_room_for(redis, make_headgate, commands):
    headgate = make_headgate(redis, pool="shared", exclusive_ready=0, upstream_wait="300ms")
    client, occupant = headgate.connect(), redis.connect()
    assert client("SET", "k", 1) == occupant("CONFIG", "SET", "maxclients", "1") == OK
    assert all(is_error(reply) for reply in client.pipeline(commands))
    client.assert_closed()
    assert occupant("GET", "k") == b"1"


BUSY = {"paused": ("CLIENT", "PAUSE", 1200, "ALL"), "asleep": ("DEBUG", "SLEEP", "1.2")}
KINDS = {"RESP2": [], "RESP3": [("HELLO", 3)], "a password": [("AUTH", "u", "pw")], "a database": [("SELECT", 5)]}


@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("server", ("direct", "shared", "session"))
def test_a_busy_redis_is_waited_for(make_redis, make_headgate, server, busy):
    """However long it takes, as the connection stands: for those, too, who need another one meanwhile."""
    redis = make_redis("--enable-debug-command", "yes")
    options = {"pool": server, "upstream_wait": "100ms", "connect_timeout": "100ms"}
    target = redis if server == "direct" else make_headgate(redis, **options)
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
@pytest.mark.parametrize("server", ("direct", "shared", "session"))
def test_what_ends_a_script_goes_through(redis, make_headgate, server, kind):
    """Of clients of all kinds, also if it comes before Redis says that it is busy; the others hear that from Redis."""
    options = {"pool": server, "exclusive_ready": 0, "upstream_wait": "100ms", "connect_timeout": "100ms"}
    target = redis if server == "direct" else make_headgate(redis, **options)
    other = redis.connect()
    assert other("CONFIG", "SET", "busy-reply-threshold", 500) == OK and other("FUNCTION", "LOAD", ENDLESS) == b"endless"
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


def test_a_wrong_upstream_password(make_redis, make_headgate, pool):
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, pool=pool, upstream_password="wrong", upstream_wait="300ms")
    client = headgate.connect()
    assert is_error(client("GET", "k"))
    wait_for(lambda: "WRONGPASS" in headgate.log(), what="the reason in the log")
    assert "wrong" not in headgate.log().replace("WRONGPASS", ""), "the password stands in the log"
    with redis.connect() as admin:
        admin("AUTH", "secret")
        admin("CONFIG", "SET", "requirepass", "wrong")
    await_service(headgate)


def test_a_hanging_redis_and_back(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool)
    client, other = headgate.connect(), headgate.connect()
    assert client("PING") == other("PING") == PONG
    redis.signal(signal.SIGSTOP)
    try:
        client.request("SET", "k", 1)
        client.assert_silent(0.5)
        with headgate.admin() as admin:
            assert admin("PING") == PONG
    finally:
        redis.signal(signal.SIGCONT)
    assert client.read() == OK
    assert other("GET", "k") == b"1"


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


def test_blocking_commands_are_no_hanging_redis(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", upstream_reply_timeout="700ms")
    client = headgate.connect()
    assert elapsed(lambda: client("BLPOP", "none", "1")) >= 1
    assert client("PING") == PONG


def test_a_redis_that_is_loading(make_headgate, fake):
    """-LOADING is Redis' own answer; it reaches the client as it is."""
    headgate = make_headgate(fake.url)
    client = headgate.connect()
    client.request("GET", "k")
    fake.expect("GET", "k").reply(b"-LOADING Redis is loading the dataset in memory\r\n")
    assert client.read() == Error(b"LOADING Redis is loading the dataset in memory")


GARBAGE = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0\r\n", b"$abc\r\n", b"*-5\r\n", b"$5\r\nhelloXX", b"garbage"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_for_a_reply(make_headgate, fake, pool, garbage):
    """The lane is closed, and whoever waited on it; new lanes serve on."""
    headgate = make_headgate(fake.url, pool=pool)
    client, idle = headgate.connect(), headgate.connect()
    idle.request("GET", "idle")
    fake.expect("GET", "idle").reply(b"+fine\r\n")
    idle.read()
    client.request("GET", "k")
    command = fake.expect("GET", "k")
    command.reply(garbage)
    client.assert_closed()
    wait_for(lambda: command.lane.closed_by_peer, what="the lane to be closed")
    if pool == "shared":
        idle.request("GET", "again")
        fake.expect("GET", "again").reply(b"+fine\r\n")
        assert idle.read() == b"fine"
    with headgate.connect() as later:
        later.request("GET", "later")
        fake.expect("GET", "later").reply(b"+fine\r\n")
        assert later.read() == b"fine"


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


def test_a_server_that_greets_and_then_talks_nonsense(make_headgate):
    """Being greeted is no sign of health: the pauses between attempts grow all the same."""
    fake = FakeRedis()
    try:
        fake.answers["COMMAND"] = lambda _lane, _arguments: b"garbage\r\n"
        headgate = make_headgate(fake.url, reconnect_min="20ms", reconnect_max="2s")
        wait_for(lambda: len(fake.lanes) >= 6, 30, "some attempts")
        lanes = len(fake.lanes)
        time.sleep(3)
        assert len(fake.lanes) - lanes < 15, "a storm of reconnections"
        assert headgate.is_alive()
    finally:
        fake.close()


def test_restarts_under_load(redis, make_headgate, pool):
    """Every reply that comes is right; a client is closed or served, never left hanging."""
    headgate = make_headgate(redis, pool=pool)
    wrong, served, ended = [], [0], threading.Event()

    def work(identity):
        while not ended.is_set():
            try:
                with headgate.connect() as client:
                    for turn in range(10_000):
                        if ended.is_set():
                            return
                        words = [b"%d-%d-%d" % (identity, turn, index) for index in range(5)]
                        client.send(b"".join(encode("ECHO", word) for word in words))
                        for word in words:
                            reply = client.read()
                            if not isinstance(reply, Error) and reply != word:
                                wrong.append((word, reply))
                            served[0] += 1
            except (Closed, ConnectionError):
                continue
            except TimeoutError:
                wrong.append((identity, "left hanging"))
                return

    threads = [threading.Thread(target=work, args=(identity,), daemon=True) for identity in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        time.sleep(0.4)
        redis.restart()
    time.sleep(0.4)
    before = served[0]
    wait_for(lambda: served[0] > before + 100, what="requests served after the last restart")
    ended.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert wrong == []
