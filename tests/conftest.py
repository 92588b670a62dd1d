"""Fixtures of the black-box tests. Run: /usr/bin/python3 -m pytest tests  (HEADGATE_BINARY names another build)."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

# Not beside the sources; scripts/test names another place for it.
sys.dont_write_bytecode |= sys.pycache_prefix is None

import pytest

from harness import world
from harness.fake_redis import FakeRedis
from harness.probe import Probe
from harness.servers import BINARY, Headgate, Redis, Server
from harness.target import Target
from harness.tls import TRANSPORT

TEST_TIMEOUT = 300
HERE = pathlib.Path(__file__).resolve().parent


def named_in(path):
    """The files that it has, one a line."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    files = [HERE.parent / line for line in lines if line]
    assert all(file.is_file() for file in files), f"{path} names a file that is not there"
    return files


PINNED = named_in(HERE / "pinned.txt")
# Tests for scripts/soak, which sets SOAKS: the starts of their names.
SOAKED = tuple(line.partition("#")[0].strip() for line in (HERE / "soak.txt").read_text().splitlines() if line.partition("#")[0].strip())
SOAKS = os.environ.get("HEADGATE_SOAK") == "1"
LONGEST = {path: rank for rank, path in enumerate(named_in(HERE / "longest.txt"))}


def pytest_configure(config):
    config.addinivalue_line("markers", "threads: run under the thread sanitizer, too")
    config.addinivalue_line("markers", "real: cannot live in a world (tests/world), whose clock is not the kernel's")
    config.addinivalue_line("markers", "world: lives in a world only")
    config.addinivalue_line("markers", "root: needs root, and is run by sudo where somebody else runs the tests")
    # What a thread of a test asserts counts, too.
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")


def pytest_generate_tests(metafunc):
    """A target is Redis itself, which proves the expectation right, and Headgate with pool = shared. The files of
    tests/pinned.txt run with pool = session, too. By TLS only that is run which differs by it."""
    is_pinned = pathlib.Path(metafunc.module.__file__) in PINNED and TRANSPORT != "tls"
    pools = ["shared", "session"] if is_pinned else ["shared"]
    given = str([mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")])
    if "shared_target" in metafunc.fixturenames and "shared_target" not in given:
        direct = [] if TRANSPORT == "tls" else ["direct"]
        metafunc.parametrize("shared_target", direct + pools, indirect=True, scope="module")
    if "pool" in metafunc.fixturenames and "pool" not in given:
        metafunc.parametrize("pool", pools)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of tests/soak.txt only what is asked for by its name, or by scripts/soak, which wants nothing else. With several processes (-n 8 --dist loadgroup) each test goes to the next that is free; but those that share a
    server go to one, so that it is started once. Those that take longest begin."""
    elsewhere = "real" if world.is_inside() else "world"
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(elsewhere)])
    items[:] = [item for item in items if not item.get_closest_marker(elsewhere)]
    others = [item for item in items if item.nodeid.startswith(SOAKED) != SOAKS]
    if others and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid.startswith(SOAKED) == SOAKS]
    items.sort(key=lambda item: LONGEST.get(item.path, len(LONGEST)))
    for item in items:
        group = group_of(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))


def group_of(item):
    """The module and its parameter, of a test with a fixture of its module; None for others."""
    definitions = item._fixtureinfo.name2fixturedefs
    shared = [name for name in definitions if definitions[name][-1].scope == "module"]
    if not shared:
        return None
    parameters = getattr(item, "callspec", None) and item.callspec.params or {}
    return "-".join([item.path.stem, *(str(parameters[name]) for name in shared if name in parameters)])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test of root's is run as root, by another pytest if need be. sudo turns on what setarch -R has turned off."""
    if os.geteuid() == 0 or not pyfuncitem.get_closest_marker("root"):
        return None
    kept = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("HEADGATE_") or "SAN_OPTIONS" in name]
    without_aslr = int(pathlib.Path("/proc/self/personality").read_text(), 16) & 0x0040000
    command = ["sudo", "-n", "env", *kept, *(["setarch", "-R"] if without_aslr else []), sys.executable]
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(command, cwd=pyfuncitem.config.rootpath, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the end of every server's log."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in list(Server.running):
            report.sections.append((f"log of {server.name} ({server.directory})", server.log_tail()))


@pytest.fixture(autouse=True)
def bounded():
    """No test hangs, whatever it waits for."""

    def expire(_number, _frame):
        pytest.fail(f"the test took more than {TEST_TIMEOUT} s")

    # Raised again and again, in case something swallows it.
    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, TEST_TIMEOUT, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(autouse=True)
def sound_logs(bounded):
    """After each test, no Headgate has complained about itself."""
    yield
    for server in list(Server.running):
        if isinstance(server, Headgate):
            server.check_log()


@pytest.fixture(scope="module")
def shared_target(request):
    target = Target(request.param)
    yield target
    target.finish()


@pytest.fixture
def target(shared_target):
    """Redis, reached directly or through Headgate."""
    yield shared_target
    shared_target.clean()


@pytest.fixture
def client(target):
    return target.connect()


@pytest.fixture
def open_directory():
    """A directory for sockets that all users may go into, which is not so of tmp_path."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as path:
        os.chmod(path, 0o755)
        yield path


@pytest.fixture
def open_binary(open_directory):
    """Headgate where all users may run it: a clone, and the way to it, may be closed to others, as a home is."""
    copy = shutil.copy(BINARY, open_directory)
    os.chmod(copy, 0o755)
    return copy


@pytest.fixture
def redis():
    server = Redis()
    yield server
    server.discard()


@pytest.fixture
def make_redis():
    """Starts further Redis servers that end with the test."""
    servers = []

    def make(*options, **keywords):
        servers.append(Redis(*options, **keywords))
        return servers[-1]

    yield make
    for server in servers:
        server.discard()


@pytest.fixture
def make_headgate():
    """Starts Headgates that end with the test and must end well: make_headgate(upstream, pool=…, option=…)."""
    servers = []

    def make(upstream, **options):
        servers.append(Headgate(upstream, **options))
        return servers[-1]

    yield make
    finish_all(servers)


@pytest.fixture
def make_probe():
    """The same with headgate-probe."""
    servers = []

    def make(upstream, **options):
        servers.append(Probe(upstream, **options))
        return servers[-1]

    yield make
    finish_all(servers)


def finish_all(servers):
    failure = None
    for server in servers:
        try:
            server.finish()
        except AssertionError as error:
            failure = failure or error
    if failure:
        raise failure


@pytest.fixture
def fake():
    """A Redis whose every reply the test writes."""
    server = FakeRedis()
    yield server
    server.close()
