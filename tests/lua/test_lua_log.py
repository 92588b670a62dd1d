"""The scripts of counters and events, on a real Redis, against models that keep everything.

Most tests bring a clock of their own, so that days pass in a moment. The tests called …_in_real_time bring none.
"""

import calendar
import random
import time

import pytest

# 2023-11-14, 22:13:20.
NOW = 1700000000
HOUR = 3600

# Goes before a script whose last argument is the time.
OWN_CLOCK = """local own_time, real = table.remove(ARGV), redis
local redis = setmetatable({call = function(name, ...)
    if name == 'TIME' then
        return {own_time, '0'}
    end
    return real.call(name, ...)
end}, {__index = real})
"""


def assert_needs(ask, rights, refused):
    """Of all rights that it needs, each is taken away in turn."""
    for right in rights.split():
        ask(f"ACL SETUSER sidecar reset on nopass ~* +@all -{right}")
        ask("AUTH sidecar x")
        refused("NOPERM")
    ask("AUTH default x")


def assert_harms_nothing_in_the_way(ask, keys, put, kind, refused):
    for key in keys.split():
        ask(put.format(key))
        refused(f"HEADGATE key {key} holds a {kind}, nothing was written")
        ask("DEL", key)


def assert_is_refused_with_redis(ask, refused):
    for before, error, after in [
        ("CONFIG SET maxmemory 1", "OOM", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "READONLY", "REPLICAOF NO ONE"),
    ]:
        ask(before)
        refused(error)
        ask(after)


# ---- counters ----

PRECISIONS = [1, 5, 60, 300, 3600, 18000, 86400]
SAMPLES = 120
HASHES = [f"count:{precision}:hits" for precision in PRECISIONS]
COUNTER_KEYS = f"known: count:hits:by:5f3a {' '.join(HASHES)}"


class Counter:
    def __init__(self, ask):
        self.ask, self.add, self.read = ask, ask.script("counter_add", OWN_CLOCK), ask.script("counter_read", OWN_CLOCK)

    def arguments(self, number, ages, now):
        return (COUNTER_KEYS, number, 3600, "hits", " ".join(map(str, PRECISIONS)), SAMPLES, ages, now)

    def __call__(self, number, ages, now=NOW):
        """ages: how long ago, and how many, time and again."""
        return self.add(*self.arguments(number, ages, now))

    def refused(self, error):
        """With a number that lets it through whenever it can be."""
        keys = self.ask("DBSIZE")
        assert self.add.error(*self.arguments(1, "0 1", NOW)).startswith(error)
        assert self.ask("DBSIZE") == keys, f"{error}, and something was written"

    def of(self, precision, slice):
        return int(self.ask(f"HGET count:{precision}:hits", slice) or -1)

    def all(self, precision, now):
        numbers = self.read.read(f"count:{precision}:hits", 1000, now)
        return list(zip(numbers[::2], numbers[1::2]))


@pytest.fixture
def count(ask):
    return Counter(ask)


def test_a_slice_of_every_precision_is_filled(ask, count):
    assert count(1, "0 5") == 1
    slices = [1700000000, 1700000000, 1699999980, 1699999800, 1699999200, 1699992000, 1699920000]
    assert [count.of(precision, slice) for precision, slice in zip(PRECISIONS, slices)] == [5] * 7
    assert count(2, "0 1 1 20 2 300", NOW + 1) == 1
    assert [count.of(1, NOW + 1 - age) for age in range(3)] == [1, 25, 300]
    assert (count.of(5, 1700000000), count.of(5, 1699999995), count.of(86400, 1699920000)) == (26, 300, 326)
    # known: lists them, as who cleans up or reads them all expects.
    assert sorted(ask("ZRANGEBYSCORE known: 0 0")) == sorted(f"{precision}:hits" for precision in PRECISIONS)


def test_a_repeated_count_counts_once(ask, count):
    assert [count(7, "0 5"), count(7, "3 5", NOW + 3), count(6, "0 5")] == [1, 0, 0]
    assert count.of(86400, 1699920000) == 5 and ask("HLEN count:1:hits") == 1
    assert count(8, "0 1") == 1 and count.of(86400, 1699920000) == 6
    assert 3500 <= ask("TTL count:hits:by:5f3a") <= 3600


