"""[latency] and what is in its way: whatever Redis does not take, and whatever clients call themselves, clients are served
as before, nobody else's keys are touched, and what is lost is counted and logged. Whatever becomes
of the connection, of Redis and of Headgate around a flush, what is on record is what was measured, once."""

import signal
import time

import pytest

from harness.admin import send_and_await
from harness.latency import ON, ask, await_report, counter, interfaces, on_record
from harness.relay import PLACES, Relay
from harness.resp import OK, Error, encode, wait_for
from harness.rules import launch

def occupy(direct, key):
    assert direct("RPUSH", key, "mine") == 1
    return direct("DUMP", key)


def minutes():
    now = int(time.time() // 60)
    return range(now, now + 4)


def test_minutes_of_another_type(redis, make_headgate):
    headgate = launch(make_headgate, redis, "shared", ON)
    client = headgate.connect()
    with redis.connect() as direct:
        names = [f"headgate:statistics_get_{at}_for_hist" for at in minutes()]
        theirs = {key: occupy(direct, key) for key in names}
        assert client("GET", "k") is None
        assert client("SET", "k", "v") == OK
        wait_for(lambda: counter(headgate, "lost_requests_total") == 1, 30, "the loss to be counted")
        assert counter(headgate, "lost_minutes_total") == 1
        headgate.await_log("holds a list")
        await_report(headgate, "set", 1)
        found = set(direct("KEYS", "headgate:statistics_get_*_for_*"))
        assert found == {key.encode() for key in theirs}, "all or nothing"
        assert {key: direct("DUMP", key) for key in theirs} == theirs
        direct("DEL", *theirs)
        assert client("GET", "k") == b"v"
        await_report(headgate, "get", 1)


REFUSALS = {
    "OOM": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "NOPERM": (("ACL", "SETUSER", "default", "-zincrby"), ("ACL", "SETUSER", "default", "+zincrby")),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_redis_that_refuses_to_write(redis, make_headgate, refusal):
    refuse, allow = REFUSALS[refusal]
    begin = time.monotonic()
    headgate = launch(make_headgate, redis, "shared", ON)
    client = headgate.connect()
    with redis.connect() as direct:
        assert direct("SET", "k", "v") == OK
        assert direct(*refuse) == OK
        sent = 0
        while counter(headgate, "flush_failures_total") < 3:
            assert client("GET", "k") == b"v"
            sent += 1
            time.sleep(0.02)
            assert time.monotonic() < begin + 60
        assert counter(headgate, "minutes_waiting") > 0
        assert not on_record(redis)
        logged = headgate.log().count("Redis does not take the figures: " + refusal)
        assert 1 <= logged <= 1 + (time.monotonic() - begin) // 60, "once a minute"
        assert direct(*allow) == OK
    await_report(headgate, "get", sent)
    assert on_record(redis)["count"] == sent
    assert counter(headgate, "lost_requests_total") == 0


STRANGE = ("{tag}", "two words", "new\r\nline", "\r\n", "ü", "\x00\x01", "x" * 10_000, "{" * 10_000, "%", "~", "*", "a_for_b")


def assert_keys_are_sound(redis):
    """No braces, blanks and control characters, and none that is long."""
    with redis.connect() as direct:
        for key in direct("KEYS", "*"):
            assert not set(key) & set(b"{} \r\n\0") and max(key) < 127 and len(key) < 200 and b"hunter" not in key, key


def test_strange_names_of_commands(redis, make_headgate):
    """What Redis does not know either has no name of its own: it may be a password that was typed for a command."""
    headgate = launch(make_headgate, redis, "shared", ON + "max_interfaces = 20\n")
    client = headgate.connect()
    names = [*STRANGE, *(f"hunter{number}" for number in range(100))]
    for name in names:
        assert isinstance(client(name, "hunter"), Error)
    found = interfaces(headgate, "LATENCY")
    assert {name: (line["count"], line["errors"]) for name, line in found.items()} == {"unknown": (str(len(names)),) * 2}
    await_report(headgate, "unknown", len(names))
    assert_keys_are_sound(redis)


# ---- what is lost on the way ----


@pytest.fixture
def make_relay():
    relays = []

    def make(redis):
        relays.append(Relay(redis))
        return relays[-1]

    yield make
    for relay in relays:
        relay.close()


def let_flush(headgate, client):
    """One flush that Redis takes: then it knows the script."""
    flushes = counter(headgate, "flushes_total")
    client("GET", "k")
    wait_for(lambda: counter(headgate, "flushes_total") > flushes, 30, "a flush")


def assert_on_record(headgate, redis, count):
    """All sorted sets of GET agree on that, when nothing is to be repeated any more."""
    wait_for(lambda: counter(headgate, "minutes_waiting") == 0, 30, "all flushes to be acknowledged")
    await_report(headgate, "get", count)
    found = on_record(redis)
    assert (found["count"], found["hist"]) == (count, count)
    line = ask(headgate, "LATENCY", "get")[0]
    assert float(found["errors"]) == float(line["errors"])
    assert float(found["bytes_in"]) == float(line["bytes_in"])
    assert counter(headgate, "lost_requests_total") == 0


@pytest.mark.parametrize("place", PLACES)
def test_a_connection_that_is_cut_around_a_flush(redis, make_relay, make_headgate, place):
    """A flush whose reply was lost is repeated, and counts once."""
    relay = make_relay(redis)
    headgate = launch(make_headgate, relay.url, "shared", ON)
    client = headgate.connect()
    let_flush(headgate, client)
    sent, seen = 1, []
    for number in range(1, 4):
        for _ in range(20):
            client("GET", "k")
        sent += 20
        relay.cut(place, then=lambda: seen.append(relay.is_executed()))
        assert seen[-1] == (place == "after")
        assert_on_record(headgate, redis, sent)
        assert counter(headgate, "flush_failures_total") >= number


@pytest.mark.threads
def test_a_drain_flushes_what_comes_until_the_end(redis, make_headgate):
    """Clients that are still at work when it begins, on all workers."""
    headgate = launch(make_headgate, redis, "shared", ON.replace("1s", "10m"), threads=2, drain_timeout="10s")
    clients = [headgate.connect() for _ in range(4)]
    for client in clients:
        client.pipeline([("GET", "k")] * 10)
    request = encode("BLPOP", "list", 0)
    with redis.connect() as direct:
        # The rest is waited for. Who is blocked is closed after half a second.
        send_and_await(headgate, clients[0], request[:-3])
        headgate.signal(signal.SIGTERM)
        wait_for(clients[1].is_closed, what="idle clients to be closed")
        assert headgate.is_alive()
        direct("RPUSH", "list", "x")
        clients[0].send(request[-3:])
        assert clients[0].read() == [b"list", b"x"]
        assert headgate.wait() == 0
    assert on_record(redis)["count"] == 40
    assert on_record(redis, "headgate:statistics_blpop|blocking")["count"] == 1
