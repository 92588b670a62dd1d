"""[limit:NAME] with scope = local: how much is admitted, to whom, and what a refused or held client sees.

Where time is not the point, a window is an hour long and counts are exact however slow the machine is. Where it is, the
client's own clock judges: a request is admitted somewhere between its sending and its reply, so that too many were
admitted only if all of them lie, from the first sending to the last reply, surely within one window.
"""

import functools
import re
import subprocess
import time

import pytest

from harness.admin import await_empty, stats, text
from harness.attempts import attempt, burst, hammer, judge_funnel, judge_refusals_of_funnel, judge_window
from harness.identity import add_users, authenticated, connect_from, named
from harness.limits import (
    EXPLAINED,
    admitted,
    assert_never,
    await_holds,
    await_tracked,
    counter,
    explain,
    forget,
    funnel,
    limits,
    refuses,
    rule,
    spend,
)
from harness.resp import NIL_ARRAY, OK, PONG, QUEUED, Client, Error, Push, Status, encode, wait_for
from harness.rules import check_file, launch, reload
from harness.servers import BINARY, elapsed, free_port

KIB_300 = 300 * 1024  # beyond cut_through


# ---- what the tests share ----


@pytest.fixture
def make(redis, pool, make_headgate):
    return functools.partial(launch, make_headgate, redis, pool)


@pytest.fixture
def make_shared(redis, make_headgate):
    """For what the pool has nothing to do with."""
    return functools.partial(launch, make_headgate, redis, "shared")


@pytest.fixture(params=(1, 4))
def threads(request):
    return request.param


# ---- sliding window ----


def test_five_actions_in_sixty_seconds(make, redis, threads):
    """The well-known example: each user may do five things in sixty seconds, by whatever connection."""
    headgate = make(rule("api", per="user", limit=5, window="60s"), threads=threads)
    add_users(redis, "alice", "bob")
    first, second, bob = (authenticated(headgate, user) for user in ("alice", "alice", "bob"))
    start = time.monotonic()
    assert [client("INCR", "alice") for client in (first, second, first, second, first)] == [1, 2, 3, 4, 5]
    for client in (second, first):
        name, what, wait = explain(client("INCR", "alice"))
        assert (name, what) == ("api", "5 in 1m per user")
        assert 60_000 - (time.monotonic() - start) * 1000 <= wait <= 60_001
    assert spend(bob, "INCR", "bob", name="api") == 5
    assert redis.connect()("MGET", "alice", "bob") == [b"5", b"5"], "a refused request reached Redis"


@pytest.mark.parametrize("limit", [5, 100])
@pytest.mark.threads
def test_never_more_in_any_window(make_shared, threads, limit):
    headgate = make_shared(rule(per="all", limit=limit, window="500ms"), threads=threads)
    attempts = hammer([headgate.connect() for _ in range(4)], 1.2, "INCR", "n")
    assert sum(one.admitted for one in attempts) >= min(limit, len(attempts))
    judge_window(attempts, limit, 0.5)


def test_windows_begin_anywhere(make_shared):
    """A few requests late and many a little later: windows that begin at fixed times, or are reckoned from the average
    of two, admit too many of those."""
    headgate = make_shared(rule(per="ip", limit=6, window="400ms"))
    client = headgate.connect()
    attempts = []
    for turn in range(7):
        for _ in range(3):
            attempts.append(attempt(client, "INCR", "n"))
            time.sleep(0.04 + 0.01 * turn)
        attempts += burst(client, 10, "INCR", "n")
        time.sleep(0.05 * (turn % 3))
    judge_window(attempts, 6, 0.4)
    assert sum(one.admitted for one in attempts) > 6


def spend_all(client):
    """A refusal after which nothing else was asked for, so that what it says still holds."""
    replies = []
    wait_for(lambda: replies.append(client("INCR", "n")) or refuses(replies[-1]), what="a refusal")
    return replies[-1]


@pytest.mark.parametrize(
    "text_of_rule", [rule(limit=3, window="300ms"), funnel(capacity=3, leak="1/200ms")], ids=["window", "funnel"]
)
def test_who_waits_as_told_is_admitted(make_shared, text_of_rule):
    client = make_shared(text_of_rule).connect()
    for _ in range(3):
        wait = explain(spend_all(client))[2]
        assert 1 <= wait <= 301
        time.sleep(wait / 1000)
        assert admitted([client("INCR", "n")]) == 1, f"refused {wait} ms after retry in {wait} ms"


def test_a_refusal_costs_nothing(make_shared):
    """Who keeps trying does not push the end of the window away."""
    client = make_shared(rule(limit=2, window="300ms")).connect()
    assert refuses(spend_all(client))
    wait_for(lambda: spend(client, count=1) == 1, what="to be admitted among all the trying")


# ---- funnel ----


def test_a_funnel_bursts_and_then_leaks(make_shared):
    client = make_shared(funnel(per="ip", capacity=10, leak="10/s")).connect()
    attempts = burst(client, 30, "INCR", "n")
    assert sum(one.admitted for one in attempts) >= 10, "a burst fits an empty funnel"
    attempts += hammer([client], 1.0, "INCR", "n")
    time.sleep(0.35)
    attempts += burst(client, 10, "INCR", "n") + hammer([client], 0.5, "INCR", "n")
    judge_funnel(attempts, 10, 0.1)
    judge_refusals_of_funnel(attempts, 10, 0.1)


@pytest.mark.threads
def test_a_funnel_of_several_clients(make_shared, threads):
    headgate = make_shared(funnel(per="all", capacity=7, leak="5/250ms"), threads=threads)
    attempts = hammer([headgate.connect() for _ in range(4)], 1.2, "INCR", "n")
    assert sum(one.admitted for one in attempts) >= min(7, len(attempts))
    judge_funnel(attempts, 7, 0.05)


def test_the_refusal_of_a_funnel(make):
    client = make(funnel("slow", per="ip", capacity=3, leak="5/h")).connect()
    start = time.monotonic()
    replies = client.pipeline([("INCR", "n")] * 10)
    spent = (time.monotonic() - start) * 1000
    assert replies[:3] == [1, 2, 3] and admitted(replies, "slow") == 3
    for reply in replies[3:]:
        name, what, wait = explain(reply)
        assert name == "slow" and re.fullmatch("3 leaking 5/1?h per ip", what)
        assert 720_000 - spent <= wait <= 720_001


# ---- per ----


def test_per_ip_is_the_default(make):
    headgate = make(rule(limit=5))
    first, second = headgate.connect(), connect_from(headgate, "127.0.0.1")
    assert spend(first, count=3) == 3
    assert spend(second) == 2
    assert spend(first) == 0
    for source in ("127.0.0.2", "127.0.1.1", "127.1.0.1"):
        assert spend(connect_from(headgate, source)) == 5
        assert spend(connect_from(headgate, source)) == 0


@pytest.mark.parametrize(
    ("bits", "one", "same", "other"),
    [
        (32, "127.0.0.3", "127.0.0.3", "127.0.0.2"),
        (30, "127.0.0.5", "127.0.0.6", "127.0.0.9"),
        (24, "127.0.1.1", "127.0.1.254", "127.0.2.1"),
        ("24/48", "127.0.1.1", "127.0.1.254", "127.0.2.1"),
        (17, "127.0.1.1", "127.0.127.254", "127.0.128.1"),
        (9, "127.0.0.1", "127.127.255.254", "127.128.0.1"),
    ],
)
def test_per_network(make_shared, bits, one, same, other):
    headgate = make_shared(rule(per=f"ip/{bits}", limit=5))
    assert spend(connect_from(headgate, one), count=3) == 3
    assert spend(connect_from(headgate, same)) == 2
    assert spend(connect_from(headgate, other)) == 5


def test_all_clients_of_a_unix_socket_are_one(make_shared, tmp_path):
    path = tmp_path / "headgate.sock"
    headgate = make_shared(rule(per="ip", limit=5), listen=f"unix:{path}")
    with Client(path) as first, Client(path) as second:
        assert spend(first, count=3) == 3
        assert spend(second) == 2
    assert spend(headgate.connect()) == 5


