"""[deny:NAME]: what is refused, what is not, and what a rule that cannot be gets."""

import pathlib
import re
import signal
import subprocess

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, QUEUED, Error, encode, wait_for
from harness.servers import BINARY


@pytest.fixture
def make(redis, pool, make_headgate):
    def make(rules, **options):
        headgate = make_headgate(redis, pool=pool, **options)
        headgate.write_rules(rules)
        headgate.signal(signal.SIGHUP)
        wait_for(lambda: "the configuration was reloaded" in headgate.log(), what="the rules")
        return headgate

    return make


def denied(rule, text):
    return Error(f"DENIED {rule}: {text}".encode())


def test_commands(make):
    headgate = make("[deny:danger]\ncommands = @dangerous !info config|set\nexcept = name:operator\n")
    with headgate.connect() as client:
        assert client("FLUSHALL") == denied("danger", "flushall is not allowed")
        assert client("keys", "*") == denied("danger", "keys is not allowed")
        assert client("INFO", "server").startswith(b"# Server")
        assert client("SET", "k", "v") == OK
        assert client("PING") == PONG
        assert client("CLIENT", "SETNAME", "operator") == OK
        assert client("KEYS", "*") == [b"k"]
    assert stats(headgate, "deny")["deny_rejected_total"] == "2"


def test_a_subcommand(make):
    headgate = make("[deny:conf]\ncommands = config|set\n")
    with headgate.connect() as client:
        assert client("CONFIG", "Set", "maxmemory", "0") == denied("conf", "config is not allowed")
        assert client("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"0"]


def test_keys(make):
    headgate = make("[deny:secret]\nkeys = secret:* *:pin\n")
    with headgate.connect() as client:
        refusal = "is not allowed on such a key"
        assert client("GET", "secret:a") == denied("secret", f"get {refusal}")
        assert client("MGET", "a", "b:pin") == denied("secret", f"mget {refusal}")
        assert client("EVAL", "return 1", 1, "secret:x") == denied("secret", f"eval {refusal}")
        assert client("SET", "a", "secret:a") == OK
        assert client("SET", "secret:long", "v" * 300_000) == denied("secret", f"set {refusal}")
        assert client("SET", "long", "v" * 300_000) == OK
        assert client("STRLEN", "long") == 300_000


def test_sizes(make):
    headgate = make("[deny:big]\ncommands = @write\nmax_bytes = 1kb\n")
    with headgate.connect() as client:
        assert client("SET", "a", "v" * 900) == OK
        assert client("SET", "a", "v" * 1100) == denied("big", "set is not allowed at this size")
        assert client("SET", "a", "v" * 2_000_000) == denied("big", "set is not allowed at this size")
        assert client("ECHO", "v" * 2_000_000) == b"v" * 2_000_000
        assert client("STRLEN", "a") == 900


def test_observing(make, redis):
    headgate = make("[deny:watch]\ncommands = set\naction = observe\n[deny:del]\ncommands = del\n")
    with headgate.connect() as client:
        assert client.pipeline([("SET", "a", 1), ("DEL", "a"), ("GET", "a")]) == [
            OK,
            denied("del", "del is not allowed"),
            b"1",
        ]
    assert stats(headgate, "deny") == {"deny_rejected_total": "1", "deny_observed_total": "1"}


def test_the_first_rule_that_applies_answers(make):
    headgate = make("[deny:first]\ncommands = get\n[deny:second]\ncommands = get set\n")
    with headgate.connect() as client:
        assert client("GET", "a") == denied("first", "get is not allowed")
        assert client("SET", "a", 1) == denied("second", "set is not allowed")


def test_in_a_transaction(make, redis):
    headgate = make("[deny:d]\ncommands = incr\n")
    with headgate.connect() as client:
        replies = client.pipeline([("MULTI",), ("SET", "t", 1), ("INCR", "t"), ("EXEC",), ("GET", "t")])
        assert replies[:3] == [OK, QUEUED, denied("d", "incr is not allowed")]
        assert replies[3].startswith(b"EXECABORT")
        assert replies[4] is None


def test_modules_and_unknown_commands(make):
    """A star means them, too."""
    headgate = make("[deny:e]\ncommands = * !get !ping !client\n")
    with headgate.connect() as client:
        assert client("JSON.SET", "a", "$", "1") == denied("e", "this command is not allowed")
        assert client("GET", "a") is None


def test_a_large_share_of_refusals_costs_nobody_a_reply(make):
    headgate = make("[deny:d]\ncommands = incr\n")
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        client.send((encode("INCR", "n") + encode("PING") + encode("ECHO", "x")) * 200)
    for client in clients:
        assert client.read_many(600) == [denied("d", "incr is not allowed"), PONG, b"x"] * 200


def test_the_table_of_subcommands_is_redis_own(redis):
    table = pathlib.Path(__file__).parents[2] / "proxy" / "command_subcommands.inc"
    rows = re.findall(r'^SUBCOMMAND\("([^"]+)", "([^"]+)",\s*([A-Z |]+)\)$', table.read_text(), re.MULTILINE)
    known = {f"{command}|{name}": set(categories.lower().split(" | ")) for command, name, categories in rows}
    assert len(known) == len(rows) > 100
    with redis.connect() as client:
        names = [name.decode() for name in client("COMMAND", "LIST") if b"|" in name]
        infos = [client("COMMAND", "INFO", name)[0] for name in names]
    assert len(names) > 100
    for name, info in zip(names, infos):
        assert known.get(name) == {category.decode().lstrip("@") for category in info[6]}, name


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("[deny:a]\n", '[deny:a] commands = *: leaves no request; expected fewer commands, or keys or max_bytes beside it'),
        ("[deny:a]\ncommands = gte\n", '[deny:a] commands = gte: "gte" is no command that Headgate knows; expected '),
        ("[deny:a]\ncommands = @bad\n", '"@bad" is no category of commands'),
        ("[deny:a]\ncommands = ping\nkeys = a*\n", "can never match: none of the commands has keys"),
        ("[deny:a]\nkeys = a[\n", 'opens a class with "[" that it does not close'),
        ("[deny:a]\ncommands = get\nexcept = ip:1.2.3\n", '"ip:1.2.3" holds no IP address or network'),
        ("[deny:a]\nmax_bytes = -1\n", "[deny:a] max_bytes = -1"),
        ("[deny:a]\ncommands = get\naction = refuse\n", "[deny:a] action = refuse"),
        ("[deny]\ncommands = get\n", "[deny]: rule has no name"),
    ],
)
def test_rules_that_cannot_be(tmp_path, rule, fault):
    path = tmp_path / "h.ini"
    path.write_text(rule)
    done = subprocess.run([BINARY, "-t", "-c", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert fault in done.stderr
    assert len(done.stderr.splitlines()) == 1
