"""What a connection remembers: database, protocol, name, identity. It is the client's own and nobody else's."""


from harness.resp import NULL, OK, Map, same


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
