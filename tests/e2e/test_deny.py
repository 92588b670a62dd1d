"""[deny:NAME]: what is refused, what is not, and what a rule that cannot be gets."""

import pathlib
import re

import pytest

from harness.admin import await_empty, send_and_await, stats
from harness.resp import OK, PONG, Client, Error, encode, wait_for
from harness.rules import check_file


def denied(rule, text):
    return Error(f"DENIED {rule}: {text}".encode())


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
        many = [f"key:{number:020}" for number in range(6000)]
        assert client("MGET", *many) == [None] * 6000
        assert client("DEL", *many, "long") == 1
        assert client("SET", "a", "v") == OK
        for keys in ([*many, "a", "secret:a"], ["secret:a", "a", *many], [*many, "b:pin", "a", *many]):
            assert client("DEL", *keys) == denied("secret", f"del {refusal}")
        assert client("EVAL", "return #KEYS", 6000, *many, *many) == 6000
        assert client("EVAL", "return 1", 6001, *many, "secret:a") == denied("secret", f"eval {refusal}")
        assert client("GET", "a") == b"v"


MEGABYTE = 1_000_000


@pytest.mark.parametrize("command", [("RPUSH", "l"), ("MSET", "l", "1", "m")])
def test_a_size_that_shows_late(make, redis, command):
    """The first value is short enough, and the second one comes when the first is read; it is refused as soon as its
    length is announced, and thrown away."""
    headgate = make("[deny:big]\nmax_bytes = 1mb\n")
    client = headgate.connect()
    values = [b"a" * 70_000, *([b"key"] if command[0] == "MSET" else []), b"b" * 30 * MEGABYTE]
    data = encode(*command, *values) + encode("ECHO", "next")
    client.send(encode("ECHO", "before"))
    send_and_await(headgate, client, data[:80_000])
    assert client.read() == b"before"
    send_and_await(headgate, client, data[80_000:90_000])
    assert client.read() == denied("big", f"{command[0].lower()} is not allowed at this size")
    client.send(data[90_000:])
    assert client.read() == b"next"
    assert redis.connect()("DBSIZE") == 0
    assert stats(headgate, "deny") == {"deny_rejected_total": "1", "deny_observed_total": "0"}


@pytest.mark.parametrize("piece", [1_000, 5 * MEGABYTE])
def test_many_values_within_the_size(make, redis, piece):
    """They reach Redis as they are, and what is behind them keeps its place."""
    data = [b"%d" % n * (n % 5_000) for n in range(1, 700)] + [b"\0\r\n" * 200_000, b"", b"end"]
    request = encode("RPUSH", "l", *data)
    headgate = make(f"[deny:big]\nmax_bytes = {len(request)}\n[deny:bigger]\nmax_bytes = 30mb\naction = observe\n")
    client = headgate.connect()
    stream = encode("ECHO", "before") + request + encode("LLEN", "l") + encode("ECHO", "after")
    for start in range(0, len(stream), piece):
        client.send(stream[start : start + piece])
    assert client.read_many(4) == [b"before", len(data), len(data), b"after"]
    assert redis.connect()("LRANGE", "l", 0, -1) == data
    client.send(encode("RPUSH", "l", *data, "") + encode("LLEN", "l"))
    assert client.read_many(2) == [denied("big", "rpush is not allowed at this size"), len(data)]


def test_a_size_at_its_bound(make):
    """To the byte, whether the request comes at once or in parts."""
    request = encode("SET", "k", "v" * 200_000)
    for bound, reply in ((len(request), OK), (len(request) - 1, denied("big", "set is not allowed at this size"))):
        client = (headgate := make(f"[deny:big]\nmax_bytes = {bound}\n")).connect()
        for part in (len(request), 50_000, len(request) - 1, len(request) - 2, len(request) - 3):
            send_and_await(headgate, client, request[:part])
            client.send(request[part:])
            assert client.read() == reply


def test_one_long_value_is_refused_before_it_came(make):
    headgate = make("[deny:big]\nmax_bytes = 1mb\n")
    client = headgate.connect()
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n")
    assert client.read() == denied("big", "set is not allowed at this size")
    client.send(b"v" * 2_000_000 + b"\r\n" + encode("PING"))
    assert client.read() == PONG


