"""Lanes that fail before they are ready, and what clients see of it."""

import time

import pytest

from harness.resp import Closed, Error, wait_for


def answered_or_closed(client):
    """The reply as bytes; empty if the connection was closed instead."""
    try:
        return client.read()
    except Closed:
        return b""


def test_a_server_that_closes_at_once(fake, make_headgate, pool):
    for name in ("HELLO", "PING", "INFO", "COMMAND", "CLIENT", "AUTH", "SELECT", "GET"):
        fake.answers[name] = lambda lane, _arguments: lane.close()
    headgate = make_headgate(fake.url, pool=pool, upstream_wait="500ms")
    client = headgate.connect()
    client.request("GET", "k")
    reply = answered_or_closed(client)
    assert reply == b"" or isinstance(reply, Error)
    fake.answers.clear()
    wait_for(lambda: served(fake, headgate), what="service after the server has recovered")


def served(fake, headgate):
    """True if a new client's request arrives and is answered; requests of earlier lanes and clients are passed over."""
    with headgate.connect() as client:
        client.request("ECHO", "now")
        try:
            while (command := fake.next(timeout=0.5)).arguments != [b"ECHO", b"now"]:
                continue
            command.reply(b"+fine\r\n")
        except (AssertionError, OSError):
            return False
        return client.read_until_quiet(0.2) == b"+fine\r\n"


def test_reconnection_backs_off(fake, make_headgate):
    """A server that refuses is not stormed, and when it takes connections again it is found soon."""
    for name in ("HELLO", "PING", "INFO", "COMMAND", "CLIENT", "AUTH", "SELECT", "GET"):
        fake.answers[name] = lambda lane, _arguments: lane.close()
    headgate = make_headgate(fake.url, upstream_wait="5s", reconnect_min="50ms", reconnect_max="400ms")
    client = headgate.connect()
    client.request("GET", "k")
    before = len(fake.lanes)
    time.sleep(2)
    attempts = len(fake.lanes) - before
    assert attempts <= 25, attempts
    wait_for(lambda: len(fake.lanes) > before, what="a further attempt")


@pytest.mark.parametrize("answer", (b"-WRONGPASS invalid\r\n", b":0\r\n", b"$-1\r\n", b"*0\r\n"))
def test_a_password_that_is_refused(fake, make_headgate, pool, answer):
    """Or about which nothing is said."""
    fake.answers["AUTH"] = fake.answers["HELLO"] = lambda _lane, _arguments: answer
    headgate = make_headgate(fake.url, pool=pool, upstream_password="x", upstream_wait="300ms")
    client = headgate.connect()
    client.request("GET", "k")
    assert isinstance(client.read(), Error)
    fake.assert_idle(0.1)
    del fake.answers["AUTH"], fake.answers["HELLO"]
    wait_for(lambda: served(fake, headgate), what="service with the right password")


def test_no_request_before_the_hand_shake_is_done(fake, make_headgate, pool):
    """While the password is unanswered, no client's command may be taken for granted."""
    held = []

    def hold(lane, arguments):
        held.append(lane)
        return b""

    fake.answers["AUTH"] = fake.answers["HELLO"] = hold
    headgate = make_headgate(fake.url, pool=pool, upstream_password="x", upstream_wait="5s")
    client = headgate.connect()
    client.request("GET", "k")
    client.assert_silent(0.3)


def test_an_old_server_without_hello(fake, make_headgate):
    """Redis 5 knows no HELLO: what Headgate does without it must do, and the client sees the server's own error."""
    fake.answers["HELLO"] = lambda _lane, _arguments: b"-ERR unknown command `HELLO`, with args beginning with: \r\n"
    headgate = make_headgate(fake.url)
    client = headgate.connect()
    client.request("GET", "k")
    fake.expect("GET", "k").reply(b"+works\r\n")
    assert client.read() == b"works"
    client.request("HELLO", 3)
    assert client.read() == Error(b"ERR unknown command `HELLO`, with args beginning with: ")
    client.request("GET", "k")
    fake.expect("GET", "k").reply(b"+still works\r\n")
    assert client.read() == b"still works"


def test_a_server_that_knows_nothing_about_itself(fake, make_headgate, pool):
    """INFO, COMMAND and scripts refused, as by a server behind a strict ACL: commands pass all the same."""
    for name in ("INFO", "COMMAND", "SCRIPT", "EVALSHA", "CLIENT"):
        fake.answers[name] = lambda _lane, _arguments: b"-NOPERM this user has no permissions\r\n"
    headgate = make_headgate(fake.url, pool=pool)
    client = headgate.connect()
    for command in (("GET", "k"), ("UNHEARDOF", "x"), ("UNHEARDOF", "y")):
        client.request(*command)
        fake.expect(*command).reply(b"+works\r\n")
        assert client.read() == b"works"
