"""Reading from replicas that die, hang, lose their master or are behind; and while masters change."""

import signal
import threading

import pytest

from harness.admin import stats
from harness.fake_redis import FakeRedis
from harness.fake_sentinel import FakeSentinel, url_of
from harness.reads import Calls, await_fit, fit, nodes
from harness.resp import OK, Closed, Error, bulk, encode, wait_for
from harness.sentinel import Group

FAST = {"sentinel_check": "100ms", "sentinel_timeout": "20s", "read_own_writes": "0", "upstream_wait": "60s"}


@pytest.fixture
def group():
    made = Group(down_after=60_000)
    yield made
    made.discard()


def replicas(group):
    return [server for server in group.servers if server is not group.servers[0]]


def start(group, make_headgate, reads, **options):
    headgate = make_headgate(group.url, reads=reads, **{**FAST, **options})
    await_fit(headgate, replicas(group))
    return headgate


def written(headgate, group, key, value):
    """At all servers."""
    with headgate.connect() as client:
        assert client("SET", key, value) == OK
        assert client("WAIT", 2, 30_000) == 2


def moved(headgate):
    return int(stats(headgate, "topology")["reads_moved_total"])


class Readers:
    """Clients that read without a pause. None of them is closed, or answered by anything but the value."""

    def __init__(self, headgate, key, value, count=4, pipeline=5):
        self.wanted = [value] * pipeline
        self.request = encode("GET", key) * pipeline
        self.ends = threading.Event()
        self.faults = []
        self.rounds = [0] * count
        self.threads = [
            threading.Thread(target=self._run, args=(headgate.connect(), place), daemon=True) for place in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def _run(self, client, place):
        client.socket.settimeout(60)
        try:
            while not self.ends.is_set():
                client.send(self.request)
                replies = client.read_many(len(self.wanted))
                if replies != self.wanted:
                    self.faults.append(replies)
                    return
                self.rounds[place] += 1
        except (Closed, OSError, TimeoutError) as error:
            self.faults.append(repr(error))

    def await_rounds(self, number=20):
        before = list(self.rounds)

        def all_went_on():
            return self.faults or all(now >= then + number for now, then in zip(self.rounds, before))

        wait_for(all_went_on, 90, "all readers to go on")
        assert self.faults == []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join(90)
        assert self.faults == []


# ---- replicas that go ----


def test_nobody_notices_that_a_replica_dies(group, make_headgate):
    headgate = start(group, make_headgate, "prefer-replica", threads=4)
    written(headgate, group, "k", "v")
    first, second = replicas(group)
    with Readers(headgate, "k", b"v", count=8) as readers:
        readers.await_rounds()
        first.kill()
        wait_for(lambda: fit(headgate) == {second.port}, 60, "one to be left")
        readers.await_rounds()
        second.kill()
        wait_for(lambda: fit(headgate) == set(), 60, "none to be left")
        reading = Calls(group, "get")
        readers.await_rounds()
        assert reading.of(group.servers[0]) > 0, "then the master is read from"
        first.start()
        with group.direct(first) as direct:
            direct("REPLICAOF", group.servers[0].host, group.servers[0].port)
        await_fit(headgate, [first])
        reading = Calls(group, "get")
        readers.await_rounds()
        wait_for(lambda: reading.of(first) > 0, 30, "the replica to be read from again")


def test_what_a_replica_that_hangs_has_not_answered_is_answered_by_another(group, make_headgate):
    headgate = start(group, make_headgate, "replica", sentinel_timeout="1s")
    written(headgate, group, "k", "v")
    clients = [headgate.connect() for _ in range(6)]
    for client in clients:
        assert client("GET", "k") == b"v"
    hanging, other = replicas(group)
    hanging.signal(signal.SIGSTOP)
    for client in clients:
        client.socket.settimeout(60)
        client.send(encode("GET", "k") * 3)
    for client in clients:
        assert client.read_many(3) == [b"v"] * 3
    assert moved(headgate) > 0
    assert fit(headgate) == {other.port}
    hanging.signal(signal.SIGCONT)
    await_fit(headgate, replicas(group))


# ---- replicas that are not fit ----


def test_a_user_whom_no_replica_knows_is_told_so_where_no_master_may_be_read(group, make_headgate):
    """The replicas are fit for others meanwhile: what waits is not sent round in a circle."""
    headgate = start(group, make_headgate, "replica", upstream_wait="1s")
    written(headgate, group, "k", "v")
    with group.direct(group.servers[0]) as direct:
        assert direct("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all") == OK
    clients = [headgate.connect() for _ in range(3)]
    for client in clients:
        client.socket.settimeout(60)
        assert client("AUTH", "app", "secret") == OK
    for _ in range(2):
        for client in clients:
            client.send(encode("GET", "k") * 50)
        assert headgate.connect()("GET", "k") == b"v", "others go on"
        for client in clients:
            replies = client.read_many(50)
            assert all(isinstance(reply, Error) and b"no replica" in reply for reply in replies), replies
    with group.direct(group.servers[0]) as direct:
        assert direct("GET", "k") == b"v"


def fakes(offset):
    """A master and a replica as they may be: what they say of offsets is in the dictionary that is returned."""
    offsets = {"master": offset, "replica": offset, "state": "connected"}
    master, replica = FakeRedis(), FakeRedis()
    master.host, master.tls_port = "127.0.0.1", master.port

    def number(name):
        return str(offsets[name]).encode()

    def of_master(lane, arguments):
        listed = b"*3\r\n" + bulk("127.0.0.1") + bulk(str(replica.port)) + bulk(number("replica"))
        return b"*3\r\n" + bulk("master") + b":" + number("master") + b"\r\n*1\r\n" + listed

    def of_replica(lane, arguments):
        place = bulk("127.0.0.1") + b":%d\r\n" % master.port
        return b"*5\r\n" + bulk("slave") + place + bulk(offsets["state"]) + b":" + number("replica") + b"\r\n"

    master.answers["ROLE"] = of_master
    replica.answers["ROLE"] = of_replica
    return master, replica, offsets


def test_one_that_is_too_far_behind_is_not_read_from(make_headgate):
    master, replica, offsets = fakes(1000)
    sentinel = FakeSentinel(master)
    headgate = make_headgate(url_of([sentinel]), reads="prefer-replica", **{**FAST, "max_lag": "2s"})
    wait_for(lambda: fit(headgate) == {replica.port}, 30, "it to be fit")
    for state in ("connect", "connecting", "sync"):
        offsets["state"] = state
        wait_for(lambda: nodes(headgate, "replica")[0]["state"] == "unlinked", 30, "it to have no master")
    offsets["state"] = "connected"
    wait_for(lambda: fit(headgate) == {replica.port}, 30, "it to be fit")
    # The master writes, and the replica does not come along.
    offsets["master"] += 1
    wait_for(lambda: nodes(headgate, "replica")[0]["state"] == "behind", 30, "it to be behind")
    assert int(nodes(headgate, "replica")[0]["lag"]) >= 2000
    offsets["replica"] += 1
    wait_for(lambda: fit(headgate) == {replica.port}, 30, "it to have caught up")
    assert int(nodes(headgate, "replica")[0]["lag"]) <= 2000
    for fake in (master, replica, sentinel):
        fake.close()


def test_the_rest_of_a_reply_that_has_begun_is_not_made_up(make_headgate):
    """A client that has a part of a reply is closed when the replica goes."""
    master, replica, _ = fakes(1000)
    sentinel = FakeSentinel(master)
    headgate = make_headgate(url_of([sentinel]), reads="replica", **FAST)
    wait_for(lambda: fit(headgate) == {replica.port}, 30, "it to be fit")
    client = headgate.connect()
    client.request("GET", "large")
    asked = replica.expect("GET", "large")
    asked.reply(b"$%d\r\n" % (64 << 20) + bytes(4 << 20))
    wait_for(lambda: client.socket.recv(1, 2) == b"$", 30, "the reply to begin")
    asked.lane.close()
    with pytest.raises((Closed, OSError)):
        client.read()
    for fake in (master, replica, sentinel):
        fake.close()
