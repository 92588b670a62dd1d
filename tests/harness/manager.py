"""A service manager."""

import contextlib
import os
import socket

from harness.resp import wait_for


def keep_busy(name):
    """Its queue is full until it reads."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
        sender.setblocking(False)
        while True:
            sender.sendto(b"BUSY=1", name)


class Manager:
    """Stands in for systemd: the socket that messages come to."""

    def __init__(self, directory, abstract=False):
        self.name = f"\0headgate-test-{directory.name}-{os.getpid()}" if abstract else str(directory / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.name)
        self.socket.setblocking(False)
        self.messages = []

    def environment(self, **further):
        return {"NOTIFY_SOCKET": self.name.replace("\0", "@"), **further}

    def take(self):
        """All messages so far, each a dictionary."""
        while True:
            try:
                lines = self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split("=", 1) for line in lines))

    def states(self):
        """Which of the states it was told of, in order."""
        names = ("READY", "RELOADING", "STOPPING")
        return [name for message in self.take() for name in names if message.get(name) == "1"]

    def count(self, name):
        return sum(name in message for message in self.take())

    def await_states(self, *expected):
        wait_for(lambda: self.states() == list(expected), what=f"{expected} in place of {self.states()}", seconds=30)