@pytest.mark.parametrize("per", ["ip", "ip/8", "ip/8/16"])
def test_per_ip_of_version_6(make_shared, per):
    port = free_port()
    headgate = make_shared(rule(per=per, limit=5), listen=f"[::1]:{port}")
    with Client(("::1", port)) as first, Client(("::1", port)) as second:
        assert spend(first, count=3) == 3
        assert spend(second) == 2
    assert spend(headgate.connect()) == 5


def test_per_user(make, redis):
    headgate = make(rule(per="user", limit=5))
    add_users(redis, "alice", "bob")
    assert spend(authenticated(headgate, "alice"), count=3) == 3
    assert spend(authenticated(headgate, "bob")) == 5
    assert spend(headgate.connect()) == 5
    assert spend(authenticated(headgate, "alice")) == 2
    assert spend(headgate.connect()) == 0


def test_the_user_changes(make, redis):
    """A request counts for whom the client is then."""
    headgate = make(rule(per="user", limit=5))
    add_users(redis, "alice", "bob", "carol")
    client = headgate.connect()
    assert spend(client, count=2) == 2
    assert client("AUTH", "alice", "secret") == OK
    assert spend(client) == 5
    assert client("AUTH", "bob", "wrong").startswith(b"WRONGPASS")
    assert spend(client) == 0, "still alice"
    assert client("AUTH", "bob", "secret") == OK
    assert spend(client) == 5
    client("HELLO", 3, "AUTH", "carol", "secret")
    assert spend(client) == 5
    assert client("RESET") == Status(b"RESET")
    assert spend(client) == 3, "the default user has three left"


def test_the_user_changes_within_a_pipeline(make, redis):
    """What follows AUTH counts for the new user, though it was sent before anybody knew that AUTH would be right."""
    headgate = make(rule(per="user", limit=5))
    add_users(redis, "alice", "bob")
    client = authenticated(headgate, "alice")
    assert spend(client, count=4) == 4
    commands = [("AUTH", "bob", "secret"), *[("INCR", "n")] * 6, ("AUTH", "alice", "wrong"), ("INCR", "n")]
    commands += [("AUTH", "alice", "secret"), *[("INCR", "n")] * 2]
    replies = client.pipeline(commands)
    assert replies[0] == replies[9] == OK and replies[7].startswith(b"WRONGPASS")
    assert [not refuses(reply) for reply in replies[1:7]] == [True] * 5 + [False], "bob has five"
    assert refuses(replies[8]), "still bob"
    assert [refuses(reply) for reply in replies[10:]] == [False, True], "alice has one left"


def test_per_name(make):
    headgate = make(rule(per="name", limit=5))
    assert spend(named(headgate, "web"), count=3) == 3
    assert spend(named(headgate, "cron")) == 5
    assert spend(named(headgate, "web")) == 2
    assert spend(named(headgate, "Web")) == 5
    assert spend(named(headgate, "we")) == 5


def test_the_name_changes(make):
    client = named(make(rule(per="name", limit=5)), "one")
    assert spend(client, count=4) == 4
    assert client("CLIENT", "SETNAME", "two") == OK
    assert spend(client) == 5
    assert client("CLIENT", "SETNAME", "one") == OK
    assert spend(client) == 1
    client("HELLO", 3, "SETNAME", "three")
    assert spend(client) == 5


def test_the_name_changes_within_a_pipeline(make):
    client = named(make(rule(per="name", limit=5)), "one")
    assert spend(client, count=4) == 4
    replies = client.pipeline([("CLIENT", "SETNAME", "two"), *[("INCR", "n")] * 7, ("CLIENT", "SETNAME", "one")])
    assert replies[0] == replies[8] == OK and admitted(replies[1:8]) == 5
    assert spend(client) == 1


def test_per_connection(make, redis):
    headgate = make(rule(per="connection", limit=5))
    add_users(redis, "alice")
    first, second = headgate.connect(), headgate.connect()
    assert spend(first) == 5
    assert spend(second) == 5
    assert client_is_somebody_else(first) and spend(first) == 0, "whoever it says it is, it is the same connection"
    first.close()
    assert spend(headgate.connect()) == 5


def client_is_somebody_else(client):
    """Changes all that a client can change, its lane to Redis among it."""
    commands = [("RESET",), ("AUTH", "alice", "secret"), ("CLIENT", "SETNAME", "x"), ("SELECT", 3)]
    return client.pipeline([*commands, ("MULTI",), ("EXEC",)])[1:] == [OK, OK, OK, OK, []]


def test_per_all(make, redis, threads):
    headgate = make(rule(per="all", limit=5), threads=threads)
    add_users(redis, "alice")
    clients = [headgate.connect(), connect_from(headgate, "127.0.0.2"), named(headgate, "x")]
    clients.append(authenticated(headgate, "alice"))
    assert [spend(client, "INCR", f"k{n}", count=1) for n, client in enumerate(clients)] == [1, 1, 1, 1]
    assert [spend(client) for client in clients] == [1, 0, 0, 0]


def test_per_user_and_key(make, redis):
    headgate = make(rule(per="user+key", limit=5))
    add_users(redis, "alice", "bob")
    alice, bob = authenticated(headgate, "alice"), authenticated(headgate, "bob")
    assert spend(alice, "INCR", "k1", count=3) == 3
    assert spend(authenticated(headgate, "alice"), "INCR", "k1") == 2
    assert spend(alice, "INCR", "k2") == 5
    assert spend(bob, "INCR", "k1") == 5
    assert spend(alice, "INCR", "k1") == 0


def test_per_ip_and_name(make_shared):
    headgate = make_shared(rule(per="ip+name", limit=5))
    for source in ("127.0.0.1", "127.0.0.2"):
        for name in ("a", "b"):
            client = connect_from(headgate, source)
            client("CLIENT", "SETNAME", name)
            assert spend(client) == 5
            assert spend(client) == 0


@pytest.mark.parametrize("mark", [":", "+", "|", "/", ",", "=", ";", "%", "\\"])
def test_combinations_are_not_confused(make_shared, mark):
    """a + b:c is not a:b + c, however the two are joined."""
    headgate = make_shared(rule(per="name+key", limit=1))
    assert spend(named(headgate, "a"), "INCR", f"b{mark}c") == 1
    assert spend(named(headgate, f"a{mark}b"), "INCR", "c") == 1
    assert spend(named(headgate, f"a{mark}b"), "INCR", "c") == 0


def test_many_subjects_are_not_confused(make_shared):
    client = make_shared(rule(per="key", limit=1)).connect()
    commands = [("INCR", f"k{number}") for number in range(2000)]
    assert admitted(client.pipeline(commands)) == 2000
    assert admitted(client.pipeline(commands)) == 0


def test_any_bytes_and_any_length_are_a_key(make_shared):
    client = make_shared(rule(per="key", limit=1)).connect()
    keys = [b"", b"\0", b"\0\0", b"\r\n", b" ", b"\xff\xfe", b"x" * 1000, b"x" * 999 + b"y", b"x" * 50_000]
    keys.append(b"x" * 49_999 + b"y")
    assert [spend(client, "INCR", key) for key in keys] == [1] * len(keys)
    assert [spend(client, "INCR", key) for key in keys] == [0] * len(keys)


# ---- keys ----


def test_per_key(make):
    """A request counts for each of its distinct keys, and all of them must admit it."""
    headgate = make(rule(per="key", limit=5, commands="*"))
    client = headgate.connect()
    assert spend(client, "GET", "k1", count=2) == 2
    assert spend(headgate.connect(), "MGET", "k1", "k1", "k2", "k1") == 3, "k1 had three left"
    assert refuses(client("MGET", "k3", "k1", "k4"))
    assert spend(client, "GET", "k2") == 2
    assert spend(client, "GET", "k3") == 5, "a refused request was counted"
    assert spend(client, "MGET", "k4", "k5") == 5
    assert spend(client, "GET", "k5") == 0


def test_per_key_is_not_for_commands_without_keys(make):
    client = make(rule(per="key", limit=2, commands="*")).connect()
    assert client.pipeline([("PING",), ("ECHO", "x")] * 10) == [PONG, b"x"] * 10
    assert client.pipeline([("EVAL", "return 1", 0)] * 10) == [1] * 10
    assert spend(client, "EVAL", "return 1", 2, "a", "b") == 2
    assert spend(client, "GET", "b") == 0


