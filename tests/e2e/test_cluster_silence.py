"""CLIENT REPLY before a cluster: no reply, whichever node it would be of, and nothing is lost by it."""

import random

import pytest

from harness.cluster import Cluster, slot_of, tag_of
from harness.resp import OK, PONG, QUEUED, Error, Map, Push, encode
from harness.several import Several


@pytest.fixture(scope="module")
def cluster():
    with Cluster(masters=3, replicas=0) as made:
        yield made


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    made = make_headgate(cluster.url(), pool=pool, cross_slot="split")
    made.await_log("3 of them masters with slots")
    with made.connect() as client:
        assert client("FLUSHALL") == OK
    return made


KEYS = [f"key:{number}" for number in range(12)]


def reply(mode):
    return ("CLIENT", "REPLY", mode)


@pytest.mark.parametrize("resp", (2, 3))
def test_off_and_keys_of_all_nodes(headgate, resp):
    client = headgate.connect()
    client("HELLO", resp)
    for number in range(1, 4):
        client.request(*reply("OFF"))
        for key in KEYS:
            client.request("INCR", key)
            client.request("GET", key)
        client.request("MULTI")
        client.request("INCR", KEYS[0])
        client.request("INCR", KEYS[0])
        client.request("EXEC")
        client.request("MGET", *KEYS)
        client.request("DBSIZE")
        client.request("EVAL", "return redis.call('INCR', KEYS[1])", 1, KEYS[1])
        client.request("NOSUCHCOMMAND")
        client.request("CLUSTER", "NODES")
        assert client(*reply("ON")) == OK
        counts = [number * 3, number * 2] + [number] * 10
        assert client("MGET", *KEYS) == [str(count).encode() for count in counts]


def test_skip_skips_the_next_one(headgate):
    client = headgate.connect()
    for key in KEYS:
        client.send(encode(*reply("SKIP")) + encode("INCR", key) + encode("INCR", key))
        assert client.read() == 2
        client.send(encode(*reply("SKIP")) + encode(*reply("SKIP")) + encode("INCR", key) + encode("INCR", key))
        assert client.read() == 4
        client.send(encode(*reply("SKIP")) + b"\r\n" + encode("INCR", key))
        assert client.read() == 5
        client.send(encode(*reply("SKIP")) + encode("CLUSTER", "MYID") + encode("PING"))
        assert client.read() == PONG
        client.send(encode(*reply("SKIP")) + encode("MGET", *KEYS) + encode("INCR", key))
        assert client.read() == 6


