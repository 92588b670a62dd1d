"""What only reads is read from replicas, where the configuration says so: by whom, and when not."""

import pytest

from harness.admin import stats
from harness.reads import Calls, await_fit
from harness.resp import OK, Error, wait_for


@pytest.fixture
def make(group, make_headgate):
    """A Headgate that reads from replicas, all of which are fit."""

    def start(reads="prefer-replica", **options):
        options = {"read_own_writes": "0", "sentinel_timeout": "20s", **options}
        headgate = make_headgate(group.url, reads=reads, **options)
        await_fit(headgate, replicas(group))
        return headgate

    return start


def replicas(group):
    return [server for server in group.servers if server is not group.master()]


def await_copy(group, key, value):
    """Until all replicas have it."""

    def has(server):
        with group.direct(server) as client:
            return client("GET", key) == value

    for server in replicas(group):
        wait_for(lambda one=server: has(one), 30, "the replicas to have it")


@pytest.mark.parametrize(("reads", "threads"), (("replica", 4),))
def test_reads_reach_replicas_and_writes_the_master(group, make, reads, threads):
    headgate = make(reads, threads=threads)
    clients = [headgate.connect() for _ in range(8)]
    assert clients[0]("SET", "k", "v") == OK
    await_copy(group, "k", b"v")
    reading, writing = Calls(group, "get"), Calls(group, "set")
    for client in clients:
        assert [client("GET", "k") for _ in range(5)] == [b"v"] * 5
        assert client("SET", "k", "v") == OK
    assert reading.of(group.master()) == 0
    assert sum(reading.of(server) for server in replicas(group)) == 40
    assert all(reading.of(server) > 0 for server in replicas(group)), "clients are spread over them"
    assert writing.of(group.master()) == 8
    assert int(stats(headgate, "topology")["reads_replica_total"]) == 40


def test_a_client_stays_with_one_replica(group, make):
    """So that it does not see time run back, as two of them are not equally far."""
    headgate = make()
    for _ in range(6):
        with headgate.connect() as client:
            reading = Calls(group, "get")
            assert [client("GET", "k") for _ in range(10)] == [client("GET", "k")] * 10
            assert sorted(reading.of(server) for server in replicas(group)) == [0, 11]


def test_nothing_else_is_read_from_them(group, make):
    headgate = make()
    client = headgate.connect()
    assert client("DEL", "h", "z", "s", "x") in range(5)
    client("HSET", "h", "f", 1)
    client("ZADD", "z", 1, "m")
    client("SADD", "s", "m")
    client("XADD", "x", "*", "f", 1)
    said = [
        ("SCAN", 0),
        ("HSCAN", "h", 0),
        ("SSCAN", "s", 0),
        ("ZSCAN", "z", 0),
        ("TOUCH", "h"),
        ("EVAL", "return redis.call('GET', KEYS[1])", 1, "k"),
        ("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "k"),
        ("XREAD", "STREAMS", "x", 0),
        ("XREAD", "BLOCK", 1, "STREAMS", "x", "$"),
        ("OBJECT", "ENCODING", "h"),
        ("DBSIZE",),
        ("RANDOMKEY",),
        ("KEYS", "*"),
        ("GETEX", "k"),
        ("GETDEL", "k"),
    ]
    counted = {words[0].lower(): None for words in said}
    counts = {name: Calls(group, name if name != "object" else "object|encoding") for name in counted}
    for words in said:
        assert not isinstance(client(*words), Error)
    for name, count in counts.items():
        assert count.of(group.master()) > 0, name
        assert [count.of(server) for server in replicas(group)] == [0, 0], name


@pytest.mark.parametrize("write", (("SET", "p", "{}"), ("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "p", "{}")))
def test_a_pipeline_sees_its_own_writes(group, make, write):
    """Even when the client has said that it does not mind: they are in the order in which it has sent them."""
    headgate = make()
    client = headgate.connect()
    for number in range(20):
        said = [tuple(str(word).format(number) for word in write), ("GET", "p"), ("GET", "p"), ("PING",), ("GET", "p")]
        replies = client.pipeline(said)
        assert replies[1] == replies[2] == str(number).encode(), replies


def test_a_read_does_not_see_what_was_written_after_it(group, make):
    headgate = make()
    client, other = headgate.connect(), headgate.connect()
    for number in range(30):
        assert other("SET", "q", f"before {number}") == OK
        await_copy(group, "q", f"before {number}".encode())
        assert client.pipeline([("GET", "q"), ("SET", "q", "later")]) == [f"before {number}".encode(), OK]
