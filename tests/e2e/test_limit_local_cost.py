"""[limit:NAME] with scope = local: what a request costs, by its keys or by its bytes."""

import functools
import time

import pytest

from harness.admin import await_empty
from harness.limits import EXPLAINED, KIB_300, admitted, assert_never, explain, funnel, refuses, rule, spend
from harness.resp import OK, encode


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
    headgate = make(rules + rule("each", per="key", limit=1, commands="set mset exists") + rule("z", limit=1, keys="z*", commands="mget"))
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
