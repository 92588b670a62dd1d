"""Locks of real libraries behind Headgate: kept while their owner lives and has not released them, and no longer."""

import dataclasses

import pytest

from laboratory import PATIENCE, Laboratory
from harness.admin import stats
from harness.resp import wait_for
from libraries import LIBRARIES, UNKNOWN

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


@libraries(THOROUGH, lambda library: library.heals)
def test_without_headgate_it_stays_for_ever(library):
    with Laboratory(library, "direct") as lab:
        assert lab.acquire()
        lab.kill()
        lab.assert_for(2, lambda: lab.left() == -1, "it has a time to live")


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


@libraries(UNKNOWN)
def test_what_headgate_does_not_know_works_as_without_it(library, pool):
    with Laboratory(library, pool) as lab:
        assert lab.acquire()
        assert lab.holder()
        assert not lab.acquire()
        assert lab.leases() == []
        assert lab.release()
        lab.assert_gone(leases=0)
        assert lab.acquire()
        lab.await_lost(lab.lease + PATIENCE)
        assert lab.acquire()


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


@libraries(THOROUGH, lambda library: library.name in SOME)
def test_it_ends_with_its_connection_though_others_of_the_host_live(library):
    with Laboratory(library, "shared", owner="connection", grace="300ms") as lab:
        lab.start_other()
        assert lab.acquire()
        lab.assert_held(leases=2)
        lab.kill()
        lab.await_lost(lab.lease + PATIENCE)
        lab.await_no_leases()
        assert lab.stats()["lease_owner_gone_total"] > 0


@libraries(THOROUGH, lambda library: library.name in SOME)
def test_it_goes_from_one_program_to_the_other(library):
    with Laboratory(library, "shared") as lab:
        lab.start_other()
        assert lab.acquire()
        lab.assert_held(leases=1.5)
        assert not lab.other_acquires()
        first = lab.holder()
        assert lab.release()
        assert lab.other_acquires()
        assert lab.holder() not in (None, first)
        lab.assert_held(leases=1.5)
        assert not lab.acquire()
        assert len(lab.leases()) == 1
        assert_counted(lab, 2, 1)


@libraries(THOROUGH, lambda library: library.name in SOME)
def test_it_is_released_for_an_owner_that_was_killed(library):
    """Long before its lease is over."""
    library = dataclasses.replace(library, lease=60_000)
    with Laboratory(library, "shared", grace="300ms", on_owner_gone="release", ttl="60s") as lab:
        assert lab.acquire()
        wait_for(lab.holder, PATIENCE, "the lock to have a holder")
        lab.kill()
        lab.await_lost(2 * PATIENCE)
        assert not lab.exists()
        lab.await_no_leases()


@libraries(THOROUGH, lambda library: library.name in SOME)
def test_it_ends_when_its_owner_hangs(library):
    with Laboratory(library, "shared", max_hold=f"{3 * library.lease}ms") as lab:
        assert lab.acquire()
        lab.stop()
        if not library.renews:
            lab.assert_held(leases=2)
        lab.await_lost(4 * lab.lease + PATIENCE)
        lab.assert_for(1, lambda: lab.holder() is None, "the lock came back")
        assert library.renews or lab.stats()["lease_max_hold_total"] > 0
