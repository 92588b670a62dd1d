"""[counters] and [events] of what happens beside measuring: refusals, leases taken and lost, losses of Redis. What they
say is compared with what clients saw and with what STATS counts."""

import collections
import re

import pytest

from harness.admin import stats, text
from harness.leases import LEASE_MS, await_keys, rule, take
from harness.resp import OK, Closed, Error, wait_for
from harness.rules import launch

ON = "[latency]\nenabled = on\nflush = 1s\n[counters]\nenabled = on\n[events]\nenabled = on\n"
LONGEST = "86400"
LINE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} (.*?)(?: \((\d+) times\))?")


def asked(headgate, *question):
    with headgate.admin() as admin:
        reply = admin(*question)
    assert isinstance(reply, bytes), reply
    return text(reply).splitlines()


def total(headgate, name, precision=LONGEST):
    return sum(int(line.rpartition("=")[2]) for line in asked(headgate, "COUNTER", name, precision))


def common(headgate, redis, name, severity):
    """How often each message came, in this hour and, should it have changed meanwhile, in the one before."""
    counts = collections.Counter()
    for line in asked(headgate, "COMMON", name, severity):
        count, event = re.fullmatch(r'count=(\d+) event="(.*)"', line).groups()
        counts[event] += int(count)
    with redis.connect() as direct:
        before = direct("ZRANGE", f"headgate:common:{name}:{severity}:last", 0, -1, "WITHSCORES")
    for event, count in zip(before[::2], before[1::2]):
        counts[text(event)] += int(count)
    return dict(counts)


def recent(headgate, name, severity):
    """The same, as lines of the list say it."""
    counts = collections.Counter()
    for line in asked(headgate, "RECENT", name, severity):
        event, count = LINE.fullmatch(line[1:-1]).groups()
        counts[event] += int(count or 1)
    return dict(counts)


def await_events(headgate, redis, name, severity, expected):
    """Until they are told; both ways of asking say the same, and the counter has their sum."""
    wait_for(lambda: common(headgate, redis, name, severity) == expected, 30, f"{name} to be {expected}")
    assert recent(headgate, name, severity) == expected
    wait_for(lambda: total(headgate, name) == sum(expected.values()), 30, f"{name} to be counted")


def errors(replies):
    return sum(isinstance(reply, Error) for reply in replies)


@pytest.mark.threads
def test_every_refusal_is_told_once(redis, make_headgate, pool):
    """In pipelines, which are judged as one, and alone; on two threads."""
    rules = "[limit:few]\ncommands = get set\nlimit = 10\nwindow = 1h\nper = connection\n"
    rules += "[deny:flush]\ncommands = flushall\n"
    headgate = launch(make_headgate, redis, pool, ON + rules, threads=2)
    clients = [headgate.connect() for _ in range(4)]
    refused = sum(errors(client.pipeline([("GET", "k")] * 300)) for client in clients)
    refused += errors(client("GET", "k") for client in clients)
    assert refused == 4 * 291
    assert errors(client("SET", "k", "v") for client in clients) == 4
    assert isinstance(clients[0]("FLUSHALL"), Error)
    expected = {"limit:few get": refused, "limit:few set": 4, "deny:flush flushall": 1}
    await_events(headgate, redis, "refusals", "info", expected)
    assert total(headgate, "refusals", "1") == sum(expected.values())


@pytest.mark.threads
def test_leases_taken_and_lost(redis, make_headgate, pool):
    headgate = launch(make_headgate, redis, pool, ON + rule("locks", ttl=f"{LEASE_MS}ms"), threads=2)
    clients = [headgate.connect() for _ in range(4)]
    for number, client in enumerate(clients):
        take(client, f"lock:{number}")
    clients[0]("DEL", "lock:0")
    with redis.connect() as direct:
        direct("DEL", "lock:1", "lock:2")
        direct("SET", "lock:3", "another's", "PX", 60_000)
    await_keys(headgate, [])
    await_events(headgate, redis, "lost_leases", "error", {"lease:locks gone": 2, "lease:locks taken by another": 1})
    wait_for(lambda: total(headgate, "leases") == 4, 30, "leases to be counted")


@pytest.mark.threads
def test_redis_killed_and_back(redis, make_headgate, pool):
    """What was lost is told to the Redis that comes back, as STATS and the log have it."""
    headgate = launch(make_headgate, redis, pool, ON, threads=2)
    clients = [headgate.connect() for _ in range(4)]
    for client in clients:
        assert client("SET", "k", "v") == OK
    for client in clients[:2]:
        client.request("BLPOP", "nothing", 0)
    with redis.connect() as direct:
        wait_for(lambda: b"blocked_clients:2" in direct("INFO", "clients"), what="both to wait")
    redis.kill()
    for client in clients[:2]:
        with pytest.raises(Closed):
            client.read()
    wait_for(lambda: "no connection to Redis" in headgate.log(), what="Redis to be missed")
    redis.start()
    again = headgate.connect()
    wait_for(lambda: not isinstance(again("GET", "k"), Error), what="Redis to be back")

    def lost():
        return int(stats(headgate)["lanes_lost_total"]) + headgate.log().count("no connection to Redis at")

    wait_for(lambda: total(headgate, "upstream_losses") == lost(), 30, "losses to be counted")
    wait_for(lambda: sum(common(headgate, redis, "upstream_losses", "error").values()) == lost(), 30, "all of them")
    told = common(headgate, redis, "upstream_losses", "error")
    address = f"127.0.0.1:{redis.port}"
    assert f"{address} Connection refused" in told, told
    assert all(message.startswith(f"{address} ") for message in told)
    assert recent(headgate, "upstream_losses", "error") == told
    requests = int(stats(headgate)["requests_lost_total"])
    assert requests >= 2
    wait_for(lambda: total(headgate, "lost_requests") == requests, 30, "requests to be counted")
    wait_for(lambda: sum(common(headgate, redis, "lost_requests", "error").values()) == requests, 30, "all of them")
