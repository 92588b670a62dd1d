"""The shapes that a stream of commands can take, good and bad, and what Redis makes of them."""

import pytest

from harness.resp import OK, PONG, Error, Status, encode
from harness.threads import at_once


# ---- good streams ----


@pytest.mark.parametrize(
    "line, reply",
    [
        (b"PING\r\n", PONG),
        (b"ping\n", PONG),
        (b"  PING  \r\n", PONG),
        (b"ECHO hello\r\n", b"hello"),
        (b'ECHO "a b\\tc\\x41\\"d"\r\n', b'a b\tcA"d'),
        (b"ECHO 'it\\'s \"so\"'\r\n", b"it's \"so\""),
        (b'"ECHO"   "x"\r\n', b"x"),
        (b'ECHO ""\r\n', b""),
        (b"ECHO \"\\r\\n\"\r\n", b"\r\n"),
        (b"ECHO a\\b\r\n", b"a\\b"),
    ],
)
def test_inline_commands(client, line, reply):
    client.send(line)
    assert client.read() == reply
    assert client("ECHO", "next") == b"next"


def test_inline_commands_pipelined_with_multibulk_ones(client):
    client.send(b"SET k 1\r\n" + encode("INCR", "k") + b"INCR k\nGET k\r\n" + encode("GET", "k"))
    assert client.read_many(5) == [OK, 2, 3, b"3", b"3"]


def test_empty_lines_and_empty_arrays_are_passed_over(client):
    client.send(b"\r\n\r\n\n   \r\n*0\r\n*-1\r\n" + encode("ECHO", "1") + b"*0\r\n\r\n" + encode("ECHO", "2"))
    assert client.read_many(2) == [b"1", b"2"]
    client.assert_silent()


def test_a_long_inline_command(client):
    value = b"v" * 60_000
    client.send(b"SET k " + value + b"\r\n")
    assert client.read() == OK
    assert client("GET", "k") == value


def test_ten_thousand_commands_in_one_write(client):
    commands = [("INCR", "n") for _ in range(10_000)]
    client.send(b"".join(encode(*command) for command in commands))
    assert client.read_many(10_000) == list(range(1, 10_001))


def test_ten_thousand_different_commands_in_one_write(client):
    commands = []
    expected = []
    for number in range(2_500):
        commands += [("SET", f"k{number}", f"v{number}"), ("GET", f"k{number}"), ("GET", "none"), ("NONSENSE",)]
        expected += [OK, b"v%d" % number, None, Error(b"ERR unknown command 'NONSENSE', with args beginning with: ")]
    assert client.pipeline(commands) == expected


def test_pipelines_of_many_clients_keep_their_order(target):
    failures = []

    def work(identity):
        with target.connect() as client:
            for turn in range(20):
                words = [b"%d-%d-%d" % (identity, turn, index) for index in range(50)]
                client.send(b"".join(encode("ECHO", word) for word in words))
                replies = client.read_many(50)
                if replies != words:
                    failures.append((identity, turn, replies))

    at_once(work, 20)
    assert failures == []


def test_one_byte_at_a_time(client):
    client.send_bytewise(encode("SET", "key", "a value") + b"GET key\r\n" + encode("GET", "key"))
    client.send_bytewise(b"\r\n*0\r\nPING\r\n")
    assert client.read_many(4) == [OK, b"a value", b"a value", PONG]


@pytest.mark.parametrize("step", [2, 3, 7, 1000])
def test_commands_cut_anywhere(client, step):
    data = b"".join(encode("ECHO", b"%d" % number * 20) for number in range(200))
    for start in range(0, len(data), step):
        client.send(data[start : start + step])
    assert client.read_many(200) == [b"%d" % number * 20 for number in range(200)]


def test_half_a_command_blocks_nobody(target):
    stalled, other = target.connect(), target.connect()
    stalled.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhe")
    for number in range(20):
        assert other("ECHO", number) == b"%d" % number
    stalled.send(b"llo\r\n")
    assert stalled.read() == OK
    assert other("GET", "k") == b"hello"


def test_closing_the_writing_half_after_sending(client):
    """Every reply still comes, then the end."""
    client.send(b"".join(encode("ECHO", number) for number in range(1_000)))
    client.shutdown_write()
    assert client.read_many(1_000) == [b"%d" % number for number in range(1_000)]
    client.assert_closed()


def test_closing_the_writing_half_within_a_command(client):
    client.send(encode("ECHO", "whole") + b"*2\r\n$4\r\nECHO\r\n$9\r\nha")
    client.shutdown_write()
    assert client.read() == b"whole"
    client.assert_closed()


def test_closing_the_writing_half_at_once(client):
    client.shutdown_write()
    client.assert_closed()


# ---- QUIT and the words of HTTP ----


def test_quit(target):
    client, other = target.connect(), target.connect()
    assert other("ECHO", 1) == b"1"
    client.send(encode("ECHO", "before") + encode("QUIT") + encode("SET", "after", 1))
    assert client.read() == b"before"
    assert client.read() == OK
    client.assert_closed()
    assert other("EXISTS", "after") == 0


def test_quit_in_a_transaction(target):
    client, other = target.connect(), target.connect()
    client("MULTI")
    client("SET", "k", 1)
    assert client("QUIT") == OK
    client.assert_closed()
    assert other("EXISTS", "k") == 0


