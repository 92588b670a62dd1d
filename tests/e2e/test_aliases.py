"""CLIENT ID, CLIENT INFO and HELLO tell ids of Headgate's in `shared`, which cost no lane and which Redis' commands take."""

import pytest

from harness.admin import stats
from harness.fake_redis import DEFAULT_ANSWERS, reply_in_pieces
from harness.resp import NIL_ARRAY, NULL, OK, Error, Map, bulk, encode, same, wait_for
from harness.target import client_list

# Above what Redis gets to by counting, and whole numbers in JavaScript, too.
FIRST, END = 2**52, 2**53


def exclusive(headgate):
    return int(stats(headgate, "clients")["clients_exclusive"])


def info(client):
    return dict(word.split("=", 1) for word in client("CLIENT", "INFO").decode().removeprefix("txt:").split())


@pytest.fixture(params=(1, 4))
def headgate(redis, make_headgate, request):
    return make_headgate(redis, pool="shared", threads=request.param)


def test_asking_costs_no_lane(headgate):
    clients = [headgate.connect() for _ in range(20)]
    ids = [client("CLIENT", "ID") for client in clients]
    assert len(set(ids)) == len(clients) and all(FIRST <= number < END for number in ids)
    for client, number in zip(clients, ids):
        assert info(client)["id"] == str(number)
        assert client("HELLO", 3).dict()[b"id"] == number
        assert client("HELLO", 2)[7] == number
        assert client("SET", "k", 1) == OK
        assert client("CLIENT", "ID") == number
    assert exclusive(headgate) == 0


def test_info_is_about_the_client(headgate):
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", "me") == OK
    host, port = client.socket.getsockname()
    fields = info(client)
    assert fields["addr"] == f"{host}:{port}" and fields["name"] == "me" and fields["db"] == "0"
    client("HELLO", 3)
    fields = client("CLIENT", "INFO").decode()
    assert f" addr={host}:{port} " in fields and " name=me " in fields and " resp=3" in fields
    client("SELECT", 3)
    assert info(client)["db"] == "3"
    client("CLIENT", "TRACKING", "ON")
    assert info(client)["id"] == str(client("CLIENT", "ID"))


def test_ids_of_several_headgates_do_not_meet(redis, make_headgate):
    ids = set()
    for _ in range(3):
        headgate = make_headgate(redis, pool="shared")
        ids |= {headgate.connect()("CLIENT", "ID") for _ in range(10)}
    assert len(ids) == 30


def test_an_id_of_nobody(headgate, redis):
    client = headgate.connect()
    for number in (FIRST, END - 1, client("CLIENT", "ID") + 1000):
        assert client("CLIENT", "KILL", "ID", number) == 0
        assert client("CLIENT", "UNBLOCK", number) == 0
        assert client("CLIENT", "LIST", "ID", number) == b""
        assert client("CLIENT", "TRACKING", "ON", "REDIRECT", number) == Error(
            b"ERR The client ID you want redirect to does not exist"
        )
    assert exclusive(headgate) == 0


def test_a_client_on_a_shared_lane_is_killed_alone(headgate):
    victims = [headgate.connect() for _ in range(4)]
    ids = [victim("CLIENT", "ID") for victim in victims]
    killer = headgate.connect()
    assert killer("CLIENT", "KILL", "ID", ids[0]) == 1
    victims[0].assert_closed()
    assert killer("CLIENT", "KILL", "USER", "default", "ID", ids[1], "SKIPME", "yes") == 1
    victims[1].assert_closed()
    assert killer("CLIENT", "KILL", "ID", ids[2], "USER", "nobody") in (0, Error(b"ERR No such user 'nobody'"))
    for victim in victims[2:]:
        assert victim("ECHO", "alive") == b"alive"
    assert killer("CLIENT", "KILL", "ID", ids[0]) == 0


def test_who_may_not_kill_does_not(headgate, redis):
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "low", "on", ">pw", "~*", "+@all", "-client|kill", "-client|unblock")
    victim, low = headgate.connect(), headgate.connect()
    number = victim("CLIENT", "ID")
    assert low("AUTH", "low", "pw") == OK
    assert low("CLIENT", "KILL", "ID", number).startswith(b"NOPERM")
    assert low("CLIENT", "UNBLOCK", number).startswith(b"NOPERM")
    assert victim("ECHO", "alive") == b"alive"


@pytest.mark.parametrize("version", (2, 3))
def test_a_blocked_client_is_unblocked(headgate, version):
    waiter, other = headgate.connect(), headgate.connect()
    waiter("HELLO", version)
    number = waiter("CLIENT", "ID")
    for how in ("TIMEOUT", "ERROR"):
        assert other("CLIENT", "UNBLOCK", number, how) == 0
        waiter.request("BLPOP", "none", 0)
        wait_for(lambda: other("CLIENT", "UNBLOCK", number, how) == 1, what="it to be unblocked")
        reply = waiter.read()
        assert reply.startswith(b"UNBLOCKED") if how == "ERROR" else same(reply, NIL_ARRAY if version == 2 else NULL)
    assert other("SET", "k", 1) == OK
    assert waiter("SET", "k", 1) == OK
    assert exclusive(headgate) == 0