def test_a_part_of_the_key(make):
    headgate = make(rule(per="key", keys="user:{*}:*", limit=5, commands="get mget"))
    client = headgate.connect()
    assert spend(client, "GET", "user:1:name", count=2) == 2
    assert spend(headgate.connect(), "GET", "user:1:mail", count=1) == 1
    assert spend(client, "MGET", "user:1:a", "user:1:b", "user:2:a", "user:1:c") == 2, "once for each id"
    assert spend(client, "GET", "user:2:x") == 3
    assert spend(client, "GET", "user:3:x:y:z") == 5
    assert spend(client, "GET", "user:3:q") == 0, "the shortest match counts"
    assert spend(client, "GET", "user:3:x:other") == 0
    for key in ("user:1", "users:1:a", "other"):
        assert spend(client, "GET", key) == 10, "such a key is not meant"
    assert spend(client, "MGET", "other", "user:4:a") == 5


def test_the_whole_key_where_no_part_is_named(make_shared):
    client = make_shared(rule(per="key", keys="cart:* {*}:pin", limit=5, commands="get")).connect()
    assert spend(client, "GET", "cart:1") == 5
    assert spend(client, "GET", "cart:2") == 5
    assert spend(client, "GET", "tom:pin") == 5
    assert spend(client, "GET", "eve:pin") == 5
    assert [spend(client, "GET", key) for key in ("cart:1", "cart:2", "tom:pin", "eve:pin", "pin")] == [0, 0, 0, 0, 10]


def test_keys_choose_requests_whatever_is_counted(make):
    client = make(rule(per="ip", keys="hot:* *:slow", limit=5, commands="*")).connect()
    assert spend(client, "GET", "cold") == 10
    assert spend(client, "PING") == 10
    assert spend(client, "MGET", "cold", "hot:1", "hot:2", count=2) == 2, "one request counts once"
    assert spend(client, "EVAL", "return 1", 1, "cold", "hot:1") == 10, "that is an argument, not a key"
    assert spend(client, "EVAL", "return 1", 2, "cold", "a:slow", count=1) == 1
    assert spend(client, "SET", "hot:2", "v") == 2
    assert spend(client, "GET", "a:slow") == 0


def test_the_key_of_a_long_request(make, redis):
    client = make(rule(per="key", keys="user:{*}:*", limit=2, commands="set")).connect()
    value = "x" * KIB_300
    assert spend(client, "SET", "user:1:a", value, count=1) == 1
    assert spend(client, "SET", "user:1:b", "short", count=1) == 1
    assert refuses(client("SET", "user:1:c", value))
    assert client("SET", "user:2:c", value) == OK
    assert redis.connect()("EXISTS", "user:1:a", "user:1:b", "user:1:c", "user:2:c") == 3


# ---- commands and clients ----


def test_all_commands_are_the_default(make):
    """The words that every client says when it connects are not looked at here."""
    client = make(rule(commands=None, per="connection", limit=4)).connect()
    replies = client.pipeline([("SET", "n", 1), ("PING",), ("NO.SUCH", "x"), ("GET", "n"), ("GET", "n"), ("PING",)])
    assert replies[:2] == [OK, PONG] and replies[2].startswith(b"ERR unknown command") and replies[3] == b"1"
    assert refuses(replies[4]) and refuses(replies[5])


def test_commands_subcommands_and_exclusions(make):
    client = make(rule(commands="@write config|set !incr", limit=4)).connect()
    assert spend(client, "INCR", "n") == 10
    assert spend(client, "GET", "n") == 10
    assert spend(client, "CONFIG", "GET", "maxmemory") == 10
    assert spend(client, "CONFIG", "Set", "maxmemory", 0, count=2) == 2
    assert spend(client, "set", "k", "v", count=1) == 1
    assert spend(client, "RPUSH", "list", "x") == 1
    assert spend(client, "config", "SET", "maxmemory", 0) == 0


def test_except(make, redis):
    """Who is excepted is not refused, and takes nothing from the others."""
    headgate = make(rule(per="all", limit=5, except_="name:operator* user:admin ip:127.0.0.8/30"))
    add_users(redis, "admin")
    assert spend(named(headgate, "operator-1")) == 10
    assert spend(authenticated(headgate, "admin")) == 10
    assert spend(connect_from(headgate, "127.0.0.9")) == 10
    client = named(headgate, "worker")
    assert spend(client) == 5
    assert client("CLIENT", "SETNAME", "operator-2") == OK
    assert spend(client) == 10
    assert spend(connect_from(headgate, "127.0.0.12")) == 0


# ---- several rules ----


@pytest.mark.parametrize("first", ["each", "all"])
def test_a_refusal_charges_no_other_rule(make, first):
    """Whichever stands first: what one refuses, the other has not counted."""
    rules = [
        rule("each", per="connection", limit=3, commands="get"),
        rule("all", per="all", limit=10, commands="get incr"),
    ]
    headgate = make("".join(rules if first == "each" else reversed(rules)))
    client, other = headgate.connect(), headgate.connect()
    assert spend(client, "GET", "n", name="each") == 3
    assert spend(other, "INCR", "n", name="all") == 7, "refused requests were charged"
    assert spend(headgate.connect(), "GET", "n", name="all") == 0
    assert counter(headgate, "admitted_total") == 3 + 3 + 7


def test_a_full_rule_charges_no_free_one(make_shared):
    rules = rule("all", per="all", limit=4) + rule("own", per="connection", limit=6, commands="incr decr")
    headgate = make_shared(rules)
    client = headgate.connect()
    assert spend(headgate.connect(), count=4, name="all") == 4
    assert spend(client, name="all") == 0
    assert spend(client, "DECR", "n", name="own") == 6


@pytest.mark.parametrize("order", ["short middle long", "long short middle", "middle long short"])
def test_the_refusal_names_the_longest_wait(make_shared, order):
    windows = {"short": "20m", "middle": "2h", "long": "3d"}
    client = make_shared("".join(rule(name, limit=1, window=windows[name]) for name in order.split())).connect()
    assert client("INCR", "n") == 1
    name, what, wait = explain(client("INCR", "n"))
    assert name == "long" and what.startswith("1 in ") and what.endswith(" per ip")
    assert wait > 2 * 86_400_000


def test_what_can_never_be_is_the_longest_wait(make_shared):
    rules = rule("wait", limit=1, commands="mget") + rule("never", limit=2, cost="keys", commands="mget", window="1s")
    client = make_shared(rules).connect()
    assert client("MGET", "a") == [None]
    assert explain(client("MGET", "a"))[0] == "wait"
    assert_never(client("MGET", "a", "b", "c"), 3, "never")


# ---- cost ----


@pytest.mark.parametrize("make_rule", [functools.partial(rule, limit=12), functools.partial(funnel, capacity=12)])
def test_cost_in_keys(make_shared, make_rule):
    headgate = make_shared(make_rule(per="connection", cost="keys", commands="*"))
    commands = {
        ("GET", "a"): 1,
        ("MGET", "a", "b", "c"): 3,
        ("MSET", "a", "1", "b", "2"): 2,
        ("DEL", "a", "b", "c", "d", "e"): 5,
        ("ZUNIONSTORE", "{d}d", 2, "{d}a", "{d}b"): 3,
        ("EVAL", "return 1", 2, "a", "b", "no key"): 2,
    }
    for command, keys in commands.items():
        assert spend(headgate.connect(), *command, count=15) == 12 // keys, command


def test_what_costs_too_much_takes_nothing(make):
    client = make(rule(limit=5, cost="keys", commands="mget")).connect()
    assert admitted([client("MGET", "a", "b", "c")]) == 1
    assert refuses(client("MGET", "a", "b", "c"))
    assert_never(client("MGET", "a", "b", "c", "d", "e", "f"), 6)
    assert admitted([client("MGET", "a", "b")]) == 1
    assert explain(client("MGET", "a"))[0] == "a"


def test_a_funnel_never_admits_more_than_its_capacity(make_shared):
    client = make_shared(funnel(capacity=5, cost="keys", commands="mget")).connect()
    assert_never(client("MGET", *"abcdef"), 6)
    assert admitted([client("MGET", *"abcde")]) == 1


