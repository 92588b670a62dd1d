"""The scripts that renew leases, whatever clients and others do to locks meanwhile: each answers as a model does, and
does nothing that no renewal may do."""

import random
from collections import Counter

from lease_scripts import (
    ANOTHER_TYPE, DEFERRED, EPOCH, GONE, HASH, NO_EXPIRY, NO_KEY, NOT_OWNER, OWN_CLOCK, PERSISTENT, READER, RENEWED,
    SHORTENED, STRING, ZSET, look, same_number, score_of, score_told,
)  # fmt: skip

STEPS = 6000
EXPIRE = """for _, key in ipairs(KEYS) do
    local at = redis.call('PEXPIRETIME', key)
    if at >= 0 and at < tonumber(ARGV[1]) then redis.call('DEL', key) end
end"""


class Walk:
    """Time goes on, and by it keys expire. The same chance in each run."""

    def __init__(self, ask, keys):
        self.ask, self.keys = ask, keys.split()
        self.chance = random.Random(3)
        self.now = EPOCH
        self.counts = Counter()

    def step(self):
        self.now += self.chance.choice((0, 1)) * self.chance.randrange(20000 if self.chance.randrange(20) == 0 else 500)
        self.ask("EVAL", EXPIRE, len(self.keys), *self.keys, self.now)

    def end(self):
        """Of what is taken now: sometimes it is in its last ms."""
        return self.now + self.chance.randrange(30000) * min(1, self.chance.randrange(8))

    def terms(self, life):
        """Near to what is there, often at the very edge of the slack, sometimes far off."""
        slack = self.chance.randrange(3) * 500
        off = [0, 0, 0, slack, -slack, slack + 1, -slack - 1, self.chance.randrange(-20000, 20000)]
        return self.lease(), life + self.chance.choice(off), slack

    def lease(self):
        """1: it is only looked at."""
        return 1 + self.chance.randrange(30000) * min(1, self.chance.randrange(10))

    def renew(self, script, keys, owner, model):
        """On terms by chance: (before, after, when its lease ends, or None if it was not renewed)."""
        before, count = look(self.ask, keys, owner)
        terms = self.terms(self.chance.choice(before).life(self.now))
        answer = script(keys, owner, *terms, self.now)
        assert answer == model(before, terms, self.now)
        after, count_after = look(self.ask, keys, owner)
        assert count == count_after
        self.counts[answer[0]] += 1
        until = self.now + (terms[0] if terms[0] > 1 else 0)
        for one, other in zip(before, after):
            assert one[:2] == other[:2], "made, ended or changed"
            lengthened = answer[0] == RENEWED and 0 <= one.at < until
            assert other.at in ([one.at, until] if lengthened else [one.at]), "shortened, or lengthened otherwise"
        return before, after, until if answer[0] == RENEWED else None


# ---- strings ----

STRINGS = ["{s}1", "{s}2", "{s}3", "{s}4"]
TOKENS = ["token-1", "token-2", "token-3"]
RELEASE = """return redis.call('TYPE', KEYS[1]).ok == 'string' and
    redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"""


def do_something_to_strings(walk):
    """Those who keep to the rules, and those who do not."""
    key, token = walk.chance.choice(STRINGS), walk.chance.choice(TOKENS)
    at = walk.end()
    done = walk.chance.randrange(14)
    if done == 5 or done == 6:
        walk.ask("EVAL", RELEASE, 1, key, token)
        return
    take = f"SET {key} {token} NX PXAT {at}"
    all_of_them = [f"SET {each} {token} NX PXAT {at}" for each in STRINGS]
    others = [
        [f"SET {key} {token} PXAT {at}"], [f"SETNX {key} {token}"], [f"PERSIST {key}"], [f"PEXPIREAT {key} {at}"],
        [f"DEL {key}"], ["FLUSHALL"], [f"DEL {key}", f"RPUSH {key} {token}", f"PEXPIREAT {key} {at}"],
    ]  # fmt: skip
    walk.ask.all(*(all_of_them if done < 2 else [take] if done < 5 else others[done - 7]))


def code_of_string(seen, left, terms):
    _, expected, slack = terms
    if seen.type == "none":
        return GONE
    if seen.type != "string":
        return ANOTHER_TYPE
    if not seen.owned:
        return NOT_OWNER
    return PERSISTENT if seen.at == NO_EXPIRY else code_of_life(left, expected, slack)


