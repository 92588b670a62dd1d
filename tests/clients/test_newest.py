"""What the newest libraries send when they connect, with their default settings: it costs none of them a lane.

The words are those of redis-py 8.1.0, node-redis 6.3.1, go-redis 9.23.0, rueidis 1.0.79, ioredis 6.0.0, iovalkey 0.4.0,
coredis 6.9.0, valkey-glide 2.6.0 and fred 10.1.0, taken down between each of them and a server; those of
StackExchange.Redis 3.1 are in the order of its documentation and sources. Debian has none of these; its own are in the other
files.
"""

import pytest

from harness.admin import stats
from harness.resp import OK, Error, Map, encode, same, wait_for

CLIENTS = 20


def writes(text):
    """Each is sent when what the one before asked for is answered: "/" between them, "|" between their commands."""
    return [[tuple(command.split(" ")) for command in write.split("|")] for write in text.split(" / ")]


GREETINGS = {
    "redis-py-3": writes(
        "HELLO 3 / CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip / CLIENT SETINFO LIB-NAME redis-py / "
        "CLIENT SETINFO LIB-VER 8.1.0"
    ),
    "redis-py-2": writes("CLIENT SETINFO LIB-NAME redis-py / CLIENT SETINFO LIB-VER 8.1.0"),
    "node-redis-3": writes(
        "HELLO 3|CLIENT SETINFO LIB-VER 6.3.1|CLIENT SETINFO LIB-NAME node-redis"
        "|CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip"
    ),
    "node-redis-2": writes("CLIENT SETINFO LIB-VER 6.3.1|CLIENT SETINFO LIB-NAME node-redis"),
    "go-redis-3": writes(
        "hello 3 / client maint_notifications on moving-endpoint-type internal-ip / "
        "client setinfo LIB-NAME go-redis(,go1.26.8)|client setinfo LIB-VER 9.23.0"
    ),
    "go-redis-2": writes("hello 2 / client setinfo LIB-NAME go-redis(,go1.26.8)|client setinfo LIB-VER 9.23.0"),
    "ioredis": writes("hello 3|client SETINFO LIB-VER 6.0.0|client SETINFO LIB-NAME ioredis / info"),
    "iovalkey": writes("info"),
    "coredis": writes("HELLO 3 / CLIENT SETINFO LIB-NAME coredis|CLIENT SETINFO LIB-VER 6.9.0"),
    "valkey-glide": writes("HELLO 3|CLIENT SETINFO LIB-NAME GlidePy|CLIENT SETINFO LIB-VER 0.1.0 / INFO REPLICATION"),
    "rueidis": writes("HELLO 3|CLIENT TRACKING ON OPTIN|CLIENT SETINFO LIB-NAME rueidis|CLIENT SETINFO LIB-VER 1.0.79"),
    "named": writes("HELLO 3 SETNAME app / CLIENT SETNAME app|CLIENT GETNAME"),
}

# These ask for CLIENT ID, and so have a lane of their own for client_id_timeout.
IDENTIFIED = {
    "fred": writes("PING / CLIENT ID|INFO server"),
    "stackexchange-3": writes(
        "HELLO 3|CLIENT SETNAME app(SE.Redis-v3.1.31)|CLIENT SETINFO LIB-NAME SE.Redis|CLIENT SETINFO LIB-VER 3.1.31"
        "|CLIENT ID|CONFIG GET timeout|CONFIG GET replica-read-only|CONFIG GET databases|SENTINEL MASTERS"
        "|INFO replication|INFO server|CLUSTER NODES|GET __Booksleeve_TieBreak"
    ),
}
IDENTIFIED["stackexchange-3"][0].append(("ECHO", b"\x00\x01\r\n-ERR\x02"))


def greet(client, writes):
    """The answers to all of it, and to two ordinary commands."""
    replies = []
    for commands in [*writes, [("SET", "k", "v")], [("GET", "k")]]:
        client.send(b"".join(encode(*command) for command in commands))
        replies += client.read_many(len(commands))
    return replies


