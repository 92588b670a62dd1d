"""What Redis says without being asked: SUBSCRIBE and its kin, MONITOR, CLIENT TRACKING; and CLIENT REPLY, where it
says nothing though asked."""

import pytest

from harness.resp import NIL_ARRAY, NULL, OK, PONG, QUEUED, Error, Map, Push, Status, encode, same, wait_for


def subscribers(target, channel, count, command="NUMSUB"):
    observer = target.direct()
    wait_for(lambda: observer("PUBSUB", command, channel) == [channel.encode(), count], what=f"{count} subscribers")


# ---- RESP2 ----


def test_subscribe(target):
    client, other = target.connect(), target.connect()
    assert client("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    assert other("PUBLISH", "a", "hello") == 1
    assert client.read() == [b"message", b"a", b"hello"]
    assert client("UNSUBSCRIBE", "a") == [b"unsubscribe", b"a", 0]
    assert client("ECHO", "normal again") == b"normal again"
    assert other("PUBLISH", "a", "nobody") == 0


def test_subscribe_to_several_channels(target):
    """One command, three replies."""
    client, other = target.connect(), target.connect()
    client.request("SUBSCRIBE", "a", "b", "c")
    assert client.read_many(3) == [[b"subscribe", name, index] for index, name in enumerate([b"a", b"b", b"c"], 1)]
    for name in ("c", "a", "b"):
        other("PUBLISH", name, "m")
        assert client.read() == [b"message", name.encode(), b"m"]
    client.request("UNSUBSCRIBE")
    gone = client.read_many(3)
    assert sorted(reply[1] for reply in gone) == [b"a", b"b", b"c"]
    assert [reply[2] for reply in gone] == [2, 1, 0]
    assert client("GET", "none") is None


def test_subscribing_twice_counts_once(client):
    client.request("SUBSCRIBE", "a", "a", "a")
    assert client.read_many(3) == [[b"subscribe", b"a", 1]] * 3
    assert client("UNSUBSCRIBE", "a") == [b"unsubscribe", b"a", 0]
    assert client("ECHO", "x") == b"x"


def test_unsubscribe_from_nothing(client):
    assert client("UNSUBSCRIBE") == [b"unsubscribe", None, 0]
    assert client("PUNSUBSCRIBE") == [b"punsubscribe", None, 0]
    assert client("UNSUBSCRIBE", "x") == [b"unsubscribe", b"x", 0]
    client.request("UNSUBSCRIBE", "x", "y")
    assert client.read_many(2) == [[b"unsubscribe", b"x", 0], [b"unsubscribe", b"y", 0]]
    assert client("ECHO", "x") == b"x"


def test_patterns(target):
    client, other = target.connect(), target.connect()
    client.request("PSUBSCRIBE", "n.*", "?")
    assert client.read_many(2) == [[b"psubscribe", b"n.*", 1], [b"psubscribe", b"?", 2]]
    assert client("SUBSCRIBE", "n.1") == [b"subscribe", b"n.1", 3]
    assert other("PUBLISH", "n.1", "m") == 2
    assert client.read_many(2) == [[b"message", b"n.1", b"m"], [b"pmessage", b"n.*", b"n.1", b"m"]]
    client.request("PUNSUBSCRIBE")
    assert sorted(reply[1] for reply in client.read_many(2)) == [b"?", b"n.*"]
    assert client("UNSUBSCRIBE", "n.1") == [b"unsubscribe", b"n.1", 0]
    assert client("ECHO", "x") == b"x"


def test_shard_channels(target):
    client, other = target.connect(), target.connect()
    client.request("SSUBSCRIBE", "a", "b")
    assert client.read_many(2) == [[b"ssubscribe", b"a", 1], [b"ssubscribe", b"b", 2]]
    assert other("SPUBLISH", "b", "m") == 1
    assert client.read() == [b"smessage", b"b", b"m"]
    client.request("SUNSUBSCRIBE")
    assert sorted(reply[2] for reply in client.read_many(2)) == [0, 1]
    assert client("ECHO", "x") == b"x"


def test_what_a_subscriber_may_not_do_in_resp2(target):
    client = target.connect()
    client("SUBSCRIBE", "a")
    assert client("GET", "k") == Error(
        b"ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET"
        b" are allowed in this context"
    )
    assert client("PING") == [b"pong", b""]
    assert client("PING", "x") == [b"pong", b"x"]
    assert client("UNSUBSCRIBE") == [b"unsubscribe", b"a", 0]
    assert client("PING") == PONG


def test_reset_ends_a_subscription(target):
    client, other = target.connect(), target.connect()
    client("SUBSCRIBE", "a")
    client("PSUBSCRIBE", "b*")
    assert client("RESET") == Status(b"RESET")
    assert client("ECHO", "x") == b"x"
    assert other("PUBLISH", "a", "m") == 0


def test_quit_while_subscribed(client):
    client("SUBSCRIBE", "a")
    assert client("QUIT") == OK
    client.assert_closed()


def test_quit_behind_a_subscription_whose_reply_was_to_be_skipped(target):
    """Redis confirms it all the same, as it is pushed."""
    client = target.connect()
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("SUBSCRIBE", "a", "b") + encode("QUIT"))
    confirmations = b"".join(b"*3\r\n$9\r\nsubscribe\r\n$1\r\n%s\r\n:%d\r\n" % pair for pair in ((b"a", 1), (b"b", 2)))
    assert client.read_to_end() == confirmations + b"+OK\r\n"


