"""[limit:NAME] with scope = global: what on_error decides when Redis does not."""

import re
import time

import pytest

from harness.fake_redis import always
from harness.global_limits import ALL_KINDS, GRANTED, UNDECIDED, Decider, Stopped, has_reply, key_of, rush, shared
from harness.identity import named
from harness.limits import admitted, counter, explain, refuses, spend
from harness.resp import OK, PONG, Error, wait_for


# ---- on_error ----


BAD_ANSWERS = [
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-NOPERM User x has no permissions to run the 'evalsha' command\r\n",
    b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    b"$2\r\nno\r\n",
    b"*-1\r\n",
    b"*2\r\n:1\r\n:0\r\n",
    b"*3\r\n+1\r\n+0\r\n+0\r\n",
    b"*3\r\n*1\r\n:1\r\n:0\r\n:0\r\n",
]


def assert_undecided(reply, timeout="30s", name="a"):
    match = isinstance(reply, Error) and UNDECIDED.fullmatch(reply)
    assert match and match[1] == name.encode(), reply
    assert match[2].decode() in (timeout, {"30s": "30000 ms", "100ms": "100 ms", "200ms": "200 ms"}[timeout])
    assert int(match[3]) >= 1


def spend_undecided(client, mode, limit, count=8, timeout="30s"):
    """What becomes of requests that Redis does not decide on."""
    replies = client.pipeline([("INCR", "n")] * count)
    expected = {"allow": count, "deny": 0, "local": limit}[mode]
    assert admitted(replies) == expected, replies
    if mode == "deny":
        for reply in replies:
            assert_undecided(reply, timeout)
    if mode == "local":
        assert all(explain(reply)[1].startswith(str(limit)) for reply in replies[limit:])


@pytest.mark.parametrize(
    ("mode", "accuracy"), [("allow", "exact"), ("deny", "exact"), ("local", "exact"), ("deny", "leased"), ("local", "leased")]
)
def test_answers_that_decide_nothing(make_sidecar, fake, mode, accuracy):
    """One subject for each, as what one Redis said of another is kept."""
    fake.answers["INCR"] = always(b":1\r\n")
    decider = Decider(fake)
    rules = shared(limit=3, per="name", accuracy=accuracy, on_error=mode)
    headgate = make_sidecar(rules, upstream=fake.url)
    for number, answer in enumerate(BAD_ANSWERS):
        decider.answer = answer
        spend_undecided(named(headgate, f"n{number}"), mode, 3)
    decider.answer = GRANTED
    fresh = named(headgate, "fresh")
    assert spend(fresh, count=3) == 3
    if mode != "local":
        assert counter(headgate, "undecided_total") == 8 * len(BAD_ANSWERS)


def lines_about(headgate, name):
    return [line for line in headgate.log().splitlines() if re.search(rf"\b{name}\b", line)]


def test_errors_are_logged_once_a_minute_for_each_rule(make_sidecar, fake):
    fake.answers["INCR"] = fake.answers["DECR"] = always(b":1\r\n")
    Decider(fake, BAD_ANSWERS[0])
    rules = shared("quota", limit=3, on_error="allow") + shared("tariff", limit=3, commands="decr", on_error="deny")
    headgate = make_sidecar(rules, upstream=fake.url, threads=4)
    for _ in range(20):
        with headgate.connect() as client:
            assert client("INCR", "n") == 1
            assert_undecided(client("DECR", "n"), name="tariff")
    assert [len(lines_about(headgate, name)) for name in ("quota", "tariff")] == [1, 1], headgate.log_tail()
    assert "OOM" in lines_about(headgate, "quota")[0]


@pytest.mark.parametrize(("any_kind", "mode"), zip(ALL_KINDS, ("deny", "local", "deny", "local")))
def test_state_that_was_overwritten(make_sidecar, redis, any_kind, mode):
    """By another type, and by a text that is no state. Once it is deleted, a new window begins."""
    rules = ALL_KINDS[any_kind](3, per="name", on_error=mode)
    headgate = make_sidecar(rules)
    wrong = {"type": ("SADD", "x"), "text": ("SET", "hello")}
    for name, (command, value) in wrong.items():
        key = key_of(any_kind, f"name:{name}")
        client = named(headgate, name)
        with redis.connect() as vandal:
            assert not isinstance(vandal(command, key, value), Error)
            spend_undecided(client, mode, 3)
            assert vandal("TYPE", key) == {"type": b"set", "text": b"string"}[name], "it was overwritten in turn"
            assert vandal("DEL", key) == 1
        again = spend(client, count=20)
        assert again <= 3 and (mode == "local" or again >= 1)


