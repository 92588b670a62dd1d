"""DRAIN and SHUTDOWN on the admin port."""

import pytest

from harness.admin import stats
from harness.http import ask as get
from harness.resp import OK, PONG, Closed, encode, wait_for


def ask(headgate, *words):
    with headgate.admin() as admin:
        return admin(*words)


def takes_nobody(headgate):
    try:
        with headgate.connect() as client:
            client("PING")
    except OSError:
        return True
    return False


def await_age(headgate):
    """Who has just come is given half a second to ask."""
    wait_for(lambda: b"age=0" not in ask(headgate, "CLIENTS"), what="clients that have not just come")


def begin_request(headgate):
    """A client that has sent a part of a request, and is the only one: also the harness' own, of the start, has gone."""
    busy = headgate.connect()
    busy.send(encode("SET", "k", "v")[:-4])
    wait_for(lambda: (told := ask(headgate, "CLIENTS")).count(b"qbuf=") == 1 and b"qbuf=0" not in told,
             what="the beginning of a request")  # fmt: skip
    return busy


@pytest.mark.threads
def test_the_process_stays(make, redis):
    """Who works is waited for, without a bound; the others go at once."""
    headgate = make("", threads=4, drain_timeout="10ms")
    idle = [headgate.connect() for _ in range(20)]
    assert all(client("PING") == PONG for client in idle)
    busy = headgate.connect()
    assert busy("MULTI") == OK
    busy.send(encode("SET", "k", "v")[:-4])
    await_age(headgate)
    assert ask(headgate, "DRAIN") == 1
    for client in idle:
        client.assert_closed()
    assert takes_nobody(headgate)
    assert ask(headgate, "DRAIN") == 1, "it can be asked again"
    before = int(stats(headgate)["uptime_in_seconds"])
    wait_for(lambda: int(stats(headgate)["uptime_in_seconds"]) > before + 1, what="more than drain_timeout")
    busy.send(encode("SET", "k", "v")[-4:])
    assert busy.read() == b"QUEUED"
    wait_for(lambda: ask(headgate, "DRAIN") == 0, what="the last client to go")
    assert headgate.process.poll() is None
    assert ask(headgate, "PING") == PONG, "new admin connections are taken"
    assert ask(headgate, "SHUTDOWN") == OK
    assert headgate.wait() == 0


def test_shutdown_after_drain_has_its_bound(make):
    headgate = make("", drain_timeout="200ms")
    busy = begin_request(headgate)
    assert ask(headgate, "DRAIN") == 1
    assert ask(headgate, "SHUTDOWN") == OK
    assert headgate.wait() == 0
    busy.assert_closed()


def test_what_is_under_way_is_answered(make):
    headgate = make("", threads=2)
    clients = [headgate.connect() for _ in range(10)]
    assert all(client("PING") == PONG for client in clients)
    await_age(headgate)
    for number, client in enumerate(clients):
        client.send(encode("ECHO", f"mine{number}") * 1000)
        assert client.read() == b"mine%d" % number
    ask(headgate, "DRAIN")
    for number, client in enumerate(clients):
        assert client.read_many(999) == [b"mine%d" % number] * 999
        with pytest.raises(Closed):
            client.read()


def test_what_passes_unmatched_is_answered(make):
    """Redis has carried all of it out long before it is read."""
    headgate, big = make(""), b"x" * 500_000
    clients = [headgate.connect() for _ in range(3)]
    assert clients[0]("SET", "x", big) == OK
    for client in clients:
        client.send(encode("CLIENT", "REPLY", "OFF") + encode("CLIENT", "REPLY", "ON"))
        assert client.read() == OK
    await_age(headgate)
    for client in clients:
        client.send(encode("GET", "x") * 40)
        assert client.read() == big
    ask(headgate, "DRAIN")
    for client in clients:
        assert client.read_many(39) == [big] * 39
        with pytest.raises(Closed):
            client.read()


def test_it_is_not_ready(started, redis):
    headgate = started(redis)
    wait_for(lambda: get(headgate, "/ready").status == 200, what="readiness")
    wait_for(lambda: ask(headgate, "DRAIN") == 0, what="the end of the harness' own client")
    answer = get(headgate, "/ready")
    assert (answer.status, "draining" in answer.text) == (503, True)
    assert get(headgate, "/live").status == 200
    assert "headgate_draining 1" in get(headgate, "/metrics").text