def test_the_newest_samples_of_every_precision_are_kept(count):
    """Time goes on by steps of all sizes, and some things are told late: the newest samples are there, each with its
    sum."""
    chance = random.Random(4)
    models = {precision: {} for precision in PRECISIONS}
    now = NOW
    for call in range(1, 1501):
        now += chance.randrange(200000 if chance.randrange(3) == 0 else 40)
        ages = [chance.randrange(chance.choice((5, 4000))) for _ in range(chance.randrange(4))]
        told = [(age, 1 + chance.randrange(9)) for age in ages]
        for age, number in told:
            for precision, model in models.items():
                slice = (now - age) // precision * precision
                if slice <= now // precision * precision - SAMPLES * precision:
                    continue
                if slice in model or len(model) < SAMPLES or slice > min(model):
                    model[slice] = model.get(slice, 0) + number
                if len(model) > SAMPLES:
                    del model[min(model)]
        assert count(call, " ".join(f"{age} {number}" for age, number in told), now) == 1
        if call % 50 == 0:
            for precision, model in models.items():
                assert count.all(precision, now) == sorted(model.items()), precision
    assert len(models[1]) == len(models[86400]) == SAMPLES


def test_a_clock_that_was_set_back_does_not_hide_what_comes(ask, count):
    for number in range(SAMPLES):
        assert count(1 + number, "0 1", NOW + number) == 1
    assert ask("HLEN count:1:hits") == SAMPLES
    assert count(SAMPLES + 1, "0 9", NOW - HOUR) == 1
    assert count.of(1, NOW - HOUR) == 9 and ask("HLEN count:1:hits") <= SAMPLES
    assert count.all(HOUR, NOW - HOUR) == [((NOW - HOUR) // HOUR * HOUR, 9)]


def test_what_is_not_added_to_any_more_expires_and_leaves_the_list(ask, count):
    assert count(1, "0 1") == 1
    for precision in PRECISIONS:
        most = precision * (SAMPLES + 1)
        assert most - 90 <= ask(f"TTL count:{precision}:hits") <= most
    # As if it had expired. A call that adds nothing cleans up, and keeps no hash alive.
    ask.all("DEL count:1:hits", "EXPIRE count:5:hits 100")
    assert count(2, "") == 1
    assert ask("ZSCORE known: 1:hits") is None and ask("ZSCORE known: 5:hits") == "0"
    assert ask("TTL count:5:hits") <= 100 and ask("ZCARD known:") == len(PRECISIONS) - 1
    # What is older than all samples is not added at all.
    assert count(3, "120 1") == 1 and ask("EXISTS count:1:hits") == 0
    assert count(4, "119 1") == 1 and count.of(1, NOW - 119) == 1


def test_what_is_in_the_way_stops_a_count_before_it_begins(ask, count):
    keys = "known: count:hits:by:5f3a count:1:hits count:86400:hits"
    assert_harms_nothing_in_the_way(ask, keys, "RPUSH {} somebody's", "list", count.refused)
    assert_is_refused_with_redis(ask, count.refused)
    assert_needs(ask, "set time hincrby hlen hkeys hdel exists expire zadd zrem", count.refused)
    assert count(1, "0 1") == 1, "the same number is let through when it can be"
    # Fields of others are left alone.
    ask("HSET count:1:hits 1700000000 theirs mine 1")
    assert count(2, "0 1") == 1
    assert ask("HGET count:1:hits 1700000000") == "theirs" and count.of(5, NOW) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "0|1|hits|1|120|0 1", "1|0|hits|1|120|0 1", "1|1|hits|0|120|0 1", "1|1|hits|1 5|120|0 1", "1|1|hits||120|0 1",
        "1|1|hits|1|0|0 1", "1|1|hits|1|120|0", "1|1|hits|1|120|0 0", "1|1|hits|1|120|-1 1", "1|1|hits|1|120|0 1.5",
        "x|1|hits|1|120|0 1", "1|1|hits|1|120|0 99999999999999999",
    ],
)  # fmt: skip
def test_unsound_arguments_of_a_counter_are_refused(ask, arguments):
    error = ask.script("counter_add").error("known: number hash", *arguments.split("|"))
    assert error.startswith("HEADGATE the arguments of a counter are not sound")
    assert ask("DBSIZE") == 0


def test_no_more_is_read_than_is_asked_for(ask):
    read = ask.script("counter_read")
    ask("HSET hash 10 many 9 2 8 -3 -5 3 text 4 99999999999 5")
    numbers = read.read("hash", 3)
    assert numbers[1:] == [-1, 9, 2, 10, -1], "no number is no count"
    assert read.read("nothing", 2) == []
    ask("SET text text")
    assert read.error("text", 2).startswith("WRONGTYPE")
    for keys, most in [("hash", [0]), ("hash", [1001]), ("", [])]:
        assert read.error(keys, *most).startswith("HEADGATE no key")


