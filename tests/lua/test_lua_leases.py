"""The scripts that renew, heal and release leases, on a real Redis. What renewals find and leave test_lua_lease_walks.py has."""

import random
import re
import struct
import time

import pytest
from asking import LUA
from lease_scripts import (
    ANOTHER_TYPE, DEFERRED, EPOCH, GONE, HASH, HEAL, HOLD, NO_EXPIRY, NO_KEY, NOT_OWNER, OWN_CLOCK, READER, RELEASES,
    RENEWED, STRING, ZSET, assert_life_since, ends, look, now, put, same_number, score_of, score_told,
)  # fmt: skip

# Lease, what ought to be left, and by how much it may differ; in ms.
TERMS = (30000, 20000, 500)

# How a lock is taken, around the owner's name; what its script is given behind it; what that answers to others.
USES = {
    STRING: ("SET lock", [], [*TERMS, EPOCH], NOT_OWNER),
    HASH: ("HSET lock", [1], [*TERMS, EPOCH], NOT_OWNER),
    ZSET: ("ZADD lock 100", [], [200, 100, 1, EPOCH], NOT_OWNER),
    HEAL: ("SET lock", [], [5000, EPOCH], NOT_OWNER),
    "lease_release": ("SET lock", [], [], 0),
    "lease_release_hash": ("HSET lock", [1], [], 0),
    "lease_release_zset": ("ZADD lock 1", [], [], 0),
}


@pytest.mark.parametrize("name", USES)
def test_an_owner_is_any_bytes(ask, name):
    before, behind, arguments, refusal = USES[name]
    script = ask.script(name, OWN_CLOCK if arguments else "")
    chance = random.Random(1)
    lengths = (1, 16, 20, 255, 65536, 1 << 20)
    for text in [b"a\0b\r\n$3\r\n*1\r\n\xff\xfe'\"\\%s", *map(chance.randbytes, lengths)]:
        ask("DEL lock")
        ask(before, text, *behind)
        if name in (STRING, HASH):
            ask("PEXPIREAT lock", EPOCH + 20000)
        places = (0, len(text) // 2, len(text) - 1)
        others = [text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :] for place in places]
        for other in [*others, text[:-1], text + b"\0", b""]:
            answer = script("lock", other, *arguments)
            assert (answer[0] if arguments else answer) == refusal, (len(text), other[:20])
        answer = script("lock", text, *arguments)
        assert (answer[0] if arguments else answer) == RENEWED == 1
        assert ask("DBSIZE") == (1 if arguments else 0)


@pytest.mark.parametrize("name", [STRING, HEAL, "lease_release"])
def test_an_owner_of_no_bytes_and_numbers_as_they_are_written(ask, name):
    _, _, arguments, refusal = USES[name]
    script = ask.script(name, OWN_CLOCK if arguments else "")
    for owner, other in [("", "x"), ("10", "1e1")]:
        ask("SET lock", owner)
        if name == STRING:
            ask("PEXPIREAT lock", EPOCH + 20000)
        for text, code in [(other, refusal), (owner, 1)]:
            answer = script("lock", text, *arguments)
            assert (answer[0] if arguments else answer) == code


# ---- permits ----


def permit(ask, member, score, life=None):
    put(ask, f"ZADD lock {score} {member} 5 bystander", life)


def test_a_score_is_raised_while_redis_is_out_of_memory(ask):
    """It takes no memory: who holds a permit does not lose it because others have filled Redis. But for a user who may
    not use the command by which that is done."""
    renew = ask.script(ZSET, OWN_CLOCK)
    permit(ask, "me", 100)
    ask("ZADD lock 7 me- 8 me--")
    ask("CONFIG SET maxmemory 1")
    assert ask.error("ZADD lock XX 9 me--").startswith("OOM")
    ask("ACL SETUSER default -zrem")
    before = look(ask, "lock")
    assert renew.error("lock", "me", 200, 100, 9000, EPOCH).startswith("OOM ")
    assert look(ask, "lock") == before
    ask("ACL SETUSER default +zrem")
    assert renew("lock", "me", 200, 100, 9000, EPOCH) == [RENEWED, NO_EXPIRY]
    assert [score_of(ask, member) for member in ("me", "me-", "me--")] == [200, 7, 8]
    assert ask("ZCARD lock") == 4
    ask("CONFIG SET maxmemory 0")
    put(ask, "SET lock me", 20000)
    ask("CONFIG SET maxmemory 1")
    assert ask.script(STRING, OWN_CLOCK)("lock", "me", *TERMS, EPOCH) == [RENEWED, 30000]


