"""Starts redis-server and headgate on free ports in directories of their own, and looks after their logs."""

import contextlib
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from harness import tls, world
from harness.certificates import certificates
from harness.resp import PONG, Client, Closed, wait_for

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HEADGATE_BINARY", str(REPOSITORY / "build" / "headgate"))
# Another server may be given, to see whether it does as this one.
REDIS_SERVER = os.environ.get("HEADGATE_REDIS_SERVER", "redis-server")
STOP_TIMEOUT = 15.0
LOG_TAIL = 4000

FATAL_MARKS = re.compile(
    r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|Assertion|assertion failed|stack smashing"
    r"|\[warn\] event_\w+: event has no event_base"
)

# Added to what the caller has set. A small quarantine keeps the memory tests meaningful in sanitizer builds.
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "quarantine_size_mb=8:malloc_context_size=10:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "exitcode=99",
}


# Where Debian has haproxy; not every user looks there.
os.environ["PATH"] += ":/usr/sbin:/sbin"
# Taken once: pytest changes its own between tests, and some tests start servers in threads.
ENVIRONMENT = dict(os.environ)


def child_environment():
    environment = dict(ENVIRONMENT)
    for name, options in SANITIZER_OPTIONS.items():
        environment[name] = ":".join(filter(None, [options, environment.get(name)]))
    return environment


def preloaded(library, directory, variable, path):
    """Environment of a process that has it loaded first; variable: names a file to it. LD_PRELOAD is cut at blanks, which
    there may be on the way to it, and so has a link. gcc's address sanitizer wants to be first, and need not be."""
    link = directory / library.name
    if not link.is_symlink():
        link.symlink_to(library)
    sanitizer = child_environment()["ASAN_OPTIONS"] + ":verify_asan_link_order=0"
    return {"LD_PRELOAD": str(link), variable: str(path), "ASAN_OPTIONS": sanitizer}


def ahead_of_others():
    """What a command begins with whose process is to get the processor before the tests, and what else runs beside them,
    where that is allowed: leases of some hundred ms end when Headgate or Redis is not let in for as long."""
    words = ["nice", "-n", "-10"]
    try:
        result = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return words if result.returncode == 0 and not result.stderr else []


AHEAD_OF_OTHERS = [] if world.is_inside() else ahead_of_others()


# Ports go to test processes by blocks, so that no two processes of this machine are given the same one, also not by two
# runs of the tests at once. A block belongs to whoever has bound its name, an abstract Unix socket: the kernel sees to
# it that there is one, in this network namespace as the ports are, and takes it back when the process ends.
PORT_BLOCK = 64
FIRST_PORT = 10_000
PORT_BLOCKS_MOST = 12


class Ports:
    """Ports that nobody listens on, each of which is given out again as late as possible. They lie below the range from
    which the kernel takes the ports of outgoing connections, since one of those could otherwise take it before the
    server does."""

    def __init__(self):
        self.claims = []
        self.ports = []
        self.next = 0
        self.taking = threading.Lock()

    def _claim(self):
        with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:
            end = max(int(limits.read().split()[0]), 2 * FIRST_PORT)
        starts = list(range(FIRST_PORT, end - PORT_BLOCK, PORT_BLOCK))
        random.shuffle(starts)
        for start in starts:
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0headgate-test-ports-{start}")
            except OSError:
                claim.close()
                continue
            self.claims.append(claim)
            self.ports += range(start, start + PORT_BLOCK)
            return

    def take(self):
        with self.taking:
            return self._take()

    def _take(self):
        while True:
            if self.next == len(self.ports) and len(self.claims) < PORT_BLOCKS_MOST:
                self._claim()
            if self.next == len(self.ports):
                self.next = 0
            assert self.ports, "other test processes have all ports"
            port = self.ports[self.next]
            self.next += 1
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                    return port
                except OSError:
                    continue


PORTS = Ports()


def free_port():
    return PORTS.take()


def sanitizer_overhead():
    """Bytes of resident memory that a sanitizer build may take beyond an ordinary one."""
    with open(BINARY, "rb") as binary:
        content = binary.read()
    return (256 << 20) if b"__asan_init" in content or b"__tsan_init" in content else 0


