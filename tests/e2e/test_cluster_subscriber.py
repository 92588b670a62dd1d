"""A subscriber of RESP3 before a cluster goes on using keys of all slots, and has shard channels at several nodes."""

import threading

import pytest

from e2e.test_cluster_ids import Told
from e2e.test_cluster_pubsub import assert_hears, node_of
from harness.admin import text
from harness.cluster import SLOTS, Cluster, key_in, slot_of
from harness.fake_redis import FakeRedis
from harness.resp import OK, Error, Push, encode, wait_for

REPLICAS = 1


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    return make_headgate(cluster.url(), pool=pool)


def connect(headgate):
    client = headgate.connect()
    client("HELLO", 3)
    return client


def one_at_each(cluster, prefix="c"):
    """A key (or a channel) of each master."""
    return [key_in(cluster.slots_of(node), prefix) for node in cluster.current_masters()]


def confirm(client, *command):
    client.request(*command)
    return [client.read() for _ in command[1:]]


def next_reply(client, pushes=None):
    """The next that is no push."""
    while isinstance(reply := client.read(), Push):
        if pushes is not None:
            pushes.append(reply)
    return reply


def assert_keys_work(cluster, client):
    for number, key in enumerate(one_at_each(cluster, "key")):
        assert client("SET", key, number) == OK
        assert client("GET", key) == b"%d" % number


SUBSCRIBE = (("SUBSCRIBE", "news"), ("PSUBSCRIBE", "n*"), ("SSUBSCRIBE", "{shard}1"))


def test_a_subscriber_uses_keys_of_all_nodes(cluster, headgate):
    for command in SUBSCRIBE:
        client = connect(headgate)
        assert confirm(client, *command) == [[command[0].lower().encode(), command[1].encode(), 1]]
        assert_keys_work(cluster, client)
        assert client("PING") == b"PONG"
        for key in one_at_each(cluster, "key"):
            assert client("MULTI") == OK
            assert client("GET", key) == b"QUEUED"
            assert len(client("EXEC")) == 1
            assert client("WATCH", key) == OK
            assert client("UNWATCH") == OK
            assert client("BLPOP", "{" + key + "}none", "0.01") is not OK
        assert len(client.pipeline([("GET", key) for key in one_at_each(cluster, "key") * 50])) == 150
        assert confirm(client, command[0].replace("SUB", "UNSUB"), command[1])[0][2] == 0
        assert_keys_work(cluster, client)


def test_reset_quit_and_hello(cluster, headgate):
    client, publisher = connect(headgate), headgate.connect()
    channels = one_at_each(cluster)
    for channel in channels:
        confirm(client, "SSUBSCRIBE", channel)
    confirm(client, "SUBSCRIBE", "news")
    assert isinstance(client("HELLO", 2), Error)
    assert isinstance(client("SELECT", 1), Error)
    assert client("HELLO", 3) is not None
    assert client("MULTI") == OK
    assert isinstance(client("SUBSCRIBE", "more"), Error)
    assert client("EXEC").startswith(b"EXECABORT")
    assert client("RESET") == b"RESET"
    wait_for(lambda: publisher("PUBLISH", "news", "x") == 0, what="the end of the subscription")
    for channel in channels:
        wait_for(lambda channel=channel: publisher("SPUBLISH", channel, "x") == 0, what="the end at each node")
    assert client("PING") == b"PONG"
    client("HELLO", 3)
    assert confirm(client, "SUBSCRIBE", "news") == [[b"subscribe", b"news", 1]]
    client.request("QUIT")
    assert next_reply(client) == OK
    client.assert_closed()
    wait_for(lambda: publisher("PUBLISH", "news", "x") == 0, what="the end of the subscription")


def test_another_user_keeps_the_subscriptions(cluster, headgate):
    for node in cluster.alive():
        node.tell("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&new*", "+@all")
    client, publisher = connect(headgate), headgate.connect()
    confirm(client, "SUBSCRIBE", "old")
    assert client("AUTH", "reader", "secret") == OK
    assert publisher("PUBLISH", "old", "x") is not None
    assert client.read() == [b"message", b"old", b"x"]
    assert client("SUBSCRIBE", "old2").startswith(b"NOPERM")
    assert confirm(client, "SUBSCRIBE", "new") == [[b"subscribe", b"new", 2]]
    assert client("ACL", "WHOAMI") == b"reader"
    assert client("SUBSCRIBE").startswith(b"ERR wrong number")
    assert_keys_work(cluster, client)


def skip(publisher, client, channel):
    """What was sent to the shard channel before has come by then, or never will."""
    wait_for(lambda: publisher("SPUBLISH", channel, "the last one") == 1, 60, "a subscriber")
    while client.read()[1:] != [channel.encode(), b"the last one"]:
        pass


