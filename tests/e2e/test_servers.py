"""[server:NAME]: several Redis servers behind one Headgate, each as if it were alone."""


import pytest

from harness import tls
from harness.certificates import certificates
from harness.global_limits import Stopped
from harness.latency import words_of
from harness.leases import LEASE, assert_kept, await_left, remaining
from harness.leases import rule as lease
from harness.limits import refuses
from harness.limits import rule as limit
from harness.program import Program
from harness.resp import OK, PONG, Closed, Error, encode, wait_for
from harness.several import Several
from harness.threads import at_once

NAMES = ("cache", "sessions", "queue")


@pytest.fixture
def make_several(make_headgate, make_redis):
    """Headgate before as many Redis as there are names: make_several(names, rules, option=…)."""

    def make(names=NAMES, rules="", default=False, **options):
        servers = {name: make_redis() for name in names}
        return Several(make_headgate, servers, rules, default=make_redis() if default else None, **options)

    return make


def lines_of(several, *question):
    return [words_of(line) for line in several.ask(*question).splitlines()]


def keys_by_server(several, *question):
    """What LEASES tells, as the keys of each server."""
    found = {}
    for line in lines_of(several, *question):
        found.setdefault(line["server"], set()).add(line["key"])
    return found


# ---- each is reached, and no other ----


@pytest.mark.threads
def test_a_cache_a_session_store_and_a_queue(make_several):
    """Also with its connections' state, and by many at once."""
    several = make_several(threads=4, own={"queue": {"pool": "session"}})

    def work(number):
        name = NAMES[number % 3]
        with several.connect(name) as client:
            for turn in range(50):
                value = b"%s-%d-%d" % (name.encode(), number, turn)
                assert client("SET", f"k{number}", value) == OK
                assert client("GET", f"k{number}") == value
            assert client("MULTI") == OK
            assert client("INCR", "sum") == b"QUEUED"
            assert isinstance(client("EXEC")[0], int)

    at_once(work, 12)
    for name in NAMES:
        with several.redis[name].connect() as look:
            assert look("GET", "sum") == b"4"
            assert look("DBSIZE") == 5
    with several.connect("queue") as waiting, several.connect("queue") as giving, several.connect("cache") as other:
        waiting.send(encode("BLPOP", "jobs", 0))
        wait_for(lambda: "blocked_clients:1" in several.redis["queue"].connect()("INFO", "clients").decode(), what="BLPOP")
        assert other("LPUSH", "jobs", "not this") == 1
        assert giving("LPUSH", "jobs", "this") == 1
        assert waiting.read() == [b"jobs", b"this"]


def test_what_each_authenticates_by_is_its_own(make_headgate, make_redis):
    """The password of one is never sent to another, also not in place of none."""
    secret, opened = make_redis("--requirepass", "only-mine"), make_redis()
    own = {"secret": {"upstream_password": "only-mine"}}
    several = Several(make_headgate, {"secret": secret, "open": opened}, own=own)
    with several.connect("secret") as client, several.connect("open") as other:
        assert client("SET", "k", "v") == OK
        assert other("SET", "k", "v") == OK
    with opened.connect() as look:
        assert b"cmdstat_auth:" not in look("INFO", "commandstats")


@pytest.fixture
def three_ways(make_several):
    """The cache shows the certificate of [headgate], the sessions one of their own, and want one in return; the queue
    speaks no TLS."""
    made = certificates()
    own = {
        "sessions": tls.towards_clients(made.other_server, tls_ca=made.ca, client_certificates="required"),
        "queue": {},
    }
    several = make_several(own={"cache": {}, **own}, tls=False, start=False, **tls.towards_clients(made.server))
    for name in ("cache", "sessions"):
        several.own[name]["listen"] = f"rediss://127.0.0.1:{several.ports[name]}"
    several.headgate.port = several.ports["queue"]
    several.write("")
    several.headgate.start()
    several.headgate.await_log("serving clients")
    return several


