"""[latency] upstream: the record is on a Redis of its own, exactly, and whatever becomes of that one, clients are served."""

import signal
import time

import pytest

from harness.admin import stats, text
from harness.latency import ask, await_report, counter, interfaces
from harness.resp import Error, wait_for
from harness.rules import launch, reload
from harness.servers import run_headgate

ON = "[latency]\nenabled = on\nflush = 1s\n"
LOGS = "slowlog_threshold = 50ms\n[counters]\nenabled = on\n[events]\nenabled = on\n"
# So that scripts for a server that is away do not wait for it for long.
SHORT = {"upstream_wait": "200ms", "connect_timeout": "1s"}


def at(server, *options):
    url = server if isinstance(server, str) else server.url
    return ON + "\n".join([f"upstream = {url}", *options]) + "\n"


def launch_short(make_headgate, redis, rules, **options):
    """Redis itself is reached by then: clients do not wait for it for long either."""
    headgate = launch(make_headgate, redis, "shared", rules, **{**SHORT, **options})
    wait_for(lambda: stats(headgate)["upstream_up"] == "1", what="Redis to be reached")
    return headgate


def get(client, count):
    """The Redis of the clients answers, as it does without statistics."""
    for _ in range(count):
        assert client("GET", "k") is None


def failures(headgate):
    return counter(headgate, "flush_failures_total")


def await_failure(headgate):
    before = failures(headgate)
    wait_for(lambda: failures(headgate) > before, 60, "a flush that fails")


def keys(redis):
    with redis.connect() as direct:
        return sorted(direct("KEYS", "*"))


def await_listed(headgate):
    wait_for(lambda: "get" in interfaces(headgate, "REPORT", "*"), 30, "the interface to be listed")


def policy(headgate, name):
    return int(stats(headgate, "policies")[f"policy_{name}"])


@pytest.mark.threads
def test_all_of_it_is_there_and_nothing_elsewhere(redis, make_redis, make_headgate, pool):
    server = make_redis()
    headgate = launch(make_headgate, redis, pool, at(server) + LOGS, threads=2)
    clients = [headgate.connect() for _ in range(4)]
    for client in clients:
        get(client, 5)
        assert isinstance(client("INCR", "a", "b"), Error)
    clients[0]("DEBUG", "SLEEP", "0.06")
    await_report(headgate, "get", 20)
    measured = counter(headgate, "samples_total")

    def counted(name, precision):
        return sum(int(line["count"]) for line in ask(headgate, "COUNTER", name, precision))

    for precision in (1, 86400):
        wait_for(lambda: counted("requests", precision) == measured, 30, "all requests to be counted")
        wait_for(lambda: counted("errors", precision) == 4, 30, "all errors to be counted")
        wait_for(lambda: counted("slow", precision) >= 1, 30, "the slow one to be counted")
    wait_for(lambda: any(line["event"] == "debug" for line in ask(headgate, "COMMON", "slow", "warning")), 30, "it")
    wait_for(lambda: {"get", "debug"} <= interfaces(headgate, "REPORT", "*").keys(), 30, "both to be listed")
    with headgate.admin() as admin:
        assert " debug" in text(admin("RECENT", "slow", "warning"))
        lanes = text(admin("LANES"))
    assert keys(redis) == []
    names = keys(server)
    written = ("statistics_interfaces", "known:", "recent:slow:warning", "common:slow:warning")
    assert {f"headgate:{name}".encode() for name in written} <= set(names)
    # Its lanes are not the clients'; only one worker has needed one.
    assert policy(headgate, "lanes") == 1
    assert policy(headgate, "calls_total") > 0
    assert int(stats(headgate, "upstream")["lanes_shared"]) == lanes.count("use=shared")


def test_it_is_down_at_the_start(redis, make_redis, make_headgate):
    server = make_redis()
    server.kill()
    headgate = launch_short(make_headgate, redis, at(server, "database = 3") + LOGS)
    client = headgate.connect()
    get(client, 20)
    await_failure(headgate)
    get(client, 5)
    with headgate.admin() as admin:
        for question in ("REPORT get FROM -2h", "REPORT *", "COUNTER slow 60", "RECENT slow warning"):
            assert isinstance(admin(*question.split()), Error), "there is nobody to ask"
    figures = stats(headgate)
    assert figures["lanes_failed_total"] == figures["requests_unreachable_total"] == figures["control_errors_total"] == "0"
    assert int(figures["policy_lanes_failed_total"]) > 0 and int(figures["policy_call_errors_total"]) > 0
    server.start()
    await_report(headgate, "get", 25)
    assert counter(headgate, "lost_requests_total") == 0