def test_cost_in_bytes(make):
    """Bytes are those of the request on the wire."""
    command = ("SET", "k", "v" * 500)
    headgate = make(rule(per="all", limit=7 * len(encode(*command)), cost="bytes", commands="set"))
    client = headgate.connect()
    assert spend(client, *command, count=5) == 5
    assert spend(headgate.connect(), *command) == 2
    assert refuses(client("SET", "k", ""))


@pytest.mark.parametrize("shape", ["at once", "in pieces"])
def test_cost_in_bytes_of_long_requests(make, redis, shape):
    """A long request is decided on before it is there as a whole. What is refused is thrown away, and the client goes
    on."""
    client = make(rule(limit=1_000_000, cost="bytes", commands="set")).connect()
    requests = [encode("SET", f"k{number}", "x" * KIB_300) + encode("ECHO", number) for number in range(5)]
    replies = []
    for request in requests:
        step = len(request) if shape == "at once" else 50_000
        for start in range(0, len(request), step):
            client.send(request[start : start + step])
        replies += client.read_many(2)
    assert replies[1::2] == [b"0", b"1", b"2", b"3", b"4"]
    assert replies[:6:2] == [OK] * 3 and refuses(replies[6]) and refuses(replies[8])
    assert client("SET", "short", "x" * 1000) == OK, "there is room for a short one"
    assert redis.connect()("EXISTS", "k0", "k1", "k2", "k3", "k4", "short") == 4


def test_a_long_request_that_costs_too_much(make, redis):
    client = make(rule(limit=100_000, cost="bytes", commands="set")).connect()
    replies = client.pipeline([("SET", "a", "x" * KIB_300), ("SET", "b", "x" * 99_000), ("SET", "c", "x" * 2000)])
    assert re.fullmatch(rb"RATELIMITED a: cost 3072\d\d is more than .+ ever admits", replies[0])
    assert replies[1] == OK
    assert explain(replies[2])[0] == "a"
    assert redis.connect()("EXISTS", "a", "b", "c") == 1


PARTS = [b"a" * 70_000, b"b" * 100_000, b"c" * 200_000]


def in_parts(client, request):
    """Each value in a read of its own, as a rule."""
    for start in range(0, len(request), 69_000):
        client.send(request[start : start + 69_000])
        time.sleep(0.002)


@pytest.mark.parametrize("per", ["connection", "key"])
def test_cost_in_bytes_of_several_values(make, redis, per):
    """All of them count, however they come, and to the byte."""
    request = encode("RPUSH", "l", *PARTS)
    client = make(rule(per=per, limit=3 * len(request), cost="bytes", commands="rpush")).connect()
    for number in range(5):
        in_parts(client, encode("ECHO", number) + request + encode("ECHO", "after"))
        before, reply, after = client.read_many(3)
        assert before == b"%d" % number and after == b"after"
        assert reply == 3 * (number + 1) if number < 3 else refuses(reply)
    assert redis.connect()("LRANGE", "l", 0, -1) == PARTS * 3


def test_several_values_that_cost_too_much(make, redis):
    """It is refused for good as soon as that is known, though its end never comes, and takes nothing."""
    client = make(rule(limit=1_000_000, cost="bytes", commands="rpush")).connect()
    client.send(encode("ECHO", "e") + b"*5\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$70000\r\n" + b"a" * 70_000 + b"\r\n")
    assert client.read() == b"e"
    client.assert_silent()
    client.send(b"$30000000\r\n")
    assert EXPLAINED.fullmatch(client.read()).group(1) == b"a"
    client.send(b"b" * 30_000_000 + b"\r\n$1\r\nc\r\n" + encode("RPUSH", "l", "v" * 900_000))
    assert client.read() == 1
    assert redis.connect()("LLEN", "l") == 1


def test_several_values_are_delayed_by_what_they_cost(make):
    """How long they take to come is no part of the delay."""
    request = encode("RPUSH", "l", *PARTS)
    rules = rule(window="1s", limit=len(request), cost="bytes", commands="rpush", action="delay", max_delay="2s")
    client = make(rules).connect()
    in_parts(client, request * 3)
    assert client.read_many(3) == [3, 6, 9]


def test_several_values_are_observed_by_what_they_cost(make):
    request = encode("RPUSH", "l", *PARTS)
    rules = rule(limit=2 * len(request), cost="bytes", commands="rpush", action="observe")
    headgate = make(rules)
    client = headgate.connect()
    in_parts(client, request * 3)
    assert client.read_many(3) == [3, 6, 9]
    counted = stats(headgate, "limit")
    assert (counted["limit_admitted_total"], counted["limit_observed_total"]) == ("2", "1")


def test_a_client_that_leaves_before_its_cost_is_known(make, redis):
    request = encode("RPUSH", "l", *PARTS)
    headgate = make(rule(per="all", limit=len(request), cost="bytes", commands="rpush"))
    for part in (66_000, 70_100, 169_000):
        client = headgate.connect()
        in_parts(client, encode("ECHO", "e") + request[:part])
        assert client.read() == b"e"
        client.close()
    await_empty(headgate)
    assert redis.connect()("DBSIZE") == 0
    client = headgate.connect()
    in_parts(client, request)
    assert client.read() == 3, "nothing was charged"


def test_a_long_request_counts_once(make, redis):
    """However many pieces it comes in."""
    client = make(rule(limit=3, commands="set")).connect()
    for number in range(5):
        request = encode("SET", f"k{number}", "x" * KIB_300)
        for start in range(0, len(request), 40_000):
            client.send(request[start : start + 40_000])
            time.sleep(0.002)
        reply = client.read()
        assert reply == OK if number < 3 else refuses(reply)
    assert redis.connect()("DBSIZE") == 3


# ---- on the wire ----


def test_refusals_keep_their_place(make):
    client = make(rule(limit=3)).connect()
    commands = [command for n in range(200) for command in (("INCR", "n"), ("ECHO", n), ("GET", "n"))]
    replies = client.pipeline(commands)
    assert replies[:9] == [1, b"0", b"1", 2, b"1", b"2", 3, b"2", b"3"]
    assert all(map(refuses, replies[9::3]))
    assert replies[10::3] == [b"%d" % n for n in range(3, 200)]
    assert replies[11::3] == [b"3"] * 197


def test_pieces_of_a_request(make):
    client = make(rule(limit=2)).connect()
    client.send_bytewise(encode("INCR", "n") * 3 + encode("ECHO", "x"))
    replies = client.read_many(4)
    assert replies[:2] == [1, 2] and refuses(replies[2]) and replies[3] == b"x"


def test_inline_commands(make):
    client = make(rule(limit=2)).connect()
    client.send(b"INCR n\r\nPING\r\nincr n\r\nINCR \"n\"\r\nPING\r\n")
    replies = client.read_many(5)
    assert replies[:3] == [1, PONG, 2] and refuses(replies[3]) and replies[4] == PONG


def test_a_client_that_half_closes_gets_its_refusals(make):
    client = make(rule(limit=1)).connect()
    client.send(encode("INCR", "n") * 3 + encode("ECHO", "end"))
    client.shutdown_write()
    replies = client.read_many(4)
    assert replies[0] == 1 and admitted(replies[1:3]) == 0 and replies[3] == b"end"
    client.assert_closed()


def test_in_a_transaction(make, redis):
    """Redis would have answered an error, too: then EXEC executes nothing. Requests count when they are queued."""
    client = make(rule(limit=3, per="connection")).connect()
    assert client.pipeline([("MULTI",), ("INCR", "n"), ("EXEC",)]) == [OK, QUEUED, [1]]
    replies = client.pipeline([("MULTI",), *[("INCR", "n")] * 3, ("SET", "t", 1), ("EXEC",), ("PING",)])
    assert replies[:3] == [OK, QUEUED, QUEUED] and refuses(replies[3]) and replies[4] == QUEUED
    assert replies[5].startswith(b"EXECABORT") and replies[6] == PONG
    assert redis.connect()("MGET", "n", "t") == [b"1", None]
    replies = client.pipeline([("MULTI",), ("INCR", "n"), ("DISCARD",), ("GET", "n")])
    assert replies[0] == replies[2] == OK and refuses(replies[1]) and replies[3] == b"1"


