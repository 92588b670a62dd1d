"""A program of its own that holds connections to Redis: a process with a pid, which can be killed, can fork, and can be
another user's."""

import json
import os
import signal
import subprocess
import sys

# It reads one order a line, and answers each in one. Nothing of the tests is imported: another user runs it, too.
TEXT = r"""
import json, os, signal, socket, sys, time
lines, address, forked = {}, json.loads(sys.argv[1]), []

def connect(name):
    place = address[name] if isinstance(address, dict) else address
    if isinstance(place, str):
        made = socket.socket(socket.AF_UNIX)
        made.connect(place)
        return made
    return socket.create_connection(tuple(place))

def send(name, words):
    if name not in lines:
        lines[name] = connect(name)
    words = [str(word).encode() for word in words]
    parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    lines[name].sendall(b"".join(parts))
    reply = b""
    while not reply.endswith(b"\r\n"):
        got = lines[name].recv(65536)
        if not got:
            return "closed"
        reply += got
    return reply.decode()

def work(words):
    # What a child does on a connection of its own, which it keeps.
    print(json.dumps([os.getpid(), send("a child's own", words)]), flush=True)

def fork(words):
    child = os.fork()
    if child == 0:
        os.close(0)
        if words:
            work(words)
        time.sleep(600)
        os._exit(0)
    return None if words else child

def reap(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

for order in sys.stdin:
    what, *rest = json.loads(order)
    if what == "send":
        answer = send(rest[0], rest[1:])
    elif what == "close":
        answer = lines.pop(rest[0]).close()
    elif what == "fork":
        answer = fork(rest)
    elif what == "reap":
        answer = reap(rest[0])
    if what != "fork" or not rest:
        print(json.dumps(answer), flush=True)
"""


# Where root may say which number the next process is to have after this one.
LAST_PID = "/proc/sys/kernel/ns_last_pid"
NUMBERS_MAY_BE_CHOSEN = os.access(LAST_PID, os.W_OK)


def start_with_pid(pid, start):
    """What start() starts, with that number, which nobody has now. Another process may be faster: then once more."""
    for _ in range(200):
        with open(LAST_PID, "w", encoding="ascii") as file:
            file.write(str(pid - 1))
        program = start()
        if program.pid == pid:
            return program
        program.finish()
    raise AssertionError(f"no process got the number {pid}")


class Program:
    """address: (host, port), the path of a Unix socket, or a dictionary of them by the connection's name. user: a uid to run as. rights: those that root has."""

    def __init__(self, address, user=None, rights=True):
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        become = become if rights else ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        command = [*become, sys.executable, "-I", "-S", "-c", TEXT, json.dumps(address)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", encoding="utf-8"
        )
        self.children = []

    @property
    def pid(self):
        return self.process.pid

    def _order(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def send(self, connection, *words):
        """What is replied to that command over the connection of that name, which is made at first."""
        return self._order("send", connection, *words)

    def close(self, connection):
        self._order("close", connection)

    def fork(self):
        """A child that inherits all connections and sleeps; its pid."""
        self.children.append(self._order("fork"))
        return self.children[-1]

    def fork_to_send(self, *words):
        """The same, of one that sends a command over a connection of its own first: its pid, and what is replied."""
        child, reply = self._order("fork", *words)
        self.children.append(child)
        return child, reply

    def kill_child(self, child):
        """kill -9, and its number is free."""
        self._order("reap", child)
        self.children.remove(child)

    def kill(self):
        """kill -9, of the program alone."""
        self.process.kill()
        self.process.wait()

    def finish(self):
        self.process.kill()
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
