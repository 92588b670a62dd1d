"""The scripts that put latency on record, and list which interfaces there are, on a real Redis; and what the record
takes of its memory."""

import math

import pytest

# ---- which interfaces there are ----


@pytest.fixture
def add(ask):
    return ask.script("latency_list")


@pytest.fixture
def listed(ask):
    return ask.script("latency_listed")


def test_the_names_that_were_given(ask, add, listed):
    assert listed("s_interfaces", 10) == []
    assert add("s_interfaces", 100, "set", "orders|blocking") == 2
    assert add("s_interfaces", 100, "get", "set") == 3
    assert listed("s_interfaces", 10) == ["get", "orders|blocking", "set"]
    assert 80 < ask("TTL s_interfaces") <= 100


def test_names_that_nobody_gives_any_more_are_forgotten(ask, add, listed):
    ask("ZADD s_interfaces 1000 old")
    assert add("s_interfaces", 100, "get") == 1
    assert listed("s_interfaces", 10) == ["get"]


def test_those_that_were_named_last(ask, add, listed):
    ask("ZADD s_interfaces 1 a 3 c 2 b")
    assert listed("s_interfaces", 2) == ["b", "c"]
    # Before the clock was set back; that is no time to come.
    ask("ZADD s_interfaces 99999999999 d inf e")
    assert add("s_interfaces", 100, "get") == 3
    assert ask("ZCOUNT s_interfaces 99999999999 +inf") == 0
    assert listed("s_interfaces", 3) == ["d", "e", "get"]


def test_what_is_in_the_way_and_unsound_arguments(ask, add, listed):
    for keys, arguments in [("s_interfaces", (0, "get")), ("s_interfaces", ("x", "get")), ("", (100, "get"))]:
        assert add.error(keys, *arguments).startswith("HEADGATE the arguments")
    assert listed.error("s_interfaces", 0).startswith("HEADGATE no key")
    ask("CONFIG SET maxmemory 1")
    assert add.error("s_interfaces", 100, "get").startswith("OOM")
    assert ask("DBSIZE") == 0
    ask("CONFIG SET maxmemory 0")
    ask("SET s_interfaces mine")
    assert add.error("s_interfaces", 100, "get").startswith("HEADGATE key s_interfaces holds a string")
    assert listed.error("s_interfaces", 10).startswith("HEADGATE key s_interfaces cannot be read")
    assert ask("GET s_interfaces") == "mine"


# ---- flushing ----

MINUTE = 28333333
SETS = ("max", "min", "sum_count", "hist", "errors_bytes")
NUMBER = "statistics_get_flushed_by_5f3a-0"


def key(name, minute=MINUTE, interface="get"):
    return f"statistics_{interface}_{minute}_for_{name}"


def figures(*samples):
    """Of a minute, as a script is given them; samples: (µs, how many, errors)."""
    counts = {}
    for us, count, _ in samples:
        bucket = math.ceil(16 * math.log2(us)) - 1
        counts[bucket] = counts.get(bucket, 0) + count
    times, count = [us for us, _, _ in samples], sum(counts.values())
    total, errors = sum(us * count for us, count, _ in samples), sum(errors for _, _, errors in samples)
    buckets = [f"{number} {bucket}" for bucket, number in counts.items()]
    return " ".join(map(str, [max(times), min(times), total, count, errors, 30 * count, 500 * count, *buckets]))


TWO_MINUTES = {MINUTE: figures((1500, 2, 1), (250, 1, 0)), MINUTE + 1: figures((99, 1, 0))}


