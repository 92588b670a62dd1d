"""Masters that die while requests wait on a client's own connection to them: what was not sent goes to who takes over.

All clients of a test wait during one failover, each with something else: nothing of it was written to the master that
died, so each is answered as by one Redis that took its time, in order, and nothing is done twice."""

import pytest

from harness.admin import await_end_seen
from harness.cluster import Cluster, tag_of
from harness.resp import NIL_ARRAY, NULL, OK, PONG, QUEUED, Closed, Map, Push, encode, wait_for
from harness.sentinel import Group

# Slots of the first of three masters, and one of another.
SLOT, SECOND_SLOT, OTHER_SLOT = 500, 700, 9000


class Waiting:
    """A client that sends requests while their master is away, and what it is to be answered."""

    def __init__(self, headgate, before=()):
        self.client = headgate.connect()
        self.client.socket.settimeout(60)
        self.expected = []
        for command in before:
            self.client(*command)

    def ask(self, *pairs):
        """(command, reply), all in one write."""
        self.client.send(b"".join(encode(*command) for command, _ in pairs))
        self.expected += [reply for _, reply in pairs]
        return self

    def check(self):
        replies = []
        while len(replies) < len(self.expected):
            reply = self.client.read()
            assert not isinstance(reply, Push) or reply[0] == b"ssubscribe", reply
            replies.append(reply)
        assert replies == self.expected
        assert self.client("PING") in (PONG, [b"pong", b""]), "there is nothing else"


def clients_of(headgate, tag, second_tag, other_tag):
    """One for each kind of request. The keys of each are its own."""
    number = iter(range(100))

    def key(of=tag):
        return f"{{{of}}}:{next(number)}"

    def begin(*before):
        return Waiting(headgate, before)

    k, j, counter = key(), key(second_tag), key()
    yield begin().ask((("SET", k, 5), OK), (("INCR", k), 6), (("APPEND", j, "ab"), 2), (("GET", k), b"6"))
    k = key()
    yield begin().ask((("RPUSH", k, 1), 1), (("PING",), PONG), (("BLPOP", k, 0), [k.encode(), b"1"]), (("LLEN", k), 0))
    k = key()
    yield begin().ask(
        (("INCR", k), 1), (("MULTI",), OK), (("INCR", k), QUEUED), (("PING",), QUEUED), (("EXEC",), [2, PONG]),
        (("INCR", k), 3), (("MULTI",), OK), (("GET", k), QUEUED), (("EXEC",), [b"3"]), (("INCR", k), 4),
    )  # fmt: skip
    k = key()
    yield begin(("MULTI",), ("PING",)).ask((("INCR", k), QUEUED), (("EXEC",), [PONG, 1]), (("GET", k), b"1"))
    k = key()
    yield begin().ask((("MULTI",), OK), (("SET", k, 1), QUEUED), (("DISCARD",), OK), (("GET", k), None))
    k = key()
    yield begin().ask(
        (("WATCH", k), OK), (("SET", k, 1), OK), (("MULTI",), OK), (("SET", k, 2), QUEUED), (("EXEC",), NIL_ARRAY),
        (("GET", k), b"1"),
    )  # fmt: skip
    k = key()
    script = "redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    yield begin().ask((("EVAL", script, 1, k, 3), b"3"), (("EVAL", script, 1, k, 4), b"7"))
    k = key()
    yield begin(("CLIENT", "SETNAME", "somebody")).ask((("INCR", k), 1), (("CLIENT", "GETNAME"), b"somebody"))
    k = key()
    yield begin(("HELLO", 3)).ask((("HSET", k, "f", "v"), 1), (("HGETALL", k), Map([b"f", b"v"])))
    k = key()
    yield begin(("SET", key(other_tag), 1)).ask((("INCR", k), 1), (("INCR", k), 2), (("INCR", key(other_tag)), 1))
    # Of several clients: in which order is not known, but each is counted.
    for _ in range(3):
        yield begin().ask((("SADD", counter, next(number)), 1))
    k = key()
    yield begin().ask((("SET", k, "x" * 100), OK), *((("INCR", f"{k}:{i % 7}"), i // 7 + 1) for i in range(700)))


def test_before_a_cluster(make_headgate, pool):
    with Cluster(masters=3, replicas=1) as cluster:
        headgate = make_headgate(cluster.url(), pool=pool, threads=2, upstream_wait="200s")
        headgate.await_log("3 of them masters with slots")
        # It takes a while to find them, and they are remembered.
        tags = [tag_of(slot) for slot in (SLOT, SECOND_SLOT, OTHER_SLOT)]
        lost = cluster.owner(SLOT)
        lost.kill()
        await_end_seen(headgate, lost.cluster_address[1])
        waiting = list(clients_of(headgate, *tags))
        channel = f"{{{tags[0]}}}channel"
        waiting.append(Waiting(headgate).ask((("SSUBSCRIBE", channel), [b"ssubscribe", channel.encode(), 1])))
        cluster.await_failover(lost)
        for one in waiting:
            one.check()


def test_behind_sentinels(make_headgate, pool):
    """What a client has said of its connection is said to the new master."""
    group = Group(replicas=1)
    try:
        headgate = make_headgate(group.url, pool=pool, upstream_wait="200s")
        headgate.await_log("connected to Redis")
        lost = group.master()
        lost.kill()
        await_end_seen(headgate, lost.port)
        waiting = list(clients_of(headgate, "a", "b", "c"))
        waiting.append(Waiting(headgate).ask((("SELECT", 3), OK), (("SET", "k", 3), OK), (("GET", "k"), b"3")))
        waiting.append(Waiting(headgate).ask((("GET", "k"), None), (("SELECT", 3), OK), (("EXISTS", "other"), 0)))
        tracks = headgate.connect()
        tracks.send(encode("HELLO", 3) + encode("CLIENT", "TRACKING", "ON") + encode("GET", "tracked"))
        for one in waiting:
            one.check()
        assert isinstance(tracks.read(), Map)
        assert [tracks.read() for _ in range(2)] == [OK, NULL]
        with headgate.connect() as other:
            assert other("SET", "tracked", 1) == OK
        assert tracks.read() == [b"invalidate", [b"tracked"]]
    finally:
        group.discard()


def test_a_transaction_whose_node_stays_away_ends_its_client(make_headgate, pool):
    """MULTI was answered before its node was known. What follows the refusal must not run outside of it."""
    with Cluster(masters=3, replicas=0) as cluster:
        for node in cluster.current_masters():
            node.tell("CONFIG", "SET", "cluster-require-full-coverage", "no")
        headgate = make_headgate(cluster.url(), pool=pool, upstream_wait="300ms")
        headgate.await_log("3 of them masters with slots")
        key, other = (f"{{{tag_of(slot)}}}k" for slot in (SLOT, OTHER_SLOT))
        client = headgate.connect()
        wait_for(lambda: client("SET", other, 1) == OK, what="its node to be reached")
        lost = cluster.owner(SLOT)
        lost.kill()
        await_end_seen(headgate, lost.cluster_address[1])
        client = headgate.connect()
        assert client("MULTI") == OK
        assert client("INCR", key).startswith(b"ERR headgate: no connection to Redis")
        with pytest.raises((Closed, OSError)):
            client("INCR", other)
        with headgate.connect() as another:
            wait_for(lambda: another("GET", other) == b"1", what="the value of before")
