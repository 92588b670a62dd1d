"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

import pytest

from harness.resp import OK, Error, wait_for


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


@pytest.mark.parametrize("vanish", ["close", "reset"])
def test_a_client_that_vanishes_in_a_transaction(target, vanish):
    client = target.connect()
    client("MULTI")
    client("SET", "k", 1)
    getattr(client, vanish)()
    observer = target.direct()
    wait_for(lambda: b"multi=1" not in observer("CLIENT", "LIST"), what="the open MULTI to be gone")
    assert observer("EXISTS", "k") == 0
