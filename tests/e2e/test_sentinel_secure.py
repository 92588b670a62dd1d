"""Real sentinels and servers with TLS and passwords."""

import pytest

from harness import tls
from harness.admin import text
from harness.resp import OK, wait_for
from harness.sentinel import Group

OPTIONS = {
    "plain": {"speaks_tls": False},
    "tls": {"speaks_tls": True},
}


@pytest.mark.parametrize("transport", OPTIONS)
def test_passwords_and_tls(make_headgate, transport):
    """Those of the sentinels and those of the servers are others; a failover changes nothing of it."""
    group = Group(password="of-servers", sentinel_password="of-sentinels", **OPTIONS[transport])
    try:
        headgate = make_headgate(
            group.url,
            tls=False,
            upstream_password="of-servers",
            sentinel_password="of-sentinels",
            upstream_wait="60s",
            **(tls.towards_redis() if transport == "tls" else {}),
        )
        before = group.master()
        with headgate.connect() as client:
            assert client("SET", "k", "v") == OK
            group.failover()
            after = group.await_agreement()
            assert after is not before
            port = str(after.port).encode()
            wait_for(lambda: client("CONFIG", "GET", "port")[1] == port, 30, "the new master")
        with headgate.admin() as admin:
            wait_for(lambda: text(admin("NODES")).count(" state=up ") == 6, 60, "all servers and sentinels to be up")
    finally:
        group.discard()
