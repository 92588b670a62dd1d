"""[server:NAME]: several Redis servers behind one Headgate, each as if it were alone."""

import re
import resource
import signal

import pytest

from harness import tls
from harness.certificates import certificates
from harness.global_limits import Stopped
from harness.latency import words_of
from harness.leases import COMPARE_AND_DELETE, LEASE, assert_kept, await_left, remaining, take
from harness.leases import rule as lease
from harness.limits import refuses
from harness.limits import rule as limit
from harness.names import Names
from harness.program import Program
from harness.resp import OK, PONG, Client, Closed, Error, encode, wait_for
from harness.servers import BINARY, Headgate, free_port, run_headgate
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
def test_a_cache_a_session_store_and_a_queue(make_several, threads):
    """Also with its connections' state, and by many at once."""
    several = make_several(threads=threads, own={"queue": {"pool": "session"}})

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


def test_the_section_headgate_is_a_server_if_it_says_so(make_several):
    several = make_several(("cache",), default=True)
    for name in ("default", "cache"):
        with several.connect(name) as client:
            assert client("SET", "who", name) == OK
    for name in ("default", "cache"):
        with several.redis[name].connect() as look:
            assert look("GET", "who") == name.encode()
    assert [line["server"] for line in lines_of(several, "SERVERS")] == ["default", "cache"]


def test_without_an_address_of_its_own_it_is_none(make_several):
    several = make_several(("cache",), lanes=3, own={"cache": {"pool": "session"}})
    (line,) = lines_of(several, "SERVERS")
    assert line["server"] == "cache" and line["pool"] == "session"
    assert line["listen"].endswith(f":{several.ports['cache']}")
    shown = several.ask("CONFIG")
    assert "[headgate]\nproxy_protocol" in shown, "no listen, and no upstream: what is printed can be read again"
    assert re.search(r"^lanes = 3\n", shown.partition("[server:cache]")[2], flags=re.MULTILINE)


def test_ping_asks_a_server_that_there_is(make_several):
    """Not at the address that [headgate] would have, where another Headgate may be."""
    several = make_several(("cache", "queue"), upstream_wait="100ms")
    wait_for(lambda: several.stat("upstream_up") == 1, what="Redis to be reached")
    result = run_headgate("--ping", "-c", several.headgate.config_path)
    assert (result.returncode, result.stdout) == (0, "+PONG\n"), result.stderr
    several.redis["cache"].kill()
    assert run_headgate("--ping", "-c", several.headgate.config_path).returncode == 1


def test_a_listener_of_a_server(make_several, open_directory):
    path = f"{open_directory}/queue.sock"
    several = make_several(("cache", "queue"), f"[listener:local]\nlisten = unix:{path}\nserver = queue\n")
    with Client(path) as client:
        assert client("SET", "k", "by the socket") == OK
    with several.redis["queue"].connect() as look:
        assert look("GET", "k") == b"by the socket"
    assert path in lines_of(several, "SERVERS")[1]["listen"]


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


def test_certificates_are_renewed_by_a_reload(three_ways):
    made = certificates()
    usual = tls.client_context()
    three_ways.own["sessions"].update(tls.towards_clients(made.server))
    three_ways.write("")
    wait_for(lambda: three_ways.reply("RELOAD") == OK, what="the reload to be taken")
    with_own = tls.client_context(made.client)
    wait_for(lambda: _is_served(three_ways, "sessions", with_own), what="the new certificate")
    assert _is_served(three_ways, "cache", usual)
    three_ways.own["sessions"].update(tls_certificate=made.client.key)
    three_ways.write("")
    refused = three_ways.reply("RELOAD")
    assert isinstance(refused, Error) and b"[server:sessions] tls_certificate" in refused
    assert _is_served(three_ways, "sessions", with_own)


def _is_served(several, name, context):
    try:
        with tls.connect(several.address(name), context) as client:
            return client("PING") == PONG
    except (OSError, Closed):
        return False


