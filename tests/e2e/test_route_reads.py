"""[route:NAME] reads = …: rules say which requests replicas answer, and which the master, whatever the server says."""

import pytest

from harness.admin import await_end_seen
from harness.reads import Calls, await_fit
from harness.resp import OK, Error
from harness.sentinel import Group


def replicas(group):
    return [server for server in group.servers if server is not group.master()]


def route(name, **options):
    return "\n".join([f"[route:{name}]", *(f"{option} = {value}" for option, value in options.items())]) + "\n"


@pytest.fixture
def make(group, make_headgate):
    """A Headgate with those rules, all replicas of which are fit."""

    def start(rules, reads="master", **options):
        options = {"read_own_writes": "0", "sentinel_timeout": "20s", **options}
        headgate = make_headgate(group.url, start=False, reads=reads, **options)
        headgate.write_rules(rules)
        headgate.start()
        await_fit(headgate, replicas(group))
        return headgate

    return start


def who_reads(group, client, *request, times=6):
    """ "master" or "replica": who has answered so many of that request."""
    reading = Calls(group, request[0])
    for _ in range(times):
        assert not isinstance(client(*request), Error)
    of_master = reading.of(group.master())
    of_replicas = sum(reading.of(server) for server in replicas(group))
    assert sorted((of_master, of_replicas)) == [0, times]
    return "master" if of_master else "replica"


def test_keys_are_routed_to_replicas(group, make):
    headgate = make(route("cache", keys="cache:*", reads="prefer-replica"), threads=4)
    for client in [headgate.connect() for _ in range(4)]:
        assert who_reads(group, client, "GET", "cache:1") == "replica"
        assert who_reads(group, client, "GET", "account:1") == "master"
        assert who_reads(group, client, "MGET", "cache:1", "cache:2") == "replica"
        assert who_reads(group, client, "MGET", "cache:1", "account:1") == "master", "one is not the rule's"
        assert who_reads(group, client, "DBSIZE") == "master"


def test_writes_transactions_and_own_writes_are_the_masters(group, make):
    headgate = make(route("all", reads="prefer-replica"), read_own_writes="1h")
    with headgate.connect() as client:
        assert who_reads(group, client, "GET", "k") == "replica"
        reading = Calls(group, "get")
        assert client("MULTI") == OK and client("GET", "k") == b"QUEUED"
        client("EXEC")
        assert reading.of(group.master()) == 1
    with headgate.connect() as client:
        for number in range(20):
            assert client("SET", "own", number) == OK
            assert client("GET", "own") == str(number).encode()
        assert who_reads(group, client, "GET", "k") == "master", "it wrote"


def test_a_pipeline_of_both_kinds_keeps_its_order(group, make):
    rules = route("cache", keys="cache:*", reads="prefer-replica") + route("strict", keys="strict:*", reads="replica")
    headgate = make(rules)
    with headgate.connect() as client:
        for number in range(40):
            said, wanted = [], []
            for key in ("cache:a", "strict:b", "c"):
                said += [("SET", key, number), ("STRLEN", "strict:none"), ("GET", key), ("STRLEN", "cache:none")]
                wanted += [OK, 0]
            replies = client.pipeline(said)
            assert replies[::4] == [OK] * 3 and replies[1::2] == [0] * 6
            assert replies[10] == str(number).encode(), "what is the master's is always up to date"


def test_who_may_only_read_replicas_waits_for_one_and_others_do_not(make_headgate):
    """Both kinds in one pipeline, with no replica left: nothing of the strict kind is answered by the master."""
    own = Group(down_after=60_000)
    try:
        own.await_agreement()
        rules = route("cache", keys="cache:*", reads="prefer-replica") + route("strict", keys="strict:*", reads="replica")
        headgate = make_headgate(
            own.url, start=False, read_own_writes="0", upstream_wait="200s", sentinel_check="100ms", sentinel_timeout="20s"
        )
        headgate.write_rules(rules)
        headgate.start()
        others = replicas(own)
        await_fit(headgate, others)
        client, strict = headgate.connect(), headgate.connect()
        strict.socket.settimeout(200)  # sentinels take their time to make replicas of them again
        assert client.pipeline([("GET", "cache:1"), ("GET", "strict:1")]) == [None, None]
        for server in others:
            server.kill()
            await_end_seen(headgate, server.port)
        assert client("GET", "cache:1") is None, "from the master"
        reading = Calls(own, "get")
        strict.request("GET", "strict:1")
        assert [client("GET", "cache:1") for _ in range(5)] == [None] * 5
        assert reading.of(own.master()) == 5
        for server in others:
            server.start()
        assert strict.read() is None
        assert reading.of(own.master()) == 5
    finally:
        own.discard()
