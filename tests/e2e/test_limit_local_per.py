"""[limit:NAME] with scope = local: whose requests are counted together, and which are counted at all."""

import pytest

from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import KIB_300, admitted, refuses, rule, spend
from harness.resp import OK, PONG, Client, Status


# ---- per ----


def client_of(headgate, user=None, name=None, source="127.0.0.1"):
    client = connect_from(headgate, source)
    assert user is None or client("AUTH", user, "secret") == OK
    assert name is None or client("CLIENT", "SETNAME", name) == OK
    return client


# Who share five requests with the first one, and who do not.
SHARING = {
    "ip": ([{}, {"user": "alice"}], [{"source": "127.0.0.2"}, {"source": "127.1.0.1"}]),
    "ip/9": ([{"source": "127.127.255.254"}], [{"source": "127.128.0.1"}]),
    "user": ([{"name": "web", "source": "127.0.0.2"}], [{"user": "alice"}, {"user": "bob"}]),
    "name": ([{"user": "alice"}], [{"name": "web"}, {"name": "Web"}]),
    "ip+name": ([{"user": "bob"}], [{"name": "web"}, {"source": "127.0.0.2"}]),
    "connection": ([], [{}, {"user": "alice"}]),
}


@pytest.mark.parametrize("per", SHARING)
def test_who_is_counted_together(make, redis, per):
    headgate = make(rule(limit=5, per=per))
    add_users(redis, "alice", "bob")
    same, others = SHARING[per]
    first = client_of(headgate)
    assert spend(first, count=2) == 2
    assert sum(spend(client_of(headgate, **who)) for who in same) + spend(first) == 3
    assert [(spend(client_of(headgate, **who)), spend(first)) for who in others] == [(5, 0)] * len(others)


def test_all_clients_of_a_unix_socket_are_one(make_shared, tmp_path):
    path = tmp_path / "headgate.sock"
    headgate = make_shared(rule(per="ip", limit=5), listen=f"unix:{path}")
    with Client(path) as first, Client(path) as second:
        assert spend(first, count=3) == 3
        assert spend(second) == 2
    assert spend(headgate.connect()) == 5


def test_the_user_changes(make, redis):
    """What follows AUTH counts for the new user, though it was sent before anybody knew that AUTH would be right."""
    headgate = make(rule(per="user", limit=5))
    add_users(redis, "alice", "bob", "carol")
    client = authenticated(headgate, "alice")
    assert spend(client, count=4) == 4
    commands = [("AUTH", "bob", "secret"), *[("INCR", "n")] * 6, ("AUTH", "alice", "wrong"), ("INCR", "n")]
    commands += [("AUTH", "alice", "secret"), *[("INCR", "n")] * 2]
    replies = client.pipeline(commands)
    assert replies[0] == replies[9] == OK and replies[7].startswith(b"WRONGPASS")
    assert [not refuses(reply) for reply in replies[1:7]] == [True] * 5 + [False], "bob has five"
    assert refuses(replies[8]), "still bob"
    assert [refuses(reply) for reply in replies[10:]] == [False, True], "alice has one left"
    client("HELLO", 3, "AUTH", "carol", "secret")
    assert spend(client) == 5
    assert client("RESET") == Status(b"RESET")
    assert spend(client) == 5, "of the default user"


def test_the_name_changes_within_a_pipeline(make):
    client = named(make(rule(per="name", limit=5)), "one")
    assert spend(client, count=3) == 3
    replies = client.pipeline([("CLIENT", "SETNAME", "two"), *[("INCR", "n")] * 7, ("CLIENT", "SETNAME", "one")])
    assert replies[0] == replies[8] == OK and admitted(replies[1:8]) == 5
    assert spend(client, count=1) == 1
    client("HELLO", 3, "SETNAME", "three")
    assert spend(client) == 5
    assert client("CLIENT", "SETNAME", "one") == OK
    assert spend(client) == 1


def test_per_connection(make, redis):
    headgate = make(rule(per="connection", limit=5))
    add_users(redis, "alice")
    first, second = headgate.connect(), headgate.connect()
    assert spend(first) == 5
    assert spend(second) == 5
    assert client_is_somebody_else(first) and spend(first) == 0, "whoever it says it is, it is the same connection"
    first.close()
    assert spend(headgate.connect()) == 5


def client_is_somebody_else(client):
    """Changes all that a client can change, its lane to Redis among it."""
    commands = [("RESET",), ("AUTH", "alice", "secret"), ("CLIENT", "SETNAME", "x"), ("SELECT", 3)]
    return client.pipeline([*commands, ("MULTI",), ("EXEC",)])[1:] == [OK, OK, OK, OK, []]


