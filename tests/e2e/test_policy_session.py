"""The policy contract where the state of a connection matters: transactions, CLIENT REPLY and subscriptions. Shown by
headgate-probe, as test_policy.py says."""

import pytest

from harness.probe import refused
from harness.resp import NULL, OK, PONG, QUEUED, Error, Push, bulk, encode


@pytest.fixture
def client(probe):
    with probe.connect() as client:
        yield client


# ---- transactions ----


def test_a_refusal_spoils_the_transaction(probe, client, redis):
    commands = [("MULTI",), ("SET", "a", "1"), ("SET", "probe:reply:b", "2"), ("SET", "c", "3"), ("EXEC",), ("PING",)]
    replies = client.pipeline(commands)
    assert replies[:4] == [OK, QUEUED, refused("probe:reply:b"), QUEUED]
    assert isinstance(replies[4], Error) and replies[4].startswith(b"EXECABORT")
    assert replies[5] == PONG
    assert redis.connect()("EXISTS", "a", "probe:reply:b", "c") == 0
    assert client.pipeline([("MULTI",), ("INCR", "a"), ("EXEC",)]) == [OK, QUEUED, [1]]


# ---- CLIENT REPLY: only Redis knows whether a request has a reply, and is given what it has to refuse ----

REFUSED_BY_REDIS = Error(b"ERR unknown command 'refused-by-headgate', with args beginning with: ")


def test_refusals_under_reply_off_are_silent(probe, client):
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "1") + encode("GET", "probe:reply:a"))
    client.send(encode("GET", "probe:delayreply:50:b") + encode("GET", "probe:hold:50:c") + encode("SET", "a", "2"))
    # More than the way to Redis takes while that does something else.
    client.send(encode("EVAL", "for i = 1, 1e8 do end", 0))
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


# ---- subscriptions ----


def test_while_subscribed_in_resp3(probe, client, redis):
    client("HELLO", "3")
    assert client("SUBSCRIBE", "news") == Push([b"subscribe", b"news", 1])
    assert client("GET", "probe:reply:a") == refused("probe:reply:a")
    publisher = redis.connect()
    client.request("SET", "a", "probe:wait:a")
    probe.await_counts(held=1)
    publisher("PUBLISH", "news", "while held")
    assert client.read() == Push([b"message", b"news", b"while held"])
    with probe.connect() as other:
        assert other("GET", "probe:release:a") == OK
    assert client.read() == OK
    client.send(encode("GETSET", "a", "probe:hold:200:a") + encode("GET", "probe:delayreply:50:b") + encode("GET", "c"))
    assert client.read_many(3) == [b"probe:wait:a", refused("probe:delayreply:50:b"), NULL]
    assert client("UNSUBSCRIBE") == Push([b"unsubscribe", b"news", 0])
    assert client("GET", "probe:reply:a") == refused("probe:reply:a")


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