def await_exit(pid, timeout):
    """Until that child has ended, or the time is over. Popen.wait() with a timeout looks at ever longer intervals, which
    together were minutes of all tests."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # nobody has that number any more, or it is not allowed here: then Popen.wait() has to do
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(timeout * 1000)
    finally:
        os.close(handle)


def processes_in(directory):
    """The numbers of those that work in there: a server, and those that it has started, and these in turn."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.readlink(f"/proc/{number}/cwd") == str(directory):
                found.append(int(number))
    return found


def directory_in_memory(name):
    """For files that a server writes with fsync(): it answers nobody meanwhile, for as long as a busy disk takes."""
    return pathlib.Path(tempfile.mkdtemp(prefix=f"headgate-test-{name}-", dir="/dev/shm"))


class Server:
    """A child process with a directory and a log. running holds all that are alive, for reports on failure."""

    running = []

    def __init__(self, name):
        self.name = name
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"headgate-test-{name}-"))
        self.log_path = self.directory / "log"
        self.process = None
        self.environment = {}

    def launch(self, command, **options):
        options = {"stdin": subprocess.DEVNULL, "env": {**child_environment(), **self.environment}, **options}
        with open(self.log_path, "ab") as log:
            command = [*AHEAD_OF_OTHERS, *command]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, **options)
        if self not in Server.running:
            Server.running.append(self)

    def await_port(self, address):
        def answers():
            assert self.is_alive(), f"{self.name} ended at start:\n{self.log_tail()}"
            try:
                Client(address).close()
                return True
            except OSError:
                return False

        try:
            wait_for(answers, what=f"{self.name} listening on {address}")
        except AssertionError:
            self.discard()
            raise

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def await_log(self, text):
        """What is said of something may come a moment after it was done."""
        wait_for(lambda: text in self.log(), what=f"{text!r} in the log")

    def log_tail(self):
        return self.log()[-LOG_TAIL:]

    def wait(self, timeout=STOP_TIMEOUT):
        if self.process.poll() is None:
            await_exit(self.process.pid, timeout)
        return self.process.wait(timeout)

    def kill(self):
        """Ends the process at once; the directory stays until discard()."""
        if self.is_alive():
            self.process.kill()
            self.wait()

    def discard(self):
        self.kill()
        for left in processes_in(self.directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        if self in Server.running:
            Server.running.remove(self)
        shutil.rmtree(self.directory, ignore_errors=True)

    def rss(self):
        """Resident memory in bytes."""
        return self._status_kilobytes("VmRSS") * 1024

    def peak_rss(self):
        return self._status_kilobytes("VmHWM") * 1024

    def _status_kilobytes(self, field):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise AssertionError(f"no {field} in /proc/{self.process.pid}/status")


class Redis(Server):
    """tls: it has a port for TLS, too, which Headgate then uses; its clients need no certificate unless options say so."""

    def __init__(self, *options, port=None, host="127.0.0.1", server=REDIS_SERVER, tls=None):
        super().__init__("redis")
        self.tls_port = free_port() if speaks_tls(tls) else None
        self.host = host
        self.server = server
        self.port = port or free_port()
        self.options = options
        self.socket_path = self.directory / "redis.sock"
        self.start()

    @property
    def address(self):
        return (self.host, self.port)

    @property
    def url(self):
        return f"{self.host}:{self.port}"

    @property
    def tls_address(self):
        return (self.host, self.tls_port)

    @property
    def tls_url(self):
        return f"rediss://{self.host}:{self.tls_port}"

    def start(self):
        self.launch(
            [self.server, "--port", str(self.port), "--bind", self.host, "--save", "", "--appendonly", "no"]
            + ["--enable-debug-command", "yes", "--unixsocket", str(self.socket_path)]
            + ["--repl-diskless-sync-delay", "0", "--maxclients", "4000", *self._tls_options(), *self.options]
        )
        # It opens them one after the other, in an order that depends on its version.
        for address in filter(None, [self.address, str(self.socket_path), self.tls_port and self.tls_address]):
            self.await_port(address)

    def _tls_options(self):
        if not self.tls_port:
            return []
        certificate, key = certificates().server
        return ["--tls-port", str(self.tls_port), "--tls-cert-file", certificate, "--tls-key-file", key,
                "--tls-ca-cert-file", certificates().ca, "--tls-auth-clients", "no"]  # fmt: skip

    def restart(self):
        self.kill()
        self.start()

    def connect(self):
        return Client(self.address)

    def discard(self):
        if self.is_alive():
            self.signal(signal.SIGCONT)
        super().discard()


def speaks_tls(wanted):
    """wanted: what the test says; None: nothing."""
    return tls.is_usual() if wanted is None else wanted


def both_sides():
    return {**tls.towards_clients(), **tls.towards_redis()}


class Headgate(Server):
    """headgate with an ini file of the given options; every test's directory and ports are its own."""

    def __init__(self, upstream, pool="shared", start=True, tls=None, **options):
        """upstream: a Redis, or an address as text. tls: on both sides, if that Redis has it."""
        super().__init__("headgate")
        self.speaks_tls = speaks_tls(tls)
        assert os.access(BINARY, os.X_OK), f"no headgate at {BINARY}: build it, or name it in HEADGATE_BINARY"
        self.port = free_port()
        self.admin_port = free_port()
        self.options = {
            "listen": f"{'rediss://' if self.speaks_tls else ''}127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin_port}",
            "upstream": self._upstream(upstream),
            "pool": pool,
            "reconnect_min": "20ms",
            "reconnect_max": "200ms",
            "drain_timeout": "1s",
            # On a busy machine a process may be left waiting for longer than the usual 3 and 5 seconds.
            "upstream_wait": "20s",
            "connect_timeout": "20s",
            **(both_sides() if self.speaks_tls else {}),
            **options,
        }
        self.config_path = self.directory / "headgate.ini"
        self.rules = ""
        self.checked = 0
        self.clients = []
        self.expected_exit = {0}
        self.write_config()
        if start:
            self.start()

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def _upstream(self, upstream):
        if isinstance(upstream, str):
            return upstream
        return upstream.tls_url if self.speaks_tls and upstream.tls_port else upstream.url

    @property
    def admin_address(self):
        return ("127.0.0.1", self.admin_port)

    def write_config(self, **changes):
        self.options.update(changes)
        lines = ["[headgate]"] + [f"{name} = {value}" for name, value in self.options.items() if value is not None]
        self.config_path.write_text("\n".join(lines) + "\n" + self.rules)

    def write_rules(self, rules):
        """Further sections of the ini file, as text; for the next start or reload."""
        self.rules = rules
        self.write_config()

    def start(self, **options):
        """options: of subprocess.Popen()."""
        self.launch([BINARY, "-c", str(self.config_path)], **options)
        self.await_port(self.address)

    def connect(self, context=None, **options):
        """context and options: for TLS."""
        if self.speaks_tls:
            self.clients.append(tls.connect(self.address, context, **options))
        else:
            self.clients.append(Client(self.address))
        return self.clients[-1]

    def admin(self):
        return Client(self.admin_address)

    def told(self, *request):
        """What a new client is told. None: it was closed, as over a connection to Redis whose end was not seen yet."""
        with self.connect() as client:
            try:
                return client(*request)
            except Closed:
                return None

    def serves(self):
        """True if a new client gets an answer that is no error."""
        return self.told("PING") == PONG

    def check_log(self):
        """Fails on what a sanitizer or an assertion left in the log since the last look."""
        log = self.log()
        fresh, self.checked = log[self.checked :], len(log)
        mark = FATAL_MARKS.search(fresh)
        assert not mark, f"headgate's log:\n{fresh[max(0, mark.start() - 500):][:LOG_TAIL]}"

    def terminate(self, timeout=STOP_TIMEOUT):
        """SIGTERM; the exit status is returned."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def finish(self):
        """Ends it in good order and checks that it was in good order."""
        try:
            for client in self.clients:
                client.close()
            if self.process is not None:
                status = self.terminate() if self.is_alive() else self.process.returncode
                self.check_log()
                assert status in self.expected_exit, f"headgate exited with {status}:\n{self.log_tail()}"
                # One that has taken over from it goes on by itself: the test has to end it.
                wait_for(lambda: not processes_in(self.directory), STOP_TIMEOUT, "the end of all that it has started")
        finally:
            self.discard()


def run_headgate(*arguments, timeout=10.0):
    """headgate with those arguments, run to its end; a CompletedProcess with text output."""
    assert os.access(BINARY, os.X_OK), f"no headgate at {BINARY}: build it, or name it in HEADGATE_BINARY"
    return subprocess.run(
        [BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=child_environment()
    )


def elapsed(action):
    """Seconds that action() takes."""
    start = time.monotonic()
    action()
    return time.monotonic() - start
