"""What waits behind a command that is not answered is bounded, and all of it comes in the end."""

import threading
import time

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Closed, Error, encode, wait_for
from harness.servers import sanitizer_overhead

MEBIBYTE = 1 << 20
RULES = "[deny:forbidden]\ncommands = flushall\n"
LATENCY = "[latency]\nenabled = on\n"

BLPOP = encode("BLPOP", "q", 0)
PIECES = {
    "denied": (encode("FLUSHALL"), b"-DENIED"), "arity": (encode("DELIFEQ"), b"-ERR wrong number"),
    "mixed": (encode("FLUSHALL") + encode("INCR", "n"), b"-DENIED"),
    "named": (encode("CLIENT", "SETNAME", "a b"), b"-ERR Client names"),
    "long": (encode("CLIENT", "SETNAME", "n" * 30_000), b"+OK"),
    "lock": (encode("SET", "lock:" + "k" * 30_000, "token", "NX", "PX", 60_000), b"+OK"),
}
MANY = 10 * MEBIBYTE
# The kernel's buffers of one connection have room for 36 MiB, and Headgate may take 24.
TOO_MANY = 80 * MEBIBYTE


def pour(client, piece, total=MANY, patience=2):
    """Sends until so many bytes are sent, or nothing is taken any more, or the other side has closed. The bytes taken."""
    chunk = piece * (65_536 // len(piece))
    client.socket.settimeout(patience)
    sent = 0
    try:
        while sent < total:
            sent += client.socket.send(chunk[sent % len(chunk) :])
    except OSError:
        pass
    client.socket.settimeout(client.timeout)
    return sent


def await_blocked(redis, count=1):
    with redis.connect() as observer:
        wait_for(lambda: b"blocked_clients:%d" % count in observer("INFO", "clients"), what="the client to block")


@pytest.mark.parametrize("kind", ["denied", "arity", "mixed", "long", "lock"])
def test_answers_that_wait_count(make, redis, kind):
    """So does what is remembered of the requests. The client is closed past its limit, and the reason is logged."""
    rules, limit = {"long": ("", "1mb"), "lock": ("[lease:lock]\nkeys = lock:*\n", "1mb")}.get(kind, (RULES, "64kb"))
    headgate = make(rules, client_output_limit=limit)
    other, client = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    client.send(BLPOP)
    await_blocked(redis)
    before = headgate.rss()
    pour(client, PIECES[kind][0])
    wait_for(lambda: "more than client_output_limit" in headgate.log(), what="the reason in the log")
    with pytest.raises(Closed):
        client.read()
    assert other("PING") == PONG
    await_blocked(redis, 0)
    assert headgate.peak_rss() - before < 16 * MEBIBYTE + sanitizer_overhead()
    assert stats(headgate, "clients")["clients_closed_output_total"] == "1"


def test_all_clients_together_are_bounded(make, redis):
    """Those for whom most is held are closed; who reads is served as ever, and all others get the whole of their reply."""
    headgate = make("", memory_limit="48mb")
    other = headgate.connect()
    large = b"v" * (8 * MEBIBYTE)
    assert other("SET", "large", large) == OK
    before = headgate.rss()
    clients = [headgate.connect() for _ in range(12)]
    for client in clients:
        client.send(encode("GET", "large"))
    wait_for(lambda: "memory_limit is reached" in headgate.log(), what="the reason in the log")
    for number in range(100):
        assert other("INCR", "n") == number + 1
    closed = 0
    for client in clients:
        try:
            assert client.read() == large
        except Closed:
            closed += 1
    assert 1 <= closed < len(clients)
    assert stats(headgate, "clients")["clients_closed_memory_total"] == str(closed)
    assert headgate.peak_rss() - before < 80 * MEBIBYTE + sanitizer_overhead()


@pytest.mark.parametrize("kind, limit", [("denied", "1gb"), ("arity", "0"), ("mixed", "0")])
def test_without_a_limit_the_client_is_made_to_wait(make, redis, kind, limit):
    """Then all answers come, in their order."""
    piece, answer = PIECES[kind]
    headgate = make(RULES, client_output_limit=limit)
    other, client = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    client.send(BLPOP)
    await_blocked(redis)
    before = headgate.rss()
    sent = pour(client, piece, TOO_MANY)
    assert sent < TOO_MANY
    assert headgate.peak_rss() - before < 24 * MEBIBYTE + sanitizer_overhead()
    assert other("PING") == PONG
    assert other("RPUSH", "q", "v") == 1
    assert client.read() == [b"q", b"v"]
    for number in range(sent // len(piece)):
        assert client.read_line().startswith(answer)
        if kind == "mixed":
            assert client.read() == number + 1
    client.send(piece[sent % len(piece) :] + encode("ECHO", "end"))
    wait_for(lambda: client.read() == b"end", what="the end")


@pytest.mark.parametrize("kind", ["owed to a policy", "measured"])
def test_what_is_remembered_of_requests_behind_a_command_that_blocks_is_bounded(make, make_probe, redis, kind):
    """A policy is owed each reply; for SLOWLOG the beginning of each request is kept. Redis has the requests themselves."""
    probe = None if kind == "measured" else make_probe(redis)
    headgate = probe or make(LATENCY)
    client, other = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    piece = encode("APPEND", "probe:pass:a", "v") if probe else encode("INCR", "n")
    client.send(BLPOP)
    await_blocked(redis)
    before = headgate.rss()
    sent = pour(client, piece, TOO_MANY)
    assert sent < TOO_MANY
    assert headgate.peak_rss() - before < 24 * MEBIBYTE + sanitizer_overhead()
    assert other("RPUSH", "q", "v") == 1
    assert client.read() == [b"q", b"v"]
    for number in range(sent // len(piece)):
        assert client.read() == number + 1
    client.close()
    if probe:
        probe.await_balance()


def test_who_was_slow_to_read_is_answered_to_the_end(make, redis):
    """All of its requests were slow, so each is told of when its reply is written, and is kept until then: that counts as
    output that is not written, and nothing of it is left when all is written."""
    client = make(LATENCY + "slowlog_threshold = 1ms\n").connect()
    other = redis.connect()
    client.send(BLPOP)
    await_blocked(redis)
    piece = encode("INCR", "n")
    sent = pour(client, piece, 4 * MEBIBYTE)
    assert other("RPUSH", "q", "v") == 1
    assert client.read() == [b"q", b"v"]
    for number in range(sent // len(piece)):
        assert client.read() == number + 1


@pytest.mark.parametrize("rules, count", [("", 1_000_000), (RULES, 300_000), (LATENCY, 300_000)])
def test_a_whole_pipeline_is_written_before_the_first_reply_is_read(make, rules, count):
    """As with Redis, which keeps the replies meanwhile."""
    headgate = make(rules)
    client = headgate.connect()
    piece = encode("GET", "k") * 9 + (encode("FLUSHALL") if rules == RULES else encode("GET", "k"))
    chunk = piece * 1_000
    client.socket.settimeout(60)
    for _ in range(count // 10_000):
        client.send(chunk)
    reply = b"$-1\r\n" * 9 + (b"-DENIED forbidden: flushall is not allowed\r\n" if rules == RULES else b"$-1\r\n")
    for _ in range(count // 10_000):
        assert client.read_exactly(1_000 * len(reply)) == reply * 1_000


def test_a_reader_that_stops_and_goes_on_gets_every_byte(make, redis):
    """Large and small replies, answers of Headgate's own, blocking commands and transactions, read in fits and starts."""
    headgate = make(RULES)
    with redis.connect() as observer:
        observer("SET", "k", b"v" * 30_000)
        observer("RPUSH", "q", *range(400))
    client = headgate.connect()
    data, expected = b"", b""
    for number in range(400):
        data += encode("GET", "k") + encode("FLUSHALL") * 5 + BLPOP + encode("INCR", "n") + encode("DELIFEQ")
        data += encode("MULTI") + encode("ECHO", number) + encode("EXEC") + encode("CLIENT", "SETNAME", f"n{number}")
        expected += b"$30000\r\n" + b"v" * 30_000 + b"\r\n" + b"-DENIED forbidden: flushall is not allowed\r\n" * 5
        element = b"%d" % number
        bulk = b"$%d\r\n%s\r\n" % (len(element), element)
        expected += b"*2\r\n$1\r\nq\r\n" + bulk + b":%d\r\n" % (number + 1)
        expected += b"-ERR wrong number of arguments for 'delifeq' command\r\n"
        expected += b"+OK\r\n+QUEUED\r\n*1\r\n" + bulk + b"+OK\r\n"
    writer = threading.Thread(target=client.send, args=(data,), daemon=True)
    writer.start()
    time.sleep(1)
    received = 0
    while received < len(expected):
        part = min(len(expected) - received, 2 * MEBIBYTE)
        assert client.read_exactly(part) == expected[received : received + part]
        received += part
        time.sleep(0.2)
    writer.join(10)
    client.assert_silent()


def test_a_request_that_is_still_coming_is_not_waited_for(make, redis):
    """It is the first of those under way, and its rest is all that can end it."""
    headgate = make(RULES + LATENCY)
    client = headgate.connect()
    value = b"v" * (8 * MEBIBYTE)
    for _ in range(3):
        client.send(encode("SET", "k", value)[: 3 * MEBIBYTE])
        time.sleep(0.3)
        client.send(encode("SET", "k", value)[3 * MEBIBYTE :] + encode("FLUSHALL") * 10_000)
        assert client.read() == OK
        assert all(isinstance(reply, Error) for reply in client.read_many(10_000))
