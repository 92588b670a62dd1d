"""[latency] loses nothing and counts nothing twice: whatever becomes of the connection, of Redis and of Headgate around a
flush, what is on record is what was measured."""

import signal

import pytest

from harness.admin import send_and_await
from harness.latency import ON, ask, await_report, counter, interfaces, on_record
from harness.relay import PLACES, Relay
from harness.resp import Closed, Error, encode, wait_for
from harness.rules import launch


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
@pytest.mark.parametrize("place", PLACES)
def test_redis_killed_in_mid_flush(make_redis, make_relay, make_headgate, place):
    """By SIGKILL, with requests under way; it comes back with all that it has acknowledged."""
    redis = make_redis("--appendonly", "yes", "--appendfsync", "always")
    relay = make_relay(redis)
    headgate = launch(make_headgate, relay.url, "shared", ON, threads=2)
    for _ in range(2):
        clients = [headgate.connect() for _ in range(4)]
        let_flush(headgate, clients[0])
        for client in clients:
            client.pipeline([("GET", "k")] * 50)
        relay.cut(place, then=redis.kill)
        for client in clients:
            client.request("GET", "k")
        redis.start()
        for client in clients:
            try:
                client.read()
            except Closed:
                pass
        again = headgate.connect()
        wait_for(lambda: not isinstance(again("GET", "k"), Error), what="Redis to be back")
    measured = int(interfaces(headgate, "LATENCY")["get"]["count"])
    assert measured >= 400
    assert_on_record(headgate, redis, measured)


def test_a_headgate_that_comes_back_adds_to_what_is_there(redis, make_headgate):
    headgate = launch(make_headgate, redis, "shared", ON)
    for count in (10, 20, 30):
        client = headgate.connect()
        client.pipeline([("GET", "k")] * 10)
        await_report(headgate, "get", count)
        headgate.kill()
        headgate.start()
    assert on_record(redis)["count"] == 30
    with redis.connect() as direct:
        assert len(direct("KEYS", "headgate:statistics_get_flushed_by_*")) == 3


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
