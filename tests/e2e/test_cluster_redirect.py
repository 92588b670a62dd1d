"""Redirects as a node writes them that the test plays: in pieces, behind other replies, and to where nobody is."""

import socket

import pytest

from harness.admin import stats
from harness.cluster import SLOTS, slot_of
from harness.fake_redis import FakeRedis
from harness.resp import OK, Error, encode, wait_for


def tell_of(fake, *ports):
    """The fake has all slots, and the others none, as the map says; it gives no ids, as before Redis 4.0."""
    nodes = [f"*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n" for port in (fake.port, *ports)]
    slots = f"*1\r\n*{2 + len(nodes)}\r\n:0\r\n:{SLOTS - 1}\r\n{''.join(nodes)}".encode()
    fake.answers["CLUSTER"] = lambda _lane, arguments: slots if arguments[1] == b"SLOTS" else b"$0\r\n\r\n"


@pytest.fixture
def headgate(fake, make_headgate, redis):
    """Before a cluster of one node that has slots."""
    tell_of(fake, redis.port)
    return make_headgate(f"cluster://{fake.url}")


def next_of(fake, name):
    """The next request of that name; what Headgate asks of the cluster itself is refused."""
    while True:
        command = fake.next()
        if command.arguments[0].upper() == name:
            return command
        command.reply(b"-ERR unknown command 'CLUSTER'\r\n")


def test_a_request_is_not_sent_behind_one_that_was_executed(fake, headgate, redis):
    """The second SET was executed though the first was redirected: then the first must not be executed any more."""
    client = headgate.connect()
    client.send(encode("SET", "a", "first") + encode("SET", "a", "second") + encode("SET", "b", "other"))
    moved = f"MOVED {slot_of('a')} {redis.host}:{redis.port}".encode()
    next_of(fake, b"SET").reply(b"-" + moved + b"\r\n")
    next_of(fake, b"SET").reply(b"+OK\r\n")
    next_of(fake, b"SET").reply(b"+OK\r\n")
    assert [client.read() for _ in range(3)] == [Error(moved), OK, OK]
    assert redis.connect()("GET", "a") is None


def test_what_follows_a_transaction_that_was_refused_is_followed(fake, make_headgate, redis, pool):
    tell_of(fake, redis.port)
    there = f"{slot_of('a')} {redis.host}:{redis.port}"
    for error in ("MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN", "EXECABORT"):
        client = make_headgate(f"cluster://{fake.url}", pool=pool).connect()
        client.send(encode("MULTI") + encode("SET", "a", 1) + encode("EXEC"))
        next_of(fake, b"MULTI").reply(b"+OK\r\n")
        next_of(fake, b"SET").reply(b"+QUEUED\r\n")
        next_of(fake, b"EXEC").reply(f"-{error} {there}\r\n".encode())
        assert client.read_many(3) == [OK, b"QUEUED", Error(f"{error} {there}".encode())]
        client.request("SET", "a", 2)
        next_of(fake, b"SET").reply(f"-MOVED {there}\r\n".encode())
        assert client.read() == OK


def test_a_redirect_to_headgate_itself_is_no_circle(fake, make_headgate):
    """Though the cluster says that it is a node: then it is waited for that to change."""
    tell_of(fake)
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="500ms")
    tell_of(fake, headgate.address[1])
    client = headgate.connect()
    client.request("SET", "a", 1)
    moved = f"MOVED {slot_of('a')} {headgate.address[0]}:{headgate.address[1]}".encode()
    next_of(fake, b"SET").reply(b"-" + moved + b"\r\n")
    assert client.read() == Error(moved)
    assert fake.pending.qsize() == 0


