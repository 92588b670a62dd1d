"""TRACE, MONITOR and TOP on the admin port."""

import contextlib
import itertools
import signal
import socket
import threading
import time

import pytest

from harness.admin import stats, text
from harness.latency import words_of
from harness.limits import rule as limit
from harness.resp import OK, PONG, QUEUED, Error, encode, wait_for
from harness.rules import reload
from harness.world import breathe

FIELDS = "time worker id addr name user identity db op args bytes lane waited redis verdict rule reply rbytes".split()


def ask(headgate, *words):
    with headgate.admin() as admin:
        return admin(*words)


def traces(headgate):
    return int(stats(headgate, "trace")["traces"])


def told(headgate):
    """Lines, of all traces."""
    return int(stats(headgate, "trace")["trace_lines_total"])


@contextlib.contextmanager
def traced(headgate, *words, verb="TRACE", workers=1, count=None):
    """Yields a list, which has the lines of the answer behind the block, but for the last one; and the whole answer.
    count: how many lines end it, however long they take."""
    lines = []
    words += ("COUNT", str(count), "FOR", "300") if count else ()
    before, told_before = traces(headgate), told(headgate)
    with headgate.admin() as admin:
        admin.request(verb, *words)
        # Under load it may have ended already.
        wait_for(lambda: traces(headgate) == before + workers or told(headgate) > told_before, what="the trace to begin")
        yield lines
        answer = text(admin.read()).splitlines()
        last = words_of(answer[-1])
        assert last["end"] == "1" and int(last["lines"]) == len(answer) - 1, answer
        lines += [dict(word.partition("=")[::2] for word in line.split(" ")) for line in answer[:-1]]
    wait_for(lambda: traces(headgate) == before, what="the trace to end")


# ---- TRACE ----


@pytest.mark.threads
def test_what_clients_do(make):
    """Each request is told of once, whatever becomes of it, and with what it was answered."""
    headgate = make("", threads=4)
    client, left, observer = headgate.connect(), headgate.connect(), headgate.connect()
    assert client("CLIENT", "SETNAME", "web") == left("CLIENT", "SETNAME", "left") == OK
    with traced(headgate, "op!=info", workers=4, count=116) as lines:
        assert client("SET", "k", "value") == OK
        assert client("GET", "k") == b"value"
        assert client("GET", "none") == None
        assert isinstance(client("LPUSH", "k", "x"), Error)
        client.send(encode("INCR", "n") * 100)
        assert client.read_many(100) == list(range(1, 101))
        assert client("MULTI") == OK and client("SET", "k", "v") == QUEUED and client("EXEC") == [OK]
        client.send(encode("CLIENT", "REPLY", "SKIP") + encode("SET", "k", "w") + encode("GET", "k"))
        assert client.read() == b"w"
        assert client("SET", "long", "x" * 1000000) == OK
        client.send(encode("SUBSCRIBE", "a", "b"))
        client.read_many(2)
        client.send(encode("UNSUBSCRIBE"))
        client.read_many(2)
        left.request("BLPOP", "q", "0")
        wait_for(lambda: b"blocked_clients:1" in observer("INFO", "clients"), what="the wait")
        left.close()
        wait_for(lambda: b"blocked_clients:0" in observer("INFO", "clients"), what="its end")
        client.send(b"PING\r\n" + encode("QUIT"))
        assert client.read_many(2) == [PONG, OK]
    mine = [line for line in lines if line["name"] == "web"]
    behind = ["multi", "set", "exec", "client|reply", "set", "get", "set", "subscribe", "unsubscribe", "ping", "quit"]
    assert [line["op"] for line in mine] == ["set", "get", "get", "lpush"] + ["incr"] * 100 + behind
    assert list(mine[0]) == FIELDS
    assert [line["reply"] for line in mine[:4]] == ["status", "bulk", "null", "error:WRONGTYPE"]
    assert (mine[0]["args"], mine[0]["bytes"]) == ("3", str(len(encode("SET", "k", "value"))))
    assert mine[1]["rbytes"] == str(len(b"$5\r\nvalue\r\n")) and int(mine[-5]["bytes"]) > 1000000
    assert {line["addr"] for line in mine} == {"%s:%d" % client.socket.getsockname()[:2]}
    assert {line["verdict"] for line in mine[:104]} == {"passed"} and int(mine[0]["lane"]) > 0
    assert "left" in [line["verdict"] for line in mine[-8:]], "nobody is answered"
    assert all(float(line["redis"]) >= 0 and float(line["waited"]) >= 0 for line in mine[:104])
    assert [(line["op"], line["verdict"] in ("left", "lost")) for line in lines if line["name"] == "left"] == [("blpop", True)]
    assert observer("GET", "n") == b"100", "nobody is traced any more, and all goes on"


