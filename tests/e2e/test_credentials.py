"""Passwords that change, and users that go, while their clients are there: as without Headgate, as far as it can be."""

import time

import pytest

from harness.admin import await_ended, stats
from harness.resp import OK, PONG, QUEUED, Closed, Error, Map, wait_for
from harness.threads import at_once

WRONGPASS = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
PATIENCE = 30
CLIENTS = 8


@pytest.fixture
def headgate(redis, pool, make_headgate):
    # Who is many before few connections waits for one, and longer on a slow machine: none is to be given up.
    return make_headgate(redis, pool=pool, threads=4, upstream_wait="60s")


@pytest.fixture
def admin(redis):
    """An operator at Redis itself."""
    with redis.connect() as client:
        add_user(client, "old")
        assert client("ACL", "LOG", "RESET") == OK
        yield client


def add_user(admin, *passwords):
    words = [f">{password}" for password in passwords]
    assert admin("ACL", "SETUSER", "app", "on", *words, "~*", "&*", "+@all") == OK


def rotate(admin):
    assert admin("ACL", "SETUSER", "app", ">new", "<old") == OK


def refusals(admin):
    entries = [dict(zip(entry[::2], entry[1::2])) for entry in admin("ACL", "LOG")]
    return sum(entry[b"count"] for entry in entries if entry[b"reason"] == b"auth")


def clients_of(headgate, count=CLIENTS, password="old"):
    clients = [headgate.connect() for _ in range(count)]
    for client in clients:
        assert client("AUTH", "app", password) == OK
        assert client("PING") == PONG
    return clients


def workers(headgate):
    return int(headgate.options["threads"])


def does_everything(client, number):
    """What shares a lane, and what needs one of its own."""
    key = f"k{number}"
    assert client("SET", key, number) == OK
    assert client("EVAL", "return redis.call('GET', KEYS[1])", 1, key) == b"%d" % number
    assert client.pipeline([("MULTI",), ("GET", key), ("EXEC",)]) == [OK, QUEUED, [b"%d" % number]]
    assert client("BLPOP", f"none{number}", "0.01") is not None
    assert client("WATCH", key) == OK and client("UNWATCH") == OK
    assert client("ACL", "WHOAMI") == b"app"


STATE = ("CLIENT", "SETNAME", "me"), ("HELLO", 3), ("SELECT", 3)
BEFORE = [], *([command] for command in STATE), STATE


def is_as_before(client, before):
    named, resp3 = ("CLIENT", "SETNAME", "me") in before, ("HELLO", 3) in before
    assert client("ACL", "WHOAMI") == b"app"
    assert client("CLIENT", "GETNAME") == (b"me" if named else client("GET", "none"))
    assert isinstance(client("HGETALL", "none"), Map if resp3 else list)
    line = dict(word.split(b"=", 1) for word in client("CLIENT", "INFO").split())
    assert line[b"db"] == (b"3" if ("SELECT", 3) in before else b"0")
    return True


def test_a_new_password_is_taken(headgate, admin):
    clients = list(zip(clients_of(headgate, 10), BEFORE * 2))
    for client, before in clients:
        client.pipeline(before)
    rotate(admin)
    for client, before in clients:
        assert client("AUTH", "app", "bad") == WRONGPASS
        assert client("AUTH", "app", "new") == OK
        assert client("SET", "k", 1) == OK
        assert is_as_before(client, before)
    at_once(lambda number: does_everything(clients[number][0], number), len(clients))
    # Headgate's own attempts with the old one, beside those of the clients: of each worker and version of RESP.
    assert refusals(admin) - len(clients) <= 4 * workers(headgate)


def test_who_finds_the_password_refused_first_needs_no_second_try(redis, admin, pool, make_headgate):
    """With no connection at hand, a new one is refused before the client's AUTH goes out: it goes over another one."""
    headgate = make_headgate(redis, pool=pool, exclusive_ready=0, exclusive_idle=0)
    clients = list(zip(clients_of(headgate, len(BEFORE)), BEFORE))
    for client, before in clients:
        client.pipeline(before)
    rotate(admin)
    for client, before in clients:
        assert client("AUTH", "app", "new") == OK
        assert is_as_before(client, before)


def settled(figure):
    """The figure, once it has stayed the same for three seconds."""
    seen, since = figure(), time.monotonic()
    while time.monotonic() < since + 3:
        time.sleep(0.1)
        if figure() != seen:
            seen, since = figure(), time.monotonic()
    return seen


def test_those_who_are_there_go_on(headgate, admin):
    clients = clients_of(headgate)
    rotate(admin)
    for _ in range(6):
        at_once(lambda number: does_everything(clients[number], number), CLIENTS)
    # At most those attempts that were under way when a worker's first was refused, whenever that was. One for each thing
    # that was done would be a hundred.
    assert settled(lambda: refusals(admin)) <= CLIENTS
    assert clients[0]("ACL", "WHOAMI") == b"app"


def test_those_who_were_idle_for_long_go_on(redis, admin, make_headgate):
    """Their connection is all that they have, and stays though nobody uses it."""
    headgate = make_headgate(redis, threads=2, lane_idle_timeout="200ms")
    clients = clients_of(headgate, 2)
    time.sleep(1)
    rotate(admin)
    for number, client in enumerate(clients):
        does_everything(client, number)
    for client in clients:
        client.close()
    wait_for(lambda: all(line.split(b"user=")[1][:3] != b"app" for line in admin("CLIENT", "LIST").splitlines()),
             what="the lanes of a user without clients to be closed")