def test_certificates_of_a_server_are_its_own(three_ways):
    """Which one was shown is told by who believes whom."""
    made = certificates()
    usual, other = tls.client_context(), tls.client_context(made.client, ca=made.other_ca)
    with tls.connect(three_ways.address("cache"), usual) as client:
        assert client("PING") == PONG
    with tls.connect(three_ways.address("sessions"), other) as client:
        assert client("PING") == PONG
    assert three_ways.connect("queue")("PING") == PONG
    for name, context in (("cache", other), ("sessions", usual), ("sessions", tls.client_context(ca=made.other_ca))):
        with pytest.raises((OSError, Closed)), tls.connect(three_ways.address(name), context) as client:
            client("PING")
    wait_for(lambda: three_ways.stat("tls_failed_certificate_total", "sessions") == 2, what="both to be counted")
    days = [three_ways.stat("tls_certificate_days", name) for name in NAMES]
    assert days[0] > 80 and days[1] > 80 and days[2] > 80, "the queue has that of [headgate], though nobody asks for it"


# ---- none harms another ----


@pytest.mark.threads
def test_one_whose_redis_hangs_harms_no_other(make_several):
    bounds = {"upstream_wait": "100ms", "upstream_reply_timeout": "1s", "connect_timeout": "300ms"}
    several = make_several(own={"queue": bounds})
    wait_for(lambda: several.stat("upstream_up") == 1, what="all to be reached")
    stuck, other = several.connect("queue"), several.connect("cache")
    assert stuck("PING") == PONG and other("PING") == PONG
    with Stopped(several.redis["queue"]):
        stuck.send(encode("GET", "k"))
        many = [several.connect("queue") for _ in range(20)]
        for client in many:
            client.send(encode("SET", "k", "v"))
        for number in range(500):
            assert other("INCR", "n") == number + 1
        assert several.stat("upstream_up", "cache") == 1
        with pytest.raises((Closed, ConnectionError)):
            stuck.read()
        wait_for(lambda: several.stat("upstream_up", "queue") == 0, what="the one that hangs to be seen")
        assert several.stat("upstream_up") == 0, "of all only if of each"
        several.headgate.await_log("[queue] ")
        assert other("INCR", "n") == 501
    wait_for(lambda: several.connect("queue")("PING") == PONG, what="the one that hung to be back")
    assert several.stat("requests_lost_total", "cache") == 0
    assert several.stat("requests_lost_total", "queue") == several.stat("requests_lost_total") >= 1


# ---- rules ----


@pytest.mark.threads
def test_a_rule_for_one_server(make_several):
    rules = limit(limit=3, per="ip", servers="cache")
    rules += "[deny:flush]\ncommands = flushall\nservers = queue, sessions\n"
    several = make_several(rules=rules, threads=2)
    clients = {name: several.connect(name) for name in NAMES}
    for name, client in clients.items():
        replies = [client("INCR", "n") for _ in range(5)]
        assert [refuses(reply) for reply in replies] == [False] * 3 + [name == "cache"] * 2, (name, replies)
        assert isinstance(client("FLUSHALL"), Error) == (name != "cache")
    assert {words["server"] for words in lines_of(several, "LIMITS")} == {"cache"}


@pytest.mark.threads
def test_a_lock_of_one_name_is_a_lock_on_each(make_several):
    """One process takes it on all; each is renewed, and where it is released the others stay."""
    several = make_several(rules=lease(), threads=2)
    program = {name: Program(several.address(name)) for name in NAMES}
    try:
        for name in NAMES:
            assert program[name].send("a", "SET", "lock:a", f"t-{name}", "NX", "PX", int(LEASE * 1000)) == "+OK\r\n"
        wait_for(
            lambda: keys_by_server(several, "LEASES") == {name: {"lock:a"} for name in NAMES}, what="all to be on file"
        )
        for name in NAMES:
            assert_kept(several.redis[name], ["lock:a"])
        assert program["queue"].send("a", "DEL", "lock:a") == ":1\r\n"
        wait_for(
            lambda: keys_by_server(several, "LEASES") == {name: {"lock:a"} for name in ("cache", "sessions")},
            what="one to be released",
        )
        assert isinstance(several.reply("LEASE", "DROP", "lock:a"), Error)
        assert several.ask("SERVER", "cache", "LEASE", "DROP", "lock:a") == "OK"
        await_left(several.redis["cache"], "lock:a")
        assert remaining(several.redis["sessions"], "lock:a")["lock:a"] > 0
    finally:
        for one in program.values():
            one.finish()