@pytest.mark.parametrize("any_kind", ["slots", "leased funnel"])
def test_a_redis_without_room(make_sidecar, redis, any_kind):
    """Scripts write nothing beyond maxmemory, whoever invents subjects."""
    client = make_sidecar(ALL_KINDS[any_kind](100, per="key")).connect()
    assert client("INCR", "known") == 1
    with redis.connect() as admin:
        assert admin("CONFIG", "SET", "maxmemory", "1") == OK
        for reply in client.pipeline([("INCR", f"k{number}") for number in range(50)]):
            assert_undecided(reply)
        assert len(admin("KEYS", "headgate:hist:*")) == 1
        assert admin("CONFIG", "SET", "maxmemory", "0") == OK
    assert client("INCR", "k1") == 1


@pytest.mark.parametrize(("mode", "accuracy"), [("deny", "exact"), ("local", "leased")])
def test_a_redis_that_wants_a_password_of_each(make_sidecar, make_redis, mode, accuracy):
    """Headgate has none of its own to run scripts with."""
    rules = shared("quota", limit=3, on_error=mode, accuracy=accuracy)
    headgate = make_sidecar(rules, make_redis("--requirepass", "secret"))
    client = headgate.connect()
    assert client("AUTH", "secret") == OK
    replies = client.pipeline([("INCR", "n")] * 8)
    assert admitted(replies, "quota") == {"allow": 8, "deny": 0, "local": 3}[mode]
    # At some time the worker says, too, which rules cannot do their work.
    assert len([line for line in lines_about(headgate, "quota") if "policy: rule quota" in line]) == 1


def test_deny_while_redis_stands_still(make_sidecar, redis, pool):
    """It is not waited for longer than decision_timeout, and the permits that it grants later are given back."""
    headgate = make_sidecar(shared("quota", limit=3, decision_timeout="200ms"), pool=pool)
    client = headgate.connect()
    assert client("PING") == PONG
    with Stopped(redis):
        start = time.monotonic()
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert time.monotonic() - start >= 0.2
        assert_undecided(client("INCR", "n"), "200ms", "quota")
        assert counter(headgate, "undecided_total") == 2
        wait_for(lambda: lines_about(headgate, "quota"), what="a line in the log")
        assert len(lines_about(headgate, "quota")) == 1
    wait_for(lambda: redis.connect()("EXISTS", "headgate:hist:slots:quota:all") == 0, what="permits to be given back")
    wait_for(lambda: client("INCR", "n") == 1, what="Redis to decide in time")


def test_local_while_redis_stands_still(make_sidecar, redis, pool):
    """What this process has admitted, by whomever it was decided, is what counts."""
    headgate = make_sidecar(shared(limit=5, on_error="local", decision_timeout="300ms"), pool=pool)
    clients = [headgate.connect() for _ in range(8)]
    assert [client("PING") for client in clients] == [PONG] * 8
    assert spend(clients[0], count=2) == 2
    with Stopped(redis):
        for client in clients:
            client.request("INCR", "n")
        wait_for(lambda: sum(map(has_reply, clients)) == 5, what="five of eight to be refused")
        refused = [client for client in clients if has_reply(client)]
        assert all(refuses(client.read()) for client in refused)
    assert sorted(client.read() for client in clients if client not in refused) == [3, 4, 5]


@pytest.mark.threads
def test_local_counts_for_all_workers(make_sidecar, redis):
    headgate = make_sidecar(shared(limit=10, on_error="local"), threads=4)
    with redis.connect() as vandal:
        vandal("SADD", "headgate:hist:slots:a:all", "x")
    assert rush([headgate.connect() for _ in range(12)], 10) == 10