class Flush:
    def __init__(self, ask):
        self.ask, self.script = ask, ask.script("latency_flush")

    def keys(self, minutes, by, interface):
        sets = [key(name, minute, interface) for minute in minutes for name in SETS]
        return " ".join([f"statistics_{interface}_flushed_by_{by}", *sets])

    def __call__(self, number, minutes, by="5f3a-0", interface="get"):
        """minutes: figures by their minute, or pairs of them."""
        pairs = list(minutes.items() if isinstance(minutes, dict) else minutes)
        keys = self.keys([minute for minute, _ in pairs], by, interface)
        return self.script(keys, number, 3600, 86400, *(told for _, told in pairs))

    def refused(self, error):
        before = self.ask("DEBUG DIGEST")
        told = self.script.error(self.keys(TWO_MINUTES, "5f3a-0", "get"), 1, 3600, 86400, *TWO_MINUTES.values())
        assert told.startswith(error) and self.ask("DEBUG DIGEST") == before, f"{told}: and something was written?"

    def scores(self, name, minute=MINUTE, interface="get"):
        found = self.ask("ZRANGE", key(name, minute, interface), 0, -1, "WITHSCORES")
        return dict(zip(found[::2], map(float, found[1::2])))

    def count(self, minute=MINUTE):
        return self.scores("sum_count", minute).get("count")


@pytest.fixture
def flush(ask):
    return Flush(ask)


def test_the_sorted_sets_of_each_minute_are_written_and_expire(ask, flush):
    assert flush(1, TWO_MINUTES) == 1
    assert ask("DBSIZE") == 11 and ask("GET", NUMBER) == "1"
    assert [flush.scores(name) for name in SETS] == [
        {"max": 1.5}, {"min": 0.25}, {"sum": 3.25, "count": 3}, {"168": 2, "127": 1},
        {"errors": 1, "bytes_in": 90, "bytes_out": 1500},
    ]  # fmt: skip
    assert flush.scores("max", MINUTE + 1) == {"max": 0.099}
    assert flush.scores("sum_count", MINUTE + 1) == {"sum": 0.099, "count": 1}
    ask("PERSIST", key("hist"))
    assert flush(2, {MINUTE: figures((1500, 1, 0))}) == 1
    for each, most in [(key(name), 86400) for name in SETS] + [(key("hist", MINUTE + 1), 86400), (NUMBER, 3600)]:
        assert most - 90 <= ask("TTL", each) <= most, each


def test_later_flushes_add_to_the_minute(flush):
    values = [500, 700, 20, 600, 9000, 8999]
    for number, us in enumerate(values):
        assert flush(number + 1, {MINUTE: figures((us, 1, 1))}, "5f3a-0" if number % 2 == 0 else "77c1-0") == 1
        so_far = values[: number + 1]
        assert flush.scores("max") == {"max": max(so_far) / 1000} and flush.scores("min") == {"min": min(so_far) / 1000}
        assert flush.scores("sum_count") == {"sum": pytest.approx(sum(so_far) / 1000), "count": number + 1}
        assert flush.scores("errors_bytes")["errors"] == number + 1


def test_a_repeated_flush_counts_once(ask, flush):
    assert flush(1, TWO_MINUTES) == 1
    once = ask("DEBUG DIGEST")
    for _ in range(3):
        assert flush(1, TWO_MINUTES) == 0 and ask("DEBUG DIGEST") == once
    # The same number of another interface, or of another process, is another flush.
    assert flush(1, TWO_MINUTES, interface="set") == flush(1, TWO_MINUTES, by="77c1-0") == 1
    assert flush.count() == 6
    assert flush(2, {MINUTE: figures((7, 1, 0))}) == 1
    assert flush.count() == 7 and flush.scores("min") == {"min": 0.007}
    # An older one that comes late, as from a connection thought dead.
    assert [flush(10, TWO_MINUTES), flush(9, TWO_MINUTES), flush(11, TWO_MINUTES)] == [1, 0, 1]
    assert flush.count() == 13


def test_one_minute_twice_in_one_call(flush):
    assert flush(1, [(MINUTE, TWO_MINUTES[MINUTE])] * 2) == 1
    assert flush.count() == 6 and flush.scores("hist")["168"] == 4 and flush.scores("max") == {"max": 1.5}


