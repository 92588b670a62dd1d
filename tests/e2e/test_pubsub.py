"""What Redis says without being asked: SUBSCRIBE and its kin, MONITOR, CLIENT TRACKING; and CLIENT REPLY, where it
says nothing though asked."""

import pytest

from harness.resp import OK, Push, Status, encode, same, wait_for


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


def test_quit_behind_a_subscription_whose_reply_was_to_be_skipped(target):
    """Redis confirms it all the same, as it is pushed."""
    client = target.connect()
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("SUBSCRIBE", "a", "b") + encode("QUIT"))
    confirmations = b"".join(b"*3\r\n$9\r\nsubscribe\r\n$1\r\n%s\r\n:%d\r\n" % pair for pair in ((b"a", 1), (b"b", 2)))
    assert client.read_to_end() == confirmations + b"+OK\r\n"


def test_large_messages(target):
    client, other = target.connect(), target.connect()
    client("SUBSCRIBE", "a")
    message = b"m" * (4 << 20)
    assert other.pipeline([("PUBLISH", "a", message)]) == [1]
    assert client.read() == [b"message", b"a", message]


# ---- in transactions: the replies come where Redis puts them ----


@pytest.mark.parametrize("protocol", [2, 3])
def test_subscribe_in_a_transaction(target, protocol):
    """Redis writes the confirmations into EXEC's array, all of them; the bytes must be the same."""
    channels = ("a", "b", "c")
    script = encode("MULTI") + encode("SUBSCRIBE", *channels) + encode("PING") + encode("EXEC") + encode("PING", "after")
    transcripts = []
    for client in (target.connect(), target.direct()):
        client("HELLO", protocol)
        client.send(script)
        transcripts.append(client.read_up_to(b"after\r\n"))
    assert transcripts[0] == transcripts[1]
    assert b"subscribe" in transcripts[0]
    subscribers(target, channels[-1], 2)


# ---- RESP3 ----


def test_subscribe_in_resp3(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3)
    client.request("SUBSCRIBE", "a", "b")
    assert same(client.read(), Push([b"subscribe", b"a", 1]))
    assert same(client.read(), Push([b"subscribe", b"b", 2]))
    other("PUBLISH", "b", "m")
    assert same(client.read(), Push([b"message", b"b", b"m"]))


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


# ---- MONITOR ----


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


# ---- CLIENT REPLY ----


def test_reply_skip_amid_a_pipeline(client):
    client.send(
        encode("ECHO", 1) + encode("CLIENT", "REPLY", "SKIP") + encode("ECHO", "unheard") + encode("ECHO", 2)
        + encode("CLIENT", "REPLY", "OFF") + encode("ECHO", "unheard") * 100 + encode("CLIENT", "REPLY", "ON")
        + encode("ECHO", 3)
    )
    assert client.read_many(4) == [b"1", b"2", OK, b"3"]
