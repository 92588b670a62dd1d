"""What the tests of the scripts that limit share: a clock, demands, and what is answered.

Most tests bring a clock of their own: hours pass in a moment, and arrivals hit the very microsecond that they aim at.
No key expires then, as that would be by Redis' clock. The tests called …_in_real_time bring none.
"""

import bisect
import itertools
import random
import time
from typing import NamedTuple

# In µs.
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
EPOCH = 1_700_000_000_123_456

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
OVERWRITTEN = "HEADGATE the state of this limit was overwritten"

# Goes before a script whose last argument is the time.
OWN_CLOCK = """local own_time, real = ARGV[#ARGV], redis
local redis = setmetatable({call = function(name, ...)
    if name == 'TIME' then
        return {string.sub(own_time, 1, -7), string.sub(own_time, -6)}
    end
    local reply = real.call(name, ...)
    real.call('PERSIST', KEYS[1])
    return reply
end}, {__index = real})
"""


class Window(NamedTuple):
    limit: int
    length: int


class Funnel(NamedTuple):
    capacity: int
    leak: int
    period: int


class Limit:
    """The script of slots, or that of funnels, as the limit is one or the other. now: None for Redis' own time."""

    def __init__(self, ask, limit, clock=OWN_CLOCK):
        self.ask, self.limit, self.mark = ask, limit, EPOCH
        self.script = ask.script("limit_slots" if isinstance(limit, Window) else "limit_funnel", clock)
        self.give = ask.script("limit_return", clock)

    def __call__(self, now, cost, least=None, hold=0, key="a", limit=None):
        """(granted, how long to wait for more); mark: by which it can be given back."""
        least = cost if least is None else least
        granted, wait, self.mark = self.script(key, *(limit or self.limit), cost, least, hold, *last(now))
        assert granted == 0 or least <= granted <= cost
        assert (wait > 0 or wait == -1) if granted == 0 else (wait > 0) == (granted < cost), (granted, wait)
        return granted, wait

    def takes_back(self, now, count, mark=None, key="a"):
        """mark: None for that of the last grant."""
        kind = "slots" if isinstance(self.limit, Window) else "funnel"
        return self.give(key, kind, count, self.mark if mark is None else mark, *self.limit[1:], *last(now))


def last(now):
    return [] if now is None else [now]


def redis_time(ask):
    seconds, micros = ask("TIME")
    return int(seconds) * SECOND + int(micros)


def wait_until(ask, until):
    while (now := redis_time(ask)) < until:
        time.sleep((until - now) / 1e6)


def assert_life(ask, script, call, said, key="life"):
    """After the call the key says something for so many ms, and is kept a second longer."""
    client = ask.client
    client.pipeline([("MULTI",), ("TIME",), (*script.words(key).split(), *call), ("PTTL", key), ("TIME",)])
    before, answer, life, after = client("EXEC")
    took = (time_of(after) - time_of(before)) // 1000 + 2
    assert said + 1000 - took <= life <= said + 1001, answer


def time_of(clock):
    return int(clock[0]) * SECOND + int(clock[1])


def level_of(ask, key="a"):
    """Of the funnel that is kept there."""
    return float(ask("GET", key).split()[0])


def assert_slots_stay_small(ask, key="a"):
    assert ask("STRLEN", key) <= 6 + 16 + 66 * 16
    assert ask("MEMORY USAGE", key) <= 2048


# ---- by chance ----


def pause(chance, length):
    """Until the next arrival: bursts, and whatever lies at the edges of windows and of their shares."""
    edge = chance.randrange(3) - 1
    far, near, close = (chance.randrange(length // part) for part in (2, 20, 500))
    quarters = length * (1 + chance.randrange(3)) // 4
    return chance.choice([length + edge, length // 64 + edge, far, near, near, close, close, 1, quarters, 0, 0, 0])


def demand(chance, limit):
    """(cost, the least of it that will do)"""
    most = limit // 6 if limit > 12 else limit
    cost = 1 + (chance.randrange(most) if chance.randrange(3) == 0 else 0)
    return cost, 1 + chance.randrange(cost) if chance.randrange(2) == 0 else cost


# ---- all that a test was granted ----


class Before:
    """How many there are before a time."""

    def __init__(self, counts):
        counts = sorted(counts)
        self.times = [time for time, _ in counts]
        self.sums = [0, *itertools.accumulate(count for _, count in counts)]

    def __call__(self, time):
        return self.sums[bisect.bisect_left(self.times, time)]


class History:
    """Grants: (from when on it may be spent, until when, how many)."""

    def __init__(self):
        self.grants = []

    def remember(self, first, last, count):
        self.grants.append((first, last, count))

    def forget_until(self, until):
        self.grants = [grant for grant in self.grants if grant[1] > until]

    def spent_after(self, after):
        return sum(count for _, last, count in self.grants if last > after)

    def assert_no_window_holds_more(self, window):
        """Each permit of a lease is spent when it suits who wants to break the limit. For the window that begins at a
        lease's last moment that is any moment they have in common; no other window can hold more."""
        begun = Before((first, count) for first, _, count in self.grants)
        over = Before((last, count) for _, last, count in self.grants)
        for _, begins, _ in self.grants:
            assert begun(begins + window.length) - over(begins) <= window.limit

    def assert_never_runs_over(self, funnel, spend):
        """In the order in which it is spent; spend: when, of (first, last)."""
        level, now = 0.0, EPOCH
        for at, count in sorted((spend(first, last), count) for first, last, count in self.grants):
            level = max(0.0, level - (at - now) * funnel.leak / funnel.period) + count
            now = at
            assert level <= funnel.capacity + 1e-6


def spenders(seed=6):
    """As soon as they may, as late as they may, and at any time between."""
    chance = random.Random(seed)
    return [min, max, *[lambda first, last: first + chance.randrange(last - first + 1)] * 3]
