"""[limit:NAME] with scope = global: everything at once."""

import random
import threading
import time

import pytest

from harness.admin import await_empty
from harness.global_limits import shared
from harness.limits import refuses
from harness.resp import OK, QUEUED, Closed, Error, encode, wait_for


# ---- all at once ----


class Soak:
    """Clients of a random mind. Whatever happens to Redis, each request has one sane reply, or its client is closed."""

    def __init__(self, headgates, seed):
        self.headgates = headgates
        self.random = random.Random(seed)
        self.counts = {"INCR": 0, "DECR": 0}
        self.served = 0
        self.wrong = []

    def check(self, command, reply):
        lost = isinstance(reply, Error) and reply.startswith(b"ERR headgate: no connection to Redis")
        if command[0] == "ECHO":
            sane = lost or reply == command[1]
        elif command[0] in ("MULTI", "EXEC"):
            sane = lost or reply == OK or isinstance(reply, list) or isinstance(reply, Error)
        else:
            sane = lost or isinstance(reply, int) or reply == QUEUED or refuses(reply, command[0].lower())
            self.counts[command[0]] += isinstance(reply, int)
        if isinstance(reply, list):
            self.counts["INCR"] += sum(isinstance(element, int) for element in reply)
        if not sane:
            self.wrong.append((command, reply))
        self.served += 1

    def commands(self):
        batch = []
        for _ in range(self.random.choice((1, 1, 3, 20))):
            echo = ("ECHO", b"%d" % self.random.getrandbits(32))
            batch.append(self.random.choice((("INCR", "n"), ("DECR", "d"), echo)))
        if self.random.random() < 0.1:
            batch += [("MULTI",), ("INCR", "n"), ("EXEC",)]
        return batch

    def visit(self, until):
        with self.random.choice(self.headgates).connect() as client:
            while time.monotonic() < until and self.random.random() > 0.02:
                batch = self.commands()
                client.send(b"".join(encode(*command) for command in batch))
                if self.random.random() < 0.01:
                    client.reset()
                    return
                for command in batch:
                    self.check(command, client.read())

    def run(self, until):
        while time.monotonic() < until:
            try:
                self.visit(until)
            except (Closed, ConnectionError):
                continue
            except (TimeoutError, AssertionError) as error:
                self.wrong.append(repr(error))
                return


@pytest.mark.parametrize("accuracy", ["exact", "leased"])
def test_soak(make_sidecar, redis, accuracy):
    """on_error = deny: what is admitted was granted by a Redis, of which each has the limit to give; local: that, and
    what each process admits of itself."""
    limit, times = 300, 3
    options = {"accuracy": accuracy, "decision_timeout": "50ms", "limit": limit}
    rules = shared("incr", **options) + shared("decr", commands="decr", **{**options, "on_error": "local"})
    headgates = [make_sidecar(rules), make_sidecar(rules, threads=4)]
    until = time.monotonic() + 2.4
    workers = [Soak(headgates, seed) for seed in range(6)]
    threads = [threading.Thread(target=worker.run, args=(until,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for _ in range(times - 1):
        time.sleep(0.8)
        redis.restart()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert [worker.wrong for worker in workers] == [[]] * len(workers)
    assert 1 <= sum(worker.counts["INCR"] for worker in workers) <= times * limit
    assert 1 <= sum(worker.counts["DECR"] for worker in workers) <= times * limit + len(headgates) * limit
    assert sum(worker.served for worker in workers) > 100
    for headgate in headgates:
        await_empty(headgate)
        wait_for(headgate.serves, what="service after all that")