def test_everybody_gets_each_message_once(target):
    clients = [target.connect() for _ in range(30)]
    for client in clients:
        assert client("SUBSCRIBE", "all") == [b"subscribe", b"all", 1]
    other = target.connect()
    for number in range(20):
        assert other("PUBLISH", "all", number) == 30
    for client in clients:
        assert client.read_many(20) == [[b"message", b"all", b"%d" % number] for number in range(20)]
        client.assert_silent(0.01)


def test_messages_reach_nobody_who_has_left(target):
    """A connection to Redis that carried a subscription carries it for nobody else."""
    other = target.connect()
    for _ in range(10):
        gone = target.connect()
        gone("SUBSCRIBE", "a")
        gone.close()
    subscribers(target, "a", 0)
    clients = [target.connect() for _ in range(10)]
    for client in clients:
        client("MULTI")
    other("PUBLISH", "a", "for nobody")
    for client in clients:
        assert client("EXEC") == []
        client.assert_silent(0.01)


def test_subscribe_in_a_pipeline(target):
    client = target.connect()
    client.send(
        encode("SET", "k", "v") + encode("SUBSCRIBE", "a", "b") + encode("UNSUBSCRIBE") + encode("GET", "k")
        + encode("SUBSCRIBE", "c") + encode("UNSUBSCRIBE", "c") + encode("ECHO", "end")
    )
    assert client.read() == OK
    assert client.read_many(2) == [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2]]
    assert [reply[2] for reply in client.read_many(2)] == [1, 0]
    assert client.read() == b"v"
    assert client.read_many(3) == [[b"subscribe", b"c", 1], [b"unsubscribe", b"c", 0], b"end"]


def test_large_messages(target):
    client, other = target.connect(), target.connect()
    client("SUBSCRIBE", "a")
    message = b"m" * (4 << 20)
    assert other.pipeline([("PUBLISH", "a", message)]) == [1]
    assert client.read() == [b"message", b"a", message]


def test_publish_order(target):
    client, other = target.connect(), target.connect()
    client("SUBSCRIBE", "a")
    other.pipeline([("PUBLISH", "a", number) for number in range(2_000)])
    assert client.read_many(2_000) == [[b"message", b"a", b"%d" % number] for number in range(2_000)]


