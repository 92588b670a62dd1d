"""Names and words that Redis might understand otherwise than Headgate: those with a NUL in them.

Redis finds names by a hash of all bytes and compares them up to the NUL, so that one of some hundred endings makes a
command of them; words of options it compares up to the NUL always.
"""

import pytest

from harness.resp import OK, Error, encode
from harness.rules import launch
from harness.target import client_list

# Enough that one of them falls into the bucket of a table of 512, or of a subcommand's table of 4 to 64.
ENDINGS = [b"\0" + str(number).encode() for number in range(4096)]


def test_no_ending_makes_a_command_of_a_name(redis, make_headgate, pool):
    """4,096 endings: with Redis itself some of them find FLUSHALL."""
    headgate = make_headgate(redis, pool=pool)
    with headgate.connect() as client:
        assert client("SET", "k", "v") == OK
        client.send(b"".join(encode(b"FLUSHALL" + ending) for ending in ENDINGS))
        expected = Error(b"ERR unknown command 'FLUSHALL', with args beginning with: ")
        assert set(client.read_many(len(ENDINGS))) == {expected}
        assert client("GET", "k") == b"v"
    with redis.connect() as direct:
        direct.send(b"".join(encode(b"FLUSHALL" + ending) for ending in ENDINGS))
        assert OK in direct.read_many(len(ENDINGS)), "Redis has learned to look at the whole name"


@pytest.mark.parametrize(
    "words",
    [
        ("CLIENT", "NO-EVICT", "on"),
        ("CONFIG", "RESETSTAT"),
        ("SCRIPT", "EXISTS", "0"),
        ("OBJECT", "ENCODING", "k"),
        ("acl", "whoami"),
        ("PUBSUB", "NUMPAT"),
    ],
)
def test_no_ending_makes_a_subcommand_of_a_word(redis, make_headgate, pool, words):
    headgate = make_headgate(redis, pool=pool)
    command, subcommand, *rest = words
    with headgate.connect() as client:
        client.send(b"".join(encode(command, subcommand.encode() + ending, *rest) for ending in ENDINGS[:512]))
        text = f"ERR unknown subcommand '{subcommand}'. Try {command.upper()} HELP."
        assert set(client.read_many(512)) == {Error(text.encode())}


@pytest.mark.parametrize(
    "arguments",
    [
        (b"NOSUCH\0x",),
        (b"NOSUCH\0x", b"a", b"b\0c", b"d\r\ne"),
        (b"\0",),
        (b"no\r\nsuch\0x", b"a"),
        (b"N" * 200 + b"\0x", b"a" * 200, b"b" * 200),
        (b"NOSUCH\0x", b"a" * 60, b"b" * 60, b"c" * 60),
        (b"NOSUCH\0x", b"a" * 125, b"b"),
        (b"NOSUCH\0x", b"", b"\0", b"x"),
        (b"OBJECT", b"no such\0x", b"y"),
        (b"object", b"no\r\nsuch\0", b"y"),
        (b"XINFO", b"s" * 300 + b"\0"),
        (b"OBJECT", b"\0"),
    ],
)
def test_the_answer_is_redis_own(target, arguments):
    """Those that no bucket has, as the name itself is none."""
    with target.direct() as direct:
        expected = direct(*arguments)
    assert isinstance(expected, Error)
    assert target.connect()(*arguments) == expected


def test_inline_commands_can_spell_a_nul(target):
    client = target.connect()
    client.send(b'"NOSUCH\\x00x" a\r\n')
    assert client.read() == Error(b"ERR unknown command 'NOSUCH', with args beginning with: 'a' ")


def test_a_name_with_a_nul_spoils_its_transaction(target):
    client = target.connect()
    assert client("MULTI") == OK
    assert client(b"NOSUCH\0x", "k") == Error(b"ERR unknown command 'NOSUCH', with args beginning with: 'k' ")
    assert client("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")


@pytest.mark.parametrize("length", (100, 300, 70_000, 300_000))
def test_a_long_name_is_judged_by_its_beginning(target, length):
    """It comes in parts, longer than what is held."""
    client = target.connect()
    frame = encode(b"NOSUCH\0" + b"x" * length, "a")
    client.send(frame[:40])
    client.send(frame[40:])
    reply = client.read()
    assert isinstance(reply, Error) and reply.startswith(b"ERR unknown command 'NOSUCH', with args")
    assert client("PING") == b"PONG"
    name = b"y" * length
    assert client(name, "a") == Error(
        b"ERR unknown command '" + name[:128] + b"', with args beginning with: 'a' "
    )


def test_rules_see_names_with_a_nul(redis, make_headgate, pool):
    headgate = launch(make_headgate, redis, pool, "[deny:all]\ncommands = * !ping\nkeys =\nmax_bytes = 1\n")
    with headgate.connect() as client:
        reply = client(b"FLUSHALL\0x")
        assert isinstance(reply, Error) and reply.startswith(b"DENIED")
    rules = "[deny:set]\ncommands = set\n[limit:all]\nlimit = 1000\nwindow = 10s\n"
    with launch(make_headgate, redis, pool, rules).connect() as client:
        assert client(b"NOSUCH\0x", "v" * 300_000).startswith(b"ERR unknown command")
        assert client("SET", "k", "v").startswith(b"DENIED"), "what follows is judged by itself"


def test_hello_with_a_hidden_auth_changes_the_profile(redis, make_headgate):
    """HELLO 3 AUTH\\0: the next client's transaction ran as that user."""
    headgate = make_headgate(redis, pool="shared")
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "low", "on", ">pw", "allkeys", "+@all", "-set") == OK
        for spelling in (b"AUTH", b"AUTH\0", b"auth\0anything"):
            with headgate.connect() as attacker:
                assert not isinstance(attacker("HELLO", 3, spelling, "low", "pw"), Error)
                assert attacker("ACL", "WHOAMI") == b"low"
            for _ in range(4):
                with headgate.connect() as victim:
                    assert victim("MULTI") == OK
                    assert victim("SET", "k", "v") == b"QUEUED"
                    assert victim("ACL", "WHOAMI") == b"QUEUED"
                    assert victim("EXEC") == [OK, b"default"]
        users = {entry["user"] for entry in client_list(direct) if entry["name"] == "headgate" and entry["resp"] == "2"}
        assert users == {"default"}
