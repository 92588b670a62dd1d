"""A Redis whose replies the test writes byte by byte.

What a proxy may send on its own account (HELLO, AUTH, SELECT, CLIENT, INFO, COMMAND, PING, SCRIPT, EVALSHA, RESET) is
answered as Redis would, so that tests do not depend on it; everything else waits in a queue until the test takes it
with next() and answers it, or not, on the lane that it came by.
"""

import collections
import contextlib
import queue
import socket
import threading
import time

from harness import tls
from harness.resp import RECEIVE_SIZE, SOCKET_TIMEOUT, bulk, to_bytes

SERVER_FIELDS = [("server", "redis"), ("version", "7.0.15"), ("proto", None), ("id", None), ("mode", "standalone")]
INFO = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\ntcp_port:6379\r\nrole:master\r\nloading:0\r\n"


class Command:
    """A request as it arrived: its arguments, and the lane to answer it on."""

    def __init__(self, lane, arguments):
        self.lane = lane
        self.arguments = arguments
        self.unsent = b""
        self.answered = False

    def reply(self, data):
        """Answers it. The bytes leave when all earlier requests of the lane have been answered."""
        self.reply_part(data, last=True)

    def reply_part(self, data, last=False):
        with self.lane.lock:
            self.add(data, last)
            self.lane.flush()

    def add(self, data, last):
        self.unsent += data
        self.answered = last

    def __repr__(self):
        return f"Command({self.arguments!r} on lane {self.lane.number})"


class Lane:
    """One accepted connection. Its requests are answered in their order, whoever answers them. As Redis does, it closes
    when the other side has closed its writing half."""

    def __init__(self, fake, connection, number):
        self.fake = fake
        self.socket = connection
        self.number = number
        self.protocol = 2
        self.received = 0
        self.closed_by_peer = False
        self.buffer = bytearray()
        self.lock = threading.RLock()
        self.owed = collections.deque()

    def start(self):
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, data):
        """Writes bytes at once, whatever is owed."""
        with self.lock:
            self.socket.sendall(data)

    def flush(self):
        """Writes, at once, what may leave: answers up to the first that is not whole yet."""
        data = b""
        while self.owed:
            command = self.owed[0]
            data += command.unsent
            command.unsent = b""
            if not command.answered:
                break
            self.owed.popleft()
        if data:
            self.socket.sendall(data)

    def close(self):
        """Who reads closes it then: a descriptor that is closed under a reader may leave it waiting."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _read(self):
        try:
            if self.fake.context:
                self.socket.do_handshake()
            while data := self.socket.recv(RECEIVE_SIZE):
                self.received += len(data)
                self.buffer += data
                self._take_commands()
        except OSError:
            pass
        self.closed_by_peer = True
        self.close()
        self.socket.close()

    def _take_commands(self):
        start = 0
        while found := parse_command(self.buffer, start):
            arguments, start = found
            if arguments:
                command = Command(self, arguments)
                with self.lock:
                    self.owed.append(command)
                self.fake.received_command(command)
        del self.buffer[:start]


def reply_in_pieces(answers, sizes):
    """answers: (command, reply) pairs of one lane in the order of its requests. The replies leave as one stream, cut
    into pieces of these sizes (the last lasts) with no regard to where one reply ends."""
    lane = answers[0][0].lane
    rest = collections.deque([command, reply] for command, reply in answers)
    sizes = iter(sizes)
    size = next(sizes)
    while rest:
        with lane.lock:
            left = size
            while rest and left:
                command, reply = rest[0]
                command.add(reply[:left], last=len(reply) <= left)
                rest[0][1] = reply[left:]
                left -= min(left, len(reply))
                if not rest[0][1]:
                    rest.popleft()
            lane.flush()
        time.sleep(1e-6)  # or all would be read at once, in a world whose other threads have had no turn
        size = next(sizes, size)


def parse_command(buffer, start):
    """(arguments, end) of the whole command at start, or None. Inline commands are split at blanks."""
    end = buffer.find(b"\r\n", start)
    if end < 0:
        return None
    if buffer[start : start + 1] != b"*":
        return bytes(buffer[start:end]).split(), end + 2
    count = int(buffer[start + 1 : end])
    position = end + 2
    places = []
    for _ in range(count):
        end = buffer.find(b"\r\n", position)
        if end < 0:
            return None
        length = int(buffer[position + 1 : end])
        position = end + 2
        if len(buffer) < position + length + 2:
            return None
        places.append((position, position + length))
        position += length + 2
    return [bytes(memoryview(buffer)[first:last]) for first, last in places], position


class FakeRedis:
    """answers: replies to override, by command name in capitals: a function of (lane, arguments) that returns bytes to
    send, or None to send nothing. context: it speaks TLS, by that."""

    def __init__(self, context=None):
        self.context = context or (tls.server_context() if tls.is_usual() else None)
        self.answers = {}
        self.lanes = []
        self.pending = queue.Queue()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    @property
    def url(self):
        return f"{'rediss://' if self.context else ''}127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context:
                connection = tls.TlsSocket(connection, self.context, server=True, handshake=False)
            # It is known before it is read, so close_lanes() reaches whatever a test has had a request of.
            self.lanes.append(Lane(self, connection, len(self.lanes)))
            self.lanes[-1].start()

    def received_command(self, command):
        name = command.arguments[0].upper().decode(errors="replace")
        answer = self.answers.get(name) or DEFAULT_ANSWERS.get(name)
        if answer is None and command.arguments[1:] == PROBE:
            answer = always(b":1\r\n")
        if answer is None and command.arguments == [b"CLUSTER", b"MYID"]:
            answer = always(b"-ERR unknown command 'CLUSTER'\r\n")
        if answer is None:
            self.pending.put(command)
            return
        try:
            command.reply(answer(command.lane, command.arguments) or b"")
        except OSError:
            pass

    def next(self, timeout=SOCKET_TIMEOUT):
        """The next command that nothing answers by itself."""
        try:
            return self.pending.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no command came within {timeout} s") from None

    def next_many(self, count):
        return [self.next() for _ in range(count)]

    def expect(self, *arguments):
        """The next command, which must be this one."""
        command = self.next()
        expected = [to_bytes(argument) for argument in arguments]
        assert command.arguments == expected, f"{command.arguments!r} came instead of {expected!r}"
        return command

    def assert_idle(self, seconds=0.2):
        try:
            command = self.pending.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"an unexpected command: {command!r}")

    def open_lanes(self):
        return [lane for lane in self.lanes if not lane.closed_by_peer]

    def close_lanes(self):
        """Those that were closed before count, too."""
        lanes = list(self.lanes)
        for lane in lanes:
            lane.close()
        return len(lanes)

    def close(self):
        """Stops listening and cuts every lane."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        # Who was let in just now is a lane by then, too.
        self.accepting.join()
        self.listener.close()
        self.close_lanes()