@pytest.mark.parametrize(
    ("score", "expected", "following"),
    [
        ("1700000000.1234567", "1700000000.1234567", "1700000010.1234567"),
        ("1700000000.1", "1.7000000001e9", "1700000000.1000004"),
        ("1700000000123", "1700000000123", "1700000010123"),
        ("1700000000123456", "1.700000000123456e15", "1700000000123457"),
        ("9007199254740991", "9007199254740991", "9007199254740992"),
        ("922337203685477", "922337203685477.0", "922337203685478"),
        ("0.1", "0.10000000000000000", "0.30000000000000004"), ("-5", "-5.0", "-4"), ("0", "-0", "1e-300"),
    ],
)  # fmt: skip
def test_every_digit_of_a_score_is_kept(ask, score, expected, following):
    """As clients write them: seconds with a fraction, ms, µs; the caller may write the same number otherwise."""
    renew = ask.script(ZSET, OWN_CLOCK)
    permit(ask, "me", score)
    assert renew("lock", "me", following, expected, 1, EPOCH) == [RENEWED, NO_EXPIRY]
    assert score_of(ask, "me") == float(following)
    assert renew("lock", "me", following, following, 1, EPOCH) == [RENEWED, NO_EXPIRY], "what it is now"


def test_the_score_that_it_has_is_told_to_the_bit(ask):
    """The sign, the exponent and each bit of the fraction, on either side of the halves."""
    renew = ask.script(ZSET, OWN_CLOCK)
    chance = random.Random(2)
    some = [
        0x0000000000000000, 0x8000000000000000,  # 0, -0
        0x0000000000000001, 0x800FFFFFFFFFFFFF,  # the least above 0; a negative one without an exponent
        0x7FF0000000000000, 0xFFF0000000000000,  # inf, -inf
        0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF,  # the largest of all, and the smallest
        0x3FF00000FFFFFFFF, 0x3FF0000100000000,  # the low half full, and the carry
        0xBFF0000080000000, 0x41D954FC4007E6B7,  # its highest bit; a time in seconds with a fraction
    ]  # fmt: skip
    for bits in [*some, *(chance.getrandbits(64) for _ in range(2000))]:
        number = struct.unpack(">d", struct.pack(">Q", bits))[0]
        if number != number or number == 100:
            continue
        permit(ask, "me", repr(number))
        answer = renew("lock", "me", 200, 100, 9000, EPOCH)
        assert answer[:2] == [DEFERRED, NO_EXPIRY] and score_told(answer) == number
        # Redis may have made 0 of -0.
        assert same_number(score_told(answer), score_of(ask, "me")), number
        # With that it goes on, where there is an end to go on from.
        if abs(number) < float("inf"):
            assert renew("lock", "me", number, score_told(answer), 9000, EPOCH) == [RENEWED, NO_EXPIRY]


def test_companions_that_have_its_score_go_along(ask):
    renew, release = ask.script(ZSET), ask.script("lease_release_zset")
    ask("ZADD lock 100 me 100 with-me 99 older 101 newer 100 bystander")
    assert renew("lock", "me", 200, 100, 9000, "with-me", "older", "newer", "missing", "me") == [RENEWED, NO_EXPIRY]
    members = ("me", "with-me", "older", "newer", "bystander", "missing")
    assert [score_of(ask, member) for member in members] == [200, 200, 99, 101, 100, None]
    answer = renew("lock", "me", 300, 100, 9000, "with-me")
    assert answer[:2] == [DEFERRED, NO_EXPIRY] and score_of(ask, "with-me") == 200

    put(ask, "ZADD lock 7 me 7 with-me 8 newer 7 bystander")
    assert release("lock", "other", 7, "with-me") == 0 and ask("ZCARD lock") == 4
    assert release("lock", "me", 7, "with-me", "newer", "missing") == 1
    assert ask("ZRANGE lock 0 -1") == ["bystander", "newer"]


# ---- locks without a time to live ----


def test_a_life_is_given_to_the_owners_lock_only(ask):
    heal = ask.script(HEAL, OWN_CLOCK)
    assert heal("lock", "me", 5000, EPOCH) == [GONE, NO_KEY]
    assert ask("DBSIZE") == 0, "it was made"
    for command, life, code, told in [
        ("SETNX lock other", None, NOT_OWNER, NO_EXPIRY), ("SET lock other", 10, NOT_OWNER, 10),
        ("HSET lock me 1", None, ANOTHER_TYPE, NO_EXPIRY), ("SET lock me", None, RENEWED, 5000),
    ]:  # fmt: skip
        put(ask, command, life)
        assert heal("lock", "me", 5000, EPOCH) == [code, told], command
        assert ends(ask) == told
    for life in (9000, 1):
        assert heal("lock", "me", life, EPOCH + 1) == [DEFERRED, 4999], "it has one"
        assert ends(ask) == 5000


