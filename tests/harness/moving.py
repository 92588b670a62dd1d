"""Clients that ask for maintenance notifications, and what they are told."""

import threading
import time

from harness.resp import OK, Closed, Map, Push
from harness.world import breathe

NONE = ("ON", "moving-endpoint-type", "none")
ADDRESS = ("ON", "moving-endpoint-type", "internal-ip")


def ask(client, *arguments):
    return client("CLIENT", "MAINT_NOTIFICATIONS", *arguments)


def arrive(headgate, *arguments):
    """A client of RESP3 that was told OK to that question."""
    client = headgate.connect()
    assert isinstance(client("HELLO", 3), Map)
    assert ask(client, *arguments) == OK
    return client


def assert_told(push, seconds, endpoint):
    assert isinstance(push, Push) and push[0] == b"MOVING", push
    assert abs(push[1] - time.time()) < 1000 and push[2:] == [seconds, endpoint], push


class Follower(threading.Thread):
    """A client under load that does as libraries do: told that it is to move, it connects anew, goes over between two
    requests, and closes the connection that it had. What goes wrong is kept."""

    def __init__(self, headgate, number):
        super().__init__(daemon=True)
        self.headgate, self.number = headgate, number
        self.served, self.moves, self.faults = 0, 0, []
        self.ended = threading.Event()
        self.client = arrive(headgate, *ADDRESS)
        self.start()

    def move(self, endpoint):
        host, port = endpoint.rsplit(b":", 1)
        assert (host.decode(), int(port)) == tuple(self.headgate.address)
        before, self.client = self.client, arrive(self.headgate, *ADDRESS)
        before.close()
        self.moves += 1

    def run(self):
        try:
            while not self.ended.is_set():
                word = b"%d-%d" % (self.number, self.served)
                self.client.request("ECHO", word)
                told = None
                reply = self.client.read()
                while isinstance(reply, Push):
                    told, reply = reply[3], self.client.read()
                assert reply == word, (reply, word)
                self.served += 1
                if told:
                    self.move(told)
                breathe()
        except (OSError, Closed, AssertionError) as fault:
            self.faults.append(repr(fault))

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()
