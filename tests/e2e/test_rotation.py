"""The password of upstream_user is exchanged while clients are at work: none is closed, and no request fails."""

import threading
import time

import pytest

from harness.resp import OK, QUEUED, wait_for

PATIENCE = 40
TAKEN = "takes the new password of user app"
NOT_TAKEN = "does not take the new password of user app"


def add_user(direct, *words):
    assert direct("ACL", "SETUSER", "app", "on", *words, "~*", "&*", "+@all") == OK


@pytest.fixture
def direct(redis):
    with redis.connect() as client:
        add_user(client, ">old")
        yield client


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    put(path, "old")
    return path


def put(path, text):
    fresh = path.with_name("fresh")
    fresh.write_text(text + "\n")
    fresh.chmod(0o600)
    fresh.rename(path)


@pytest.fixture
def headgate(redis, pool, direct, secret, make_headgate):
    return make_headgate(
        redis, pool=pool, threads=4, upstream_user="app", upstream_password_file=secret, lanes=2
    )


def await_lines(headgate, text, count):
    wait_for(lambda: headgate.log().count(text) >= count, what=text, seconds=PATIENCE)


def workers(headgate):
    return int(headgate.options["threads"])


class Load:
    """Clients that ask all the time, and check each answer."""

    def __init__(self, headgate, count=8):
        self.ended = threading.Event()
        self.faults = []
        self.rounds = [0] * count
        clients = [headgate.connect() for _ in range(count)]
        self.threads = [threading.Thread(target=self._work, args=item) for item in enumerate(clients)]
        for thread in self.threads:
            thread.start()

    def _work(self, number, client):
        try:
            while not self.ended.is_set():
                self._round(number, client)
        except Exception as fault:  # of whatever kind: it is what the test is about
            self.faults.append(f"client {number}: {fault!r}")

    def _round(self, number, client):
        self.rounds[number] += 1
        value = b"%d:%d" % (number, self.rounds[number])
        key = f"key{number}"
        answers = client.pipeline([("SET", key, value), ("GET", key), ("ACL", "WHOAMI"), ("ECHO", value)])
        assert answers == [OK, value, b"app", value], answers
        if self.rounds[number] % 5 == number % 5:
            answers = client.pipeline([("MULTI",), ("GET", key), ("EXEC",)])
            assert answers == [OK, QUEUED, [value]], answers
        if self.rounds[number] % 7 == number % 7:
            client("BLPOP", f"none{number}", "0.01")

    def finish(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.faults, self.faults
        assert min(self.rounds) > 0


class Busy:
    """Clients that keep a connection of their own: one in a transaction, one that blocks, one that listens."""

    def __init__(self, headgate, name="first"):
        self.name = name
        self.transaction, self.blocked, self.listener = (headgate.connect() for _ in range(3))
        assert self.transaction("MULTI") == OK
        assert self.transaction("SET", "in-transaction", 1) == QUEUED
        self.blocked.request("BLPOP", f"queue-{name}", 0)
        assert self.listener("SUBSCRIBE", f"channel-{name}")[2] == 1

    def finish(self, direct):
        assert self.transaction("EXEC") == [OK]
        queue, channel = f"queue-{self.name}", f"channel-{self.name}"
        assert direct("RPUSH", queue, "x") == 1
        assert self.blocked.read() == [queue.encode(), b"x"]
        assert direct("PUBLISH", channel, "hello") == 1
        assert self.listener.read() == [b"message", channel.encode(), b"hello"]
        for client in (self.transaction, self.blocked):
            assert client("ACL", "WHOAMI") == b"app"


def refusals(direct):
    entries = [dict(zip(entry[::2], entry[1::2])) for entry in direct("ACL", "LOG")]
    return sum(entry[b"count"] for entry in entries if entry[b"reason"] == b"auth")


@pytest.mark.threads
def test_two_rotations_under_load(headgate, direct, secret):
    load, busy = Load(headgate), Busy(headgate)
    old = "old"
    for number, new in enumerate(("second", "third"), start=1):
        add_user(direct, f">{new}")
        put(secret, new)
        await_lines(headgate, TAKEN, number * workers(headgate))
        add_user(direct, f"<{old}")
        old = new
        time.sleep(1)
    late = Busy(headgate, "late")
    load.finish()
    busy.finish(direct)
    late.finish(direct)
    assert refusals(direct) == 0
    assert "third" not in headgate.log() and "second" not in headgate.log().replace("one second", "")


def test_a_password_that_redis_does_not_take_yet(headgate, direct, secret):
    """The file is there before Redis knows of it: the old one serves until then."""
    load = Load(headgate, count=4)
    put(secret, "new")
    await_lines(headgate, NOT_TAKEN, workers(headgate))
    busy = Busy(headgate)
    time.sleep(3)
    assert headgate.log().count(NOT_TAKEN) == workers(headgate), "it is said once"
    add_user(direct, ">new")
    await_lines(headgate, TAKEN, workers(headgate))
    add_user(direct, "<old")
    busy.finish(direct)
    load.finish()


def test_connections_that_nobody_has_any_more_while_a_password_is_tried(headgate, direct, secret):
    """They, and what is known of their database, go with the old password; also where one more is tried in its place."""
    with headgate.connect() as client:
        client("HELLO", 3)
        put(secret, "second")
        await_lines(headgate, NOT_TAKEN, workers(headgate))
    for number in range(12 * workers(headgate)):
        with headgate.connect() as other:
            assert other.pipeline([("AUTH", "default", number), ("GET", "k")]) == [OK, None]
    put(secret, "new")
    await_lines(headgate, NOT_TAKEN, 2 * workers(headgate))
    for database in range(1, 9):
        with headgate.connect() as client:
            assert client.pipeline([("SELECT", database), ("SET", "k", "v")]) == [OK, OK]
    add_user(direct, ">new")
    await_lines(headgate, TAKEN, workers(headgate))
    add_user(direct, "<old")
    Busy(headgate).finish(direct)


def configure(headgate, rules=None, **options):
    """Other options and rules, which are in force at the end."""
    headgate.rules = headgate.rules if rules is None else rules
    headgate.write_config(**options)
    with headgate.admin() as admin:
        wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")


def test_a_password_of_an_identity_that_is_gone_is_not_tried_on(redis, pool, direct, make_headgate):
    headgate = make_headgate(redis, pool=pool, start=False, upstream_password="x", reload_on_change="off")
    here = "[identity:here]\naddress = 127.0.0.1\nupstream_user = app\nupstream_password = {}\n"
    direct("CONFIG", "SET", "requirepass", "x")
    headgate.write_rules(here.format("old"))
    headgate.start()
    client = headgate.connect()
    assert client("ACL", "WHOAMI") == b"app"
    configure(headgate, rules=here.format("unknown"))
    await_lines(headgate, NOT_TAKEN, 1)
    configure(headgate, rules="")
    wait_for(lambda: headgate.connect()("ACL", "WHOAMI") == b"default", what="the identity to be gone")
    time.sleep(1)
    before = refusals(direct)
    time.sleep(5)
    assert refusals(direct) == before