def test_each_key_that_the_token_owns_is_healed(ask):
    ask("MSET {a}1 other {a}2 me {a}3 me")
    assert ask.script(HEAL)("{a}1 {a}2 {a}3", "me", 60000) == [NOT_OWNER, NO_EXPIRY]
    assert ask("PTTL {a}1") == NO_EXPIRY and ask("PTTL {a}2") > 0 and ask("PTTL {a}3") > 0


# ---- releases ----


def test_only_what_holds_the_token_is_deleted(ask):
    release = ask.script("lease_release")
    four = "{a}1 {a}2 {a}3 {a}4"
    assert release(four, "me") == 0
    ask.all("SET {a}1 me PX 60000", "SET {a}2 other", "RPUSH {a}3 me", "SET {a}4 me")
    assert [release(four, owner) for owner in ("m", "", "me", "me")] == [0, 0, 2, 0]
    assert sorted(ask("KEYS *")) == ["{a}2", "{a}3"]
    ask("SET {a}1 me")
    assert release("{a}1 {a}1", "me") == 1, "named twice"


def test_the_field_of_the_owner_is_removed_and_nothing_published(ask):
    release = ask.script("lease_release_hash")
    ask("CONFIG RESETSTAT")
    assert release("lock", "me") == 0
    put(ask, "HSET lock me 3 other 1", 0)
    assert [release("lock", owner) for owner in ("m", "me")] == [0, 1]
    assert ask("HGETALL lock") == ["other", "1"] and ends(ask) == 0
    assert [release("lock", owner) for owner in ("me", "other")] == [0, 1]
    ask("SET lock me")
    assert release("lock", "me") == 0 and ask("EXISTS lock") == 1, "a string"
    statistics = ask("INFO commandstats")
    assert "cmdstat_hdel:" in statistics and "publish" not in statistics


def test_a_read_write_lock_is_left_to_the_others(ask):
    release = ask.script("lease_release_hash")
    ask("HSET lock mode read me 2 other 1")
    ask(f"MSET {HOLD}1 1 {HOLD}2 1 {{lock}}:other:rwlock_timeout:1 1")
    assert release(READER, "nobody") == 0
    assert ask("DBSIZE") == 4, "holds without a field"
    assert release(READER, "me") == 1
    assert sorted(ask("KEYS *")) == ["lock", "{lock}:other:rwlock_timeout:1"] and ask("HGET lock mode") == "read"
    assert release("lock", "other") == 1 and ask("EXISTS lock") == 0, "its mode alone is left"
    for others, owner, mode in [("me 1", "me:write", "read"), ("me 1", "me", "write"), ("", "me:write", None)]:
        put(ask, f"HSET lock mode write me:write 1 {others}")
        assert release("lock", owner) == 1 and ask("HGET lock mode") == mode


def test_the_permit_of_the_owner_is_removed(ask):
    release = ask.script("lease_release_zset")
    assert release("lock", "me") == 0
    ask("ZADD lock 1 me 2 other")
    assert [release("lock", owner) for owner in ("m", "me", "me")] == [0, 1, 0]
    assert ask("ZRANGE lock 0 -1 WITHSCORES") == ["other", "2"]
    put(ask, "SADD lock me")
    assert release("lock", "me") == 0 and ask("SCARD lock") == 1, "a set"


@pytest.mark.parametrize(
    ("name", "take", "extend", "most"),
    [
        ("lease_release", "SET lock me PX 60000", "PEXPIRE lock 90000", 60000),
        ("lease_release", "SET lock me PX 60000", "PERSIST lock", 60000),
        ("lease_release_hash", "HSET lock me 1", "PEXPIRE lock 90000", 60000),
        ("lease_release_zset", "ZADD lock 1 me", "ZADD lock 2 me", 1),
    ],
)
def test_what_was_extended_meanwhile_is_left(ask, name, take, extend, most):
    """By the owner, who has come back."""
    release = ask.script(name)
    ask.all(take, extend)
    assert release("lock", "me", most) == 0 and ask("EXISTS lock") == 1
    put(ask, take)
    if name == "lease_release_hash":
        ask("PEXPIRE lock 60000")
    assert release("lock", "me", most) == 1


# ---- in real time ----


def test_a_lock_is_kept_in_real_time(ask):
    renew = ask.script(STRING)
    began = put_at = now()
    ask.all("SET {a}1 me PX 1500", "SET {a}2 me PX 1500")
    while now() - began < 3000:
        time.sleep(0.05)
        asked = now()
        assert renew("{a}1 {a}2", "me", 1500, 1500 - (asked - put_at), 1400) == [RENEWED, 1500]
        for key in ("{a}1", "{a}2"):
            assert_life_since(ask, key, 1500, asked)
        put_at = asked
    time.sleep(1.6)
    assert renew("{a}1 {a}2", "me", 1500, 0, 100) == [GONE, NO_KEY], "left alone"
    assert ask("DBSIZE") == 0


