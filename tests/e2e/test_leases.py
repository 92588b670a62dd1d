"""[lease:NAME]: what the admin port tells, what a file may say, and what bad input gets."""

import re

from harness.admin import stats
from harness.leases import (
    COMPARE_AND_DELETE, LEASE_MS, assert_kept, await_left, counters, ends, keys_of, lease_of, leases, losses, rule, take,
)
from harness.resp import OK, Error, wait_for

MEGABYTE = b"x" * (1 << 20)


# ---- LEASES and LEASE DROP ----


LINE = (
    r"key=(\S+) db=0 kind=string rule=jobs owner=127\.0\.0\.1/default/web state=held held=\d+\.\d{3} lease=60000"
    r" left=\d+ next=\d+ renewals=0 deferred=0 failures=0 reason=\"none\""
)


def test_a_line_a_lease(make, redis):
    # The first rule that means a key counts.
    headgate = make(rule("jobs", owner="client", renew=None) + rule("others"))
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", "web") == OK
    for key in ("lock:a", "lock:b", "lock:c1"):
        take(client, key, ms=60_000)
    with headgate.admin() as admin:
        lines = admin("LEASES").decode().splitlines()
        matches = [re.fullmatch(LINE, line) for line in lines]
        assert all(matches), lines
        assert sorted(match[1] for match in matches) == ["lock:a", "lock:b", "lock:c1"]
        assert len(admin("leases", "lock:?").decode().splitlines()) == 2
        assert admin("LEASES", "lock:[^ab]*").decode().startswith("key=lock:c1 ")
        assert admin("LEASES", "lock:") == admin("LEASES", "nothing") == b""


def test_bad_questions(make_shared, redis):
    headgate = make_shared(rule())
    take(headgate.connect(), "lock:a")
    with headgate.admin() as admin:
        for question, complaint in {
            ("LEASES", "[a"): b"glob", ("LEASES", "x" * 2000): b"too long", ("LEASES", b"a\0b"): b"no text",
            ("LEASE", "KEEP", "lock:a"): b"LEASE knows DROP only",
            ("LEASE", "DROP", "lock:none"): b"no lease with that key",
            ("LEASE", "DROP", "lock:*"): b"no lease with that key", ("LEASE", "DROP", ""): b"no lease with that key",
        }.items():
            reply = admin(*question)
            assert isinstance(reply, Error) and complaint in reply, (question, reply)
        assert keys_of(headgate) == {"lock:a"}
        assert admin("lease", "drop", "lock:a") == OK
        assert isinstance(admin("LEASE", "DROP", "lock:a"), Error)


def test_what_there_is_no_room_for_is_taken_and_not_watched(make_shared, redis):
    """Who holds hundreds of short locks costs what the bound allows, and others theirs is renewed."""
    headgate = make_shared("[lease]\nmax_leases = 1000\n" + rule(owner="connection"))
    greedy, other, late = (headgate.connect() for _ in range(3))
    take(other, "lock:other")
    keys = [f"lock:{number}" for number in range(500)]
    assert greedy.pipeline([("SET", key, "t", "NX", "PX", LEASE_MS) for key in keys]) == [OK] * len(keys)
    # Each is renewed after 300 ms, 34 times in ten seconds: seven are as much as a third of what they leave.
    assert keys_of(headgate) == {"lock:other", *keys[:7]}
    assert stats(headgate, "lease")["lease_weight"] == str(8 * 34)
    assert counters(headgate)["unwatched_total"] == len(keys) - 7
    assert "rule a: max_leases reached: lock:7 of 127.0.0.1/default/#" in headgate.log()
    take(late, "lock:late")
    assert_kept(redis, ["lock:other", "lock:0", "lock:late"])
    await_left(redis, "lock:7")
    assert greedy("DEL", "lock:0", "lock:1") == 2
    take(greedy, "lock:0")
    with headgate.admin() as admin:
        assert admin("CONFIG", "SET", "lease.max_leases", 2000) == OK
    take(greedy, "lock:more")
    assert_kept(redis, ["lock:0", "lock:more"], 1)
    assert counters(headgate)["unwatched_total"] == len(keys) - 7 and not losses(headgate)


# ---- bad input ----


def test_a_token_of_a_million_bytes(make_shared, redis):
    """Not watched, and forwarded as it is."""
    headgate = make_shared(rule())
    client = headgate.connect()
    take(client, "lock:a", token=MEGABYTE)
    assert client("GET", "lock:a") == MEGABYTE
    assert client("SETNX", b"lock:" + MEGABYTE, "t") == 1
    assert keys_of(headgate) == set()
    assert client("EVAL", COMPARE_AND_DELETE, 1, "lock:a", MEGABYTE) == 1
    take(client, "lock:a", token=MEGABYTE)
    take(client, "lock:b")
    await_left(redis, "lock:a")
    assert lease_of(headgate, "lock:b")


def test_keys_and_tokens_of_any_bytes(make_shared, redis):
    headgate = make_shared(rule(keys="*"))
    client = headgate.connect()
    keys = ['a "b"\n', "back\\slash", "\x00\x01\xff", "key=x state=held", "", "ü"]
    tokens = [b"", bytes(range(256)), b"\r\n$-1\r\n", b"1000", b"\"'\\ %s [[ ]]", b"t"]
    raw = [key.encode("latin-1") for key in keys]
    for key, token in zip(raw, tokens):
        take(client, key, token=token)
    with headgate.admin() as admin:
        text = admin("LEASES")
        assert len(text.splitlines()) == len(keys)
        assert b'key="a \\"b\\"\\x0a" ' in text and b'key="key=x state=held" ' in text and b'key="" ' in text
        assert keys_of(headgate) == set(keys)
        assert admin("LEASE", "DROP", raw[0]) == OK
        assert len(admin("LEASES").splitlines()) == len(keys) - 1
        long = "k" * 5000
        take(client, long)
        line = admin("LEASES", "kkk*").decode()
        assert len(line) < 700 and '..." db=0 ' in line
    end = ends(redis, raw[0])
    assert_kept(redis, [*raw[1:], long])
    assert ends(redis, raw[0]) == end
    for key, token in zip(raw[1:], tokens[1:]):
        assert client("EVAL", COMPARE_AND_DELETE, 1, key, token + b"x") == 0
        assert client("EVAL", COMPARE_AND_DELETE, 1, key, token) == 1
    wait_for(lambda: len(leases(headgate)) == 1, what="all but one to be released")
    assert not losses(headgate)
