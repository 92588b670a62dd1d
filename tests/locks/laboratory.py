"""One lock library, run in a program of its own, with a Redis of its own and usually Headgate between.

Programs read commands from their standard input, a line each, and answer each by a line:

    acquire NAME LEASE_MS    as a new owner: yes or no
    again NAME LEASE_MS      as the owner that has it: yes or no
    extend NAME LEASE_MS     by its owner, from now on: yes or no
    release NAME             yes, or no if the library says that it was not held any more

After it has connected a program says "ready". "error …" may come instead of any answer. It ends with its input.
"""

import collections
import hashlib
import queue
import re
import signal
import subprocess
import threading
import time

from harness.admin import stats
from harness.resp import encode, wait_for
from harness.servers import REPOSITORY, Headgate, Redis, Server

NAME = "lock:job"
ANSWER_TIMEOUT = 240.0
# How long something may take that should happen at once, or at a certain time, on a machine with much else to do.
PATIENCE = 15.0
LOOK_EVERY = 0.02

# So many renewals of one key take some time, whatever goes on: the watchdog waits between two of them.
BURST = 4
BURST_SECONDS = 0.05

RULE = """
[lease:locks]
keys = lock:* mutex:lock:* semaphore:lock:*
"""


class Program:
    def __init__(self, command, error_path):
        self.errors = error_path
        with open(error_path, "ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._expect("ready")

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line.rstrip("\n"))
        self.answers.put("error the program has ended")

    def _expect(self, *expected):
        try:
            answer = self.answers.get(timeout=ANSWER_TIMEOUT)
        except queue.Empty:
            answer = f"nothing within {ANSWER_TIMEOUT} s"
        assert answer in expected, f"{answer}\n{self.errors.read_text(errors='replace')[-2000:]}"
        return answer

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self._expect("yes", "no") == "yes"

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


def renewal_pattern():
    """Of the renewals in what MONITOR shows: time and key."""
    scripts = sorted((REPOSITORY / "lua").glob("lease_renew_*.lua"))
    digests = "|".join(hashlib.sha1(script.read_bytes()).hexdigest() for script in scripts)
    return re.compile(rf'\+([0-9.]+) \[.*\] "EVALSHA" "(?:{digests})" "\d+" "([^"]*)"')


RENEWAL = renewal_pattern()


class Monitor:
    """What reaches Redis, for reports. What the test itself asks is left out."""

    def __init__(self, redis, look):
        self.renewals = collections.defaultdict(list)
        self.own = b" 127.0.0.1:%d] " % look.socket.getsockname()[1]
        self.lines = collections.deque(maxlen=60)
        self.client = redis.connect()
        self.client.send(encode("MONITOR"))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            with self.client.socket.makefile("rb") as lines:
                self.client.socket.settimeout(None)
                for line in lines:
                    if self.own not in line and b'"COMMAND"' not in line:
                        self._take(line.decode(errors="replace").strip())
        except (OSError, ValueError):
            pass

    def _take(self, line):
        self.lines.append(line[:600])
        if renewal := RENEWAL.match(line):
            self.renewals[renewal[2]].append(float(renewal[1]))

    def bursts(self):
        """Of renewals of one key."""
        return [
            (key, times[last - BURST + 1 : last + 1])
            for key, times in self.renewals.items()
            for last in range(BURST - 1, len(times))
            if times[last] - times[last - BURST + 1] < BURST_SECONDS
        ]


