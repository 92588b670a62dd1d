"""STATS says whether Redis can be reached, and how many lanes there are that carry requests."""

import socket

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, wait_for


def gauges(headgate):
    """(upstream_up, lanes_shared, lanes_exclusive)"""
    section = stats(headgate, "upstream")
    return tuple(int(section[name]) for name in ("upstream_up", "lanes_shared", "lanes_exclusive"))


@pytest.fixture
def threads():
    return 4


def test_redis_goes_and_comes(redis, make_headgate, threads):
    headgate = make_headgate(redis, threads=threads, exclusive_idle=0)
    wait_for(lambda: gauges(headgate) == (1, threads, 0), what="all lanes")
    client = headgate.connect()
    assert client("WATCH", "k") == OK
    assert gauges(headgate)[2] == 1
    redis.kill()
    wait_for(lambda: gauges(headgate) == (0, 0, 0), 30, "no lane to be left")
    with headgate.admin() as admin:
        assert admin("PING") == PONG, "the admin port itself is up"
        assert admin("LANES").count(b"use=shared") == threads, "which try to connect"
    redis.start()
    wait_for(lambda: gauges(headgate)[:2] == (1, threads), 30, "all lanes to be back")


def test_an_address_that_never_answers(make_headgate):
    """Connected to, or about to be: none of that is Redis."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        headgate = make_headgate(f"127.0.0.1:{deaf.getsockname()[1]}", connect_timeout="200ms")
        wait_for(lambda: int(stats(headgate, "upstream")["lanes_failed_total"]) > 0, 30, "an attempt to fail")
        assert gauges(headgate) == (0, 0, 0)


def test_redis_wants_a_password(make_redis, make_headgate, threads):
    """It can be reached, though no lane is shared."""
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, threads=threads, access_check="100ms")
    wait_for(lambda: gauges(headgate)[:2] == (1, 0), 30, "it to be found")
    redis.kill()
    wait_for(lambda: gauges(headgate)[0] == 0, 30, "the next look")
    redis.start()
    wait_for(lambda: gauges(headgate)[0] == 1, 30, "the next look")
