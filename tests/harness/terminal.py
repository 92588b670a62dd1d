"""bash on a terminal, into which a reader of the pages pastes, and what of its output is the same each time."""

import os
import pty
import re
import select
import signal
import termios
import time

PASTE_TIMEOUT = 60
# Words whose values are the same each time; of the others their names are.
EXACT = set(
    "rule scope algorithm admits per cost action admitted refused delayed observed offender key db kind state lease"
    " deferred failures interface errors bytes_in bytes_out length name user command".split()
)
WORD = re.compile(r'(?:^|(?<= ))(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def environment():
    """That of a newcomer: no password kept for redis-cli, nothing of the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "CC", "CCACHE_DIR", "CCACHE_BASEDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", "TERM": "dumb", "PS1": ""}


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
        """What is printed until all of it has been done, without the shell's own lines on jobs, which may come late."""
        self.pasted += 1
        os.write(self.file, f"{text.rstrip()}\necho 'end of' paste {self.pasted}\n".encode())
        return self._read_to(f"end of paste {self.pasted}")

    def _read_to(self, end):
        deadline, printed = time.monotonic() + PASTE_TIMEOUT, ""
        while f"\n{end}\n" not in f"\n{printed}":
            assert select.select([self.file], [], [], max(0.0, deadline - time.monotonic()))[0], f"hangs:\n{printed}"
            printed += os.read(self.file, 65536).decode().replace("\r\n", "\n")
        lines = printed.splitlines()
        return [line for line in lines if line and line != end and not re.match(r"\[\d+\][ +-]", line)]

    def close(self):
        os.close(self.file)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def essence(lines):
    """Lines without what differs each time. redis-cli says how long a command took where that was half a second."""
    result, hot_keys = [], 0
    for line in lines:
        if re.fullmatch(r"\(\d+\.\d+s\)", line):
            continue
        # Requests are counted by chance for HOTKEYS: others may stand behind the first.
        hot_keys += line.startswith("count=")
        if WORD.match(line):
            words = [f"{name}={value}" if name in EXACT else name for name, value in WORD.findall(line)]
            if not line.startswith("count=") or hot_keys == 1:
                result.append(" ".join(words))
        elif line.startswith("# of "):
            result.append(re.sub(r"\d+", "N", line))
        else:
            line = re.sub(r"retry in \d+ ms", "retry in N ms", line)
            line = re.sub(r"^\(integer\) \d{3,4}$", "(integer) what is left of the lock", line)
            result.append(re.sub(r'"\d+\.\d+"', '"ms"', line).rstrip())
    return result