def answer_hello(lane, arguments):
    if len(arguments) > 1:
        lane.protocol = int(arguments[1])
    values = [(name, value) for name, value in SERVER_FIELDS]
    parts = [b"%%%d\r\n" % (len(values) + 2) if lane.protocol == 3 else b"*%d\r\n" % (2 * len(values) + 4)]
    for name, value in values:
        number = {"proto": lane.protocol, "id": lane.number + 1}.get(name)
        parts += [bulk(name), bulk(value) if number is None else b":%d\r\n" % number]
    parts += [bulk("role"), bulk("master"), bulk("modules"), b"*0\r\n"]
    return b"".join(parts)


def answer_client(lane, arguments):
    subcommand = arguments[1].upper() if len(arguments) > 1 else b""
    if subcommand == b"ID":
        return b":%d\r\n" % (lane.number + 1)
    if subcommand in (b"INFO", b"LIST"):
        return bulk(f"id={lane.number + 1} name= db=0\n")
    if subcommand == b"REPLY" and arguments[2].upper() != b"ON":
        return None
    return b"+OK\r\n"


def answer_command(_lane, arguments):
    """COMMAND INFO knows nothing of any command; the rest is empty."""
    subcommand = arguments[1].upper() if len(arguments) > 1 else b""
    if subcommand == b"COUNT":
        return b":0\r\n"
    asked = len(arguments) - 2 if subcommand == b"INFO" else 0
    return b"*%d\r\n" % asked + b"*-1\r\n" * asked


def answer_script(_lane, arguments):
    if len(arguments) > 1 and arguments[1].upper() == b"LOAD":
        return bulk("0" * 40)
    return b"+OK\r\n"


def always(reply):
    return lambda _lane, _arguments: reply


# By which Headgate finds out whether EVAL is allowed, where rules need it.
PROBE = [b"return 1", b"0"]

DEFAULT_ANSWERS = {
    "HELLO": answer_hello,
    "AUTH": always(b"+OK\r\n"),
    "SELECT": always(b"+OK\r\n"),
    "CLIENT": answer_client,
    "INFO": always(bulk(INFO)),
    "COMMAND": answer_command,
    "PING": always(b"+PONG\r\n"),
    "RESET": always(b"+RESET\r\n"),
    "SCRIPT": answer_script,
    "EVALSHA": always(b":1\r\n"),
    "UNWATCH": always(b"+OK\r\n"),
    "DISCARD": always(b"+OK\r\n"),
}
