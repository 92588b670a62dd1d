"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

import pytest

from harness.resp import NIL_ARRAY, NULL, OK, QUEUED, Error, Status, encode, wait_for


def test_a_transaction(client):
    assert client("MULTI") == OK
    assert client("SET", "k", 1) == QUEUED
    assert client("INCR", "k") == QUEUED
    assert client("LRANGE", "none", 0, -1) == QUEUED
    assert client("EXEC") == [OK, 2, []]
    assert client("GET", "k") == b"2"


def test_a_transaction_is_not_seen_before_exec(target):
    client, other = target.connect(), target.connect()
    client("MULTI")
    client("SET", "k", 1)
    assert other("GET", "k") is None
    client("EXEC")
    assert other("GET", "k") == b"1"


def test_discard(client):
    client("SET", "k", 0)
    client("MULTI")
    assert client("INCR", "k") == QUEUED
    assert client("DISCARD") == OK
    assert client("GET", "k") == b"0"
    assert client("EXEC") == Error(b"ERR EXEC without MULTI")


def test_an_empty_transaction(client):
    client("MULTI")
    assert client("EXEC") == []


def test_an_error_while_queueing_aborts(client):
    client("MULTI")
    assert client("SET", "k", 1) == QUEUED
    assert client("NONSENSE") == Error(b"ERR unknown command 'NONSENSE', with args beginning with: ")
    assert client("SET", "k") == Error(b"ERR wrong number of arguments for 'set' command")
    assert client("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")
    assert client("GET", "k") is None


def test_an_error_while_running_does_not_abort(client):
    client("MULTI")
    client("SET", "k", "text")
    client("INCR", "k")
    client("SET", "l", 1)
    assert client("EXEC") == [OK, Error(b"ERR value is not an integer or out of range"), OK]


def test_multi_within_multi(client):
    client("MULTI")
    assert client("MULTI") == Error(b"ERR MULTI calls can not be nested")
    assert client("SET", "k", 1) == QUEUED
    assert client("EXEC") == [OK]


def test_watch_within_multi(client):
    client("MULTI")
    assert client("WATCH", "k") == Error(b"ERR WATCH inside MULTI is not allowed")
    assert client("EXEC") == []


def test_watch_undisturbed(target):
    client, other = target.connect(), target.connect()
    assert client("WATCH", "k") == OK
    other("SET", "unrelated", 1)
    client("MULTI")
    client("SET", "k", "mine")
    assert client("EXEC") == [OK]


def test_watch_conflict(target):
    client, other = target.connect(), target.connect()
    client("WATCH", "k")
    assert other("SET", "k", "theirs") == OK
    client("MULTI")
    client("SET", "k", "mine")
    assert client("EXEC") is NIL_ARRAY
    assert client("GET", "k") == b"theirs"


def test_watch_conflict_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("WATCH", "k")
    other("SET", "k", "theirs")
    client("MULTI")
    assert client("EXEC") is NULL


def test_watch_sees_the_clients_own_write(client):
    client("WATCH", "k")
    client("SET", "k", 1)
    client("MULTI")
    client("SET", "k", 2)
    assert client("EXEC") is NIL_ARRAY


def test_watch_over_many_other_commands(target):
    """A watch lasts, however long the client talks of other things and others come and go."""
    client, other = target.connect(), target.connect()
    client("WATCH", "k")
    for number in range(100):
        client("SET", f"other{number}", 1)
        with target.connect() as passing:
            passing("ECHO", number)
    other("SET", "k", 1)
    client("MULTI")
    client("PING")
    assert client("EXEC") is NIL_ARRAY


def test_unwatch(target):
    client, other = target.connect(), target.connect()
    client("WATCH", "k")
    assert client("UNWATCH") == OK
    other("SET", "k", "theirs")
    client("MULTI")
    client("SET", "k", "mine")
    assert client("EXEC") == [OK]


