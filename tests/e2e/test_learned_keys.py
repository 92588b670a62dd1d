"""Commands that Headgate does not know, and whose keys the server specifies: they go to the node of their keys."""

import os
import pathlib
import threading

import pytest

from harness.admin import stats
from harness.cluster import Cluster, tag_of
from harness.resp import OK, QUEUED, Error, encode, wait_for
from harness.servers import BINARY
from harness.threads import at_once

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


# ---- keys that only Redis finds ----


def asked(headgate):
    return int(stats(headgate)["keys_asked_total"])


def keys_of(cluster, names=("a", "b", "c")):
    return [[f"{{{tag_of(min(cluster.slots_of(node)))}}}{name}" for name in names] for node in cluster.masters]


def test_keys_that_only_the_module_finds(cluster, headgate):
    """It depends on the arguments where they are."""
    for node in cluster.masters:
        node.tell("CONFIG", "RESETSTAT")
    before = asked(headgate)
    with headgate.connect() as client:
        for a, b, _ in keys_of(cluster):
            assert client("KEYED.FOUND", "KEY", a) == 3
            assert client("KEYED.FOUND", "x", "KEY", a, "y", "KEY", b) == 7
            assert client("KEYED.FOUND", a, "KEY", b) == 4
            assert client("KEYED.SUB", "GET", a) == 3
        assert redirects(headgate) == 0
        assert asked(headgate) == before + 12
        assert client("KEYED.FOUND", "no", "keys") == 3
        assert client("KEYED.SUB", "LIST") == 2
        assert client("KEYED.SUB", "NOSUCH", "x").startswith(b"ERR unknown subcommand")
        assert client("GET", "a") is None
        assert asked(headgate) == before + 15
    for node in cluster.masters:
        assert calls(node, "keyed.found") in (3, 4) and calls(node, "keyed.sub|get") == 1


def test_those_of_several_slots_are_refused(cluster, headgate):
    (a, *_), (b, *_), _ = keys_of(cluster)
    with headgate.connect() as client:
        for words in (("COUNTED", "option", 2, a, b), ("BEHINDWORD", "KEYS", a, b), ("FOUND", "KEY", a, "KEY", b)):
            reply = client(f"KEYED.{words[0]}", *words[1:])
            assert reply == Error(b"CROSSSLOT Keys in request don't hash to the same slot")
        assert client("KEYED.COUNTED", "option", 1, a, b) == 5
        assert client("KEYED.FOUND", "KEY", a, b) == 4


def test_they_are_in_their_clients_order(cluster, headgate):
    """One that went elsewhere first would be executed behind what follows."""
    with headgate.connect() as client:
        assert client("FLUSHALL") == OK
        pipeline, wanted = [], []
        for number in range(20):
            for key, other, _ in keys_of(cluster):
                pipeline += [("SET", key, 10 * number), ("KEYED.INCR", "KEY", key), ("INCR", key), ("INCR", other)]
                wanted += [OK, 10 * number + 1, 10 * number + 2, number + 1]
        assert client.pipeline(pipeline) == wanted
        assert redirects(headgate) == 0


def test_they_decide_where_a_transaction_is(cluster, headgate):
    with headgate.connect() as client:
        assert client("FLUSHALL") == OK
        for (key, *_), (other, *_) in zip(keys_of(cluster), keys_of(cluster)[::-1]):
            commands = [("MULTI",), ("KEYED.INCR", "KEY", key), ("GET", key), ("EXEC",), ("KEYED.INCR", "KEY", key)]
            assert client.pipeline(commands) == [OK, QUEUED, QUEUED, [1, b"1"], 2]
            assert client("MULTI") == OK
            assert client("KEYED.COUNTED", "option", 1, key) == QUEUED
            assert client("EXEC") == [4]
            assert client("WATCH", key) == OK
            assert client("KEYED.FOUND", "KEY", key) == 3
            if other != key:
                assert client("KEYED.FOUND", "KEY", other).startswith(b"CROSSSLOT")
            assert client("UNWATCH") == OK
    assert redirects(headgate) == 0


