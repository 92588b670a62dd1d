"""The shapes that a stream of commands can take, good and bad, and what Redis makes of them."""

import pytest

from harness.resp import PONG, encode


def test_inline_commands(client):
    for line, reply in [
        (b"PING\r\n", PONG),
        (b'ECHO "a b\\tc\\x41\\"d"\r\n', b'a b\tcA"d'),
        (b"ECHO 'it\\'s \"so\"'\r\n", b"it's \"so\""),
        (b"ECHO \"\\r\\n\"\r\n", b"\r\n"),
    ]:
        client.send(line)
        assert client.read() == reply, line
        assert client("ECHO", "next") == b"next", line


def test_empty_lines_and_empty_arrays_are_passed_over(client):
    client.send(b"\r\n\r\n\n   \r\n*0\r\n*-1\r\n" + encode("ECHO", "1") + b"*0\r\n\r\n" + encode("ECHO", "2"))
    assert client.read_many(2) == [b"1", b"2"]
    client.assert_silent()


def test_http_is_closed_and_nobody_else(target):
    for request_line in [b"POST / HTTP/1.1\r\n", b"Host: example.org\r\n", b"post x\r\n", encode("POST"), encode("host:", "x")]:
        others = [target.connect() for _ in range(5)]
        for other in others:
            assert other("ECHO", 1) == b"1", request_line
        client = target.connect()
        client.send(encode("ECHO", "before") + request_line + encode("SET", "smuggled", 1))
        assert client.read_to_end() in (b"$6\r\nbefore\r\n", b""), request_line
        for other in others:
            assert other("EXISTS", "smuggled") == 0, request_line


# Which there are is told by tests/unit/resp/test_resp_command_redis.c.
PROTOCOL_ERRORS = [
    (b"*abc\r\n", b"invalid multibulk length"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", b"expected '$', got '*'"),
    (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n", b"invalid bulk length"),
    (b"ECHO \"open\r\n", b"unbalanced quotes in request"),
    (b"x" * 65_537, b"too big inline request"),
    (b"*1\r\n$" + b"1" * 65_536, b"too big bulk count string"),
]


@pytest.mark.parametrize("before", [b"", encode("SET", "k", "v") + encode("GET", "k")], ids=["alone", "behind others"])
def test_protocol_errors(target, before):
    """Redis' own text, behind the replies to what came before, then the end; nobody else is harmed."""
    other = target.connect()
    for garbage, text in PROTOCOL_ERRORS:
        client = target.connect()
        client.send(before + garbage)
        error = b"-ERR Protocol error: " + text + b"\r\n"
        assert client.read_to_end() == (b"+OK\r\n$1\r\nv\r\n" if before else b"") + error, garbage[:100]
        assert other("ECHO", "unharmed") == b"unharmed"


def test_a_protocol_error_within_a_transaction_discards_it(target):
    client = target.connect()
    client.send(encode("MULTI") + encode("SET", "k", 1) + b"*1\r\nX\r\n")
    assert client.read_to_end() == b"+OK\r\n+QUEUED\r\n-ERR Protocol error: expected '$', got 'X'\r\n"
    assert target.connect()("EXISTS", "k") == 0


def test_the_largest_count_is_no_error_yet(client):
    """Redis waits for what was announced; so must whoever stands before it, without setting memory aside."""
    client.send(b"*2147483647\r\n$4\r\nPING\r\n")
    client.assert_silent()


def test_endless_garbage_ends(target):
    """Whoever sends garbage without end is cut off early and is not answered for ever."""
    client, other = target.connect(), target.connect()
    client.socket.settimeout(5)
    sent = 0
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        while sent < 256 << 20:
            client.send(b"\xff" * 65_536)
            sent += 65_536
    assert sent < 64 << 20
    assert other("ECHO", "unharmed") == b"unharmed"