class Laboratory:
    """with Laboratory(library, pool, option=…): options are those of the rule. pool "direct" goes without Headgate."""

    def __init__(self, library, pool, **options):
        self.library = library
        self.pool = pool
        options = {"ttl": f"{library.lease}ms", **library.rule, **options}
        self.rule = RULE + "".join(f"{name} = {value}\n" for name, value in options.items())
        self.lease = library.lease / 1000
        self.keys = library.keys_of(NAME)
        self.redis = self.headgate = self.program = None

    def __enter__(self):
        try:
            self.redis = Redis()
            self.look = self.redis.connect()
            self.monitor = Monitor(self.redis, self.look)
            if self.pool != "direct":
                # Connections of one program come to both threads; with pool = session all is in one.
                threads = 2 if self.pool == "shared" else 1
                self.headgate = Headgate(self.redis, pool=self.pool, threads=threads, start=False)
                self.socket = self.headgate.directory / "socket"
                listen = f"{self.headgate.options['listen']}, unix:{self.socket}"
                self.headgate.write_config(**({"listen": listen} if self.library.unix else {}))
                self.headgate.write_rules(self.rule)
                self.headgate.start()
            # Their logs have nothing to do with the failures of others that run beside this one.
            Server.running[:] = [other for other in Server.running if other not in (self.redis, self.headgate)]
            self.program = self._start("program")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, error, _trace):
        bursts = self.monitor.bursts()
        if error is None and not bursts:
            self._end()
            return
        error = error or f"renewals in bursts: {bursts}"
        report = f"{error}\n{self._report()}"
        try:
            self._end()
        finally:
            raise AssertionError(report) from (error if kind else None)

    def _start(self, name):
        server = self.headgate or self.redis
        address = (str(self.socket), 0) if self.library.unix else server.address
        return Program(self.library.command(*address), server.directory / name)

    def _end(self):
        try:
            if self.program:
                self.program.end()
            if self.headgate:
                self.headgate.finish()
        finally:
            if self.redis:
                self.redis.discard()

    def _report(self):
        parts = ["---- on the wire to Redis", *self.monitor.lines]
        if self.headgate and self.headgate.is_alive():
            parts += ["---- LEASES", *self.leases()]
            parts += ["---- STATS", *(f"{name}:{value}" for name, value in self.stats().items() if value)]
            parts += ["---- log", self.headgate.log_tail()]
        return "\n".join(parts)

    # ---- what the program does ----

    def acquire(self):
        """True, or False when somebody else has the lock."""
        return self.program.ask("acquire", NAME, self.library.lease)

    def acquire_again(self):
        return self.program.ask("again", NAME, self.library.lease)

    def extend(self, leases):
        return self.program.ask("extend", NAME, leases * self.library.lease)

    def release(self):
        return self.program.ask("release", NAME)

    def kill(self):
        self.program.signal(signal.SIGKILL)
        self.program.process.wait()

    # ---- what is seen ----

    def holder(self):
        """The owner's token if it is the same in all keys and none of them has expired."""
        tokens = {self.library.holder(self.look, key, self.library.lease) for key in self.keys}
        return tokens.pop() if len(tokens) == 1 else None

    def left(self):
        """ms, of the key that has the shortest time to live; negative if there is none."""
        return min(self.look("PTTL", key) for key in self.keys)

    def exists(self):
        return self.look("EXISTS", *self.keys) > 0

    def leases(self):
        with self.headgate.admin() as client:
            return client("LEASES").decode().splitlines()

    def stats(self):
        return {name: int(value) for name, value in stats(self.headgate, "lease").items() if value.isdigit()}

    # ---- what is expected ----

    def assert_for(self, leases, condition, what):
        """The condition holds whenever it is looked at over that many leases."""
        end = time.monotonic() + leases * self.lease
        assert condition(), what
        while time.monotonic() < end:
            time.sleep(LOOK_EVERY)
            assert condition(), what

    def assert_held(self, leases):
        token = wait_for(self.holder, PATIENCE, "the lock to have a holder")
        self.assert_for(leases, lambda: self.holder() == token, "the lock was lost while its owner lived")

    def assert_never_shortened(self, leases):
        """The time to live never falls faster than time goes by: nobody shortens what another has set."""
        end = time.monotonic() + leases * self.lease
        seen, left = time.monotonic(), self.left()
        while time.monotonic() < end:
            time.sleep(LOOK_EVERY)
            before, previous = seen, left
            seen, left = time.monotonic(), self.left()
            passed = (time.monotonic() - before) * 1000
            assert left > 0, "the lock was lost"
            assert left >= previous - passed - 5, f"{previous} ms were left, and {left} ms after {passed} ms"

    def assert_gone(self, leases=1.5):
        """At once, and for good."""
        self.assert_for(leases, lambda: not self.exists(), "the lock is there after its release")

    def await_lost(self, seconds):
        wait_for(lambda: self.holder() is None, seconds, "the lock to end")

    def await_no_leases(self):
        wait_for(lambda: self.leases() == [], PATIENCE, "no lease on file")
