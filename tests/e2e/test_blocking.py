"""Commands that wait: woken, timed out, pipelined behind, abandoned; and WAIT, which speaks of the own writes."""

import signal

import pytest

from harness.resp import NIL_ARRAY, OK, Error, encode, wait_for
from harness.servers import Redis
from harness.target import info

# Longer than anybody waits for an answer here: who is held up by a command that blocks fails.
LONG = 60

STREAM_READERS = [
    (b"XREAD", b"BLOCK\0", 0, b"STREAMS", b"s", b"$"),
    (b"xread", b"block\0anything", 0, b"streams", b"s", b"$"),
    (b"XREAD", b"COUNT\0", 1, b"BLOCK\0\0", 0, b"STREAMS\0", b"s", b"$"),
    (b"XREAD", b"COUNT", b"5", b"bLoCk", 0, b"streams\0x", b"s", b"$"),
    (b"XREADGROUP", b"GROUP\0", b"g", b"c", b"BLOCK\0", 0, b"STREAMS", b"s", b">"),
    (b"xreadgroup", b"group", b"g", b"c", b"noack\0", b"count", 1, b"block\0", 0, b"streams\0", b"s", b">"),
    (b"XREADGROUP", b"BLOCK\0", 0, b"GROUP", b"block", b"streams", b"STREAMS", b"s", b">"),
    # Names that are words of its own.
    (b"XREADGROUP", b"GROUP", b"streams", b"c", b"BLOCK", 0, b"STREAMS", b"s", b">"),
    (b"XREADGROUP", b"GROUP", b"g", b"STREAMS", b"BLOCK", LONG * 1000, b"STREAMS", b"s", b">"),
]


def test_however_a_reader_of_streams_is_spelt_it_blocks_nobody_else(target):
    """To Redis a word ends at a NUL, so the command blocks; the others of the same lane must not wait with it."""
    waiting, others = target.connect(), [target.connect() for _ in range(4)]
    for command in STREAM_READERS:
        others[0]("DEL", "s")
        for group in ("g", "block", "streams"):
            assert others[0]("XGROUP", "CREATE", "s", group, "$", "MKSTREAM") == OK
        waiting.request(*command)
        target.await_blocked(1)
        for turn, other in enumerate(others):
            assert other("SET", "k", turn) == OK
            assert other.pipeline([("GET", "k"), ("EVAL", "return 1", 0)]) == [b"%d" % turn, 1]
        assert others[0]("XADD", "s", "1-1", "f", "v") == b"1-1"
        assert waiting.read() == [[b"s", [[b"1-1", [b"f", b"v"]]]]], command


WAKES = [
    (("BRPOP", "k", LONG), ("RPUSH", "k", "v"), [b"k", b"v"]),
    (("BLMOVE", "k", "to", "LEFT", "RIGHT", LONG), ("RPUSH", "k", "v"), b"v"),
    (("BRPOPLPUSH", "k", "to", LONG), ("RPUSH", "k", "v"), b"v"),
    (("BLMPOP", LONG, 2, "none", "k", "LEFT"), ("RPUSH", "k", "v"), [b"k", [b"v"]]),
    (("BZPOPMIN", "k", LONG), ("ZADD", "k", 1, "v"), [b"k", b"v", b"1"]),
    (("BZPOPMAX", "k", LONG), ("ZADD", "k", 1, "v"), [b"k", b"v", b"1"]),
    (("BZMPOP", LONG, 1, "k", "MIN"), ("ZADD", "k", 1, "v"), [b"k", [[b"v", b"1"]]]),
    (("XREAD", "BLOCK", LONG * 1000, "STREAMS", "k", "$"), ("XADD", "k", "1-1", "f", "v"),
     [[b"k", [[b"1-1", [b"f", b"v"]]]]]),
    (("xread", "count", 1, "block", LONG * 1000, "streams", "k", "$"), ("XADD", "k", "1-1", "f", "v"),
     [[b"k", [[b"1-1", [b"f", b"v"]]]]]),
]  # fmt: skip


def test_every_blocking_command_blocks_nobody_else(target):
    client, other, third = target.connect(), target.connect(), target.connect()
    for command, wake, reply in WAKES:
        client.request(*command)
        target.await_blocked(1)
        for _ in range(5):
            assert third("ECHO", "x") == b"x"
        other(*wake)
        assert client.read() == reply
        other("DEL", "k", "to")


def test_commands_pipelined_behind_wait_for_it(target):
    client, other = target.connect(), target.connect()
    client.send(encode("SET", "n", 1) + encode("BLPOP", "k", 0) + encode("INCR", "n") + encode("GET", "n"))
    assert client.read() == OK
    target.await_blocked(1)
    client.assert_silent()
    assert other("GET", "n") == b"1"
    other("RPUSH", "k", "v")
    assert client.read_many(3) == [[b"k", b"v"], 2, b"2"]


def test_client_unblock(target):
    client, other = target.connect(), target.connect()
    identity = client("CLIENT", "ID")
    client.request("BLPOP", "k", 0)
    target.await_blocked(1)
    assert other("CLIENT", "UNBLOCK", identity) == 1
    assert client.read() is NIL_ARRAY
    client.request("BLPOP", "k", 0)
    target.await_blocked(1)
    assert other("CLIENT", "UNBLOCK", identity, "ERROR") == 1
    assert client.read() == Error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK")
    assert other("CLIENT", "UNBLOCK", identity) == 0


@pytest.mark.parametrize("before", (b"", encode("CLIENT", "REPLY", "SKIP") + encode("PING")), ids=("", "unmatched"))
def test_client_unpause(target, before):
    client, reader, other = (target.connect() for _ in range(3))
    assert [client("GET", "k"), reader("GET", "k")] == [None, None]
    other.send(before)
    assert other("CLIENT", "PAUSE", 60_000, "WRITE") == OK
    client.request("SET", "k", 1)
    assert reader("GET", "k") is None
    client.assert_silent()
    assert other("CLIENT", "UNPAUSE") == OK
    assert client.read() == OK


@pytest.fixture
def replica(target):
    server = Redis("--replicaof", f"127.0.0.1 {target.redis.port}", "--repl-diskless-load", "swapdb")
    observer = target.direct()
    wait_for(lambda: b"state=online" in observer("INFO", "replication"), what="the replica online")
    yield server
    server.discard()
    wait_for(lambda: info(observer, "replication")["connected_slaves"] == "0", what="the replica gone")


def test_wait_speaks_of_the_clients_own_writes(target, replica):
    """Only a client that wrote has something to wait for while the replica hangs."""
    writer, reader = target.connect(), target.connect()
    assert writer("SET", "k", 1) == OK
    assert writer("WAIT", 1, 20000) == 1
    assert reader("GET", "k") == b"1"
    replica.signal(signal.SIGSTOP)
    try:
        assert writer("SET", "k", 2) == OK
        assert writer("WAIT", 1, 300) == 0
        assert writer("GET", "k") == b"2"
        writer.send(encode("SET", "k", 3) + encode("WAIT", 1, 300) + encode("GET", "k"))
        assert writer.read_many(3) == [OK, 0, b"3"]
    finally:
        replica.signal(signal.SIGCONT)
    assert writer("WAIT", 1, 20000) == 1