def test_keyspace_notifications(target):
    client, other = target.connect(), target.connect()
    other("CONFIG", "SET", "notify-keyspace-events", "KEA")
    try:
        client("PSUBSCRIBE", "__key*__:*")
        other("SET", "k", "v")
        assert client.read() == [b"pmessage", b"__key*__:*", b"__keyspace@0__:k", b"set"]
        assert client.read() == [b"pmessage", b"__key*__:*", b"__keyevent@0__:set", b"k"]
    finally:
        other("CONFIG", "SET", "notify-keyspace-events", "")


# ---- in transactions: the replies come where Redis puts them ----


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("channels", [("a",), ("a", "b", "c")])
def test_subscribe_in_a_transaction(target, protocol, channels):
    """Redis writes the confirmations into EXEC's array, all of them; the bytes must be the same."""
    script = encode("MULTI") + encode("SUBSCRIBE", *channels) + encode("PING") + encode("EXEC") + encode("PING", "after")
    transcripts = []
    for client in (target.connect(), target.direct()):
        client("HELLO", protocol)
        client.send(script)
        transcripts.append(client.read_up_to(b"after\r\n"))
    assert transcripts[0] == transcripts[1]
    assert b"subscribe" in transcripts[0]
    subscribers(target, channels[-1], 2)


def test_a_subscription_made_in_a_transaction_delivers(target):
    client, other = target.connect(), target.connect()
    client("MULTI")
    assert client("SUBSCRIBE", "a") == QUEUED
    assert client("EXEC") == [[b"subscribe", b"a", 1]]
    other("PUBLISH", "a", "m")
    assert client.read() == [b"message", b"a", b"m"]
    assert client("UNSUBSCRIBE") == [b"unsubscribe", b"a", 0]
    assert client("ECHO", "x") == b"x"


# ---- RESP3 ----


def test_subscribe_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client.request("SUBSCRIBE", "a", "b")
    assert same(client.read(), Push([b"subscribe", b"a", 1]))
    assert same(client.read(), Push([b"subscribe", b"b", 2]))
    other("PUBLISH", "b", "m")
    assert same(client.read(), Push([b"message", b"b", b"m"]))


def test_other_commands_while_subscribed_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("SUBSCRIBE", "a")
    assert client("SET", "k", "v") == OK
    assert client("GET", "k") == b"v"
    assert client("PING") == PONG
    other("PUBLISH", "a", 1)
    assert same(client.read(), Push([b"message", b"a", b"1"]))
    client("MULTI")
    client("GET", "k")
    assert client("EXEC") == [b"v"]
    assert same(client("UNSUBSCRIBE"), Push([b"unsubscribe", b"a", 0]))
    assert client("ECHO", "x") == b"x"


def test_publishing_to_oneself_in_resp3(target):
    client = target.connect()
    client("HELLO", 3)
    client("SUBSCRIBE", "a")
    client.request("PUBLISH", "a", "m")
    replies = client.read_many(2)
    assert 1 in replies
    assert any(same(reply, Push([b"message", b"a", b"m"])) for reply in replies)


def test_publishing_to_oneself_in_a_transaction_in_resp3(target):
    """Redis 7.0 writes the message into EXEC's array, which then is one too short; the bytes must be the same."""
    transcripts = []
    for channel, client in (("a", target.connect()), ("b", target.direct())):
        client("HELLO", 3)
        client("SUBSCRIBE", channel)
        client.send(encode("MULTI") + encode("PUBLISH", channel, "m") + encode("EXEC") + encode("ECHO", "after"))
        transcripts.append(client.read_up_to(b"after\r\n").replace(channel.encode() + b"\r\n", b"?\r\n"))
    assert transcripts[0] == transcripts[1]
    assert transcripts[0].endswith(b"after\r\n")


