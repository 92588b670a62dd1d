"""Every type of value and of reply, small and large, passes unchanged."""

import hashlib
import random

import pytest

from harness.resp import NULL, OK, BigNumber, Double, Map, Set, Verbatim, same

MEBIBYTE = 1 << 20


def random_bytes(count, seed=1):
    return random.Random(seed).randbytes(count)


def test_binary_values_and_keys(client):
    every_byte = bytes(range(256))
    protocol_in_disguise = b"\r\n$5\r\nhello\r\n*1\r\n+OK\r\n-ERR\r\n:1\r\n\0"
    for value in (every_byte, protocol_in_disguise, b"\r\n", b"\n", b"\0", b"$-1\r\n"):
        assert client("SET", value, value) == OK
        assert client("GET", value) == value


def test_value_sizes_around_buffer_borders(client):
    for size in [0, 1, 4095, 4096, 16383, 16384, 65535, 65536, MEBIBYTE + 1]:
        value = random_bytes(size, seed=size)
        assert client.pipeline([("SET", "k", value), ("GET", "k"), ("ECHO", "after")]) == [OK, value, b"after"], size


@pytest.mark.parametrize("mebibytes", [16, 64])
def test_large_values(client, mebibytes):
    value = random_bytes(mebibytes * MEBIBYTE)
    assert client.pipeline([("SET", "k", value)]) == [OK]
    answer = client("GET", "k")
    assert hashlib.sha256(answer).digest() == hashlib.sha256(value).digest()
    assert client("ECHO", "and on") == b"and on"


def test_large_arrays(client):
    items = [b"item-%d" % number for number in range(100_000)]
    assert client.pipeline([("RPUSH", "l", *items)]) == [100_000]
    assert client("LRANGE", "l", 0, -1) == items
    assert client("DEL", "l") == 1


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


def test_types_of_resp3(client):
    for name, expected in RESP3_REPLIES:
        client("HELLO", 3)
        assert same(client("DEBUG", "PROTOCOL", name), expected), name
        assert client("ECHO", "next") == b"next", name


RESP2_REPLIES = [
    ("double", b"3.141"),
    ("null", None),
    ("map", [0, 0, 1, 1, 2, 0]),
    ("true", 1),
    ("set", [0, 1, 2]),
    ("verbatim", b"This is a verbatim\nstring"),
]


def test_the_same_in_resp2(client):
    for name, expected in RESP2_REPLIES:
        assert same(client("DEBUG", "PROTOCOL", name), expected), name


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
