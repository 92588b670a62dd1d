"""What Redis says without being asked: SUBSCRIBE and its kin, MONITOR, CLIENT TRACKING; and CLIENT REPLY, where it
says nothing though asked."""

from harness.resp import OK, Push, Status, encode, same


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