def code_of_life(left, expected, slack):
    return SHORTENED if expected - left > slack else DEFERRED if left - expected > slack else RENEWED


def model_strings(seen, terms, now):
    """The worst of the codes, with the shortest life of those that have it; of the first one, if it was not renewed by
    anybody."""
    lives = [(code_of_string(each, each.life(now), terms), each.life(now)) for each in seen]
    code = min(one for one, _ in lives)
    left = min(life for one, life in lives if one == code)
    return [code, left_after(left, code, terms[0])]


def left_after(left, code, lease):
    return max(left, lease) if code == RENEWED and lease > 1 and left >= 0 else left


def test_strings(ask):
    renew = ask.script(STRING, OWN_CLOCK)
    walk = Walk(ask, " ".join(STRINGS))
    several = 0
    for _ in range(STEPS):
        do_something_to_strings(walk)
        walk.step()
        count, first = 1 + walk.chance.randrange(2) * walk.chance.randrange(4), walk.chance.randrange(4)
        keys = " ".join((STRINGS * 2)[first : first + count])
        before, after, until = walk.renew(renew, keys, walk.chance.choice(TOKENS), model_strings)
        assert not until or all(one.owned and other.at >= until for one, other in zip(before, after))
        several += bool(until) and count > 1
    assert all(walk.counts[code] >= 100 for code in range(ANOTHER_TYPE, DEFERRED + 1)) and several > 20, walk.counts


# ---- hashes ----

READERS = {"me": READER, "you": READER.replace(":me:", ":you:")}
# As Redisson does, as far as keys are concerned.
REDISSON = """local verb, owner, at = ARGV[1], ARGV[2], ARGV[3]
local type, mode = redis.call('TYPE', 'lock').ok, false
if type ~= 'none' and type ~= 'hash' then return end
if type == 'hash' then mode = redis.call('HGET', 'lock', 'mode') end
local hold = '{lock}:' .. owner .. ':rwlock_timeout:'
if verb == 'lock' and (type == 'none' or not mode and redis.call('HEXISTS', 'lock', owner) == 1) then
    redis.call('HINCRBY', 'lock', owner, 1)
    redis.call('PEXPIREAT', 'lock', at)
elseif verb == 'read' and (type == 'none' or mode == 'read') then
    local count = redis.call('HINCRBY', 'lock', owner, 1)
    if count > 3 then redis.call('HINCRBY', 'lock', owner, -1) return end
    redis.call('HSET', 'lock', 'mode', 'read')
    redis.call('SET', hold .. count, 1, 'PXAT', at)
    redis.call('PEXPIREAT', 'lock', at, unpack(type == 'hash' and {'GT'} or {}))
elseif verb == 'unlock' and type == 'hash' and redis.call('HEXISTS', 'lock', owner) == 1 then
    local count = redis.call('HINCRBY', 'lock', owner, -1)
    if mode then redis.call('DEL', hold .. (count + 1)) end
    if count <= 0 then redis.call('HDEL', 'lock', owner) end
    if mode and redis.call('HLEN', 'lock') == 1 then redis.call('DEL', 'lock') end
end
"""


def do_something_to_a_hash(walk):
    owner, key = walk.chance.choice([*READERS]), walk.chance.choice(walk.keys)
    at = walk.end()
    done = walk.chance.randrange(14)
    if done < 8:
        walk.ask("EVAL", REDISSON, 0, "lock" if done < 2 else "read" if done < 6 else "unlock", owner, at)
        return
    others = [
        ["DEL lock", f"HSET lock {owner} 1", f"PEXPIREAT lock {at}"], [f"PERSIST {key}"], [f"PEXPIREAT {key} {at}"],
        [f"PEXPIREAT {key} {at}"], [f"DEL {key}"], ["FLUSHALL", f"RPUSH {key} 1"][: 1 + walk.chance.randrange(2)],
    ]  # fmt: skip
    walk.ask.all(*others[done - 8])


