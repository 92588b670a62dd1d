"""What only reads is read from replicas, where the configuration says so: by whom, and when not."""

import pytest

from harness.admin import stats
from harness.latency import ON, await_report
from harness.limits import rule, spend
from harness.reads import Calls, await_fit, fit, nodes
from harness.resp import OK, Error, wait_for
from harness.rules import reload


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


# ---- by whom ----


@pytest.mark.parametrize("reads", ("prefer-replica", "replica"))
@pytest.mark.parametrize("threads", (1, 4))
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


def test_transactions_are_the_masters(group, make):
    headgate = make()
    client = headgate.connect()
    reading = Calls(group, "get")
    assert client("WATCH", "k") == OK
    client("GET", "k")
    assert client("MULTI") == OK
    assert client("GET", "k") == b"QUEUED"
    assert len(client("EXEC")) == 1
    assert reading.of(group.master()) == 2
    client("GET", "k")
    assert reading.of(group.master()) == 2, "and reads are the replicas' again behind it"


def test_without_the_option_nothing_is_read_from_them(group, make_headgate):
    headgate = make_headgate(group.url)
    reading = Calls(group, "get")
    with headgate.connect() as client:
        client("GET", "k")
    assert reading.of(group.master()) == 1
    assert {node["reads"] for node in nodes(headgate)} == {""}


# ---- own writes ----


def test_who_wrote_reads_from_the_master_for_a_while(group, make):
    headgate = make(read_own_writes="1h")
    writer, other = headgate.connect(), headgate.connect()
    reading = Calls(group, "get")
    for number in range(20):
        assert writer("SET", "own", number) == OK
        assert writer("GET", "own") == str(number).encode()
    assert reading.of(group.master()) == 20
    other("GET", "own")
    assert reading.of(group.master()) == 20


def test_what_libraries_say_when_they_connect_is_no_write(group, make):
    headgate = make(read_own_writes="1h")
    client = headgate.connect()
    reading = Calls(group, "get")
    assert not isinstance(client("HELLO", 3), Error)
    client("CLIENT", "SETINFO", "LIB-NAME", "some")
    assert client("CLIENT", "SETNAME", "me") == OK
    assert client("SELECT", 1) == OK
    client("PING")
    client("INFO")
    client("CONFIG", "GET", "port")
    client("PUBLISH", "c", "m")
    client("GET", "k")
    assert reading.of(group.master()) == 0


def test_after_that_from_a_replica(group, make):
    headgate = make(read_own_writes="1s")
    client = headgate.connect()
    reading = Calls(group, "get")
    assert client("SET", "own", 1) == OK
    assert client("GET", "own") == b"1"
    assert reading.of(group.master()) == 1

    def is_at_a_replica():
        before = reading.of(group.master())
        client("GET", "own")
        return reading.of(group.master()) == before

    wait_for(is_at_a_replica, 30, "the time to be over")


@pytest.mark.parametrize("write", (("SET", "p", "{}"), ("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "p", "{}")))
def test_a_pipeline_sees_its_own_writes(group, make, write):
    """Even when the client has said that it does not mind: they are in the order in which it has sent them."""
    headgate = make()
    client = headgate.connect()
    for number in range(50):
        said = [tuple(str(word).format(number) for word in write), ("GET", "p"), ("GET", "p"), ("PING",), ("GET", "p")]
        replies = client.pipeline(said)
        assert replies[1] == replies[2] == str(number).encode(), replies


def test_a_read_does_not_see_what_was_written_after_it(group, make):
    headgate = make()
    client, other = headgate.connect(), headgate.connect()
    for number in range(100):
        assert other("SET", "q", f"before {number}") == OK
        await_copy(group, "q", f"before {number}".encode())
        assert client.pipeline([("GET", "q"), ("SET", "q", "later")]) == [f"before {number}".encode(), OK]


# ---- policies ----


def test_limits_count_reads_of_replicas(group, make):
    headgate = make()
    client = headgate.connect()
    reload(headgate, rule("few", commands="get", keys="limited:*", limit=3, per="key"), client)
    reading = Calls(group, "get")
    assert spend(client, "GET", "limited:k", name="few") == 3
    assert [client("GET", "free") for _ in range(7)] == [None] * 7
    assert reading.of(group.master()) == 0
    assert sum(reading.of(server) for server in replicas(group)) == 10


def test_what_is_measured_includes_them(group, make):
    headgate = make()
    client = headgate.connect()
    reload(headgate, ON + "[latency:reads]\ncommands = getrange\n", client)
    reading = Calls(group, "getrange")
    client.pipeline([("GETRANGE", "k", 0, 1)] * 30)
    assert [client("GETRANGE", "none", 0, 1) for _ in range(5)] == [b""] * 5
    await_report(headgate, "reads", 35)
    assert reading.of(group.master()) == 0


def test_pause_holds_them(group, make):
    headgate = make()
    client = headgate.connect()
    with headgate.admin() as admin:
        assert admin("PAUSE") == OK
        client.request("GET", "k")
        wait_for(lambda: stats(headgate, "pause")["pause_held"] == "1", what="it to be held")
        reading = Calls(group, "get")
        assert admin("RESUME") == OK
    assert client.read() == client("GET", "k")
    assert reading.of(group.master()) == 0 and sum(reading.of(server) for server in replicas(group)) == 2


def test_reload_takes_effect(group, make):
    headgate = make()
    client = headgate.connect()
    reading = Calls(group, "get")
    client("GET", "k")
    assert reading.of(group.master()) == 0
    headgate.write_config(reads="master")
    reload(headgate, "", client)
    client("GET", "k")
    assert reading.of(group.master()) == 1
    headgate.write_config(reads="replica")
    reload(headgate, "", client)
    await_fit(headgate, replicas(group))
    client("GET", "k")
    assert reading.of(group.master()) == 1


def test_nodes_shows_them(group, make):
    headgate = make()
    with headgate.connect() as client:
        for _ in range(9):
            client("GET", "k")
    wait_for(lambda: sum(int(node["reads"]) for node in nodes(headgate, "replica")) == 9, 30, "the reads to show")
    assert fit(headgate) == {server.sentinel_port for server in replicas(group)}
    assert all(0 <= int(node["lag"]) <= 10_000 for node in nodes(headgate, "replica"))
