"""[deny:NAME]: what is refused, what is not, and what a rule that cannot be gets."""

import pathlib
import random
import re

import pytest

from harness.admin import await_empty, send_and_await, stats
from harness.resp import OK, PONG, Client, Error, encode
from harness.rules import check_file, reload


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


def padded(values, size):
    """RPUSH of these and one more, so many bytes in all."""
    rest = size - len(encode("RPUSH", "l", *values, ""))
    length = next(rest - more for more in range(8) if len(str(rest - more)) == more + 1)
    return [*values, b"x" * length]


def test_sizes_at_random(make, redis):
    """To the byte, whether a request comes at once or in parts. What is let through reaches Redis as it is, what is too long
    is refused and thrown away, and what is behind it keeps its place; each of the rules counts it once."""
    dice, direct = random.Random(0), redis.connect()
    headgate = make(f"[deny:seen]\nmax_bytes = 100000\naction = observe\n[deny:big]\nmax_bytes = {MEGABYTE}\n")
    client = headgate.connect()
    refused = observed = 0
    for _ in range(40):
        values = [bytes([97 + number]) * dice.choice((0, 1, 5_000, 70_000)) for number in range(dice.randrange(1, 12))]
        values = dice.choice((values, values * 2, padded(values, MEGABYTE), padded(values, MEGABYTE + 1)))
        request = encode("RPUSH", "l", *values)
        refused += len(request) > MEGABYTE
        observed += len(request) > 100_000
        stream = encode("DEL", "l") + request + encode("LLEN", "l")
        cuts = sorted(dice.choices(range(len(stream)), k=dice.randrange(4)))
        for start, end in zip([0, *cuts], cuts):
            send_and_await(headgate, client, stream[start:end])
        client.send(stream[cuts[-1] if cuts else 0 :])
        kept = [] if len(request) > MEGABYTE else values
        expected = len(values) if kept else denied("big", "rpush is not allowed at this size")
        assert client.read_many(3)[1:] == [expected, len(kept)]
        assert direct("LRANGE", "l", 0, -1) == kept
    assert stats(headgate, "deny") == {"deny_rejected_total": str(refused), "deny_observed_total": str(observed)}


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
        reload(headgate, "[deny:big]\nmax_bytes = 1mb\n")
        client = headgate.connect()
        data = encode("RPUSH", "l", *["v" * 30_000] * 20)
        send_and_await(headgate, client, data[:100_000])
        reload(headgate, rules)
        client.send(data[100_000:] + encode("PING"))
        assert client.read_many(2) == [reply, PONG]
    assert redis.connect()("LLEN", "l") == 20


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
