"""What the bench measures: redis-server and the proxies in front of it, each on a free port, ended by its id."""
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

HOST = "127.0.0.1"
START_SECONDS = 10
PROBE = b"*2\r\n$3\r\nGET\r\n$11\r\nbench:ready\r\n"


class Failure(Exception):
    """Something that ends the bench with a line of explanation."""


def free_port():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def answers(host, port, timeout=2.0):
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(PROBE)
            return connection.recv(64) != b""
    except OSError:
        return False


def listening_process(port):
    """The id of the process that listens on a local TCP port, or None when it is not ours to see."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for fields in (line.split() for line in lines):
                if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    inodes.add(f"socket:[{fields[9]}]")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if inodes.intersection(links):
            return int(pid)
    return None


def cpu_seconds(pid):
    """Processor time of all threads of a process, also of those that have ended. The clock is the one that
    clock_getcpuclockid() names."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as source:
        return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_clients(name, settings):
    """How many clients the limit of open files allows: a relay needs a second file for each, towards Redis."""
    relays = name == "haproxy" or (name == "headgate" and settings.pool == "session")
    return settings.connections // 2 if relays else settings.connections


class Target:
    """A running server that speaks RESP. pid is None for a foreign one that cannot be looked into. load_options: what
    redis-benchmark needs to speak to it."""

    load_options = ()

    def __init__(self, name, host, port, pid):
        self.name = name
        self.host = host
        self.port = port
        self.pid = pid

    @property
    def upstream(self):
        """As Headgate's option of that name has it."""
        return f"{self.host}:{self.port}"

    def predixy_pool(self):
        """The same in predixy's file."""
        return ("StandaloneServerPool {\n  Databases 16\n  Hash crc16\n  Distribution modula\n  RefreshMethod fixed\n"
                f"  Group bench {{\n    + {self.upstream}\n  }}\n}}\n")

    def cpu(self):
        return cpu_seconds(self.pid) if self.pid else None

    def resident(self):
        return resident_bytes(self.pid) if self.pid else None

    def stop(self):
        """A foreign server is not ours to end."""


class Child(Target):
    """A server that the bench started in a directory of its own, and ends."""

    def __init__(self, name, port, command, files=()):
        self.directory = tempfile.mkdtemp(prefix=f"bench-{name}-")
        for file_name, text in files:
            with open(os.path.join(self.directory, file_name), "w", encoding="ascii") as destination:
                destination.write(text)
        # A session of its own: Ctrl-C reaches the bench alone, which then ends everything in order.
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        super().__init__(name, HOST, port, self.process.pid)
        self._await_start()

    def _await_start(self):
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.log_tail()
                self.stop()
                raise Failure(f"{self.name} did not start:\n{log}")
            time.sleep(0.05)

    def is_ready(self):
        return answers(self.host, self.port)

    def log_tail(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def start_redis(port, connections, options=()):
    # Its protected mode lets nobody in but 127.0.0.1, and some load comes from 127.0.0.2.
    return Child("redis", port, ["redis-server", "--bind", HOST, "--port", str(port), "--save", "", "--appendonly",
                                 "no", "--maxclients", str(connections), "--protected-mode", "no", *options])


class Headgate(Child):
    """rules: further sections of its file."""

    def __init__(self, redis, settings, name="headgate", rules="", binary=None):
        port, self.admin_port = free_port(), free_port()
        text = (f"[headgate]\nlisten = {HOST}:{port}\nupstream = {redis.upstream}\n"
                f"admin = {HOST}:{self.admin_port}\nthreads = {settings.threads}\npool = {settings.pool}\n"
                f"max_clients = {settings.connections}\n{rules}")
        super().__init__(name, port, [binary or settings.headgate, "-c", "headgate.ini"], [("headgate.ini", text)])

    def counters(self, section):
        """A section of STATS, numbers by name."""
        with socket.create_connection((HOST, self.admin_port), timeout=5) as connection:
            connection.sendall(f"STATS {section}\r\n".encode())
            with connection.makefile("rb") as reply:
                lines = reply.read(int(reply.readline()[1:])).decode().splitlines()
        return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if value.isdigit()}


class Predixy(Child):
    """One worker, as Headgate has by default, and no pauses for its log."""

    def __init__(self, binary, redis, settings):
        port = free_port()
        text = (f"Name bench\nBind {HOST}:{port}\nWorkerThreads {settings.threads}\nClientTimeout 3600\n"
                f"LogInfoSample 0\n{redis.predixy_pool()}")
        super().__init__("predixy", port, [binary, "predixy.conf"], [("predixy.conf", text)])


def start_haproxy(redis, settings):
    port = free_port()
    # One file descriptor towards the client and one towards Redis for each connection.
    text = (f"global\n  nbthread 1\n  maxconn {settings.connections // 2}\n"
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
            f"listen redis\n  bind {HOST}:{port}\n  maxconn {settings.connections // 2}\n"
            f"  server redis {HOST}:{redis.port}\n")
    return Child("haproxy", port, [find("haproxy"), "-db", "-f", "haproxy.cfg"], [("haproxy.cfg", text)])


def start_twemproxy(redis, _settings):
    port = free_port()
    text = (f"bench:\n  listen: {HOST}:{port}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n"
            f"  auto_eject_hosts: false\n  preconnect: true\n  backlog: 4096\n  servers:\n   - {HOST}:{redis.port}:1\n")
    command = [find("nutcracker"), "-c", "nutcracker.yml", "-a", HOST, "-s", str(free_port()), "-v", "2"]
    return Child("twemproxy", port, command, [("nutcracker.yml", text)])


STARTERS = {"headgate": Headgate, "haproxy": start_haproxy, "twemproxy": start_twemproxy}


def find(program):
    """Debian keeps some of these where an ordinary user's PATH does not reach."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise Failure(f"{program} is not installed: scripts/install-packages bench")
    return path


def peer(text, redis, settings):
    """predixy=BINARY and another name of a Headgate's binary are started; name=host:port runs already."""
    name, _, binary = text.partition("=")
    if os.path.isfile(binary):
        binary = os.path.abspath(binary)
        if os.path.basename(binary) == "predixy":
            return Predixy(binary, redis, settings)
        return Headgate(redis, settings, name, binary=binary)
    match = re.fullmatch(r"([\w.-]+)=([^=]+):(\d+)", text)
    if not match:
        raise Failure(f"--peer {text}: expected name=host:port or name=binary")
    name, host, port = match.group(1), match.group(2), int(match.group(3))
    if not answers(host, port):
        raise Failure(f"--peer {text}: nothing answers a GET there")
    return Target(name, host, port, listening_process(port) if host in (HOST, "localhost") else None)
