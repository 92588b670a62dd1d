"""Names and words that Redis might understand otherwise than Headgate: those with a NUL in them.

Redis finds names by a hash of all bytes and compares them up to the NUL, so that one of some hundred endings makes a
command of them; words of options it compares up to the NUL always.
"""


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


def test_a_long_name_is_judged_by_its_beginning(target):
    """It comes in parts, longer than what is held."""
    for length in (100, 300, 70_000, 300_000):
        client = target.connect()
        frame = encode(b"NOSUCH\0" + b"x" * length, "a")
        client.send(frame[:40])
        client.send(frame[40:])
        reply = client.read()
        assert isinstance(reply, Error) and reply.startswith(b"ERR unknown command 'NOSUCH', with args"), length
        assert client("PING") == b"PONG", length
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