def test_it_counts_by_the_clock_of_redis_in_real_time(ask):
    add = ask.script("counter_add")
    before = int(ask("TIME")[0])
    assert add("known: number count:86400:hits", 1, 60, "hits", 86400, 120, "0 3") == 1
    [slice, _] = ask("HGETALL count:86400:hits")
    assert int(slice) in (before // 86400 * 86400, (before // 86400 + 1) * 86400)


# ---- events ----

RECENT, COMMON = "recent:slow:warning", "common:slow:warning"
EVENT_KEYS = f"seen {RECENT} {COMMON} {COMMON}:start {COMMON}:last {COMMON}:pstart"


class Event:
    def __init__(self, ask):
        self.ask, self.log = ask, ask.script("event_log", OWN_CLOCK)

    def __call__(self, number, message, times=1, now=NOW, age=0):
        return self.log(EVENT_KEYS, number, 3600, 100, 50, 7200, message, times, age, now)

    def refused(self, error):
        keys = self.ask("DBSIZE")
        assert self.log.error(EVENT_KEYS, 9, 3600, 100, 50, 7200, "a", 1, 0, NOW + 2 * HOUR).startswith(error)
        assert self.ask("DBSIZE") == keys, f"{error}, and something was written"

    def lines(self):
        return self.ask(f"LRANGE {RECENT} 0 -1")

    def common(self, which=""):
        """The hour that it is of, and how often each message came."""
        found = self.ask(f"ZRANGE {COMMON}{which and ':last'} 0 -1 WITHSCORES")
        return self.ask(f"GET {COMMON}:{which}start"), dict(zip(found[::2], map(int, found[1::2])))


@pytest.fixture
def event(ask):
    return Event(ask)


def test_an_event_is_listed_and_counted(ask, event):
    assert event(1, "GET took 20 ms") == 1
    assert event(2, "two\r\nlines", 1, NOW + 1) == 1
    assert event(3, "GET took 20 ms", 3, NOW + 2) == 1
    assert event.lines() == [
        "Tue Nov 14 22:13:22 2023 GET took 20 ms (3 times)", "Tue Nov 14 22:13:21 2023 two\r\nlines",
        "Tue Nov 14 22:13:20 2023 GET took 20 ms",
    ]  # fmt: skip
    assert event.common() == ("2023-11-14T22:00:00", {"GET took 20 ms": 4, "two\r\nlines": 1})
    assert ask(f"EXISTS {COMMON}:last {COMMON}:pstart") == 0


def test_a_repeated_event_is_logged_once(event):
    assert [event(5, "a"), event(5, "a", 1, NOW + HOUR), event(4, "a")] == [1, 0, 0]
    assert len(event.lines()) == 1 and event.common() == ("2023-11-14T22:00:00", {"a": 1})


def test_the_hour_changes(ask, event):
    hour = NOW - NOW % HOUR
    assert [event(1, "first", 2, hour), event(2, "first", 1, hour + HOUR - 1)] == [1, 1]
    assert event.common() == ("2023-11-14T22:00:00", {"first": 3})
    assert event(3, "second", 1, hour + HOUR) == 1
    assert event.common() == ("2023-11-14T23:00:00", {"second": 1})
    assert event.common("p") == ("2023-11-14T22:00:00", {"first": 3})
    # The next day, after hours in which nothing happened.
    assert event(4, "third", 1, hour + 5 * HOUR) == 1
    assert event.common() == ("2023-11-15T03:00:00", {"third": 1})
    assert event.common("p") == ("2023-11-14T23:00:00", {"second": 1})
    # A clock that is set back: what it had been was before; and that hour goes on when it comes.
    assert event(5, "fourth", 1, hour + 4 * HOUR) == 1
    assert event.common() == ("2023-11-15T02:00:00", {"fourth": 1})
    assert event.common("p") == ("2023-11-15T03:00:00", {"third": 1})
    assert [event(6, "third", 1, hour + 5 * HOUR), event(6, "third", 1, hour + 5 * HOUR)] == [1, 0]
    assert event.common() == ("2023-11-15T03:00:00", {"third": 2})
    assert event.common("p") == ("2023-11-15T02:00:00", {"fourth": 1})
    # Somebody has deleted what was common: the hour before had nothing, then.
    ask("DEL", COMMON)
    assert event(7, "fifth", 1, hour + 6 * HOUR) == 1
    assert event.common() == ("2023-11-15T04:00:00", {"fifth": 1}) and ask(f"EXISTS {COMMON}:last") == 0


def test_times_are_written_as_the_calendar_has_them(ask, event):
    """Against the C library, over ends of years and thousands of days, leap days and others, from 1970 to 2370."""
    chance = random.Random(5)
    for call in range(1, 3001):
        now = chance.randrange(12622780800)
        if call % 3 == 0:
            # The first and last seconds of March, around leap days, and of years.
            first = calendar.timegm((1970 + chance.randrange(400), 3 if call % 2 == 0 else 1, 1, 0, 0, 0))
            now = max(0, first - chance.randrange(2))
        ask("DEL", f"{COMMON}:start")
        assert event(call, "x", 1, now) == 1
        assert ask(f"LINDEX {RECENT} 0") == time.strftime("%a %b %e %H:%M:%S %Y x", time.gmtime(now))
        assert ask(f"GET {COMMON}:start") == time.strftime("%Y-%m-%dT%H:00:00", time.gmtime(now))


def test_an_event_is_listed_under_its_time_and_counted_in_the_hour_of_the_call(event):
    """Redis was away, or Headgate gathered: the line has the time at which it happened."""
    for number, message, times, age in [(1, "lost", 4, 800), (2, "lost", 1, 801), (3, "long ago", 1, NOW + 1)]:
        assert event(number, message, times, NOW, age) == 1
    assert event.lines() == [
        "Thu Jan  1 00:00:00 1970 long ago", "Tue Nov 14 21:59:59 2023 lost", "Tue Nov 14 22:00:00 2023 lost (4 times)",
    ]  # fmt: skip
    assert event.common() == ("2023-11-14T22:00:00", {"lost": 5, "long ago": 1})


def test_list_and_sorted_sets_are_cut(event):
    for number in range(1, 301):
        assert event(number, f"message {number}", number) == 1
    lines, (_, counts) = event.lines(), event.common()
    assert len(lines) == 100 and lines[-1] == "Tue Nov 14 22:13:20 2023 message 201 (201 times)"
    assert counts == {f"message {number}": number for number in range(251, 301)}


def test_several_events_in_one_call(ask, event):
    assert event.log(EVENT_KEYS, 1, 3600, 2, 50, 0, *"a 1 0 b 2 7 c 1 1".split(), NOW) == 1
    assert event.lines() == ["Tue Nov 14 22:13:19 2023 c", "Tue Nov 14 22:13:13 2023 b (2 times)"]
    assert event.common()[1] == {"a": 1, "b": 2, "c": 1}
    assert ask("TTL", COMMON) == ask("TTL", RECENT) == -1, "kept for ever"


def test_everything_of_events_expires(ask, event):
    assert [event(1, "a"), event(2, "a", 1, NOW + HOUR)] == [1, 1]
    for key in EVENT_KEYS.split():
        most = 3600 if key == "seen" else 7200
        assert most - 100 <= ask("TTL", key) <= most, key


def test_what_is_in_the_way_stops_an_event_before_it_begins(ask, event):
    assert_harms_nothing_in_the_way(ask, EVENT_KEYS, "HSET {} somebody's 1", "hash", event.refused)
    assert event(1, "a") == 1
    assert_is_refused_with_redis(ask, event.refused)
    assert_needs(ask, "set time exists rename del lpush zincrby ltrim zremrangebyrank expire", event.refused)
    assert ask(f"GET {COMMON}:start") == "2023-11-14T22:00:00"
    assert event(9, "a", 1, NOW + 2 * HOUR) == 1, "the same number is let through when it can be"


@pytest.mark.parametrize(
    "arguments",
    [
        "0 1 100 50 0 a 1 0", "1 0 100 50 0 a 1 0", "1 1 0 50 0 a 1 0", "1 1 100 0 0 a 1 0", "1 1 100 50 -1 a 1 0",
        "1 1 100 50 0 a 0 0", "1 1 100 50 0 a 1 -1", "1 1 100 50 0 a 1", "1 1 100 50 0 a", "1 1 100 50 0",
        "1 1 100 50 0 a 1 0 b", "1 1 100 50 0 a 1 0 b 1", "1 1 100 50 0 a 1.5 0", "1 1 100 50 0 a 1 0.5",
        "1 1 100 50 0 a 1 0 b x 0",
    ],
)  # fmt: skip
def test_unsound_arguments_of_an_event_are_refused(ask, arguments):
    log = ask.script("event_log")
    for keys, given in [(EVENT_KEYS, arguments), ("a b c d e", "1 1 100 50 0 a 1 0")]:
        assert log.error(keys, *given.split()).startswith("HEADGATE the arguments of an event are not sound")
    assert ask("DBSIZE") == 0


def test_lists_and_sorted_sets_are_read(ask):
    recent, common = ask.script("event_recent"), ask.script("event_common")
    ask.all(f"RPUSH {RECENT} c b a", f"ZADD {COMMON} 1 once inf often 2 twice")
    assert recent.read(RECENT, 2) == ["c", "b"]
    assert common.read(COMMON, 2) == ["often", "unknown", "twice", "2"]
    assert recent.error(COMMON, 2).startswith("WRONGTYPE") and common.error(RECENT, 2).startswith("WRONGTYPE")
    assert recent.error(RECENT, 0).startswith("HEADGATE no key") and common.error("", 1).startswith("HEADGATE no key")
