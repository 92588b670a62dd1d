"""[lease:NAME]: what the admin port tells, what a file may say, and what bad input gets."""

import re
import time

import pytest

from harness.admin import stats
from harness.leases import (
    COMPARE_AND_DELETE,
    COMPARE_AND_PEXPIRE,
    LEASE_MS,
    assert_kept,
    await_keys,
    await_lease,
    await_left,
    counters,
    ends,
    keys_of,
    lease_of,
    leases,
    losses,
    remaining,
    rule,
    take,
)
from harness.resp import NIL_ARRAY, OK, Error, wait_for
from harness.rules import check_file

YEAR_MS = 365 * 86400 * 1000
MEGABYTE = b"x" * (1 << 20)


# ---- LEASES and LEASE DROP ----


LINE = (
    r"key=(\S+) db=0 kind=string rule=jobs owner=127\.0\.0\.1/default/web state=held held=\d+\.\d{3} lease=60000"
    r" left=\d+ next=\d+ renewals=0 deferred=0 failures=0 reason=\"none\""
)


def test_a_line_a_lease(make, redis):
    headgate = make(rule("jobs", owner="client", renew=None))
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


def test_what_a_line_tells_of_time(make_shared, redis):
    headgate = make_shared(rule())
    client = headgate.connect()
    start = time.monotonic()
    take(client, "lock:a")
    told = {name: float(lease_of(headgate, "lock:a")[name]) for name in ("held", "lease", "left", "next")}
    spent = time.monotonic() - start
    assert 0 <= told["held"] <= spent and told["lease"] == LEASE_MS
    assert LEASE_MS - spent * 1000 - 1 <= told["left"] <= LEASE_MS
    assert told["next"] <= LEASE_MS / 100, "so much of the lease, or a little before"
    lease = wait_for(lambda: (found := lease_of(headgate, "lock:a"))["renewals"] != "0" and found, what="a renewal")
    assert lease["reason"] == "renewed" and int(lease["left"]) > 1500


def test_kinds_and_states(make_shared, redis):
    headgate = make_shared(rule(ttl="60s", grace="60s", owner="connection"))
    client, dying = headgate.connect(), headgate.connect()
    assert dying("CLIENT", "SETNAME", "dying") == OK
    assert client("SETNX", "lock:unhealed", "t") == 1
    assert lease_of(headgate, "lock:unhealed")["state"] == "unhealed"
    take(client, "lock:held")
    take(dying, "lock:ownerless", ms=60_000)
    dying.close()
    assert client("ZADD", "lock:permit", time.time(), "id") == 1
    await_lease(headgate, "lock:ownerless", "ownerless")
    assert await_lease(headgate, "lock:permit")["kind"] == "semaphore"
    assert await_lease(headgate, "lock:held")["kind"] == "string"


def test_bad_questions(make_shared, redis):
    headgate = make_shared(rule())
    take(headgate.connect(), "lock:a")
    with headgate.admin() as admin:
        for question, complaint in {
            ("LEASES", "[a"): b"glob",
            ("LEASES", "x" * 2000): b"too long",
            ("LEASES", b"a\0b"): b"no text",
            ("LEASES", "a", "b"): b"",
            ("LEASE",): b"",
            ("LEASE", "DROP"): b"",
            ("LEASE", "KEEP", "lock:a"): b"LEASE knows DROP only",
            ("LEASE", "", "lock:a"): b"LEASE knows DROP only",
            ("LEASE", "DROP", "lock:none"): b"no lease with that key",
            ("LEASE", "DROP", "lock:*"): b"no lease with that key",
            ("LEASE", "DROP", ""): b"no lease with that key",
            ("LEASE", "DROP", "lock:a", "lock:b"): b"",
        }.items():
            reply = admin(*question)
            assert isinstance(reply, Error) and complaint in reply, (question, reply)
        assert keys_of(headgate) == {"lock:a"}
        assert admin("lease", "drop", "lock:a") == OK
        assert isinstance(admin("LEASE", "DROP", "lock:a"), Error)


