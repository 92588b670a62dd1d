"""What a connection remembers: database, protocol, name, identity. It is the client's own and nobody else's."""


from harness.resp import NULL, OK, Error, Map, Status, encode, same
from harness.threads import at_once

def test_every_client_has_its_own_database(target):
    """Number 0, which asks last, has that from the start."""
    clients = [target.connect() for _ in range(16)]
    for number, client in reversed(list(enumerate(clients))):
        assert number == 0 or client("SELECT", number) == OK
        assert client("SET", "k", number) == OK
    for number, client in enumerate(clients):
        assert client("GET", "k") == b"%d" % number
        assert client("DBSIZE") == 1


def test_select_back_and_forth_by_many_clients(target):
    """Pipelines full of SELECT, at once: no write lands in another database."""
    failures = []

    def work(identity):
        with target.connect() as client:
            for turn in range(30):
                database = (identity + turn) % 16
                key, value = f"{identity}:{turn}", f"{database}"
                client.send(encode("SELECT", database) + encode("SET", key, value) + encode("GET", key))
                if client.read_many(3) != [OK, OK, value.encode()]:
                    failures.append((identity, turn))
                for other in (0, 1, 15):
                    client.send(encode("SELECT", other) + encode("GET", key))
                    expected = value.encode() if other == database else None
                    if client.read_many(2) != [OK, expected]:
                        failures.append((identity, turn, other))

    at_once(work, 8)
    assert failures == []


def test_state_follows_into_blocking_and_transactions(target):
    """Database and protocol hold on whatever connection to Redis the next command needs."""
    client, other = target.connect(), target.connect()
    client("HELLO", 3, "SETNAME", "wanderer")
    client("SELECT", 7)
    client("RPUSH", "k", "in 7")
    assert client("BLPOP", "k", 1) == [b"k", b"in 7"]
    assert same(client("BLPOP", "k", "0.01"), NULL)
    client("MULTI")
    client("HSET", "h", "a", 1)
    client("HGETALL", "h")
    assert same(client("EXEC"), [1, Map([b"a", b"1"])])
    assert b"db=7" in client("CLIENT", "INFO")
    assert b"name=wanderer" in client("CLIENT", "INFO")
    assert other("EXISTS", "h") == 0


def test_names_are_not_mixed(target):
    clients = [target.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client("CLIENT", "SETNAME", f"name-{number}")
    for number, client in enumerate(clients):
        assert client("CLIENT", "GETNAME") == b"name-%d" % number
    assert target.connect()("CLIENT", "GETNAME") is None


def test_info_and_list_show_the_client(target):
    client = target.connect()
    client("SELECT", 4)
    identity = client("CLIENT", "ID")
    for name in ("first", "second"):
        assert client("CLIENT", "SETNAME", name) == OK
        info = client("CLIENT", "INFO")
        assert info.startswith(b"id=%d " % identity)
        assert b" name=%s " % name.encode() in info and b" db=4 " in info
        assert b" name=%s " % name.encode() in target.direct()("CLIENT", "LIST", "ID", identity)


def test_kill_by_id(target):
    victim, others = target.connect(), [target.connect() for _ in range(3)]
    identity = victim("CLIENT", "ID")
    assert others[0]("CLIENT", "KILL", "ID", identity) == 1
    victim.assert_closed()
    for other in others:
        assert other("ECHO", "alive") == b"alive"
    assert others[0]("CLIENT", "KILL", "ID", identity) == 0


def test_killing_oneself(target):
    client, other = target.connect(), target.connect()
    identity = client("CLIENT", "ID")
    client.request("CLIENT", "KILL", "ID", identity, "SKIPME", "no")
    assert client.read() == 1
    client.assert_closed()
    assert other("ECHO", "alive") == b"alive"


def test_reset_resets_everything(target):
    client, other = target.connect(), target.connect()
    client("HELLO", 3, "SETNAME", "x")
    client("SELECT", 3)
    client("WATCH", "k")
    client("CLIENT", "TRACKING", "ON")
    client("SUBSCRIBE", "channel")
    client("MULTI")
    assert client("RESET") == Status(b"RESET")
    assert client("GET", "none") is None
    assert client("CLIENT", "GETNAME") is None
    assert client("EXEC") == Error(b"ERR EXEC without MULTI")
    client("SET", "k", "in 0")
    assert other("GET", "k") == b"in 0"
    assert other("PUBLISH", "channel", "m") == 0
    client.assert_silent(0.05)