def test_blocking_while_subscribed_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("SUBSCRIBE", "a")
    client.request("BLPOP", "k", 5)
    target.await_blocked(1)
    other("PUBLISH", "a", "m")
    assert same(client.read(), Push([b"message", b"a", b"m"]))
    other("RPUSH", "k", "v")
    assert client.read() == [b"k", b"v"]


def test_unsubscribe_from_nothing_in_resp3(client):
    client("HELLO", 3)
    assert same(client("UNSUBSCRIBE"), Push([b"unsubscribe", NULL, 0]))
    assert client("ECHO", "x") == b"x"


def test_patterns_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("PSUBSCRIBE", "*")
    other("PUBLISH", "a", "m")
    client.read()
    assert client("ECHO", "x") == b"x"
    assert same(client("PUNSUBSCRIBE", "*"), Push([b"punsubscribe", b"*", 0]))


# ---- MONITOR ----


def read_monitor_until(client, needle):
    for _ in range(200):
        line = client.read()
        assert isinstance(line, Status), line
        if needle in line:
            return line
    raise AssertionError(f"{needle!r} not seen by MONITOR")


def test_monitor(target):
    client, other = target.connect(), target.connect()
    assert client("MONITOR") == OK
    other("SET", "seen", "by monitor")
    line = read_monitor_until(client, b'"seen"')
    assert line.endswith(b'"SET" "seen" "by monitor"')
    assert b" [0 127.0.0.1:" in line


def test_reset_ends_monitor(target):
    client, other = target.connect(), target.connect()
    client("MONITOR")
    client.request("RESET")
    for _ in range(200):
        line = client.read()
        if line == Status(b"RESET"):
            break
    other("SET", "k", 1)
    assert client("GET", "k") == b"1"
    client.assert_silent()


def test_quit_ends_monitor(target):
    client = target.connect()
    client("MONITOR")
    client.request("QUIT")
    assert client.read_to_end().endswith(b"+OK\r\n")


# ---- CLIENT TRACKING ----