def test_without_rules(make_shared, redis):
    headgate = make_shared("")
    take(headgate.connect(), "lock:a")
    with headgate.admin() as admin:
        assert admin("LEASES") == b""
        assert isinstance(admin("LEASE", "DROP", "lock:a"), Error)
    assert not counters(headgate)
    await_left(redis, "lock:a")


def test_stats(make, redis):
    headgate = make(rule())
    client = headgate.connect()
    assert set(stats(headgate, "lease")) == {
        f"lease_{name}"
        for name in (
            "acquired_total held renewals_total deferred_total failures_total healed_total released_total unseen_total"
            " lost_gone_total lost_taken_total lost_persisted_total lost_shortened_total lost_type_total"
            " lost_unreachable_total owner_gone_total max_hold_total dropped_total unwatched_total weight"
        ).split()
    }
    assert not counters(headgate)
    for key in ("lock:a", "lock:b"):
        take(client, key)
    found = counters(headgate)
    # The first may have been renewed before the second was taken.
    found.pop("renewals_total", None)
    assert found == {"acquired_total": 2, "held": 2}
    wait_for(lambda: counters(headgate).get("renewals_total", 0) >= 2, what="renewals")
    assert client("DEL", "lock:a") == 1
    found = counters(headgate)
    assert (found["acquired_total"], found["held"], found["released_total"]) == (2, 1, 1)


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


# ---- what a file may say ----


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "keys"),
        (["keys ="], "keys"),
        (["keys = lock:["], "keys"),
        (["keys = lock:* b["], "keys"),
        (["kind = list"], "auto, string, hash or semaphore"),
        (["ttl = 30"], "ttl"),
        (["ttl = 10ms"], "100ms"),
        (["ttl = 2d"], "1d"),
        (["ttl = 0"], "ttl"),
        (["renew = 1"], "renew"),
        (["renew = 0/3"], "renew"),
        (["renew = 3/3"], "the first one less than the other"),
        (["renew = 1/1001"], "two numbers up to 1000"),
        (["renew = 1/3x"], "renew"),
        (["renew = -1/3"], "renew"),
        (["renew = 0.3"], "renew"),
        (["max_hold = 0"], "max_hold"),
        (["max_hold = 10ms"], "max_hold"),
        (["max_hold = 367d"], "366d"),
        (["max_hold = for ever"], "max_hold"),
        (["owner = thread"], "process, connection or client"),
        (["grace = -1s"], "grace"),
        (["grace = 25h"], "1d"),
        (["on_owner_gone = keep"], "expire or release"),
        (["score = rank"], "auto, acquired or expires"),
        (["unit = ns"], "auto, s, ms or us"),
        (["limit = -1"], "limit"),
        (["limit = many"], "limit"),
        (["libraries = redisson"], "LIBRARY:CARE"),
        (["libraries = redisson:"], "LIBRARY:CARE"),
        (["libraries = :never"], "LIBRARY:CARE"),
        (["libraries = redisson:often"], "LIBRARY:CARE"),
        (["libraries = redisson:self mylock:never"], '"mylock" is no library'),
        (["lease = 30s"], "lease"),
        (["ttl = 1s", "ttl = 2s"], "ttl"),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_file_that_is_wrong(tmp_path, options, complaint):
    sets_keys = not options or any(option.startswith("keys") for option in options)
    result = check_file(tmp_path, options if sets_keys else ["keys = lock:*", *options], "lease:a")
    assert result.returncode != 0
    said = result.stdout + result.stderr
    assert "[lease:a]" in said and complaint in said, said


def test_a_file_that_is_right(tmp_path):
    options = [
        "keys = lock:* sem:[a-z]?",
        "kind = semaphore",
        "ttl = 100ms",
        "renew = 999/1000",
        "max_hold = 366d",
        "owner = connection",
        "grace = 0",
        "on_owner_gone = release",
        "score = expires",
        "unit = us",
        "limit = 5",
        "libraries = Redisson:never REDLOCK.NET:renew redis-py:self redis-py:never",
    ]
    result = check_file(tmp_path, options, "lease:a")
    assert result.returncode == 0, result.stdout + result.stderr