def test_discard_unwatches(target):
    client, other = target.connect(), target.connect()
    client("WATCH", "k")
    client("MULTI")
    client("DISCARD")
    other("SET", "k", 1)
    client("MULTI")
    client("SET", "k", 2)
    assert client("EXEC") == [OK]


def test_a_watch_in_one_database_does_not_concern_another(target):
    client, other = target.connect(), target.connect()
    client("SELECT", 1)
    client("WATCH", "k")
    other("SET", "k", 1)
    client("MULTI")
    client("SET", "k", 2)
    assert client("EXEC") == [OK]
    assert other("GET", "k") == b"1"


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


def test_two_transactions_interleaved(target):
    one, two = target.connect(), target.connect()
    one("MULTI")
    two("MULTI")
    for number in range(20):
        assert one("RPUSH", "one", number) == QUEUED
        assert two("RPUSH", "two", number) == QUEUED
    assert one("EXEC") == list(range(1, 21))
    assert two("EXEC") == list(range(1, 21))


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


def test_order_of_effects_as_monitor_sees_it(target):
    client, monitor = target.connect(), target.direct()
    monitor("MONITOR")
    client.send(
        b"".join(encode("SET", "seq", number) for number in range(50))
        + encode("MULTI") + encode("SET", "seq", 50) + encode("EXEC")
        + encode("BLPOP", "none", "0.01")
        + b"".join(encode("SET", "seq", number) for number in range(51, 100))
    )
    client.read_many(50 + 3 + 1 + 49)
    seen = []
    while len(seen) < 100:
        line = monitor.read()
        if b'"SET" "seq"' in line:
            seen.append(int(line.rsplit(b'"', 2)[1]))
    assert seen == list(range(100))


def test_many_transactions_in_one_pipeline(client):
    client.send(b"".join(encode("MULTI") + encode("INCR", "n") + encode("EXEC") for _ in range(500)))
    for number in range(1, 501):
        assert client.read_many(3) == [OK, QUEUED, [number]]


def test_watch_and_multi_pipelined(client):
    client.send(encode("WATCH", "k") + encode("GET", "k") + encode("MULTI") + encode("SET", "k", 1) + encode("EXEC"))
    assert client.read_many(5) == [OK, None, OK, QUEUED, [OK]]


def test_large_values_in_a_transaction(client):
    value = b"v" * (4 << 20)
    client.pipeline([("MULTI",), ("SET", "k", value)])
    client.request("GET", "k")
    assert client.read() == QUEUED
    assert client("EXEC") == [OK, value]


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


def test_select_in_a_discarded_transaction_changes_nothing(client):
    client("SET", "k", "in 0")
    client("MULTI")
    client("SELECT", 2)
    client("DISCARD")
    assert client("GET", "k") == b"in 0"


def test_setname_in_a_transaction(client):
    client("CLIENT", "SETNAME", "before")
    client("MULTI")
    assert client("CLIENT", "SETNAME", "within") == QUEUED
    assert client("CLIENT", "GETNAME") == QUEUED
    assert client("EXEC") == [OK, b"within"]
    assert client("CLIENT", "GETNAME") == b"within"


def test_auth_and_hello_in_a_transaction(client):
    """As it is in Redis: AUTH is queued, HELLO too is refused or queued in the same way."""
    client("MULTI")
    assert isinstance(client("HELLO", 2), (Status, Error))
    client("DISCARD")
    assert client("ECHO", "still here") == b"still here"


@pytest.mark.parametrize("vanish", ["close", "reset"])
def test_a_client_that_vanishes_in_a_transaction(target, vanish):
    client = target.connect()
    client("MULTI")
    client("SET", "k", 1)
    getattr(client, vanish)()
    observer = target.direct()
    wait_for(lambda: b"multi=1" not in observer("CLIENT", "LIST"), what="the open MULTI to be gone")
    assert observer("EXISTS", "k") == 0
