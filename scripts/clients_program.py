"""A program that uses one client library, and what it is asked.

It is started with HOST PORT CLIENTS, connects so many clients with the library's default settings, prints "version …"
and "ready", and reads a line each time it has answered the one before:

    run FEATURE one-by-one|together     the feature with each client, which has a key of its own

The answer is a line "reply …" for each reply, in the order of the clients, "error …" where the library has thrown
something, and "unsupported …" where it has no such thing; then "done". Replies are written in any way that shows their
types and is the same each time. The program closes its clients and ends with its input.
"""

import queue
import subprocess
import threading

ANSWER_SECONDS = 120.0
END_SECONDS = 30.0


class Broken(Exception):
    """The program ended, or said nothing for long."""


class Program:
    def __init__(self, command, address, clients, errors, environment=None):
        """errors: a file for what it complains of."""
        self.errors = errors
        with open(errors, "ab") as log:
            self.process = subprocess.Popen(
                [*command, address[0], str(address[1]), str(clients)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, errors="replace", bufsize=1,
                env=environment,
            )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _line(self):
        try:
            line = self.lines.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise Broken(f"no answer within {ANSWER_SECONDS:.0f} s") from None
        if line is None:
            complaint = self.errors.read_text(errors="replace").strip().splitlines() or ["without a word"]
            raise Broken(f"the program has ended: {complaint[-1][:160]}")
        return line

    def await_ready(self):
        """The library's version."""
        version = self._line().removeprefix("version ")
        if (line := self._line()) != "ready":
            raise Broken(f"not ready: {line[:160]}")
        return version

    def run(self, feature, together):
        """The lines that come before "done"."""
        try:
            self.process.stdin.write(f"run {feature} {'together' if together else 'one-by-one'}\n")
        except OSError:
            pass  # that it has ended is told by its output
        lines = []
        while (line := self._line()) != "done":
            lines.append(line)
        return lines

    def end(self):
        """Lets it close its clients."""
        self.process.stdin.close()
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise Broken(f"did not end within {END_SECONDS:.0f} s") from None
        if status != 0:
            raise Broken(f"ended with {status}")
