"""Commands that Headgate does not know, and whose keys the server specifies: they go to the node of their keys."""

import os
import pathlib

import pytest

from harness.admin import stats
from harness.cluster import Cluster, tag_of
from harness.resp import OK, QUEUED, Error, wait_for
from harness.servers import BINARY

MODULE = pathlib.Path(os.environ.get("HEADGATE_KEYED_MODULE", pathlib.Path(BINARY).parent / "keyed_module.so"))


@pytest.fixture(scope="module")
def cluster():
    assert MODULE.exists(), f"no {MODULE}: build it, or name it in HEADGATE_KEYED_MODULE"
    with Cluster("--loadmodule", str(MODULE), replicas=0) as cluster:
        yield cluster


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    headgate = make_headgate(cluster.url(), pool=pool)
    with headgate.connect() as client:
        wait_for(lambda: client("CLUSTER", "SLOTS") != [], what="a map of slots")
    return headgate


def redirects(headgate):
    return int(stats(headgate)["redirects_total"])


def calls(node, command):
    """How often the node has executed it."""
    told = node.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
    return int(told.split(",")[0].removeprefix("calls="))


def test_keys_that_are_counted_or_behind_a_word(cluster, headgate):
    """Redis 7.0 does not redirect such requests of modules, but executes them anywhere."""
    for node in cluster.masters:
        node.tell("CONFIG", "RESETSTAT")
    slots = range(0, 16384, 1000)
    with headgate.connect() as client:
        for slot in slots:
            tag = "{%s}" % tag_of(slot)
            assert client("KEYED.COUNTED", "option", 2, f"{tag}a", f"{tag}b", "no key") == 6
            assert client("KEYED.BEHINDWORD", "option", "keys", f"{tag}a", f"{tag}b") == 5
    assert redirects(headgate) == 0
    for node in cluster.masters:
        expected = len(cluster.slots_of(node).intersection(slots))
        assert [calls(node, f"keyed.{name}") for name in ("counted", "behindword")] == [expected] * 2


def test_keys_of_several_slots_are_refused(headgate):
    with headgate.connect() as client:
        crossslot = Error(b"CROSSSLOT Keys in request don't hash to the same slot")
        assert client("KEYED.COUNTED", "option", 2, "a", "b") == crossslot
        assert client("KEYED.BEHINDWORD", "KEYS", "a", "b") == crossslot
        assert client("KEYED.COUNTED", "option", 1, "a", "b") == 5


def test_they_decide_where_a_transaction_is(headgate):
    with headgate.connect() as client:
        for slot in (1, 6000, 12000):
            key = "{%s}" % tag_of(slot)
            assert client("MULTI") == OK
            assert client("KEYED.COUNTED", "option", 1, key) == QUEUED
            assert client("SET", key, "value") == QUEUED
            assert client("EXEC") == [4, OK]
        assert redirects(headgate) == 0
