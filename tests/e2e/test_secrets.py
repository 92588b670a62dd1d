"""A secret that stands where it does not belong, or behind a name that is misspelt, is told nowhere: not in an answer of
the admin port, nor in the log, which is at debug, nor in what is recorded of requests, nor by -t."""

import pytest

from harness.admin import text
from harness.latency import ON
from harness.resp import encode, wait_for

SECRET = "sesame"
# All that is recorded of requests. Each of them is slow.
RECORDS = (
    ON + "slowlog_threshold = 1us\nbiglog_request = 1\nbiglog_reply = 1\nlog_values = on\n"
    "[events]\nenabled = on\n[limit:few]\ncommands = *\nper = user\nlimit = 3\nwindow = 1h\naction = observe\n"
)

REQUESTS = [
    ("AUTH", SECRET),
    ("AUTH", "default", SECRET),
    ("AUTH", "default", "open", SECRET),
    ("AUHT", SECRET),
    (SECRET,),
    (SECRET, "default"),
    ("HELLO", "3", "AUTH", "default", SECRET),
    ("HELLO", "3", "AUHT", "default", SECRET),
    ("HELLO", SECRET),
    ("CONFIG", "SET", "masterauth", SECRET),
    ("CONFIG", "SET", "maxmemory", "0", "masterauth", SECRET),
    ("CONFIG", "SET", "maxmemory", "masterauth", SECRET),
    ("CONFIG", "SET", "masteruath", SECRET),
    ("CONFIG", "SET", f"masterauth={SECRET}"),
    ("CONFIG", "SETT", "masterauth", SECRET),
    ("CONFIG", "masterauth", SECRET),
    ("CONFIG", SECRET),
    ("ACL", "SETUSER", "alice", "on", f">{SECRET}"),
    ("ACL", "SETUESR", "alice", f">{SECRET}"),
    ("ACL", f">{SECRET}"),
    ("MIGRATE", "127.0.0.1", "1", "k", "0", "10", "AUTH", SECRET),
    ("MIGRATE", "127.0.0.1", "1", "k", "0", "10", "COPY", "AUTH2", "alice", SECRET),
    ("MIGRATE", "127.0.0.1", "1", "k", "0", "10", "AUHT", SECRET),
    ("SENTINEL", "SET", "m", "auth-pass", SECRET),
    ("SENTINEL", "auth-pass", SECRET),
    ("MODULE", "LOAD", "/nowhere.so", SECRET),
    ("EVAL", f"return redis.call('MIGRATE','127.0.0.1',1,'k',0,10,'AUTH','{SECRET}')", "0"),
    ("EVAL", "return redis.call('MIGRATE','127.0.0.1',1,'k',0,10,'AUTH',ARGV[1])", "0", SECRET),
    ("EVAL", f"return redis.pcall('AUTH','{SECRET}')", "0"),
    ("SCRIPT", "LOAD", f"return redis.pcall('AUTH','{SECRET}')"),
    ("FUNCTION", "LOAD", f"#!lua name=m return redis.pcall('AUTH','{SECRET}')"),
    ("FUNCTION", "LOAD", "REPLACE", f"#!lua name=m return redis.pcall('AUTH','{SECRET}')"),
    ("COMMAND", "GETKEYS", "MIGRATE", "127.0.0.1", "1", "k", "0", "10", "AUTH", SECRET),
    ("COMMAND", "GETKEYSANDFLAGS", "HELLO", "3", "AUTH", "default", SECRET),
]


def inline(words):
    """Some words are quoted that need not be."""
    quoted = [f'"{word}"' if index % 2 or set(word) & set("' ") else word for index, word in enumerate(words)]
    return " ".join(quoted).encode() + b"\r\n"


def send_pipelined(client):
    client.send(b"".join(encode(*words) for words in REQUESTS))
    client.read_many(len(REQUESTS))


def send_inline(client):
    """Each by itself, and within a transaction."""
    for words in REQUESTS:
        for line in (inline(words), b"MULTI\r\n", inline(words), b"EXEC\r\n"):
            client.send(line)
            client.read()


def recorded(headgate):
    """What can be asked of what clients did."""
    questions = [
        ("SLOWLOG", "1000"), ("BIGLOG", "1000"), ("HOTKEYS",), ("EVENTS",), ("LATENCY",), ("CLIENTS",), ("LIMITS",),
        ("COMMON", "slow", "warning"), ("RECENT", "slow", "warning"), ("RECENT", "refusals", "info"), ("STATS",),
    ]  # fmt: skip
    with headgate.admin() as admin:
        return {question: text(admin(*question)) for question in questions}


@pytest.mark.parametrize("send", [send_pipelined, send_inline])
def test_requests(redis, make_headgate, pool, send):
    headgate = make_headgate(redis, start=False, pool=pool, log_level="debug")
    headgate.write_rules(RECORDS)
    headgate.start()
    with headgate.admin() as trace, headgate.admin() as monitor, headgate.connect() as client:
        trace.request("TRACE", "KEYS", "FOR", "5")
        monitor.request("MONITOR", "FOR", "5")
        send(client)
        assert client("ECHO", "the last one")
        wait_for(lambda: "the last one" in recorded(headgate)["SLOWLOG", "1000"], 30, "all to be on record")
        found = {**recorded(headgate), "log": headgate.log(), "trace": trace.read(), "monitor": monitor.read()}
    for place, what in found.items():
        lines = what if isinstance(what, list) else str(what).splitlines()
        assert [line for line in lines if SECRET in str(line).lower()] == [], place


def spellings():
    names = ["upstream_pasword", "upstream-password", "UPSTREAM_PASSWD", "pw", "pwd", "requirepass", "masterauth", "x"]
    for name in names:
        yield ("CONFIG", "SET", name, SECRET)
        yield ("CONFIG", "SET", f"{name}={SECRET}")
        yield ("CONFIG", "SET", f"{name}={SECRET}", "x")
        yield ("CONFIG", "SET", "max_clients", "50", name, SECRET)
        yield ("CONFIG", "SET", name, SECRET, "max_clients", "50")
        yield ("CONFIG", "SET", f"server:default.{name}", SECRET)
        yield ("CONFIG", "SET", f"limit:none.{name}", SECRET)
        yield ("CONFIG", "SET", f"latency.{name}", SECRET)
        yield ("CONFIG", "SETT", name, SECRET)
        yield ("CONFIG", name, SECRET)
        yield ("CONFGI", "SET", name, SECRET)
        yield ("SERVER", "default", "CONFIG", "SET", name, SECRET)
        yield ("SERVER", "nobody", "CONFIG", "SET", name, SECRET)
    yield ("CONFIG", "SET", "max_clients", SECRET, SECRET)
    yield ("AUHT", SECRET)
    yield ("HELLO", "3", "AUHT", "default", SECRET)
    yield ("HELLO", "3", "AUTH", "default", SECRET)
    yield ("PAUSE", SECRET, SECRET, SECRET)


def test_orders_at_the_admin_port(redis, make_headgate):
    headgate = make_headgate(redis, log_level="debug")
    with headgate.admin() as admin:
        for words in spellings():
            answer = admin(*words)
            assert SECRET not in str(answer).lower(), (words, answer)
            admin.send(inline(words))
            answer = admin.read()
            assert SECRET not in str(answer).lower(), (words, answer)
    assert [line for line in headgate.log().splitlines() if SECRET in line.lower()] == []
