"""The policy contract, shown by headgate-probe: Headgate with policies that pass, answer, hold and close as told. Here:
requests by themselves, long ones among them; test_policy_*.py have the rest.

The probe obeys the first argument that begins with "probe:" (tests/policy/probe.h says how) and aborts when a request
that it passed or held does not get exactly one on_reply; each test ends with a look at what it has counted.
"""

import pytest

from harness.admin import stats
from harness.probe import refused
from harness.resp import OK, Client, Closed, bulk, encode, wait_for
from harness.rules import launch
from harness.servers import sanitizer_overhead


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


def test_control_commands_are_not_shown_to_it(probe):
    wait_for(lambda: stats(probe, "control")["control_script_loads_total"] == "1", what="Headgate's own commands")
    assert probe.counts()["requests"] == 0


@pytest.mark.parametrize("order", ["probe:close:a", "probe:delayclose:100:a"])
def test_closes(probe, client, redis, order):
    client.request("SET", order, "1")
    client.assert_closed()
    assert redis.connect()("EXISTS", order) == 0
    probe.await_counts(closed=1, passed=0, open=0)
    assert stats(probe, "policies")["policy_closes_total"] == "1"


def test_commands_that_take_an_exclusive_lane(probe, client, redis):
    redis.connect()("RPUSH", "list", "a", "b")
    assert client("BLPOP", "probe:reply:a", "list", "0") == refused("probe:reply:a")
    assert client("BLPOP", "probe:hold:50:a", "list", "0") == [b"list", b"a"]
    assert client("SUBSCRIBE", "probe:reply:channel") == refused("probe:reply:channel")
    assert client("SELECT", "probe:reply:1") == refused("probe:reply:1")
    assert client("WATCH", "probe:hold:50:a") == OK
    assert client("UNWATCH") == OK
    assert client("CLIENT", "SETNAME", "probe:reply:name") == refused("probe:reply:name")
    assert client("CLIENT", "GETNAME") is None
    assert client("CLIENT", "SETNAME", "probe:hold:50:name") == OK
    assert client("CLIENT", "GETNAME") == b"probe:hold:50:name"
    assert client("LLEN", "list") == 1
    assert client("QUIT", "probe:hold:50:a") == OK
    client.assert_closed()


LONG = 300_000  # beyond cut_through


def long_push(order):
    return encode("RPUSH", order, "x" * LONG, *map(str, range(1000)), "y" * LONG)


@pytest.mark.parametrize("size", [7_000, 10_000_000])
def test_a_long_request_that_is_wanted_whole(probe, client, redis, size):
    data = encode("GET", "probe:pass:b") + long_push("probe:whole:0:a") + encode("LLEN", "probe:whole:0:a")
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    assert client.read_many(3) == [None, 1002, 1002]
    numbers = [b"%d" % number for number in range(1000)]
    assert redis.connect()("LRANGE", "probe:whole:0:a", 0, -1) == [b"x" * LONG, *numbers, b"y" * LONG]
    assert probe.counts()["wanted"] > 0


@pytest.mark.parametrize("leave", [Client.reset, Client.shutdown_write])
def test_a_client_that_leaves_within_a_request_that_is_wanted_whole(probe, leave):
    data = long_push("probe:whole:0:a")
    for part in (70_000, LONG + 10_000, len(data) - 1):
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


def test_rules_see_names_with_a_nul(redis, make_headgate, pool):
    """A name that is not known, and the request behind it."""
    headgate = launch(make_headgate, redis, pool, "[deny:all]\ncommands = * !ping\nkeys =\nmax_bytes = 1\n")
    with headgate.connect() as client:
        assert client(b"FLUSHALL\0x").startswith(b"DENIED")
    rules = "[deny:set]\ncommands = set\n[limit:all]\nlimit = 1000\nwindow = 10s\n"
    with launch(make_headgate, redis, pool, rules).connect() as client:
        assert client(b"NOSUCH\0x", "v" * 300_000).startswith(b"ERR unknown command")
        assert client("SET", "k", "v").startswith(b"DENIED"), "what follows is judged by itself"
