"""A way from Headgate to Redis that can be cut around a flush of [latency]: before anything of it has reached
Redis, within it, or when Redis has executed it and the reply is still to come. And one that takes its time."""

import re
import socket
import threading
import time

from harness.fake_redis import parse_command
from harness.resp import RECEIVE_SIZE, wait_for

FLUSH = re.compile(
    rb"\*\d+\r\n\$7\r\nEVALSHA\r\n\$40\r\n(?P<sha>\w+)\r\n\$\d+\r\n\d+\r\n\$\d+\r\n\S+_flushed_by_\w+\r\n", re.I
)
PLACES = ("before", "within", "after")


class Relay:
    """delay: seconds that what comes on an idle connection is on its way, in either direction."""

    def __init__(self, redis, delay=0):
        self.redis = redis
        self.delay = delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.lock = threading.Lock()
        self.place = None
        self.then = None
        self.cuts = 0
        self.key = self.number = None
        self.faults = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return "127.0.0.1:%d" % self.listener.getsockname()[1]

    def cut(self, place, then=lambda: None):
        """Cuts the connection of the next flush at that place; then() is called first. Returns when it was done."""
        with self.lock:
            cuts, self.place, self.then = self.cuts, place, then
        wait_for(lambda: self.cuts > cuts or self.faults, 30, f"a flush to be cut {place}")
        assert not self.faults, self.faults

    def is_executed(self):
        """Whether Redis knows the number of the flush that was cut last."""
        with self.redis.connect() as direct:
            return direct("GET", self.key) == self.number

    def close(self):
        # Who is in accept() would not notice close().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        try:
            while True:
                lane, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(lane,), daemon=True).start()
        except OSError:
            pass

    def _serve(self, lane):
        try:
            redis = socket.create_connection(self.redis.address)
        except OSError:
            lane.close()
            return
        # Set: replies do not get through any more.
        deaf = threading.Event()
        threading.Thread(target=self._replies, args=(redis, lane, deaf), daemon=True).start()
        try:
            while data := lane.recv(RECEIVE_SIZE):
                time.sleep(self.delay)
                if not self._pass_on(data, redis, deaf):
                    break
        except OSError:
            pass
        except AssertionError as fault:
            self.faults.append(fault)
        for end in (lane, redis):
            shut(end)

    def _replies(self, redis, lane, deaf):
        try:
            while data := redis.recv(RECEIVE_SIZE):
                time.sleep(self.delay)
                if not deaf.is_set():
                    lane.sendall(data)
        except OSError:
            pass
        shut(lane)

    def _pass_on(self, data, redis, deaf):
        """False: the connection ends here."""
        flush = FLUSH.search(data)
        place = self._take_place(flush) if flush else None
        if place is None:
            redis.sendall(data)
            return True
        deaf.set()
        arguments, _ = parse_command(data, flush.start())
        self.key, self.number = arguments[3], arguments[3 + int(arguments[2])]
        self._send_until(place, data, flush, redis)
        self.then()
        self.cuts += 1
        return False

    def _take_place(self, flush):
        with self.lock:
            place = self.place
            if place == "after" and not self._is_loaded(flush.group("sha")):
                return None
            self.place = None
            return place

    def _is_loaded(self, sha):
        """A Redis that has just begun would not execute it, but ask for the script."""
        with self.redis.connect() as direct:
            return direct("SCRIPT", "EXISTS", sha) == [1]

    def _send_until(self, place, data, flush, redis):
        if place == "before":
            redis.sendall(data[: flush.start()])
        elif place == "within":
            redis.sendall(data[: flush.end() + 10])
        else:
            redis.sendall(data)
            wait_for(self.is_executed, what="Redis to have executed the flush")


def shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
