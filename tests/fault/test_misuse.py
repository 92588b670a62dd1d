"""What a client does that no library does: nobody else gets its replies, and it waits for none that will not come."""

import socket
import time

import pytest

from harness import tls
from harness.resp import NIL_ARRAY, OK, PONG, QUEUED, encode
from harness.rules import launch

# Bytes. Under the sanitizer what OpenSSL has freed, its buffers of each record, is held back for a while.
KEPT_AT_MOST = (24 if tls.is_usual() else 16) << 20
LIMITED = ("on", ">p", "~*", "&*", "+@all")


@pytest.mark.parametrize("piece", [9_000, 1 << 20], ids=["in pieces", "at once"])
def test_a_long_command_that_has_to_be_understood_whole(redis, make_headgate, pool, piece):
    """WATCH and BLPOP are longer than what is read ahead. Redis compares each key to be watched with all: there are few."""
    client = make_headgate(redis, pool=pool).connect()
    keys = [f"key-{number:0160}" for number in range(2_000)]
    for arguments, expected in [(("WATCH", *keys), OK), (("BLPOP", *keys, "0.01"), NIL_ARRAY)]:
        request = encode(*arguments)
        for start in range(0, len(request), piece):
            client.send(request[start : start + piece])
        assert client.read() == expected


def test_values_that_look_like_messages(redis, make_headgate, pool):
    """In RESP3 a subscriber may send anything, and a reply may look like what a message is in RESP2."""
    client = make_headgate(redis, pool=pool).connect()
    client("HELLO", 3)
    client("RPUSH", "message", "message", "c", "text")
    client("RPUSH", "farewell", "unsubscribe", "c", "0")
    client("SUBSCRIBE", "c")
    assert client("LRANGE", "message", 0, -1) == [b"message", b"c", b"text"]
    assert client("LRANGE", "farewell", 0, -1) == [b"unsubscribe", b"c", b"0"]
    with redis.connect() as publisher:
        assert publisher("PUBLISH", "c", "news") == 1
    assert client.read() == [b"message", b"c", b"news"]
    assert client("QUIT") == OK
    client.assert_closed()


def test_select_that_is_queued_and_never_run(redis, make_headgate):
    """DISCARD is refused to this user, so what follows it is still part of the transaction, which fails."""
    headgate = make_headgate(redis)
    with redis.connect() as admin:
        admin("ACL", "SETUSER", "u", *LIMITED, "-discard")
    client = headgate.connect()
    assert client("AUTH", "u", "p") == OK
    client.send(encode("MULTI") + encode("DISCARD") + encode("SELECT", 5) + encode("EXEC"))
    replies = client.read_many(4)
    assert replies[2] == QUEUED and replies[3].startswith(b"EXECABORT")
    client.pipeline([("MULTI",), ("SET", "where", 0), ("EXEC",)])
    assert client("SET", "here", 0) == OK
    with redis.connect() as observer:
        assert sorted(observer("KEYS", "*")) == [b"here", b"where"]
        observer("SELECT", 5)
        assert observer("KEYS", "*") == []


def test_a_refused_reply_mode(redis, make_headgate):
    """
    CLIENT REPLY SKIP is refused to this user. So Redis answers two requests more than were to be answered, and whoever
    took the answer to SET for that to CLIENT REPLY ON would believe the lane clean, with a large value still to come.
    """
    headgate = make_headgate(redis)
    with redis.connect() as admin:
        admin("ACL", "SETUSER", "v", *LIMITED, "-client")
        admin("SET", "large", b"secret" * 100_000)
    trap = b"".join(
        encode(*command)
        for command in [("CLIENT", "REPLY", "SKIP"), ("SET", "k", 1), ("GET", "large"), ("CLIENT", "REPLY", "ON")]
    )
    for _ in range(20):
        attacker, victim = headgate.connect(), headgate.connect()
        assert attacker("AUTH", "v", "p") == OK and victim("AUTH", "v", "p") == OK
        attacker.send(trap)
        for _ in range(5):
            assert victim.pipeline([("MULTI",), ("ECHO", "mine"), ("EXEC",)]) == [OK, QUEUED, [b"mine"]]
        attacker.close()
        victim.close()
    assert "answer no request" not in headgate.log()


def busy(redis, seconds):
    """Redis does nothing else for so long."""
    client = redis.connect()
    client.request("DEBUG", "SLEEP", seconds)
    time.sleep(0.1)
    return client


def test_wait_keeps_nobody_waiting(redis, make_headgate):
    """The client that sends WAIT does not read; the reply to somebody else is behind its own on the same lane."""
    headgate = make_headgate(redis, lanes=1)
    with redis.connect() as client:
        client.pipeline([("SET", "large", b"v" * 60_000), ("SET", "small", 1)])
    greedy, other = headgate.connect(), headgate.connect()
    greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert greedy("PING") == PONG and other("PING") == PONG
    with busy(redis, 0.5):
        greedy.send(encode("GET", "large") * 300)
        time.sleep(0.1)
        other.request("GET", "small")
        time.sleep(0.1)
        greedy.request("WAIT", 0, 1)
        assert other.read() == b"1"


def test_a_replica_that_floods_a_hanging_redis(redis, make_headgate, stopped):
    headgate = make_headgate(redis)
    client = headgate.connect()
    client.request("PSYNC", "?", -1)
    assert client.read().startswith(b"FULLRESYNC")
    before = headgate.rss()
    chunk = encode("REPLCONF", "ACK", 0) * 2048
    with stopped(redis):
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(4096):
                client.socket.sendall(chunk)
    assert headgate.rss() - before < KEPT_AT_MOST
    client.close()


def test_silent_refusals_that_flood_a_hanging_redis(redis, make_headgate, stopped):
    """Within MULTI each refused request is stood in for, so that EXEC fails."""
    headgate = launch(make_headgate, redis, "shared", "[deny:get]\ncommands = get\n")
    client = headgate.connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("MULTI"))
    client.assert_silent()
    before = headgate.rss()
    with stopped(redis):
        client.socket.settimeout(0.5)
        with pytest.raises(OSError):
            for _ in range(512):
                client.socket.sendall(encode("GET", "k") * 4096)
    assert headgate.rss() - before < KEPT_AT_MOST
    client.close()
