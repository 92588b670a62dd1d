"""One library's program, run once: directly or through Headgate, with a Redis of its own."""

import collections
import contextlib
import pathlib
import re
import tempfile
import threading
import time
from dataclasses import dataclass, field

import clients_tls
from clients_program import Broken, Program
from harness import tls
from harness.admin import stats
from harness.certificates import certificates
from harness.servers import Headgate, Redis

WAYS = ("direct", "session", "shared")
# Of what came behind a feature with which the program ended.
NOT_TRIED = "not tried"
# How long lanes are waited for that are too many, and how long the last ones.
SETTLE_SECONDS = 10.0
REST_SECONDS = 1.0
# How long clients may take to hear that their key is set, before Redis is killed.
KEY_SECONDS = 1.0
# Idle lanes that a worker keeps ready for whoever comes.
SPARES = 8
# What programs say of requests that were lost.
LOST = re.compile(r"\blost=(\d+)")


@dataclass
class Outcome:
    version: str = ""
    resp: str = ""
    replies: dict = field(default_factory=dict)  # lines of each feature
    digests: dict = field(default_factory=dict)  # of all data behind each feature
    seconds: dict = field(default_factory=dict)  # that each feature took
    lost: int = 0  # requests that failed as Redis was killed
    lanes: int = 0  # exclusive ones in use, the most that there were behind a feature that keeps none
    clients: int = 0  # connections of the program, and what they were to Redis, when it had done its ordinary work
    connections: int = 0
    faults: dict = field(default_factory=dict)  # by feature: what went wrong

    def lacks(self, feature):
        """What the library says of a feature that it has not."""
        lines = self.replies.get(feature.name) or ["none"]
        return lines[0] if lines[0].startswith("unsupported") else None

    def errors(self, feature):
        return [line for line in self.replies.get(feature.name, []) if line.startswith("error")]


def connections(look):
    """What Redis tells of its connections, but of the one that asks."""
    own = str(look("CLIENT", "ID"))
    lines = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in look("CLIENT", "LIST").decode().splitlines()]
    return [line for line in lines if line["id"] != own]