def test_what_was_lost_of_a_minute_stays_so(ask, flush):
    """Evicted, say: what comes later alone would look whole."""
    assert flush(1, TWO_MINUTES) == 1
    for number, name in enumerate(SETS[:4]):
        ask("DEL", key(name))
        assert flush(2 + number, {MINUTE: figures((1500, 1, 0))}) == 1
        assert ask("EXISTS", key(name)) == 0
    assert flush.scores("errors_bytes")["bytes_in"] == 210


# ---- the pattern ----


def read_pattern(ask, first, count):
    """A reader that knows nothing of Headgate: it merges the minutes of an interface by ZUNIONSTORE."""
    for name, aggregate in [("max", "MAX"), ("min", "MIN"), ("sum_count", "SUM")]:
        keys = [key(name, first + number, "orders") for number in range(count)]
        ask(f"ZUNIONSTORE merged_{name}", count, *keys, "AGGREGATE", aggregate)
    members = [("max", "max"), ("min", "min"), ("sum_count", "sum"), ("sum_count", "count")]
    return [float(ask(f"ZSCORE merged_{name} {member}")) for name, member in members]


def write_pattern(ask, minute, ms):
    """A writer of the pattern, one request at a time."""
    for member, aggregate in [("max", "MAX"), ("min", "MIN")]:
        one = key(member, minute, "orders")
        ask.all(f"ZADD mine {ms} {member}", f"ZUNIONSTORE {one} 2 {one} mine AGGREGATE {aggregate}", "DEL mine")
    both = key("sum_count", minute, "orders")
    ask.all(f"ZINCRBY {both} 1 count", f"ZINCRBY {both} {ms} sum")


def test_readers_and_writers_of_the_pattern_need_not_know(ask, flush):
    more = {4: [(42, 1, 0)], 7: [(70077, 1, 0)]}
    for number in range(10):
        minute = figures((1000 + number, 3, 0), *more.get(number, []))
        assert flush(number + 1, {MINUTE + number: minute}, interface="orders") == 1
    assert read_pattern(ask, MINUTE - 3, 15) == [70.077, 0.042, pytest.approx(30.135 + 70.077 + 0.042), 32]
    assert read_pattern(ask, MINUTE, 2) == [1.001, 1, pytest.approx(6.003), 6]
    for ms in (99.5, 0.125):
        write_pattern(ask, MINUTE, ms)
    assert flush(11, {MINUTE: figures((50000, 1, 0), (1000, 1, 0))}, interface="orders") == 1
    assert read_pattern(ask, MINUTE, 1) == [99.5, 0.125, pytest.approx(3 + 99.5 + 0.125 + 51), 7]


def keys_of(minute, count, interface):
    return " ".join(key(name, minute + number, interface) for number in range(count) for name in SETS)


def test_a_report_reads_what_other_writers_left(ask):
    report = ask.script("latency_report")
    write_pattern(ask, MINUTE, 99.5)
    write_pattern(ask, MINUTE + 1, 0.125)
    count, total, least, most, *_ = report.read(keys_of(MINUTE, 3, "orders"))
    assert (count, total, least, most) == (2, 99625, 125, 99500)
    for name in SETS:
        ask("SET", key(name), "text")
        error = f"HEADGATE key {key(name)} cannot be read as a sorted set"
        assert report.error(keys_of(MINUTE - 1, 2, "get")).startswith(error)
        ask("DEL", key(name))
    assert all(report.error(keys).startswith("HEADGATE a report takes") for keys in ("", "a b c d"))


# ---- what is in the way ----