def test_the_id_of_hello_will_do(headgate):
    """A client that never asked for it by CLIENT ID."""
    waiter, other = headgate.connect(), headgate.connect()
    number = waiter("HELLO", 3).dict()[b"id"]
    waiter.request("BLPOP", "none", 0)
    wait_for(lambda: other("CLIENT", "UNBLOCK", number) == 1, what="it to be unblocked")
    assert same(waiter.read(), NULL)


@pytest.mark.parametrize("subscribed_first", (True, False))
def test_invalidations_are_redirected(headgate, subscribed_first):
    """As the documentation of Redis has it, in RESP2: two connections, by the id of one of them."""
    listener, reader, writer = headgate.connect(), headgate.connect(), headgate.connect()
    number = listener("CLIENT", "ID")
    channel = "__redis__:invalidate"
    if subscribed_first:
        assert listener("SUBSCRIBE", channel)[0] == b"subscribe"
    assert reader("CLIENT", "TRACKING", "ON", "REDIRECT", number) == OK
    if not subscribed_first:
        assert listener("SUBSCRIBE", channel)[0] == b"subscribe"
    assert reader("CLIENT", "GETREDIR") == number
    assert number in reader("CLIENT", "TRACKINGINFO")
    assert info(reader)["redir"] == str(number)
    assert reader("GET", "k") is None
    assert writer("SET", "k", 1) == OK
    assert listener.read() == [b"message", channel.encode(), [b"k"]]


def test_lists_show_who_has_a_lane(headgate):
    client, other = headgate.connect(), headgate.connect()
    number = client("CLIENT", "ID")
    line = other("CLIENT", "LIST", "ID", number).decode()
    host, port = client.socket.getsockname()
    assert line.startswith(f"id={number} addr={host}:{port} ")
    assert str(number) in [entry["id"] for entry in client_list(other)]
    assert other("CLIENT", "LIST", "ID", number, 999_999, number).count(b"\n") in (1, 2)


def test_a_client_that_names_itself(headgate):
    client = headgate.connect()
    number = client("CLIENT", "ID")
    assert client("CLIENT", "KILL", "ID", number) == 0
    assert client("CLIENT", "LIST", "ID", number).startswith(b"id=%d " % number)
    assert client("HELLO", 3).dict()[b"id"] == number
    assert client("CLIENT", "TRACKING", "ON", "REDIRECT", number) in (OK, Error(b"ERR"))
    client.request("CLIENT", "KILL", "ID", number, "SKIPME", "no")
    assert client.read() == 1
    client.assert_closed()


def test_amid_a_pipeline(headgate):
    client, other = headgate.connect(), headgate.connect()
    number = client("CLIENT", "ID")
    mine = other("CLIENT", "ID")
    commands = [
        ("SET", "k", 1), ("CLIENT", "ID"), ("CLIENT", "UNBLOCK", number), ("INCR", "k"), ("CLIENT", "KILL", "ID", number),
        ("CLIENT", "ID"), ("MULTI",), ("INCR", "k"), ("EXEC",), ("CLIENT", "ID"), ("HELLO",), ("GET", "k"),
    ]  # fmt: skip
    replies = other.pipeline(commands)
    hello = replies.pop(10)
    assert hello[7] == mine
    assert replies == [OK, mine, 0, 2, 1, mine, OK, b"QUEUED", [3], mine, b"3"]
    client.assert_closed()


def test_who_is_busy_is_waited_for(headgate, redis):
    """It has a connection when its own requests are answered; who names it waits until then."""
    client, other = headgate.connect(), headgate.connect()
    number = client("CLIENT", "ID")
    client.send(b"".join(encode("SET", f"k{turn}", "v" * 1000) for turn in range(5_000)))
    other.request("CLIENT", "KILL", "ID", number)
    client.read_many(4_000)
    assert other.read() in (0, 1)
    assert other("ECHO", "alive") == b"alive"


@pytest.mark.parametrize("size", (1, 2, 3, 7, 50))
def test_replies_in_pieces(fake, make_headgate, monkeypatch, size):
    """Wherever they are cut, the client gets one whole reply, behind those to what it asked before."""
    headgate = make_headgate(fake.url, pool="shared")
    client = headgate.connect()
    client.request("GET", "warm")
    fake.expect("GET", "warm").reply(b"+v\r\n")
    assert client.read() == b"v"
    monkeypatch.delitem(DEFAULT_ANSWERS, "CLIENT")
    client.send(encode("GET", "a") + encode("CLIENT", "ID") + encode("CLIENT", "INFO") + encode("GET", "b"))
    commands = fake.next_many(4)
    line = bulk("id=77 addr=1.2.3.4:5 name=x age=9 redir=-1\n")
    reply_in_pieces(list(zip(commands, (b"+a\r\n", b":77\r\n", line, b"+b\r\n"))), [size] * 200)
    first, number, listed, last = client.read_many(4)
    assert (first, last) == (b"a", b"b") and FIRST <= number < END
    assert listed.startswith(b"id=%d addr=127.0.0.1:" % number) and listed.endswith(b" name= age=0 redir=-1\n")


def test_in_session_ids_are_those_of_redis(redis, make_headgate):
    headgate = make_headgate(redis, pool="session")
    client = headgate.connect()
    with redis.connect() as direct:
        assert client("CLIENT", "ID") < FIRST
        assert isinstance(client("HELLO", 3), Map)
        assert str(client("CLIENT", "ID")) in [entry["id"] for entry in client_list(direct)]
