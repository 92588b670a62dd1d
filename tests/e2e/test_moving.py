"""Clients that ask for maintenance notifications go over to the process that has taken over, by themselves."""

import os
import signal

import pytest

from harness import proxy_header, tls
from harness.moving import ADDRESS, NONE, arrive, ask, assert_told
from harness.resp import NULL, OK, PONG, Client, Error, Map, Push, encode, wait_for
from harness.servers import BINARY, free_port
from harness.taking_over import successor, take_over


def begin_drain(headgate):
    headgate.signal(signal.SIGTERM)
    wait_for(lambda: "draining" in headgate.log(), 30, "the drain")


def as_unknown(reply):
    return isinstance(reply, Error) and reply.startswith(b"ERR unknown subcommand 'MAINT_NOTIFICATIONS'")


@pytest.mark.parametrize("arguments", [ADDRESS, ("ON",), ("ON", "moving-endpoint-type", "external-fqdn")])
def test_an_address_is_told_only_where_the_configuration_says_so(redis, make_headgate, pool, arguments):
    headgate = make_headgate(redis, pool=pool)
    client = headgate.connect()
    client("HELLO", 3)
    assert as_unknown(ask(client, *arguments)) and as_unknown(ask(client, "MAYBE")) and as_unknown(ask(client, *NONE, "more"))
    assert ask(client, *NONE) == OK and ask(client, "OFF") == OK
    with_address = make_headgate(redis, pool=pool, maintenance_notifications="address")
    assert arrive(with_address, *arguments)("PING") == PONG
    off = make_headgate(redis, pool=pool, maintenance_notifications="no").connect()
    off("HELLO", 3)
    assert as_unknown(ask(off, *NONE)) and as_unknown(ask(off, "OFF"))


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


def test_who_is_told_no_address(redis, make_headgate, tmp_path):
    """Who came by IPv6: libraries divide the text at its first colon, or take the brackets for a part of the address. Who
    came by a Unix socket, which has none, or by a proxy, which has one of its own that nobody here knows."""
    port, path = free_port(), tmp_path / "headgate.sock"
    headgate = make_headgate(redis, start=False, tls=False, maintenance_notifications="address", drain_timeout="1m")
    headgate.write_config(listen=f"127.0.0.1:{headgate.port}, [::1]:{port}, unix:{path}")
    proxied = free_port()
    rules = f"[listener:proxied]\nlisten = 127.0.0.1:{proxied}\nproxy_protocol = required\nproxy_from = 127.0.0.1\n"
    headgate.write_rules(rules)
    headgate.start()
    by_proxy = proxy_header.connect(("127.0.0.1", proxied), proxy_header.line("10.0.0.7"))
    clients = [Client(("::1", port)), Client(path), by_proxy]
    for client in clients:
        assert isinstance(client("HELLO", 3), Map)
        assert as_unknown(ask(client, *ADDRESS)) and ask(client, *NONE) == OK
    second = successor(make_headgate, headgate)
    second.write_rules(rules)
    second.launch([BINARY, "-c", str(second.config_path), "--take-over"])
    second.await_log("admin port on")
    begin_drain(headgate)
    for client in clients:
        assert_told(client.read(), 10, NULL)
        client.close()