def shape(look):
    """Of data whose names and values differ each time: how many keys there are of each kind."""
    kinds = collections.Counter()
    for key in look("KEYS", "*"):
        kinds[re.sub(rb"[0-9a-fA-F-]{4,}|\d+", b"#", key) + b" " + look("TYPE", key)] += 1
    return sorted(kinds.items())


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
        self.redis = self.headgate = self.look = self.folder = None
        self.patience = SETTLE_SECONDS
        self.outcome = Outcome()
        self.feature = options.features[0]  # the one that is tried

    def run(self):
        try:
            with self.stack:
                self._run()
        except (Broken, AssertionError, OSError) as fault:
            self._blame(" ".join(str(fault).split())[:300])
        return self.outcome

    def _blame(self, fault):
        self.outcome.faults.setdefault(self.feature.name, []).append(f"{self.way}: {fault}")

    def _run(self):
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-newest-")))
        address = self._start_servers()
        environment = None
        if self.options.tls:
            address = self.headgate.address if self.headgate else self.redis.tls_address
            environment = clients_tls.environment(self.library.language, self.folder, self._with_certificates())
        program = Program(self.command, address, self.options.clients, self.folder / "program", environment)
        with program:
            self.outcome.version = program.await_ready()
            for feature in self.options.features:
                self.feature = feature
                self._try(program)
            program.end()
        if self.way == "shared" and self.redis:
            self._look_at_idle_lanes()

    def _start_servers(self):
        """The address for programs."""
        redis = self._start_redis()
        return redis.address if self.way == "direct" else self._start_headgate(redis).address

    def _start_redis(self):
        self.redis = Redis(*self._redis_options(), server=self.server, tls=bool(self.options.tls))
        self.stack.callback(self.redis.discard)
        self.look = self.redis.connect()
        self.look("ACL", "SETUSER", "tested", "on", ">secret", "~*", "&*", "+@all")
        return self.redis

    def _start_headgate(self, upstream, **more):
        more.update(self.library.settings)
        self.headgate = Headgate(upstream, pool=self.way, threads=self.options.threads, tls=bool(self.options.tls),
                                 **self._headgate_options(), **more)  # fmt: skip
        self.stack.callback(self.headgate.finish)
        return self.headgate

    def _with_certificates(self):
        return self.options.tls == "certificates"

    def _redis_options(self):
        return ["--tls-auth-clients", "yes"] if self._with_certificates() else []

    def _headgate_options(self):
        if not self._with_certificates():
            return {}
        shown = tls.towards_redis(certificates().client)
        return {"client_certificates": "required", "tls_ca": certificates().ca, **shown}

    def _try(self, program):
        feature = self.feature
        start = time.monotonic()
        if feature.kills:
            lines = self._run_and_kill(program)
        else:
            lines = program.run(feature.name, feature.together)
        self.outcome.seconds[feature.name] = time.monotonic() - start
        self.outcome.replies[feature.name] = self._without_losses(lines)
        self.outcome.digests[feature.name] = self._digest(feature)
        if self.outcome.lacks(feature):
            return
        # So that a feature in which the data differ says nothing of the next one. Workers of queues have data of their own.
        if not self.library.holds:
            self._empty()
        if self.way == "shared":
            self._look_at_lanes(feature)
        if feature.costs or not feature.together and not feature.own:
            self._look_at_connections()

    def _digest(self, feature):
        return shape(self.look) if feature.random else self.look("DEBUG", "DIGEST")

    def _empty(self):
        self.look("FLUSHALL")

    def _run_and_kill(self, program):
        """Kills Redis when each client has set a key, and starts it again."""
        over, killed = threading.Event(), threading.Event()

        def kill():
            keys = [f"newest:{self.feature.name}:{number}" for number in range(self.options.clients)]
            while self.look("EXISTS", *keys) < len(keys):
                if over.wait(0.02):
                    return
            time.sleep(KEY_SECONDS)
            self._kill_redis()
            killed.set()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            lines = program.run(self.feature.name, self.feature.together)
        finally:
            over.set()
            killer.join()
        if killed.is_set():
            self._look_anew()
        elif not lines[0].startswith("unsupported"):
            self._blame("it has ended before Redis was killed")
        return lines

    def _kill_redis(self):
        self.redis.restart()

    def _look_anew(self):
        self.look = self.redis.connect()

    def _without_losses(self, lines):
        """How many there are differs from one time to the next."""
        for line in lines:
            if lost := LOST.search(line):
                self.outcome.lost += int(lost.group(1))
        return [LOST.sub("lost", line) for line in lines]

    def _look_at_lanes(self, feature):
        """Lanes come back a moment after the last reply."""
        allowed = self._allowed(feature)
        start = time.monotonic()
        while lanes := self._exclusive_lanes():
            enough = feature.holds or self.library.own_lanes or time.monotonic() > start + REST_SECONDS
            if (lanes <= allowed and enough) or time.monotonic() > start + self.patience:
                break
            time.sleep(0.02)
        if lanes > allowed:
            self._blame(f"{lanes} lanes in use after it ({self._reasons()})")
            self.patience = REST_SECONDS  # some may be kept for life
        if not feature.holds:
            self.outcome.lanes = max(self.outcome.lanes, lanes)

    def _look_at_idle_lanes(self):
        """When all clients have gone, no more are kept than these had at once, and those that are ready for each profile."""
        idle = int(stats(self.headgate, "upstream")["lanes_pooled"])
        if idle > self.options.clients + SPARES * self.options.threads:
            self._blame(f"{idle} idle lanes behind {self.options.clients} clients")

    def _allowed(self, feature):
        if self.library.own_lanes:
            return self._clients()
        return max(1, self.options.clients // 20) + self.library.holds + (self.options.clients if feature.holds else 0)

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
        """But for those of Headgate that are ready for whoever comes next: how many depends on what was done at once."""
        lines = connections(self.look)
        self.outcome.connections = len(lines)
        if self.headgate:
            self.outcome.connections -= int(stats(self.headgate, "upstream")["lanes_pooled"])
            self.outcome.clients = self._clients()
            return
        self.outcome.clients = len(lines)
        self.outcome.resp = ",".join(sorted({line.get("resp", "?") for line in lines}))


def faults_of(outcomes, feature):
    """What is wrong with a feature; outcomes: one for each of WAYS."""
    direct = outcomes["direct"]
    wrong = [fault for outcome in outcomes.values() for fault in outcome.faults.get(feature.name, [])]
    for way, outcome in outcomes.items():
        wrong += [f"{way}: {line[:300]}" for line in outcome.errors(feature)]
        if feature.name not in outcome.replies:
            wrong.append(f"{way}: {NOT_TRIED}")
        elif outcome.replies[feature.name] != direct.replies.get(feature.name):
            wrong.append(f"{way}: {difference(direct, outcome, feature)}")
        elif not outcome.lacks(feature) and outcome.digests[feature.name] != direct.digests.get(feature.name):
            wrong.append(f"{way}: the data differ")
    return wrong


def difference(direct, other, feature):
    lines = other.replies[feature.name]
    for mine, theirs in zip(direct.replies.get(feature.name, []), lines):
        if mine != theirs:
            return f"{mine[:300]} directly, but {theirs[:300]}"
    return f"{len(lines)} replies"