def test_a_name_that_leads_to_another_server_is_refused(make_headgate, redis, tmp_path):
    """What no file shows: the loop would be found when the descriptors have gone."""
    names = Names(tmp_path)
    several = Several(make_headgate, {"cache": redis}, start=False, own={"looped": {"upstream_wait": "1s"}})
    names.set("elsewhere.test", "127.0.0.1")
    several.redis["looped"], several.ports["looped"] = f"elsewhere.test:{several.ports['cache']}", free_port()
    several.write("")
    several.headgate.environment = names.environment()
    several.headgate.start()
    several.headgate.await_log("it leads to Headgate itself")
    assert several.connect("cache")("PING") == PONG
    assert several.stat("clients_accepted_total", "cache") <= 2, "who waited for the start, and this one"
    reply = several.connect("looped")("PING")
    assert isinstance(reply, Error) and b"leads to Headgate itself" in reply


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


def test_who_is_served_when_another_has_all_the_clients_that_it_may_have(make_several):
    several = make_several(("cache", "queue"), own={"queue": {"max_clients": 2}})
    wait_for(lambda: several.stat("clients_connected") == 0, what="who waited for the start to be gone")
    first, second = several.connect("queue"), several.connect("queue")
    assert first("PING") == PONG and second("PING") == PONG
    with several.connect("queue") as third:
        assert b"max number of clients" in third.read()
    with several.connect("cache") as client:
        assert client("PING") == PONG
    assert several.stat("clients_refused_total", "queue") == 1
    assert several.stat("clients_refused_total", "cache") == 0
    # Where descriptors are short, who wants little has it.
    resource.prlimit(several.headgate.process.pid, resource.RLIMIT_NOFILE, (300, 300))
    assert several.reply("RELOAD") == OK
    assert several.stat("clients_max", "queue") == 2 and 50 < several.stat("clients_max", "cache") < 148


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
def test_a_limit_of_all_counts_for_each_by_itself(make_several):
    several = make_several(rules=limit(limit=3, per="ip"))
    for name in NAMES:
        client = several.connect(name)
        replies = [client("INCR", "n") for _ in range(5)]
        assert [refuses(reply) for reply in replies] == [False] * 3 + [True] * 2, (name, replies)
    refused = several.reply("LIMIT", "RESET", "a")
    assert isinstance(refused, Error) and b"several servers" in refused
    assert several.ask("SERVER", "queue", "LIMIT", "RESET", "a") == "OK"
    assert not refuses(several.connect("queue")("INCR", "n"))
    assert refuses(several.connect("cache")("INCR", "n"))


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


MASTERS = [f"m{number}" for number in range(1, 6)]


def test_five_leases_of_one_process_end_with_it(make_several):
    """As of a RedLock: the process has connections to all five, and is the owner on each."""
    several = make_several(MASTERS, lease())
    program = Program({name: several.address(name) for name in MASTERS})
    try:
        for name in MASTERS:
            assert program.send(name, "SET", "lock:all", "t", "NX", "PX", int(LEASE * 1000)) == "+OK\r\n"
        wait_for(
            lambda: {(line["server"], line["owner"].split("@")[0]) for line in lines_of(several, "LEASES")}
            == {(name, f"process:{program.pid}") for name in MASTERS},
            what="the process to be found as the owner on each",
        )
        for name in MASTERS:
            assert_kept(several.redis[name], ["lock:all"])
        program.close("m3")
        await_left(several.redis["m3"], "lock:all")
        for name in set(MASTERS) - {"m3"}:
            assert_kept(several.redis[name], ["lock:all"], 1)
    finally:
        program.finish()
    for name in MASTERS:
        await_left(several.redis[name], "lock:all")
    wait_for(lambda: several.stat("lease_owner_gone_total") == 5, what="the owner to be gone on each")