def test_nothing_overtakes_what_is_held_on_a_lane_of_its_own(fake, make_headgate):
    """What the client sends while a request waits to be sent again waits behind it."""
    tell_of(fake)
    headgate = make_headgate(f"cluster://{fake.url}", pool="session")
    client = headgate.connect()
    for number in range(20):
        held = int(stats(headgate)["redirects_total"])
        client.request("SET", "a", f"first {number}")
        next_of(fake, b"SET").reply(b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
        wait_for(lambda: int(stats(headgate)["redirects_total"]) > held, what="a request that is held")
        client.request("SET", "a", f"second {number}")
        again = next_of(fake, b"SET")
        assert again.arguments[2] == f"first {number}".encode()
        again.reply(b"+OK\r\n")
        next_of(fake, b"SET").reply(b"+OK\r\n")
        assert client.read_many(2) == [OK, OK]


def test_a_pipeline_behind_what_is_not_answered_waits_at_the_client(redis, make_headgate):
    """What was sent is kept until it is answered: so it must not be everything."""
    headgate = make_headgate(f"cluster://{redis.url}", upstream_wait="500ms")
    with headgate.connect() as client:
        replies = client.pipeline([("BLPOP", "list", 1), *[("SET", "a", bytes(1 << 20))] * 40])
        assert len(replies) == 41 and replies[1:] == [OK] * 40
    with headgate.connect() as client:
        client.request("BLPOP", "list", 0)
        client.socket.settimeout(2)
        with pytest.raises(TimeoutError):
            for _ in range(200):
                client.request("SET", "a", bytes(1 << 20))
    assert headgate.connect()("SET", "a", 1) == OK


def slots_of(*fakes):
    """CLUSTER SLOTS of a cluster of these, which have the same number of slots each."""
    bounds = [SLOTS * number // len(fakes) for number in range(len(fakes) + 1)]
    entries = [
        f"*3\r\n:{first}\r\n:{end - 1}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{fake.port}\r\n$40\r\n{number:040d}\r\n"
        for number, (fake, first, end) in enumerate(zip(fakes, bounds, bounds[1:]))
    ]
    return f"*{len(fakes)}\r\n{''.join(entries)}".encode()


def test_a_part_without_keys_is_for_no_other_node(fake, make_headgate):
    """What a node has not done, because it loads its data, no other node does in its place."""
    other = FakeRedis()
    slots = slots_of(fake, other)
    for each in (fake, other):
        each.answers["CLUSTER"] = lambda _lane, arguments: slots if arguments[1] == b"SLOTS" else b"$0\r\n\r\n"
    client = make_headgate(f"cluster://{fake.url}").connect()
    client.request("FLUSHALL")
    next_of(fake, b"FLUSHALL").reply(b"+OK\r\n")
    next_of(other, b"FLUSHALL").reply(b"-LOADING Redis is loading the dataset in memory\r\n")
    assert client.read() == Error(b"LOADING Redis is loading the dataset in memory")
    other.close()


def test_what_several_nodes_say_does_not_come_within_a_message(fake, make_headgate):
    """It comes by other lanes than the message, which goes out when it is whole."""
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="500ms", lanes=1)
    client = headgate.connect()
    client.request("HELLO", 3)
    client.read()
    client.request("SUBSCRIBE", "news")
    subscribe = next_of(fake, b"SUBSCRIBE")
    subscribe.reply(b">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
    assert client.read() == [b"subscribe", b"news", 1]
    message = b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n"
    subscribe.lane.send(message[:-7])
    client.request("DBSIZE")
    dbsize = next_of(fake, b"DBSIZE")
    dbsize.reply(b":7\r\n")
    with headgate.connect() as other:
        other("HELLO", 3)
        other.request("GET", "a")
        get = next_of(fake, b"GET")
        assert get.lane is dbsize.lane
        get.reply(b"+seen\r\n")
        assert other.read() == b"seen"
    assert client.read() == 7
    client.request("GET", "b")
    get = next_of(fake, b"GET")
    get.lane.send(b"$6\r\nval")
    assert client.read_exactly(7) == b"$6\r\nval"
    subscribe.lane.send(message[-7:] + message)
    client.assert_silent()
    get.lane.send(b"ues\r\n")
    assert client.read_exactly(5 + 2 * len(message)) == b"ues\r\n" + 2 * message


def test_lanes_of_parts_that_were_not_sent_are_closed(fake, make_headgate):
    other = FakeRedis()
    slots = slots_of(fake, other)
    fake.answers["CLUSTER"] = lambda _lane, arguments: slots if arguments[1] == b"SLOTS" else b"$0\r\n\r\n"
    other.close()
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="500ms")

    def lanes():
        with headgate.admin() as admin:
            return admin("LANES").decode().count("use=exclusive state=backoff")

    client = headgate.connect()
    for _ in range(4):
        client.request("FUNCTION", "LOAD", "#!lua name=one\n")
        next_of(fake, b"FUNCTION").reply(b"$3\r\none\r\n")
        assert client.read().startswith(b"ERR headgate: no connection to Redis")
    wait_for(lambda: lanes() == 0, what="lanes that are closed")


@pytest.mark.parametrize("error", (b"-TRYAGAIN Multiple keys request during rehashing of slot", b"-LOADING Redis is loading"))
def test_who_has_closed_its_writing_half_is_answered(fake, make_headgate, pool, error):
    """Redis closes the lane, whose stream was ended behind the request: it is sent again on another."""
    slots = slots_of(fake)
    fake.answers["CLUSTER"] = lambda _lane, arguments: slots if arguments[1] == b"SLOTS" else b"$0\r\n\r\n"
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="60s", pool=pool)
    answers = [error + b"\r\n"] * 2 + [b"*2\r\n$4\r\nlist\r\n$1\r\nv\r\n"]
    lanes = []

    def answer(lane, _):
        """When the end of the stream has come, too."""
        lanes.append(lane)
        assert lane.socket.recv(1, socket.MSG_PEEK) == b""
        return answers.pop(0)

    fake.answers["BLPOP"] = answer
    client = headgate.connect()
    client.request("BLPOP", "list", 0)
    client.shutdown_write()
    assert client.read() == [b"list", b"v"]
    client.assert_closed()
    assert len(set(lanes)) == 3


def test_who_is_gone_takes_nothing_out_of_a_list(fake, make_headgate):
    """What Redis keeps behind a request that is held is ended, as that is sent again only after it."""
    slots = slots_of(fake)
    fake.answers["CLUSTER"] = lambda _lane, arguments: slots if arguments[1] == b"SLOTS" else b"$0\r\n\r\n"
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="60s", pool="session")
    client = headgate.connect()
    client.send(encode("GET", "a") + encode("BLPOP", "list", 0))
    get, blpop = next_of(fake, b"GET"), next_of(fake, b"BLPOP")
    assert get.lane is blpop.lane
    get.reply(b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
    wait_for(lambda: int(stats(headgate)["redirects_total"]) == 1, what="a request that is held")
    client.request("GET", "b")
    client.shutdown_write()
    client.assert_closed()  # as the node has closed the lane, at the end of its stream