def test_watch_is_not_disturbed(make, redis):
    client = make(rule(limit=1)).connect()
    assert client("INCR", "n") == 1
    commands = [("WATCH", "k"), ("INCR", "n"), ("MULTI",), ("SET", "k", "v"), ("GET", "n"), ("EXEC",)]
    replies = client.pipeline(commands)
    assert replies[0] == OK and refuses(replies[1]) and replies[2:] == [OK, QUEUED, QUEUED, [OK, b"1"]]
    assert client("WATCH", "k") == OK
    redis.connect()("SET", "k", "changed")
    assert refuses(client("INCR", "n"))
    assert client.pipeline([("MULTI",), ("GET", "n"), ("EXEC",)]) == [OK, QUEUED, NIL_ARRAY]
    assert client("GET", "k") == b"changed"


def test_under_reply_off(make, redis):
    client = make(rule(limit=2)).connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n") * 5 + encode("CLIENT", "REPLY", "ON"))
    assert client.read() == OK
    assert client("GET", "n") == b"2"
    assert refuses(client("INCR", "n"))
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "n") + encode("INCR", "n") + encode("GET", "n"))
    assert refuses(client.read()) and client.read() == b"2"
    client.assert_silent()


def test_in_resp3_and_among_pushes(make, redis):
    client = make(rule(limit=2)).connect()
    client("HELLO", 3)
    assert client("SUBSCRIBE", "news") == Push([b"subscribe", b"news", 1])
    assert spend(client) == 2
    redis.connect()("PUBLISH", "news", "x")
    assert client.read() == Push([b"message", b"news", b"x"])
    assert refuses(client("INCR", "n"))
    assert client("UNSUBSCRIBE") == Push([b"unsubscribe", b"news", 0])
    assert client("GET", "n") == b"2"


