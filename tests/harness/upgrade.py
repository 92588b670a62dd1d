"""Headgates that are replaced by new processes: which of them serves, and how all of them end."""

import contextlib
import os
import pathlib
import signal
import subprocess

from harness.resp import wait_for
from harness.servers import BINARY, child_environment, run_headgate


def is_alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Line:
    """The processes that follow one another behind one configuration. The program is a link, so that another one can be
    put in its place."""

    def __init__(self, headgate, arguments=()):
        self.headgate = headgate
        self.program = headgate.directory / "headgate-program"
        self.install(BINARY)
        self.pid_path = headgate.directory / "pid"
        headgate.write_config(pid_file=self.pid_path)
        headgate.launch([str(self.program), "-c", str(headgate.config_path), *arguments])
        headgate.await_port(headgate.address)
        wait_for(self.pid_path.exists, what="pid_file")
        self.pids = [self.pid()]

    def pid(self):
        """Of the process that serves."""
        return int(self.pid_path.read_text())

    def install(self, path):
        fresh = self.program.with_suffix(".new")
        fresh.symlink_to(path)
        fresh.rename(self.program)

    def install_script(self, text):
        """A program that is no Headgate."""
        script = self.headgate.directory / "script"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        self.install(script)

    def order(self, timeout=60):
        """headgate --upgrade, whatever comes of it."""
        return run_headgate("-c", self.headgate.config_path, "--upgrade", timeout=timeout)

    def order_later(self):
        return subprocess.Popen(
            [BINARY, "-c", str(self.headgate.config_path), "--upgrade"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment(),
        )  # fmt: skip

    def upgrade(self):
        result = self.order()
        assert result.returncode == 0, result.stderr + self.headgate.log_tail()
        assert self.pid() != self.pids[-1]
        self.pids.append(self.pid())

    def children(self):
        """Of the process that serves."""
        pid = self.pid()
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def await_end(self, pid, seconds=60):
        wait_for(lambda: not is_alive(pid), seconds, f"the end of process {pid}: {self.headgate.log_tail()}")

    def finish(self):
        """Ends them all, the newest first, as it tells those before it; each in good order."""
        for pid in reversed(self.pids):
            if is_alive(pid):
                os.kill(pid, signal.SIGTERM)
        if self.headgate.process.poll() is None:
            self.headgate.wait(60)
        for pid in self.pids:
            self.await_end(pid)
        self.headgate.check_log()


class Former:
    """The process that serves now, to be asked as a Headgate is, also when another one has taken over from it."""

    def __init__(self, headgate):
        self.connection = headgate.admin()

    @contextlib.contextmanager
    def admin(self):
        yield self.connection


def kill_line(line):
    """However a test has ended."""
    for pid in {*line.pids, *([line.pid()] if line.pid_path.exists() else [])}:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
