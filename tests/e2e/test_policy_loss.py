"""The policy contract when Redis, a client or Headgate itself goes: no request is left without its one on_reply. Shown
by headgate-probe, as test_policy.py says."""

import signal
import time

from harness.probe import refused
from harness.resp import OK, encode, wait_for


# ---- the upstream dies ----


def test_redis_dies_with_requests_under_way(probe, redis):
    """All that was sent is lost, for each of the client's requests."""
    clients = [probe.connect() for _ in range(5)]
    for client in clients:
        assert client.pipeline([("SET", "probe:pass:a", "1")] * 10) == [OK] * 10
    redis.signal(signal.SIGSTOP)
    for client in clients:
        client.send(encode("SET", "probe:pass:a", "1") * 10)
    probe.await_counts(passed=100, reply=50)
    redis.kill()
    for client in clients:
        client.assert_closed()
    probe.await_counts(reply=50, lost=50, ownerless=0)
    redis.start()
    wait_for(probe.serves, what="Redis to be back")


def test_redis_dies_while_a_request_is_held(redis, make_probe):
    """In shared mode a client that only waits for a policy has nothing to lose."""
    probe = make_probe(redis, pool="shared")
    client = probe.connect()
    assert client("SET", "probe:hold:50:a", "1") == OK
    client.send(encode("SET", "probe:wait:a", "2") + encode("GET", "probe:hold:0:a"))
    probe.await_counts(held=2, open=1)
    redis.restart()
    with probe.connect() as other:
        assert other("GET", "probe:release:a") == OK
    assert client.read_many(2) == [OK, None]
    client.close()
    probe.await_balance()
    probe.await_counts(lost=0, ownerless=0)


# ---- time-outs and the end ----


def test_drain_waits_for_held_requests(probe, redis, pool, make_probe):
    draining = make_probe(redis, pool=pool, drain_timeout="30s")
    client = draining.connect()
    client.send(encode("SET", "probe:hold:400:drained", "1"))
    draining.await_counts(held=1)
    draining.signal(signal.SIGTERM)
    assert client.read() == OK
    client.assert_closed()
    assert draining.wait() == 0
    assert redis.connect()("EXISTS", "probe:hold:400:drained") == 1


def test_the_end_at_once_leaves_no_record(redis, pool, make_probe):
    """The probe aborts if a request is open when its worker ends."""
    probe = make_probe(redis, pool=pool)
    client = probe.connect()
    client.send(encode("SET", "probe:hold:60000:a", "1"))
    probe.await_counts(held=1)
    probe.signal(signal.SIGTERM)
    time.sleep(0.1)
    probe.signal(signal.SIGTERM)
    assert probe.wait() == 0
    client.assert_closed()


def test_everything_at_once(redis, pool, make_probe):
    """Many clients on two workers with every verdict, some of which vanish; each record is ended in the end."""
    probe = make_probe(redis, pool=pool, threads=2)
    orders = ["pass:a", "reply:a", "hold:20:a", "delayreply:20:a", "pass:b", "hold:5:b"]
    for round_number in range(3):
        clients = [probe.connect() for _ in range(40)]
        for number, client in enumerate(clients):
            commands = [encode("SET", "probe:" + orders[(number + i) % len(orders)], i) for i in range(30)]
            client.send(b"".join(commands) + encode("ECHO", number))
        for number, client in enumerate(clients):
            if number % 4 == round_number:
                client.reset()
                continue
            replies = client.read_many(31)
            assert replies[30] == str(number).encode()
            for i, reply in enumerate(replies[:30]):
                order = "probe:" + orders[(number + i) % len(orders)]
                assert reply == (refused(order) if "reply" in order else OK)
            client.close()
    # Each worker counts for itself.
    wait_for(lambda: all(probe.counts()["open"] == 0 for _ in range(4)), what="the end of all requests")
