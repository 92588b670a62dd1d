"""CLIENTS and LANES with filters, and KILL, on the admin port."""

import itertools
import re

import pytest

from harness.admin import await_empty, stats, text
from harness.latency import words_of
from harness.resp import OK, PONG, Error, encode, wait_for
from harness.several import Several

MANY = 400


def ask(headgate, *words):
    with headgate.admin() as admin:
        return admin(*words)


def lines_of(headgate, *words):
    return [words_of(line) for line in text(ask(headgate, *words)).splitlines()]


def names_of(headgate, *words):
    return sorted(line["name"] for line in lines_of(headgate, *words))


def named(headgate, *names):
    await_empty(headgate)
    clients = {name: headgate.connect() for name in names}
    for name, client in clients.items():
        assert client("CLIENT", "SETNAME", name) == OK
    return clients


def address_of(client):
    return "%s:%d" % client.socket.getsockname()[:2]


@pytest.mark.threads
def test_clients_by_what_their_lines_have(make, redis):
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "alice", "on", ">secret", "~*", "+@all") == OK
    headgate = make("", threads=4)
    clients = named(headgate, "worker-1", "worker-2", "web")
    assert clients["web"]("AUTH", "alice", "secret") == OK
    assert clients["worker-2"]("SELECT", 3) == OK
    (line,) = lines_of(headgate, "CLIENTS", "name=web")
    for words, expected in (
        ("name=worker-*", "worker-1 worker-2"), ("name!=worker-*", "web"), ("NAME=worker-1", "worker-1"), ("user=alice", "web"),
        ("db=3 name=worker*", "worker-2"), ("db=3 name=web", ""), (f"addr={address_of(clients['web'])}", "web"),
        ("addr=127.0.0.0/8", "web worker-1 worker-2"), ("addr=10.0.0.0/8", ""), (f"id={line['id']}", "web"),
        ("age<86400 pending=0 idle>-1", "web worker-1 worker-2"), (f"id>{int(line['id']) - 1} id<{int(line['id']) + 1}", "web"),
    ):
        assert names_of(headgate, "CLIENTS", *words.split()) == expected.split(), words


def test_every_field_of_a_line_is_a_filter(make):
    headgate = make("")
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", "one") == OK
    assert client("SET", "k", "v") == OK
    for verb, chosen in (("CLIENTS", "name=one"), ("LANES", "state=ready")):
        line = lines_of(headgate, verb, chosen)[0]
        for name, value in line.items():
            if name not in ("age", "idle", "qbuf", "obuf"):
                assert line["id"] in [other["id"] for other in lines_of(headgate, verb, f"{name}={value}")], name
            assert lines_of(headgate, verb, f"{name}=-77") == []


NO_FILTERS = [
    *[("nme=x",), ("x",), ("name=",) * 13, ("COUNT",), ("COUNT", "0"), ("age=x",), ("name>x",), ("name=[",), ("ALL",), ("a\0=b",)],
    *[("name=" + 300 * "x",), ("\r\n+OK\r\n=x",), ("COUNT", "1", "COUNT")],
]


def test_what_is_no_filter(make_shared):
    headgate = make_shared("")
    client = headgate.connect()
    assert client("PING") == PONG
    for verb, words in itertools.product(("CLIENTS", "LANES", "KILL"), NO_FILTERS):
        with headgate.admin() as admin:
            if (verb, words) != ("KILL", ("ALL",)) and not (verb == "LANES" and words[0].startswith(("name", "age"))):
                assert isinstance(admin(verb, *words), Error), (verb, words)
            assert admin("PING") == PONG, "one answer, and no more"
            assert isinstance(admin("KILL"), Error) and isinstance(admin("KILL", "COUNT", "1"), Error)
            assert isinstance(admin("KILL", "ALL", "name=x"), Error)
    assert client("PING") == PONG, "nobody was closed"


