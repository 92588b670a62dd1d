"""CLIENT TRACKING … REDIRECT to connections of others: invalidation messages arrive where nobody has asked for them."""

import threading
import time

import pytest

from harness.admin import stats
from harness.resp import OK, Map, Push, encode
from harness.target import client_list
from harness.threads import at_once

SECONDS = 3


def shared_resp3_lanes(observer):
    return [entry["id"] for entry in client_list(observer) if entry["name"] == "headgate" and entry["resp"] == "3"]


@pytest.mark.parametrize("threads", (1, 2))
def test_redirection_to_shared_lanes_harms_nobody(redis, make_headgate, threads):
    """An attacker finds the ids by trying; here Redis is asked for them. Victims get their replies, and nothing else."""
    headgate = make_headgate(redis, threads=threads)
    victims = [headgate.connect() for _ in range(8)]
    for victim in victims:
        assert isinstance(victim("HELLO", 3), Map)
        assert victim("SET", "warm", 1) == OK
    attackers = []

    def aim():
        with redis.connect() as observer:
            for lane in shared_resp3_lanes(observer):
                attackers.append(headgate.connect())
                assert attackers[-1]("CLIENT", "TRACKING", "ON", "REDIRECT", lane, "BCAST") == OK

    def work(number):
        client, until, count = victims[number], time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            count += 1
            replies = client.pipeline([("SET", f"k{number}", count), ("GET", f"k{number}"), ("INCR", f"n{number}")])
            assert replies == [OK, b"%d" % count, count], replies

    aim()
    assert attackers
    at_once(work, len(victims))
    facts = stats(headgate, "upstream")
    assert facts["lanes_desynced_total"] == "0" and facts["lanes_lost_total"] == "0"
    assert int(facts["pushes_dropped_total"]) > 100
    for victim in victims:
        victim.assert_silent(0.05)


def replies_among_pushes(client, *commands):
    """On a lane of its own a client gets what is aimed at it, as from Redis itself; its replies come all the same."""
    client.send(b"".join(encode(*command) for command in commands))
    replies = []
    while len(replies) < len(commands):
        reply = client.read()
        replies += [] if isinstance(reply, Push) else [reply]
    return replies


def test_redirection_to_ids_yet_to_come(redis, make_headgate):
    """Lanes are opened again and again while somebody aims at every id; they come up, and serve."""
    headgate = make_headgate(redis, lane_idle_timeout="100ms")
    stop = threading.Event()

    def aim():
        client = headgate.connect()
        while not stop.is_set():
            newest = max(int(entry["id"]) for entry in client_list(client))
            for lane in range(newest - 3, newest + 4):
                if client("CLIENT", "TRACKING", "ON", "REDIRECT", lane, "BCAST") == OK:
                    client("CLIENT", "TRACKING", "OFF")
                    client("CLIENT", "TRACKING", "ON", "REDIRECT", lane, "BCAST")
                    client("SET", "noise", 1)
                    client("CLIENT", "TRACKING", "OFF")

    attacker = threading.Thread(target=aim)
    attacker.start()
    try:
        for turn in range(15):
            client = headgate.connect()
            assert isinstance(replies_among_pushes(client, ("HELLO", 3))[0], Map)
            assert replies_among_pushes(client, ("SET", "k", turn)) == [OK]
            assert replies_among_pushes(client, ("MULTI",), ("GET", "k"), ("EXEC",))[2] == [b"%d" % turn]
            assert replies_among_pushes(client, ("GET", "k")) == [b"%d" % turn]
            client.close()
            time.sleep(0.12)
    finally:
        stop.set()
        attacker.join(20)
    assert stats(headgate, "upstream")["lanes_desynced_total"] == "0"


def test_who_asks_for_them_gets_them(redis, make_headgate, pool):
    """Tracking on the client's own lane, and redirected to a lane that another client owns."""
    headgate = make_headgate(redis, pool=pool)
    client, other, writer = headgate.connect(), headgate.connect(), headgate.connect()
    for one in (client, other):
        assert isinstance(one("HELLO", 3), Map)
    assert client("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a:") == OK
    assert writer("SET", "a:1", 1) == OK
    assert client.read() == Push([b"invalidate", [b"a:1"]])
    identity = other("CLIENT", "ID")
    assert writer("CLIENT", "TRACKING", "ON", "REDIRECT", identity, "BCAST", "PREFIX", "b:") == OK
    assert client("SET", "b:1", 1) == OK
    assert other.read() == Push([b"invalidate", [b"b:1"]])
    assert stats(headgate, "upstream")["pushes_dropped_total"] == "0"