def test_more_than_there_are_connections(redis, admin, make_headgate):
    """Who waits for one of its own for too long is closed, as its password opens no other. The rest go on."""
    headgate = make_headgate(redis, upstream_wait="1s", exclusive_idle=1)
    sharer, blocked, late = clients_of(headgate, 3)
    rotate(admin)
    blocked.request("BLPOP", "q", 0)
    wait_for(lambda: b"blocked_clients:1" in admin("INFO", "clients"), what="it to block")
    assert late.pipeline([("MULTI",), ("GET", "k"), ("EXEC",)]) == [OK, QUEUED, [None]]
    assert sharer("SET", "k", 1) == OK
    late.request("BLPOP", "r", 0)
    wait_for(lambda: b"blocked_clients:2" in admin("INFO", "clients"), what="both to block")
    sharer.request("GET", "k")
    sharer.assert_closed()
    assert "does not take the password of user app any more" in headgate.log()
    assert [admin("RPUSH", key, "x") for key in ("q", "r")] == [1, 1]
    assert blocked.read() == [b"q", b"x"] and late.read() == [b"r", b"x"]
    assert blocked("EVAL", "return 1", 0) == 1 and late("GET", "k") == b"1"
    assert refusals(admin) <= 2


@pytest.mark.parametrize("revoked", ("to open lanes", "to set names"))
def test_a_name_stays_with_its_client(redis, admin, make_headgate, revoked):
    """Whoever gets the connection next has none, whatever has come between the two."""
    headgate = make_headgate(redis, exclusive_ready=0, exclusive_idle=1)
    named, nameless, holder = clients_of(headgate, 3)
    assert named("CLIENT", "SETNAME", "alice") == OK
    if revoked == "to open lanes":
        assert nameless("MULTI") == holder("MULTI") == OK
        rotate(admin)
        named.request("MULTI")
        assert nameless("DISCARD") == OK and named.read() == OK and named("DISCARD") == OK
    else:
        assert named.pipeline([("MULTI",), ("EXEC",)]) == [OK, []]
        assert admin("ACL", "SETUSER", "app", "-client|setname") == OK
    assert b" name= " in nameless("CLIENT", "INFO")


def assert_gone(clients):
    for client in clients:
        with pytest.raises((Closed, ConnectionError)):
            while True:
                client.read()


@pytest.mark.parametrize("again", (False, True), ids=("deleted", "made anew"))
def test_clients_of_a_deleted_user_are_closed(headgate, admin, again):
    idle = clients_of(headgate)
    busy = clients_of(headgate)
    for client in busy:
        client.request("BLPOP", "q", 0)
    listening = clients_of(headgate)
    for client in listening:
        client.request("SUBSCRIBE", "c")
        client.read()
    others = [headgate.connect() for _ in range(CLIENTS)]
    assert [client("SET", "k", 1) for client in others] == [OK] * CLIENTS
    wait_for(lambda: b"blocked_clients:%d" % CLIENTS in admin("INFO", "clients"), what="all to block")
    assert admin("ACL", "DELUSER", "app") == 1
    if again:
        add_user(admin, "new")
    assert_gone(idle + busy + listening)
    wait_for(lambda: int(stats(headgate)["clients_connected"]) == CLIENTS, PATIENCE, "only the others to be there")
    seen = refusals(admin)
    assert seen <= 2 * workers(headgate)
    assert [client("GET", "k") for client in others] == [b"1"] * CLIENTS
    newcomer = headgate.connect()
    assert newcomer("AUTH", "app", "old") == WRONGPASS
    assert newcomer("AUTH", "app", "new") == (OK if again else WRONGPASS)
    time.sleep(1)
    assert refusals(admin) - seen == (1 if again else 2)
    assert [client("GET", "k") for client in others] == [b"1"] * CLIENTS


def test_the_configured_password_is_tried_again(redis, admin, pool, make_headgate):
    headgate = make_headgate(redis, pool=pool, upstream_user="app", upstream_password="old", upstream_wait="500ms")
    clients = [headgate.connect() for _ in range(3)]
    wait_for(lambda: [client("GET", "k") for client in clients] == [None] * 3, what="all to be served")
    rotate(admin)
    admin("ACL", "SETUSER", "other", "on", ">pw", "~*", "&*", "+@all")
    await_ended(headgate, admin("CLIENT", "KILL", "USER", "app"))
    wait_for(lambda: int(stats(headgate)["lanes_failed_total"]) > 0, what="the password to be refused")
    newcomer = headgate.connect()
    for _ in range(2):
        assert newcomer("GET", "k").startswith(b"ERR headgate: no connection to Redis at ")
    assert newcomer("AUTH", "other", "bad") == WRONGPASS
    assert newcomer("AUTH", "other", "pw") == OK
    assert newcomer("ACL", "WHOAMI") == b"other"
    assert newcomer("EVAL", "return 1", 0) == 1
    assert admin("ACL", "SETUSER", "app", ">old") == OK
    client = headgate.connect()
    wait_for(lambda: client("GET", "k") is None, PATIENCE, "it to be tried again")
    assert client("ACL", "WHOAMI") == b"app"