@pytest.mark.threads
def test_many_clients(make):
    headgate = make("", threads=4)
    clients = [headgate.connect() for _ in range(MANY)]
    for client in clients[: MANY // 100]:
        client.send(encode("CLIENT", "SETNAME", "few") + encode("PING"))
    for client in clients[MANY // 100 :]:
        client.send(encode("PING"))
    for client in clients[: MANY // 100]:
        assert client.read_many(2) == [OK, PONG]
    for client in clients[MANY // 100 :]:
        assert client.read() == PONG
    assert len(lines_of(headgate, "CLIENTS")) == MANY
    assert names_of(headgate, "CLIENTS", "name=few") == ["few"] * (MANY // 100)
    assert len(lines_of(headgate, "CLIENTS", "COUNT", "300")) == 300
    assert len(lines_of(headgate, "CLIENTS", "name=few", "COUNT", "3")) == 3
    assert ask(headgate, "KILL", "name=", "COUNT", "100") == 100
    assert len(lines_of(headgate, "CLIENTS", "name=")) == MANY - MANY // 100 - 100
    assert ask(headgate, "KILL", "name=") == MANY - MANY // 100 - 100
    assert names_of(headgate, "CLIENTS") == ["few"] * (MANY // 100)
    assert stats(headgate)["clients_killed_total"] == str(MANY - MANY // 100)
    assert [client("PING") for client in clients[: MANY // 100]] == [PONG] * (MANY // 100)


def test_with_requests_under_way(make, redis):
    """Blocked, in a transaction, subscribed, within a long request: Redis is left as if they had gone."""
    headgate = make("")
    clients = named(headgate, "blocked", "transaction", "subscriber", "long")
    clients["blocked"].send(encode("BLPOP", "q", 0))
    clients["transaction"].send(encode("MULTI") + encode("SET", "k", "v"))
    clients["transaction"].read_many(2)
    clients["subscriber"]("SUBSCRIBE", "channel")
    clients["long"].send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10000000\r\nxxx")
    with redis.connect() as direct:
        wait_for(lambda: b"blocked_clients:1" in direct("INFO", "clients"), what="the wait")
        assert ask(headgate, "KILL", "ALL") == 4
        for client in clients.values():
            client.assert_closed()
        wait_for(lambda: b"blocked_clients:0" in direct("INFO", "clients"), what="the end of the wait")
        wait_for(lambda: direct("PUBSUB", "NUMSUB", "channel") == [b"channel", 0], what="the end of the subscription")
        assert direct("RPUSH", "q", "kept") == 1 and direct("LPOP", "q") == b"kept"
        assert direct("EXISTS", "k") == 0


def test_several_servers(make_headgate, make_redis):
    several = Several(make_headgate, {"cache": make_redis(), "queue": make_redis()}, threads=2)
    clients = {name: [several.connect(name) for _ in range(4)] for name in ("cache", "queue")}
    assert all(client("PING") == PONG for those in clients.values() for client in those)
    assert {words_of(line)["server"] for line in several.ask("CLIENTS").splitlines()} == {"cache", "queue"}
    lines = [words_of(line) for line in several.ask("CLIENTS", "server=cache").splitlines()]
    assert [line["server"] for line in lines] == ["cache"] * 4
    assert len(several.ask("SERVER", "queue", "CLIENTS", "COUNT", "3").splitlines()) == 3
    assert {words_of(line)["server"] for line in several.ask("LANES", "server=queue").splitlines()} == {"queue"}
    assert isinstance(several.reply("KILL", "ALL"), Error)
    assert several.reply("KILL", f"id={lines[0]['id']}") == 1
    assert several.reply("KILL", "server=cache") == 3
    assert several.reply("SERVER", "queue", "KILL", "name=") == 4
    last = several.connect("queue")
    assert last("PING") == PONG
    assert several.reply("SERVER", "cache", "KILL", "ALL") == 0
    assert several.reply("SERVER", "queue", "KILL", "ALL") == 1
    last.assert_closed()


def test_nothing_that_clients_spell_moves_a_terminal(make, redis):
    """Users and keys may have any bytes, and operators look at them, by whatever verb."""
    user = b"u\x1b]0;gone\x07\x9b31m\xc2\x9bm\x7f"
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", user, "on", ">p", "~*", "+@all") == OK
    headgate = make(
        "[latency]\nenabled = on\nslowlog_threshold = 1us\n[lease:l]\nkeys = *\n"
        "[limit:l]\ncommands = get\nlimit = 1\nwindow = 1m\nper = user\n"
    )
    with headgate.connect() as client:
        assert client("AUTH", user, "p") == OK and client("SET", user, "token", "NX", "PX", 60000) == OK
        assert client("GET", user) == b"token" and isinstance(client("GET", user), Error)
        for version in (2, 3):
            with headgate.admin() as admin:
                admin("HELLO", version)
                told = {verb: repr(admin(verb)) for verb in ("CLIENTS", "LANES", "LEASES", "LIMITS", "SLOWLOG", user)}
            for verb, answer in told.items():
                assert r"\\x1b" in answer and not re.search(r"(?<!\\)\\x", answer), (verb, answer)
