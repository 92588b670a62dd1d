"""Who a client is: identities, what rules know of them, the credentials that they carry, and who is let in."""

import contextlib
import os
import pwd
import socket
import struct

import pytest

from harness.admin import stats, text
from harness.resp import OK, PONG, QUEUED, Client, Closed, Error, wait_for
from harness.rules import check_file, launch, reload
from harness.servers import free_port

WRONGPASS = b"WRONGPASS"
DENIED = Error(b"DENIED headgate: this client may not connect here (options allow and refuse)")
UID = os.getuid()
GID = os.getgid()


def identity(name, *options):
    return "\n".join([f"[identity:{name}]", *options]) + "\n"


def clients_of(headgate):
    with headgate.admin() as admin:
        lines = text(admin("CLIENTS")).splitlines()
    found = [dict(field.split("=", 1) for field in line.split() if "=" in field) for line in lines]
    return {line["id"]: line for line in found if "id" in line}


def identities_of(headgate):
    return sorted(line["identity"] for line in clients_of(headgate).values())


def add_user(redis, name, password, *rights):
    with redis.connect() as client:
        assert client("ACL", "SETUSER", name, "on", "resetpass", f">{password}", *(rights or ("~*", "&*", "+@all"))) == OK


@pytest.fixture
def unix(redis, pool, make_headgate, tmp_path):
    """A Headgate with these rules that listens on a Unix socket, too: unix(rules) gives it and the path."""

    def make(rules, **options):
        path = tmp_path / "h.sock"
        return launch(make_headgate, redis, pool, rules, listen=f"unix:{path}", **options), str(path)

    return make


# ---- what an identity goes by ----


def test_the_peer_of_a_unix_socket(unix):
    """It has no address, and TCP no peer that is known: all kinds of an identity must fit."""
    others = identity("other", f"peer = uid:{UID + 1}") + identity("others", f"peer = gid:{GID + 54321}")
    others += identity("both", f"peer = uid:{UID}", "address = 0.0.0.0/0")
    headgate, path = unix(others)
    with Client(path) as client, headgate.connect() as stranger:
        assert stranger("PING") == PONG
        for word in (f"uid:{UID}", f"gid:{GID}", f"uid:{pwd.getpwuid(UID).pw_name}"):
            reload(headgate, others, client)
            assert identities_of(headgate) == ["", ""]
            reload(headgate, others + identity("me", f"peer = uid:4000000 {word}"), client)
            assert identities_of(headgate) == ["", "me"]


def test_a_user_that_was_given(redis, make, pool):
    add_user(redis, "batch-1", "secret")
    headgate = make(identity("batch", "user = batch-*") + identity("here", "address = ip:127.0.0.1"))
    client = headgate.connect()
    assert client("PING") == PONG
    assert identities_of(headgate) == ["here"]
    assert client("AUTH", "batch-1", "wrong").startswith(WRONGPASS)
    assert identities_of(headgate) == ["here"]
    assert client("AUTH", "batch-1", "secret") == OK
    assert identities_of(headgate) == ["batch"]
    assert client("AUTH", "batch-1", "wrong").startswith(WRONGPASS)
    assert identities_of(headgate) == ["batch"]
    assert client("RESET") == b"RESET"
    assert identities_of(headgate) == ["here"]


# ---- rules ----


def test_a_rule_excepts_an_identity(unix):
    rules = identity("me", f"peer = uid:{UID}") + "[deny:d]\ncommands = get\nexcept = identity:*\n"
    headgate, path = unix(rules)
    assert headgate.connect()("GET", "k").startswith(b"DENIED d")
    with Client(path) as client:
        assert client("GET", "missing") is None


def test_a_limit_counts_per_identity(redis, pool, make_headgate, tmp_path):
    rules = (
        identity("tcp", "address = ip:127.0.0.1")
        + identity("sock", f"peer = uid:{UID}")
        + "[limit:l]\ncommands = get\nper = identity\nlimit = 3\nwindow = 10m\n"
    )
    path = tmp_path / "h.sock"
    headgate = launch(make_headgate, redis, pool, rules, listen=f"unix:{path}", threads=4)
    answers = [headgate.connect()("GET", "k") for _ in range(5)]
    assert [isinstance(answer, Error) for answer in answers] == [False] * 3 + [True] * 2
    for count in range(4):
        with Client(str(path)) as client:
            assert isinstance(client("GET", "k"), Error) == (count == 3)


