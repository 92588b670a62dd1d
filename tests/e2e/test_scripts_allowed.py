"""Whether Headgate may run scripts is found out at start and with every new connection, and said where it matters."""

import pytest

from harness.admin import stats
from harness.resp import OK, wait_for
from harness.rules import launch

NEEDS = {
    "lease:a": "[lease:a]\nkeys = lock:*\n",
    "limit:a": "[limit:a]\nlimit = 1\nwindow = 1s\nscope = global\n",
    "latency": "[latency]\nenabled = on\n",
}
NEEDS_NOT = "[limit:b]\nlimit = 1000\nwindow = 1s\n[deny:b]\nkeys = x*\n[latency]\n"
WARNING = "warning worker: scripts do not work on this Redis: NOPERM"


def allow(redis, *rights):
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "sidecar", "on", ">secret", "resetkeys", "~*", "+@all", *rights) == OK


def start(make_headgate, redis, rules, **options):
    return launch(make_headgate, redis, "shared", rules, upstream_user="sidecar", upstream_password="secret", **options)


def says(headgate, text, count=1):
    return lambda: headgate.log().count(text) >= count


@pytest.mark.parametrize(
    "needs, right, why",
    (("lease:a", "-eval", "'eval'"), ("limit:a", "-evalsha", "'evalsha'"), ("latency", "-time", "can't run this command")),
)
def test_a_user_who_may_run_no_scripts(redis, make_headgate, needs, right, why):
    allow(redis, right)
    headgate = start(make_headgate, redis, NEEDS[needs])
    warning = "warning worker: scripts do not work on this Redis: "
    wait_for(says(headgate, warning), what="the warning")
    (line,) = [line for line in headgate.log().splitlines() if warning in line]
    assert f"[{needs}] needs them" in line and "+eval +evalsha +time" in line and why in line
    # And again when the connection was made anew, as that may have changed meanwhile.
    redis.restart()
    allow(redis, right)
    wait_for(says(headgate, warning, 2), 30, "it to be said again")


def test_nobody_needs_them(redis, make_headgate):
    allow(redis, "-eval")
    headgate = start(make_headgate, redis, NEEDS_NOT)
    wait_for(says(headgate, "info  worker: scripts do not work on this Redis: NOPERM"), what="it to be told")
    assert "warning worker" not in headgate.log()
    # Until a reload brings a rule that does.
    headgate.write_rules(NEEDS["lease:a"])
    headgate.signal(1)
    wait_for(says(headgate, WARNING), what="the warning")


def lanes_opened(headgate):
    return int(stats(headgate, "upstream")["lanes_opened_total"])


def test_a_user_who_may(redis, make_headgate):
    allow(redis)
    headgate = start(make_headgate, redis, NEEDS["lease:a"])
    client = headgate.connect()
    assert client("SET", "lock:a", "x", "NX", "EX", "100") == OK
    opened = lanes_opened(headgate)
    redis.restart()
    allow(redis)
    wait_for(lambda: lanes_opened(headgate) > opened, 30, "the connection")
    wait_for(headgate.serves, 30, "clients to be served")
    assert "scripts do not work" not in headgate.log()


def test_a_password_that_headgate_does_not_have(make_redis, make_headgate):
    """Clients authenticate by themselves, and nothing that Headgate does on its own account can be done."""
    redis = make_redis("--requirepass", "secret")
    headgate = launch(make_headgate, redis, "shared", NEEDS["lease:a"], access_check="100ms")
    wait_for(says(headgate, "warning worker: scripts do not work on this Redis: Redis wants a password"), what="a warning")
    assert "upstream_password is not set; [lease:a] needs them" in headgate.log()
    client = headgate.connect()
    assert client("AUTH", "secret") == OK
    assert client("CONFIG", "SET", "requirepass", "") == OK
    wait_for(lambda: int(stats(headgate, "upstream")["lanes_shared"]) == 1, 30, "it to be open")
    assert client("CONFIG", "SET", "requirepass", "other") == OK
    wait_for(says(headgate, "scripts do not work on this Redis: Redis wants a password", 2), 30, "it to be said again")