def test_observing_a_size_that_shows_late(make, redis):
    """It is counted once, by each of the rules."""
    headgate = make(
        "[deny:any]\ncommands = rpush\naction = observe\n[deny:big]\nmax_bytes = 1mb\naction = observe\n"
        "[deny:huge]\nmax_bytes = 100mb\n"
    )
    client = headgate.connect()
    data = encode("RPUSH", "l", *[b"v" * 100_000] * 30)
    for start in range(0, len(data), 50_000):
        client.send(data[start : start + 50_000])
    assert client.read() == 30
    assert stats(headgate, "deny") == {"deny_rejected_total": "0", "deny_observed_total": "2"}
    assert client("RPUSH", "l", "v") == 31
    assert stats(headgate, "deny") == {"deny_rejected_total": "0", "deny_observed_total": "3"}
    assert redis.connect()("LLEN", "l") == 31


def test_a_client_that_leaves_before_its_size_is_known(make, redis):
    headgate = make("[deny:big]\nmax_bytes = 1mb\n")
    data = encode("RPUSH", "l", *["v" * 80_000] * 3)
    for leave in (Client.close, Client.reset, Client.shutdown_write):
        for part in (70_000, 100_000, len(data) - 90_000):
            client = headgate.connect()
            send_and_await(headgate, client, encode("ECHO", "e") + data[:part])
            assert client.read() == b"e"
            leave(client)
    await_empty(headgate)
    assert redis.connect()("DBSIZE") == 0
    assert stats(headgate, "deny") == {"deny_rejected_total": "0", "deny_observed_total": "0"}


def test_a_reload_before_its_size_is_known(make, redis):
    """By the new rules it goes on, or is refused."""
    headgate = make("[deny:big]\nmax_bytes = 1mb\n")
    refusal = denied("other", "rpush is not allowed at this size")
    for rules, reply in (("", 20), ("[deny:other]\nmax_bytes = 200kb\n", refusal)):
        headgate.write_rules("[deny:big]\nmax_bytes = 1mb\n")
        with headgate.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        client = headgate.connect()
        data = encode("RPUSH", "l", *["v" * 30_000] * 20)
        send_and_await(headgate, client, data[:100_000])
        headgate.write_rules(rules)
        with headgate.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        client.send(data[100_000:] + encode("PING"))
        assert client.read_many(2) == [reply, PONG]
    assert redis.connect()("LLEN", "l") == 20


def test_what_redis_refuses_by_its_beginning_is_not_waited_for(make, redis):
    """A client without a password could have it held in memory otherwise."""
    with redis.connect() as admin:
        assert admin("CONFIG", "SET", "requirepass", "secret") == OK
    headgate = make("[deny:big]\nmax_bytes = 100mb\n")
    wait_for(lambda: "wants a password" in headgate.log(), what="Headgate to know that it needs one")
    for beginning in (b"*11\r\n", b"*30\r\n$5\r\nRPUSH\r\n", b"*3\r\n$3\r\nSET\r\n$20000\r\n"):
        client = headgate.connect()
        client.send(beginning)
        assert client.read().startswith(b"ERR Protocol error: unauthenticated ")
        client.assert_closed()


def test_the_table_of_subcommands_is_redis_own(redis):
    table = pathlib.Path(__file__).parents[2] / "proxy" / "command" / "command_subcommands.inc"
    rows = re.findall(r'^SUBCOMMAND\("([^"]+)", "([^"]+)",\s*([A-Z |]+)\)$', table.read_text(), re.MULTILINE)
    known = {f"{command}|{name}": set(categories.lower().split(" | ")) for command, name, categories in rows}
    assert len(known) == len(rows) > 100
    with redis.connect() as client:
        names = [name.decode() for name in client("COMMAND", "LIST") if b"|" in name]
        infos = [client("COMMAND", "INFO", name)[0] for name in names]
    assert len(names) > 100
    for name, info in zip(names, infos):
        assert known.get(name) == {category.decode().lstrip("@") for category in info[6]}, name


FAULTS = [
    ("[deny:a]\n", "[deny:a] commands = *: leaves no request; expected fewer commands, or keys or max_bytes beside it"),
    ("[deny:a]\ncommands = get\nexcept = ip:1.2.3\n", '"ip:1.2.3" holds no IP address or network'),
    ("[deny:a]\nmax_bytes = -1\n", "[deny:a] max_bytes = -1"),
    ("[deny:a]\ncommands = get\naction = refuse\n", "[deny:a] action = refuse"),
]


def test_rules_that_cannot_be(tmp_path):
    for rule, fault in FAULTS:
        result = check_file(tmp_path, rule.splitlines()[1:], section=rule.partition("]")[0][1:])
        assert result.returncode == 1 and fault in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
