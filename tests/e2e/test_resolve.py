"""The name of Redis: looked up again and again, with several addresses or none, and what becomes of connections then."""

import signal
import time

import pytest

from harness.admin import stats, text
from harness.names import Names
from harness.resp import OK, PONG, Closed, encode, wait_for
from harness.servers import free_port

NAME = "redis.headgate.test"
OFTEN = {"resolve_every": "100ms"}
SELDOM = {"resolve_every": "1d"}


@pytest.fixture
def names(tmp_path):
    return Names(tmp_path)


@pytest.fixture
def places(make_redis):
    """Three servers at one port of three addresses, that say who they are."""
    port = free_port()
    servers = [make_redis(port=port, host=f"127.0.0.{number}") for number in (2, 3, 4)]
    for server in servers:
        with server.connect() as direct:
            direct("SET", "who", server.host)
    return servers


@pytest.fixture
def make_named(names, places, make_headgate):
    """Headgates before the name, with the options given."""

    def make(pool="shared", **options):
        headgate = make_headgate(f"{NAME}:{places[0].port}", pool=pool, start=False, **options)
        headgate.environment = names.environment()
        headgate.start()
        return headgate

    return make


def who(client):
    return client("GET", "who").decode()


def upstream(headgate, name):
    return int(stats(headgate, "upstream")[name])


def await_server(headgate, server):
    """Until those who come are at that server."""

    def is_there():
        with headgate.connect() as client:
            return who(client) == server.host

    wait_for(is_there, 30, f"{server.host}")


# ---- the name moves ----


def test_the_name_gets_another_address(names, places, make_named, pool):
    """The old server goes on: nothing breaks, and yet nobody stays there."""
    names.set(NAME, places[0].host)
    headgate = make_named(pool, threads=4, retire_timeout="1s", **OFTEN)
    clients = [headgate.connect() for _ in range(8)]
    assert {who(client) for client in clients} == {places[0].host}
    names.set(NAME, places[1].host)
    await_server(headgate, places[1])

    def moved():
        for number, client in enumerate(clients):
            try:
                if who(client) != places[1].host:
                    return False
            except Closed:
                # In `session` a connection is its client's for life; who is closed connects anew.
                assert pool == "session"
                clients[number] = headgate.connect()
                return False
        return True

    wait_for(moved, 30, "all to be there")
    with places[0].connect() as direct:
        wait_for(lambda: b"connected_clients:1\r" in direct("INFO", "clients"), 30, "the old server to be left")
    assert upstream(headgate, "lanes_retired_total") >= 1


def test_nobody_notices_in_shared(names, places, make_named):
    """Requests go on all the time, ordinary ones and transactions, while the name goes to and fro."""
    names.set(NAME, places[0].host)
    headgate = make_named(**OFTEN)
    clients = [headgate.connect() for _ in range(4)]
    seen = set()
    until = time.monotonic() + 120
    turn = 0
    while turn < 12 or len(seen) < 3:
        assert time.monotonic() < until, seen
        names.set(NAME, places[turn % 3].host)
        turn += 1
        for number in range(40):
            word = b"%d-%d" % (turn, number)
            for client in clients:
                client.send(encode("ECHO", word) * 3 + encode("MULTI") + encode("GET", "who") + encode("EXEC"))
            for client in clients:
                *echoes, multi, _, (server,) = client.read_many(6)
                assert echoes == [word] * 3 and multi == OK
                seen.add(server)
            time.sleep(0.005)
    assert int(stats(headgate)["requests_lost_total"]) == 0
    assert upstream(headgate, "lanes_lost_total") == 0


def test_a_transaction_ends_where_it_began(names, places, make_named):
    names.set(NAME, places[0].host)
    headgate = make_named(**OFTEN)
    client = headgate.connect()
    assert client("WATCH", "who") == OK
    names.set(NAME, places[1].host)
    await_server(headgate, places[1])
    assert client("MULTI") == OK
    client("GET", "who")
    assert client("EXEC") == [places[0].host.encode()]
    wait_for(lambda: who(client) == places[1].host, what="the client to be at the new one")
    assert client("PING") == PONG


@pytest.mark.parametrize("request_", (("SUBSCRIBE", "a"), ("BLPOP", "k", 0)), ids=lambda words: words[0])
def test_who_would_wait_in_vain_is_closed(names, places, make_named, pool, request_):
    names.set(NAME, places[0].host)
    headgate = make_named(pool, retire_timeout="1s", **OFTEN)
    client = headgate.connect()
    assert who(client) == places[0].host
    client.request(*request_)
    if request_[0] == "SUBSCRIBE":
        client.read()
    names.set(NAME, places[1].host)
    wait_for(lambda: upstream(headgate, "lanes_retired_total") >= 1, 30, "the lane to be retired")
    client.assert_closed()


def test_an_address_that_comes_back_is_none_that_was_left(names, places, make_named):
    """Names whose answers change by chance close nobody."""
    names.set(NAME, places[0].host)
    headgate = make_named(retire_timeout="3s", **OFTEN)
    client = headgate.connect()
    client("SUBSCRIBE", "a")
    for number in range(8):
        names.set(NAME, places[1 - number % 2].host)
        await_server(headgate, places[1 - number % 2])
        time.sleep(0.4)
    names.set(NAME, f"{places[0].host} {places[1].host}")
    time.sleep(4)
    with places[0].connect() as direct:
        assert direct("PUBLISH", "a", "m") == 1
    assert client.read() == [b"message", b"a", b"m"]


