"""Every type of value and of reply, small and large, passes unchanged."""

import hashlib
import random

import pytest

from harness.resp import OK

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
