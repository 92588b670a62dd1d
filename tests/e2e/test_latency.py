"""[latency]: what is on record agrees with what clients measured, adds up over sidecars, and outlives a Redis that does
not take it. Whatever is timed is compared with clocks of the same machine, never with how fast it should be."""

import math
import random
import time

import pytest

from harness.admin import stats, text
from harness.latency import ERROR, ON, SLACK, SPIN, ask, await_report, counter, interfaces, reported_with, timed
from harness.resp import OK, QUEUED, Error, bulk, encode, wait_for
from harness.rules import launch, reload

# A known mix, slow and quick: DEBUG SLEEP, a script that works for as long, and GET.
MIX = (
    [("DEBUG", "SLEEP", delay / 1000) for delay in (10, 15, 22, 33, 50, 75, 110, 160, 200)]
    + [("EVAL", SPIN, 0, us) for us in range(500, 8000, 250)]
    + [("GET", "k")] * 150
)


def redis_took(direct):
    """What Redis says that each request of the mix took, in seconds, sorted."""

    def is_of_the_mix(words):
        # Headgate's own scripts are there, too, and the commands within scripts. Long words are cut.
        is_spin = words[0] == b"EVAL" and words[1].startswith(SPIN[:100].encode())
        return is_spin or words[0] == b"DEBUG" or words == [b"GET", b"k"]

    return sorted(entry[2] / 1e6 for entry in direct("SLOWLOG", "GET", -1) if is_of_the_mix(entry[3]))


