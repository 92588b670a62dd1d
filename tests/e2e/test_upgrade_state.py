"""What a process knows when another one takes over, which has to know it, too: permits and PAUSE; and what clients
have over an upgrade: figures of [latency], TLS."""

import os
import signal
import time

import pytest

from harness.admin import stats, text
from harness.certificates import certificates
from harness.http import ask, samples
from harness.latency import ON, on_record
from harness.leases import counter, leases, losses, rule, score_of, transact
from harness.resp import OK, PONG, wait_for
from harness.servers import free_port
from harness.tls import client_context, towards_clients

# Renewed after a third of it: a machine may stand still for seconds.
LEASE = 9


def by_start(client, key, token):
    now = time.time()
    sent = (("ZREMRANGEBYSCORE", key, "-inf", now - LEASE), ("ZADD", key, now, token), ("ZRANK", key, token))
    return transact(client, *sent)[2]


def by_expiry(client, key, token):
    now = time.time()
    sent = (("ZREMRANGEBYSCORE", key, "-inf", now), ("ZADD", key, now + LEASE, token), ("ZRANK", key, token))
    return transact(client, *sent)[2]


def held_by_rule(port, name):
    with_port = type("Web", (), {"http_port": port})
    return samples(ask(with_port, "/metrics").text)[f'headgate_lease_rule_held{{rule="{name}"}}']


def connect_as(headgate, name):
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", name) == OK
    return client


@pytest.mark.parametrize("take", [by_start, by_expiry])
def test_permits_go_to_the_process_that_their_owner_is_left_with(make_line, redis, take):
    web = free_port()
    line = make_line(rule(keys="sem:*", owner="client", limit=3), http=f"127.0.0.1:{web}")
    headgate = line.headgate
    old = connect_as(headgate, "worker-3")
    tokens = [f"id {number}\n%" for number in range(3)]
    assert [take(old, "sem:a", token) for token in tokens] == [0, 1, 2]
    wait_for(lambda: counter(headgate, "acquired_total") == 3, 30, "the permits to be watched")
    line.upgrade()
    fresh = connect_as(headgate, "worker-3")
    assert leases(headgate) == []
    old.close()
    wait_for(lambda: len(leases(headgate)) == 3, 30, "the permits in the new process")
    assert {lease["kind"] for lease in leases(headgate)} == {"semaphore"}
    scores = {token: score_of(redis, "sem:a", token) for token in tokens}
    wait_for(lambda: all(score_of(redis, "sem:a", token) > scores[token] for token in tokens), 60, "renewals")
    line.await_end(line.pids[0])
    assert fresh("ZREM", "sem:a", tokens[0]) == 1
    wait_for(lambda: held_by_rule(web, "a") == "2" and len(leases(headgate)) == 2, 30, "the release to be seen")
    assert not losses(headgate)
    fresh.close()
    wait_for(lambda: held_by_rule(web, "a") == "0" and leases(headgate) == [], 60, "the end of who has gone")


# ---- PAUSE ----


def await_held(headgate, count):
    wait_for(lambda: stats(headgate)["pause_held"] == str(count), 30, f"{count} clients to be held")


def test_a_pause_goes_on(make_line, redis):
    """No write of a client of the new process reaches Redis, from the first one on; RESUME there is for both."""
    line = make_line(threads=4)
    headgate = line.headgate
    stayer = headgate.connect()
    with headgate.admin() as admin:
        assert admin("PAUSE", "WRITE") == OK
    stayer.request("SET", "stayer", "v")
    await_held(headgate, 1)
    line.upgrade()
    clients = [headgate.connect() for _ in range(8)]
    for number, client in enumerate(clients):
        client.request("SET", f"key:{number}", "v")
    await_held(headgate, 8)
    assert redis.connect()("DBSIZE") == 0
    assert headgate.serves(), "reads go on"
    line.upgrade()
    with headgate.admin() as admin:
        assert stats(headgate)["pause_active"] == "1"
        assert admin("RESUME") == OK
    assert [client.read() for client in [stayer, *clients]] == [OK] * 9
    assert redis.connect()("DBSIZE") == 9


def test_a_pause_of_the_new_process_holds_clients_of_the_old_one(make_line, redis):
    line = make_line()
    headgate = line.headgate
    stayer = headgate.connect()
    with headgate.admin() as old:
        line.upgrade()
        with headgate.admin() as admin:
            for _ in range(2):
                assert admin("PAUSE") == OK
                wait_for(lambda: b"pause_active:1" in old("STATS", "pause"), 30, "the old process to follow")
                stayer.request("INCR", "n")
                wait_for(lambda: b"pause_held:1" in old("STATS", "pause"), 30, "its client to be held")
                assert admin("RESUME") == OK
                stayer.read()
            # An order to the old one counts as well, as it was the last.
            assert old("PAUSE") == OK
            wait_for(lambda: b"pause_active:1" in admin("STATS", "pause"), 30, "the new process to follow")
            assert admin("RESUME") == OK
            wait_for(lambda: b"pause_active:0" in old("STATS", "pause"), 30, "the old process to follow")
    assert redis.connect()("GET", "n") == b"2"


