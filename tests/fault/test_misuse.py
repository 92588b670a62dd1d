"""What a client does that no library does: nobody else gets its replies, and it waits for none that will not come."""

import socket
import time

import pytest

from harness import tls
from harness.resp import NIL_ARRAY, OK, PONG, QUEUED, encode, wait_for
from harness.rules import launch
from harness.target import info

# Bytes. Under the sanitizer what OpenSSL has freed, its buffers of each record, is held back for a while.
KEPT_AT_MOST = (24 if tls.is_usual() else 16) << 20
LIMITED = ("on", ">p", "~*", "&*", "+@all")


def test_http_in_two_parts(redis, make_headgate):
    headgate = make_headgate(redis)
    client, other = headgate.connect(), headgate.connect()
    client.send(b"PO")
    time.sleep(0.1)
    client.send(b"ST / HTTP/1.1\r\nHost: x\r\n\r\n")
    client.assert_closed()
    assert other("PING") == PONG


@pytest.mark.parametrize("piece", [9_000, 1 << 20], ids=["in pieces", "at once"])
def test_a_long_command_that_has_to_be_understood_whole(redis, make_headgate, pool, piece):
    """WATCH and BLPOP of 20,000 keys are longer than what is read ahead of a client that waits."""
    client = make_headgate(redis, pool=pool).connect()
    keys = [f"key-{number:06}" for number in range(20_000)]
    for arguments, expected in [(("WATCH", *keys), OK), (("BLPOP", *keys, "0.01"), NIL_ARRAY)]:
        request = encode(*arguments)
        for start in range(0, len(request), piece):
            client.send(request[start : start + piece])
        assert client.read() == expected


def test_a_large_cut_through(redis, make_headgate):
    client = make_headgate(redis, cut_through="1mb").connect()
    value = b"v" * 500_000
    assert client("SET", "k", value) == OK
    assert client("GET", "k") == value


def test_an_inline_command_of_just_the_limit(redis, make_headgate):
    client = make_headgate(redis).connect()
    client.send(b"A")
    time.sleep(0.05)
    client.send(b"A" * 65535)
    time.sleep(0.1)
    client.send(b"A")
    assert client.read_to_end() == b"-ERR Protocol error: too big inline request\r\n"


def test_reset_that_is_not_answered(redis, make_headgate, pool):
    client = make_headgate(redis, pool=pool).connect()
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("RESET"))
    time.sleep(0.1)
    assert client("PING") == PONG


def test_commands_without_replies_before_quit(redis, make_headgate, pool):
    """Nobody waits for them, and still they are carried out: on a lane that is new, and on one that is busy."""
    headgate = make_headgate(redis, pool=pool)
    for count in (3, 20_000):
        redis_client = redis.connect()
        redis_client("DEL", "n")
        client = headgate.connect()
        client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * count + encode("QUIT"))
        wait_for(lambda: redis_client("GET", "n") == b"%d" % count, what="all of them to be executed")


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


def test_a_transaction_behind_reset(make_redis, make_headgate, pool):
    """After RESET the lane lacks the password that Headgate gives for its clients."""
    client = make_headgate(make_redis("--requirepass", "secret"), pool=pool, upstream_password="secret").connect()
    assert client("SET", "k", 1) == OK
    client.send(encode("RESET") + encode("MULTI") + encode("GET", "k") + encode("EXEC"))
    assert client.read_many(4) == [b"RESET", OK, QUEUED, [b"1"]]


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


def test_wait_and_then_nonsense_harms_nobody(redis, make_headgate):
    headgate = make_headgate(redis, lanes=1)
    rude, other = headgate.connect(), headgate.connect()
    assert rude("PING") == PONG and other("SET", "k", 1) == OK
    with busy(redis, 0.5):
        rude.request("GET", "k")
        other.request("GET", "k")
        time.sleep(0.1)
        rude.request("WAIT", 0, 1)
        rude.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n" + b"x" * 200_000 + b"no end")
        assert other.read() == b"1"
    assert other("GET", "k") == b"1"


def test_wait_speaks_of_the_own_writes_whoever_shares_the_lane(make_redis, make_headgate):
    primary = make_redis()
    make_redis("--replicaof", "127.0.0.1", str(primary.port))
    with primary.connect() as observer:
        wait_for(lambda: "state=online" in info(observer, "replication").get("slave0", ""), what="the replica")
    headgate = make_headgate(primary, lanes=1)
    clients = [headgate.connect() for _ in range(10)]
    for number in range(20):
        for client in clients:
            client.send(encode("SET", "k", number) + encode("WAIT", 1, 5000) + encode("GET", "k"))
        for client in clients:
            assert client.read_many(3) == [OK, 1, b"%d" % number]


def test_an_attribute_before_a_push(fake, make_headgate):
    """No Redis sends it, and no lane without an owner has somebody to give it to."""
    headgate = make_headgate(fake.url)
    fake.answers["CONFIG"] = lambda _lane, _arguments: b"|1\r\n+a\r\n+b\r\n>2\r\n+x\r\n+y\r\n"
    with headgate.connect() as client:
        client.request("CONFIG", "SET", "requirepass", "")
        client.assert_closed()
    fake.answers["GET"] = lambda _lane, _arguments: b"+v\r\n"
    with headgate.connect() as client:
        assert client("GET", "k") == b"v"


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


def test_empty_lines_that_flood_a_hanging_redis(redis, make_headgate, stopped):
    """Behind MONITOR they are passed on, as far as the lane takes them."""
    headgate = make_headgate(redis)
    client = headgate.connect()
    assert client("MONITOR") == b"OK"
    before = headgate.rss()
    with stopped(redis):
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(1024):
                client.socket.sendall(b"\r\n" * 32768)
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
