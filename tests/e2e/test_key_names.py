"""The names of the keys that Headgate writes: all begin with headgate:, unless other prefixes are set."""

from harness.admin import stats
from harness.global_limits import KEYS, key_of
from harness.latency import ask, await_report, counter, interfaces, on_record
from harness.limits import admitted
from harness.resp import OK, wait_for
from harness.rules import launch

LATENCY = "[latency]\nenabled = on\nflush = 1s\nslowlog_threshold = 1us\n"
LIMITS = {"slots": "limit = 2\nwindow = 1h\n", "funnel": "algorithm = funnel\ncapacity = 2\nleak = 1/h\n"}


def rules(latency="", counters="", events="", limits=""):
    """All that writes keys of Headgate's own, with these options beside."""
    text = f"{LATENCY}{latency}[counters]\nenabled = on\n{counters}[events]\nenabled = on\n{events}"
    for name, numbers in LIMITS.items():
        text += f"[limit:{name}]\nkeys = {name}\ncommands = incr\nscope = global\nper = all\non_error = deny\n"
        text += f"decision_timeout = 30s\n{numbers}{limits}"
    return text + "[lease:locks]\nkeys = lock:*\nrenew = 1/100\n"


def use_everything(headgate):
    """Until all of it has been written."""
    client = headgate.connect()
    for name in LIMITS:
        assert admitted([client("INCR", name) for _ in range(4)], name) == 2
    assert client("SET", "lock:a", "token", "NX", "EX", "30") == OK
    wait_for(lambda: int(stats(headgate, "lease")["lease_renewals_total"]) > 0, 30, "a renewal")
    await_report(headgate, "incr", 4 * len(LIMITS))
    wait_for(lambda: "incr" in interfaces(headgate, "REPORT", "*"), 30, "it to be listed")
    wait_for(lambda: ask(headgate, "COUNTER", "refusals", "60"), 30, "refusals to be counted")
    wait_for(lambda: ask(headgate, "COMMON", "refusals", "info"), 30, "refusals to be logged")
    wait_for(lambda: ask(headgate, "COMMON", "slow", "warning"), 30, "slow requests to be logged")
    assert counter(headgate, "flush_failures_total") == 0


def written(redis):
    with redis.connect() as direct:
        return {key.decode() for key in direct("KEYS", "*")} - {*LIMITS, "lock:a"}


def test_all_keys_of_headgate_begin_with_its_name(redis, make_headgate):
    use_everything(launch(make_headgate, redis, "shared", rules()))
    names = written(redis)
    assert all(name.startswith("headgate:") for name in names), names
    for kind in LIMITS:
        assert key_of(kind, name=kind) in names
    for part in ("statistics_incr_", "statistics_interfaces", "known:", "count:1:", "recent:", "common:"):
        assert any(name.startswith(f"headgate:{part}") for name in names), part


def test_the_names_of_the_recipes(redis, make_headgate):
    """For those who have readers of them."""
    classical = dict(latency="prefix = statistics\n", counters="prefix =\n", events="prefix =\n", limits="prefix =\n")
    use_everything(launch(make_headgate, redis, "shared", rules(**classical)))
    names = written(redis)
    assert not any(name.startswith("headgate:") for name in names), names
    assert {"known:", "count:1:refusals", "recent:refusals:info", "common:refusals:info"} <= names
    assert {f"hist:{KEYS[kind]}:{kind}:all" for kind in LIMITS} <= names
    assert on_record(redis, "statistics_incr")["count"] == 4 * len(LIMITS)


def test_clients_may_read_and_not_write_them_by_the_rule_that_the_page_names(redis, make_headgate):
    rule = "[deny:headgate]\nkeys = headgate:* {headgate}*\ncommands = @write\n"
    headgate = launch(make_headgate, redis, "shared", LATENCY + rule)
    client = headgate.connect()
    client.pipeline([("GET", "k")] * 10)
    await_report(headgate, "get", 10)
    name = next(name for name in written(redis) if name.endswith("_for_sum_count") and "statistics_get" in name)
    assert client("ZSCORE", name, "count") == b"10"
    for command in (("DEL", name), ("ZADD", name, 1, "sum"), ("RENAME", "x", name), ("ZUNIONSTORE", name, 1, "x")):
        assert client(*command).startswith(b"DENIED headgate"), command
    assert client("ZUNIONSTORE", "mine", 1, "x") == 0
