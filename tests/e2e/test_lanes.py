"""How many connections to Redis Headgate takes, as Redis itself counts them, and who is closed when one breaks."""

import time

import pytest

from harness.admin import stats
from harness.resp import OK, PONG, Client, Status, encode, wait_for
from harness.target import client_list, info


def upstream_connections(redis):
    """Connections to Redis other than the one that asks."""
    with redis.connect() as observer:
        return len(client_list(observer)) - 1


def settled(redis, headgate):
    """The count once a first client has been served."""
    with headgate.connect() as client:
        assert client("PING") == PONG
    return upstream_connections(redis)


def test_ordinary_clients_share(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", lanes=1)
    before = settled(redis, headgate)
    clients = [headgate.connect() for _ in range(100)]
    for number, client in enumerate(clients):
        assert client("SET", f"k{number}", number) == OK
    assert upstream_connections(redis) <= before + 1


def test_naming_a_client_takes_no_lane(redis, make_headgate):
    """What every modern library sends when it connects."""
    headgate = make_headgate(redis, pool="shared", lanes=1)
    before = settled(redis, headgate)
    clients = [headgate.connect() for _ in range(50)]
    for number, client in enumerate(clients):
        assert client("CLIENT", "SETNAME", f"app-{number}") == OK
        client("CLIENT", "SETINFO", "LIB-NAME", "library")
        client("CLIENT", "SETINFO", "LIB-VER", "1.0")
        assert client("CLIENT", "GETNAME") == b"app-%d" % number
        assert client("SET", "k", 1) == OK
    assert upstream_connections(redis) <= before + 1


def test_hello_3_takes_one_lane_for_all(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", lanes=1)
    before = settled(redis, headgate)
    clients = [headgate.connect() for _ in range(50)]
    for number, client in enumerate(clients):
        client("HELLO", 3, "SETNAME", f"app-{number}")
        assert client("SET", "k", 1) == OK
    assert upstream_connections(redis) <= before + 2


def test_transactions_take_lanes_only_while_they_last(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", exclusive_idle=64)
    clients = [headgate.connect() for _ in range(40)]
    for client in clients:
        client("MULTI")
        assert client("SET", "k", 1) == Status(b"QUEUED")
        assert client("EXEC") == [OK]
    assert upstream_connections(redis) < 10


def test_the_name_is_on_an_exclusive_lane(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    client = headgate.connect()
    client("CLIENT", "SETNAME", "visible")
    client.request("BLPOP", "k", 0)
    observer = redis.connect()
    wait_for(lambda: any(entry["name"] == "visible" for entry in client_list(observer)), what="the name in Redis")
    observer("RPUSH", "k", "v")
    assert client.read() == [b"k", b"v"]


def test_a_lane_that_had_state_is_clean_for_the_next(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", exclusive_idle=1)
    for number in range(5):
        with headgate.connect() as client:
            client("SELECT", number + 1)
            client("CLIENT", "SETNAME", f"left-{number}")
            client("WATCH", "k")
            client("MULTI")
            client("SET", "k", number)
        with headgate.connect() as client:
            assert client("MULTI") == OK
            assert client("CLIENT", "GETNAME") == Status(b"QUEUED")
            assert client("SET", "clean", number) == Status(b"QUEUED")
            assert client("EXEC") == [None, OK]
            assert client("CLIENT", "GETNAME") is None
    observer = redis.connect()
    assert observer("KEYS", "*") == [b"clean"]


def test_a_session_is_one_connection(redis, make_headgate):
    headgate = make_headgate(redis, pool="session", exclusive_idle=0)
    clients = [headgate.connect() for _ in range(20)]
    identities = set()
    for client in clients:
        client("PING")
        identities.add(client("CLIENT", "ID"))
    assert len(identities) == 20


def test_connections_end_with_their_sessions(redis, make_headgate):
    headgate = make_headgate(redis, pool="session", exclusive_idle=0)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        client("SUBSCRIBE", "a")
    for client in clients:
        client.close()
    wait_for(lambda: upstream_connections(redis) <= 2, what="the connections of closed sessions to go")


def lanes_lost(headgate):
    return int(stats(headgate, "upstream")["lanes_lost_total"])


def test_killing_the_shared_lane_closes_no_idle_client(redis, make_headgate):
    """CLIENT KILL by an operator: who waits for nothing notices nothing."""
    headgate = make_headgate(redis, pool="shared", exclusive_ready=0)
    clients = [headgate.connect() for _ in range(20)]
    for client in clients:
        assert client("PING") == PONG
    observer = redis.connect()
    for _ in range(5):
        lost = lanes_lost(headgate)
        observer("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        wait_for(lambda: lanes_lost(headgate) > lost, what="Headgate to see that the lane is gone")
        for client in clients:
            assert client("PING") == PONG


def test_kill_type_normal_through_headgate(redis, make_headgate):
    """The client that asks sits on a lane of its own, is spared by SKIPME, and others recover."""
    headgate = make_headgate(redis, pool="shared", exclusive_ready=0)
    client, other = headgate.connect(), headgate.connect()
    assert other("PING") == PONG
    lost = lanes_lost(headgate)
    assert client("CLIENT", "KILL", "TYPE", "normal") >= 1
    wait_for(lambda: lanes_lost(headgate) > lost, what="Headgate to see that the lane is gone")
    assert other("PING") == PONG
    assert client("PING") == PONG


def test_many_clients_wait_and_others_are_served(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared")
    waiting = [headgate.connect() for _ in range(200)]
    for number, client in enumerate(waiting):
        client.request("BLPOP", f"k{number}", 0)
    observer = redis.connect()
    wait_for(lambda: info(observer, "clients")["blocked_clients"] == "200", what="200 blocked clients")
    other = headgate.connect()
    assert other.pipeline([("RPUSH", f"k{number}", number) for number in range(200)]) == [1] * 200
    for number, client in enumerate(waiting):
        assert client.read() == [b"k%d" % number, b"%d" % number]


def test_the_upstream_password_is_given_for_clients(make_redis, make_headgate, pool):
    redis = make_redis("--requirepass", "secret")
    headgate = make_headgate(redis, pool=pool, upstream_password="secret")
    client = headgate.connect()
    assert client("SET", "k", 1) == OK
    assert client("MULTI") == OK
    assert client("GET", "k") == Status(b"QUEUED")
    assert client("EXEC") == [b"1"]
    assert client("ACL", "WHOAMI") == b"default"


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


@pytest.mark.parametrize("size", range(260_000, 800_000, 60_000))
def test_who_resets_without_reading_gets_the_upstream_user_back(make_redis, make_headgate, pool, size, tmp_path):
    """Redis has taken RESET, and its answer waits behind replies that the client does not read."""
    redis = make_redis()
    with redis.connect() as admin:
        assert admin("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all") == OK
        assert admin("SET", "long", b"v" * size) == OK
        assert admin("RPUSH", "list", "1") == 1
    path = f"{tmp_path}/h.sock"
    headgate = make_headgate(redis, start=False, pool=pool, upstream_user="app", upstream_password="pw")
    headgate.write_config(listen=f"{headgate.options['listen']}, unix:{path}")
    headgate.start()
    with Client(path) as client:
        client.send(encode("BLPOP", "list", 0) + encode("GET", "long") + encode("RESET") + encode("ACL", "WHOAMI"))
        time.sleep(0.5)
        assert client.read() == [b"list", b"1"]
        assert client.read() == b"v" * size
        assert client.read_many(2) == [Status(b"RESET"), b"app"]


@pytest.mark.parametrize("opening", (encode("CLIENT", "REPLY", "SKIP") + encode("AUTH", "nobody", "x"), encode("MONITOR")))
def test_who_resets_behind_what_is_not_matched_has_its_upstream_user(make_redis, make_headgate, pool, opening):
    """Redis' default user may do everything here, and is nobody whom clients of Headgate may become."""
    redis = make_redis()
    with redis.connect() as admin:
        assert admin("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all") == OK
    headgate = make_headgate(redis, pool=pool, upstream_user="app", upstream_password="pw")
    client = headgate.connect()
    client.send(opening + encode("RESET") + encode("ACL", "WHOAMI"))
    while client.read() != Status(b"RESET"):
        pass
    assert client.read() == b"app"


def test_half_a_request_and_a_vanishing_client(redis, make_headgate, pool):
    headgate = make_headgate(redis, pool=pool)
    other = headgate.connect()
    for size in (10, 100_000, 4_000_000):
        with headgate.connect() as client:
            client.send(encode("ECHO", "x") + b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000000\r\n" + b"v" * size)
            assert client.read() == b"x"
        assert other("EXISTS", "k") == 0
        assert other("PING") == PONG
