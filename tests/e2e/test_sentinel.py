"""Headgate before the master that sentinels know: found, followed, and never another."""

import signal
import time

import pytest

from harness.admin import stats, text
from harness.resp import OK, Closed, Error, wait_for
from harness.sentinel import Announcements, Group
from harness.servers import both_sides


@pytest.fixture
def group():
    servers = Group()
    yield servers
    servers.discard()


@pytest.fixture
def make_group():
    groups = []

    def make(**options):
        groups.append(Group(**options))
        return groups[-1]

    yield make
    for one in groups:
        one.discard()


def answers_from(headgate, server):
    """Whether a new client of Headgate is at that server."""
    try:
        with headgate.connect() as client:
            info = client("CONFIG", "GET", "port")
            return info == [b"port", str(server.port).encode()]
    except (Closed, OSError):
        return False


def await_server(headgate, server):
    wait_for(lambda: answers_from(headgate, server), 60, "Headgate to be at that server")


@pytest.mark.parametrize("threads", (1, 4))
def test_finds_the_master_and_follows_it(group, make_headgate, pool, threads):
    headgate = make_headgate(group.url, pool=pool, threads=threads)
    await_server(headgate, group.master())
    idle = [headgate.connect() for _ in range(6)]
    assert all(client("SET", f"k{number}", number) == OK for number, client in enumerate(idle))
    before = group.master()
    group.failover()
    after = group.await_agreement()
    assert after is not before
    await_server(headgate, after)
    # They had nothing under way, and no state: they have not noticed.
    assert [client("CONFIG", "GET", "port")[1] for client in idle] == [str(after.port).encode()] * 6
    assert all(client("SET", f"k{number}", "x") == OK for number, client in enumerate(idle))
    assert int(stats(headgate)["topology_changes_total"]) >= 1