class RedLock:
    """The algorithm as it is described: a lock is had by who has it on most of the masters, in time."""

    def __init__(self, several, token):
        self.clients = {name: several.connect(name) for name in MASTERS}
        self.token = token
        for client in self.clients.values():
            client.socket.settimeout(20)

    def each(self, *command):
        """What the masters that can be reached say; they are asked one after the other."""
        replies = {}
        for name, client in list(self.clients.items()):
            try:
                replies[name] = client(*command)
            except (Closed, ConnectionError, TimeoutError):
                self.clients.pop(name).close()
        return replies

    def acquire(self, key, milliseconds=20000):
        replies = self.each("SET", key, self.token, "NX", "PX", milliseconds)
        if sum(reply == OK for reply in replies.values()) > len(MASTERS) // 2:
            return True
        self.release(key)
        return False

    def release(self, key):
        return sum(reply == 1 for reply in self.each("EVAL", COMPARE_AND_DELETE, 1, key, self.token).values())


@pytest.mark.threads
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_redlock_of_five_masters_of_which_one_dies(make_several, end):
    """By one Headgate, whose leases watch over the lock on each. The lock is one process's throughout; it can be taken
    and given back while one master is dead, or hangs, and when it has come back without what it knew."""
    bounds = {"upstream_wait": "200ms", "upstream_reply_timeout": "500ms", "connect_timeout": "200ms"}
    several = make_several(MASTERS, lease(), own={"m2": bounds})
    mine, other = RedLock(several, "mine"), RedLock(several, "other")
    assert mine.acquire("lock:red")
    assert not other.acquire("lock:red")
    victim = several.redis["m2"]
    if end == "kill":
        victim.kill()
    else:
        victim.signal(signal.SIGSTOP)
    other.each("PING")
    wait_for(lambda: several.stat("upstream_up", "m2") == 0, what="it to be missed")
    assert not other.acquire("lock:red"), "four of five know of it"
    assert mine.release("lock:red") == 4
    assert other.acquire("lock:red"), "four of five are enough"
    assert not mine.acquire("lock:red")
    for name in set(MASTERS) - {"m2"}:
        assert several.stat("upstream_up", name) == 1 and several.stat("requests_lost_total", name) == 0, name
    if end == "kill":
        victim.start()
    else:
        victim.signal(signal.SIGCONT)
    wait_for(lambda: several.connect("m2")("PING") == PONG, what="it to be served again")
    third = RedLock(several, "third")
    assert not third.acquire("lock:red")
    assert other.release("lock:red") >= 4
    assert third.acquire("lock:red")


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


def test_what_is_shown_of_each(make_several):
    several = make_several()
    clients = {name: several.connect(name) for name in NAMES}
    for name, client in clients.items():
        for _ in range(1 + NAMES.index(name)):
            assert client("PING") == PONG
    counted = [several.stat("requests_total", name) for name in NAMES]
    assert counted == [1, 2, 3]
    assert several.stat("requests_total") == 6
    # Who waited for the start has to be gone.
    wait_for(lambda: sorted(line["server"] for line in lines_of(several, "CLIENTS")) == sorted(NAMES), what="one of each")
    numbers = [line["id"] for line in lines_of(several, "CLIENTS")]
    assert len(set(numbers)) == 3, "no two clients of the process have one number"
    assert {line["server"] for line in lines_of(several, "LANES")} == set(NAMES)
    alone = lines_of(several, "SERVER", "queue", "CLIENTS")
    assert len(alone) == 1 and "server" not in alone[0]
    told = several.ask("STATS", "server")
    assert "servers:3" in told and re.search(r"^server_queue:upstream=.*,up=1,clients=1,", told, flags=re.MULTILINE)
    assert f"upstream:127.0.0.1:{several.redis['queue'].port}" in several.ask("SERVER", "queue", "INFO").replace("rediss://", "")


