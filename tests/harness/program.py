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


# Starts a program with the number that is asked for, which only root may, and waits for it. No other process can be faster, as
# it could where the kernel is told which number is the next.
WITH_NUMBER = r"""
import ctypes, os, struct, sys
number = ctypes.c_int(int(sys.argv[1]))
# struct clone_args of linux/sched.h, for clone3(): a signal to the parent, and one number for one namespace.
how = struct.pack("=10Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1)
child = ctypes.CDLL(None).syscall(435, how, len(how))
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
assert child == number.value, "that number may not be chosen, or somebody has it"
os.waitpid(child, 0)
"""


class Program:
    """address: (host, port), the path of a Unix socket, or a dictionary of them by the connection's name. user: a uid to run as. rights: those that root has.
    pid: the number that it has to have, which nobody has."""

    def __init__(self, address, user=None, rights=True, pid=None):
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        become = become if rights else ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        command = [*become, sys.executable, "-I", "-S", "-c", TEXT, json.dumps(address)]
        command = [sys.executable, "-I", "-S", "-c", WITH_NUMBER, str(pid), *command] if pid else command
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", encoding="utf-8"
        )
        self.children = []
        self.pid = pid or self.process.pid

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
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self):
        self.kill()
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        self.process.stdin.close()
        self.process.stdout.close()
