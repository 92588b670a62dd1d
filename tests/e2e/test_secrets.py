"""A secret that stands where it does not belong, or behind a name that is misspelt, is told nowhere: not in an answer of
the admin port, nor in the log, which is at debug, nor in what is recorded of requests, nor by -t."""

import pytest

from harness.admin import text
from harness.latency import ON
from harness.resp import Error, encode, wait_for
from harness.servers import run_headgate

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


def send_plainly(client):
    for words in REQUESTS:
        client(*words)


def send_pipelined(client):
    client.send(b"".join(encode(*words) for words in REQUESTS))
    client.read_many(len(REQUESTS))


def send_inline(client):
    for words in REQUESTS:
        client.send(inline(words))
        client.read()


def send_in_transactions(client):
    for words in REQUESTS:
        for part in (("MULTI",), words, ("EXEC",)):
            client(*part)


def recorded(headgate):
    """What can be asked of what clients did."""
    questions = [
        ("SLOWLOG", "1000"), ("BIGLOG", "1000"), ("HOTKEYS",), ("EVENTS",), ("LATENCY",), ("CLIENTS",), ("LIMITS",),
        ("COMMON", "slow", "warning"), ("RECENT", "slow", "warning"), ("RECENT", "refusals", "info"), ("STATS",),
    ]  # fmt: skip
    with headgate.admin() as admin:
        return {question: text(admin(*question)) for question in questions}


@pytest.mark.parametrize("send", [send_plainly, send_pipelined, send_inline, send_in_transactions])
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


# ---- the admin port ----


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


# ---- files ----

FILES = [
    "upstream_pw = {}",
    "upstream_pasword = {}",
    "pw: {}",
    "credential = {}",
    "upstream_password {} = x",
    "upstream_password = \"open\n{}2=\"\n",
    "upstream_password {}",
    "upstream_password = open\nupstream_password = {}",
    "upstream_password = open ; {}",
    "upstream_password = pa${{{}}}word",
    "upstream_password = ${{{}",
    "upstream_password = ${{NONE:-{}",
    "upstream = redis://alice:pa${{{}}}@db:1",
    "upstream = redis://alice:{}@:none",
    "x = redis://alice:{}@db:1",
    "x = ${{{}}}",
    "[nothing]\npassword = {}",
    "[limit:a]\npassword = {}",
    "[tls]\nkey_password = {}",
    "[listener:a]\npassword = {}",
    "[latency]\nupstream_pw = {}",
    "[server:a]\nupstream_pw = {}",
]


def test_files(tmp_path, redis, make_headgate):
    """By -t, in an included file, and by a reload."""
    headgate = make_headgate(redis, log_level="debug", reload_on_change="off")
    sound = headgate.config_path.read_text()
    for line in FILES:
        written = line.format(SECRET)
        (tmp_path / "whole.ini").write_text(f"[headgate]\nlisten = 127.0.0.1:1\n{written}\n")
        (tmp_path / "part.ini").write_text(f"[headgate]\n{written}\n")
        (tmp_path / "outer.ini").write_text("[headgate]\nlisten = 127.0.0.1:1\ninclude = part.ini\n")
        for name in ("whole.ini", "outer.ini"):
            result = run_headgate("-t", "-c", tmp_path / name)
            assert result.returncode != 0 and SECRET not in (result.stdout + result.stderr).lower(), result
        headgate.config_path.write_text(sound + (tmp_path / "part.ini").read_text())
        with headgate.admin() as admin:
            answer = admin("RELOAD")
        assert isinstance(answer, Error) and SECRET not in str(bytes(answer)).lower(), answer
        assert [found for found in headgate.log().splitlines() if SECRET in found.lower()] == [], line