def test_tracking(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    assert client("CLIENT", "TRACKING", "ON") == OK
    other("SET", "k", 1)
    assert client("GET", "k") == b"1"
    other("SET", "k", 2)
    assert same(client.read(), Push([b"invalidate", [b"k"]]))
    assert client("GET", "k") == b"2"
    assert client("CLIENT", "TRACKING", "OFF") == OK
    other("SET", "k", 3)
    client.assert_silent()


def test_tracking_before_the_first_command(target):
    """Whatever was read before tracking was on is not tracked; what comes after is."""
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client.send(encode("GET", "early") + encode("CLIENT", "TRACKING", "ON") + encode("GET", "late"))
    client.read_many(3)
    other("SET", "early", 1)
    other("SET", "late", 1)
    assert same(client.read(), Push([b"invalidate", [b"late"]]))
    client.assert_silent()


def test_tracking_with_broadcast(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    assert client("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user:") == OK
    other("SET", "user:1", 1)
    assert same(client.read(), Push([b"invalidate", [b"user:1"]]))
    other("SET", "other:1", 1)
    client.assert_silent()


def test_tracking_sees_flushes(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("CLIENT", "TRACKING", "ON")
    client("GET", "k")
    other("FLUSHALL")
    assert same(client.read(), Push([b"invalidate", NULL]))


def test_tracking_opt_in(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client("CLIENT", "TRACKING", "ON", "OPTIN")
    client("GET", "not cached")
    assert client("CLIENT", "CACHING", "YES") == OK
    client("GET", "cached")
    other("MSET", "not cached", 1, "cached", 1)
    assert same(client.read(), Push([b"invalidate", [b"cached"]]))
    client.assert_silent()


def test_tracking_redirected(target):
    """As RESP2 clients do it: invalidations go to another connection that has subscribed."""
    receiver, client, other = target.connect(), target.connect(), target.connect()
    identity = receiver("CLIENT", "ID")
    assert receiver("SUBSCRIBE", "__redis__:invalidate") == [b"subscribe", b"__redis__:invalidate", 1]
    assert client("CLIENT", "TRACKING", "ON", "REDIRECT", identity) == OK
    assert client("CLIENT", "GETREDIR") == identity
    client("GET", "k")
    other("SET", "k", 1)
    assert receiver.read() == [b"message", b"__redis__:invalidate", [b"k"]]


def test_tracking_info(client):
    client("HELLO", 3)
    client("CLIENT", "TRACKING", "ON", "NOLOOP")
    reply = client("CLIENT", "TRACKINGINFO")
    assert isinstance(reply, Map)
    assert list(reply.dict()[b"flags"]) == [b"on", b"noloop"]


def test_tracking_of_one_is_not_tracking_of_all(target):
    tracking, plain, other = target.connect(), target.connect(), target.connect()
    for client in (tracking, plain):
        client("HELLO", 3)
    tracking("CLIENT", "TRACKING", "ON")
    for client in (tracking, plain):
        client("GET", "k")
    other("SET", "k", 1)
    assert isinstance(tracking.read(), Push)
    plain.assert_silent()


# ---- CLIENT REPLY ----


def test_reply_off_and_on(target):
    client, other = target.connect(), target.connect()
    client.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "k", 1) + encode("NONSENSE") + encode("INCR", "k"))
    wait_for(lambda: other("GET", "k") == b"2", what="the silent commands to run")
    client.assert_silent()
    assert client("CLIENT", "REPLY", "ON") == OK
    assert client("GET", "k") == b"2"


def test_reply_skip(client):
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("SET", "k", 1) + encode("GET", "k"))
    assert client.read() == b"1"
    client.assert_silent(0.05)
    assert client("ECHO", "x") == b"x"


def test_reply_skip_amid_a_pipeline(client):
    client.send(
        encode("ECHO", 1) + encode("CLIENT", "REPLY", "SKIP") + encode("ECHO", "unheard") + encode("ECHO", 2)
        + encode("CLIENT", "REPLY", "OFF") + encode("ECHO", "unheard") * 100 + encode("CLIENT", "REPLY", "ON")
        + encode("ECHO", 3)
    )
    assert client.read_many(4) == [b"1", b"2", OK, b"3"]


def test_reply_on_when_it_is_on(client):
    assert client("CLIENT", "REPLY", "ON") == OK
    assert client("ECHO", "x") == b"x"


def test_reply_off_is_nobody_elses(target):
    client, other = target.connect(), target.connect()
    client.request("CLIENT", "REPLY", "OFF")
    for number in range(20):
        client.request("INCR", "n")
        assert other("ECHO", number) == b"%d" % number
    assert client("CLIENT", "REPLY", "ON") == OK
    assert client("GET", "n") == b"20"


def test_reply_off_and_a_vanishing_client(target):
    for _ in range(5):
        with target.connect() as client:
            client.send(encode("CLIENT", "REPLY", "OFF") + encode("INCR", "n"))
        assert target.connect()("ECHO", "heard") == b"heard"


def test_reply_off_with_a_transaction(target):
    client, other = target.connect(), target.connect()
    client.send(
        encode("CLIENT", "REPLY", "OFF") + encode("MULTI") + encode("SET", "k", 1) + encode("EXEC")
        + encode("CLIENT", "REPLY", "ON") + encode("GET", "k")
    )
    assert client.read_many(2) == [OK, b"1"]
    assert other("ECHO", "x") == b"x"


def test_reply_off_with_setname(client):
    client.send(
        encode("CLIENT", "REPLY", "OFF") + encode("CLIENT", "SETNAME", "quiet") + encode("CLIENT", "GETNAME")
        + encode("SELECT", 3) + encode("CLIENT", "REPLY", "ON") + encode("CLIENT", "GETNAME")
    )
    assert client.read_many(2) == [OK, b"quiet"]
    assert client("BLPOP", "none", "0.01") is NIL_ARRAY