def test_keys_are_bounded_and_fit_for_a_line(make):
    headgate = make("")
    client = headgate.connect()
    with traced(headgate, "KEYS", count=3) as lines:
        client("MGET", *(f"k{number}" for number in range(1000)))
        client("GET", b"a b\r\n,\"\\\xff\0")
        client("GET", "x" * 100000)
    assert lines[0]["keys"] == ",".join(f"k{number}" for number in range(8)) + ",+992"
    assert lines[1]["keys"] == r"a\x20b\x0d\x0a\x2c\x22\x5c\xff\x00"
    assert lines[2]["keys"] == "x" * 96 + "..."


def test_what_policies_decide(make):
    headgate = make(limit("few", limit=1, per="connection") + "[deny:never]\ncommands = flushall\n")
    client = headgate.connect()
    with traced(headgate, count=54) as lines:
        assert client("INCR", "n") == 1
        assert isinstance(client("INCR", "n"), Error)
        assert isinstance(client("FLUSHALL"), Error)
        client.send(encode("INCR", "n") * 50 + encode("PING"))
        client.read_many(51)
    assert [line["verdict"] for line in lines] == ["passed"] + ["refused"] * 52 + [lines[-1]["verdict"]]
    assert [line["rule"] for line in lines[:3]] == ["", "limit:few", "deny:never"]
    refused = lines[1]
    assert (refused["redis"], refused["lane"]) == ("", "0"), "it was never sent"


def test_filters(make):
    headgate = make("")
    client, other = headgate.connect(), headgate.connect()
    assert client("CLIENT", "SETNAME", "web") == OK

    def work():
        for one in (client, other):
            assert one("SET", "k", "v" * 1000) == OK
            assert one("GET", "none") == None
            assert one("CONFIG", "GET", "maxmemory")

    for words, expected in (
        (("op=*|get", "name!=web"), ["config|get"]), (("addr=127.0.0.0/8", "bytes>1000"), ["set", "set"]),
        (("addr=10.0.0.0/8", "FOR", "1"), []), (("verdict=passed", "rbytes=5", "user=default", "db=0", "name=web"), ["set", "get"]),
        (("redis>-1", "redis<100000000", "op=get"), ["get", "get"]), (("redis>100000000", "verdict=refused", "FOR", "1"), []),
    ):
        # The first time shows what there is too much, the second one ends it.
        with traced(headgate, *words, count=2 * len(expected)) as lines:
            work()
            work()
        assert [line["op"] for line in lines] == 2 * expected, words


NO_TRACES = [
    *[("x",), ("FOR",), ("FOR", "301"), ("COUNT", "0"), ("SAMPLE",), ("SAMPLE", "1/0"), ("SAMPLE", "101%"), ("SAMPLE", "nan%")],
    *[("SAMPLE", "%"), ("redis=x",), ("\r\n+OK\r\n=1",), ("op=get",) * 13, ("KEYS", "KEY"), ("SAMPLE", "1/99999999999")],
]


def test_what_is_no_trace(make_shared):
    headgate = make_shared("", threads=2)
    for verb, words in itertools.product(("TRACE", "MONITOR"), NO_TRACES):
        with headgate.admin() as admin:
            assert isinstance(admin(verb, *words), Error), (verb, words)
            assert admin("PING") == PONG, "one answer, and no more"
    assert traces(headgate) == 0


