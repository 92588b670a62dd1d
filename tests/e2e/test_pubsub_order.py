"""A message that is published behind a SUBSCRIBE, over another connection, reaches the subscriber, as without Headgate,
though the SUBSCRIBE needs a connection of its own and Redis is far away."""

import contextlib
import time

import pytest

from harness.admin import stats
from harness.relay import Relay
from harness.resp import OK, PONG, Push, wait_for

# One way, while it matters. To open a connection and to be greeted takes twice as long, or three times with a password.
DELAY = 1.0
# Between what two clients send: more than a slow machine takes to pass it on, less than it takes to open a connection.
PAUSE = 1.0
ROUNDS = 2


@pytest.fixture
def relay(redis):
    relay = Relay(redis)
    yield relay
    relay.close()


@contextlib.contextmanager
def far_away(relay):
    relay.delay = DELAY
    yield
    relay.delay = 0


def newcomer(headgate, version):
    client = headgate.connect()
    client("HELLO", version)
    assert client("PING") == PONG
    return client


@pytest.mark.parametrize(("version", "threads"), ((2, 1), (3, 2)))
def test_a_subscribe_is_not_overtaken(redis, relay, make_headgate, threads, version):
    with redis.connect() as admin:
        assert admin("ACL", "SETUSER", "default", ">pw", "on") == OK
    headgate = make_headgate(relay.url, threads=threads, upstream_password="pw", connect_timeout="20s")
    newcomers = [newcomer(headgate, version) for _ in range(threads)]
    publisher = newcomers[0]
    for turn in range(ROUNDS):
        subscriber = newcomer(headgate, version)
        wait_for(lambda: int(stats(headgate)["lanes_pooled"]) >= threads, what="lanes to be ready")
        with far_away(relay):
            subscriber.request("SUBSCRIBE", "c")
            time.sleep(PAUSE)
            assert publisher("PUBLISH", "c", turn) == 1
        subscription, message = subscriber.read_many(2)
        assert subscription[0] == b"subscribe" and message == type(message)([b"message", b"c", b"%d" % turn])
        assert isinstance(message, Push if version == 3 else list)
        subscriber.close()
        wait_for(lambda: publisher("PUBSUB", "NUMSUB", "c")[1] == 0, what="the subscriber to be gone")


def test_a_full_redis_is_no_nonsense(redis, make_headgate):
    """Redis tells a spare that there are too many clients: that is no answer to anything, and no fault."""
    with redis.connect() as admin:
        assert admin("CONFIG", "SET", "maxclients", 2) == OK
        headgate = make_headgate(redis, access_check=0)
        client = headgate.connect()
        assert client("SET", "k", 1) == OK
        wait_for(lambda: stats(headgate)["lanes_exclusive"] == "0", what="the spare to be given up")
        assert stats(headgate)["lanes_desynced_total"] == "0"
        assert client("GET", "k") == b"1"
        assert admin("CONFIG", "SET", "maxclients", 100) == OK
        assert client("BLPOP", "none", 0.01) is not None
        wait_for(lambda: stats(headgate)["lanes_pooled"] != "0", what="a spare")
