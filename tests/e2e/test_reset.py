"""A client that goes without having read its replies resets its connection. What had come of its requests is run."""

import fcntl
import signal
import struct
import termios
import time

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, encode, wait_for

LONG = encode("SET", "long", b"v" * 100_000)
COUNTED = encode("INCR", "n")
TIMES = 60

PIPELINES = {
    "behind a long request": LONG + COUNTED * TIMES,
    "behind two": LONG * 2 + COUNTED * TIMES,
    "behind what shares a lane": encode("GET", "k") + LONG + COUNTED * TIMES,
    "behind another database": encode("SELECT", 0) + LONG + encode("SELECT", 0) + COUNTED * TIMES,
    "in a transaction": encode("MULTI") + LONG + COUNTED * TIMES + encode("EXEC"),
}


@pytest.fixture
def observer(redis):
    with redis.connect() as client:
        yield client


def send_and_go(headgate, redis, pipeline):
    """Redis has nothing of it before the client is gone, whose kernel resets the connection for what was not read."""
    client = headgate.connect()
    assert client("GET", "none") is None
    client.request("PING")
    taken = int(stats(headgate)["client_bytes_in_total"])
    time.sleep(0.2)
    redis.signal(signal.SIGSTOP)
    client.send(pipeline)
    wait_for(lambda: int(stats(headgate)["client_bytes_in_total"]) > taken, what="Headgate to read of it")
    # What its own kernel still has would be lost with the connection.
    wait_for(lambda: unsent(client.socket) == 0, what="all of it to be with Headgate's kernel")
    client.socket.close()


def unsent(connection):
    """Bytes that the other end has not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_what_had_come_is_run(redis, observer, make_headgate, pool, pipeline):
    headgate = make_headgate(redis, pool=pool)
    other = headgate.connect()
    assert other("SET", "k", 1) == OK
    send_and_go(headgate, redis, pipeline)
    time.sleep(0.3)
    redis.signal(signal.SIGCONT)
    wait_for(lambda: stats(headgate)["clients_connected"] == "1", 30, what="the client to be gone")
    wait_for(lambda: observer("GET", "n") == b"%d" % TIMES, what="all of its requests to be run")
    assert other("PING") == PONG


def test_nothing_waits_for_it_for_long(redis, make_headgate, pool):
    """Redis does not answer: the client is gone all the same."""
    headgate = make_headgate(redis, pool=pool)
    send_and_go(headgate, redis, PIPELINES["behind what shares a lane"])
    wait_for(lambda: stats(headgate)["clients_connected"] == "0", 30, what="the client to be gone")
    redis.signal(signal.SIGCONT)
    assert headgate.connect()("PING") == PONG
