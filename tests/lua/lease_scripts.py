"""What the tests of the scripts of leases share: a clock, codes, and what there is.

Most tests bring a clock of their own, so that times to live are exact to the millisecond and hours pass in a moment.
It is so far ahead of Redis' that nothing expires by that one. The tests called …_in_real_time bring none.
"""

import struct
import time
from typing import NamedTuple

# 2100-01-01, in ms.
EPOCH = 4102444800000
# The codes that all scripts have in common.
ANOTHER_TYPE, SHORTENED, PERSISTENT, NOT_OWNER, GONE, RENEWED, DEFERRED = range(-4, 3)
# What stands for a time to live.
NO_KEY, NO_EXPIRY = -2, -1
STRING, HASH, ZSET, HEAL = "lease_renew_string", "lease_renew_hash", "lease_renew_zset", "lease_heal"
RELEASES = ["lease_release", "lease_release_hash", "lease_release_zset"]
# The keys of a reader of Redisson who holds a lock three times.
HOLD = "{lock}:me:rwlock_timeout:"
READER = f"lock {HOLD}1 {HOLD}2 {HOLD}3"

# Goes before a script whose last argument is the time.
OWN_CLOCK = """local own_time, real = tonumber(ARGV[#ARGV]), redis
local redis = setmetatable({call = function(name, key, ...)
    if name == 'PTTL' then
        local at = real.call('PEXPIRETIME', key)
        return at < 0 and at or at - own_time
    elseif name == 'PEXPIRE' then
        local life = tonumber((...))
        assert(life >= 1 and real.call('EXISTS', key) == 1)
        return real.call('PEXPIREAT', key, string.format('%.0f', own_time + life))
    end
    return real.call(name, key, ...)
end}, {__index = real})
"""

LOOK = """local seen = {}
for i, key in ipairs(KEYS) do
    local type, dump = redis.call('TYPE', key).ok, redis.call('DUMP', key)
    local owned = type == 'string' and redis.call('GET', key) == ARGV[1] or
        type == 'hash' and redis.call('HEXISTS', key, ARGV[1]) == 1 or
        type == 'zset' and redis.call('ZSCORE', key, ARGV[1]) ~= false
    seen[i] = {type, dump and redis.sha1hex(dump) or '', redis.call('PEXPIRETIME', key), owned and 1 or 0}
end
return {seen, redis.call('DBSIZE')}
"""


class Seen(NamedTuple):
    type: str
    digest: str  # of the value
    at: int  # when it ends, in ms; NO_KEY, NO_EXPIRY
    owned: int  # by the owner that was asked for

    def life(self, now):
        return self.at if self.at < 0 else self.at - now


def look(ask, keys, owner="me"):
    """Of each key what there is, and how many keys there are in all."""
    seen, count = ask("EVAL", LOOK, len(keys.split()), *keys.split(), owner)
    return [Seen(*one) for one in seen], count


def put(ask, command, life=None, key="lock"):
    """Anew, to live so long."""
    ask("DEL", key)
    ask(command)
    if life is not None:
        ask("PEXPIREAT", key, EPOCH + life)


def ends(ask, key="lock"):
    """So long after EPOCH, or NO_KEY, NO_EXPIRY."""
    at = ask("PEXPIRETIME", key)
    return at if at < 0 else at - EPOCH


def score_of(ask, member):
    score = ask("ZSCORE lock", member)
    return None if score is None else float(score)


def score_told(answer):
    """The double of which the answer has the halves of the bits."""
    return struct.unpack(">d", struct.pack(">II", *answer[2:]))[0]


def same_number(left, right):
    """-0 is another number than 0 here."""
    return struct.pack(">d", left) == struct.pack(">d", right)


def now():
    """Monotonic, in ms."""
    return time.monotonic_ns() // 1_000_000


def assert_life_since(ask, key, life, began):
    left = ask("PTTL", key)
    assert life - (now() - began) - 2 <= left <= life
