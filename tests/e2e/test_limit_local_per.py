"""[limit:NAME] with scope = local: whose requests are counted together, which are counted at all, and what each costs."""

import functools
import time

import pytest

from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import EXPLAINED, KIB_300, admitted, assert_never, funnel, refuses, rule, spend
from harness.resp import OK, PONG, Client, Status, encode


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


# ---- commands and clients ----


def test_all_commands_are_the_default(make):
    """The words that every client says when it connects are not looked at here."""
    client = make(rule(commands=None, per="connection", limit=4)).connect()
    replies = client.pipeline([("SET", "n", 1), ("PING",), ("NO.SUCH", "x"), ("GET", "n"), ("GET", "n"), ("PING",)])
    assert replies[:2] == [OK, PONG] and replies[2].startswith(b"ERR unknown command") and replies[3] == b"1"
    assert refuses(replies[4]) and refuses(replies[5])


# ---- cost ----


@pytest.mark.parametrize("make_rule", [functools.partial(rule, limit=12), functools.partial(funnel, capacity=12)])
def test_cost_in_keys(make_shared, make_rule):
    headgate = make_shared(make_rule(per="connection", cost="keys", commands="*"))
    commands = {
        ("GET", "a"): 1, ("MGET", "a", "b", "c"): 3, ("MSET", "a", "1", "b", "2"): 2, ("DEL", "a", "b", "c", "d", "e"): 5,
        ("ZUNIONSTORE", "{d}d", 2, "{d}a", "{d}b"): 3, ("EVAL", "return 1", 2, "a", "b", "no key"): 2,
    }
    for command, keys in commands.items():
        assert spend(headgate.connect(), *command, count=15) == 12 // keys, command


def test_all_keys_of_a_long_request_count(make):
    keys = [f"{'ab'[number % 2]}:{number:020}" for number in range(6000)]
    rules = rule(limit=7000, cost="keys", commands="mget", keys="a:*") + rule("few", limit=100, cost="keys", commands="touch")
    rules += rule("part", per="key", limit=3000, cost="keys", commands="del", keys="{*}:*")
    rules += rule("each", per="key", limit=1, commands="set mset exists") + rule("z", limit=1, keys="z*", commands="mget")
    headgate = make(rules)
    client = headgate.connect()
    assert spend(client, "MGET", *keys, count=4) == 2
    assert_never(client("TOUCH", *keys), 6000, "few")
    assert spend(client, "DEL", *keys, name="part") == 1
    assert refuses(client("DEL", "b:x"), "part") and client("DEL", "c:x") == 0
    assert client("MSET", *[word for key in keys for word in (key, "v")]) == OK
    assert refuses(client("SET", keys[-1], "v"), "each") and refuses(client("EXISTS", "c", *keys), "each")
    assert client("SET", "c", "v" * KIB_300) == OK


PARTS = [b"a" * 70_000, b"b" * 100_000, b"c" * 200_000]


def in_parts(client, request):
    """Each value in a read of its own, as a rule."""
    for start in range(0, len(request), 69_000):
        client.send(request[start : start + 69_000])
        time.sleep(0.002)


def test_cost_in_bytes_of_several_values(make, redis):
    """All of them count, however they come, and to the byte."""
    request = encode("RPUSH", "l", *PARTS)
    client = make(rule(per="key", limit=3 * len(request), cost="bytes", commands="rpush")).connect()
    for number in range(5):
        in_parts(client, encode("ECHO", number) + request + encode("ECHO", "after"))
        before, reply, after = client.read_many(3)
        assert before == b"%d" % number and after == b"after"
        assert reply == 3 * (number + 1) if number < 3 else refuses(reply)
    assert redis.connect()("LRANGE", "l", 0, -1) == PARTS * 3


def test_several_values_that_cost_too_much(make, redis):
    """It is refused for good as soon as that is known, though its end never comes, and takes nothing."""
    client = make(rule(limit=1_000_000, cost="bytes", commands="rpush")).connect()
    client.send(encode("ECHO", "e") + b"*5\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$70000\r\n" + b"a" * 70_000 + b"\r\n")
    assert client.read() == b"e"
    client.assert_silent()
    client.send(b"$30000000\r\n")
    assert EXPLAINED.fullmatch(client.read()).group(1) == b"a"
    client.send(b"b" * 30_000_000 + b"\r\n$1\r\nc\r\n" + encode("RPUSH", "l", "v" * 900_000))
    assert client.read() == 1
    assert redis.connect()("LLEN", "l") == 1
