"""What each command does before a real Redis Cluster: one node, to whoever asks, with all keys of all masters."""

import re

import pytest

from harness.cluster import SLOTS, tag_of
from harness.resp import OK, PONG, QUEUED, Closed, Error, wait_for

CROSSSLOT = Error(b"CROSSSLOT Keys in request don't hash to the same slot")


@pytest.fixture
def empty(cluster):
    for node in cluster.masters:
        node.tell("FLUSHALL")
        node.tell("SCRIPT", "FLUSH")
        node.tell("FUNCTION", "FLUSH")
    return cluster


@pytest.fixture
def client(empty, make_headgate, pool):
    return connect(empty, make_headgate, pool=pool)


def connect(cluster, make_headgate, **options):
    headgate = make_headgate(cluster.url("cluster"), **options)
    client = headgate.connect()
    wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    return client


def fill(client, count=300):
    keys = [f"key:{number}".encode() for number in range(count)]
    assert client.pipeline([("SET", key, key) for key in keys]) == [OK] * count
    return keys


def masters_say(cluster, *command):
    return [node.ask(*command) for node in cluster.masters]


def test_what_concerns_all_keys_is_told_to_all_masters(client, empty):
    keys = fill(client)
    assert all(masters_say(empty, "DBSIZE")), "each master has some of them"
    assert client("DBSIZE") == len(keys)
    assert sorted(client("KEYS", "*")) == sorted(keys)
    assert client("KEYS", "key:17") == [b"key:17"]
    assert client("RANDOMKEY") in keys
    assert client("FLUSHALL") == OK
    assert masters_say(empty, "DBSIZE") == [0, 0, 0]
    assert client("DBSIZE") == 0
    assert client("RANDOMKEY") is None
    assert client("FLUSHDB", "ASYNC") == OK


def test_scripts_and_functions_are_everywhere(client, empty):
    sha = client("SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])")
    assert masters_say(empty, "SCRIPT", "EXISTS", sha) == [[1], [1], [1]]
    for number in range(20):
        assert client("EVALSHA", sha, 1, f"counter:{number}") == 1
    empty.masters[1].tell("SCRIPT", "FLUSH")
    assert client("SCRIPT", "EXISTS", sha, "0" * 40) == [0, 0], "one of them lacks it"
    assert client("SCRIPT", "FLUSH") == OK
    library = "#!lua name=lib\nredis.register_function('double', function(keys) return redis.call('INCRBY', keys[1], 2) end)"
    assert client("FUNCTION", "LOAD", library) == b"lib"
    assert [client("FCALL", "double", 1, f"counter:{number}") for number in range(20)] == [3] * 20
    assert client("FUNCTION", "DELETE", "lib") == OK
    assert masters_say(empty, "FUNCTION", "LIST") == [[], [], []]
    assert client("FUNCTION", "DELETE", "lib") == Error(b"ERR Library not found")
    assert client("SCRIPT", "KILL") == Error(b"NOTBUSY No scripts in execution right now.")


REFUSED = [
    "SHUTDOWN NOSAVE", "MONITOR", "SYNC", "PSYNC ? -1", "REPLCONF ACK 1", "CLUSTER RESET HARD", "CLUSTER MEET 1.2.3.4 5",
    "CLUSTER FORGET x", "CLUSTER FAILOVER", "CLUSTER ADDSLOTS 1", "CLUSTER SETSLOT 1 STABLE", "FAILOVER",
    "MIGRATE 127.0.0.1 6379 key 0 100", "DEBUG SEGFAULT", "DEBUG RELOAD", "CLIENT KILL ID 1", "CLIENT UNBLOCK 1",
    "CLIENT TRACKING on", "CLIENT TRACKING on optin", "RESTORE-ASKING key 0 x"
]  # fmt: skip


def test_what_is_for_one_node_only_is_refused_with_a_reason(client, empty):
    for command in REFUSED:
        words = command.split()
        reply = client(*words)
        name = " ".join(words[:2]) if words[0] == "CLIENT" else words[0]
        assert isinstance(reply, Error), (command, reply)
        assert reply.startswith(f"ERR {name} is refused here, before a Redis Cluster: ".encode()), reply
        assert client("PING") == PONG, "and that is all"
    assert all(node.is_alive() for node in empty.masters)
    assert client("REPLICAOF", "127.0.0.1", "1") == Error(b"ERR REPLICAOF not allowed in cluster mode.")
    assert client("MOVE", "key", "1") == Error(b"ERR MOVE is not allowed in cluster mode")


def test_what_is_for_several_nodes_spoils_a_transaction(client):
    for command in ("KEYS *", "DBSIZE", "SCAN 0", "FLUSHALL", "MONITOR"):
        assert client("MULTI") == OK
        assert client("SET", "key", "v") == QUEUED
        assert isinstance(client(*command.split()), Error)
        assert client("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")
        assert client("GET", "key") is None


def test_keys_in_several_slots_are_refused_as_redis_does(client):
    for command in ("MGET a b c", "MSET a 1 b 2", "MSETNX a 1 b 2", "BITOP AND a b"):
        assert client(*command.split()) == CROSSSLOT
    for name in ("DEL", "UNLINK", "EXISTS", "TOUCH", "SUNION", "RENAME", "PFCOUNT", "SSUBSCRIBE"):
        assert client(name, "a", "b") == CROSSSLOT, name
    assert client("PING") == PONG


