"""Runs scripts/run as a newcomer does, on ports of its own; and the steps of the tour."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from harness.servers import FIRST_PORT, PORT_BLOCK, PORTS, REPOSITORY, free_port
from harness.terminal import environment

RUN = REPOSITORY / "scripts" / "run"
TOUR = (REPOSITORY / "scripts" / "tour.txt").read_text()
STARTED = "ends it all"  # is printed once Headgate serves
START_TIMEOUT = 75


def can_be_bound(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def tour_port():
    """A port for --port: it, the one before (Redis), the tenth behind it (operators) and the next (the page) are free. All
    of them belong to this process, so that no test beside it is given one of them."""
    while True:
        port = free_port()
        is_within = 1 <= (port - FIRST_PORT) % PORT_BLOCK < PORT_BLOCK - 11
        if is_within and all(can_be_bound(port + offset) for offset in (-1, 10, 11)):
            # Whoever asks for one next is given none of them, also if those between are not free.
            PORTS.next += 11
            return port


class Run:
    """One scripts/run. printed() is what it has said so far, on both of its streams."""

    def __init__(self, *arguments, command=(str(RUN),)):
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
            cwd="/", env=environment(), start_new_session=True,
        )

    def printed(self):
        return os.pread(self.output.fileno(), 1 << 20, 0).decode()

    def await_start(self):
        deadline = time.monotonic() + START_TIMEOUT
        while STARTED not in self.printed():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.printed()}"
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.05)
        return self

    def refused(self):
        """It gave up by itself: what it said."""
        assert self.process.wait(START_TIMEOUT) == 1, self.printed()
        said = self.printed()
        for line in (STARTED, "applications  ", "Try: ", "Five things"):
            assert line not in said
        return said

    def interrupt(self):
        """Ctrl-C: the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(START_TIMEOUT)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(START_TIMEOUT)
            except subprocess.TimeoutExpired:
                # The kernel ends its children.
                self.process.kill()
                self.process.wait()
                raise
        self.output.close()


def steps(text):
    """The steps of the tour, or of a terminal session of it: each begins with "# 1." and so on."""
    return re.findall(r"^# \d\. .*?(?=^# \d\. |\Z)", text, flags=re.MULTILINE | re.DOTALL)