# ---- credentials ----


def with_credentials(user="app", password="secret", by="address = ip:127.0.0.1"):
    return identity("here", by, f"upstream_user = {user}", f"upstream_password = {password}")


@pytest.fixture
def locked(make_redis):
    """A Redis that lets nobody in without a password."""
    redis = make_redis("--requirepass", "root")
    redis_client = redis.connect()
    assert redis_client("AUTH", "root") == OK
    for name in ("app", "other"):
        rights = ("~*", "&*", "+@all")
        assert redis_client("ACL", "SETUSER", name, "on", f">{name}-secret", *rights) == OK
    redis.root = redis_client
    return redis


def does_everything(client, user):
    assert client("SET", "k", 1) == OK
    assert client.pipeline([("MULTI",), ("GET", "k"), ("EXEC",)]) == [OK, QUEUED, [b"1"]]
    assert client("WATCH", "k") == OK and client("UNWATCH") == OK
    assert client("EVAL", "return redis.call('GET', KEYS[1])", 1, "k") == b"1"
    assert client("SELECT", 1) == OK and client("SELECT", 0) == OK
    assert client("ACL", "WHOAMI") == user


def test_an_application_holds_no_password(locked, make_headgate, pool):
    rules = with_credentials(password="app-secret")
    headgate = launch(make_headgate, locked, pool, rules, threads=4)
    for number in range(6):
        client = headgate.connect()
        client("HELLO", 2 + number % 2)
        does_everything(client, b"app")
    assert {line["user"] for line in clients_of(headgate).values()} == {"app"}
    assert "app-secret" not in headgate.log()


def test_it_may_authenticate_as_somebody_else(locked, make_headgate, pool):
    headgate = launch(make_headgate, locked, pool, with_credentials(password="app-secret"))
    client = headgate.connect()
    assert client("ACL", "WHOAMI") == b"app"
    assert client("AUTH", "other", "no").startswith(WRONGPASS)
    assert client("ACL", "WHOAMI") == b"app"
    assert client("AUTH", "other", "other-secret") == OK
    does_everything(client, b"other")
    client("RESET")
    does_everything(client, b"app")


def test_a_wrong_password_is_told_once_and_not_shown(locked, make_headgate, pool):
    rules = with_credentials(password="not-it")
    headgate = launch(make_headgate, locked, pool, rules, upstream_wait="200ms")
    client = headgate.connect()
    # At first it may be that Redis has not answered yet.
    answer = wait_for(lambda: b"WRONGPASS" in (told := client("GET", "k")) and told, what="what Redis says")
    assert answer.startswith(b"ERR headgate: no connection to Redis at")
    wait_for(lambda: "password of identity here, user app" in headgate.log(), what="the log line")
    assert "not-it" not in headgate.log()
    client("GET", "k")
    assert headgate.log().count("password of identity") == 1
    # What is put right at Redis is taken without a reload.
    locked.root("ACL", "SETUSER", "app", ">not-it")

    def works():
        with Client(headgate.address) as other:
            return other("SET", "k", 1) == OK

    wait_for(works, what="the password to be taken")


def test_the_others_do_not_notice_a_wrong_password(locked, make_headgate, pool, tmp_path):
    rules = with_credentials(password="not-it", by=f"peer = uid:{UID}")
    path = tmp_path / "h.sock"
    headgate = launch(
        make_headgate, locked, pool, rules, listen=f"unix:{path}", upstream_password="root", upstream_wait="200ms"
    )
    good = headgate.connect()
    wait_for(lambda: good("SET", "k", 1) == OK, what="Redis to be reached")
    with Client(str(path)) as bad:
        assert isinstance(bad("GET", "k"), Error)
        for _ in range(20):
            assert good("GET", "k") == b"1"
        assert stats(headgate)["upstream_up"] == "1"
    assert headgate.log().count("connected to Redis at") == 1