# ---- LIMITS ----


def figures(headgate):
    """What LIMITS says that each rule has admitted and refused."""
    with headgate.admin() as admin:
        lines = text(admin("LIMITS")).splitlines()
    rules = [dict(word.partition("=")[::2] for word in line.split()) for line in lines if line.startswith("rule=")]
    return {rule["rule"]: (int(rule["admitted"]), int(rule["refused"])) for rule in rules}


LIMITS = """
[limit:few]
commands = incr
per = user
limit = 3
window = 1h
[limit:shared]
commands = decr
scope = global
per = user
limit = 2
window = 1h
"""


# ---- a process with one before it ----

# A new process that takes its time between what it is told and its first client, and notes down what it hears.
SLOW_TO_SERVE = """
import pathlib, socket, time
line = socket.socket(fileno=3)
line.setblocking(True)
def hear():
    message = line.recv(1 << 17)
    with open("{directory}/heard", "ab") as heard:
        heard.write(message + b"\\n")
    assert message, "the old process has gone"
    return message.split(b"\\n")[0]
ports = 0
while (word := hear()) != b"PORTS":
    ports += word == b"PORT"
line.send(b"READY\\n" + b"1" * ports)
while hear() != b"STATE":
    pass
while not pathlib.Path("{directory}/go").exists():
    time.sleep(0.05)
line.send(b"SERVING\\n")
while True:
    hear()
"""


def start_slowly(line):
    """A process that is to take over, and hears all; and the order for it."""
    directory = line.headgate.directory
    (directory / "program.py").write_text(SLOW_TO_SERVE.format(directory=directory))
    line.install_script(f"exec python3 {directory}/program.py")
    order = line.order_later()
    heard = directory / "heard"
    wait_for(lambda: heard.exists() and b"STATE\n" in heard.read_bytes(), 30, "all to be told")
    return line.children()[0], order, heard


def test_a_third_process_hears_of_a_pause_until_it_serves(make_line):
    line = make_line(upgrade_start_timeout="120s")
    first = line.headgate.connect()
    assert first("PING") == PONG
    line.upgrade()
    with line.headgate.admin() as admin:
        child, order, heard = start_slowly(line)
        try:
            assert admin("PAUSE", "WRITE") == OK
            assert admin("RESUME") == OK
            (line.headgate.directory / "go").touch()
            assert order.wait(60) == 0
            wait_for(lambda: b"\npause 0 " in heard.read_bytes(), 30, "the third process to hear of RESUME")
        finally:
            os.kill(child, signal.SIGKILL)
            order.communicate(timeout=60)


def test_each_request_is_on_record_once(make_line, redis):
    """Each of three processes writes its own part of the minute, and the last of it when its clients are gone."""
    line = make_line(ON, threads=4)
    clients, sent = [], 0

    def ask_all(times):
        for client in clients:
            for _ in range(times):
                assert client("GET", "key") is None
        return times * len(clients)

    for _ in range(3):
        clients += [line.headgate.connect() for _ in range(3)]
        sent += ask_all(7)
        if len(clients) < 9:
            line.upgrade()
        sent += ask_all(5)
    # The first two end by themselves, the last one by a signal.
    for client in clients[:6]:
        assert client("GET", "key") is None
        client.close()
    line.await_end(line.pids[0])
    line.await_end(line.pids[1])
    for client in clients[6:]:
        assert client("GET", "key") is None
    line.finish()
    sums = on_record(redis)
    assert (sums["count"], sums["hist"]) == (sent + 9, sent + 9), sums


# ---- TLS ----


def test_tls_clients(make_line):
    """A ticket is good for the process that gave it: at the new one it is a handshake as of a new client."""
    line = make_line(
        "[identity:app]\ncertificate = cn:app\n", tls=True, client_certificates="optional", tls_ca=certificates().both_ca,
        **towards_clients(),
    )  # fmt: skip
    context = client_context()
    old = line.headgate.connect(context)
    assert old("SET", "key", "value") == OK
    line.upgrade()
    for _ in range(2):
        fresh = line.headgate.connect(context, session=old.socket.tls.session)
        assert fresh("GET", "key") == b"value" and not fresh.socket.tls.session_reused
    again = line.headgate.connect(context, session=fresh.socket.tls.session)
    assert again("GET", "key") == b"value" and again.socket.tls.session_reused
    assert old("GET", "key") == b"value"
