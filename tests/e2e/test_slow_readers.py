"""Clients that do not keep up with their replies have lanes of their own, and share again when they have caught up."""

import socket

import pytest

from harness.admin import stats
from harness.resp import OK, wait_for

MEBIBYTE = 1 << 20
# On a lane of its own the rest is left to Redis.
UNREAD = 100_000
CLIENTS = 5


def words(headgate, name):
    """What CLIENTS says of each client."""
    with headgate.admin() as admin:
        lines = admin("CLIENTS").decode().splitlines()
    return [word.partition("=")[2] for line in lines for word in line.split() if word.startswith(name + "=")]


def reasons(headgate):
    """Why each has the lane that it has."""
    return words(headgate, "lane")


def fall_behind(headgate, clients):
    """Each asks for what is large, and does not read it."""
    for client in clients:
        client.request("GET", "huge")
    wait_for(lambda: sum(int(size) > UNREAD for size in words(headgate, "obuf")) == len(clients), what="unread replies")


@pytest.fixture
def clients(redis, make_headgate):
    """They have read late what was large, and so have lanes of their own from the next request on."""
    headgate = make_headgate(redis, pool="shared")
    with redis.connect() as look:
        assert look("SET", "huge", b"v" * (16 * MEBIBYTE)) == OK
    clients = [headgate.connect() for _ in range(CLIENTS)]
    for client in clients:
        # Otherwise the kernel might come to take all of it, as they read so much.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    fall_behind(headgate, clients)
    for client in clients:
        assert len(client.read()) == 16 * MEBIBYTE
        assert client("SET", "small", 1) == OK
    return clients, headgate


def test_clients_that_rest_share_again(clients):
    """Without a request: one that comes once an hour would have a connection to Redis for all the time."""
    clients, headgate = clients
    wait_for(lambda: reasons(headgate) == ["shared"] * CLIENTS, what="slow readers to share again")
    wait_for(lambda: int(stats(headgate)["clients_exclusive"]) == 0, what="lanes to be given back")
    assert [client("GET", "small") for client in clients] == [b"1"] * CLIENTS


def test_one_that_does_not_read_is_served_to_the_end(clients):
    """However long it rests while the others share again."""
    clients, headgate = clients
    fall_behind(headgate, clients[:1])
    wait_for(lambda: reasons(headgate).count("shared") >= CLIENTS - 1, what="the others to share again")
    # There may be a moment in which its socket has taken what there was, and Redis has yet to be read from.
    wait_for(lambda: max(int(size) for size in words(headgate, "obuf")) > UNREAD, what="the rest to be unread yet")
    assert len(clients[0].read()) == 16 * MEBIBYTE
    wait_for(lambda: reasons(headgate) == ["shared"] * CLIENTS, what="it to share again, too")