def test_what_was_released_is_not_brought_back_in_real_time(ask):
    """The race that has locks live for ever elsewhere: here a renewal after the release finds nothing."""
    renew = ask.script(STRING)
    ask.all("SET lock me PX 30000", "DEL lock")
    assert renew("lock", "me", 30000, 30000, 1000) == [GONE, NO_KEY]
    ask("SET lock other PX 5000")
    assert renew("lock", "me", 30000, 5000, 5000)[0] == NOT_OWNER
    assert ask("PTTL lock") <= 5000


@pytest.mark.parametrize(
    ("name", "commands", "keys", "arguments", "life"),
    [
        (
            HASH, ["HSET lock mode read me 1", "PEXPIRE lock 20000", f"SET {HOLD}1 1 PX 20000"], f"lock {HOLD}1",
            (30000, 20000, 10000), 30000,
        ),
        (ZSET, ["ZADD lock 1700000000123 me", "PEXPIRE lock 5000"], "lock", (1700000003456, 1700000000123, 9000), 9000),
        (HEAL, ["SETNX lock me"], "lock", (20000,), 20000),
    ],
)
def test_the_others_keep_it_too_in_real_time(ask, name, commands, keys, arguments, life):
    script = ask.script(name)
    began = now()
    ask.all(*commands)
    assert script(keys, "me", *arguments) == [RENEWED, life]
    for key in keys.split():
        assert_life_since(ask, key, life, began)
    if name == HEAL:
        assert ask.script(STRING)("lock", "me", 30000, 20000, 10000) == [RENEWED, 30000], "it can be renewed now"


# ---- all of them ----

# What takes the lock, and arguments by which it then is renewed or released: with {}, a lease.
CALLS = {
    STRING: ("SET lock me PX 60000", "{} 60000 60000"),
    HASH: ("HSET lock me 1", "{} 60000 60000"),
    ZSET: ("ZADD lock 1 me", "2 1 {}"),
    HEAL: ("SET lock me", "{}"),
    "lease_release": ("SET lock me", ""),
    "lease_release_hash": ("HSET lock me 1", ""),
    "lease_release_zset": ("ZADD lock 1 me", ""),
}


@pytest.mark.parametrize("name", [STRING, HASH, ZSET, HEAL])
def test_leases_that_are_none_and_leases_for_ages(ask, name):
    """PEXPIRE with nothing or less would delete the lock. The largest lease neither wraps around nor deletes."""
    script = ask.script(name)
    take, arguments = CALLS[name]
    ask(take)
    before = look(ask, "lock")
    for bad in ("0", "-1", "-60000", "0.5", "1.5", "nan", "-nan", "inf", "x", "1x", "1e17", "-inf", ""):
        words = [bad if word == "{}" else word for word in arguments.split()]
        assert script.error("lock", "me", *words).startswith("HEADGATE no key, or "), bad
        assert look(ask, "lock") == before, bad
    if name != HEAL:
        ask("PEXPIRE lock 60000")
    assert script("lock", "me", *arguments.format(2**53).split()) == [RENEWED, 2**53]
    assert ask("PTTL lock") > 2**53 - 1000


@pytest.mark.parametrize(
    ("name", "sound", "unsound"),
    [
        (STRING, "1000 1000 0", ["1000 1000", "1000 x 0", "1000 1.5 0", "1000 nan 0", "1000 1000 -1"]),
        (HASH, "1000 1000 0", ["1000 1000", "1000 -inf 0", "1000 1000 nan"]),
        (ZSET, "2 1 1000", ["nan 1 1000", "inf 1 1000", "2 nan 1000", "2 -inf 1000", "2 1", "x 1 1000"]),
        (HEAL, "1000", [""]),
    ],
)
def test_other_arguments_that_are_none(ask, name, sound, unsound):
    script = ask.script(name)
    for keys, arguments in [("", sound), *(("lock", each) for each in unsound)]:
        assert script.error(keys, "me", *arguments.split()).startswith("HEADGATE no key, or "), (keys, arguments)
    assert ask("DBSIZE") == 0


@pytest.mark.parametrize("name", CALLS)
def test_what_redis_refuses_is_said(ask, name):
    """That is not a lock that is gone."""
    script = ask.script(name)
    take, arguments = CALLS[name]
    ask("ACL SETUSER default -get -hexists -zscore -hdel -zrem")
    ask(take)
    script.error("lock", "me", *arguments.format(90000).split())
    assert ask("EXISTS lock") == 1


@pytest.mark.parametrize("name", [STRING, HASH, ZSET, HEAL, *RELEASES])
def test_no_key_is_touched_that_is_not_declared(name):
    """In the text, as calls that no test leads to count, too."""
    calls = re.findall(r"call\('\w+', ([^\n]*)", (LUA / f"{name}.lua").read_text())
    assert calls and all(call.startswith(("key", "KEYS[", "name")) for call in calls), calls