def test_long_ones_are_not_asked_about(cluster, headgate, pool):
    """They would be sent twice. The node that they go to says where they belong, and they keep their place."""
    value = b"v" * 70_000
    before = asked(headgate)
    with headgate.connect() as client:
        assert client("FLUSHALL") == OK
        for key, *_ in keys_of(cluster):
            commands = [("SET", key, 1), ("KEYED.INCR", value, "KEY", key), ("INCR", key)]
            assert client.pipeline(commands) == [OK, 2, 3]
    # With a connection of its own the client is at the node of its last key.
    assert asked(headgate) == before and redirects(headgate) == (2 if pool == "shared" else 0)
    with headgate.connect() as client:
        assert client("KEYED.INCR", "v" * 60_000, "KEY", keys_of(cluster)[0][0]) == 4


def test_no_count_is_lost_or_doubled_while_slots_move(cluster, headgate):
    """Each second time by a command of whose keys Redis is asked."""
    slots, first, ended = range(3000, 3006), cluster.masters[0], threading.Event()

    def count(number):
        keys, rounds = [f"{{{tag_of(slot)}}}moves:{number}" for slot in slots], 0
        with headgate.connect() as client:
            while not ended.is_set() or rounds < 2:
                replies = client.pipeline([word for key in keys for word in (("INCR", key), ("KEYED.INCR", "KEY", key))])
                assert replies == [2 * rounds + 1, 2 * rounds + 2] * len(keys)
                rounds += 1

    def work(number):
        if number:
            return count(number)
        for node in (*cluster.masters[1:], first):
            cluster.reshard(slots, node)
            cluster.await_agreement()
        return ended.set()

    at_once(work, 4, seconds=120)
    assert redirects(headgate) > 0


def test_who_goes_away_while_redis_is_asked(cluster, headgate):
    """Its answer is for nobody; who has only closed its half is answered all the same."""
    keys = [key for key, *_ in keys_of(cluster)]
    for node in cluster.masters:
        node.pause()
    clients = [headgate.connect() for _ in range(9)]
    for number, client in enumerate(clients):
        client.send(encode("KEYED.FOUND", "KEY", keys[number % 3]) + encode("GET", "nothing"))
    for number, client in enumerate(clients):
        (client.close, client.reset, client.shutdown_write)[number // 3]()
    stats(headgate)
    for node in cluster.masters:
        node.resume()
    for client in clients[6:]:
        assert client.read_many(2) == [3, None]
        client.assert_closed()
    wait_for(lambda: stats(headgate)["clients_connected"] == "0", what="all to be gone")
    cluster.await_agreement()


# ---- who asks ----


def set_users(cluster, **rules):
    for node in cluster.masters:
        for name, rule in rules.items():
            node.tell("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", rule)
        node.tell("ACL", "LOG", "RESET")


@pytest.mark.parametrize("headgates", ("+command", "-command"))
@pytest.mark.parametrize("clients", ("+command", "-command"))
def test_who_may_ask(make_headgate, cluster, headgates, clients):
    """Headgate, or else the client; if nobody may, the request goes to a node that says where it belongs."""
    set_users(cluster, headgate="+command", worker="+command")
    headgate = make_headgate(cluster.url(), upstream_user="headgate", upstream_password="secret")
    headgate.await_log("3 of them masters with slots")
    keys = [key for key, *_ in keys_of(cluster)]
    with headgate.connect() as client:
        assert client("AUTH", "worker", "secret") == OK
        assert [client("KEYED.FOUND", "KEY", key) for key in keys] == [3] * 3
        set_users(cluster, headgate=headgates, worker=clients)
        for number in range(1, 4):
            assert [client("KEYED.FOUND", "x" * number, "KEY", key) for key in keys] == [4] * 3
    assert (redirects(headgate) == 0) == ("+command" in (headgates, clients))
    logged = [entry for node in cluster.masters for entry in node.ask("ACL", "LOG")]
    counts = [entry[entry.index(b"count") + 1] for entry in logged if b"command|getkeys" in entry]
    assert sum(counts) == (headgates == "-command") + (headgates == clients == "-command"), logged


def test_a_lone_redis_is_not_asked(make_headgate, make_redis, pool):
    redis = make_redis("--loadmodule", str(MODULE))
    headgate = make_headgate(redis, pool=pool)
    with headgate.connect() as client:
        assert [client("KEYED.INCR", "KEY", key) for key in ("a", "b")] == [1, 1]
    with redis.connect() as direct:
        told = direct("INFO", "commandstats")
    assert b"cmdstat_keyed.incr:calls=2" in told and b"command|getkeys" not in told
    assert asked(headgate) == 0
