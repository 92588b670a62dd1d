"""Runs scripts/run as a newcomer does, on ports of its own, and a terminal beside it."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import termios
import time

from harness.servers import REPOSITORY, free_port

RUN = REPOSITORY / "scripts" / "run"
TOUR = (REPOSITORY / "scripts" / "tour.txt").read_text()
STARTED = "ends it all"  # is printed once Headgate serves
START_TIMEOUT = 75
PASTE_TIMEOUT = 60


def environment():
    """That of a newcomer: no password kept for redis-cli, nothing of the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "CC", "CCACHE_DIR", "CCACHE_BASEDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "dumb", "PS1": ""}


def can_be_bound(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def tour_port():
    """A port for --port: it, the one before (Redis) and the tenth behind it (operators) are free."""
    while True:
        port = free_port()
        if can_be_bound(port - 1) and can_be_bound(port + 10):
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
            self.process.wait(START_TIMEOUT)
        self.output.close()


class Terminal:
    """bash on a terminal, into which somebody pastes."""

    def __init__(self, directory):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment())
        settings = termios.tcgetattr(self.file)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.file, termios.TCSANOW, settings)
        self.pasted = 0
        self.paste("PS1=")

    def paste(self, text):
        """What is printed until all of it has been done, without the shell's own lines on jobs."""
        self.pasted += 1
        os.write(self.file, f"{text.rstrip()}\necho 'end of' paste {self.pasted}\n".encode())
        return self._read_to(f"end of paste {self.pasted}\n")

    def _read_to(self, end):
        deadline, printed = time.monotonic() + PASTE_TIMEOUT, ""
        while not printed.endswith(end):
            assert select.select([self.file], [], [], max(0.0, deadline - time.monotonic()))[0], f"hangs:\n{printed}"
            printed += os.read(self.file, 65536).decode().replace("\r\n", "\n")
        lines = printed[: -len(end)].splitlines()
        return [line for line in lines if line and not re.match(r"\[\d+\][ +-]", line)]

    def close(self):
        os.close(self.file)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def steps(text):
    """The steps of the tour, or of a terminal session of it: each begins with "# 1." and so on."""
    return re.findall(r"^# \d\. .*?(?=^# \d\. |\Z)", text, flags=re.MULTILINE | re.DOTALL)