def test_subscriptions(make, redis):
    client = make(rule(limit=2, commands="subscribe psubscribe")).connect()
    assert client("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    assert client("PSUBSCRIBE", "b*") == [b"psubscribe", b"b*", 2]
    assert refuses(client("SUBSCRIBE", "c"))
    publisher = redis.connect()
    assert [publisher("PUBLISH", channel, "x") for channel in "abc"] == [1, 1, 0]
    assert client.read_many(2) == [[b"message", b"a", b"x"], [b"pmessage", b"b*", b"b", b"x"]]


def test_scripts_and_their_keys(make):
    client = make(rule(keys="hot:*", limit=3, commands="eval evalsha")).connect()
    script = "return redis.call('INCR', KEYS[1])"
    digest = client("SCRIPT", "LOAD", script)
    assert client.pipeline([("EVAL", script, 1, "hot:a"), ("EVALSHA", digest, 1, "hot:a")]) == [1, 2]
    assert client("EVALSHA", digest, 1, "cold") == 1
    assert client("EVAL", script, 2, "hot:a", "cold") == 3
    assert refuses(client("EVALSHA", digest, 1, "hot:a")) and refuses(client("EVAL", script, 1, "hot:b"))
    assert client("EVAL", script, 1, "cold") == 2


def test_blocking_commands(make, redis):
    client = make(rule(limit=2, commands="blpop")).connect()
    redis.connect()("RPUSH", "list", "x")
    assert client("BLPOP", "list", 0) == [b"list", b"x"]
    client.send(encode("BLPOP", "list", 0) * 2 + encode("PING"))
    client.assert_silent()
    redis.connect()("RPUSH", "list", "y")
    replies = client.read_many(3)
    assert replies[0] == [b"list", b"y"] and refuses(replies[1]) and replies[2] == PONG


def test_a_local_limit_takes_nothing_of_redis(make, redis):
    """Redis sees what is admitted and nothing else."""
    headgate = make(rule(limit=5))
    client = headgate.connect()
    wait_for(lambda: stats(headgate, "control")["control_script_loads_total"] == "1", what="Headgate's own commands")
    assert client("PING") == PONG
    with redis.connect() as direct:
        assert direct("CONFIG", "RESETSTAT") == OK
        assert spend(client, count=50) == 5
        calls = re.findall(r"cmdstat_(\S+):calls=(\d+)", direct("INFO", "commandstats").decode())
    assert dict(calls) == {"incr": "5", "config|resetstat": "1"}


# ---- action = delay ----


def test_delay_keeps_a_clients_order(make):
    """Nobody is refused; what comes behind a held request waits for it."""
    headgate = make(funnel(capacity=1, leak="1/100ms", action="delay", max_delay="30s"))
    client = headgate.connect()
    commands = [command for n in range(4) for command in (("INCR", "n"), ("GET", "n"), ("ECHO", n))]
    start = time.monotonic()
    replies = client.pipeline(commands)
    assert time.monotonic() - start >= 0.3
    assert replies == [reply for n in range(4) for reply in (n + 1, b"%d" % (n + 1), b"%d" % n)]
    assert counter(headgate, "admitted_total") == 4
    assert counter(headgate, "refused_total") == 0
    assert 1 <= counter(headgate, "delayed_total") <= 3


def test_delay_in_a_sliding_window(make_shared):
    headgate = make_shared(rule(limit=2, window="250ms", action="delay", max_delay="30s"))
    client = headgate.connect()
    attempts = []
    for _ in range(6):
        attempts.append(attempt(client, "INCR", "n"))
    assert all(one.admitted for one in attempts)
    assert attempts[-1].replied - attempts[0].sent >= 0.5
    judge_window(attempts, 2, 0.25)


def test_delay_holds_nobody_else(make):
    """The held client stays held; all others go on, even with the same command."""
    headgate = make(funnel(per="name", capacity=1, leak="1/60s", action="delay", max_delay="90s"))
    both = [named(headgate, "held") for _ in range(2)]
    for client in both:
        client.send(encode("INCR", "held") + encode("GET", "held"))
    await_holds(headgate, 1)
    for number in range(100):
        client = named(headgate, f"other-{number}")
        assert client("INCR", "others") == number + 1
        assert client.pipeline([("PING",), ("GET", "others")]) == [PONG, b"%d" % (number + 1)]
    assert named(headgate, "held")("GET", "held") == b"1", "only its INCR is limited"
    quiet = [client for client in both if client.read_until_quiet(0.1) == b""]
    assert len(quiet) == 1, "one was admitted, one is held"
    quiet[0].reset()


def test_beyond_max_delay_is_refused_at_once(make):
    client = make(funnel(capacity=2, action="delay", max_delay="1s")).connect()
    replies = client.pipeline([("INCR", "n")] * 5 + [("PING",)])
    assert replies[:2] == [1, 2] and replies[5] == PONG
    assert all(explain(reply)[2] > 3_000_000 for reply in replies[2:5])


def test_what_can_never_be_is_not_held(make_shared):
    client = make_shared(rule(limit=2, cost="keys", commands="mget", action="delay", max_delay="10m")).connect()
    assert_never(client("MGET", "a", "b", "c"), 3)


def test_who_is_held_has_a_place_in_the_queue(make_shared):
    """Two wait 20 s and 40 s; the third would have to wait for 60 s, which is more than max_delay."""
    headgate = make_shared(funnel(per="all", capacity=1, leak="1/20s", action="delay", max_delay="50s"))
    clients = [headgate.connect() for _ in range(4)]
    assert clients[0]("INCR", "n") == 1
    for count, client in enumerate(clients[1:3], 1):
        client.request("INCR", "n")
        await_holds(headgate, count)
    assert refuses(clients[3]("INCR", "n"))
    for client in clients[1:3]:
        client.assert_silent()
        client.reset()


def test_who_leaves_frees_its_place(make):
    """A queue of 40 s is left by all; the next to come is served soon."""
    headgate = make(funnel(per="all", capacity=1, leak="1/400ms", action="delay", max_delay="90s"))
    clients = [headgate.connect() for _ in range(100)]
    for client in clients:
        client.request("INCR", "n")
    await_holds(headgate, 99)
    for client in clients:
        client.reset()
    await_empty(headgate)
    assert isinstance(headgate.connect()("INCR", "n"), int)


@pytest.mark.threads
def test_many_wait_for_one_funnel(make, threads):
    """Twenty clients with three requests each, all of one subject: every one is served, in its client's order, and no
    faster than the funnel leaks."""
    headgate = make(funnel(per="all", capacity=1, leak="1/20ms", action="delay", max_delay="30s"), threads=threads)
    clients = [headgate.connect() for _ in range(20)]
    start = time.monotonic()
    for number, client in enumerate(clients):
        client.send((encode("INCR", f"k{number}") + encode("ECHO", number)) * 3)
    for number, client in enumerate(clients):
        echo = b"%d" % number
        assert client.read_many(6) == [1, echo, 2, echo, 3, echo]
    assert time.monotonic() - start >= 59 * 0.02
    assert counter(headgate, "admitted_total") == 60
    assert counter(headgate, "refused_total") == 0


def test_delay_in_a_transaction(make):
    client = make(funnel(capacity=1, leak="1/100ms", action="delay", max_delay="30s")).connect()
    commands = [("MULTI",), ("INCR", "n"), ("INCR", "n"), ("INCR", "n"), ("EXEC",)]
    assert elapsed(lambda: check_equal(client.pipeline(commands), [OK, QUEUED, QUEUED, QUEUED, [1, 2, 3]])) >= 0.2


def check_equal(left, right):
    assert left == right


def test_delay_of_a_long_request(make, redis):
    client = make(funnel(capacity=1, leak="1/150ms", action="delay", max_delay="30s", commands="set")).connect()
    value = "x" * KIB_300
    commands = [("SET", "a", value), ("SET", "b", value), ("STRLEN", "b"), ("SET", "b", ""), ("STRLEN", "b")]
    assert elapsed(lambda: check_equal(client.pipeline(commands), [OK, OK, KIB_300, OK, 0])) >= 0.3


def test_delay_and_a_rule_that_refuses(make_shared):
    """Who is refused by one rule is not held by the other for it."""
    rules = funnel("slow", capacity=1, leak="1/60s", action="delay", max_delay="90s") + rule("hard", limit=1)
    client = make_shared(rules).connect()
    assert client("INCR", "n") == 1
    assert explain(client("INCR", "n"))[0] == "hard"


# ---- action = observe ----


def test_observe(make):
    headgate = make(rule("shadow", limit=3, action="observe") + rule("real", limit=5, commands="decr"))
    client = headgate.connect()
    assert client.pipeline([("INCR", "n")] * 10) == list(range(1, 11))
    assert counter(headgate, "observed_total") == 7
    assert counter(headgate, "refused_total") == 0
    assert spend(client, "DECR", "n", name="real") == 5
    assert counter(headgate, "refused_total") == 5


# ---- workers ----


def workers_of(headgate):
    """The numbers of the workers that have clients."""
    with headgate.admin() as admin:
        return set(re.findall(r"worker=(\d+)", text(admin("CLIENTS"))))


@pytest.mark.threads
@pytest.mark.parametrize("limit", [37, 150])
def test_all_workers_count_together(make, redis, limit):
    headgate = make(rule(per="user", limit=limit), threads=4)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        assert client("PING") == PONG
    assert len(workers_of(headgate)) == 4
    for client in clients:
        client.send(encode("INCR", "n") * 50)
    assert sum(admitted(client.read_many(50)) for client in clients) == limit
    assert redis.connect()("GET", "n") == b"%d" % limit
    assert counter(headgate, "admitted_total") == limit
    assert counter(headgate, "refused_total") == 1000 - limit


@pytest.mark.threads
def test_all_workers_charge_several_rules_together(make_shared):
    """All or nothing holds between workers, too: each of the rules is spent to its last permit, and to no more."""
    rules = rule("all", per="all", limit=60, commands="incr decr") + rule("key", per="key", limit=10, commands="incr")
    headgate = make_shared(rules, threads=4)
    clients = [headgate.connect() for _ in range(16)]
    for client in clients:
        client.send(b"".join(encode("INCR", f"k{n % 4}") for n in range(80)))
    replies = [reply for client in clients for reply in client.read_many(80)]
    assert sum(isinstance(reply, int) for reply in replies) == 40
    assert sum(refuses(reply, "key") for reply in replies) == 16 * 80 - 40
    assert spend(clients[0], "DECR", "n", count=50, name="all") == 20


@pytest.mark.threads
def test_reloads_lose_and_give_nothing(make_shared):
    headgate = make_shared(rule(per="all", limit=50), threads=4)
    clients = [headgate.connect() for _ in range(8)]
    total = 0
    for turn in range(6):
        for client in clients:
            client.send(encode("INCR", "n") * 2)
        reload(headgate, rule(per="all", limit=50, commands="incr get" if turn % 2 else "incr"))
        total += sum(admitted(client.read_many(2)) for client in clients)
    assert total == 50


# ---- reload ----


SURVIVED = {
    "nothing": {},
    "commands": {"commands": "incr get"},
    "except": {"except_": "name:nobody"},
    "action": {"action": "delay", "max_delay": "1s"},
}


@pytest.mark.parametrize("changes", SURVIVED.values(), ids=SURVIVED)
def test_state_survives_a_reload(make, changes):
    before = rule(per="ip", limit=5)
    headgate = make(before, threads=4)
    clients = [headgate.connect() for _ in range(4)]
    assert spend(clients[0], count=3) == 3
    others = rule("first", limit=100, commands="decr") + "{}" + rule("last", limit=100, commands="decr")
    reload(headgate, others.format(rule(per="ip", limit=5, **changes)), *clients)
    assert [spend(client) for client in clients] == [2, 0, 0, 0]
    reload(headgate, before, *clients)
    assert [spend(client) for client in clients] == [0, 0, 0, 0]


def test_a_funnel_survives_a_reload(make_shared):
    headgate = make_shared(funnel(capacity=5))
    client = headgate.connect()
    assert spend(client, count=3) == 3
    reload(headgate, funnel(capacity=5, commands="incr get"), client)
    assert spend(client) == 2


def test_observing_goes_on_with_the_same_state(make_shared):
    headgate = make_shared(rule(limit=5))
    client = headgate.connect()
    assert spend(client, count=3) == 3
    reload(headgate, rule(limit=5, action="observe"), client)
    assert spend(client) == 10
    assert counter(headgate, "observed_total") == 8
    reload(headgate, rule(limit=5), client)
    assert spend(client) == 0


RENEWED = {
    "limit": rule(limit=6, per="connection"),
    "window": rule(limit=6, window="2h", per="connection"),
    "keys": rule(limit=6, keys="n*", per="connection"),
    "per": rule(limit=6, per="ip"),
    "algorithm": funnel(capacity=6, per="connection"),
}


@pytest.mark.parametrize("after", RENEWED.values(), ids=RENEWED)
def test_another_rule_begins_anew(make_shared, after):
    limit = 5 if after == RENEWED["limit"] else 6
    headgate = make_shared(rule(limit=limit, per="connection"))
    client = headgate.connect()
    assert spend(client) == limit
    reload(headgate, after, client)
    assert spend(client) == 6


def test_a_rule_comes_and_goes(make):
    headgate = make("")
    client = headgate.connect()
    assert spend(client) == 10
    reload(headgate, rule(limit=2), client)
    assert spend(client) == 2
    reload(headgate, rule("b", limit=3), client)
    assert spend(client, name="b") == 3, "another name is another rule"
    reload(headgate, "", client)
    assert spend(client) == 10


def test_a_faulty_file_changes_nothing(make):
    headgate = make(rule(limit=5))
    client = headgate.connect()
    assert spend(client, count=3) == 3
    headgate.write_rules(rule(limit=100) + rule("b", limit=0))
    with headgate.admin() as admin:
        assert b"[limit:b] limit" in admin("RELOAD")
    assert spend(client) == 2


def test_a_rule_goes_while_a_request_is_held(make):
    """It is served with what waits behind it, soon or when its time has come."""
    headgate = make(funnel(per="all", capacity=1, leak="1/2s", action="delay", max_delay="10m"))
    first, held = headgate.connect(), headgate.connect()
    assert first("INCR", "n") == 1
    held.send(encode("INCR", "n") + encode("ECHO", "behind"))
    await_holds(headgate, 1)
    reload(headgate, "", first)
    assert held.read_many(2) == [2, b"behind"]
    assert first("INCR", "n") == 3


def test_a_rule_that_is_gone_holds_nobody(make):
    """They need not wait for what no rule asks of them any more."""
    headgate = make(funnel(per="all", capacity=1, leak="1/60s", action="delay", max_delay="10m"))
    clients = [headgate.connect() for _ in range(4)]
    assert clients[0]("INCR", "n") == 1
    for client in clients[1:]:
        client.send(encode("INCR", "n") + encode("ECHO", "behind"))
    await_holds(headgate, 3)
    reload(headgate, "", clients[0])
    assert sorted(client.read() for client in clients[1:]) == [2, 3, 4]
    assert [client.read() for client in clients[1:]] == [b"behind"] * 3


# ---- how many are tracked ----


def test_more_subjects_than_are_tracked(make, threads):
    """The first three have a state each, the other seven one together: nobody gets more than the limit."""
    headgate = make(rule(per="name", limit=5, max_clients_tracked=3), threads=threads)
    clients = [named(headgate, f"name-{number}") for number in range(10)]
    counts = [spend(client) for client in clients]
    again = [spend(client) for client in clients]
    assert counts[:3] == [5, 5, 5]
    assert sum(counts[3:]) == 5
    assert sum(again) == 0
    assert counter(headgate, "untracked_total") > 0
    await_tracked(headgate, 3, 4)  # that which the others share may be counted or not


def test_subjects_that_are_gone_make_room(make_shared):
    """In the end each of three newcomers has a state of its own."""
    headgate = make_shared(rule(per="name", limit=1, window="150ms", max_clients_tracked=3))
    for number in range(3):
        assert spend(named(headgate, f"gone-{number}"), count=1) == 1
    for client in headgate.clients:
        client.close()
    clients = [named(headgate, f"new-{number}") for number in range(3)]

    def all_admitted():
        time.sleep(0.15)
        return [spend(client, count=1) for client in clients] == [1, 1, 1]

    wait_for(all_admitted, 30, what="room for three")


def test_idle_subjects_make_room_at_once(make_shared):
    """Three names, then three others when there is nothing to remember of the first, though these are still connected:
    each has its own state."""
    headgate = make_shared(rule(per="name", limit=1, window="150ms", max_clients_tracked=3))
    for turn in range(3):
        clients = [named(headgate, f"{turn}-{number}") for number in range(3)]
        assert [admitted([client("INCR", "n")]) for client in clients] == [1, 1, 1]
        time.sleep(0.15)
    assert counter(headgate, "untracked_total") == 0


def test_what_is_tracked(make_shared, threads):
    headgate = make_shared(rule(per="key", limit=5), threads=threads)
    client = headgate.connect()
    assert counter(headgate, "tracked") == 0
    client.pipeline([("INCR", f"k{number % 50}") for number in range(100)])
    await_tracked(headgate, 50)


def test_idle_subjects_are_forgotten(make_shared):
    """One subject that is not idle comes after the others, and shows that the gauge has seen them."""
    rules = rule("window", per="key", limit=5, window="250ms") + funnel("funnel", per="key", capacity=5, leak="5/250ms")
    headgate = make_shared(rules + rule("long", per="key", limit=1, commands="decr"))
    commands = [("INCR", f"k{number}") for number in range(2000)]
    assert admitted(headgate.connect().pipeline([*commands, ("DECR", "long")])) == 2001
    await_tracked(headgate, 1)


# ---- the admin port ----


def test_counters(make, threads):
    """They count requests times rules, over all workers."""
    rules = rule("own", per="connection", limit=3) + rule("all", per="all", limit=100)
    headgate = make(rules + rule("get", limit=1, commands="get"), threads=threads)
    zero = stats(headgate, "limit")
    names = ("admitted_total", "refused_total", "delayed_total", "observed_total", "tracked", "untracked_total")
    assert [zero[f"limit_{name}"] for name in names] == ["0"] * len(names)
    clients = [headgate.connect() for _ in range(4)]
    assert [spend(client, count=5, name="own") for client in clients] == [3, 3, 3, 3]
    assert counter(headgate, "admitted_total") == 24
    assert counter(headgate, "refused_total") == 8
    await_tracked(headgate, 4, 5)  # all together may be counted as one subject or not
    assert stats(headgate, "policies")["policy_replies_total"] == "8"


def test_limits(make, redis, threads):
    headgate = make(rule("api", per="user", limit=5, window="60s") + rule("other", per="ip", limit=9, commands="get"),
                    threads=threads)
    add_users(redis, "alice", "bob")
    start = time.monotonic()
    assert spend(authenticated(headgate, "alice"), count=7, name="api") == 5
    assert spend(authenticated(headgate, "bob"), count=2, name="api") == 2
    await_tracked(headgate, 2)
    rules, offenders = limits(headgate)
    passed = (time.monotonic() - start) * 1000
    assert set(rules) == {"api", "other"}
    expected = {"per": "user", "admitted": "7", "refused": "2", "delayed": "0", "observed": "0", "tracked": "2"}
    assert expected.items() <= rules["api"].items()
    assert {"per": "ip", "admitted": "0", "refused": "0", "tracked": "0"}.items() <= rules["other"].items()
    assert [(line["offender"], line["rule"], line["refused"]) for line in offenders] == [("user:alice", "api", "2")]
    assert 60_000 - passed <= int(offenders[0]["next_admission_ms"]) <= 60_001


def test_limits_lists_the_worst(make_shared):
    headgate = make_shared(rule(per="name", limit=1))
    for number in range(15):
        assert spend(named(headgate, f"n{number}"), count=2 + number) == 1
    _, offenders = limits(headgate)
    assert 1 <= len(offenders) <= 10
    assert ("name:n14", "15") in [(line["offender"], line["refused"]) for line in offenders]


def test_offenders_cannot_forge_lines(make_shared):
    """Keys are anybody's text."""
    headgate = make_shared(rule(per="key", limit=1))
    client = headgate.connect()
    keys = [b"x\r\nrule=forged per=ip admitted=1", b"y\noffender=forged", b"z refused=999", b"\xff\0\x1b[2J"]
    for key in keys:
        assert spend(client, "INCR", key) == 1
    with headgate.admin() as admin:
        lines = text(admin("LIMITS")).split("\n")
    assert len([line for line in lines if line.strip()]) == 1 + len(keys)
    assert all(line.rstrip("\r").isprintable() for line in lines)
    rules, offenders = limits(headgate)
    assert set(rules) == {"a"} and "forged" not in [line["offender"] for line in offenders]


def test_reset_of_a_rule(make, threads):
    headgate = make(rule(per="name", limit=5) + rule("b", per="ip", limit=40), threads=threads)
    clients = [named(headgate, name) for name in ("x", "y", "x")]
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert forget(headgate, "a") == OK
    assert [spend(client) for client in clients] == [5, 5, 0]
    assert limits(headgate)[0]["b"]["admitted"] == "20", "the other rule has lost nothing"
    for unknown in (("none",), ("a", "name:nobody"), ("none", "name:x"), ()):
        assert isinstance(forget(headgate, *unknown), Error), unknown
    assert [spend(client) for client in clients] == [0, 0, 0]


@pytest.mark.parametrize("per", ["ip", "ip/24", "user", "name", "connection", "key", "all", "user+key", "ip+name"])
def test_reset_of_an_offender(make_shared, per):
    """The words of LIMITS are those that LIMIT RESET takes."""
    headgate = make_shared(rule(per=per, limit=5))
    client = named(headgate, "me")
    assert spend(client, "INCR", "k") == 5
    _, offenders = limits(headgate)
    assert len(offenders) == 1
    assert forget(headgate, "a", offenders[0]["offender"]) == OK
    assert spend(client, "INCR", "k") == 5


def test_reset_of_one_offender_leaves_the_others(make_shared):
    headgate = make_shared(rule(per="name", limit=5))
    clients = [named(headgate, name) for name in ("x", "y")]
    assert [spend(client) for client in clients] == [5, 5]
    assert forget(headgate, "a", "name:x") == OK
    assert [spend(client) for client in clients] == [5, 0]


# ---- the file ----


WINDOW = ("limit = 5", "window = 1s")
FUNNEL = ("algorithm = funnel", "capacity = 5", "leak = 1/s")
HUGE = "9" * 30


@pytest.mark.parametrize(
    "options",
    [
        WINDOW,
        FUNNEL,
        ("limit = 1", "window = 500us"),
        ("limit = 1000000", "window = 10ms"),
        ("limit = 5", "window = 30d"),
        ("algorithm = sliding-window", "limit = 5", "window = 5m"),
        ("algorithm = funnel", "capacity = 1", "leak = 1/h"),
        ("algorithm = funnel", "capacity = 200", "leak = 5/250ms"),
        ("algorithm = funnel", "capacity = 200", "leak = 100/1s"),
        (*WINDOW, "per = ip/24"),
        (*WINDOW, "per = ip/24/48"),
        (*WINDOW, "per = ip+user+name+key"),
        (*WINDOW, "per = connection"),
        (*WINDOW, "per = all"),
        (*WINDOW, "per = key", "keys = user:{*}:* cart:*"),
        (*WINDOW, "scope = local", "accuracy = exact", "action = observe"),
        (*WINDOW, "action = delay", "max_delay = 250ms"),
        (*FUNNEL, "cost = bytes", "max_clients_tracked = 1"),
        (*WINDOW, "cost = keys", "commands = @write !set config|set", "except = ip:10.0.0.0/8 user:x name:y*"),
    ],
    ids=", ".join,
)
def test_rules_that_can_be(tmp_path, options):
    done = check_file(tmp_path, options)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "at_fault"),
    [
        # Nothing, or half of what is needed.
        ((), "limit|window"),
        (("limit = 5",), "limit|window"),
        (("window = 1s",), "limit|window"),
        (("algorithm = funnel",), "algorithm|capacity|leak"),
        (("algorithm = funnel", "capacity = 5"), "algorithm|capacity|leak"),
        (("algorithm = funnel", "leak = 1/s"), "algorithm|capacity|leak"),
        ((*WINDOW, "action = delay"), "action|max_delay"),
        # Options that do not go together.
        ((*WINDOW, "capacity = 5"), "capacity|algorithm"),
        ((*WINDOW, "leak = 1/s"), "leak|algorithm"),
        ((*FUNNEL, "limit = 5"), "limit|algorithm"),
        ((*FUNNEL, "window = 1s"), "window|algorithm"),
        ((*WINDOW, "max_delay = 1s"), "max_delay|action"),
        ((*WINDOW, "action = observe", "max_delay = 1s"), "max_delay|action"),
        ((*WINDOW, "accuracy = leased"), "accuracy|scope"),
        # Numbers and times.
        (("limit = 0", "window = 1s"), "limit"),
        (("limit = -1", "window = 1s"), "limit"),
        (("limit = five", "window = 1s"), "limit"),
        (("limit = 5.5", "window = 1s"), "limit"),
        (("limit =", "window = 1s"), "limit"),
        ((f"limit = {HUGE}", "window = 1s"), "limit"),
        (("limit = 5", "window = 0"), "window"),
        (("limit = 5", "window = 0s"), "window"),
        (("limit = 5", "window = -1s"), "window"),
        (("limit = 5", "window = 60"), "window"),
        (("limit = 5", "window = 1 parsec"), "window"),
        (("limit = 5", f"window = {HUGE}d"), "window"),
        (("algorithm = funnel", "capacity = 0", "leak = 1/s"), "capacity"),
        (("algorithm = funnel", "capacity = -5", "leak = 1/s"), "capacity"),
        (("algorithm = funnel", f"capacity = {HUGE}", "leak = 1/s"), "capacity"),
        (("algorithm = funnel", "capacity = 5", "leak = 0/s"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = -1/s"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5/"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = /s"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5/0s"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5/-1s"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5/parsec"), "leak"),
        (("algorithm = funnel", "capacity = 5", "leak = 5/s/s"), "leak"),
        (("algorithm = funnel", "capacity = 5", f"leak = {HUGE}/s"), "leak"),
        (("algorithm = funnel", "capacity = 5", f"leak = 1/{HUGE}d"), "leak"),
        ((*WINDOW, "action = delay", "max_delay = -1s"), "max_delay"),
        ((*WINDOW, "action = delay", "max_delay = 5"), "max_delay"),
        ((*WINDOW, "max_clients_tracked = 0"), "max_clients_tracked"),
        ((*WINDOW, "max_clients_tracked = -1"), "max_clients_tracked"),
        ((*WINDOW, f"max_clients_tracked = {HUGE}"), "max_clients_tracked"),
        (("algorithm = funnel", "capacity = 1000000000", "leak = 1/30d"), "capacity|leak"),
        # Words.
        ((*WINDOW, "algorithm = bucket"), "algorithm"),
        ((*WINDOW, "action = refuse"), "action"),
        ((*WINDOW, "cost = lines"), "cost"),
        ((*WINDOW, "scope = everywhere"), "scope"),
        ((*WINDOW, "accuracy = rough"), "accuracy"),
        ((*WINDOW, "on_error = maybe"), "on_error"),
        ((*WINDOW, "per = host"), "per"),
        ((*WINDOW, "per = user+"), "per"),
        ((*WINDOW, "per = user+host"), "per"),
        ((*WINDOW, "per = ip/33"), "per"),
        ((*WINDOW, "per = ip/24/129"), "per"),
        ((*WINDOW, "per = ip/x"), "per"),
        ((*WINDOW, "per = user/24"), "per"),
        # What a rule speaks of.
        ((*WINDOW, "commands = gte"), "commands"),
        ((*WINDOW, "commands = @bad"), "commands"),
        ((*WINDOW, "except = ip:1.2.3"), "except"),
        ((*WINDOW, "keys = a["), "keys"),
        ((*WINDOW, "per = key", "keys = a:{*}:b:{*}"), "keys"),
        ((*WINDOW, "commands = ping", "keys = a*"), "keys|commands"),
        ((*WINDOW, "commands = ping", "per = key"), "per|commands"),
        ((*WINDOW, "commands = ping", "per = user+key"), "per|commands"),
        # Unknown options.
        ((*WINDOW, "limits = 5"), "limits"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value)[:60],
)
def test_rules_that_cannot_be(tmp_path, options, at_fault):
    done = check_file(tmp_path, options)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(rf"h\.ini:[1-9]: \[limit:a\] ({at_fault}) =.*: .+; expected .+", done.stderr), done.stderr