def test_too_many(make_shared):
    headgate = make_shared("")
    admins = [headgate.admin() for _ in range(8)]
    for admin in admins:
        admin.request("TRACE", "FOR", "300")
    wait_for(lambda: traces(headgate) == 8, what="eight of them")
    assert b"too many" in ask(headgate, "TRACE")
    client = headgate.connect()
    assert client("PING") == PONG
    for admin in admins:
        admin.close()
    wait_for(lambda: traces(headgate) == 0, 60, "their end, as nobody waits for them any more")
    assert client("PING") == PONG


# ---- MONITOR ----


def monitor(headgate, *words):
    admin = headgate.admin()
    admin.request("MONITOR", *words)
    assert admin.read() == OK
    return admin


@pytest.mark.real  # A window that is closed is asked for by the kernel's own timer.
def test_a_slow_reader_loses_lines(make):
    """Clients do not notice, and memory is bounded."""
    headgate = make("", threads=2)
    slow = headgate.admin()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.request("MONITOR", "FOR", "300", "COUNT", "1000000")
    clients = [headgate.connect() for _ in range(4)]
    wait_for(lambda: traces(headgate) == 2, what="the trace")
    before = int(stats(headgate)["resident_bytes"])

    def lost():
        for client in clients:
            client.send(encode("PING") * 2000)
            assert client.read_many(2000) == [PONG] * 2000
        return int(stats(headgate)["trace_lost_total"]) > 5000

    wait_for(lost, 120, "losses")
    assert int(stats(headgate)["resident_bytes"]) - before < 64 * 1024 * 1024
    assert slow.read() == OK
    assert words_of(slow.read().decode())["op"] == "ping", "what was kept is whole"
    slow.close()
    wait_for(lambda: traces(headgate) == 0, what="the end")


def has_ended(connection, pieces):
    """Takes what there is; whether that was all."""
    with contextlib.suppress(BlockingIOError):
        pieces.append(connection.recv(65536))
    return pieces[-1:] == [b""]


@pytest.mark.parametrize("question, family", [
    ("TRACE COUNT 100000 FOR 13", socket.AF_INET), ("TOP 2", socket.AF_UNIX), ("MONITOR COUNT 1 FOR 300", socket.AF_UNIX),
])  # fmt: skip
def test_who_sends_no_more_has_the_answer(make, tmp_path, question, family):
    """printf 'TRACE\r\n' | nc -N: the end of the input comes with the question."""
    path = tmp_path / "admin.sock"
    headgate = make("", threads=2, **({"admin": f"unix:{path}"} if family == socket.AF_UNIX else {}))
    client = headgate.connect()

    def answer():
        with socket.socket(family) as admin:
            admin.connect(str(path) if family == socket.AF_UNIX else headgate.admin_address)
            began = time.monotonic()
            admin.send(f"{question}\r\n".encode(), socket.MSG_MORE)
            admin.shutdown(socket.SHUT_WR)
            admin.setblocking(False)
            pieces = []
            wait_for(lambda: client("PING") == PONG and has_ended(admin, pieces), 60, "the end")
        text = b"".join(pieces).decode()
        assert "end=1 lines=" in text or question.startswith("TOP"), text
        assert text.count("input=ended") == question.startswith("MONITOR")
        assert "FOR 300" in question or time.monotonic() - began > int(question.split()[-1]) - 1, "it goes on to its end"
        return text

    # On a busy machine there may be no PING within two seconds.
    wait_for(lambda: "op=ping" in answer(), 60, "an answer that has a request")


# ---- meanwhile ----


def test_a_reload_meanwhile(make):
    headgate = make(limit("few", limit=1, per="connection"))
    client = headgate.connect()
    with traced(headgate, "op!=strlen", count=4) as lines:
        assert client("INCR", "n") == 1
        assert isinstance(client("INCR", "n"), Error)
        reload(headgate, limit("none", limit=1, per="connection", commands="decr"), client)
        assert client("DECR", "n") == 0
        assert isinstance(client("DECR", "n"), Error)
    assert [line["rule"] for line in lines] == ["", "limit:few", "", "limit:none"]