def model_hash(seen, terms, now):
    lock, *holds = seen
    left = lock.life(now)
    if left == NO_KEY:
        return [GONE, NO_KEY]
    if lock.type != "hash" or not lock.owned:
        return [NOT_OWNER if lock.type == "hash" else ANOTHER_TYPE, left]
    if left == NO_EXPIRY:
        return [PERSISTENT, NO_EXPIRY]
    for hold in holds:
        if hold.at != NO_KEY and hold.type != "string":
            return [ANOTHER_TYPE, hold.life(now)]
        if hold.at == NO_EXPIRY:
            return [PERSISTENT, NO_EXPIRY]
    longest = max([hold.life(now) for hold in holds], default=left)
    if longest == NO_KEY:
        return [GONE, NO_KEY]
    left = min(left, longest)
    code = code_of_life(left, *terms[1:])
    return [code, left_after(left, code, terms[0])]


def test_hashes(ask):
    renew = ask.script(HASH, OWN_CLOCK)
    walk = Walk(ask, " ".join(READERS.values()))
    holds = 0
    for _ in range(STEPS):
        do_something_to_a_hash(walk)
        walk.step()
        owner = walk.chance.choice([*READERS])
        reads = ask("TYPE lock") == "hash" and ask("HEXISTS lock mode")
        keys = READERS[owner].split()[: 1 + walk.chance.randrange(4) if reads else 1]
        before, after, until = walk.renew(renew, " ".join(keys), owner, model_hash)
        assert not until or before[0].owned
        assert not until or all(one.at == NO_KEY or other.at >= until for one, other in zip(before, after))
        holds += sum(other.at > one.at for one, other in zip(before[1:], after[1:]))
    assert all(walk.counts[code] >= 60 for code in range(ANOTHER_TYPE, DEFERRED + 1)) and holds > 100, walk.counts


# ---- sorted sets ----

MEMBERS = ["permit-1", "permit-2", "permit-3"]


def do_something_to_a_sorted_set(walk):
    member, at = walk.chance.choice(MEMBERS), walk.end()
    if walk.ask("TYPE lock") not in ("zset", "none"):
        walk.ask("DEL lock")
    add = [f"ZADD lock {walk.now} {member}"]
    others = [
        add, add, add, add, [f"ZADD lock {walk.now // 1000}.{walk.chance.randrange(1000):03} {member}"],
        [f"ZREM lock {member}"], [f"ZREMRANGEBYSCORE lock -inf {walk.now - 10000}"], [f"PEXPIREAT lock {at}"],
        [f"PEXPIREAT lock {at}"], ["PERSIST lock"],
        ["DEL lock", f"SET lock {member} PXAT {at}"][: 1 + walk.chance.randrange(2)],
    ]  # fmt: skip
    walk.ask.all(*walk.chance.choice(others))


def model_sorted_set(seen, found, expected, lease, now):
    left = seen.life(now)
    if left == NO_KEY:
        return [GONE, left]
    if seen.type != "zset" or not seen.owned:
        return [NOT_OWNER if seen.type == "zset" else ANOTHER_TYPE, left]
    return [DEFERRED, left] if found != expected else [RENEWED, left_after(left, RENEWED, lease)]


def scores_of(ask, seen):
    return {member: score_of(ask, member) if seen.type == "zset" else None for member in MEMBERS}


def test_sorted_sets(ask):
    renew = ask.script(ZSET, OWN_CLOCK)
    walk = Walk(ask, "lock")
    chance = walk.chance
    for _ in range(STEPS):
        do_something_to_a_sorted_set(walk)
        walk.step()
        member = chance.choice(MEMBERS)
        [before], _ = look(ask, "lock", member)
        scores = scores_of(ask, before)
        found = scores[member]
        expected = 1.0 if found is None else found
        if chance.randrange(5) == 0:  # the last of its digits, or a little more
            expected *= 1 + 2**-52
        score = expected + (chance.randrange(2000) - 300) / chance.choice((1, 1000))
        lease = walk.lease()
        answer = renew("lock", member, score, expected, lease, walk.now)
        [after], _ = look(ask, "lock", member)
        assert answer[:2] == model_sorted_set(before, found, expected, lease, walk.now)
        assert answer[0] != DEFERRED or same_number(score_told(answer), found)
        assert before.type == after.type and after.life(walk.now) == answer[1] and after.at >= before.at
        assert answer[0] == RENEWED or before == after
        if answer[0] == RENEWED:
            scores[member] = max(score, found)
        assert scores_of(ask, after) == scores
        walk.counts[answer[0]] += 1
    assert all(walk.counts[code] >= 100 for code in (ANOTHER_TYPE, NOT_OWNER, GONE, RENEWED, DEFERRED)), walk.counts