def test_as_one_redis(headgate, redis):
    """Whatever is asked in whichever order: the same replies, and the same data."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chosen = random.Random(seed)
    kinds = [
        lambda: reply(chosen.choice(("ON", "OFF", "SKIP", "SKIP"))),
        lambda: ("INCR", chosen.choice(KEYS)),
        lambda: ("APPEND", chosen.choice(KEYS), 1),
        lambda: ("LPUSH", chosen.choice(KEYS), "wrong type"),
        lambda: ("MSET", chosen.choice(KEYS), 1, chosen.choice(KEYS), 2),
        lambda: ("MGET", *chosen.sample(KEYS, 3)),
        lambda: ("GETSET", chosen.choice(KEYS), 7),
        lambda: ("EVAL", "return redis.call('INCR', KEYS[1])", 1, chosen.choice(KEYS)),
        lambda: ("PING",),
        lambda: ("CLIENT", "GETNAME"),
        lambda: ("DBSIZE",),
        lambda: ("NOSUCHCOMMAND", 1),
    ]
    for _ in range(20):
        pipeline = []
        while len(pipeline) < 60:
            if chosen.random() < 0.1:
                key = chosen.choice(KEYS)
                pipeline += [("MULTI",), ("INCR", key), ("STRLEN", key), ("EXEC",)]
            else:
                pipeline.append(chosen.choice(kinds)())
        pipeline += [reply("ON"), ("ECHO", "the end")]
        told = []
        for server in (headgate, redis):
            with server.connect() as client:
                client.send(b"".join(encode(*command) for command in pipeline))
                told.append([])
                while not told[-1] or told[-1][-1] != b"the end":
                    told[-1].append(client.read())
        assert told[0] == told[1], pipeline
    with headgate.connect() as here, redis.connect() as there:
        assert here("MGET", *KEYS) == there("MGET", *KEYS)


def test_nothing_is_lost_while_a_slot_moves(cluster, headgate):
    """A node that has it no more says so, and somebody has to hear it."""
    client = headgate.connect()
    key = f"{{{tag_of(500)}}}key"
    client.request(*reply("OFF"))
    first, second, third = cluster.masters
    for node in (second, third, first) * 3:
        cluster.move_slot(slot_of(key), node)
        client.request("INCR", key)
        client.request("INCR", KEYS[0])
        # Or the next one to be asked may still take another for the owner.
        cluster.await_agreement()
    assert client(*reply("ON")) == OK
    assert client("MGET", key, KEYS[0]) == [b"9", b"9"]


def test_who_would_not_hear_of_a_redirect_is_closed(cluster, headgate):
    """Within MULTI a redirect is an error, and what is queued is not executed: one Redis would have done it."""
    client = headgate.connect()
    first, second, _ = cluster.masters
    slot = min(cluster.slots_of(first))
    cluster.begin_migration(slot, second)
    try:
        client.request(*reply("OFF"))
        client.request("MULTI")
        client.request("INCR", f"{{{tag_of(slot)}}}not there")
        client.request("EXEC")
        client.assert_closed()
    finally:
        cluster.abort_migration(slot)


def test_subscribers_are_told(headgate):
    """What a channel says is no reply, nor is the confirmation."""
    publisher = headgate.connect()
    client = headgate.connect()
    assert isinstance(client("HELLO", 3), Map)
    client.request(*reply("OFF"))
    client.request("SUBSCRIBE", "news")
    assert client.read() == Push([b"subscribe", b"news", 1])
    client.request("ECHO", "nobody hears this")
    for number in range(20):
        client.request("PING")
        assert publisher("PUBLISH", "news", number) == 1
        assert client.read() == Push([b"message", b"news", str(number).encode()])
    client.request("UNSUBSCRIBE", "news")
    assert client.read() == Push([b"unsubscribe", b"news", 0])
    client.request("INCR", KEYS[1])
    assert client(*reply("ON")) == OK
    assert client("GET", KEYS[1]) == b"1"


def test_subscribers_in_resp2_are_told(headgate):
    publisher = headgate.connect()
    client = headgate.connect()
    client.send(encode(*reply("OFF")) + encode("INCR", KEYS[0]) + encode("SUBSCRIBE", "a", "b") + encode("PING"))
    assert [client.read() for _ in range(2)] == [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2]]
    for number in range(20):
        client.request("PING")
        publisher("PUBLISH", "a", number)
        assert client.read() == [b"message", b"a", str(number).encode()]
    client.request("UNSUBSCRIBE", "a", "b")
    assert [client.read() for _ in range(2)] == [[b"unsubscribe", b"a", 1], [b"unsubscribe", b"b", 0]]
    client.request("INCR", KEYS[0])
    assert client(*reply("ON")) == OK
    assert client("GET", KEYS[0]) == b"2"


def test_what_ends_it(headgate):
    client = headgate.connect()
    client.request(*reply("OFF"))
    client.request("INCR", KEYS[0])
    assert client("RESET") == b"RESET"
    assert client("GET", KEYS[0]) == b"1"
    client.request(*reply("OFF"))
    client.request(*reply("SKIP"))
    assert client("RESET") == b"RESET", "there was nothing to skip"
    client.request(*reply("OFF"))
    client.request("HELLO", 3)
    client.request("HSET", KEYS[1], "f", "v")
    assert client(*reply("ON")) == OK
    assert client("HGETALL", KEYS[1]) == Map([b"f", b"v"])
    assert isinstance(client("CLIENT", "REPLY", "MAYBE"), Error)
    client.request(*reply("OFF"))
    client.request("QUIT")
    client.assert_closed()


def test_within_a_transaction_it_holds_for_one_node(headgate):
    """As Redis would do it amid EXEC: what comes of it is passed on as it is."""
    client = headgate.connect()
    assert client("MULTI") == OK
    assert client(*reply("OFF")) == QUEUED
    client.request("EXEC")
    assert headgate.connect()("PING") == PONG


def test_who_cannot_be_told_is_closed(make_headgate):
    """A request that was not sent is answered by an error, or its client is closed."""
    with Cluster(masters=3, replicas=0) as cluster:
        headgate = make_headgate(cluster.url(), upstream_wait="400ms")
        headgate.await_log("3 of them masters with slots")
        client = headgate.connect()
        cluster.owner(500).kill()
        client.request(*reply("OFF"))
        client.request("SET", f"{{{tag_of(500)}}}key", 1)
        client.assert_closed()
