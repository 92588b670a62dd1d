"""Fixtures of the end-to-end tests of rules and of policies: Headgates that have them from the start."""

import functools

import pytest

from harness.cluster import Cluster
from harness.global_limits import ALL_KINDS, EXACT, LEASED
from harness.http import start_with_http
from harness.leases import Monitor
from harness.program import Program
from harness.rules import launch
from harness.sentinel import Group
from harness.servers import BINARY, Headgate
from harness.upgrade import Line, kill_line


@pytest.fixture(scope="module")
def sentinel_group():
    """A master, its replicas and three sentinels, for all tests of a file."""
    group = Group()
    yield group
    group.discard()


@pytest.fixture
def group(sentinel_group):
    """The same, once all agree on who is what after the test before."""
    sentinel_group.await_agreement()
    return sentinel_group


@pytest.fixture(scope="module")
def cluster(request):
    """Three masters, for all tests of a file, which may say how many replicas each has."""
    with Cluster(replicas=getattr(request.module, "REPLICAS", 0)) as made:
        yield made


@pytest.fixture
def make(redis, pool, make_headgate):
    """Starts a Headgate with rules: make(rules, option=…)."""
    return functools.partial(launch, make_headgate, redis, pool)


@pytest.fixture
def make_shared(redis, make_headgate):
    """The same for what the pool has nothing to do with."""
    return functools.partial(launch, make_headgate, redis, "shared")


@pytest.fixture
def make_sidecar(redis, make_headgate):
    """As many Headgates before one Redis as are asked for."""

    def make(rules, upstream=None, pool="shared", **options):
        return launch(make_headgate, upstream or redis, pool, rules, **options)

    return make


@pytest.fixture
def probe(redis, pool, make_probe):
    """headgate-probe on top of a real Redis; at the end every request is accounted for, and it ends well."""
    probe = make_probe(redis, pool=pool)
    yield probe
    probe.await_balance()


@pytest.fixture(params=(1, 4))
def threads(request):
    return request.param


@pytest.fixture
def monitor(redis):
    started = Monitor(redis)
    yield started
    started.close()


# ---- programs ----


@pytest.fixture
def start_program():
    """Starts programs that end with the test."""
    programs = []

    def start(address, **options):
        programs.append(Program(address, **options))
        return programs[-1]

    yield start
    for program in programs:
        program.finish()


@pytest.fixture(params=["tcp", "unix"])
def served(request, make_shared, open_directory):
    """A Headgate and where programs connect to it: served(rules, option=…)."""

    def serve(rules, **options):
        if request.param == "tcp":
            headgate = make_shared(rules, **options)
            return headgate, headgate.address
        path = f"{open_directory}/h.sock"
        return make_shared(rules, listen=f"unix:{path}", unix_socket_mode="0777", **options), path

    return serve


@pytest.fixture
def make_without_rights(redis):
    """Starts a Headgate that may not look at processes of other users: make_without_rights(rules, listen)."""
    servers = []

    def make(rules, listen=None):
        headgate = Headgate(redis, start=False, unix_socket_mode="0777")
        servers.append(headgate)
        headgate.write_config(listen=", ".join(filter(None, [headgate.options["listen"], listen])))
        headgate.write_rules(rules)
        headgate.launch(["setpriv", "--bounding-set=-all", "--inh-caps=-all", BINARY, "-c", headgate.config_path])
        headgate.await_port(headgate.address)
        return headgate

    yield make
    for server in servers:
        server.finish()


# ---- upgrades ----


@pytest.fixture
def make_line(make_headgate, redis):
    """Starts a Headgate that can be replaced by new processes: make_line(rules, option=…)."""
    lines = []

    def make(rules="", listen=None, admin=None, environment=(), upstream=redis, **options):
        """listen, admin: further addresses. upstream: instead of the Redis of all."""
        headgate = make_headgate(upstream, start=False, reload_on_change="off", **options)
        for name, address in (("listen", listen), ("admin", admin)):
            headgate.options[name] = ", ".join(filter(None, [headgate.options[name], address]))
        headgate.write_rules(rules)
        headgate.environment.update(environment)
        lines.append(Line(headgate))
        return lines[-1]

    yield make
    for line in lines:
        try:
            line.finish()
        finally:
            kill_line(line)


# ---- HTTP ----


@pytest.fixture
def started():
    """start_with_http(), of which each is ended."""
    headgates = []

    def start(redis, rules="", **options):
        headgates.append(start_with_http(redis, rules, **options))
        return headgates[-1]

    yield start
    for headgate in headgates:
        headgate.finish()


# ---- the kinds of state of limits with scope = global ----


@pytest.fixture(params=EXACT)
def kind(request):
    return request.param


@pytest.fixture(params=LEASED)
def leased(request):
    return request.param


@pytest.fixture(params=ALL_KINDS)
def any_kind(request):
    return request.param
