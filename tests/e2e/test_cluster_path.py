"""Redis Cluster behind one address: where requests go, in which order replies leave, and what a client sees of slots that
move. Each test asks the nodes themselves what has become of its keys."""

import threading

import pytest

from harness.admin import stats
from harness.cluster import SLOTS, Cluster, key_in, slot_of, tag_of
from harness.resp import NIL_ARRAY, OK, Closed, Error, encode, wait_for

CROSS_SLOT = "CROSSSLOT Keys in request don't hash to the same slot"


@pytest.fixture(autouse=True)
def emptied(cluster):
    for node in cluster.current_masters():
        node.ask("FLUSHALL")


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    return make_headgate(cluster.url(), pool=pool)


@pytest.fixture
def client(headgate):
    return headgate.connect()


def text(error):
    assert isinstance(error, Error), error
    return error.decode()


def pipeline(client, commands):
    client.send(b"".join(encode(*command) for command in commands))
    return [client.read() for _ in commands]


def test_a_node_that_hangs_holds_back_no_replies_of_others(cluster, client):
    """What answers requests ahead of its own is put off for a moment only."""
    (first, [one]), (hung, [two]), (_, [three]) = cluster.keys_at(1).items()
    for key in (one, two, three):
        assert client("SET", key, key) == OK
    hung.pause()
    try:
        client.send(encode("GET", one) + encode("STRLEN", one) + encode("GET", two) + encode("GET", three))
        assert [client.read(), client.read()] == [one.encode(), len(one)]
    finally:
        hung.resume()
    assert [client.read(), client.read()] == [two.encode(), three.encode()]
    assert first.ask("EXISTS", one) == 1


def test_commands_that_headgate_adds_go_to_their_keys(cluster, client, headgate):
    """What is sent in their place is a script, which has its key elsewhere."""
    for keys in cluster.keys_at(3).values():
        for key in keys:
            commands = [("SET", key, "v"), ("DELIFEQ", key, "v"), ("SET", key, "w", "NX"), ("GET", key)]
            assert pipeline(client, commands) == [OK, 1, OK, b"w"]
            assert pipeline(client, [("MULTI",), ("DELIFEQ", key, "w"), ("EXEC",)]) == [OK, b"QUEUED", [1]]
    assert stats(headgate)["redirects_total"] == "0"


def test_nodes_that_send_a_request_to_each_other(cluster, client, headgate):
    """A slot that nobody wants, until the nodes agree again: an error in the end, and other slots are none the worse."""
    slot = 900
    first, second, *_ = cluster.current_masters()
    assert first is cluster.owner(slot)
    first.tell("CLUSTER", "SETSLOT", slot, "NODE", second.id)
    key, other = f"{{{tag_of(slot)}}}n", f"{{{tag_of(9999)}}}n"
    client.request("SET", key, 1)
    assert pipeline(headgate.connect(), [("SET", other, 1), ("GET", other)]) == [OK, b"1"]
    reply = client.read()
    assert reply == OK or text(reply).startswith(("MOVED ", "CLUSTERDOWN "))
    assert client("SET", other, 2) == OK
    for node in cluster.current_masters():
        node.tell("CLUSTER", "SETSLOT", slot, "NODE", first.id)
    assert wait_for(lambda: client("SET", key, 2) == OK, 30, "a slot that is served again")
    with headgate.admin() as admin:
        lanes = admin("LANES").decode().splitlines()
        assert len([line for line in lanes if "state=ready" in line]) >= 3, "those to all nodes are shown"


def test_requests_of_a_slot_on_its_way_keep_their_order(cluster, client, headgate):
    """The first is answered TRYAGAIN, as one of its keys is at either node, and the second ASK."""
    slot = 410
    here, there = (f"{{{tag_of(slot)}}}{name}" for name in ("here", "there"))
    assert client("SET", here, 0) == OK
    target = next(node for node in cluster.current_masters() if node is not cluster.owner(slot))
    source = cluster.begin_migration(slot, target)
    client.send(encode("MSET", here, 1, there, 2) + encode("SET", there, 3))
    wait_for(lambda: int(stats(headgate)["redirects_total"]) > 4, what="requests that are sent again and again")
    cluster.move_keys(slot, source, target)
    cluster.end_migration(slot, target)
    assert client.read_many(2) == [OK, OK]
    assert client("MGET", here, there) == [b"1", b"3"]