def test_requests_over_several_slots_are_taken_apart(empty, make_headgate, pool):
    client = connect(empty, make_headgate, pool=pool, cross_slot="split")
    keys = [f"key:{number}" for number in range(200)]
    pairs = [word for key in keys for word in (key, f"value of {key}")]
    assert client("MSET", *pairs) == OK
    assert sum(masters_say(empty, "DBSIZE")) == 200
    values = [f"value of {key}".encode() for key in keys]
    assert client("MGET", *keys) == values
    assert client("MGET", *reversed(keys)) == values[::-1]
    assert client("MGET", "key:1", "none", "key:2", "key:1") == [values[1], None, values[2], values[1]]
    assert client("EXISTS", *keys, "none", "key:1") == 201
    assert client("TOUCH", *keys, "none") == 200
    assert client("DEL", *keys[:50], "none") == 50
    assert client("UNLINK", *keys[:100]) == 50
    assert client("DBSIZE") == 100
    assert client("MSET", "a", 1, "b") == CROSSSLOT, "as Redis, which looks at slots first"
    assert client("MSET", "a", 1, "a") == Error(b"ERR wrong number of arguments for 'mset' command")
    assert client("MSETNX", "a", 1, "b", 2) == CROSSSLOT
    assert client("SET", "list", "x") == OK
    assert client("DEL", "list") == 1
    assert client("RPUSH", "list", "x") == 1
    assert client("MGET", "list", "key:150") == [None, values[150]]


@pytest.mark.parametrize("name", ["MGET", "KEYS"])
def test_replies_of_which_a_part_is_missing_count(empty, make_headgate, name):
    """All of them are held until then, however busily the client reads."""
    client = connect(empty, make_headgate, cross_slot="split", client_output_limit="4mb")
    tags = [tag_of(min(empty.slots_of(node))) for node in empty.masters]
    for tag in tags:
        assert client("SET", f"{{{tag}}}", "v" * 2_000_000) == OK
        assert client("SET", f"{{{tag}}}" + "k" * 2_000_000, "v") == OK
    assert client("GET", f"{{{tags[0]}}}") == b"v" * 2_000_000
    with pytest.raises(Closed):
        client(*(["KEYS", "*"] if name == "KEYS" else ["MGET", *(f"{{{tag}}}" for tag in tags)]))


def test_a_client_sees_its_own_effects_in_order(empty, make_headgate, pool):
    """Pipelined: what goes to several nodes is neither overtaken nor overtakes."""
    client = connect(empty, make_headgate, pool=pool, cross_slot="split")
    commands, expected = [], []
    for number in range(100):
        commands += [("SET", "a", number), ("MSET", "a", number + 1, "b", number), ("GET", "a")]
        commands += [("MGET", "b", "a"), ("DEL", "a", "b"), ("EXISTS", "a"), ("DBSIZE",)]
        expected += [OK, OK, b"%d" % (number + 1), [b"%d" % number, b"%d" % (number + 1)], 2, 0, 0]
    assert client.pipeline(commands) == expected


def test_headgate_is_the_one_node(empty, make_headgate):
    headgate = make_headgate(empty.url("cluster"), threads=2)
    client = headgate.connect()
    wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    [[first, last, [host, port, own_id, metadata]]] = client("CLUSTER", "SLOTS")
    assert (first, last, host, port, metadata) == (0, SLOTS - 1, b"127.0.0.1", headgate.port, [])
    assert re.fullmatch(rb"[0-9a-f]{40}", own_id)
    assert client("CLUSTER", "MYID") == own_id
    line = client("CLUSTER", "NODES")
    assert line == b"%s 127.0.0.1:%d@0 myself,master - 0 0 %d connected 0-16383\n" % (
        own_id, headgate.port, int(re.search(rb"cluster_current_epoch:(\d+)", client("CLUSTER", "INFO")).group(1)),
    )  # fmt: skip
    assert client("CLUSTER", "KEYSLOT", "foo") == 12182
    info = client("CLUSTER", "INFO")
    assert b"cluster_state:ok\r\n" in info and b"cluster_slots_assigned:16384\r\n" in info
    [shard] = client("CLUSTER", "SHARDS")
    assert shard[1] == [0, SLOTS - 1]
    assert [client(name) for name in ("READONLY", "READWRITE", "ASKING")] == [OK] * 3
    other = headgate.connect()
    assert other("CLUSTER", "MYID") == own_id, "whichever worker it is"


def test_client_reply_is_refused(client):
    """It would hold at one node only."""
    assert client("CLIENT", "REPLY", "ON") == OK
    for mode in ("OFF", "SKIP"):
        refusal = client("CLIENT", "REPLY", mode)
        assert refusal.startswith(b"ERR headgate: CLIENT REPLY OFF and SKIP are refused before a Redis Cluster")
        assert client.pipeline([("MULTI",), ("CLIENT", "REPLY", mode), ("SET", "a", 1), ("EXEC",)])[1] == refusal
        assert client("ECHO", "here") == b"here"
