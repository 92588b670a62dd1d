"""WAIT before a cluster: it is about all that the client has written, at whichever nodes."""

import itertools

import pytest

from harness.admin import stats
from harness.cluster import Cluster, tag_of
from harness.resp import OK, QUEUED, Closed, encode, wait_for


@pytest.fixture(scope="module")
def cluster():
    with Cluster(masters=3, replicas=1) as made:
        # It takes a while to find them, and they are remembered.
        for slot in SLOTS:
            tag_of(slot)
        yield made


@pytest.fixture(scope="module")
def lonely():
    with Cluster(masters=3, replicas=0) as made:
        yield made


# One of each master.
SLOTS = (500, 6000, 12000)


def key_at(place, name="key"):
    return f"{{{tag_of(SLOTS[place])}}}{name}"


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    made = make_headgate(cluster.url(), pool=pool)
    made.await_log("3 of them masters with slots")
    return made


@pytest.fixture
def hanging(cluster):
    """The replica of the first master hangs: nothing that was written there is acknowledged."""
    replica = cluster.replica_of(cluster.owner(SLOTS[0]))
    replica.pause()
    yield replica
    replica.resume()
    cluster.await_agreement()


def test_the_least_of_all_nodes_counts(headgate, hanging):
    """Whichever was the last: at one of them no replica has it."""
    for places in ((0, 1), (1, 0), (2, 0, 1), (0,)):
        with headgate.connect() as client:
            for place in places:
                assert client("SET", key_at(place), 1) == OK
            assert client("WAIT", 1, 200) == 0
            assert client("SET", key_at(1), 2) == OK
            assert client("GET", key_at(2)) in (b"1", None)
            assert client("WAIT", 1, 200) == 0, "what was written before is not acknowledged yet"
    with headgate.connect() as client:
        assert [client("SET", key_at(place), 1) for place in (1, 2)] == [OK, OK]
        assert client("GET", key_at(0)) == b"1", "no write"
        assert client("WAIT", 1, 20000) == 1, "it is not about what others have written"


def test_it_ends_when_all_have_it(headgate, hanging):
    client = headgate.connect()
    client.send(b"".join(encode("INCR", key_at(place, "all")) for place in (0, 1, 2)))
    first = [client.read() for _ in range(3)]
    client.request("WAIT", 1, 60000)
    client.request("INCR", key_at(1, "all"))
    hanging.resume()
    assert client.read() == 1
    assert client.read() == first[1] + 1
    transaction = [("MULTI",), ("INCR", key_at(1, "all")), ("WAIT", 0, 0), ("EXEC",)]
    replies = client.pipeline(transaction)
    assert replies[:3] == [OK, QUEUED, QUEUED] and replies[3][0] == first[1] + 2
    assert client("WAIT", 0, 0) >= 0
    assert client("WAIT", 1, 20000) == 1


def test_who_goes_away_while_it_waits(headgate, hanging):
    """For ever, if nobody looks."""
    before = int(stats(headgate)["lanes_exclusive"])
    clients = [headgate.connect() for _ in range(5)]
    for client in clients:
        assert [client("SET", key_at(place), 1) for place in (0, 1)] == [OK, OK]
        client.request("WAIT", 1, 0)
    for number, client in enumerate(clients):
        if number % 2:
            client.shutdown_write()
            with pytest.raises(Closed):
                client.read()
        client.close()
    wait_for(lambda: int(stats(headgate)["clients_connected"]) == 0, 30, "all to be gone")
    wait_for(lambda: int(stats(headgate)["lanes_exclusive"]) <= before + 10, 30, "their connections to be gone")


def test_a_master_that_has_gone(make_headgate, pool):
    """Nobody knows whether the new one has what was written to it: it is said once that none has it."""
    with Cluster(masters=3, replicas=1) as cluster:
        headgate = make_headgate(cluster.url(), pool=pool, upstream_wait="60s")
        headgate.await_log("3 of them masters with slots")
        client = headgate.connect()
        assert [client("SET", key_at(place), 1) for place in (0, 1)] == [OK, OK]
        assert client("WAIT", 1, 20000) == 1
        lost, alone = cluster.owner(SLOTS[0]), headgate.connect()
        assert alone("SET", key_at(0), 1) == OK
        lost.kill()
        headgate.await_log(f"no connection to Redis at {lost.host}:{lost.port}")
        alone.send(encode("WAIT", 1, 0) + encode("PING"))
        cluster.await_failover(lost)
        assert alone.read_many(2) == [0, b"PONG"]
        assert client("SET", key_at(0), 2) == OK, "the client was at another node meanwhile"
        assert client("WAIT", 1, 20000) == 0
        assert client("WAIT", 0, 0) == 0, "the new master has no replica"
        assert client("SET", key_at(1), 2) == OK


BEHIND_WAIT = [
    ([("SET", "there", 2), ("GET", "here")], [OK, b"1"]), ([("MULTI",), ("SET", "there", 2), ("EXEC",)], [OK, QUEUED, [OK]]),
    ([("EVAL", "return 7", 1, "there")], [7]), ([("SET", "there", 2), ("WAIT", 0, 0), ("GET", "here")], [OK, 0, b"1"]),
]


def test_who_ends_its_stream_behind_that_of_one_node(make_headgate, pool, lonely):
    """What is for another node has to wait for it, and is carried out all the same."""
    headgate = make_headgate(lonely.url(), pool=pool)
    headgate.await_log("3 of them masters with slots")
    keys = {"here": key_at(0), "there": key_at(1)}
    node = lonely.owner(SLOTS[0])
    for resp, (rest, replies) in itertools.product((2, 3), BEHIND_WAIT):
        commands = [("SET", keys["here"], 1), ("WAIT", 0, 0)]
        commands += [tuple(keys.get(word, word) for word in command) for command in rest]
        client = headgate.connect()
        assert client("HELLO", resp)
        assert client("SET", keys["here"], 1) == OK
        node.pause()
        client.send(b"".join(encode(*command) for command in commands))
        client.shutdown_write()
        # It has seen the end by then.
        stats(headgate)
        node.resume()
        assert client.read_many(2 + len(replies)) == [OK, 0, *replies]
        client.assert_closed()
