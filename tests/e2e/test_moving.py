"""Clients that ask for maintenance notifications go over to the process that has taken over, by themselves."""

import os
import signal

import pytest

from harness import proxy_header, tls
from harness.admin import stats
from harness.moving import ADDRESS, NONE, Follower, arrive, ask, assert_told
from harness.resp import NULL, OK, PONG, Client, Error, Map, Push, encode, wait_for
from harness.servers import BINARY, free_port
from harness.taking_over import take_over


def begin_drain(headgate):
    headgate.signal(signal.SIGTERM)
    wait_for(lambda: "draining" in headgate.log(), 30, "the drain")


def as_unknown(reply):
    return isinstance(reply, Error) and reply.startswith(b"ERR unknown subcommand 'MAINT_NOTIFICATIONS'")


# ---- asking ----


@pytest.mark.parametrize("arguments", [ADDRESS, ("ON",), ("ON", "moving-endpoint-type", "external-fqdn")])
def test_an_address_is_told_only_where_the_configuration_says_so(redis, make_headgate, pool, arguments):
    headgate = make_headgate(redis, pool=pool)
    client = headgate.connect()
    client("HELLO", 3)
    assert as_unknown(ask(client, *arguments))
    assert ask(client, *NONE) == OK and ask(client, "OFF") == OK
    with_address = make_headgate(redis, pool=pool, maintenance_notifications="address")
    assert arrive(with_address, *arguments)("PING") == PONG


def test_the_feature_can_be_off(redis, make_headgate, pool):
    client = make_headgate(redis, pool=pool, maintenance_notifications="no").connect()
    client("HELLO", 3)
    assert as_unknown(ask(client, *NONE)) and as_unknown(ask(client, "OFF"))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("MAYBE",),
        ("ON\0", "moving-endpoint-type"),
        ("ON", "moving-endpoint-type"),
        ("ON", "moving-endpoint-type", "nowhere"),
        ("ON", "other", "none"),
        ("OFF", "moving-endpoint-type", "none"),
        (*NONE, "more"),
    ],
)
def test_what_is_not_understood_is_not_taken(redis, make_headgate, arguments):
    client = make_headgate(redis, pool="shared", maintenance_notifications="address").connect()
    client("HELLO", 3)
    assert as_unknown(ask(client, *arguments))
    assert client("PING") == PONG


def test_who_cannot_be_told_hears_that_it_is_unknown(redis, make_headgate, pool):
    """In RESP2, within MULTI, and where no answer comes."""
    headgate = make_headgate(redis, pool=pool, maintenance_notifications="address")
    client = headgate.connect()
    assert as_unknown(ask(client, *NONE))
    client("HELLO", 3)
    client("MULTI")
    assert as_unknown(ask(client, *NONE))
    assert client("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")
    skipped = encode("CLIENT", "REPLY", "SKIP") + encode("CLIENT", "MAINT_NOTIFICATIONS", *NONE)
    client.send(skipped + encode("ECHO", "seen"))
    assert client.read() == b"seen"
    # In one write with HELLO, as libraries do.
    pipelined = headgate.connect()
    pipelined.send(encode("HELLO", 3) + encode("CLIENT", "MAINT_NOTIFICATIONS", *NONE) + encode("PING"))
    replies = pipelined.read_many(3)
    assert isinstance(replies[0], Map) and replies[1:] == [OK, PONG]


def test_redis_is_never_asked(fake, make_headgate, pool):
    said = []

    def answer(_lane, arguments):
        said.append(arguments[1].upper())
        return b"+OK\r\n"

    fake.answers["CLIENT"] = answer
    client = arrive(make_headgate(fake.url, pool=pool, maintenance_notifications="address"), *ADDRESS)
    assert client("CLIENT", "NO-TOUCH", "ON") == OK
    assert b"MAINT_NOTIFICATIONS" not in said


# ---- being told ----


