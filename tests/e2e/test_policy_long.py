"""The policy contract for long requests, which are sent on as they come or, where a policy wants it, are gathered
first. Shown by headgate-probe, as test_policy.py says."""

import time

import pytest

from harness.probe import refused
from harness.resp import OK, Client, Closed, bulk, encode, wait_for
from harness.servers import sanitizer_overhead

LONG = 300_000  # beyond cut_through


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


def test_a_long_request_is_passed_and_held(probe, client):
    value = "x" * LONG
    assert client.pipeline([("SET", "probe:pass:a", value), ("STRLEN", "probe:pass:a")]) == [OK, LONG]
    assert client.pipeline([("SET", "probe:hold:150:b", value), ("STRLEN", "probe:hold:0:b")]) == [OK, 0]
    assert client("STRLEN", "probe:hold:150:b") == LONG
    probe.await_counts(lost=0, ownerless=0, replied=0)


@pytest.mark.parametrize("order", ["probe:reply:a", "probe:delayreply:100:a"])
def test_a_long_request_is_refused(probe, client, redis, order):
    """It is refused before it is there as a whole; the rest of it is thrown away and the client goes on."""
    commands = [("GET", "probe:pass:b"), ("SET", order, "x" * LONG), ("SET", "probe:pass:c", "1"), ("ECHO", "end")]
    assert client.pipeline(commands) == [None, refused(order), OK, b"end"]
    assert client.pipeline(commands) == [None, refused(order), OK, b"end"]
    assert redis.connect()("EXISTS", order) == 0


def test_a_client_that_leaves_within_a_long_request(probe):
    data = encode("SET", "probe:pass:a", "x" * LONG)
    for part, leave in ((100_000, Client.close), (100_000, Client.reset), (50, Client.reset)):
        client = probe.connect()
        client.send(data[:part])
        time.sleep(0.1)
        leave(client)
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:pass:a") == 0


def long_push(order):
    return encode("RPUSH", order, "x" * LONG, *map(str, range(1000)), "y" * LONG)


@pytest.mark.parametrize("size", [7_000, 100_000, 10_000_000])
def test_a_long_request_that_is_wanted_whole(probe, client, redis, size):
    data = encode("GET", "probe:pass:b") + long_push("probe:whole:0:a") + encode("LLEN", "probe:whole:0:a")
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    assert client.read_many(3) == [None, 1002, 1002]
    assert redis.connect()("LRANGE", "probe:whole:0:a", 0, -1) == [
        b"x" * LONG,
        *(b"%d" % number for number in range(1000)),
        b"y" * LONG,
    ]
    assert probe.counts()["wanted"] > 0


@pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.shutdown_write])
def test_a_client_that_leaves_within_a_request_that_is_wanted_whole(probe, leave):
    data = long_push("probe:whole:0:a")
    for part in (70_000, LONG + 100, LONG + 10_000, len(data) - 1):
        client = probe.connect()
        before = probe.counts()["wanted"]
        client.send(data[:part])
        wait_for(lambda: probe.counts()["wanted"] > before, what="the policy to want more")
        leave(client)
        if leave is Client.shutdown_write:
            client.assert_closed()
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:whole:0:a") == 0


def test_a_request_that_is_wanted_whole_is_bounded(redis, pool, make_probe):
    probe = make_probe(redis, pool=pool, max_request="1mb")
    client = probe.connect()
    client.send(encode("GET", "probe:pass:a"))
    with pytest.raises((OSError, Closed)):
        client.send(b"*100\r\n$5\r\nRPUSH\r\n$15\r\nprobe:whole:0:a\r\n")
        for _ in range(97):
            client.send(bulk(b"x" * 500_000))
        client.read_many(2)
    assert probe.peak_rss() < 64 * 2**20 + sanitizer_overhead()
    probe.await_balance()
    with probe.connect() as client:
        assert client("EXISTS", "probe:whole:0:a") == 0
