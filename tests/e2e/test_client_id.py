"""CLIENT ID and CLIENT INFO in pool = shared: the id is that of a connection which the client keeps for a while, or for
life where somebody may count on it; it never becomes another client's."""

import time

import pytest

from harness.admin import stats, text
from harness.resp import NULL, OK, QUEUED, Error, encode, wait_for
from harness.target import client_list

SHORT = "300ms"
LONGER = 1.0
ASK = [("CLIENT", "ID"), ("CLIENT", "INFO")]


def id_of(client, question=("CLIENT", "ID")):
    reply = client(*question)
    return reply if isinstance(reply, int) else int(reply.split(b" ")[0].partition(b"id=")[2])


def exclusive(headgate):
    return int(stats(headgate, "clients")["clients_exclusive"])


def lane_of(headgate, client):
    """What CLIENTS shows as the reason for the client's lane."""
    address = "addr=%s:%d " % client.socket.getsockname()
    with headgate.admin() as admin:
        (line,) = [line for line in text(admin("CLIENTS")).splitlines() if address in line]
    return dict(field.split("=", 1) for field in line.split())["lane"]


def until_shared(headgate):
    wait_for(lambda: exclusive(headgate) == 0, what="all clients to share lanes")


def known_to(redis):
    with redis.connect() as direct:
        return {int(entry["id"]) for entry in client_list(direct)}


@pytest.mark.parametrize("question, resp", [(ASK[0], 2), (ASK[1], 3)])
def test_who_has_asked_shares_again_after_a_while(redis, make_headgate, question, resp):
    headgate = make_headgate(redis, pool="shared", client_id_timeout="3s")
    client = headgate.connect()
    client("HELLO", resp)
    identity = id_of(client, question)
    assert lane_of(headgate, client) == "client-id"
    assert id_of(client) == identity and identity in known_to(redis)
    until_shared(headgate)
    wait_for(lambda: identity not in known_to(redis), what="its connection to be gone")
    assert client("SET", "k", 1) == OK and client("GET", "k") == b"1"


def test_who_goes_on_working_shares_again(redis, make_headgate):
    """Also in the middle of pipelines without a gap."""
    headgate = make_headgate(redis, pool="shared", client_id_timeout=SHORT)
    client = headgate.connect()
    id_of(client)
    expected = 0
    deadline = time.monotonic() + 60
    client.send(encode("INCR", "n") * 50)
    while exclusive(headgate) > 0 and time.monotonic() < deadline:
        client.send(encode("INCR", "n") * 50)
        for _ in range(50):
            expected += 1
            assert client.read() == expected
    for _ in range(50):
        expected += 1
        assert client.read() == expected
    until_shared(headgate)


def test_an_id_that_was_told_is_never_anothers(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", client_id_timeout="100ms")
    told = {id_of(headgate.connect()) for _ in range(10)}
    assert len(told) == 10
    until_shared(headgate)
    others = [headgate.connect() for _ in range(20)]
    for other in others:
        assert other("MULTI") == OK
        assert other("CLIENT", "ID") == QUEUED
    shown = {other("EXEC")[0] for other in others}
    assert len(shown) == 20 and not shown & told
    with redis.connect() as direct:
        assert all(direct("CLIENT", "KILL", "ID", identity) == 0 for identity in told)
        assert all(direct("CLIENT", "UNBLOCK", identity) == 0 for identity in told)
    assert all(other("ECHO", "alive") == b"alive" for other in others)


def test_who_asks_again_after_that_keeps_the_second_lane(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", client_id_timeout=SHORT)
    client = headgate.connect()
    first = id_of(client)
    until_shared(headgate)
    second = id_of(client, ASK[1])
    assert second != first
    time.sleep(LONGER)
    assert lane_of(headgate, client) == "connection-state"
    assert id_of(client) == second


def test_who_waits_is_unblocked_though_the_time_is_over(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", client_id_timeout="100ms")
    client, other = headgate.connect(), headgate.connect()
    client.send(encode("CLIENT", "ID") + encode("BLPOP", "none", 0))
    identity = client.read()
    time.sleep(LONGER)
    for _ in range(3):
        wait_for(lambda: other("CLIENT", "UNBLOCK", identity, "ERROR") == 1, what="the client to be unblocked")
        assert isinstance(client.read(), Error)
        time.sleep(LONGER)
        client.request("BLPOP", "none", 0)
        wait_for(lambda: lane_of(headgate, client) == "blocking", what="the client to wait")


@pytest.mark.parametrize("begins", [("WATCH", "k"), ("MULTI",), ("CLIENT", "TRACKING", "ON"), ("SUBSCRIBE", "c")])
def test_what_else_keeps_the_lane_keeps_the_id(redis, make_headgate, begins):
    headgate = make_headgate(redis, pool="shared", client_id_timeout=SHORT)
    client = headgate.connect()
    client("HELLO", 3)
    client.send(encode("CLIENT", "ID") + encode(*begins))
    identity = client.read()
    assert not isinstance(client.read(), Error)
    time.sleep(LONGER)
    assert identity in known_to(redis)
    if begins == ("MULTI",):
        assert client("SET", "k", 1) == QUEUED
        assert client("EXEC") == [OK]
        until_shared(headgate)
    elif begins == ("WATCH", "k"):
        with redis.connect() as direct:
            assert direct("SET", "k", 1) == OK
        assert client("MULTI") == OK
        assert client("EXEC") is NULL
        until_shared(headgate)
