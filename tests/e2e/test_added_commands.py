"""CL.THROTTLE and DELIFEQ on servers that lack them: replies, errors, transactions, and stepping aside."""

import pytest

from harness.resp import OK, QUEUED, Error, bulk, wait_for


@pytest.fixture
def client(redis, pool, make_headgate):
    return make_headgate(redis, pool=pool).connect()


def error(text):
    return Error(text.encode())


def test_a_burst_and_then_no_more(client):
    replies = [client("CL.THROTTLE", "user:1", 4, 1, 3600) for _ in range(6)]
    assert [reply[:4] for reply in replies] == [[0, 5, left, -1] for left in (4, 3, 2, 1, 0)] + [[1, 5, 0, replies[5][3]]]
    assert 3590 <= replies[5][3] <= 3600
    assert 5 * 3600 - 10 <= replies[5][4] <= 5 * 3600


@pytest.mark.parametrize("name", ("delifeq", "delifequals"))
def test_delifeq(client, name):
    """By its name in Valkey, and by that of articles."""
    value = bytes(range(256)) * 2000
    assert client("SET", "lock", value) == OK
    assert client(name, "lock", value[:-1] + b"x") == 0
    assert client("GET", "lock") == value
    assert [client(name.upper(), "lock", value) for _ in range(2)] == [1, 0]
    arity = error(f"ERR wrong number of arguments for '{name}' command")
    assert client(name) == client(name, "a") == client(name, "a", "b", "c") == arity
    client("RPUSH", "list", "a")
    assert client(name, "list", "a").startswith(b"WRONGTYPE")


def test_in_a_transaction(client):
    words = [("SET", "a", 1), ("DELIFEQ", "a", 1), ("CL.THROTTLE", "t", "+0", "01", 60)]
    replies = client.pipeline([("MULTI",), *words, ("EXEC",)])
    assert replies[:4] == [OK, QUEUED, QUEUED, QUEUED]
    assert replies[4][:2] == [OK, 1] and replies[4][2][:3] == [0, 1, 0]
    replies = client.pipeline([("MULTI",), ("SET", "a", 1), ("DELIFEQ", "a"), ("EXEC",), ("EXISTS", "a")])
    assert replies[3].startswith(b"EXECABORT") and replies[4] == 0


def test_without_replies_and_in_resp3(client):
    client("HELLO", 3)
    client.request("CLIENT", "REPLY", "SKIP")
    client.request("CL.THROTTLE", "t", 0, 1, 60)
    assert client("CL.THROTTLE", "t", 0, 1, 60)[0] == 1
    assert client("DELIFEQ", "none", "x") == 0


def answer_with(names):
    """COMMAND of a server that has these commands."""

    def answer(_lane, arguments):
        if arguments[1].upper() == b"LIST":
            return b"*%d\r\n" % len(names) + b"".join(bulk(name) for name in names)
        asked = [name.decode() for name in arguments[2:]]
        infos = [b"*6\r\n" + bulk(name) + b":-2\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n" for name in asked]
        return b"*%d\r\n" % len(asked) + b"".join(infos)

    return answer


def test_what_the_server_has_goes_through(fake, make_headgate):
    fake.answers["COMMAND"] = answer_with(["get", "delifeq", "cl.throttle", "new"])
    headgate = make_headgate(fake.url, log_level="debug")
    wait_for(lambda: "learned command new" in headgate.log(), what="what the server has")
    with headgate.connect() as client:
        client.request("DELIFEQ", "k", "v")
        fake.expect("DELIFEQ", "k", "v").reply(b":7\r\n")
        assert client.read() == 7
        client.request("CL.THROTTLE", "k", "bad")
        fake.expect("CL.THROTTLE", "k", "bad").reply(b"-ERR of the module\r\n")
        assert client.read() == error("ERR of the module")


# To try the command has this error, within a script.
FAILING = """local redis = setmetatable({{acl_check_cmd = {}, pcall = function(name, ...)
    if name ~= 'GET' then return {{err = '{}'}} end
    return redis.pcall(name, ...)
end}}, {{__index = redis}})
"""
UNKNOWN = "ERR Unknown Redis command called from script", "ERR Unknown command", "@user_script: 9: Unknown Redis command"

DENIED = "function() return false end", "ERR The user executing the script may not run this command"


@pytest.mark.parametrize(
    ("look", "failure"), [*(("false", text) for text in (*UNKNOWN, "NOPERM no permissions", "Cell error: Store error")), DENIED]
)
def test_until_the_server_has_told_the_script_tries_first(fake, make_headgate, redis, look, failure):
    """Servers before 7.0 never tell, and each says in other words that there is no such command; later ones are asked."""
    fake.answers["COMMAND"] = lambda _lane, _arguments: b"-ERR Unknown subcommand\r\n"
    headgate = make_headgate(fake.url)
    with headgate.connect() as client, redis.connect() as direct:
        for words in (["DELIFEQ", "k", "v"], ["CL.THROTTLE", "t", 4, 1, 3600]):
            client.request(*words)
            command = fake.next()
            assert command.arguments[0] == b"EVAL" and command.arguments[-1] == b"try"
            reply = direct("EVAL", FAILING.format(look, failure).encode() + command.arguments[1], *command.arguments[2:])
            own = [0, 5, 4, -1, 3600] if words[3:] else 0
            assert reply == (own if failure in UNKNOWN else error(failure))
            command.reply(b":1\r\n")
            assert client.read() == 1
