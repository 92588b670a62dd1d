"""How many connections to Redis Headgate takes, as Redis itself counts them, and who is closed when one breaks."""

import time

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Client, Status, encode, wait_for
from harness.target import client_list


def upstream_connections(redis):
    """Connections to Redis other than the one that asks."""
    with redis.connect() as observer:
        return len(client_list(observer)) - 1


def test_ordinary_clients_share(redis, make_headgate):
    """With what every modern library sends when it connects; those of another version of RESP have one more."""
    headgate = make_headgate(redis, pool="shared", lanes=1)
    assert headgate.connect()("PING") == PONG
    before = upstream_connections(redis)
    clients = [headgate.connect() for _ in range(60)]
    for number, client in enumerate(clients):
        if number % 3 == 0:
            client("HELLO", 3)
        assert client("CLIENT", "SETNAME", f"app-{number}") == OK
        client("CLIENT", "SETINFO", "LIB-NAME", "library")
        assert client("CLIENT", "GETNAME") == b"app-%d" % number
        assert client("SET", "k", number) == OK
    assert upstream_connections(redis) <= before + 2


def test_transactions_take_lanes_only_while_they_last(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", exclusive_idle=64)
    clients = [headgate.connect() for _ in range(40)]
    for client in clients:
        client("MULTI")
        assert client("SET", "k", 1) == Status(b"QUEUED")
        assert client("EXEC") == [OK]
    assert upstream_connections(redis) < 10


def test_a_session_is_one_connection(redis, make_headgate):
    """And ends with it."""
    headgate = make_headgate(redis, pool="session", exclusive_idle=0)
    clients = [headgate.connect() for _ in range(20)]
    assert len({client("CLIENT", "ID") for client in clients}) == 20
    for client in clients:
        client("SUBSCRIBE", "a")
        client.close()
    wait_for(lambda: upstream_connections(redis) <= 2, what="the connections of closed sessions to go")


def lanes_lost(headgate):
    return int(stats(headgate, "upstream")["lanes_lost_total"])


def test_kill_type_normal_through_headgate(redis, make_headgate):
    """The client that asks sits on a lane of its own, and is spared by SKIPME; who waits for nothing notices nothing."""
    headgate = make_headgate(redis, pool="shared", exclusive_ready=0)
    client, *others = (headgate.connect() for _ in range(20))
    for _ in range(3):
        assert [other("PING") for other in others] == [PONG] * len(others)
        lost = lanes_lost(headgate)
        assert client("CLIENT", "KILL", "TYPE", "normal") >= 1
        wait_for(lambda: lanes_lost(headgate) > lost, what="Headgate to see that the lane is gone")
    assert [other("PING") for other in others] == [PONG] * len(others)
    assert client("PING") == PONG


def test_the_upstream_user_is_given_for_clients(make_redis, make_headgate, pool):
    redis = make_redis("--requirepass", "secret")
    with redis.connect() as admin:
        admin("AUTH", "secret")
        assert admin("ACL", "SETUSER", "app", "on", ">pw", "~app:*", "&*", "+@all") == OK
    headgate = make_headgate(redis, pool=pool, upstream_user="app", upstream_password="pw")
    client, other = headgate.connect(), headgate.connect()
    assert client("ACL", "WHOAMI") == b"app"
    assert client("SET", "app:1", 1) == OK
    assert client("GET", "other").startswith(b"NOPERM")
    assert other("AUTH", "secret") == OK
    assert other("ACL", "WHOAMI") == b"default"
    assert client("ACL", "WHOAMI") == b"app"
    assert other("RESET") == Status(b"RESET")
    assert client("ACL", "WHOAMI") == b"app"


def test_who_resets_without_reading_gets_the_upstream_user_back(make_redis, make_headgate, pool, tmp_path):
    """Redis has taken RESET, and its answer waits behind replies that the client does not read."""
    redis = make_redis()
    path = f"{tmp_path}/h.sock"
    headgate = make_headgate(redis, start=False, pool=pool, upstream_user="app", upstream_password="pw")
    with redis.connect() as admin:
        assert admin("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all") == OK
        headgate.write_config(listen=f"{headgate.options['listen']}, unix:{path}")
        headgate.start()
        for size in range(260_000, 800_000, 60_000):
            assert admin("SET", "long", b"v" * size) == OK
            assert admin("RPUSH", "list", "1") == 1
            with Client(path) as client:
                client.send(encode("BLPOP", "list", 0) + encode("GET", "long") + encode("RESET") + encode("ACL", "WHOAMI"))
                time.sleep(0.5)
                assert client.read() == [b"list", b"1"]
                assert client.read() == b"v" * size
                assert client.read_many(2) == [Status(b"RESET"), b"app"]


@pytest.mark.parametrize("opening", (encode("CLIENT", "REPLY", "SKIP") + encode("AUTH", "nobody", "x"), encode("MONITOR")))
def test_who_resets_unseen_is_closed_with_its_upstream_user(make_redis, make_headgate, pool, opening):
    """Redis' default user may do everything here, and is nobody whom clients may become. What is owed is answered first."""
    redis = make_redis()
    with redis.connect() as admin:
        assert admin("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all") == OK
        admin("SET", "x", b"x" * 500_000)
    headgate = make_headgate(redis, pool=pool, upstream_user="app", upstream_password="pw")
    client = headgate.connect()
    client.send(encode("GET", "x") * 9 + opening + encode("GET", "x") * 9 + encode("RESET") + encode("ACL", "WHOAMI"))
    told = client.read_to_end()
    assert told.endswith(b"\r\n+RESET\r\n") and told.count(b"x" * 500_000) >= 9 and b"default" not in told
    client, gone = headgate.connect(), headgate.connect()
    client.send(encode("CLIENT", "REPLY", "SKIP") + encode("PING") + encode("BLPOP", "none", 12) + encode("RESET"))
    gone.send(encode("CLIENT", "REPLY", "SKIP") + encode("PING") + encode("BLPOP", "q", 0) + encode("RESET"))
    gone.shutdown_write()
    gone.socket.settimeout(5)
    gone.assert_closed()
    assert redis.connect()("RPUSH", "q", 1) == redis.connect()("LLEN", "q") == 1, "it went to who has gone"
    assert client.read_to_end() == b"*-1\r\n+RESET\r\n"