@pytest.mark.parametrize(
    "request_line",
    [b"POST / HTTP/1.1\r\n", b"Host: example.org\r\n", b"post x\r\n", encode("POST"), encode("host:", "x")],
)
def test_http_is_closed_and_nobody_else(target, request_line):
    others = [target.connect() for _ in range(5)]
    for other in others:
        assert other("ECHO", 1) == b"1"
    client = target.connect()
    client.send(encode("ECHO", "before") + request_line + encode("SET", "smuggled", 1))
    assert client.read_to_end() in (b"$6\r\nbefore\r\n", b"")
    for other in others:
        assert other("EXISTS", "smuggled") == 0


# ---- bad streams ----

PROTOCOL_ERRORS = [
    pytest.param(b"*abc\r\n", b"invalid multibulk length", id="count-no-number"),
    pytest.param(b"*1x\r\n", b"invalid multibulk length", id="count-with-a-tail"),
    pytest.param(b"*2147483648\r\n", b"invalid multibulk length", id="count-too-big"),
    pytest.param(b"*99999999999999999999\r\n", b"invalid multibulk length", id="count-beyond-64-bits"),
    pytest.param(b"* 1\r\n", b"invalid multibulk length", id="count-with-a-blank"),
    pytest.param(b"*\r\n", b"invalid multibulk length", id="count-empty"),
    pytest.param(b"*1\r\nPING\r\n", b"expected '$', got 'P'", id="no-bulk"),
    pytest.param(b"*1\r\n:1\r\n", b"expected '$', got ':'", id="integer-for-a-bulk"),
    pytest.param(b"*1\r\n*1\r\n$4\r\nPING\r\n", b"expected '$', got '*'", id="nested"),
    pytest.param(b"*2\r\n$4\r\nECHO\r\n+x\r\n", b"expected '$', got '+'", id="second-is-no-bulk"),
    pytest.param(b"*1\r\n$-1\r\n", b"invalid bulk length", id="bulk-negative"),
    pytest.param(b"*1\r\n$abc\r\n", b"invalid bulk length", id="bulk-no-number"),
    pytest.param(b"*1\r\n$4x\r\nPING\r\n", b"invalid bulk length", id="bulk-with-a-tail"),
    pytest.param(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n", b"invalid bulk length", id="bulk-over-512-mb"),
    pytest.param(b"*1\r\n$99999999999999999999\r\n", b"invalid bulk length", id="bulk-beyond-64-bits"),
    pytest.param(b"*1\r\n$\r\n", b"invalid bulk length", id="bulk-empty"),
    pytest.param(b"ECHO \"open\r\n", b"unbalanced quotes in request", id="open-quotes"),
    pytest.param(b"ECHO 'open\r\n", b"unbalanced quotes in request", id="open-apostrophe"),
    pytest.param(b'ECHO "a"b\r\n', b"unbalanced quotes in request", id="quotes-not-followed-by-a-blank"),
    pytest.param(b"x" * 65_537, b"too big inline request", id="inline-too-long"),
    pytest.param(b"*" + b"1" * 65_536, b"too big mbulk count string", id="count-line-too-long"),
    pytest.param(b"*1\r\n$" + b"1" * 65_536, b"too big bulk count string", id="length-line-too-long"),
]


@pytest.mark.parametrize("garbage, text", PROTOCOL_ERRORS)
def test_protocol_errors(target, garbage, text):
    """Redis' own text, then the end; nobody else is harmed."""
    other = target.connect()
    assert other("ECHO", "unharmed") == b"unharmed"
    client = target.connect()
    client.send(garbage)
    assert client.read_to_end() == b"-ERR Protocol error: " + text + b"\r\n"
    assert other("ECHO", "unharmed") == b"unharmed"


@pytest.mark.parametrize("garbage, text", PROTOCOL_ERRORS[:9])
def test_replies_before_a_protocol_error_still_come(target, garbage, text):
    client = target.connect()
    client.send(encode("SET", "k", "v") + encode("GET", "k") + garbage)
    assert client.read_to_end() == b"+OK\r\n$1\r\nv\r\n-ERR Protocol error: " + text + b"\r\n"


def test_a_protocol_error_within_a_transaction_discards_it(target):
    client = target.connect()
    client.send(encode("MULTI") + encode("SET", "k", 1) + b"*1\r\nX\r\n")
    assert client.read_to_end() == b"+OK\r\n+QUEUED\r\n-ERR Protocol error: expected '$', got 'X'\r\n"
    assert target.connect()("EXISTS", "k") == 0


def test_a_protocol_error_one_byte_at_a_time(client):
    client.send_bytewise(b"*1\r\n$4\r\nPING\r\n*x\r\n")
    assert client.read_to_end() == b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"


def test_the_largest_count_is_no_error_yet(client):
    """Redis waits for what was announced; so must whoever stands before it, without setting memory aside."""
    client.send(b"*2147483647\r\n$4\r\nPING\r\n")
    client.assert_silent()


def test_the_longest_bulk_is_no_error_yet(client):
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc")
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


@pytest.mark.parametrize("unit", [encode("ECHO", "x" * 100), encode("MULTI") + encode("ECHO", "x" * 100) + encode("EXEC")])
def test_a_pipeline_that_is_written_whole_before_anything_is_read(target, unit):
    """Client libraries do that. Redis keeps the replies meanwhile, however many there are."""
    is_transaction = unit.startswith(encode("MULTI"))
    count = 30_000 if is_transaction else 150_000
    with target.connect() as client:
        for _ in range(100):
            client.send(unit * (count // 100))
        replies = client.read_many(count * (3 if is_transaction else 1))
    expected = [Status(b"OK"), Status(b"QUEUED"), [b"x" * 100]] if is_transaction else [b"x" * 100]
    assert replies == expected * count
