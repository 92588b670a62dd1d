"""[limit:NAME] with scope = local: what the admin port tells, and resets."""

import time

import pytest

from harness.admin import text
from harness.identity import add_users, authenticated, named
from harness.limits import await_tracked, forget, limits, rule, spend
from harness.resp import OK, Error


# ---- the admin port ----


def test_limits(make, redis):
    headgate = make(rule("api", per="user", limit=5, window="60s") + rule("other", per="ip", limit=9, commands="get"),
                    threads=4)
    add_users(redis, "alice", "bob")
    start = time.monotonic()
    assert spend(authenticated(headgate, "alice"), count=7, name="api") == 5
    assert spend(authenticated(headgate, "bob"), count=2, name="api") == 2
    await_tracked(headgate, 2)
    rules, offenders = limits(headgate)
    passed = (time.monotonic() - start) * 1000
    assert set(rules) == {"api", "other"}
    expected = {"per": "user", "admitted": "7", "refused": "2", "delayed": "0", "observed": "0", "tracked": "2"}
    assert expected.items() <= rules["api"].items()
    assert {"per": "ip", "admitted": "0", "refused": "0", "tracked": "0"}.items() <= rules["other"].items()
    assert [(line["offender"], line["rule"], line["refused"]) for line in offenders] == [("user:alice", "api", "2")]
    assert 60_000 - passed <= int(offenders[0]["next_admission_ms"]) <= 60_001


def test_limits_lists_the_worst(make_shared):
    headgate = make_shared(rule(per="name", limit=1))
    for number in range(15):
        assert spend(named(headgate, f"n{number}"), count=2 + number) == 1
    _, offenders = limits(headgate)
    assert 1 <= len(offenders) <= 10
    assert ("name:n14", "15") in [(line["offender"], line["refused"]) for line in offenders]


def test_offenders_cannot_forge_lines(make_shared):
    """Keys are anybody's text."""
    headgate = make_shared(rule(per="key", limit=1))
    client = headgate.connect()
    keys = [b"x\r\nrule=forged per=ip admitted=1", b"y\noffender=forged", b"z refused=999", b"\xff\0\x1b[2J"]
    for key in keys:
        assert spend(client, "INCR", key) == 1
    with headgate.admin() as admin:
        lines = text(admin("LIMITS")).split("\n")
    assert len([line for line in lines if line.strip()]) == 1 + len(keys)
    assert all(line.rstrip("\r").isprintable() for line in lines)
    rules, offenders = limits(headgate)
    assert set(rules) == {"a"} and "forged" not in [line["offender"] for line in offenders]


def test_reset_of_a_rule(make):
    headgate = make(rule(per="name", limit=5) + rule("b", per="ip", limit=100), threads=4)
    clients = [named(headgate, name) for name in ("x", "y", "x")]
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert forget(headgate, "a") == OK
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert limits(headgate)[0]["b"]["admitted"] == "20", "the other rule has lost nothing"
    assert forget(headgate, "a", "name:x") == OK
    assert [spend(client) for client in clients] == [5, 0, 0]
    # An unset variable of a shell must not forget everything.
    for unknown in (("none",), ("a", "name:nobody"), ("none", "name:x"), ("a", ""), ()):
        assert isinstance(forget(headgate, *unknown), Error), unknown
    assert [spend(client) for client in clients] == [0, 0, 0]


@pytest.mark.parametrize("per", ["ip/24", "connection", "all", "user+key"])
def test_reset_of_an_offender(make_shared, per):
    """The words of LIMITS are those that LIMIT RESET takes."""
    headgate = make_shared(rule(per=per, limit=5))
    client = named(headgate, "me")
    assert spend(client, "INCR", "k") == 5
    _, offenders = limits(headgate)
    assert len(offenders) == 1
    assert forget(headgate, "a", offenders[0]["offender"]) == OK
    assert spend(client, "INCR", "k") == 5