def comparable(reply):
    """Without what differs from one connection to the next."""
    if isinstance(reply, (list, Map)) and b"id" in reply:
        return [value for value in reply if not isinstance(value, int)]
    if isinstance(reply, int):
        return "an id"
    return b"INFO" if isinstance(reply, bytes) and b"redis_version" in reply else reply


@pytest.mark.parametrize("library", [*GREETINGS, *IDENTIFIED])
def test_the_answers_are_those_of_redis(target, library):
    """What a server without a feature says is what the libraries go on after."""
    writes = {**GREETINGS, **IDENTIFIED}[library]
    expected = [comparable(reply) for reply in greet(target.direct(), writes)]
    for _ in range(3):
        replies = [comparable(reply) for reply in greet(target.connect(), writes)]
        assert all(same(mine, theirs) for mine, theirs in zip(replies, expected)), (replies, expected)


@pytest.mark.parametrize("library", [library for library in GREETINGS if library != "rueidis"])
def test_twenty_clients_share_one_lane(redis, make_headgate, library):
    """One for each version of RESP, and one ready for each. But for rueidis, which says CLIENT TRACKING."""
    headgate = make_headgate(redis, pool="shared", lanes=1)
    clients = [headgate.connect() for _ in range(CLIENTS)]
    for client in clients:
        assert greet(client, GREETINGS[library])[-2:] == [OK, b"v"]

    def lanes():
        facts = stats(headgate)
        return {name: int(facts[name]) for name in ("clients_exclusive", "lanes_exclusive", "lanes_pooled")}

    wait_for(lambda: lanes()["lanes_exclusive"] == lanes()["lanes_pooled"], what="lanes to be given back")
    facts = lanes()
    assert facts["clients_exclusive"] == 0 and facts["lanes_pooled"] <= 2, facts
    assert int(stats(headgate)["lanes_shared"]) <= 2
    for client in clients:
        assert client("GET", "k") == b"v"


@pytest.mark.parametrize("library", IDENTIFIED)
def test_an_id_costs_a_lane_for_a_while(redis, make_headgate, library):
    headgate = make_headgate(redis, pool="shared", lanes=1, client_id_timeout="100ms")
    clients = [headgate.connect() for _ in range(CLIENTS)]
    for client in clients:
        assert greet(client, IDENTIFIED[library])[-2:] == [OK, b"v"]
    wait_for(lambda: int(stats(headgate)["clients_exclusive"]) == 0, what="clients to share again")
    assert int(stats(headgate)["lanes_shared"]) <= 2
    for client in clients:
        assert client("GET", "k") == b"v"


def test_maintenance_is_unknown_to_headgate(target):
    """Whatever the server would say: it would send clients past Headgate."""
    client = target.connect()
    for spelling in ("MAINT_NOTIFICATIONS", "maint_notifications", "Maint_Notifications"):
        text = f"ERR unknown subcommand '{spelling}'. Try CLIENT HELP."
        for arguments in ((), ("ON",), ("OFF",), ("on", "moving-endpoint-type", "internal-fqdn")):
            assert client("CLIENT", spelling, *arguments) == Error(text.encode())
    client("MULTI")
    assert isinstance(client("CLIENT", "MAINT_NOTIFICATIONS", "ON"), Error)
    assert client("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")
    client.send(
        encode("CLIENT", "REPLY", "SKIP") + encode("CLIENT", "MAINT_NOTIFICATIONS", "ON") + encode("ECHO", "seen")
    )
    assert client.read() == b"seen"


def test_a_server_that_has_the_feature_is_not_asked(fake, make_headgate, pool):
    said = []

    def answer(_lane, arguments):
        said.append(arguments[1].upper())
        return b"+OK\r\n"

    fake.answers["CLIENT"] = answer
    headgate = make_headgate(fake.url, pool=pool)
    client = headgate.connect()
    assert isinstance(client("HELLO", 3), Map)
    assert isinstance(client("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip"), Error)
    assert client("CLIENT", "SETNAME", "x") == OK
    assert b"MAINT_NOTIFICATIONS" not in said