def test_the_nodes_of_subscriptions_die(make_headgate, pool):
    with Cluster(masters=3, replicas=1) as cluster:
        headgate = make_headgate(cluster.url(), pool=pool, upstream_wait="60s")
        client, publisher = connect(headgate), headgate.connect()
        channels = one_at_each(cluster)
        for channel in channels:
            confirm(client, "SSUBSCRIBE", channel)
        confirm(client, "SUBSCRIBE", "news")
        confirm(client, "PSUBSCRIBE", "sport.*")
        lost = node_of(cluster, "news")
        others = [channel for channel in channels if cluster.owner(slot_of(channel)) is not lost]
        lost.kill()
        for channel in others:
            assert_hears(publisher, client, channel, 3, "SPUBLISH", b"smessage")
        successor = cluster.await_failover(lost)
        for channel in channels:
            owner = cluster.owner(slot_of(channel), successor)
            wait_for(lambda: owner.ask("PUBSUB", "SHARDNUMSUB", channel)[1] == 1, 60, "a subscriber")
            skip(publisher, client, channel)
        assert node_of(cluster, "news").ask("PUBLISH", "news", "back") == 1
        assert client.read() == [b"message", b"news", b"back"]
        assert_keys_work(cluster, client)
        assert confirm(client, "SUBSCRIBE", "more") == [[b"subscribe", b"more", 3]]
        assert confirm(client, "SSUBSCRIBE", "{x}1")[0][2] == 4


def test_a_slot_that_nobody_has(make_headgate):
    """It is waited for, and not for ever."""
    with Cluster(masters=3, replicas=0) as cluster:
        headgate = make_headgate(cluster.url())
        client = connect(headgate)
        for channel in one_at_each(cluster):
            confirm(client, "SSUBSCRIBE", channel)
        with headgate.admin() as admin:
            assert admin("CONFIG", "SET", "upstream_wait", "400ms") == OK
        cluster.current_masters()[1].kill()
        client.assert_closed()
        assert headgate.connect()("PING") == b"PONG"


def test_who_does_not_read_is_bounded(cluster, make_headgate):
    headgate = make_headgate(cluster.url(), client_output_limit="64mb")
    client, publisher = connect(headgate), headgate.connect()
    node = cluster.current_masters()[0]
    confirm(client, "SUBSCRIBE", "news")
    keys = one_at_each(cluster, "key")
    for key in keys:
        client("SET", key, "x" * 1_000_000)
    for key in keys:
        client.request("GET", key)
    connection = node.connect()
    for _ in range(3):
        for number in range(1000):
            connection.request("PUBLISH", "news", str(number) + "x" * 10_000)
        connection.read_many(1000)
    with headgate.admin() as admin:
        report = text(admin("CLIENTS"))
    obuf = max(int(part[5:]) for part in report.split() if part.startswith("obuf="))
    assert obuf < 8_000_000
    pushes = []
    for _ in keys:
        assert len(next_reply(client, pushes)) == 1_000_000
    while len(pushes) < 3000:
        pushes.append(client.read())
    assert [int(push[2].split(b"x")[0]) for push in pushes] == list(range(1000)) * 3
    assert publisher("PING") == b"PONG"


def test_a_subscription_that_comes_back_ends_no_other_wait(fake, make_headgate):
    """A node that hangs has got as much as it may, and is waited for, when the lane of a shard channel is there again."""
    other = FakeRedis()
    Told(fake, other)
    client = connect(make_headgate(f"cluster://{fake.url}", upstream_wait="60s", threads=1))
    key, channel = key_in(range(100)), key_in(range(SLOTS - 100, SLOTS))
    confirmation = b">3\r\n$10\r\nssubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(channel), channel.encode())
    client.request("SSUBSCRIBE", channel)
    subscribe = other.expect("SSUBSCRIBE", channel)
    subscribe.reply(confirmation)
    assert client.read() == [b"ssubscribe", channel.encode(), 1]
    sender = threading.Thread(target=client.send, args=(encode("SET", key, bytes(1 << 20)) * 40,))
    sender.start()
    wait_for(lambda: fake.pending.qsize() >= 16, what="the 16 MiB after which a node is sent no more until it answers")
    for _ in range(3):
        subscribe.lane.close()
        subscribe = other.expect("SSUBSCRIBE", channel)
        subscribe.reply(confirmation)
    for _ in range(40):
        fake.next().reply(b"+OK\r\n")
    assert client.read_many(40) == [OK] * 40
    sender.join()
    other.close()
