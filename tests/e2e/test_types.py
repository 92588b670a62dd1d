"""Every type of value and of reply, small and large, passes unchanged."""

import hashlib
import random

import pytest

from harness.resp import (
    NULL, OK, Attribute, BigNumber, Double, Error, Map, Push, Set, Verbatim, encode, same,
)

MEBIBYTE = 1 << 20


def random_bytes(count, seed=1):
    return random.Random(seed).randbytes(count)


def test_binary_values_and_keys(client):
    every_byte = bytes(range(256))
    protocol_in_disguise = b"\r\n$5\r\nhello\r\n*1\r\n+OK\r\n-ERR\r\n:1\r\n\0"
    for value in (every_byte, protocol_in_disguise, b"\r\n", b"\n", b"\0", b"$-1\r\n"):
        assert client("SET", value, value) == OK
        assert client("GET", value) == value


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 16383, 16384, 65535, 65536, MEBIBYTE + 1])
def test_value_sizes_around_buffer_borders(client, size):
    value = random_bytes(size, seed=size)
    assert client.pipeline([("SET", "k", value), ("GET", "k"), ("ECHO", "after")]) == [OK, value, b"after"]


@pytest.mark.parametrize("mebibytes", [16, 64])
def test_large_values(client, mebibytes):
    value = random_bytes(mebibytes * MEBIBYTE)
    assert client.pipeline([("SET", "k", value)]) == [OK]
    answer = client("GET", "k")
    assert hashlib.sha256(answer).digest() == hashlib.sha256(value).digest()
    assert client("ECHO", "and on") == b"and on"


def test_large_values_of_several_clients_at_once(target):
    clients = [target.connect() for _ in range(3)]
    values = [random_bytes(8 * MEBIBYTE, seed=index) for index in range(3)]
    for index, client in enumerate(clients):
        assert client.pipeline([("SET", f"k{index}", values[index])]) == [OK]
    for index, client in enumerate(clients):
        client.request("GET", f"k{index}")
    for index, client in enumerate(clients):
        assert client.read() == values[index]


def test_large_keys(client):
    key = random_bytes(100_000)
    assert client("SET", key, "v") == OK
    assert client("GET", key) == b"v"
    assert client("KEYS", "*") == [key]


def test_large_arrays(client):
    items = [b"item-%d" % number for number in range(100_000)]
    assert client.pipeline([("RPUSH", "l", *items)]) == [100_000]
    assert client("LRANGE", "l", 0, -1) == items
    assert client("DEL", "l") == 1


def test_many_arguments_of_one_byte(client):
    arguments = [b"x"] * 200_000
    assert client.pipeline([("DEL", *arguments)]) == [0]


def test_nested_arrays(client):
    script = "local t = 1 for i = 1, 50 do t = {t, i} end return t"
    reply = client("EVAL", script, 0)
    for number in range(50, 0, -1):
        assert reply[1] == number
        reply = reply[0]
    assert reply == 1


RESP3_REPLIES = [
    ("string", b"Hello World"),
    ("integer", 12345),
    ("double", Double(b"3.141")),
    ("null", NULL),
    ("array", [0, 1, 2]),
    ("set", Set([0, 1, 2])),
    ("map", Map([0, False, 1, True, 2, False])),
    ("true", True),
    ("false", False),
    ("bignum", BigNumber(b"1234567999999999999999999999999999999")),
    ("verbatim", Verbatim(b"txt:This is a verbatim\nstring")),
]


@pytest.mark.parametrize("name, expected", RESP3_REPLIES)
def test_types_of_resp3(client, name, expected):
    client("HELLO", 3)
    assert same(client("DEBUG", "PROTOCOL", name), expected)
    assert client("ECHO", "next") == b"next"


def test_attributes_of_resp3(client):
    client("HELLO", 3)
    client.request("DEBUG", "PROTOCOL", "attrib")
    assert isinstance(client.read(), Attribute)
    assert client.read() == b"Some real reply following the attribute"
    assert client("ECHO", "next") == b"next"


def test_pushes_of_resp3(client):
    client("HELLO", 3)
    client.request("DEBUG", "PROTOCOL", "push")
    assert same(client.read(), Push([b"server-cpu-usage", 42]))
    assert client.read() == b"Some real reply following the push reply"
    assert client("ECHO", "next") == b"next"


RESP2_REPLIES = [
    ("double", b"3.141"),
    ("null", None),
    ("map", [0, 0, 1, 1, 2, 0]),
    ("true", 1),
    ("set", [0, 1, 2]),
    ("verbatim", b"This is a verbatim\nstring"),
]


@pytest.mark.parametrize("name, expected", RESP2_REPLIES)
def test_the_same_in_resp2(client, name, expected):
    assert same(client("DEBUG", "PROTOCOL", name), expected)


def test_data_types_in_resp3(client):
    client("HELLO", 3)
    client("HSET", "h", "a", 1)
    client("SADD", "s", "m")
    client("ZADD", "z", 1, "m")
    assert same(client("HGETALL", "h"), Map([b"a", b"1"]))
    assert same(client("SMEMBERS", "s"), Set([b"m"]))
    assert same(client("ZRANGE", "z", 0, -1, "WITHSCORES"), [[b"m", Double(b"1")]])
    assert same(client("ZSCORE", "z", "m"), Double(b"1"))
    assert same(client("GET", "none"), NULL)
    assert same(client("LPOP", "none", 1), NULL)
    assert same(client("EVAL", "redis.setresp(3) return redis.call('hgetall', KEYS[1])", 1, "h"), Map([b"a", b"1"]))


def test_resp2_and_resp3_side_by_side(target):
    """One client's HELLO 3 changes nothing for another."""
    old, new = target.connect(), target.connect()
    old("HSET", "h", "a", 1)
    new("HELLO", 3)
    for _ in range(50):
        old.request("HGETALL", "h")
        new.request("HGETALL", "h")
        assert same(old.read(), [b"a", b"1"])
        assert same(new.read(), Map([b"a", b"1"]))


def test_encode_is_what_redis_reads(client):
    """The harness itself: what encode() writes is one command, whatever is in it."""
    client.send(encode("ECHO", b"\r\n*1\r\n$4\r\nPING\r\n") + encode("ECHO", "x"))
    assert client.read_many(2) == [b"\r\n*1\r\n$4\r\nPING\r\n", b"x"]