def test_the_process_ends_meanwhile(make):
    headgate = make("", threads=2)
    client = headgate.connect()
    assert client("PING") == PONG
    admins = [headgate.admin() for _ in range(3)]
    admins[0].request("TRACE", "FOR", "300")
    admins[1].request("MONITOR", "FOR", "300")
    admins[2].request("TOP", "8")
    wait_for(lambda: traces(headgate) == 4, what="the traces")
    client.send(encode("BLPOP", "q", "0"))
    wait_for(lambda: b"pending=1" in ask(headgate, "CLIENTS"), what="the request")
    headgate.signal(signal.SIGTERM)
    assert headgate.wait() == 0


@pytest.mark.threads
def test_beginning_and_ending_under_load(make):
    """Replies are those of the requests, before, while and after."""
    headgate = make(limit("few", limit=10), threads=4)
    stop = threading.Event()
    faults = []

    def work(number):
        request, reply = encode("ECHO", f"mine-{number}") * 100, b"$6\r\nmine-%d\r\n" % number * 100
        with headgate.connect() as client:
            while not stop.is_set():
                client.send(request + encode("INCR", "n"))
                if (told := client.read_exactly(len(reply))) != reply:
                    faults.append(told)
                client.read()
                breathe()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(2):
        with traced(headgate, "SAMPLE", "1/3", workers=4, count=200) as lines:
            pass
        assert len(lines) == 200
        with headgate.admin() as admin:
            admin.request("MONITOR")
            assert admin.read() == OK
            line = admin.read().decode()
            line = admin.read().decode() if line == "sampled=1" else line
            assert words_of(line)["op"] in ("echo", "incr")
        wait_for(lambda: traces(headgate) == 0, what="the end")
    # They look away before they cost clients much, and each says so.
    wait_for(lambda: " watched=" in (told := text(ask(headgate, "TOP", "1"))).splitlines()[0] and "op=echo" in told, 60, "a sample")
    with monitor(headgate, "FOR", "300") as admin:
        while (line := admin.read()) != b"sampled=1":
            assert line.startswith(b"time=")
    assert int(stats(headgate, "trace")["trace_pauses_total"]) > 0
    stop.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert faults == []
    wait_for(lambda: "watched" not in text(ask(headgate, "TOP", "1")), 60, "all to be looked at again")


# ---- TOP ----


def rows(answer, kind):
    return [words_of(line) for line in answer.splitlines() if line.startswith(f"top={kind} ")]


@contextlib.contextmanager
def busy(headgate, *requests):
    """Clients, each of which sends its request again and again."""
    stop = threading.Event()

    def work(number, request):
        with headgate.connect() as client:
            client("CLIENT", "SETNAME", f"busy{number}")
            while not stop.is_set():
                client(*request)
                breathe()

    workers = [threading.Thread(target=work, args=pair) for pair in enumerate(requests)]
    for worker in workers:
        worker.start()
    wait_for(lambda: len(text(ask(headgate, "CLIENTS", "name=busy*")).splitlines()) == len(requests), what="all")
    yield
    stop.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()


@pytest.mark.threads
def test_the_busiest(make):
    headgate = make("", threads=4)
    with busy(headgate, ("GET", "hot"), ("SET", "cold", "x" * 10000)):
        answer = text(ask(headgate, "TOP", "2"))
    everything = rows(answer, "all")[0]
    assert float(everything["seconds"]) >= 2 and int(everything["requests"]) > 0
    clients = rows(answer, "client")
    assert {client["name"] for client in clients} == {"busy0", "busy1"}
    assert sum(int(client["requests"]) for client in clients) == int(everything["requests"])
    get, put = (next(row for row in rows(answer, "operation") if row["op"] == op) for op in ("get", "set"))
    assert int(put["in"]) > 10000 * (int(put["requests"]) - 1) > int(get["in"])
    assert float(get["redis"]) > 0 and float(get["per_second"]) > 0 and int(get["out"]) > 0
    assert {row["key"] for row in rows(answer, "key")} == {"hot", "cold"}


def test_what_is_no_top(make_shared):
    with make_shared("").admin() as admin:
        for words in ("0", "9", "x", "COUNT", "COUNT 0", "COUNT 513", "BY x", "BY", "2 2"):
            assert isinstance(admin("TOP", *words.split()), Error), words