def test_a_drain_tells_who_asked_and_waits_for_them(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, maintenance_notifications="address", drain_timeout="2m")
    asked, back, refused = arrive(headgate, *ADDRESS), arrive(headgate, *NONE), headgate.connect()
    refused("PING")
    took_back = arrive(headgate, *NONE)
    assert ask(took_back, "OFF") == OK
    reset = arrive(headgate, *NONE)
    reset("RESET")
    second = take_over(make_headgate, headgate)
    begin_drain(headgate)
    for client in (refused, took_back, reset):
        client.assert_closed()
    assert_told(asked.read(), 10, b"127.0.0.1:%d" % headgate.port)
    assert_told(back.read(), 10, NULL)
    for client in (asked, back):
        assert client("SET", "k", "v") == OK
        client.close()
    wait_for(lambda: not headgate.is_alive(), 30, "its end")
    assert headgate.process.returncode == 0
    assert second.connect()("GET", "k") == b"v"


def test_nobody_is_told_where_nobody_takes_over(redis, make_headgate, pool):
    """A stop: who left at once would find nobody, and the stop would wait for them."""
    headgate = make_headgate(redis, pool=pool, maintenance_notifications="address", drain_timeout="10m")
    clients = [arrive(headgate, *ADDRESS), arrive(headgate, *NONE)]
    headgate.terminate()
    for client in clients:
        client.assert_closed()


def test_who_stays_is_closed_when_the_time_is_over(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool, drain_timeout="4s")
    idle = arrive(headgate, *NONE)
    take_over(make_headgate, headgate)
    begin_drain(headgate)
    assert_told(idle.read(), 3, NULL)
    assert idle("PING") == PONG
    idle.assert_closed()
    wait_for(lambda: not headgate.is_alive(), 30, "its end")
    assert "drain_timeout is over" not in headgate.log()


