"""Verbs of policies on the admin port that answer later, and what scripts reply to policies: shown by headgate-probe,
whose respondent does as it is told (tests/policy/probe.h says how)."""

import signal

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Client, Error, wait_for


def shown(*elements):
    """What the respondent makes of a script's reply."""
    lines = [b"integer:%d\n" % e if isinstance(e, int) else b"text:%d:%s\n" % (len(e), e) for e in elements]
    return b"".join(lines).replace(b"\0", rb"\x00")


def numbers(count):
    return f"local t = {{}} for i = 1, {count} do t[i] = i end return t"


@pytest.fixture
def respondent(redis, make_probe):
    return make_probe(redis, threads=4)


@pytest.fixture
def admin(respondent):
    with respondent.admin() as admin:
        yield admin


def tell(probe, count, kind="TEXT", text="told"):
    """Answers that many questions, some of which may be on their way still."""
    tell_by(probe.admin(), count, kind, text)


def tell_by(teller, count, kind="TEXT", text="told"):
    told = 0
    with teller:

        def all_told():
            nonlocal told
            told += int(teller("PROBE", "TELL", kind, text))
            return told >= count

        wait_for(all_told, what="the questions to be there")
    assert told == count


def waiting(probe, verb="WAIT"):
    """An admin connection whose question is before the policy, which says so by taking no other."""
    admin = probe.admin()
    admin.request("PROBE", verb)
    return admin


def test_what_scripts_reply(admin):
    for code, elements in [
        ("return 7", [7]),
        ("return -7", [-7]),
        ("return 'text'", [b"text"]),
        ("return ''", [b""]),
        ("return 'two\\r\\nlines and a \\0'", [b"two\r\nlines and a \0"]),
        ("return {ok = 'fine'}", [b"fine"]),
        ("return false", [0]),
        ("return {}", []),
        ("return {1, 'b', false, {ok = 'c'}, ''}", [1, b"b", 0, b"c", b""]),
        ("return {#ARGV, ARGV[2], ARGV[64]}", [64, b"2", b"64"]),
        (numbers(16), range(1, 17)),
        (numbers(17), range(1, 18)),
        (numbers(16384), range(1, 16385)),
        ("local t = {} for i = 1, 9000 do t[i] = string.rep('x', i % 50) end return t",
         [b"x" * (i % 50) for i in range(1, 9001)]),
    ]:
        assert admin("PROBE", "LUA", code) == shown(*elements), code


def test_what_scripts_must_not_reply(admin):
    for code, error in [
        ("return {1, {2}}", b"ERR the script's reply is neither integers nor texts"),
        ("return {1, {err = 'ERR within'}}", b"ERR the script's reply is neither integers nor texts"),
        (numbers(16385), b"ERR the script's reply has too many elements"),
        ("return {err = 'OWN error'}", b"ERR OWN error"),
        ("return redis.call('NOSUCH')", b"ERR "),
    ]:
        reply = admin("PROBE", "LUA", code)
        assert isinstance(reply, Error) and reply.startswith(error), reply
        assert admin("PROBE", "LUA", "return 1") == shown(1), code


def test_answered_later(respondent):
    """Whoever else asks, on however many connections, has an answer meanwhile."""
    for kind, text, reply in [
        ("TEXT", "later", b"later"),
        ("TEXT", "", b""),
        ("TEXT", "two\r\nlines", b"two\r\nlines"),
        ("OK", "ignored", OK),
        ("ERROR", "no such thing", Error(b"ERR no such thing")),
        ("ERROR", "two\r\nlines", Error(b"ERR two\\x0d\\x0alines")),
        ("ERROR", "x" * 5000, Error(b"ERR " + b"x" * 295)),
    ]:
        admins = [waiting(respondent) for _ in range(2)]
        for admin in admins:
            admin.assert_silent()
        assert stats(respondent)["threads"] == "4", kind
        tell(respondent, 2, kind, text)
        for admin in admins:
            assert admin.read() == reply, kind
            assert type(admin("PING")) is type(PONG), kind
            admin.close()


@pytest.mark.parametrize("leave", [Client.close, Client.reset])
def test_who_asked_leaves_before_the_answer(respondent, leave):
    for _ in range(20):
        leave(waiting(respondent))
    tell(respondent, 20, text="nobody reads this")
    busy = [respondent.admin() for _ in range(20)]
    for admin in busy:
        admin.request("PROBE", "LUA", "return string.rep('x', 3000000)")
        leave(admin)
    with respondent.admin() as admin:
        # Not at once: Redis and Headgate have 60 MB to make first, for nobody.
        wait_for(lambda: admin("PROBE", "LUA", "return 1") == shown(1), 60, "the next to be answered")


def shut_down_now(probe):
    with probe.admin() as admin:
        assert admin("SHUTDOWN", "NOW") == OK


@pytest.mark.threads
@pytest.mark.parametrize("end", [shut_down_now, lambda probe: probe.signal(signal.SIGTERM)], ids=["now", "drain"])
def test_the_process_ends_while_questions_wait(redis, make_probe, end):
    """The policy answers some of them when it is stopped, the others are ended."""
    probe = make_probe(redis, threads=4)
    lost = [waiting(probe) for _ in range(3)]
    last = waiting(probe, "LAST")
    gone = waiting(probe)
    tell(probe, 5)
    for admin in lost + [last, gone]:
        assert admin.read() == b"told"
        admin.request("PROBE", "LAST" if admin is last else "WAIT")
        admin.assert_silent()
    gone.reset()
    end(probe)
    for admin in lost:
        assert admin.read() == Error(b"ERR the process is ending")
        admin.assert_closed()
    assert last.read() == b"the last word"
    last.assert_closed()
    assert probe.wait() == 0
