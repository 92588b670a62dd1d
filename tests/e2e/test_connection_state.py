"""What a connection remembers: database, protocol, name, identity. It is the client's own and nobody else's."""


from harness.resp import NULL, OK, Error, Map, Status, encode, same
from harness.threads import at_once

# ---- SELECT and SWAPDB ----


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


# ---- CLIENT SETNAME, GETNAME, SETINFO ----


def test_names(client):
    assert client("CLIENT", "GETNAME") is None
    assert client("CLIENT", "SETNAME", "before") == OK
    text = b"ERR Client names cannot contain spaces, newlines or special characters."
    for name in ("a b", "a\nb", "\t", "a\x7f", b"\xff", " "):
        client.send(encode("SET", "k", 1) + encode("CLIENT", "SETNAME", name) + encode("INCR", "k") + encode("CLIENT", "GETNAME"))
        assert client.read_many(4) == [OK, Error(text), 2, b"before"]
    assert client("CLIENT", "SETNAME", "") == OK
    assert client("CLIENT", "GETNAME") is None


def test_names_are_not_mixed(target):
    clients = [target.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client("CLIENT", "SETNAME", f"name-{number}")
    for number, client in enumerate(clients):
        assert client("CLIENT", "GETNAME") == b"name-%d" % number
    assert target.connect()("CLIENT", "GETNAME") is None


# ---- CLIENT ID, INFO, LIST, KILL, … ----


def test_identity_is_stable(target):
    client, other = target.connect(), target.connect()
    identity = client("CLIENT", "ID")
    assert isinstance(identity, int)
    assert other("CLIENT", "ID") != identity
    for _ in range(10):
        client("SET", "k", 1)
        client("MULTI")
        client("EXEC")
        client("BLPOP", "none", "0.001")
        assert client("CLIENT", "ID") == identity


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


# ---- HELLO ----


def test_hello_3_and_back(client):
    reply = client("hello", "3", "auth", "default", "any", "setname", "full")
    assert isinstance(reply, Map) and reply.dict()[b"proto"] == 3
    assert same(client("GET", "none"), NULL)
    assert isinstance(client("HELLO"), Map)
    reply = client("HELLO", 2)
    assert not isinstance(reply, Map) and reply[reply.index(b"proto") + 1] == 2
    assert client("GET", "none") is None
    assert client("CLIENT", "GETNAME") == b"full"
    assert client("ACL", "WHOAMI") == b"default"


NO_HELLO = [
    ((4,), b"NOPROTO unsupported protocol version"),
    ((1,), b"NOPROTO unsupported protocol version"),
    (("x",), b"ERR Protocol version is not an integer or out of range"),
    ((3, "NONSENSE"), b"ERR Syntax error in HELLO option 'NONSENSE'"),
    ((3, "SETNAME"), b"ERR Syntax error in HELLO option 'SETNAME'"),
    ((3, "AUTH", "default"), b"ERR Syntax error in HELLO option 'AUTH'"),
    ((3, "SETNAME", "a b"), b"ERR Client names cannot contain spaces, newlines or special characters."),
    ((3, "AUTH", "nobody", "x"), b"WRONGPASS invalid username-password pair or user is disabled."),
]


def test_hello_errors_change_nothing(client):
    client("CLIENT", "SETNAME", "before")
    for arguments, text in NO_HELLO:
        assert client("HELLO", *arguments) == Error(text)
        assert client("GET", "none") is None
        assert client("CLIENT", "GETNAME") == b"before"


def test_hello_amid_a_pipeline(client):
    client("HSET", "h", "a", 1)
    client.send(
        encode("HGETALL", "h") + encode("HELLO", 3) + encode("HGETALL", "h") + encode("HELLO", 2)
        + encode("HGETALL", "h")
    )
    first, hello, second, _, third = client.read_many(5)
    assert same(first, [b"a", b"1"])
    assert isinstance(hello, Map)
    assert same(second, Map([b"a", b"1"]))
    assert same(third, [b"a", b"1"])


# ---- RESET ----


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


def test_reset_amid_a_pipeline(client):
    client.send(
        encode("SELECT", 2) + encode("MULTI") + encode("SET", "k", 1) + encode("RESET") + encode("GET", "k")
        + encode("SET", "k", 2) + encode("RESET") + encode("GET", "k")
    )
    assert client.read_many(8)[3:] == [Status(b"RESET"), None, OK, Status(b"RESET"), b"2"]


# ---- other things that Redis answers ----


def test_scripts(client):
    assert client("EVAL", "return {KEYS[1], ARGV[1], 42, {1, 'x'}}", 1, "k", "a") == [b"k", b"a", 42, [1, b"x"]]
    digest = client("SCRIPT", "LOAD", "return redis.call('incr', KEYS[1])")
    assert client("EVALSHA", digest, 1, "n") == 1
    assert client("EVALSHA", "0" * 40, 0) == Error(b"NOSCRIPT No matching script. Please use EVAL.")
    assert client("SCRIPT", "EXISTS", digest, "0" * 40) == [1, 0]
    assert client("EVAL", "return redis.status_reply('FINE')", 0) == Status(b"FINE")
    assert client("EVAL", "return redis.error_reply('BAD thing')", 0) == Error(b"BAD thing")
    assert client("EVAL", "return", "x") == Error(b"ERR value is not an integer or out of range")
    assert client("SCRIPT", "FLUSH") == OK