@pytest.mark.parametrize(
    "question, said",
    [
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
    ],
)
def test_what_cannot_be_asked(make_several, question, said):
    several = make_several(("cache", "queue"))
    reply = several.reply(*question)
    assert isinstance(reply, Error) and said in reply, reply
    assert several.ask("PING") == "PONG"


def test_a_server_is_asked_about_only_by_who_is_trusted(make_several):
    several = make_several(("cache", "queue"), admin_password="let me in")
    for question in (("SERVERS",), ("SERVER", "cache", "STATS"), ("SERVER", "cache", "AUTH", "let me in")):
        assert b"NOAUTH" in several.reply(*question)
    with several.headgate.admin() as admin:
        assert admin("AUTH", "let me in") == OK
        assert b"requests_total" in admin("SERVER", "cache", "STATS")


def test_one_server_is_shown_as_it_always_was(make_headgate, redis):
    headgate = make_headgate(redis)
    with headgate.connect() as client, headgate.admin() as admin:
        assert client("PING") == PONG
        for verb in ("CLIENTS", "LANES", "STATS", "LEASES", "LIMITS"):
            assert b"server=" not in admin(verb) and b"servers:" not in admin(verb)
        assert b"upstream:" in admin("STATS")
        # They say for how many seconds a lane was idle.
        wait_for(lambda: admin("SERVER", "default", "LANES") == admin("LANES"), what="the same answer")
    assert "[default]" not in headgate.log()


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


def test_what_all_have_in_common_changes_for_all(make_several):
    several = make_several(("cache", "queue"), own={"queue": {"client_idle_timeout": "1h"}})
    idle = {name: several.connect(name) for name in ("cache", "queue")}
    assert all(client("PING") == PONG for client in idle.values())
    several.headgate.write_config(client_idle_timeout="200ms")
    wait_for(lambda: several.reply("RELOAD") == OK, what="the reload to be taken")
    with pytest.raises((Closed, ConnectionError)):
        idle["cache"].read()
    assert idle["queue"]("PING") == PONG


def test_a_server_that_comes_or_goes_takes_a_restart(make_several, make_redis):
    several = make_several(("cache", "queue"))
    client = several.connect("queue")
    removed = several.redis.pop("queue")
    several.redis["new"], several.ports["new"] = make_redis(), free_port()
    several.write("")
    wait_for(lambda: several.reply("RELOAD") == OK, what="the reload to be taken")
    for name in ("[server:queue]", "[server:new]"):
        several.headgate.await_log(f"{name} was changed in the file; that takes a restart, the old value stays")
    assert client("SET", "k", "still there") == OK
    with removed.connect() as look:
        assert look("GET", "k") == b"still there"
    with pytest.raises(ConnectionError):
        several.connect("new")
    several.write("[deny:a]\ncommands = echo\nservers = new\n")
    wait_for(lambda: several.reply("RELOAD") == OK, what="the reload to be taken")
    assert client("ECHO", "a") == b"a", "a rule for one that is not there yet"
    assert several.headgate.terminate() == 0
    several.headgate.start()
    assert isinstance(several.connect("new")("ECHO", "a"), Error)
    assert several.connect("cache")("ECHO", "a") == b"a"


@pytest.mark.threads
@pytest.mark.threads
def test_one_server_is_paused(make_several, threads):
    """PAUSE says of which; a reload changes nothing of it."""
    several = make_several(("cache", "queue"), threads=threads)
    refused = several.reply("PAUSE")
    assert isinstance(refused, Error) and b"several servers" in refused
    assert several.reply("SERVER", "cache", "PAUSE") == OK
    held, other = several.connect("cache"), several.connect("queue")
    held.send(encode("PING"))
    wait_for(lambda: several.stat("pause_held", "cache") == 1, what="the client to be held")
    assert other("PING") == PONG
    assert [several.stat("pause_active", name) for name in ("cache", "queue")] == [1, 0]
    several.own["cache"] = {"client_idle_timeout": "1h"}
    several.write("")
    wait_for(lambda: several.reply("RELOAD") == OK, what="the reload to be taken")
    assert several.stat("pause_held", "cache") == 1 and several.stat("pause_active") == 1
    assert isinstance(several.reply("RESUME"), Error)
    assert several.reply("SERVER", "queue", "RESUME") == OK
    assert several.stat("pause_held", "cache") == 1
    assert several.reply("SERVER", "cache", "RESUME") == OK
    assert held.read() == PONG


