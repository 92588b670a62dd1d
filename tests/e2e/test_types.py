"""Every type of value and of reply, small and large, passes unchanged."""

import hashlib
import random

import pytest

from harness.resp import (
    NIL_ARRAY, NULL, OK, Attribute, BigNumber, Double, Error, Map, Push, Set, Status, Verbatim, encode, same,
)

MEBIBYTE = 1 << 20


def random_bytes(count, seed=1):
    return random.Random(seed).randbytes(count)


def test_strings_and_integers(client):
    assert client("SET", "k", "value") == OK
    assert client("GET", "k") == b"value"
    assert client("APPEND", "k", "!") == 6
    assert client("STRLEN", "k") == 6
    assert client("DECRBY", "n", 5) == -5
    assert client("INCRBYFLOAT", "f", "10.5") == b"10.5"
    assert client("SETRANGE", "k", 1, "A") == 6
    assert client("GETRANGE", "k", 0, 2) == b"vAl"
    assert client("MSET", "a", 1, "b", 2) == OK
    assert client("MGET", "a", "none", "b") == [b"1", None, b"2"]
    assert client("INCRBY", "big", 2**63 - 1) == 2**63 - 1
    assert client("INCR", "big") == Error(b"ERR increment or decrement would overflow")


def test_nils_of_resp2(client):
    assert client("GET", "none") is None
    assert client("EVAL", "return false", 0) is None
    assert client("BLPOP", "none", "0.01") is NIL_ARRAY
    assert client("LRANGE", "none", 0, -1) == []
    assert client("SET", "empty", "") == OK
    assert client("GET", "empty") == b""


def test_binary_values_and_keys(client):
    every_byte = bytes(range(256))
    protocol_in_disguise = b"\r\n$5\r\nhello\r\n*1\r\n+OK\r\n-ERR\r\n:1\r\n\0"
    for value in (every_byte, protocol_in_disguise, b"\r\n", b"\n", b"\0", b"$-1\r\n"):
        assert client("SET", value, value) == OK
        assert client("GET", value) == value


def test_hashes(client):
    assert client("HSET", "h", "a", 1, "b", 2) == 2
    assert client("HGETALL", "h") == [b"a", b"1", b"b", b"2"]
    assert client("HMGET", "h", "a", "none") == [b"1", None]
    assert client("HINCRBY", "h", "a", 41) == 42
    assert client("HDEL", "h", "a", "b") == 2
    assert client("EXISTS", "h") == 0


def test_lists(client):
    assert client("RPUSH", "l", *range(5)) == 5
    assert client("LRANGE", "l", 1, 2) == [b"1", b"2"]
    assert client("LPOP", "l", 2) == [b"0", b"1"]
    assert client("LMPOP", 1, "l", "RIGHT", "COUNT", 2) == [b"l", [b"4", b"3"]]
    assert client("LPOP", "none") is None
    assert client("LPOP", "none", 1) is NIL_ARRAY


def test_sets(client):
    assert client("SADD", "s", "a", "b", "c") == 3
    assert sorted(client("SMEMBERS", "s")) == [b"a", b"b", b"c"]
    assert client("SMISMEMBER", "s", "a", "z") == [1, 0]
    assert client("SSCAN", "s", 0)[0] == b"0"


def test_sorted_sets(client):
    assert client("ZADD", "z", "1.5", "a", "-inf", "b") == 2
    assert client("ZRANGE", "z", 0, -1, "WITHSCORES") == [b"b", b"-inf", b"a", b"1.5"]
    assert client("ZPOPMIN", "z") == [b"b", b"-inf"]
    assert client("ZSCORE", "z", "a") == b"1.5"


def test_streams(client):
    assert client("XADD", "x", "1-1", "f", "v") == b"1-1"
    assert client("XREAD", "STREAMS", "x", 0) == [[b"x", [[b"1-1", [b"f", b"v"]]]]]
    assert client("XGROUP", "CREATE", "x", "g", 0) == OK
    assert client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">") == [[b"x", [[b"1-1", [b"f", b"v"]]]]]
    assert client("XACK", "x", "g", "1-1") == 1
    assert client("XREAD", "STREAMS", "x", "1-1") is NIL_ARRAY


def test_the_other_types(client):
    assert client("SETBIT", "bits", 7, 1) == 0
    assert client("BITFIELD", "bits", "GET", "u8", 0, "OVERFLOW", "FAIL", "INCRBY", "u8", 0, 255) == [1, None]
    assert client("PFADD", "hll", "a", "b") == 1
    assert client("PFCOUNT", "hll") == 2
    assert client("GEOADD", "g", "13.361389", "38.115556", "Palermo") == 1
    assert client("GEOPOS", "g", "Palermo", "none")[1] is NIL_ARRAY
    assert client("TYPE", "hll") == Status(b"string")
    dumped = client("DUMP", "bits")
    assert client("RESTORE", "copy", 0, dumped) == OK
    assert client("GET", "copy") == b"\x01"


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