# ---- when it is looked up ----


def test_it_is_looked_up_when_the_server_is_gone(names, places, make_named, pool):
    """However seldom it is looked up otherwise."""
    names.set(NAME, places[0].host)
    headgate = make_named(pool, upstream_wait="20s", **SELDOM)
    client = headgate.connect()
    assert who(client) == places[0].host
    names.set(NAME, places[1].host)
    places[0].kill()
    # Before Headgate sees it, a request would be under way there, and lost with its client.
    wait_for(lambda: headgate.told("GET", "who") == places[1].host.encode(), 30, "the other one")
    if pool == "session":
        client.assert_closed()
    else:
        assert who(client) == places[1].host


# ---- several addresses ----


def test_one_that_does_not_answer_is_passed_over(names, places, make_named):
    """It takes connections, and says nothing."""
    places[0].signal(signal.SIGSTOP)
    names.set(NAME, f"{places[0].host} {places[1].host}")
    headgate = make_named(connect_timeout="4s", upstream_wait="20s", reconnect_min="60s", reconnect_max="60s", **SELDOM)
    with headgate.connect() as client:
        assert who(client) == places[1].host


# ---- no address ----


@pytest.mark.parametrize("answer", ("!", "?"))
def test_a_name_that_has_no_address_at_start(names, places, make_named, pool, answer):
    names.set(NAME, answer)
    headgate = make_named(pool, upstream_wait="300ms", **SELDOM)
    wait_for(lambda: f"cannot look up {NAME}" in headgate.log(), 30, "it to be said")
    with headgate.connect() as client:
        assert b"no connection to Redis" in client("GET", "who") if pool == "shared" else True
    names.set(NAME, places[0].host)
    wait_for(lambda: answers(headgate, places[0]), 30, "the server")


def test_a_name_that_leads_to_headgate_itself(names, make_headgate, pool):
    """It would connect to itself until descriptors are gone."""
    names.set(NAME, "127.0.0.1")
    headgate = make_headgate("127.0.0.1:1", pool=pool, start=False, upstream_wait="300ms", **OFTEN)
    headgate.environment = names.environment()
    headgate.write_config(listen=f"0.0.0.0:{headgate.port}", upstream=f"{NAME}:{headgate.port}")
    headgate.start()
    wait_for(lambda: "it leads to Headgate itself" in headgate.log(), 30, "it to be said")
    time.sleep(1)
    assert upstream(headgate, "lanes_opened_total") == 0
    assert headgate.log().count("leads to Headgate") <= 2


def answers(headgate, server):
    return headgate.told("GET", "who") == server.host.encode()


def test_a_resolver_that_fails_takes_nothing_away(names, places, make_named, pool):
    names.set(NAME, places[0].host)
    headgate = make_named(pool, **OFTEN)
    client, subscriber = headgate.connect(), headgate.connect()
    subscriber("SUBSCRIBE", "a")
    for answer in ("!", "?"):
        names.set(NAME, answer)
        before = upstream(headgate, "lookups_failed_total")
        wait_for(lambda: upstream(headgate, "lookups_failed_total") > before + 1, 30, "lookups that fail")
        assert who(client) == places[0].host
        with headgate.connect() as other:
            assert other("MULTI") == OK and other("PING") and other("EXEC")
    assert headgate.log().count("cannot look up") == 1
    assert client("PUBLISH", "a", "m") == 1
    assert subscriber.read() == [b"message", b"a", b"m"]
    # Nor is the server lost when it starts again, while the resolver is away.
    places[0].restart()
    wait_for(headgate.serves, 30, "the server")
    names.set(NAME, places[0].host)
    wait_for(lambda: "can be looked up again" in headgate.log(), 30, "the resolver")


def test_a_slow_resolver_holds_nobody_up(names, places, make_named):
    names.set(NAME, places[0].host)
    headgate = make_named(**OFTEN)
    client = headgate.connect()
    assert who(client) == places[0].host
    # Whoever waits for that has no answer in the time that a test's client has.
    names.set(NAME, f"~100000 {places[0].host}")
    time.sleep(0.5)
    for _ in range(5):
        assert who(client) == places[0].host
        with headgate.connect() as other:
            assert other("MULTI") == OK
    with headgate.admin() as admin:
        assert text(admin("LANES"))


def test_an_end_does_not_wait_for_the_resolver(names, places, make_named):
    names.set(NAME, f"~100000 {places[0].host}")
    headgate = make_named()
    headgate.terminate()
    assert headgate.process.returncode == 0


def test_the_server_for_statistics_moves(redis, names, places, make_headgate):
    names.set(NAME, places[0].host)
    headgate = make_headgate(redis, start=False, **OFTEN)
    headgate.environment = names.environment()
    headgate.write_rules(f"[latency]\nenabled = on\nflush = 1s\nupstream = {NAME}:{places[0].port}\n")
    headgate.start()
    client = headgate.connect()

    def measured(server):
        client("GET", "k")
        with server.connect() as direct:
            return len(direct("KEYS", "headgate:statistics_get*")) > 0

    wait_for(lambda: measured(places[0]), 30, "figures at the first")
    names.set(NAME, places[1].host)
    wait_for(lambda: measured(places[1]), 30, "figures at the second")
    with places[0].connect() as direct:
        wait_for(lambda: b"connected_clients:1\r" in direct("INFO", "clients"), 30, "the old server to be left")
