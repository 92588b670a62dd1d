"""[limit:NAME] with scope = local: what a reload keeps, how many are tracked, and what a file may say."""

import re
import subprocess
import time

import pytest

from harness.admin import stats
from harness.identity import named
from harness.limits import admitted, await_holds, await_tracked, counter, funnel, rule, spend
from harness.resp import Error, encode, wait_for
from harness.rules import check_file, reload
from harness.servers import BINARY


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


SLOW = funnel(per="all", capacity=1, leak="1/2s", action="delay", max_delay="10m")
REFUSED = Error(b"DENIED x: incr is not allowed")


@pytest.mark.parametrize(("after", "reply"), [("", 2), (SLOW + "[deny:x]\ncommands = incr\n", REFUSED)])
def test_a_rule_goes_or_comes_while_a_request_is_held(make, after, reply):
    """It is served with what waits behind it, soon or when its time has come; or refused. It is counted once."""
    seen = "[deny:seen]\ncommands = incr\naction = observe\n"
    headgate = make(seen + SLOW)
    first, held = headgate.connect(), headgate.connect()
    assert first("INCR", "n") == 1
    held.send(encode("INCR", "n") + encode("ECHO", "behind"))
    await_holds(headgate, 1)
    reload(headgate, seen + after, first)
    assert held.read_many(2) == [reply, b"behind"]
    assert first("GET", "n") == (b"1" if after else b"2")
    assert stats(headgate, "deny")["deny_observed_total"] == "2"


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
        ((*WINDOW, "per = hosts"), "per"),
        ((*WINDOW, "per = user+"), "per"),
        ((*WINDOW, "per = user+hosts"), "per"),
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