# ---- statistics ----


def test_figures_of_several_in_one_redis_do_not_mix(make_several, make_redis):
    """The same minute and the same command on both: each has keys of its own, and a report of its own."""
    common = make_redis()
    rules = f"[latency]\nenabled = on\nflush = 1s\nupstream = {common.url}\n[counters]\nenabled = on\n"
    several = make_several(("cache", "queue"), rules, default=True)
    counts = {"default": 3, "cache": 5, "queue": 7}
    for name, count in counts.items():
        client = several.connect(name)
        for _ in range(count):
            client("GET", "k")

    def reported(name):
        reply = several.reply("SERVER", name, "REPORT", "get", "FROM", "-2h")
        return None if isinstance(reply, Error) else words_of(reply.decode().splitlines()[0]).get("count")

    for name, count in counts.items():
        wait_for(lambda: reported(name) == str(count), 30, f"{count} requests of {name} on record")
    with common.connect() as look:
        keys = {key.decode() for key in look("KEYS", "*")}
    for prefix in ("headgate:statistics_get_", "headgate:cache:statistics_get_", "headgate:queue:statistics_get_"):
        assert any(key.startswith(prefix) for key in keys), keys
    wait_for(lambda: _has(common, "headgate:cache:count:*"), 30, "counters of the cache")
    assert {line["server"] for line in lines_of(several, "REPORT", "get")} == set(counts)


def _has(redis, pattern):
    with redis.connect() as look:
        return bool(look("KEYS", pattern))


# ---- the admin port ----


def test_what_cannot_be_asked(make_several):
    several = make_several(("cache", "queue"))
    for question, said in [
        (("SERVER", "nobody", "STATS"), b"no server of that name"),
        (("SERVER", "", "STATS"), b"no server of that name"),
        (("SERVER", "cache", "RELOAD"), b"about the process"),
        (("SERVER", "cache", "SHUTDOWN"), b"about the process"),
        (("SERVER", "cache", "SERVER", "cache", "STATS"), b"about the process"),
        (("SERVER", "cache", "NONSENSE"), b"unknown verb"),
        (("SERVER", "cache"), b"usage: SERVER name verb"),
        (("STATS", *"abcdefghijklmnop"), b"usage: STATS"),
        (("SERVER", "cache", "STATS", *"abcdefghijklmnop"), b"too many arguments"),
        (("SLOWLOG", "RESET"), b"several servers"),
        (("LEASE", "DROP", "SERVER"), b"several servers"),
    ]:
        reply = several.reply(*question)
        assert isinstance(reply, Error) and said in reply, reply
        assert several.ask("PING") == "PONG", question


# ---- reload, drain, and one process after another ----


def test_a_reload_concerns_all_or_none(make_several):
    several = make_several(("cache", "queue"))
    cache, queue = several.connect("cache"), several.connect("queue")
    several.own["cache"] = {"client_idle_timeout": "1h", "max_clients": 5}
    several.own["queue"] = {"upstream_wait": "nonsense"}
    several.write("[deny:a]\ncommands = echo\n")
    refused = several.reply("RELOAD")
    assert isinstance(refused, Error) and b"[server:queue] upstream_wait" in refused
    assert cache("ECHO", "a") == b"a" and "max_clients = 5\n" not in several.ask("CONFIG")
    several.own["queue"] = {}
    several.write("[deny:a]\ncommands = echo\nservers = queue\n")
    wait_for(lambda: several.reply("RELOAD") == OK, what="the reload to be taken")
    several.headgate.await_log("[server:cache] is another now")
    wait_for(lambda: isinstance(queue("ECHO", "a"), Error), what="the new rule")
    assert cache("ECHO", "a") == b"a"
    assert "max_clients = 5\n" in several.ask("CONFIG").partition("[server:cache]")[2]
