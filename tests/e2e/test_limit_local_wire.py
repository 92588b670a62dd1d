"""[limit:NAME] with scope = local: what a refused or held client sees, and in which order."""

import re
import time

from harness.admin import await_empty, stats
from harness.identity import named
from harness.limits import assert_never, await_holds, counter, explain, funnel, refuses, rule, spend
from harness.resp import OK, PONG, QUEUED, Push, encode, wait_for


# ---- on the wire ----


def test_refusals_keep_their_place(make):
    client = make(rule(limit=3)).connect()
    commands = [command for n in range(200) for command in (("INCR", "n"), ("ECHO", n), ("GET", "n"))]
    replies = client.pipeline(commands)
    assert replies[:9] == [1, b"0", b"1", 2, b"1", b"2", 3, b"2", b"3"]
    assert all(map(refuses, replies[9::3]))
    assert replies[10::3] == [b"%d" % n for n in range(3, 200)]
    assert replies[11::3] == [b"3"] * 197


def test_in_a_transaction(make, redis):
    """Redis would have answered an error, too: then EXEC executes nothing. Requests count when they are queued."""
    client = make(rule(limit=3, per="connection")).connect()
    assert client.pipeline([("MULTI",), ("INCR", "n"), ("EXEC",)]) == [OK, QUEUED, [1]]
    replies = client.pipeline([("MULTI",), *[("INCR", "n")] * 3, ("SET", "t", 1), ("EXEC",), ("PING",)])
    assert replies[:3] == [OK, QUEUED, QUEUED] and refuses(replies[3]) and replies[4] == QUEUED
    assert replies[5].startswith(b"EXECABORT") and replies[6] == PONG
    assert redis.connect()("MGET", "n", "t") == [b"1", None]
    replies = client.pipeline([("MULTI",), ("INCR", "n"), ("DISCARD",), ("GET", "n")])
    assert replies[0] == replies[2] == OK and refuses(replies[1]) and replies[3] == b"1"


def test_under_reply_off(make, redis):
    client = make(rule(limit=2)).connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * 5 + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("GET", "n") == b"2"
    assert b"refused-by-headgate" in client("INCR", "n")
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "n") + encode("INCR", "n") + encode("GET", "n"))
    assert b"refused-by-headgate" in client.read() and client.read() == b"2"
    client.assert_silent()


def test_in_resp3_and_among_pushes(make, redis):
    client = make(rule(limit=2)).connect()
    client("HELLO", 3)
    assert client("SUBSCRIBE", "news") == Push([b"subscribe", b"news", 1])
    assert spend(client) == 2
    redis.connect()("PUBLISH", "news", "x")
    assert client.read() == Push([b"message", b"news", b"x"])
    assert refuses(client("INCR", "n"))
    assert client("UNSUBSCRIBE") == Push([b"unsubscribe", b"news", 0])
    assert client("GET", "n") == b"2"


def test_a_local_limit_takes_nothing_of_redis(make, redis):
    """Redis sees what is admitted and nothing else."""
    headgate = make(rule(limit=5), access_check=0)
    client = headgate.connect()
    assert client("PING") == PONG
    wait_for(lambda: stats(headgate, "control")["control_script_loads_total"] == "1", what="Headgate's own commands")
    wait_for(lambda: stats(headgate)["lanes_pooled"] != "0", what="the spare lane")
    with redis.connect() as direct:
        assert direct("CONFIG", "RESETSTAT") == OK
        assert spend(client, count=50) == 5
        calls = re.findall(r"cmdstat_(\S+):calls=(\d+)", direct("INFO", "commandstats").decode())
    assert dict(calls) == {"incr": "5", "config|resetstat": "1"}


# ---- action = delay ----


def test_delay_keeps_a_clients_order(make):
    """Nobody is refused; what comes behind a held request waits for it."""
    headgate = make(funnel(capacity=1, leak="1/100ms", action="delay", max_delay="30s"))
    client = headgate.connect()
    commands = [command for n in range(4) for command in (("INCR", "n"), ("GET", "n"), ("ECHO", n))]
    start = time.monotonic()
    replies = client.pipeline(commands)
    assert time.monotonic() - start >= 0.3
    assert replies == [reply for n in range(4) for reply in (n + 1, b"%d" % (n + 1), b"%d" % n)]
    assert counter(headgate, "admitted_total") == 4
    assert counter(headgate, "refused_total") == 0
    assert 1 <= counter(headgate, "delayed_total") <= 3


def test_delay_holds_nobody_else(make):
    """The held client stays held; all others go on, even with the same command."""
    headgate = make(funnel(per="name", capacity=1, leak="1/60s", action="delay", max_delay="90s"))
    both = [named(headgate, "held") for _ in range(2)]
    for client in both:
        client.send(encode("INCR", "held") + encode("GET", "held"))
    await_holds(headgate, 1)
    for number in range(100):
        client = named(headgate, f"other-{number}")
        assert client("INCR", "others") == number + 1
        assert client.pipeline([("PING",), ("GET", "others")]) == [PONG, b"%d" % (number + 1)]
    assert named(headgate, "held")("GET", "held") == b"1", "only its INCR is limited"
    quiet = set(both)

    def one_is_answered():
        quiet.difference_update([client for client in quiet if client.read_until_quiet(0.1) != b""])
        return len(quiet) < 2

    wait_for(one_is_answered, what="one to be admitted")
    assert len(quiet) == 1, "one was admitted, one is held"
    quiet.pop().reset()


def test_beyond_max_delay_is_refused_at_once(make):
    rules = funnel(capacity=2, action="delay", max_delay="1s")
    headgate = make(rules + rule("b", limit=2, cost="keys", commands="mget", action="delay", max_delay="10m"))
    client = headgate.connect()
    replies = client.pipeline([("INCR", "n")] * 5 + [("PING",)])
    assert replies[:2] == [1, 2] and replies[5] == PONG
    assert all(explain(reply)[2] > 3_000_000 for reply in replies[2:5])
    assert_never(client("MGET", "a", "b", "c"), 3, "b")


def test_who_leaves_frees_its_place(make):
    """A queue of 40 s is left by all; the next to come is served soon."""
    headgate = make(funnel(per="all", capacity=1, leak="1/400ms", action="delay", max_delay="90s"))
    clients = [headgate.connect() for _ in range(100)]
    for client in clients:
        client.request("INCR", "n")
    await_holds(headgate, 95)  # on a busy machine some come when the funnel has leaked
    for client in clients:
        client.reset()
    await_empty(headgate)
    assert isinstance(headgate.connect()("INCR", "n"), int)