def test_per_all(make, redis):
    headgate = make(rule(per="all", limit=5), threads=4)
    add_users(redis, "alice")
    clients = [headgate.connect(), connect_from(headgate, "127.0.0.2"), named(headgate, "x")]
    clients.append(authenticated(headgate, "alice"))
    assert [spend(client, "INCR", f"k{n}", count=1) for n, client in enumerate(clients)] == [1, 1, 1, 1]
    assert [spend(client) for client in clients] == [1, 0, 0, 0]


# ---- keys ----


def test_per_key(make):
    """A request counts for each of its distinct keys, and all of them must admit it."""
    headgate = make(rule(per="key", limit=5, commands="*"))
    client = headgate.connect()
    assert spend(client, "GET", "k1", count=2) == 2
    assert spend(headgate.connect(), "MGET", "k1", "k1", "k2", "k1") == 3, "k1 had three left"
    assert refuses(client("MGET", "k3", "k1", "k4"))
    assert spend(client, "GET", "k2") == 2
    assert spend(client, "GET", "k3") == 5, "a refused request was counted"
    assert spend(client, "MGET", "k4", "k5") == 5
    assert spend(client, "GET", "k5") == 0


def test_a_part_of_the_key(make):
    headgate = make(rule(per="key", keys="user:{*}:*", limit=5, commands="get mget"))
    client = headgate.connect()
    assert spend(client, "GET", "user:1:name", count=2) == 2
    assert spend(headgate.connect(), "GET", "user:1:mail", count=1) == 1
    assert spend(client, "MGET", "user:1:a", "user:1:b", "user:2:a", "user:1:c") == 2, "once for each id"
    assert spend(client, "GET", "user:2:x") == 3
    assert spend(client, "GET", "user:3:x:y:z") == 5
    assert spend(client, "GET", "user:3:q") == 0, "the shortest match counts"
    assert spend(client, "GET", "user:3:x:other") == 0
    for key in ("user:1", "users:1:a", "other"):
        assert spend(client, "GET", key) == 10, "such a key is not meant"
    assert spend(client, "MGET", "other", "user:4:a") == 5


def test_keys_choose_requests_whatever_is_counted(make):
    client = make(rule(per="ip", keys="hot:* *:slow", limit=5, commands="*")).connect()
    assert spend(client, "GET", "cold") == 10
    assert spend(client, "PING") == 10
    assert spend(client, "MGET", "cold", "hot:1", "hot:2", count=2) == 2, "one request counts once"
    assert spend(client, "EVAL", "return 1", 1, "cold", "hot:1") == 10, "that is an argument, not a key"
    assert spend(client, "EVAL", "return 1", 2, "cold", "a:slow", count=1) == 1
    assert spend(client, "SET", "hot:2", "v") == 2
    assert spend(client, "GET", "a:slow") == 0


def test_the_key_of_a_long_request(make, redis):
    client = make(rule(per="key", keys="user:{*}:*", limit=2, commands="set")).connect()
    value = "x" * KIB_300
    assert spend(client, "SET", "user:1:a", value, count=1) == 1
    assert spend(client, "SET", "user:1:b", "short", count=1) == 1
    assert refuses(client("SET", "user:1:c", value))
    assert client("SET", "user:2:c", value) == OK
    assert redis.connect()("EXISTS", "user:1:a", "user:1:b", "user:1:c", "user:2:c") == 3


# ---- commands and clients ----


def test_all_commands_are_the_default(make):
    """The words that every client says when it connects are not looked at here."""
    client = make(rule(commands=None, per="connection", limit=4)).connect()
    replies = client.pipeline([("SET", "n", 1), ("PING",), ("NO.SUCH", "x"), ("GET", "n"), ("GET", "n"), ("PING",)])
    assert replies[:2] == [OK, PONG] and replies[2].startswith(b"ERR unknown command") and replies[3] == b"1"
    assert refuses(replies[4]) and refuses(replies[5])


def test_except(make, redis):
    """Who is excepted is not refused, and takes nothing from the others."""
    headgate = make(rule(per="all", limit=5, except_="name:operator* user:admin ip:127.0.0.8/30"))
    add_users(redis, "admin")
    assert spend(named(headgate, "operator-1")) == 10
    assert spend(authenticated(headgate, "admin")) == 10
    assert spend(connect_from(headgate, "127.0.0.9")) == 10
    client = named(headgate, "worker")
    assert spend(client) == 5
    assert client("CLIENT", "SETNAME", "operator-2") == OK
    assert spend(client) == 10
    assert spend(connect_from(headgate, "127.0.0.12")) == 0
