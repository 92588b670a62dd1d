"""What waits behind a command that is not answered is bounded, and all of it comes in the end."""

import time

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Closed, encode, wait_for
from harness.servers import sanitizer_overhead

MEBIBYTE = 1 << 20
RULES = "[deny:forbidden]\ncommands = flushall\n"
LATENCY = "[latency]\nenabled = on\n"

BLPOP = encode("BLPOP", "q", 0)
PIECES = {
    "denied": encode("FLUSHALL"), "long": encode("CLIENT", "SETNAME", "n" * 30_000),
    "lock": encode("SET", "lock:" + "k" * 30_000, "token", "NX", "PX", 60_000),
}
MANY = 10 * MEBIBYTE
# The kernel's buffers of one connection have room for 36 MiB, and Headgate may take 24.
TOO_MANY = 80 * MEBIBYTE
DENIED = b"-DENIED forbidden: flushall is not allowed\r\n"


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


@pytest.mark.parametrize("kind", PIECES)
def test_answers_that_wait_count(make, redis, kind):
    """So does what is remembered of the requests. The client is closed past its limit, and the reason is logged."""
    rules, limit = {"long": ("", "1mb"), "lock": ("[lease:lock]\nkeys = lock:*\n", "1mb")}.get(kind, (RULES, "64kb"))
    headgate = make(rules, client_output_limit=limit)
    other, client = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    client.send(BLPOP)
    await_blocked(redis)
    before = headgate.rss()
    pour(client, PIECES[kind])
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


def read_counts(client, count, beside=b""):
    """So many replies to INCR, each behind what is beside it."""
    for first in range(1, count + 1, 10_000):
        part = b"".join(beside + b":%d\r\n" % number for number in range(first, min(first + 10_000, count + 1)))
        assert client.read_exactly(len(part)) == part


@pytest.mark.parametrize("kind", ["without a limit", "owed to a policy", "measured"])
def test_who_pours_behind_a_command_that_blocks_is_made_to_wait(make, make_probe, redis, kind):
    """What is answered already, is owed to a policy, or is kept for SLOWLOG, is bounded. Then all answers come, in order."""
    probe = make_probe(redis) if kind == "owed to a policy" else None
    headgate = probe or (make(LATENCY) if kind == "measured" else make(RULES, client_output_limit=0))
    client, other = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    piece = encode("APPEND", "probe:pass:a", "v") if probe else encode("INCR", "n")
    piece, beside = (encode("FLUSHALL") + piece, DENIED) if kind == "without a limit" else (piece, b"")
    client.send(BLPOP)
    await_blocked(redis)
    before = headgate.rss()
    sent = pour(client, piece, TOO_MANY)
    assert sent < TOO_MANY
    assert headgate.peak_rss() - before < 24 * MEBIBYTE + sanitizer_overhead()
    assert other("PING") == PONG
    assert other("RPUSH", "q", "v") == 1
    assert client.read() == [b"q", b"v"]
    read_counts(client, sent // len(piece), beside)
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
    sent = pour(client, piece, MEBIBYTE)
    assert other("RPUSH", "q", "v") == 1
    assert client.read() == [b"q", b"v"]
    read_counts(client, sent // len(piece))


@pytest.mark.parametrize("rules", ["", RULES])
def test_a_whole_pipeline_is_written_before_the_first_reply_is_read(make, rules, count=300_000):
    """As with Redis, which keeps the replies meanwhile."""
    headgate = make(rules)
    client = headgate.connect()
    piece = encode("GET", "k") * 9 + (encode("FLUSHALL") if rules == RULES else encode("GET", "k"))
    chunk = piece * 1_000
    client.socket.settimeout(60)
    for _ in range(count // 10_000):
        client.send(chunk)
    reply = b"$-1\r\n" * 9 + (DENIED if rules == RULES else b"$-1\r\n")
    for _ in range(count // 10_000):
        assert client.read_exactly(1_000 * len(reply)) == reply * 1_000


def test_a_request_that_is_still_coming_is_not_waited_for(make, redis):
    """It is the first of those under way, and its rest is all that can end it."""
    headgate = make(RULES + LATENCY)
    client = headgate.connect()
    value = b"v" * (8 * MEBIBYTE)
    client.send(encode("SET", "k", value)[: 3 * MEBIBYTE])
    time.sleep(0.3)
    client.send(encode("SET", "k", value)[3 * MEBIBYTE :] + encode("FLUSHALL") * 10_000)
    assert client.read() == OK
    assert client.read_exactly(10_000 * len(DENIED)) == DENIED * 10_000