def test_clients_of_another_identity_after_a_reload(locked, make_headgate, pool):
    """Who shares lanes is the other user from then on; who has a lane of its own, or has authenticated, stays who it is."""
    headgate = launch(make_headgate, locked, pool, with_credentials(password="app-secret"))
    client, other = headgate.connect(), headgate.connect()
    assert client("SELECT", 2) == OK
    assert client("ACL", "WHOAMI") == b"app"
    assert other("AUTH", "app", "app-secret") == OK
    reload(headgate, with_credentials(user="other", password="other-secret"), client)
    if pool == "shared":
        wait_for(lambda: client("ACL", "WHOAMI") == b"other", what="the client to move")
        assert client("SET", "where", 1) == OK
        assert locked.root.pipeline([("SELECT", 2), ("EXISTS", "where"), ("SELECT", 0)])[1] == 1
    assert other("ACL", "WHOAMI") == b"app"
    with Client(headgate.address) as newcomer:
        assert newcomer("ACL", "WHOAMI") == b"other"


# ---- who is let in ----


def first_words(address):
    """What a client that asks at once hears."""
    with Client(address) as client:
        with contextlib.suppress(BrokenPipeError):
            # It may be refused already.
            client.request("PING")
        answer = client.read()
        if isinstance(answer, Error):
            with pytest.raises((Closed, OSError)):
                client("PING")
        return answer


LISTS = (
    ("", "", True), ("ip:10.0.0.0/8, ip:127.0.0.0/8", "", True), ("unix", "", False), ("identity:h*", "", True),
    ("identity:far", "", False), ("", "ip:10.0.0.0/8", True), ("", "unix", True), ("ip:127.0.0.0/8", "ip:127.0.0.1", False),
    ("all", "identity:*", False),
)


def test_who_is_let_in(redis, make_headgate):
    rules = identity("far", "address = ip:192.0.2.1") + identity("here", "address = ip:127.0.0.1")
    headgate = launch(make_headgate, redis, "shared", rules)
    there = headgate.connect()
    for allow, refuse, is_let_in in LISTS:
        with headgate.admin() as admin:
            wait_for(lambda: admin("CONFIG", "SET", "allow", allow, "refuse", refuse) == OK, what="the change to be taken")
        assert first_words(headgate.address) == (PONG if is_let_in else DENIED), (allow, refuse)
        assert there("PING") == PONG, "who is there stays"


def test_the_refused_are_counted_and_the_log_is_bounded(redis, make_headgate):
    headgate = launch(make_headgate, redis, "shared", "", refuse="all", threads=4)
    for _ in range(120):
        assert first_words(headgate.address) == DENIED
    counted = stats(headgate)
    assert int(counted["clients_denied_total"]) >= 120
    assert counted["clients_connected"] == "0"
    lines = [line for line in headgate.log().splitlines() if "refused client 127.0.0.1" in line]
    assert lines and len(lines) < 100
    assert "identity none" in lines[0]


def test_the_refused_leave_room(redis, make_headgate):
    """They do not count as clients: max_clients is for those who are let in."""
    headgate = launch(make_headgate, redis, "shared", "", refuse="ip:127.0.0.2", max_clients=2)
    for _ in range(50):
        with socket.socket() as sock:
            sock.bind(("127.0.0.2", 0))
            sock.connect(headgate.address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: stats(headgate)["clients_denied_total"] == "50", what="the refusals")
    wait_for(lambda: first_words(headgate.address) == PONG, what="a place")


def test_each_listener_has_lists_of_its_own(redis, make_headgate, tmp_path):
    other, third = free_port(), tmp_path / "h.sock"
    rules = f"[listener:a]\nlisten = 127.0.0.1:{other}\nallow = ip:10.0.0.0/8\n"
    rules += f"[listener:b]\nlisten = unix:{third}\nallow = identity:me\n" + identity("me", f"peer = uid:{UID}")
    headgate = launch(make_headgate, redis, "shared", rules)
    assert first_words(headgate.address) == PONG
    assert first_words(("127.0.0.1", other)) == DENIED
    assert first_words(str(third)) == PONG
    headgate.write_config(refuse="all")
    reload(headgate, rules.replace("10.0.0.0", "127.0.0.0").replace("= identity:me", "= ip:0.0.0.0/0"))
    wait_for(lambda: first_words(headgate.address) == DENIED, what="the reload")
    assert first_words(("127.0.0.1", other)) == PONG
    assert first_words(str(third)) == DENIED


