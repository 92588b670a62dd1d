"""[limit:NAME] with scope = local: whose requests are counted together, which are counted at all, and what each costs."""

import functools
import time

import pytest

from harness.admin import await_empty
from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import EXPLAINED, KIB_300, admitted, assert_never, explain, funnel, refuses, rule, spend
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


# ---- cost ----


@pytest.mark.parametrize("make_rule", [functools.partial(rule, limit=12), functools.partial(funnel, capacity=12)])
def test_cost_in_keys(make_shared, make_rule):
    headgate = make_shared(make_rule(per="connection", cost="keys", commands="*"))
    commands = {
        ("GET", "a"): 1,
        ("MGET", "a", "b", "c"): 3,
        ("MSET", "a", "1", "b", "2"): 2,
        ("DEL", "a", "b", "c", "d", "e"): 5,
        ("ZUNIONSTORE", "{d}d", 2, "{d}a", "{d}b"): 3,
        ("EVAL", "return 1", 2, "a", "b", "no key"): 2,
    }
    for command, keys in commands.items():
        assert spend(headgate.connect(), *command, count=15) == 12 // keys, command


def test_what_costs_too_much_takes_nothing(make):
    client = make(rule(limit=5, cost="keys", commands="mget")).connect()
    assert admitted([client("MGET", "a", "b", "c")]) == 1
    assert refuses(client("MGET", "a", "b", "c"))
    assert_never(client("MGET", "a", "b", "c", "d", "e", "f"), 6)
    assert admitted([client("MGET", "a", "b")]) == 1
    assert explain(client("MGET", "a"))[0] == "a"


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


def test_cost_in_bytes_of_long_requests(make, redis):
    """A long request is decided on before it is there as a whole. What is refused is thrown away, and the client goes
    on."""
    client = make(rule(limit=1_000_000, cost="bytes", commands="set")).connect()
    requests = [encode("SET", f"k{number}", "x" * KIB_300) + encode("ECHO", number) for number in range(5)]
    replies = []
    for request in requests:
        for start in range(0, len(request), 50_000):
            client.send(request[start : start + 50_000])
        replies += client.read_many(2)
    assert replies[1::2] == [b"0", b"1", b"2", b"3", b"4"]
    assert replies[:6:2] == [OK] * 3 and refuses(replies[6]) and refuses(replies[8])
    assert_never(client("SET", "long", "x" * 1_000_000), len(encode("SET", "long", "x" * 1_000_000)))
    assert client("SET", "short", "x" * 1000) == OK, "there is room for a short one"
    assert redis.connect()("EXISTS", "k0", "k1", "k2", "k3", "k4", "short") == 4


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


def test_several_values_are_delayed_by_what_they_cost(make):
    """How long they take to come is no part of the delay."""
    request = encode("RPUSH", "l", *PARTS)
    rules = rule(window="1s", limit=len(request), cost="bytes", commands="rpush", action="delay", max_delay="2s")
    client = make(rules).connect()
    in_parts(client, request * 3)
    assert client.read_many(3) == [3, 6, 9]


def test_a_client_that_leaves_before_its_cost_is_known(make, redis):
    request = encode("RPUSH", "l", *PARTS)
    headgate = make(rule(per="all", limit=len(request), cost="bytes", commands="rpush"))
    for part in (66_000, 70_100, 169_000):
        client = headgate.connect()
        in_parts(client, encode("ECHO", "e") + request[:part])
        assert client.read() == b"e"
        client.close()
    await_empty(headgate)
    assert redis.connect()("DBSIZE") == 0
    client = headgate.connect()
    in_parts(client, request)
    assert client.read() == 3, "nothing was charged"