def test_a_rule_needs_a_name(tmp_path):
    path = tmp_path / "h.ini"
    path.write_text("[limit]\nlimit = 5\nwindow = 1s\n")
    done = subprocess.run([BINARY, "-t", "-c", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "[limit]: rule has no name" in done.stderr


# ---- what could slip through ----


def test_a_command_that_is_translated_ends_a_pipeline(make):
    """Requests that are put to the rules together must be so before anything else is sent."""
    headgate = make(rule(per="all", limit=5))
    client = headgate.connect()
    replies = client.pipeline([("INCR", "n")] * 100 + [("DELIFEQ", "x", "y")] + [("INCR", "n")] * 10)
    assert admitted(replies[:100]) == 5 and replies[100] == 0 and admitted(replies[101:]) == 0


def test_long_requests_count_together_where_their_keys_are_not_seen(make):
    """Their keys cannot be told apart, so they share one limit, whatever the glob is."""
    headgate = make(rule(per="key", keys="{*}:*", limit=2, commands="mset"))
    client = headgate.connect()
    replies = [client("MSET", "t:a", "v" * 300_000) for _ in range(6)]
    assert replies[:2] == [OK, OK] and all(refuses(reply) for reply in replies[2:])


def test_reset_of_an_empty_name(make):
    """An unset variable of a shell must not forget everything."""
    headgate = make(rule(per="all", limit=1))
    client = headgate.connect()
    assert spend(client) == 1
    with headgate.admin() as admin:
        assert isinstance(admin("LIMIT", "RESET", "a", ""), Error)
    assert spend(client) == 0
