"""Locks of real libraries behind Headgate: kept while their owner lives and has not released them, and no longer."""

import pytest

from laboratory import PATIENCE, Laboratory
from harness.admin import stats
from harness.resp import wait_for
from libraries import LIBRARIES

THOROUGH = [library for library in LIBRARIES if not library.brief]
# One or two of each program, and of each kind of lock.
SOME = {
    "redis-py", "book-semaphore", "node-redlock-5", "redis-semaphore-semaphore", "redsync", "redislock", "laravel",
    "symfony", "redisson-4.7.0-lock", "redisson-4.7.0-permit",
}
PLACES = [(library, "shared") for library in LIBRARIES]
PLACES += [(library, "session") for library in LIBRARIES if library.name in SOME]
LOST = ("gone", "taken", "persisted", "shortened", "type", "unreachable")


def libraries(selection, condition=lambda library: True):
    chosen = [library for library in selection if condition(library)]
    return pytest.mark.parametrize("library", chosen, ids=[library.name for library in chosen])


def assert_counted(lab, acquired, released):
    """To the last one, and nothing else: of locks that are one of several keys, one for each of these."""
    if acquired == released:
        lab.await_no_leases()
    counters = lab.stats()
    each = len(lab.library.keys) if lab.library.argument == "multi" else 1
    expected = {"acquired": acquired * each, "released": released * each, "unseen": 0}
    assert {name: counters[f"lease_{name}_total"] for name in expected} == expected
    assert_nothing_was_lost(lab)


def assert_nothing_was_lost(lab):
    counters = lab.stats()
    assert {reason: counters[f"lease_lost_{reason}_total"] for reason in LOST} == dict.fromkeys(LOST, 0)


@libraries(THOROUGH, lambda library: library.name in SOME)
def test_without_headgate_it_is_lost(library):
    """The control: what the other tests find is Headgate's doing."""
    with Laboratory(library, "direct") as lab:
        assert lab.acquire()
        assert lab.holder()
        if library.rival:
            assert not lab.acquire()
        lab.await_lost(lab.lease + PATIENCE)
        assert not library.rival or lab.acquire()


@pytest.mark.parametrize(("library", "pool"), PLACES, ids=lambda part: getattr(part, "name", part))
def test_it_is_kept_until_it_is_released(library, pool):
    with Laboratory(library, pool) as lab:
        assert lab.acquire()
        lab.assert_held(leases=1.5)
        if library.rival:
            assert not lab.acquire()
        lab.assert_held(leases=2)
        assert_nothing_was_lost(lab)
        if not library.renews:
            assert lab.stats()["lease_renewals_total"] > 0
            assert lab.monitor.renewals.keys() & set(lab.keys)
        assert lab.release()
        lab.assert_gone()
        assert_counted(lab, 1, 1)
        assert lab.acquire()
        wait_for(lab.holder, PATIENCE, "the lock to have a holder")


@libraries(LIBRARIES, lambda library: library.renews)
def test_a_library_that_renews_by_itself_is_not_fought(library):
    with Laboratory(library, "shared") as lab:
        assert lab.acquire()
        lab.assert_never_shortened(leases=4)
        assert lab.release()
        lab.assert_gone()
        assert_nothing_was_lost(lab)


@libraries(LIBRARIES, lambda library: library.extends)
def test_what_its_owner_extends_is_kept_for_as_long_as_it_says(library):
    with Laboratory(library, "shared") as lab:
        assert lab.acquire()
        assert lab.extend(2)
        lab.assert_never_shortened(leases=5)
        assert lab.left() > lab.library.lease, "it is renewed for as long as it was taken, not as it was extended"
        assert lab.release()
        lab.assert_gone()
        assert_nothing_was_lost(lab)


@libraries(LIBRARIES, lambda library: library.reentrant)
def test_what_is_held_twice_is_kept_until_its_second_release(library):
    with Laboratory(library, "shared") as lab:
        assert lab.acquire()
        assert lab.acquire_again()
        lab.assert_held(leases=1.5)
        assert lab.release()
        lab.assert_held(leases=3)
        assert lab.release()
        lab.assert_gone()
        assert_counted(lab, 1, 1)


@libraries(THOROUGH)
def test_it_ends_when_its_owner_is_killed(library):
    with Laboratory(library, "shared", grace="300ms") as lab:
        assert lab.acquire()
        lab.assert_held(leases=1.5)
        lab.kill()
        wait_for(lambda: stats(lab.headgate, "clients")["clients_connected"] == "0", PATIENCE, "no client")
        lab.await_lost(lab.lease + PATIENCE)
        lab.await_no_leases()
        counters = lab.stats()
        assert counters["lease_owner_gone_total"] == counters["lease_acquired_total"] > 0
        lab.assert_for(1, lambda: lab.holder() is None, "the lock came back")