def test_it_wants_a_password(redis, make_redis, make_headgate):
    server = make_redis("--requirepass", "correct", "--user", "writer", "on", ">pass", "~*", "+@all")
    headgate = launch(make_headgate, redis, "shared", at(server), **{**SHORT, "upstream_wait": "5s"})
    client = headgate.connect()
    get(client, 3)
    await_failure(headgate)
    headgate.await_log("NOAUTH")
    reload(headgate, at(server, "upstream_password = wrong"), client)
    get(client, 4)
    await_failure(headgate)
    wait_for(lambda: "WRONGPASS" in headgate.log(), what="the log to say what is wrong")
    reload(headgate, at(server, "upstream_password = correct"), client)
    get(client, 5)
    await_report(headgate, "get", 12)
    reload(headgate, at(server, "upstream_user = writer", "upstream_password = pass"), client)
    get(client, 1)
    await_report(headgate, "get", 13)
    reload(headgate, at(server, "upstream_password = correct"), client)
    with headgate.admin() as admin:
        shown = text(admin("CONFIG"))
    assert "upstream_password = ********" in shown and "correct" not in shown + headgate.log()
    assert "correct" not in run_headgate("-T", "-c", headgate.config_path).stdout


def test_reloads_change_it(redis, make_redis, make_headgate):
    first, second = make_redis(), make_redis()
    headgate = launch(make_headgate, redis, "shared", ON)
    client = headgate.connect()
    get(client, 5)
    await_report(headgate, "get", 5)
    await_listed(headgate)
    assert policy(headgate, "lanes") == policy(headgate, "calls_total") == 0
    reload(headgate, at(f"unix:{first.socket_path}"), client)
    get(client, 7)
    await_report(headgate, "get", 7)
    await_listed(headgate)
    reload(headgate, at(f"localhost:{second.port}"), client)
    get(client, 3)
    await_report(headgate, "get", 3)
    reload(headgate, at(first, "retention = 1d"), client)
    get(client, 1)
    await_report(headgate, "get", 8)
    reload(headgate, ON, client)
    get(client, 2)
    await_report(headgate, "get", 7)
    wait_for(lambda: policy(headgate, "lanes") == 0, 30, "no connection to be left")


def test_what_waits_goes_where_a_reload_says(redis, make_redis, make_headgate):
    server = make_redis()
    headgate = launch_short(make_headgate, redis, at(server))
    client = headgate.connect()
    get(client, 3)
    await_report(headgate, "get", 3)
    await_listed(headgate)
    # From now on there are calls for flushes of the one interface only.
    calls = policy(headgate, "calls_total")
    server.signal(signal.SIGSTOP)
    get(client, 4)
    wait_for(lambda: policy(headgate, "calls_total") > calls, 30, "a flush to be under way")
    reload(headgate, ON, client)
    get(client, 5)
    await_report(headgate, "get", 9)


@pytest.mark.threads
def test_a_drain_does_not_wait_for_what_never_was_there(redis, make_headgate):
    """It lasted for drain_timeout, without a client."""
    headgate = launch(make_headgate, redis, "shared", at("127.0.0.1:1"), threads=2, drain_timeout="5m")
    with headgate.connect() as client:
        get(client, 4)
    assert headgate.terminate(60) == 0
    assert "the policies leave something undone" in headgate.log()


def test_a_drain_waits_for_what_was_there(redis, make_redis, make_headgate):
    server = make_redis()
    headgate = launch(make_headgate, redis, "shared", at(server), drain_timeout="5m")
    with headgate.connect() as client:
        get(client, 3)
        await_report(headgate, "get", 3)
        server.signal(signal.SIGSTOP)
        get(client, 4)
    headgate.signal(signal.SIGTERM)
    time.sleep(4)
    assert headgate.is_alive(), headgate.log()
    server.signal(signal.SIGCONT)
    assert headgate.wait(60) == 0
    assert "leave something undone" not in headgate.log()