# ---- libraries ----


# As their digests say: of the idiom in this very writing.
LIBRARY = "redislock"
EXTEND = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end'


@pytest.mark.parametrize("care", ["renew", "self", "never"])
def test_libraries(make_shared, redis, care):
    """What a library's script extends is kept, or left to it, or not looked at."""
    headgate = make_shared(rule(libraries=f"redis-py:never {LIBRARY.upper()}:{care}"))
    client = headgate.connect()
    assert redis.connect()("SET", "lock:a", "t", "PX", 60_000) == OK
    assert client("EVAL", EXTEND, 1, "lock:a", "t", LEASE_MS) == 1
    take(client, "lock:b")
    states = {lease["key"]: lease["state"] for lease in leases(headgate)}
    expected = {"renew": {"lock:a": "held"}, "self": {"lock:a": "self"}, "never": {}}[care]
    assert states == {"lock:b": "held", **expected}
    if care == "renew":
        assert_kept(redis, ["lock:a", "lock:b"])
        return
    await_left(redis, "lock:a")
    await_keys(headgate, ["lock:b"])
    assert_kept(redis, ["lock:b"], 1)


# ---- bad input ----


def test_keys_of_another_type(make_shared, redis):
    headgate = make_shared(rule())
    client, direct = headgate.connect(), redis.connect()
    replies = direct.pipeline([("RPUSH", "lock:list", "t"), ("HSET", "lock:hash", "t", 1), ("SET", "lock:sem", "t")])
    assert replies == [1, 1, OK]
    replies = client.pipeline(
        [
            ("EVAL", COMPARE_AND_PEXPIRE, 1, "lock:list", "t", LEASE_MS),
            ("EVAL", COMPARE_AND_DELETE, 1, "lock:hash", "t"),
            ("SET", "lock:list", "t", "NX", "GET", "PX", LEASE_MS),
            ("ZADD", "lock:sem", time.time(), "id"),
            ("GETDEL", "lock:list"),
            ("SETNX", "lock:list", "t"),
        ]
    )
    assert [isinstance(reply, Error) for reply in replies] == [True] * 5 + [False], replies
    time.sleep(0.4)
    assert keys_of(headgate) == set()
    assert remaining(redis, "lock:list", "lock:hash", "lock:sem") == {"lock:list": -1, "lock:hash": -1, "lock:sem": -1}


def test_leases_that_are_none(make_shared, redis):
    """Redis refuses them; nothing is taken."""
    headgate = make_shared(rule())
    client = headgate.connect()
    sent = [
        ("SET", "lock:a", "t", "NX", "PX", 0),
        ("SET", "lock:a", "t", "NX", "EX", -1),
        ("SET", "lock:a", "t", "NX", "PX", "1000x"),
        ("SET", "lock:a", "t", "NX", "PX", "9223372036854775808"),
        ("SET", "lock:a", "t", "NX", "EX", "9223372036854775"),
        ("SET", "lock:a", "t", "NX", "PX"),
        ("SET", "lock:a", "t", "NX", "PX", 1000, "EX", 1),
        ("SET", "lock:a", "t", "NX", "XX"),
        ("SET", "lock:a", "t", "NX", "SOON"),
        ("SET", "lock:a"),
        ("SETNX", "lock:a"),
        ("SETNX", "lock:a", "t", "u"),
    ]
    replies = client.pipeline(sent)
    assert all(isinstance(reply, Error) for reply in replies), replies
    await_keys(headgate, [])
    assert not counters(headgate)