# ---- behind a proxy ----


def passed_on(headgate, address):
    """A client that a proxy has passed on, by the PROXY protocol."""
    client = Client(headgate.address)
    client.send(f"PROXY TCP4 {address} 10.0.0.1 4711 6379\r\n".encode())
    return client


def test_the_client_counts_and_not_the_proxy(redis, pool, make_headgate):
    rules = identity("proxy", "address = ip:127.0.0.0/8") + identity("shop", "address = ip:10.1.0.0/16")
    options = {"proxy_protocol": "required", "proxy_from": "127.0.0.1", "refuse": "ip:10.1.9.0/24 identity:proxy"}
    headgate = make_headgate(redis, pool=pool, start=False, **options)
    headgate.write_rules(rules)
    headgate.start()
    with passed_on(headgate, "10.1.2.3") as client:
        assert client("PING") == PONG
        assert identities_of(headgate) == ["shop"]
    with passed_on(headgate, "10.1.9.1") as client:
        assert client("PING") == DENIED
    with passed_on(headgate, "127.0.0.1") as client:
        assert client("PING") == DENIED
    with passed_on(headgate, "192.0.2.1") as client:
        assert client("PING") == PONG
        wait_for(lambda: identities_of(headgate) == [""], what="the others to be gone")


def test_the_proxy_is_not_the_peer(redis, make_headgate, tmp_path):
    """Everybody would be who the proxy is."""
    path = tmp_path / "h.sock"
    rules = f"[listener:a]\nlisten = unix:{path}\nproxy_protocol = required\nproxy_from = unix\n"
    headgate = launch(make_headgate, redis, "shared", rules + identity("me", f"peer = uid:{UID}"))
    with Client(str(path)) as client:
        client.send(b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 6379\r\n")
        assert client("PING") == PONG
        assert identities_of(headgate) == [""]
    with Client(str(path)) as client:
        client.send(b"PROXY UNKNOWN\r\n")
        assert client("PING") == PONG
        # Whom it stands for is not known, and need not be the proxy.
        wait_for(lambda: identities_of(headgate) == [""], what="the other to be gone")


# ---- what is at fault ----


FAULTS = (
    ([], "certificate =: nothing says who is meant"), (["address = ip:10.0.0.0/33"], "holds no IP address or network"),
    (["address = host.example"], "holds no IP address or network"), (["peer = 33"], "is none of uid:USER, gid:GROUP"),
    (["peer = uid:no-such-user-here"], "is no user of this machine"),
    (["peer = gid:no-such-group-here"], "is no group of this machine"), (["peer = uid:-1"], "is no user of this machine"),
    (["peer = uid:4294967295"], "is no user of this machine"),
    (["certificate = web"], "is none of cn:GLOB, san:GLOB, issuer:GLOB"), (["certificate = cn:[a"], "opens a class"),
    (["user = app,"], "has nothing beside a comma"),
    (["address = 10.0.0.1", "upstream_user = u"], "upstream_user = u: has no password"),
    (["user = u", "upstream_password = p"], "user = u: comes of AUTH"),
)


def test_a_faulty_identity(tmp_path):
    for options, words in FAULTS:
        result = check_file(tmp_path, options, section="identity:a")
        assert result.returncode == 1 and words in result.stderr, result.stderr


LIST_FAULTS = (
    (["allow = identity:nobody"], "there is no [identity:nobody]"),
    (["refuse = identity:late"], "identity:late goes by the user, who is known only after AUTH"),
    (["refuse = identity:*"], "identity:late goes by the user"), (["allow = 10.0.0.1"], "is none of ip:ADDRESS"),
    (["allow = ip:10.0.0.1/99"], "holds no IP address or network"), (["refuse = user:a"], "is none of ip:ADDRESS"),
    (["refuse = identity:"], "names no identity"), (["refuse = ip:10.0.0.1,,unix"], "has nothing beside a comma"),
)


def test_faulty_lists(tmp_path):
    for options, words in LIST_FAULTS:
        result = check_file(tmp_path, options + ["[identity:late]", "user = u"], section="headgate")
        assert result.returncode == 1 and words in result.stderr, result.stderr