def test_thousands_of_requests_that_wait_for_the_cluster_keep_their_order(make_headgate):
    """All nodes refuse all keys for a while, as one slot has nobody. What waits is a part of one request, or many."""
    keys = [f"key:{number}" for number in range(3000)]
    with Cluster(masters=2, replicas=0) as cluster:
        headgate = make_headgate(cluster.url(), cross_slot="split", upstream_wait="60s")
        client, other = headgate.connect(), headgate.connect()
        assert client("MSET", *[word for key in keys for word in (key, key)]) == OK
        owner, neighbour = cluster.owner(0), cluster.owner(SLOTS - 1)
        for node in (owner, neighbour):
            node.tell("CLUSTER", "DELSLOTS", 0)
        for node in (owner, neighbour):
            wait_for(lambda node=node: node.cluster_info()["cluster_state"] == "fail", what="a cluster that is down")
        client.send(encode("MGET", *keys))
        other.send(b"".join(encode("GET", key) for key in keys))
        # Each of them is sent again and again.
        wait_for(lambda: int(stats(headgate)["redirects_total"]) >= 3 * len(keys), what="requests that wait")
        owner.tell("CLUSTER", "ADDSLOTS", 0)
        assert client.read() == [key.encode() for key in keys]
        assert [other.read() for _ in keys] == [key.encode() for key in keys]


def test_a_transaction_over_two_nodes_is_refused_and_spoiled(cluster, client):
    (here,), (there,), *_ = cluster.keys_at(1, "two").values()
    replies = pipeline(client, [("MULTI",), ("SET", here, 1), ("SET", there, 1), ("EXEC",), ("GET", here)])
    assert replies[:2] == [OK, b"QUEUED"]
    assert text(replies[2]) == CROSS_SLOT
    assert text(replies[3]).startswith("EXECABORT")
    assert replies[4] is None


def test_what_has_no_key_does_not_decide_where_a_transaction_is(cluster, client):
    """PUBLISH, and the keys that it is about, of whatever node."""
    for number, (key,) in enumerate(cluster.keys_at(1, "publish").values()):
        said = [("MULTI",), ("PUBLISH", "nobody", 1), ("ECHO", "x"), ("SET", key, number), ("PUBLISH", "nobody", 2)]
        replies = pipeline(client, [*said, ("EXEC",), ("GET", key)])
        assert replies == [OK, *[b"QUEUED"] * 4, [0, b"x", OK, 0], str(number).encode()]
    assert pipeline(client, [("MULTI",), ("ECHO", "x"), ("EXEC",)]) == [OK, b"QUEUED", [b"x"]]
    assert pipeline(client, [("MULTI",), ("ECHO", "x"), ("DISCARD",), ("ECHO", "y")]) == [OK, b"QUEUED", OK, b"y"]
    # What was given up is not part of the next one.
    assert pipeline(client, [("MULTI",), ("EXEC",)]) == [OK, []]
    replies = pipeline(client, [("MULTI",), ("ECHO", "x"), ("ECHO",), ("SET", key, "no"), ("EXEC",), ("GET", key)])
    assert text(replies[2]) == "ERR wrong number of arguments for 'echo' command"
    assert text(replies[4]).startswith("EXECABORT")
    assert replies[5] == str(number).encode()


def test_what_has_no_key_and_is_long(cluster, client):
    """More of it is not kept, and it is at the home node then; all of it is executed, or nothing."""
    for (key,) in cluster.keys_at(1, "long").values():
        said = [("MULTI",), *[("ECHO", "x" * 5000)] * 20, ("SET", key, 1), ("EXEC",)]
        replies = pipeline(client, said)
        assert replies[:21] == [OK, *[b"QUEUED"] * 20]
        if replies[21] == b"QUEUED":
            assert replies[22] == [*[b"x" * 5000] * 20, OK]
        else:
            assert text(replies[21]) == CROSS_SLOT and text(replies[22]).startswith("EXECABORT")


def test_a_watch_goes_along_with_its_slot(cluster, client, headgate):
    key = f"{{{tag_of(420)}}}watched"
    assert client("SET", key, 1) == OK
    cluster.move_slot(420, next(node for node in cluster.current_masters() if node is not cluster.owner(420)))
    assert pipeline(client, [("WATCH", key), ("MULTI",)]) == [OK, OK]
    assert headgate.connect()("SET", key, 2) == OK
    assert pipeline(client, [("SET", key, 3), ("EXEC",), ("GET", key)]) == [b"QUEUED", NIL_ARRAY, b"2"]