def test_long_leases(make_shared, redis):
    """A hundred years, and more than any clock: never shortened, never made shorter by max_hold."""
    headgate = make_shared(rule(max_hold="1s"))
    client = headgate.connect()
    lives = {"lock:century": 100 * YEAR_MS, "lock:ages": 10_000 * YEAR_MS}
    for key, life in lives.items():
        assert client("SET", key, "t", "NX", "PX", life) == OK
    assert client("EVAL", COMPARE_AND_PEXPIRE, 1, "lock:century", "t", 101 * YEAR_MS) == 1
    time.sleep(1.2)
    left = remaining(redis, *lives)
    assert left["lock:century"] > 100 * YEAR_MS and left["lock:ages"] > 9_999 * YEAR_MS
    assert client("DEL", *lives) == 2
    await_keys(headgate, [])
    assert not losses(headgate)


TOKENS = {
    "empty": b"",
    "binary": bytes(range(256)),
    "line": b"\r\n$-1\r\n",
    "number": b"1000",
    "quotes": b"\"'\\ %s [[ ]]",
}


def test_tokens_of_any_bytes(make_shared, redis):
    headgate = make_shared(rule())
    client = headgate.connect()
    keys = {f"lock:{name}": token for name, token in TOKENS.items()}
    for key, token in keys.items():
        take(client, key, token=token)
    assert_kept(redis, keys)
    assert keys_of(headgate) == set(keys) and not losses(headgate)
    for key, token in keys.items():
        assert client("EVAL", COMPARE_AND_DELETE, 1, key, token + b"x") == 0
        assert client("EVAL", COMPARE_AND_DELETE, 1, key, token) == 1
    await_keys(headgate, [])


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


def test_keys_of_any_bytes(make_shared, redis):
    headgate = make_shared(rule(keys="*"))
    client = headgate.connect()
    keys = ['a "b"\n', "back\\slash", "\x00\x01\xff", "key=x state=held", "", "ü"]
    raw = [key.encode("latin-1") for key in keys]
    for key in raw:
        take(client, key)
    with headgate.admin() as admin:
        text = admin("LEASES")
        assert len(text.splitlines()) == len(keys)
        assert b'key="a \\"b\\"\\x0a" ' in text and b'key="key=x state=held" ' in text and b'key="" ' in text
        assert keys_of(headgate) == set(keys)
        assert admin("LEASE", "DROP", raw[0]) == OK
        assert len(admin("LEASES").splitlines()) == len(keys) - 1
    end = ends(redis, raw[0])
    assert_kept(redis, raw[1:])
    assert ends(redis, raw[0]) == end
    assert not losses(headgate)


def test_a_long_key_is_cut_in_what_is_told(make_shared, redis):
    headgate = make_shared(rule())
    client = headgate.connect()
    key = "lock:" + "k" * 5000
    take(client, key)
    with headgate.admin() as admin:
        line = admin("LEASES").decode()
    assert len(line) < 700 and '..." db=0 ' in line
    assert_kept(redis, [key])


def test_resp_3(make_shared, redis):
    headgate = make_shared(rule())
    client = headgate.connect()
    client("HELLO", 3)
    take(client, "lock:a")
    assert client("SET", "lock:get", "t", "NX", "GET", "PX", LEASE_MS) is not NIL_ARRAY
    assert client("EVAL", "redis.setresp(3) " + COMPARE_AND_PEXPIRE, 1, "lock:a", "t", LEASE_MS) == 1
    assert_kept(redis, ["lock:a", "lock:get"])
    assert client("EVAL", COMPARE_AND_DELETE, 1, "lock:a", "t") == 1
    assert client("GETDEL", "lock:get") == b"t"
    await_keys(headgate, [])


def test_replies_that_are_switched_off(make_shared, redis):
    """Nobody hears whether the lock was granted: a client that does not listen holds what it gets all the same, or not,
    but nothing lives for ever."""
    headgate = make_shared(rule())
    client = headgate.connect()
    client.request("CLIENT", "REPLY", "OFF")
    client.request("SET", "lock:a", "t", "NX", "PX", LEASE_MS)
    client.request("CLIENT", "REPLY", "ON")
    assert client.read() == OK
    assert client("GET", "lock:a") == b"t"
    client.reset()
    await_left(redis, "lock:a")
    await_keys(headgate, [])
