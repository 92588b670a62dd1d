"""CLIENT TRACKING … REDIRECT to connections of others: invalidation messages arrive where nobody has asked for them."""

import time

from harness.admin import stats
from harness.resp import OK, Map
from harness.target import client_list
from harness.threads import at_once

SECONDS = 0.3


def shared_resp3_lanes(observer):
    return [entry["id"] for entry in client_list(observer) if entry["name"] == "headgate" and entry["resp"] == "3"]


def test_redirection_to_shared_lanes_harms_nobody(redis, make_headgate):
    """An attacker finds the ids by trying; here Redis is asked for them. Victims get their replies, and nothing else."""
    headgate = make_headgate(redis, threads=2)
    victims = [headgate.connect() for _ in range(4)]
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
