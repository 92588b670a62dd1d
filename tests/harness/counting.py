"""Clients that count on one key each, through whatever happens to the servers: what they see shows whether a request was
executed twice, or by a server that had been left already."""

import threading
import time

from harness.resp import Closed, Error, encode
from harness.world import breathe

# The count, and who counted: the run id of the server that executed the script.
COUNT = """local count = redis.call('INCR', KEYS[1])
return {count, string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')}"""

PIPELINE = 4


class Counting:
    """One client. faults: what must not be."""

    def __init__(self, headgate, key):
        self.headgate = headgate
        self.key = key
        self.ends = threading.Event()
        self.faults = []
        self.counted = 0
        self.closed = 0
        self.errors = 0
        self.lost = 0
        self.servers = []  # in the order in which they were seen
        self.first_at = []  # when each of them was seen first
        self.last = self.most = 0  # the latest count, and the highest of any server
        self.unknown = 0  # requests under way
        self.allowed = 0  # requests whose connection was closed: they may have been executed, once each
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        request = encode("EVAL", COUNT, 1, self.key) * PIPELINE
        while not self.ends.is_set():
            try:
                with self.headgate.connect() as client:
                    while not self.ends.is_set():
                        self._round(client, request)
                        breathe()
            except (Closed, OSError):
                self.closed += 1
                self.allowed += self.unknown
                self.unknown = 0
                time.sleep(0.01)
            except Exception as error:  # noqa: BLE001: the test that looks at the faults says so
                self.faults.append(repr(error))
                return

    def _round(self, client, request):
        self.unknown = PIPELINE
        client.send(request)
        for _ in range(PIPELINE):
            self._take(client.read())
            self.unknown -= 1

    def _take(self, reply):
        if isinstance(reply, Error):
            self.errors += 1
            if not reply.startswith((b"ERR headgate:", b"READONLY", b"LOADING", b"MASTERDOWN")):
                self.faults.append(f"answered {reply!r}")
            return
        count, server = reply
        self.counted += 1
        if not self.servers or self.servers[-1] != server:
            self._other_server(count, server)
        elif not self.last < count <= self.last + 1 + self.allowed:
            self.faults.append(f"{self.key} went from {self.last} to {count} at one server")
        self.allowed = 0
        self.last, self.most = count, max(self.most, count)

    def _other_server(self, count, server):
        """What the one before had acknowledged may be lost with it, and be there again when one that has it becomes the
        master in place of one that had been left; what comes must not be more than was sent."""
        self.servers.append(server)
        self.first_at.append(time.monotonic())
        if count > self.most + 1 + self.allowed:
            self.faults.append(f"{self.key} went from {self.most} to {count}: something was done twice")
        self.lost += max(0, self.last + 1 - count)

    def end(self):
        self.ends.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), "a client that counts hangs"
