"""After an upgrade, clients that ask for maintenance notifications go over to the new process by themselves, although
the old one would keep them."""

import os
import signal

import pytest

from harness.admin import stats
from harness.moving import NONE, Follower, arrive, assert_told
from harness.resp import NULL, OK, PONG, Push, encode, wait_for
from harness.upgrade import Former


def test_who_loses_something_is_told_when_it_is_over(make_line, pool):
    """A transaction, watched keys, subscriptions; who is blocked hears it behind the reply."""
    line = make_line(pool=pool)
    queued, watching, subscribed, blocked, free = [arrive(line.headgate, *NONE) for _ in range(5)]
    assert queued("MULTI") == OK
    assert watching("WATCH", "k") == OK
    assert isinstance(subscribed("SUBSCRIBE", "channel"), Push)
    blocked.request("BLPOP", "list", 0)
    line.upgrade()
    assert_told(free.read(), 10, NULL)
    visitor = line.headgate.connect()
    for number in range(20):
        assert queued("SET", "q", number) == b"QUEUED"
        assert watching("GET", "k") is NULL
        assert visitor("PUBLISH", "channel", number) == 1
        assert subscribed.read() == [b"message", b"channel", b"%d" % number]
    assert queued("EXEC") == [OK] * 20
    assert watching("UNWATCH") == OK
    subscribed.send(encode("UNSUBSCRIBE", "channel"))
    assert subscribed.read()[0] == b"unsubscribe"
    visitor("RPUSH", "list", "x")
    assert blocked.read() == [b"list", b"x"]
    for client in (queued, watching, subscribed, blocked):
        assert_told(client.read(), 10, NULL)
        assert client("PING") == PONG


# Clients are told five seconds after the new process has come to serve, at a tick, of which there are ten in a second.
TOLD_AFTER_MS = 5000
TICKS_MS = 500


def let_pass(headgate, ms):
    """Until that process, by its own clock, says that so much time is over: in the log, at a tick of its worker. Then
    its main thread has had a turn, too."""
    over = "its time is over"
    before = headgate.log().count(over)
    with headgate.admin() as admin:
        assert admin("PAUSE", "WRITE", ms) == OK
        wait_for(lambda: headgate.log().count(over) > before, 60, f"{ms} ms to be over")
        assert admin("PING") == PONG


@pytest.mark.parametrize("when", ["before it has told anybody", "when it has told all"])
def test_nobody_is_told_while_there_is_nowhere_to_go(make_line, when):
    """The new process crashes. Nobody is told then for longer than it takes until clients are."""
    line = make_line()
    early, first = arrive(line.headgate, *NONE), Former(line.headgate)
    line.upgrade()

    def count():
        return stats(first)["clients_told_to_move_total"]

    if when == "when it has told all":
        wait_for(lambda: count() == "1", what="it to be told")
    pid = line.pids.pop()
    os.kill(pid, signal.SIGKILL)
    line.await_end(pid)
    wait_for(lambda: line.pid() == line.pids[-1], 30, "the one before to serve")
    # What the main thread has ordered by now, the worker does at a tick.
    let_pass(line.headgate, TICKS_MS)
    before = count()
    told = early.read() if before == "1" else [None, None]
    late = arrive(line.headgate, *NONE)
    let_pass(line.headgate, TOLD_AFTER_MS + TICKS_MS)
    let_pass(line.headgate, TICKS_MS)
    for client in (early, late):
        assert client("PING") == PONG, "nobody is told"
    assert count() == before
    # They are when there is somewhere to go, and who was told in vain is told anew.
    line.upgrade()
    assert_told(late.read(), 10, NULL)
    assert_told(again := early.read(), 10, NULL)
    assert again[1] != told[1]


def test_a_drain_tells_who_has_stayed(make_line):
    line = make_line(drain_timeout="2m")
    client = arrive(line.headgate, *NONE)
    line.upgrade()
    assert_told(client.read(), 10, NULL)
    os.kill(line.pids[0], signal.SIGTERM)
    assert_told(client.read(), 10, NULL)
    assert client("PING") == PONG
    client.close()
    line.await_end(line.pids[0])


@pytest.mark.threads
def test_who_follows_sees_no_error(make_line, pool):
    """Many clients under load, through two upgrades. The old process ends when they have gone."""
    line = make_line(pool=pool, maintenance_notifications="address", threads=2)
    followers = [Follower(line.headgate, number) for number in range(4)]
    for times in range(1, 3):
        line.upgrade()
        wait_for(lambda: all(one.moves == times or one.faults for one in followers), 60, "all to have moved")
        line.await_end(line.pids[-2])
        assert int(stats(line.headgate)["clients_connected"]) == len(followers)
    for follower in followers:
        follower.end()
    assert [one.faults for one in followers if one.faults] == []