def test_what_is_in_the_way_stops_a_flush_before_it_begins(ask, flush):
    for each in [NUMBER, *map(key, SETS), key("max", MINUTE + 1), key("errors_bytes", MINUTE + 1)]:
        ask("RPUSH", each, "somebody's")
        flush.refused(f"HEADGATE key {each} holds a list, nothing was written")
        ask("DEL", each)
    ask("SET", key("hist"), "text")
    flush.refused(f"HEADGATE key {key('hist')} holds a string")
    ask("DEL", key("hist"))
    for before, error, after in [
        ("CONFIG SET maxmemory 1", "OOM", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "READONLY", "REPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1", "NOREPLICAS", "CONFIG SET min-replicas-to-write 0"),
    ]:
        ask(before)
        flush.refused(error)
        ask(after)
    sidecar = "ACL SETUSER sidecar reset on nopass"
    for right in ("set", "zscore", "zadd", "zincrby", "zunionstore", "del", "expire"):
        ask.all(f"{sidecar} ~* +@all -{right}", "AUTH sidecar x")
        flush.refused("NOPERM")
    ask("AUTH default x")
    rights = "+evalsha +type +get +set +zscore +zadd +zincrby +zunionstore +del +expire"
    ask.all(f"{sidecar} ~statistics_* {rights}", "AUTH sidecar x")
    assert [flush(1, TWO_MINUTES), flush(1, TWO_MINUTES)] == [1, 0], "the same flush is let through when it can be"
    ask("AUTH default x")
    assert (flush.count(), flush.count(MINUTE + 1)) == (3, 1)


@pytest.mark.parametrize(
    "unsound",
    [
        "", "1 2 3 4 5 6", "1 2 3 4 5 6 7 8", "1 2 3 4 5 6 x", "1 2 3 0 5 6 7", "1 2 3 -4 5 6 7", "1 2 3 4 5 6 7 0 8",
        "1 2 3 4 5 6 7 -1 8", "1 2 3 4 5 6 7 1 1.5", "1 2 3 4 5 6 7 nan 8", "1 2 3 4 5 6 7 1 -", "1 2 3 4 5 6 7 1 1-1",
        "1 2 3 4 5 6 7 8 1e3", "99999999999999999 2 3 4 5 6 7",
    ],
)  # fmt: skip
def test_unsound_figures_are_refused(ask, unsound):
    error = ask.script("latency_flush").error("a b c d e f", 1, 2, 3, unsound)
    assert error.startswith("HEADGATE the arguments of a flush are not sound")
    assert ask("DBSIZE") == 0


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ("a b c d e f", (0, 2, 3)), ("a b c d e f", (1, 0, 3)), ("a b c d e f", (1, 2, -1)),
        ("a b c d e f", (1, 2, "")), ("a b c d e", (1, 2, 3)), ("a b c d e f g", (1, 2, 3)), ("", (1, 2, 3)),
    ],
)  # fmt: skip
def test_other_unsound_arguments_are_refused(ask, keys, arguments):
    error = ask.script("latency_flush").error(keys, *arguments, "1 2 3 4 5 6 7")
    assert error.startswith("HEADGATE the arguments of a flush are not sound")
    assert ask("DBSIZE") == 0


# ---- memory ----

MINUTES = 512


def memory_used(ask):
    return int(dict(line.split(":", 1) for line in ask("INFO memory").splitlines() if ":" in line)["used_memory"])


def minute_takes(ask, script, buckets):
    """The mean of so many minutes, in bytes."""
    ask("FLUSHALL")
    before = memory_used(ask)
    for number in range(MINUTES):
        keys = f"statistics_orders_flushed_by_5f3a {keys_of(MINUTE + number, 1, 'orders')}"
        counts = " ".join(f"{1 + bucket * 7919 % 3000} {90 + bucket}" for bucket in range(buckets))
        told = f"41250 71 14865822 81234 3 4224168 9260676 {counts}"
        assert script(keys, number + 1, 3600, 604800, told) == 1
    return (memory_used(ask) - before) / MINUTES


def test_a_minute_takes_what_the_page_says(ask):
    """docs/latency.md, as operators choose retention by it."""
    script = ask.script("latency_flush")
    minute_takes(ask, script, 10)  # what Redis takes only once is there then
    takes = {buckets: minute_takes(ask, script, buckets) for buckets in (10, 50, 100, 130)}
    print(takes)
    assert max(takes[10], takes[50], takes[100]) <= 1700
    # Above zset-max-listpack-entries Redis keeps a sorted set in another way.
    assert takes[130] >= 10000