def test_a_transaction_whose_slot_moves_has_ended(cluster, client):
    key = f"{{{tag_of(430)}}}moves"
    direct = cluster.owner(430).connect()
    for each in (client, direct):
        assert pipeline(each, [("MULTI",), ("SET", key, 1)]) == [OK, b"QUEUED"]
    cluster.move_slot(430, next(node for node in cluster.current_masters() if node is not cluster.owner(430)))
    for each in (client, direct):
        assert text(each("EXEC")).startswith("MOVED 430 ")
    assert pipeline(client, [("SET", keys[0], 2) for keys in cluster.keys_at(1).values()]) == [OK] * 3
    for each in (client, direct):
        assert text(each("EXEC")) == "ERR EXEC without MULTI"


def test_a_blocked_request_goes_along_with_its_slot(cluster, client, headgate):
    key = key_in(range(600, 700), "blocked")
    source = cluster.owner(slot_of(key))
    target = next(node for node in cluster.current_masters() if node is not source)
    client.request("BLPOP", key, 0)
    wait_for(lambda: source.info("clients")["blocked_clients"] == "1", 20, "a client that is blocked")
    cluster.move_slot(slot_of(key), target)
    wait_for(lambda: target.info("clients")["blocked_clients"] == "1", 20, "the same at the other node")
    assert headgate.connect()("RPUSH", key, "x") in (0, 1)
    assert client.read() == [key.encode(), b"x"]


def test_scripts_follow_their_slot(cluster, client):
    """ASK while it is on its way, MOVED when it has gone."""
    slot = 700
    key, other = f"{{{tag_of(slot)}}}n", f"{{{tag_of(slot)}}}stays"
    count = "return redis.call('INCR', KEYS[1])"
    assert client("EVAL", count, 1, key) == 1
    source = cluster.owner(slot)
    target = next(node for node in cluster.current_masters() if node is not source)
    cluster.begin_migration(slot, target)
    try:
        assert cluster.move_keys(slot, source, target) == 1
        assert pipeline(client, [("EVAL", count, 1, key), ("INCR", key), ("EVAL", count, 1, key)]) == [2, 3, 4]
        lie = "redis.call('INCR', KEYS[1]) return redis.error_reply('ASK 700 192.0.2.1:7777')"
        assert text(client("EVAL", lie, 1, key)) == "ASK 700 192.0.2.1:7777"
        assert client("DECR", key) == 4, "it was executed once"
    finally:
        cluster.end_migration(slot, target)
    assert pipeline(client, [("EVAL", count, 1, key), ("EVAL", count, 1, key), ("EVAL", count, 1, other)]) == [5, 6, 1]
    assert target.ask("GET", key) == b"6"


class Counting:
    """Clients whose every request is checked: each key's counter is seen to grow by one with every INCR of its only
    client. A client that is closed goes on with a new connection, from what the key says then: one more at most."""

    def __init__(self, connect, clients, keys_of, may_close=False):
        self.connect, self.may_close = connect, may_close
        self.ends = threading.Event()
        self.failures, self.rounds, self.reconnects = [], [0] * clients, 0
        self.threads = [
            threading.Thread(target=self._run, args=(number, keys_of(number)), daemon=True) for number in range(clients)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures[0]

    def await_rounds(self, more):
        wanted = [count + more for count in self.rounds]
        wait_for(
            lambda: self.failures or all(count >= least for count, least in zip(self.rounds, wanted)), 60, "further rounds"
        )
        assert not self.failures, self.failures[0]

    def _run(self, number, keys):
        try:
            seen = dict.fromkeys(keys, 0)
            client = self.connect()
            while not self.ends.is_set():
                try:
                    self._count(client, keys, seen)
                    self.rounds[number] += 1
                except (Closed, OSError):
                    assert self.may_close, "a client was closed"
                    self.reconnects += 1
                    client = self._come_again(keys, seen)
        except BaseException as error:  # pylint: disable=broad-except
            self.failures.append(error)

    def _come_again(self, keys, seen):
        client = self.connect()
        for key in keys:
            wait_for(lambda: not isinstance(client("GET", key), Error), 60, "an answer")
            now = int(client("GET", key) or 0)
            assert seen[key] <= now <= seen[key] + 1, (key, seen[key], now)
            seen[key] = now
        return client

    def _count(self, client, keys, seen):
        client.send(b"".join(encode("INCR", key) + encode("GET", key) for key in keys))
        for key in keys:
            count, value = client.read(), client.read()
            if isinstance(count, Error):
                assert self.may_close, (key, seen[key], count)
                continue
            assert count == seen[key] + 1, (key, seen[key], count, value)
            seen[key] = count
            assert isinstance(value, Error) or value == str(count).encode(), (key, count, value)