def test_a_short_drain_tells_nobody(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", drain_timeout="1s")
    client = arrive(headgate, *NONE)
    take_over(make_headgate, headgate)
    assert headgate.terminate() == 0
    client.assert_closed()


def test_the_push_comes_behind_what_is_under_way(redis, make_headgate, pool):
    """One that blocks, one in a transaction, one that subscribes."""
    headgate = make_headgate(redis, pool=pool, drain_timeout="2m")
    blocked, queued, subscribed = [arrive(headgate, *NONE) for _ in range(3)]
    blocked.request("BLPOP", "list", 0)
    assert queued("MULTI") == OK
    assert isinstance(subscribed("SUBSCRIBE", "channel"), Push)
    second = take_over(make_headgate, headgate)
    begin_drain(headgate)
    assert_told(queued.read(), 10, NULL)
    assert queued("SET", "k", "v") == b"QUEUED" and queued("EXEC") == [OK]
    assert_told(subscribed.read(), 10, NULL)
    visitor = second.connect()
    assert visitor("PUBLISH", "channel", "hello") == 1
    assert subscribed.read() == [b"message", b"channel", b"hello"]
    visitor("RPUSH", "list", "x")
    assert blocked.read() == [b"list", b"x"]
    assert_told(blocked.read(), 10, NULL)


def test_a_push_never_comes_within_a_reply(redis, make_headgate, pool):
    """Readers of long replies, some of whom read slowly, through a take-over: what they read is whole."""
    headgate = make_headgate(redis, pool=pool, drain_timeout="2m", threads=2)
    value = os.urandom(1 << 20)
    assert headgate.connect()("SET", "long", value) == OK
    clients = [arrive(headgate, *NONE) for _ in range(8)]
    for client in clients:
        client.send(encode("GET", "long") * 4)
    take_over(make_headgate, headgate)
    begin_drain(headgate)
    for client in clients:
        frames = client.read_many(5)
        pushes = [frame for frame in frames if isinstance(frame, Push)]
        assert len(pushes) == 1 and pushes[0][0] == b"MOVING"
        assert [frame for frame in frames if not isinstance(frame, Push)] == [value] * 4


def test_who_follows_sees_no_error(redis, make_headgate, pool):
    """Twenty clients under load through three take-overs."""
    headgate = make_headgate(redis, pool=pool, maintenance_notifications="address", threads=2, drain_timeout="1m")
    followers = [Follower(headgate, number) for number in range(20)]
    for times in range(1, 4):
        second = take_over(make_headgate, headgate)
        begin_drain(headgate)
        wait_for(lambda: not headgate.is_alive(), 60, "the first to be left by all")
        assert headgate.process.returncode == 0 and "drain_timeout is over" not in headgate.log()
        wait_for(lambda: all(one.moves == times or one.faults for one in followers), 60, "all to have moved")
        assert int(stats(second)["clients_connected"]) == len(followers)
        headgate = second
    for follower in followers:
        follower.end()
    assert [one.faults for one in followers if one.faults] == []
    assert all(one.served > 3 and one.moves == 3 for one in followers)


# ---- which address ----


def told_to(headgate, make_headgate, client):
    assert isinstance(client("HELLO", 3), Map)
    assert ask(client, *ADDRESS) == OK
    take_over(make_headgate, headgate)
    begin_drain(headgate)
    push = client.read()
    client.close()
    return push[3].decode()


@pytest.mark.parametrize("name", ["localhost", None])
def test_with_tls_the_name_is_told_by_which_the_client_came(redis, make_headgate, name):
    options = {"maintenance_notifications": "address", "drain_timeout": "1m"}
    headgate = make_headgate(redis, tls=True, **options)
    context = tls.client_context(verify=name is not None)
    client = headgate.connect(context, name=name)
    assert told_to(headgate, make_headgate, client) == f"{name or '127.0.0.1'}:{headgate.port}"


def test_who_came_by_ipv6_is_told_no_address(redis, make_headgate):
    """Libraries divide the text at its first colon, or take the brackets for a part of the address."""
    port = free_port()
    headgate = make_headgate(redis, start=False, tls=False, maintenance_notifications="address")
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, [::1]:{port}")
    headgate.start()
    with Client(("::1", port)) as client:
        assert isinstance(client("HELLO", 3), Map)
        assert as_unknown(ask(client, *ADDRESS)) and ask(client, *NONE) == OK


def test_who_came_by_a_proxy_is_told_no_address(redis, make_headgate):
    """What lies in between has an address of its own, which nobody here knows."""
    headgate = make_headgate(redis, start=False, tls=False, maintenance_notifications="address", drain_timeout="1m")
    headgate.write_config(proxy_protocol="required", proxy_from="127.0.0.1")
    headgate.launch([BINARY, "-c", str(headgate.config_path)])
    headgate.await_log("serving clients on")
    client = proxy_header.connect(headgate.address, proxy_header.line("10.0.0.7"))
    assert isinstance(client("HELLO", 3), Map)
    assert as_unknown(ask(client, *ADDRESS)) and ask(client, *NONE) == OK
    take_over(make_headgate, headgate)
    begin_drain(headgate)
    assert_told(client.read(), 10, NULL)
    client.close()


def test_a_unix_socket_has_no_address(redis, make_headgate, tmp_path):
    path = tmp_path / "headgate.sock"
    headgate = make_headgate(redis, start=False, tls=False, maintenance_notifications="address", drain_timeout="1m")
    headgate.write_config(listen=f"unix:{path}")
    headgate.launch([BINARY, "-c", str(headgate.config_path)])
    headgate.await_log("serving clients on")
    client = Client(path)
    assert isinstance(client("HELLO", 3), Map)
    assert as_unknown(ask(client, *ADDRESS)) and ask(client, *NONE) == OK
    take_over(make_headgate, headgate)
    begin_drain(headgate)
    assert_told(client.read(), 10, NULL)
    client.close()
