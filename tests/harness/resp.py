"""A RESP client that shows everything: no reply is raised, converted or hidden, types are told apart.

Values: simple string Status, error Error, integer int, bulk bytes, array list; RESP2 nulls None (bulk) and NIL_ARRAY;
RESP3 null NULL, boolean bool, double Double, big number BigNumber, verbatim Verbatim, map Map (pairs, in order), set
Set, push Push, attribute Attribute (it precedes a value and is returned as a value of its own).
"""

import socket
import struct
import threading
import time

SOCKET_TIMEOUT = 30.0
# More would be mapped, and unmapped again, for each answer.
RECEIVE_SIZE = 1 << 16
CRLF = b"\r\n"


class Status(bytes):
    def __repr__(self):
        return f"Status({bytes(self)!r})"


class Error(bytes):
    def __repr__(self):
        return f"Error({bytes(self)!r})"


class Double(bytes):
    """The digits as they came: 1.0 and 1 must not be confused."""

    def __repr__(self):
        return f"Double({bytes(self)!r})"


class BigNumber(bytes):
    def __repr__(self):
        return f"BigNumber({bytes(self)!r})"


class Verbatim(bytes):
    def __repr__(self):
        return f"Verbatim({bytes(self)!r})"


class Map(list):
    def dict(self):
        return dict(zip(self[::2], self[1::2]))


class Set(list):
    pass


class Push(list):
    pass


class Attribute(list):
    pass


class Nil:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


NIL_ARRAY = Nil("NIL_ARRAY")
NULL = Nil("NULL")

OK = Status(b"OK")
PONG = Status(b"PONG")
QUEUED = Status(b"QUEUED")

SIMPLE_TYPES = {
    b"+": Status,
    b"-": Error,
    b":": int,
    b",": Double,
    b"(": BigNumber,
}
AGGREGATE_TYPES = {b"*": list, b"%": Map, b"~": Set, b">": Push, b"|": Attribute}


def same(left, right):
    """Equal in value and in RESP type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right))
    return left is right if isinstance(left, Nil) else left == right


def to_bytes(argument):
    if isinstance(argument, (bytes, bytearray)):
        return bytes(argument)
    return str(argument).encode()


def encode(*arguments):
    """One command in multibulk form."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in map(to_bytes, arguments):
        parts += [b"$%d\r\n" % len(argument), argument, CRLF]
    return b"".join(parts)


def bulk(payload):
    payload = to_bytes(payload)
    return b"$%d\r\n%s\r\n" % (len(payload), payload)


class Closed(Exception):
    """The other side closed the connection."""


class Client:
    """One connection. Every operation on the socket has a timeout."""

    def __init__(self, address, timeout=SOCKET_TIMEOUT):
        """address: (host, port), or the path of a Unix socket, or a socket that is connected, also by TLS."""
        if hasattr(address, "recv"):
            self.socket = address
            self.socket.settimeout(timeout)
        elif isinstance(address, tuple):
            self.socket = socket.create_connection(address, timeout=timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(str(address))
        self.timeout = timeout
        self.buffer = bytearray()
        self.position = 0

    # ---- writing ----

    def send(self, data):
        self.socket.sendall(data)

    def send_bytewise(self, data):
        for byte in data:
            self.socket.sendall(bytes([byte]))

    def request(self, *arguments):
        """Sends a command without reading its reply."""
        self.send(encode(*arguments))

    def shutdown_write(self):
        self.socket.shutdown(socket.SHUT_WR)

    # ---- reading ----

    def _fill(self):
        try:
            data = self.socket.recv(RECEIVE_SIZE)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(f"connection closed by peer; unread: {bytes(self.buffer[self.position:][:200])!r}")
        if self.position > 1 << 16:
            del self.buffer[: self.position]
            self.position = 0
        self.buffer += data

    def read_line(self):
        searched = self.position
        while True:
            end = self.buffer.find(CRLF, searched)
            if end >= 0:
                line = bytes(self.buffer[self.position : end])
                self.position = end + 2
                return line
            unread = len(self.buffer) - self.position
            self._fill()
            searched = self.position + max(0, unread - 1)

    def read_exactly(self, count):
        while len(self.buffer) - self.position < count:
            self._fill()
        data = bytes(memoryview(self.buffer)[self.position : self.position + count])
        self.position += count
        return data

    def read(self):
        """The next reply or push."""
        line = self.read_line()
        kind, rest = line[:1], line[1:]
        if kind in SIMPLE_TYPES:
            return SIMPLE_TYPES[kind](rest)
        if kind == b"_":
            return NULL
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind in (b"$", b"="):
            return self._read_bulk(kind, int(rest))
        if kind in AGGREGATE_TYPES:
            return self._read_aggregate(kind, int(rest))
        raise AssertionError(f"not RESP: {line[:100]!r}")

    def _read_bulk(self, kind, length):
        if length < 0:
            return None
        payload = self.read_exactly(length)
        assert self.read_exactly(2) == CRLF, "a bulk that does not end in CR LF"
        return Verbatim(payload) if kind == b"=" else payload

    def _read_aggregate(self, kind, count):
        if count < 0:
            return NIL_ARRAY
        if kind in (b"%", b"|"):
            count *= 2
        return AGGREGATE_TYPES[kind](self.read() for _ in range(count))

    def command(self, *arguments):
        self.request(*arguments)
        return self.read()

    def __call__(self, *arguments):
        return self.command(*arguments)

    def read_many(self, count):
        return [self.read() for _ in range(count)]

    def pipeline(self, commands):
        """Sends all from a second thread while reading, so that no amount of data can lock both sides up."""
        data = b"".join(encode(*command) for command in commands)
        failure = []

        def write():
            try:
                self.send(data)
            except OSError as error:
                failure.append(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        replies = self.read_many(len(commands))
        writer.join(self.timeout)
        assert not failure, failure
        return replies

    def read_until_quiet(self, seconds=0.2):
        """All bytes that come until nothing has come for that long, or the end."""
        self.socket.settimeout(seconds)
        try:
            while True:
                self._fill()
        except (TimeoutError, Closed):
            pass
        finally:
            self.socket.settimeout(self.timeout)
        data = bytes(self.buffer[self.position :])
        self.position = len(self.buffer)
        return data

    def read_up_to(self, end):
        """All bytes up to these, behind which nothing more is to come."""
        while not bytes(self.buffer[self.position :]).endswith(end):
            self._fill()
        data = bytes(self.buffer[self.position :])
        self.position = len(self.buffer)
        return data

    def read_to_end(self):
        """All bytes up to the end of the connection."""
        try:
            while True:
                self._fill()
        except Closed:
            data = bytes(self.buffer[self.position :])
            self.position = len(self.buffer)
            return data

    def assert_silent(self, seconds=0.15):
        data = self.read_until_quiet(seconds)
        assert data == b"", f"expected nothing, got {data[:200]!r}"
        assert not self.is_closed(), "closed, though it should only be silent"

    def assert_closed(self):
        data = self.read_to_end()
        assert data == b"", f"expected only the end of the connection, got {data[:200]!r}"

    def is_closed(self):
        self.socket.settimeout(0.0)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self.socket.settimeout(self.timeout)

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes by RST, as a crashed host would seem."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wait_for(condition, seconds=SOCKET_TIMEOUT, what="condition"):
    """Polls until condition() is true, less often the longer it takes; its value is returned."""
    begin = time.monotonic()
    deadline = begin + seconds
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(max(0.01, min(0.2, (now - begin) / 8)))