@pytest.mark.threads
def test_what_is_on_record_agrees_with_redis_and_the_clients(redis, make_headgate, pool):
    """What Headgate measures lies between what Redis measures and what clients do. So it is with the sum, and with each
    of the values when all are sorted, and so with each percentile, but for the histogram's error."""
    headgate = launch(make_headgate, redis, pool, ON + "[latency:mix]\ncommands = debug eval get\n", threads=2)
    clients = [headgate.connect() for _ in range(4)]
    mix = MIX.copy()
    random.Random(5).shuffle(mix)
    with redis.connect() as direct:
        assert direct("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 100_000) == OK
        took = sorted(timed(clients[i % 4], *request) for i, request in enumerate(mix))
        least = redis_took(direct)
    assert len(least) == len(took) == len(mix)
    line = await_report(headgate, "mix", len(mix))

    def assert_between(word, low, high, error=1.0):
        assert low * 1000 / error - 0.001 <= float(line[word]) <= (high + SLACK) * 1000 * error + 0.001, word

    assert_between("min", least[0], took[0])
    assert_between("max", least[-1], took[-1])
    assert_between("mean", sum(least) / len(mix), sum(took) / len(mix))
    for word, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        at = math.ceil(part * len(mix)) - 1
        assert_between(word, least[at], took[at], ERROR)
    assert line["errors"] == "0"
    of_process = ask(headgate, "LATENCY", "mix")[0]
    assert {word: of_process[word] for word in of_process} == {word: line[word] for word in of_process}


def test_what_is_on_hold_counts_with_its_wait(redis, make_headgate):
    """A rule holds the second request and refuses the third; all three are measured."""
    limit = "[limit:slow]\ncommands = incr\nper = all\nlimit = 1\nwindow = 4s\naction = delay\nmax_delay = 4100ms\n"
    headgate = launch(make_headgate, redis, "shared", ON + limit)
    client, held, refused = (headgate.connect() for _ in range(3))
    assert client("INCR", "n") == 1
    begin = time.monotonic()
    held.request("INCR", "n")
    wait_for(lambda: stats(headgate, "limit")["limit_delayed_total"] == "1", what="it to be on hold")
    known = time.monotonic()
    held.assert_silent(0.5)
    least = time.monotonic() - known
    assert isinstance(refused("INCR", "n"), Error)
    assert held.read() == 2
    most = time.monotonic() - begin
    line = await_report(headgate, "incr", 3)
    assert line["errors"] == "1"
    assert (least - SLACK) * 1000 <= float(line["max"]) <= (most + SLACK) * 1000


def test_every_kind_of_request_counts(redis, make_headgate, pool):
    rules = "[deny:all]\ncommands = flushall\n[latency:orders]\nkeys = order:*\n"
    headgate = launch(make_headgate, redis, pool, ON + rules)
    client, other = headgate.connect(), headgate.connect()
    assert client("MULTI") == OK
    assert client("GET", "k") == QUEUED
    client("EXEC")
    assert isinstance(client("FLUSHALL"), Error)
    assert isinstance(client("INCR", "a", "b"), Error)
    assert isinstance(client("NONSENSE"), Error)
    client("CONFIG", "GET", "maxmemory")
    client("SET", "order:1", "v" * 100_000)
    client.request("BLPOP", "order:queue", 0)
    other("RPUSH", "order:queue", 1)
    assert client.read() == [b"order:queue", b"1"]
    found = {name: (line["count"], line["errors"]) for name, line in interfaces(headgate, "LATENCY").items()}
    assert found == {
        "multi": ("1", "0"), "get": ("1", "0"), "exec": ("1", "0"), "flushall": ("1", "1"), "incr": ("1", "1"),
        "unknown": ("1", "1"), "config|get": ("1", "0"), "orders": ("2", "0"), "orders|blocking": ("1", "0"),
    }


def test_names_that_the_server_tells(fake, make_headgate):
    """Commands that only the server knows have names of their own, as it tells them."""

    def command(_lane, arguments):
        if arguments[1].upper() == b"LIST":
            return b"*2\r\n" + bulk("get") + bulk("Mod.Get")
        told = b"*6\r\n" + bulk("Mod.Get") + b":-2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n"
        return b"*1\r\n" + (told if arguments[2].lower() == b"mod.get" else b"*-1\r\n")

    fake.answers["COMMAND"] = command
    fake.answers["MOD.GET"] = fake.answers["HUNTER2"] = lambda _lane, _arguments: b"+OK\r\n"
    log = "slowlog_threshold = 1us\nslowlog_length = 1000\n"
    headgate = make_headgate(fake.url, log_level="debug", start=False)
    headgate.write_rules(ON + log)
    headgate.start()
    wait_for(lambda: "learned command Mod.Get" in headgate.log(), what="the command")
    client = headgate.connect()
    for request in (("MOD.GET", "shown"), ("mod.get", "shown"), ("HUNTER2", "hunter3")):
        assert client(*request) == OK
    wait_for(lambda: "unknown command" in shown(headgate), what="the last one to be written")
    assert "hunter" not in shown(headgate).lower()
    assert '"MOD.GET" "(5 bytes)"' in shown(headgate), "what of it is a key nobody knows here"
    counts = {name: line["count"] for name, line in interfaces(headgate, "LATENCY").items()}
    assert counts == {"mod.get": "2", "unknown": "1"}


@pytest.mark.threads
def test_there_may_be_many(redis, make_headgate):
    """More than LATENCY writes in one go, while others come and are measured; all of them are listed and reported."""
    count = 400
    headgate = launch(make_headgate, redis, "shared", ON + "by = name\nmax_interfaces = 10\n", threads=2)
    clients = [headgate.connect() for _ in range(4)]
    reload(headgate, ON + "by = name\nmax_interfaces = 10000\n", *clients)
    for number, client in enumerate(clients):
        requests = [(encode("CLIENT", "SETNAME", f"n{name}"), encode("GET", "k")) for name in range(number, count, 4)]
        client.send(b"".join(part for pair in requests for part in pair))
    asked = [interfaces(headgate, "LATENCY") for _ in range(3)]
    for number, client in enumerate(clients):
        assert client.read_many(2 * len(range(number, count, 4)))[1::2] == [None] * len(range(number, count, 4))
    names = interfaces(headgate, "LATENCY")
    assert all(before.keys() <= names.keys() for before in asked)
    ours = [line for name, line in names.items() if name.startswith("get@n")]
    assert len(ours) == count and all(line["count"] == "1" for line in ours)
    with redis.connect() as direct:
        keys = "*statistics_get@n*_for_sum_count"
        wait_for(lambda: len(direct("KEYS", keys)) >= count, 60, "all of them on record")
    # A slow machine is told that it takes too long.
    wait_for(lambda: reported_with(headgate, "get@n") in (count, None), 60, "all of them to be reported")
    assert counter(headgate, "lost_requests_total") == 0


def test_pipelines_beside_limits(redis, make_headgate, pool):
    """A limit that admits the beginning of a pipeline takes requests back that were to go together: each counts once."""
    rules = "[limit:few]\ncommands = set get\nlimit = 37\nwindow = 1h\n"
    headgate = launch(make_headgate, redis, pool, ON + rules)
    client = headgate.connect()
    commands = [("SET", f"k{i}", "x" * i) if i % 10 == 0 else ("GET", f"k{i // 10 * 10}") for i in range(100)]
    commands = [command for one in commands for command in (one, ("STRLEN", "k0"))] + commands
    replies = client.pipeline(commands)
    for name in ("set", "get", "strlen"):
        mine = [(command, reply) for command, reply in zip(commands, replies) if command[0].lower() == name]
        line = await_report(headgate, name, len(mine))
        assert int(line["errors"]) == sum(isinstance(reply, Error) for _, reply in mine)
        assert int(line["bytes_in"]) == sum(len(encode(*command)) for command, _ in mine)
    assert sum(isinstance(reply, Error) for reply in replies) == 200 - 37


def test_slow_and_large_requests_are_kept(redis, make_headgate):
    log = "slowlog_threshold = 50ms\nbiglog_request = 10kb\nbiglog_reply = 10kb\n"
    headgate = launch(make_headgate, redis, "shared", ON + log)
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", "me") == OK
    client("DEBUG", "SLEEP", "0.06")
    client("SET", "k", "v" * 20_000)
    client("GET", "k")
    slow = [line for line in ask(headgate, "SLOWLOG", "100") if line["command"] == "DEBUG"]
    assert len(slow) == 1
    assert int(slow[0]["redis_us"]) >= 60_000 and int(slow[0]["queued_us"]) >= 0
    assert slow[0]["name"] == "me" and slow[0]["user"] == "default" and slow[0]["address"].startswith("127.0.0.1:")
    wait_for(lambda: len(ask(headgate, "BIGLOG")) == 2, what="both to be written")
    got, put = ask(headgate, "BIGLOG")
    assert (got["command"], put["command"]) == ("GET", "SET")
    assert int(put["bytes_in"]) > 20_000 and int(got["bytes_out"]) > 20_000
    with headgate.admin() as admin:
        assert admin("SLOWLOG", "RESET") == OK
        assert admin("BIGLOG", "RESET") == OK
    assert ask(headgate, "BIGLOG") == []


# Words of a request lie between blanks, requests between bars.
SECRETS = """AUTH hunter2|AUTH default hunter2|AUTH a hunter2 hunter2|AUTH\0x default hunter2|auth\0 hunter2|AUTHX hunter2
HELLO 2 AUTH default hunter2|HELLO 2 AUTH\0x default hunter2|HELLO hunter2|hunter2|hunter2 hunter2
ACL SETUSER somebody >hunter2|ACL SETUSER\0x somebody >hunter2|ACL DELUSER hunter2
CONFIG SET masterauth hunter2|CONFIG Set\0x masterauth hunter2|CONFIG SET maxmemory 0 requirepass\0x hunter2
MIGRATE 127.0.0.1 1 k 0 10 AUTH hunter2|MIGRATE 127.0.0.1 1 k 0 10 auth\0 hunter2
MIGRATE 127.0.0.1 1 k 0 10 COPY AUTH2\0x hunter2 hunter2|MIGRATE 127.0.0.1 1 k 0 10 AUTH keys AUTH hunter2
MODULE LOADEX /nowhere CONFIG password hunter2|SENTINEL SET mymaster auth-pass hunter2
SENTINEL CONFIG SET sentinel-pass hunter2""".replace("\n", "|").split("|")


def test_secrets_are_kept_nowhere(redis, make_headgate):
    """In no log, no answer of the admin port and no key, be they slow, large, refused or lost."""
    rules = "[deny:all]\ncommands = * !@connection !get !acl !config !migrate !client\nexcept = name:free\n"
    rules += "[limit:few]\ncommands = *\nlimit = 1000\nwindow = 1h\nper = name\n"
    log = "by = name\nslowlog_threshold = 1us\nslowlog_length = 1000\nbiglog_request = 1\nbiglog_length = 1000\n"
    logs = "log_values = on\n[counters]\nenabled = on\n[events]\nenabled = on\n"
    headgate = launch(make_headgate, redis, "shared", ON + "hotkeys = on\n" + log + logs + rules, log_level="debug")
    for name in ("bound", "free"):
        for secret in SECRETS:
            # Some are refused for good: each has a connection of its own.
            with headgate.connect() as client:
                client("CLIENT", "SETNAME", name)
                client(*secret.split(" "))
    client = headgate.connect()
    client("GET", "the end")
    wait_for(lambda: "the end" in shown(headgate), what="the last one to be written")
    assert "AUTH" in shown(headgate)
    with redis.connect() as direct:
        wait_for(lambda: direct("KEYS", "*unknown*"), 30, "what is on record")
    answers = [["LATENCY"], ["REPORT", "*"], ["SLOWLOG", "1000"], ["BIGLOG", "1000"], ["HOTKEYS"], ["STATS"], ["LIMITS"]]
    answers += [[verb, *log] for verb in ("RECENT", "COMMON") for log in (("refusals", "info"), ("slow", "warning"))]
    with headgate.admin() as admin:
        for question in answers:
            answer = admin(*question)
            assert not isinstance(answer, Error), question
            assert "hunter" not in text(answer), question
    assert "hunter" not in headgate.log()
    with redis.connect() as direct:
        assert not direct("KEYS", "*hunter*")


def shown(headgate):
    with headgate.admin() as admin:
        return text(admin("SLOWLOG", "1000"))


def test_hot_keys(redis, make_headgate):
    """Keys that take turns are all as hot, however long a round of them is."""
    headgate = launch(make_headgate, redis, "shared", ON)
    client = headgate.connect()
    for _ in range(50):
        client.pipeline([("GET", f"key{i}") for i in range(64)] * 2)

    def hottest():
        with headgate.admin() as admin:
            return text(admin("HOTKEYS")).splitlines()

    assert len({line.split()[-1] for line in hottest()}) >= 10, hottest()
    for _ in range(10):
        client.pipeline([("GET", "hot") if i % 2 else ("GET", f"k{i}") for i in range(1001)])
    first = hottest()[0]
    assert first.endswith(' key="hot"'), first
    assert 2500 <= int(first.split()[0].partition("=")[2]) <= 7500, "5000, but for what is looked at"


def test_it_is_switched_on_and_off(redis, make_headgate):
    headgate = launch(make_headgate, redis, "shared", "")
    client = headgate.connect()
    client("GET", "k")
    with headgate.admin() as admin:
        assert isinstance(admin("LATENCY"), Error)
        assert isinstance(admin("REPORT", "get"), Error)
    reload(headgate, ON, client)
    client("GET", "k")
    await_report(headgate, "get", 1)
    reload(headgate, "", client)
    client("GET", "k")
    assert counter(headgate, "samples_total") == int(stats(headgate, "latency")["latency_samples_total"])
    with headgate.admin() as admin:
        assert isinstance(admin("REPORT", "get"), Error)
    reload(headgate, ON, client)
    client("GET", "k")
    await_report(headgate, "get", 2)


def test_secrets_under_another_name(make_redis, make_headgate):
    """AUTH and CONFIG that Redis has renamed: neither the names, which may be secrets, nor the arguments are shown."""
    redis = make_redis("--rename-command", "AUTH", "hunter0", "--rename-command", "CONFIG", "hunter1")
    log = "slowlog_threshold = 1us\nslowlog_length = 1000\nbiglog_request = 1\n"
    headgate = launch(make_headgate, redis, "shared", ON + log, log_level="debug")
    client = headgate.connect()
    client("HUNTER0", "hunter2")
    assert client("hunter1", "SET", "masterauth", "hunter2") == OK
    client("hunter3", "hunter2")
    client("GET", "the end")
    wait_for(lambda: "the end" in shown(headgate), what="the last one to be written")
    assert "(unknown command)" in shown(headgate)
    assert "hunter" not in shown(headgate).lower()
    assert "hunter" not in headgate.log().lower()
    with headgate.admin() as admin:
        assert "hunter" not in text(admin("BIGLOG", "1000")).lower() + text(admin("LATENCY")).lower()
