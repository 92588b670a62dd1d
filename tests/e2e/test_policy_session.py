"""The policy contract where the state of a connection matters: transactions, CLIENT REPLY, subscriptions, and what ends it:
no request is left without its one on_reply. Shown by
headgate-probe, as test_policy.py says."""

import signal
import time

import pytest

from harness.probe import refused
from harness.resp import OK, QUEUED, Error, Push, bulk, encode, wait_for


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


REFUSED_BY_REDIS = Error(b"ERR unknown command 'refused-by-headgate', with args beginning with: ")


def test_refusals_under_reply_off_are_silent(probe, client):
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "1") + encode("GET", "probe:reply:a"))
    client.send(encode("GET", "probe:delayreply:50:b") + encode("GET", "probe:hold:50:c") + encode("SET", "a", "2"))
    # More than the way to Redis takes while that does something else.
    client.send(encode("DEBUG", "SLEEP", "0.5"))
    client.send((encode("SET", "b", "v" * 1000) + encode("GET", "probe:reply:b")) * 20_000)
    client.send(encode("CLIENT", "REPLY", "ON") + encode("GET", "probe:reply:d") + encode("GET", "a"))
    assert client.read_many(3) == [OK, REFUSED_BY_REDIS, b"2"]
    client.assert_silent()
    probe.await_counts(replied=20_003)


def test_refusal_under_reply_skip_is_silent(probe, client):
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:reply:a") + encode("SET", "a", "1"))
    assert client.read() == OK
    assert client("GET", "a") == b"1"
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:delayreply:50:a"))
    assert client("GET", "probe:reply:b") == REFUSED_BY_REDIS
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("GET", "probe:hold:50:a"))
    assert client("INCR", "a") == 2
    client.assert_silent()


def test_a_refusal_behind_a_skipped_multi(probe, client):
    """Redis begins the transaction without saying so; the refusal is part of it all the same."""
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("MULTI") + encode("SET", "a", "1"))
    client.send(encode("GET", "probe:reply:a") + encode("EXEC") + encode("EXISTS", "a"))
    replies = client.read_many(4)
    assert replies[:2] == [QUEUED, REFUSED_BY_REDIS]
    assert replies[2].startswith(b"EXECABORT") and replies[3] == 0


def test_a_refusal_does_not_cut_a_push_in_two(fake, pool, make_probe):
    probe = make_probe(fake.url, pool=pool)
    client = probe.connect()
    client("HELLO", "3")
    client.request("SUBSCRIBE", "news")
    command = fake.expect("SUBSCRIBE", "news")
    command.reply(b">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
    assert client.read() == Push([b"subscribe", b"news", 1])
    push = b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n" + bulk("x" * 1000)
    command.lane.send(push[:300])
    assert client.read_exactly(300) == push[:300]
    client.request("GET", "probe:reply:a")
    client.assert_silent()
    command.lane.send(push[300:])
    assert client.read_exactly(len(push) - 300) == push[300:]
    assert client.read() == refused("probe:reply:a")
    client.request("GET", "probe:pass:a")
    fake.expect("GET", "probe:pass:a").reply(b"_\r\n")
    client.read()
    client.close()
    probe.await_balance()


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