def test_all_are_drained(make_several):
    """Each finishes what is under way; who comes later finds nobody."""
    several = make_several(threads=2, drain_timeout="20s")
    waiting = {name: several.connect(name) for name in NAMES}
    for client in waiting.values():
        client.send(encode("BLPOP", "jobs", 0))
    wait_for(lambda: several.stat("clients_exclusive") == 3, what="all to wait")
    several.headgate.signal(signal.SIGTERM)
    several.headgate.await_log("draining")
    for name in NAMES:
        wait_for(lambda: not _connects(several.address(name)), what=f"{name} not to listen any more")
    for name in NAMES:
        with several.redis[name].connect() as giver:
            assert giver("LPUSH", "jobs", name) == 1
        assert waiting[name].read() == [b"jobs", name.encode()]
    assert several.headgate.wait() == 0
    assert "drained" in several.headgate.log()


def _connects(address):
    try:
        Client(address).close()
    except OSError:
        return False
    return True


def test_a_redis_that_was_never_there_does_not_hold_up_the_end_of_the_others(make_headgate, redis):
    several = Several(make_headgate, {"cache": redis, "absent": f"127.0.0.1:{free_port()}"}, lease(), drain_timeout="1h")
    client = several.connect("cache")
    take(client, "lock:a")
    client.close()
    assert several.headgate.terminate(timeout=60) == 0


def test_the_next_process_takes_all_over(make_several):
    several = make_several(("cache", "queue"))
    before = {name: several.connect(name) for name in ("cache", "queue")}
    assert all(client("PING") == PONG for client in before.values())
    old = several.headgate
    successor = _Successor(several)
    try:
        successor.start()
        wait_for(lambda: successor.clients_seen(several) == {"cache", "queue"}, what="new clients to come to the next one")
        assert all(client("PING") == PONG for client in before.values()), "who is there stays"
        assert old.terminate() == 0
        assert several.connect("queue")("PING") == PONG
    finally:
        successor.finish()


class _Successor(Headgate):
    """Another process by the same file, but for the admin port."""

    def __init__(self, several):
        super().__init__("127.0.0.1:1", start=False)
        text = several.headgate.config_path.read_text()
        self.config_path.write_text(re.sub(r"^admin = .*$", f"admin = 127.0.0.1:{self.admin_port}", text, flags=re.MULTILINE))
        self.port = several.headgate.port

    def start(self):
        self.launch([BINARY, "--take-over", "-c", str(self.config_path)])
        self.await_port(self.admin_address)

    def clients_seen(self, several):
        for name in ("cache", "queue"):
            several.connect(name)("PING")
        with self.admin() as admin:
            return {words_of(line)["server"] for line in admin("CLIENTS").decode().splitlines()}


def test_an_address_that_is_taken_ends_the_start(make_several, make_redis):
    several = make_several(("cache", "queue"), start=False)
    other = make_redis()
    several.ports["queue"] = other.port
    several.write("")
    result = run_headgate("-c", several.headgate.config_path)
    assert result.returncode == 1
    assert "cannot listen on" in result.stderr and str(other.port) in result.stderr


# ---- its file ----


def test_what_is_printed_is_the_same_file(make_several, tmp_path):
    several = make_several(("cache", "queue"), "[deny:a]\nservers = cache\ncommands = echo\n", default=True, threads=2)
    shown = run_headgate("-T", "-c", several.headgate.config_path).stdout
    path = tmp_path / "h.ini"
    path.write_text(shown)
    assert run_headgate("-T", "-c", path).stdout == shown
