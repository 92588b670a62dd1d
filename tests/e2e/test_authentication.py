"""A Redis that asks for a password. Rights never pass from one client to another: tests/crosstalk has several users."""

import pytest

from harness.resp import OK, PONG, Error, Map, Status
from harness.target import Target

PASSWORD = "open sesame"
NOAUTH = Error(b"NOAUTH Authentication required.")
WRONGPASS = Error(b"WRONGPASS invalid username-password pair or user is disabled.")


@pytest.fixture(scope="module")
def shared_target(request):
    """In place of the common one: the default user needs a password."""
    target = Target(request.param, "--requirepass", PASSWORD)
    target.password = PASSWORD
    yield target
    target.finish()


def test_nothing_goes_without_a_password(client):
    for command in (
        ("GET", "k"), ("SET", "k", 1), ("PING",), ("MULTI",), ("SUBSCRIBE", "a"), ("BLPOP", "k", 0), ("SELECT", 1),
        ("CLIENT", "SETNAME", "x"), ("CLIENT", "GETNAME"), ("CLIENT", "ID"), ("MONITOR",), ("WAIT", 0, 0),
        ("WATCH", "k"), ("CONFIG", "GET", "*"), ("CLIENT", "REPLY", "OFF"), ("ACL", "WHOAMI"), ("UNSUBSCRIBE",),
    ):
        assert client(*command) == NOAUTH, command
    text = b"EXECABORT Transaction discarded because of: NOAUTH Authentication required."
    assert client("EXEC") == Error(text)


def test_unknown_commands_of_strangers(target):
    """Redis says whichever comes first in its own checks; so does whoever stands before it."""
    for command in (("NONSENSE", "x"), ("GET",), ("CLIENT",), ("AUTH",), ("HELLO", "x"), ("CLIENT", "NONSENSE"),
                    ("CLIENT", "SETINFO", "LIB-NAME", "x"), ("HELLO", 4), ("HELLO", 3), ("HELLO", 3, "SETNAME", "x")):
        assert target.connect()(*command) == target.redis.connect()(*command), command


def test_wrong_password(client):
    for words in ("wrong",), ("default", "wrong"), ("nobody", "x"):
        assert client("AUTH", *words) == WRONGPASS
    assert client("GET", "k") == NOAUTH
    assert client("AUTH", "a", "b", "c") == Error(b"ERR syntax error")
    assert client("AUTH", "default", PASSWORD) == OK
    assert client("PING") == PONG


def test_hello_of_a_stranger(client):
    assert client("HELLO", 3) == Error(
        b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user>"
        b" <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
    )
    assert client("HELLO", 3, "AUTH", "default", "wrong") == WRONGPASS
    assert client("GET", "k") == NOAUTH
    assert isinstance(client("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "x"), Map)
    assert client("CLIENT", "GETNAME") == b"x"


def test_reset_forgets_the_user(client):
    client("AUTH", PASSWORD)
    assert client("RESET") == Status(b"RESET")
    assert client("GET", "k") == NOAUTH
    client("AUTH", PASSWORD)
    assert client("GET", "k") is None


def test_a_user_without_rights_to_client_commands(target):
    """SETNAME is refused to whoever may not call it, and so is everything that Headgate could answer by itself."""
    target.direct()("ACL", "SETUSER", "poor", "on", ">poor", "~*", "+get")
    try:
        client = target.connect()
        assert client("AUTH", "poor", "poor") == OK
        refused = b"NOPERM this user has no permissions to run the '%s' command"
        assert client("CLIENT", "SETNAME", "x") == Error(refused % b"client|setname")
        assert client("CLIENT", "GETNAME") == Error(refused % b"client|getname")
        assert client("SELECT", 1) == Error(refused % b"select")
        assert client("MULTI") == Error(refused % b"multi")
        assert client("SUBSCRIBE", "a") == Error(refused % b"subscribe")
        assert client("GET", "k") is None
    finally:
        target.direct()("ACL", "DELUSER", "poor")
