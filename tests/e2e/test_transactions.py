"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

import pytest

from harness.resp import NIL_ARRAY, OK, QUEUED, Error, encode, wait_for


def test_another_clients_exec_executes_nothing_of_mine(target):
    """Whoever vanishes with an open MULTI leaves nothing that another's EXEC could run."""
    for _ in range(10):
        client = target.connect()
        client("MULTI")
        client("SET", "k", "abandoned")
        client.close()
        for _ in range(3):
            other = target.connect()
            assert other("EXEC") == Error(b"ERR EXEC without MULTI")
            assert other("MULTI") == OK
            assert other("EXEC") == []
    assert target.connect()("EXISTS", "k") == 0


def test_an_abandoned_watch_aborts_nobody(target):
    for _ in range(5):
        watching = target.connect()
        watching("WATCH", "k")
        watching.close()
        client = target.connect()
        client("SET", "k", 1)
        client("MULTI")
        client("SET", "k", 2)
        assert client("EXEC") == [OK]


def test_effects_of_a_pipeline_keep_their_order_around_multi(client):
    """Commands before MULTI take effect before it, commands after EXEC after it."""
    for _ in range(50):
        client.send(
            encode("DEL", "l") + b"".join(encode("RPUSH", "l", number) for number in range(20))
            + encode("MULTI") + encode("RPUSH", "l", "in") + encode("LRANGE", "l", 0, -1) + encode("EXEC")
            + b"".join(encode("RPUSH", "l", number) for number in range(20, 40)) + encode("LRANGE", "l", 0, -1)
        )
        before = [b"%d" % number for number in range(20)]
        after = [b"%d" % number for number in range(20, 40)]
        client.read()
        assert client.read_many(20) == list(range(1, 21))
        assert client.read_many(3) == [OK, QUEUED, QUEUED]
        assert client.read() == [21, before + [b"in"]]
        assert client.read_many(20) == list(range(22, 42))
        assert client.read() == before + [b"in"] + after


def test_blocking_commands_do_not_block_in_a_transaction(client):
    client("MULTI")
    client("BLPOP", "none", 0)
    client("BLMOVE", "none", "l", "LEFT", "RIGHT", 0)
    client("XREAD", "BLOCK", 0, "STREAMS", "none", "$")
    assert client("EXEC") == [NIL_ARRAY, None, NIL_ARRAY]


def test_select_in_a_transaction(target):
    client, other = target.connect(), target.connect()
    client("MULTI")
    assert client("SELECT", 2) == QUEUED
    assert client("SET", "k", "in 2") == QUEUED
    assert client("EXEC") == [OK, OK]
    assert client("GET", "k") == b"in 2"
    assert other("GET", "k") is None
    other("SELECT", 2)
    assert other("GET", "k") == b"in 2"


@pytest.mark.parametrize("vanish", ["close", "reset"])
def test_a_client_that_vanishes_in_a_transaction(target, vanish):
    client = target.connect()
    client("MULTI")
    client("SET", "k", 1)
    getattr(client, vanish)()
    observer = target.direct()
    wait_for(lambda: b"multi=1" not in observer("CLIENT", "LIST"), what="the open MULTI to be gone")
    assert observer("EXISTS", "k") == 0
