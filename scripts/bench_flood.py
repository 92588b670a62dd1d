"""A flood: clients that send one command over and over. redis-benchmark ends at the first error, and floods of refused
commands are nothing but errors; besides, it knows no rate."""
import selectors
import socket
import threading
import time
from dataclasses import dataclass

from bench_load import Run
from bench_targets import Failure

SOURCE = "127.0.0.2"  # rules tell the flood by it from redis-benchmark, which comes from 127.0.0.1
REFUSED = b"-RATELIMITED"
SERVED = {"get": b"$64\r\n", "set": b"+OK\r\n"}
REQUEST = {"get": b"*2\r\n$3\r\nGET\r\n$16\r\nkey:__rand_int__\r\n",
           "set": b"*3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$64\r\n" + b"x" * 64 + b"\r\n"}
TICK_SECONDS = 0.005
READ_BYTES = 1 << 18


@dataclass
class FloodedRun(Run):
    """flood: its requests a second meanwhile; sender: the share of one core that sending them took."""
    flood: float | None = None
    sender: float | None = None


class Flood(threading.Thread):
    """Floods while it is entered. answer: how each reply must begin. rate: requests a second of all clients together;
    without one, a client sends its next pipeline as soon as its last one is answered.

    Replies are counted by their first byte, which occurs nowhere else in them: a flood must not cost much itself, as it
    shares the machine with what it floods."""

    def __init__(self, target, operation, answer, clients, pipeline, rate=None):
        super().__init__(daemon=True)
        self.target = target
        self.request = REQUEST[operation]
        self.answer = answer
        self.clients = clients
        self.pipeline = pipeline
        self.rate = rate
        self.stopping = False
        self.fault = None
        self.answered = 0
        self.seconds = self.cpu = 0.0

    def __enter__(self):
        try:
            self.connections = [socket.create_connection((self.target.host, self.target.port), 5, (SOURCE, 0))
                                for _ in range(self.clients)]
            self._expect_answer()
        except OSError as error:
            raise Failure(f"{self.target.name}, flood: {error}") from error
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.join()
        for connection in self.connections:
            connection.close()
        if self.fault:
            raise Failure(f"{self.target.name}, flood: {self.fault}")

    def _expect_answer(self):
        """The second reply counts: the limit admits one request."""
        for _ in range(2):
            self.connections[0].sendall(self.request)
            reply = self.connections[0].recv(READ_BYTES)
        if not reply.startswith(self.answer):
            raise Failure(f"{self.target.name}, flood: expected {self.answer}, got {reply[:100]}")

    def run(self):
        start, cpu = time.monotonic(), time.thread_time()
        try:
            with selectors.DefaultSelector() as selector:
                self._flood(selector, start)
        except OSError as error:
            self.fault = error
        self.seconds, self.cpu = time.monotonic() - start, time.thread_time() - cpu

    def _flood(self, selector, start):
        for connection in self.connections:
            selector.register(connection, selectors.EVENT_READ)
        payload = self.request * self.pipeline
        awaited, idle, sent = {}, list(self.connections), 0
        while not self.stopping:
            due = self.rate * (time.monotonic() - start) if self.rate else float("inf")
            while idle and sent + self.pipeline <= due:
                connection = idle.pop()
                connection.sendall(payload)
                awaited[connection] = self.pipeline
                sent += self.pipeline
            if self.rate:
                time.sleep(TICK_SECONDS)
            for key, _ in selector.select(0 if self.rate else TICK_SECONDS):
                if self._receive(key.fileobj, awaited):
                    idle.append(key.fileobj)

    def _receive(self, connection, awaited):
        """True when the pipeline is answered."""
        data = connection.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed")
        count = data.count(self.answer[:1])
        self.answered += count
        awaited[connection] -= count
        return awaited[connection] == 0


def measure_alone(target, operation, cell, answer, seconds):
    """A flood of the cell's shape with nothing beside it. rps: what the server answers in a second of its processor;
    what it answers in a second is bounded by the sender."""
    before = target.cpu()
    with Flood(target, operation, answer, cell.clients, cell.pipeline) as flood:
        time.sleep(seconds)
    cpu = target.cpu() - before
    return FloodedRun(rps=flood.answered / cpu, p50=None, p99=None, p999=None, proxy_cpu=cpu / flood.answered * 1e6,
                      redis_cpu=None, resident=target.resident(), flood=flood.answered / flood.seconds,
                      sender=flood.cpu / flood.seconds)
