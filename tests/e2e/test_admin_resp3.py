"""What programs say when they connect to the admin port, and answers in RESP3."""

import json
import subprocess

import pytest

from harness.admin import stats, text
from harness.http import ask, stats_json
from harness.resp import OK, PONG, Error, Map, Verbatim, encode, wait_for
from harness.several import Several

RULES = "[limit:search]\ncommands = echo\nper = all\nlimit = 2\nwindow = 1m\n[latency]\nenabled = on\n"


@pytest.fixture
def headgate(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", start=False, reload_on_change="off")
    headgate.write_rules(RULES)
    headgate.start()
    return headgate


@pytest.fixture
def admin(headgate):
    with headgate.admin() as admin:
        yield admin


def hello(admin, *words):
    """The answer as a dictionary, in either version."""
    reply = admin("HELLO", *words)
    assert isinstance(reply, list), reply
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def plain(value):
    """A reply in RESP3 with dictionaries and text."""
    assert not isinstance(value, Error), value
    if isinstance(value, Map):
        return {plain(name): plain(item) for name, item in value.dict().items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def test_hello_tells_what_is_there(admin):
    first = hello(admin)
    assert (first["server"], first["proto"], first["mode"], first["role"]) == (b"headgate", 2, b"standalone", b"master")
    assert hello(admin, "3", "SETNAME", "monitoring")["proto"] == 3
    assert admin("CLIENT", "GETNAME") == b"monitoring"
    assert hello(admin, "2")["id"] == first["id"] == admin("CLIENT", "ID")
    assert text(admin("VERSION")) == first["version"].decode()


def test_hello_takes_the_password(redis, make_headgate):
    headgate = make_headgate(redis, admin_password="all of it", admin_read_password="only looking")
    with headgate.admin() as admin:
        assert bytes(admin("HELLO", "3")).startswith(b"NOAUTH")
        assert bytes(admin("HELLO", "3", "AUTH", "default", "wrong")).startswith(b"WRONGPASS")
        assert bytes(admin("CLIENT", "SETNAME", "x")).startswith(b"NOAUTH")
        assert bytes(admin("STATS")).startswith(b"NOAUTH")
        assert hello(admin, "3", "AUTH", "default", "only looking")["proto"] == 3
        assert bytes(admin("LOGLEVEL", "debug")).startswith(b"NOPERM")
        assert hello(admin, "2", "AUTH", "any", "all of it")["proto"] == 2
        assert admin("LOGLEVEL", "debug") == OK


def test_what_libraries_say(admin):
    for words in ("SETINFO LIB-NAME redis-py", "setinfo lib-ver 8.0", "SETNAME x", "NO-EVICT on"):
        assert admin("CLIENT", *words.split()) == OK, words
    for words in ("MAINT_NOTIFICATIONS ON", "SETNAME a\nb", "SETNAME " + "x" * 64, "SETNAME a\0b", "REPLY OFF"):
        assert isinstance(admin("CLIENT", *words.split(" ")), Error), words
    assert admin("SELECT", "0") == OK and isinstance(admin("SELECT", "1"), Error) and isinstance(admin("CLIENT"), Error)
    assert admin("CLIENT", "GETNAME") == b"x"


@pytest.mark.parametrize("version", [(), ("-3",)])
def test_redis_cli_in_both_versions(headgate, version):
    def run(*words, **more):
        command = ["redis-cli", *version, "-p", str(headgate.admin_port), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, **more).stdout

    assert "# Traffic" in run("INFO", "traffic") and "requests_total" in run("STATS", "traffic")
    assert "max_clients" in run("CONFIG", "GET", "max_clients")
    assert "PONG" in run(input="PING\nINFO\nHELP\nQUIT\n")


def test_stats_are_a_map_of_maps(headgate, admin):
    with headgate.connect() as client:
        client.send(encode("PING") * 7)
        client.read_many(7)
    wait_for(lambda: "redis_clock_offset_us" in stats(headgate), what="what Redis tells of itself")
    hello(admin, "3")
    told = plain(admin("STATS"))
    assert told["Traffic"]["requests_total"] >= 7 and told["Clients"]["clients_connected"] >= 0
    assert told["Server"]["pool"] == "shared" and told["Server"]["redis_version"].startswith("7.")
    assert {name for section in told.values() for name in section} == set(stats(headgate))
    assert list(plain(admin("STATS", "traffic", "server"))) == ["Server", "Traffic"]
    assert isinstance(admin("STATS", "nonsense"), Error)
    for words, start in ((("INFO", "traffic"), b"txt:# Traffic\r\n"), (("HELP",), b"txt:PING")):
        assert isinstance(admin(*words), Verbatim) and admin(*words).startswith(start), words
    assert admin("PING", "x") == b"x"


def test_names_hide_no_fields(headgate, admin):
    """A client may take any name: the fields behind it in its line are told all the same, and none is made up."""
    client = headgate.connect()
    hello(admin, "3")
    for name in ('"', '"x', '""', '"a"', "#x", "a=b", "007", "yes", "\\", 'lane=exclusive"id=7'):
        assert client("CLIENT", "SETNAME", name) == OK
        told = plain(admin("CLIENTS"))
        assert len(told) == 1 and told[0]["user"] == "default" and told[0]["lane"] == "shared", told
        assert told[0]["name"] == name.replace('"', "\\x22") and told[0]["id"] != 7


def test_lines_are_maps(headgate, admin):
    clients = [headgate.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client("CLIENT", "SETNAME", str(number))
        client("ECHO", "x")
    hello(admin, "3")
    told = plain(admin("CLIENTS"))
    assert sorted(line["name"] for line in told) == ["0", "1", "2"]
    assert all(isinstance(line["id"], int) and isinstance(line["qbuf"], int) for line in told)
    assert plain(admin("CLIENTS", "name=1"))[0]["user"] == "default"
    assert {line["use"] for line in plain(admin("LANES"))} >= {"shared"}
    assert "lanes" in plain(admin("NODES"))[0]
    limits = plain(admin("LIMITS"))
    assert limits[0]["rule"] == "search" and limits[0]["refused"] == 1
    assert plain(admin("LATENCY"))[0]
    option = plain(admin("CONFIG", "SHOW", "lanes"))[0]
    assert (option["option"], option["value"], option["set"]) == ("lanes", "8", False)
    assert plain(admin("CONFIG", "GET", "lanes", "threads")) == {"lanes": "8", "threads": "1"}
    assert admin("CONFIG").startswith(b"txt:[headgate]\n")


def test_several_servers(make_redis, make_headgate):
    several = Several(make_headgate, {"a": make_redis(), "b": make_redis()})
    several.connect("b")("PING")
    with several.headgate.admin() as admin:
        hello(admin, "3")
        assert {line["server"] for line in plain(admin("SERVERS"))} == {"a", "b"}
        wait_for(lambda: [line["server"] for line in plain(admin("CLIENTS"))] == ["b"], what="the one client")
        told = plain(admin("SERVER", "b", "STATS", "clients"))
        assert told["Clients"]["clients_connected"] == 1
        told = json.loads(admin("STATS", "JSON"))
        assert [server["server"] for server in told["servers"]] == ["a", "b"]
        assert json.loads(admin("SERVER", "b", "STATS", "clients", "json"))["counters"]["clients_connected"] == 1


def test_json_has_the_names_of_http(redis, started):
    headgate = started(redis, "[latency]\nenabled = on\n")
    by_http = stats_json(headgate)
    with headgate.admin() as admin:
        told = json.loads(admin("STATS", "json"))
        assert set(told) - {"counting_since", "up"} <= set(by_http)
        assert set(told["counters"]) == set(by_http["counters"])
        assert told["version"] == by_http["version"] and told["process_id"] == by_http["process_id"]
        few = json.loads(admin("STATS", "traffic", "JSON"))
        assert set(few) == {"counters"} and "requests_total" in few["counters"] and "lanes_shared" not in few["counters"]
        assert isinstance(admin("STATS", "nonsense", "JSON"), Error)
        assert admin("INFO", "JSON") == b""


def test_counters_begin_anew_and_gauges_stay(redis, started):
    headgate = started(redis, RULES)
    clients = [headgate.connect() for _ in range(3)]
    for client in clients:
        client("ECHO", "x")
        client("ECHO", "x")
    before = stats(headgate)
    assert int(before["requests_total"]) >= 6
    with headgate.admin() as admin:
        assert admin("CONFIG", "RESETSTAT") == OK
        after = stats(headgate)
        assert after["requests_total"] == after["clients_accepted_total"] == "0"
        assert after["clients_connected"] == "3" and after["lanes_shared"] == before["lanes_shared"]
        assert int(after["counting_since_seconds"]) >= int(before["counting_since_seconds"])
        clients[0]("PING")
        assert stats(headgate)["requests_total"] == "1"
        assert json.loads(admin("STATS", "JSON"))["counters"]["requests_total"] == 1
        assert admin("RESETSTAT") == OK
        assert stats(headgate)["requests_total"] == "0"
    # Metrics and the page go on: a rate is never below 0.
    assert stats_json(headgate)["counters"]["requests_total"] >= 7
    metrics = ask(headgate, "/metrics").text
    assert int(metrics.split("\nheadgate_requests_total ")[1].split()[0]) >= 7


def verbs_of(admin):
    return [line.split("  ")[0].strip() for line in text(admin("HELP")).splitlines()]


def test_examples_are_sound(make_line):
    """None of them is answered by how it is used."""
    line = make_line(RULES)
    with line.headgate.admin() as admin:
        lines = [said for usage in verbs_of(admin) for said in text(admin("HELP", usage.split()[0])).splitlines()]
    examples = {said.split("example: ")[1] for said in lines if "example: " in said}
    assert len(examples) > 30
    for example in sorted(examples - {"SHUTDOWN NOW", "DRAIN", "QUIT"}):
        with line.headgate.admin() as admin:
            answer = admin(*example.split())
        said = bytes(answer) if isinstance(answer, Error) else b""
        assert b"usage" not in said and b"unknown" not in said and b"syntax" not in said.lower(), (example, answer)
    # One of them is UPGRADE.
    line.pids.append(line.pid())
    assert line.pids[1] != line.pids[0]


def test_the_end_while_somebody_waits(redis, make_headgate):
    """Whoever waits for all workers to go by a change is told, and nothing behind it is taken."""
    headgate = make_headgate(redis, threads=4, reload_on_change="off")
    with headgate.admin() as admin, headgate.admin() as other:
        admin.send(b"".join(encode("CONFIG", "SET", "max_clients", 10 + n) + encode("STATS") for n in range(20)))
        assert other("PING") == PONG
        other.send(encode("SHUTDOWN", "NOW"))
        assert other.read() == OK
    assert headgate.wait() == 0
