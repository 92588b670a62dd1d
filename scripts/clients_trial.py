"""One library's program, run once: directly or through Headgate, with a Redis of its own.

A feature is a row of FEATURES, and a function of that name in each program of tests/newest that knows it.
"""

import contextlib
import re
import time
from dataclasses import dataclass, field

import clients_tls
from clients_program import Broken, Program
from harness import tls
from harness.admin import stats
from harness.certificates import certificates
from harness.servers import Headgate, Redis

WAYS = ("direct", "session", "shared")
# How long lanes are waited for that are too many, and how long the last ones.
SETTLE_SECONDS = 10.0
REST_SECONDS = 1.0


@dataclass(frozen=True)
class Feature:
    name: str
    together: bool = False  # with all clients at once, as it takes its time
    holds: bool = False  # a connection of Redis' own for each client for as long as it lasts


FEATURES = [
    Feature("strings"),
    Feature("refused"),
    Feature("hashes"),
    Feature("lists"),
    Feature("sorted_sets"),
    Feature("pipeline"),
    Feature("transaction"),
    Feature("watch"),
    Feature("script"),
    Feature("scan"),
    Feature("big"),
    Feature("blocking", together=True),
    Feature("subscribe", together=True, holds=True),
    Feature("unsubscribe", together=True),
    Feature("caching", together=True),
]


@dataclass
class Outcome:
    version: str = ""
    resp: str = ""
    replies: dict = field(default_factory=dict)  # lines of each feature
    digest: bytes = b""  # of all data at the end
    lanes: int = 0  # exclusive ones in use, the most that there were behind a feature that keeps none
    clients: int = 0  # connections of the program, and what they were to Redis, when it had done its ordinary work
    connections: int = 0
    faults: list = field(default_factory=list)

    def errors(self):
        return [
            f"{name}: {line}" for name, lines in self.replies.items() for line in lines if line.startswith("error")
        ]

    def lacking(self):
        """Features that the library has not, each with what it says of that."""
        found = {name: lines[0] for name, lines in self.replies.items() if lines and lines[0].startswith("unsupported")}
        return [f"{name}{line.removeprefix('unsupported').replace(' ', ': ', 1)}" for name, line in found.items()]


def connections(look):
    """What Redis tells of its connections, but of the one that asks."""
    own = str(look("CLIENT", "ID"))
    lines = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in look("CLIENT", "LIST").decode().splitlines()]
    return [line for line in lines if line["id"] != own]


class Trial:
    """Trial(library, command, way, server, options).run() gives an Outcome. command: what runs the program; server: the
    binary of a redis-server; options: those of scripts/test-clients."""

    def __init__(self, library, command, way, server, options):
        self.library = library
        self.command = command
        self.way = way
        self.options = options
        self.stack = contextlib.ExitStack()
        self.server = server
        self.patience = SETTLE_SECONDS
        self.outcome = Outcome()

    def run(self):
        with self.stack:
            try:
                self._run()
            except (Broken, AssertionError, OSError) as fault:
                self.outcome.faults.append(f"{self.way}: {' '.join(str(fault).split())[:300]}")
        return self.outcome

    def _run(self):
        redis = Redis(*self._redis_options(), server=self.server, tls=bool(self.options.tls))
        self.stack.callback(redis.discard)
        self.look = redis.connect()
        self.headgate = None
        if self.way != "direct":
            self.headgate = Headgate(redis, pool=self.way, threads=self.options.threads, start=False,
                                     tls=bool(self.options.tls), **self._headgate_options())  # fmt: skip
            self.stack.callback(self.headgate.finish)
            self.headgate.start()
        address = (self.headgate or redis).address
        environment = None
        if self.options.tls:
            address = self.headgate.address if self.headgate else redis.tls_address
            environment = clients_tls.environment(self.library.language, redis.directory, self._with_certificates())
        program = Program(self.command, address, self.options.clients, redis.directory / "program", environment)
        with program:
            self.outcome.version = program.await_ready()
            for feature in self.options.features:
                self._feature(program, feature)
            program.end()
        self.outcome.digest = self.look("DEBUG", "DIGEST")

    def _with_certificates(self):
        return self.options.tls == "certificates"

    def _redis_options(self):
        return ["--tls-auth-clients", "yes"] if self._with_certificates() else []

    def _headgate_options(self):
        if not self._with_certificates():
            return {}
        shown = tls.towards_redis(certificates().client)
        return {"client_certificates": "required", "tls_ca": certificates().ca, **shown}

    def _feature(self, program, feature):
        self.outcome.replies[feature.name] = program.run(feature.name, feature.together)
        if self.way == "shared":
            self._look_at_lanes(feature)
        if not feature.together:
            self._look_at_connections()

    def _look_at_lanes(self, feature):
        """Lanes come back a moment after the last reply."""
        allowed = self._allowed(feature)
        start = time.monotonic()
        while lanes := self._exclusive_lanes():
            enough = feature.holds or self.library.tracks or time.monotonic() > start + REST_SECONDS
            if (lanes <= allowed and enough) or time.monotonic() > start + self.patience:
                break
            time.sleep(0.02)
        if lanes > allowed:
            self.outcome.faults.append(f"{self.way}: {lanes} lanes in use after {feature.name} ({self._reasons()})")
            self.patience = REST_SECONDS  # some may be kept for life
        if not feature.holds:
            self.outcome.lanes = max(self.outcome.lanes, lanes)

    def _allowed(self, feature):
        if self.library.tracks:
            return self._clients()
        return max(1, self.options.clients // 20) + (self.options.clients if feature.holds else 0)

    def _clients(self):
        return int(stats(self.headgate, "clients")["clients_connected"])

    def _exclusive_lanes(self):
        with self.headgate.admin() as admin:
            return admin("LANES").decode().count("use=exclusive")

    def _reasons(self):
        with self.headgate.admin() as admin:
            found = re.findall(r"\blane=(\S+)", admin("CLIENTS").decode())
        return ", ".join(f"{found.count(reason)} {reason}" for reason in sorted(set(found)))

    def _look_at_connections(self):
        lines = connections(self.look)
        self.outcome.connections = len(lines)
        if self.headgate:
            self.outcome.clients = self._clients()
            return
        self.outcome.clients = len(lines)
        self.outcome.resp = ",".join(sorted({line.get("resp", "?") for line in lines}))


def differences(direct, other, way):
    """Between what the program was told, and left behind, directly and in another way."""
    found = []
    for name, lines in direct.replies.items():
        if other.replies.get(name) != lines:
            pairs = zip(lines, other.replies.get(name, []))
            told = next((f"{mine} directly, but {theirs}" for mine, theirs in pairs if mine != theirs), "more or less")
            found.append(f"{way}: {name}: {told[:300]}")
    return found
