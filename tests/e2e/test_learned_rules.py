"""Rules and commands that only Redis knows: categories mean them, and limits count their keys."""

import os
import pathlib

import pytest

from harness.resp import Error
from harness.servers import BINARY

MODULE = pathlib.Path(os.environ.get("HEADGATE_KEYED_MODULE", pathlib.Path(BINARY).parent / "keyed_module.so"))


@pytest.fixture
def client(make_redis, make_headgate):
    """Gives a client of a Headgate with such rules."""
    assert MODULE.exists(), f"no {MODULE}: build it, or name it in HEADGATE_KEYED_MODULE"
    redis = make_redis("--loadmodule", str(MODULE))

    def connect(rules):
        headgate = make_headgate(redis, start=False)
        headgate.write_rules(rules)
        headgate.start()
        return headgate.connect()

    return connect


def count(client, *keys):
    return client("KEYED.COUNTED", "option", len(keys), *keys)


def test_a_category_means_them(client):
    for commands, is_meant in {"@read !get": True, "@write @read": True, "* !@read": False, "get @admin": False}.items():
        reply = count(client(f"[deny:d]\ncommands = {commands}\n"), "a")
        assert reply == (Error(b"DENIED d: this command is not allowed") if is_meant else 4), commands


@pytest.mark.parametrize("commands", ["* !@read !@write", "@read"])
def test_what_is_not_said_to_only_read_may_write(client, commands):
    """A rule that lets reads alone pass does not let it pass."""
    denied = client(f"[deny:d]\ncommands = {commands}\n")
    assert denied("KEYED.CALLED", "KEY", "a") == Error(b"DENIED d: this command is not allowed")


def test_limits_count_their_keys(client):
    limited = client("[limit:t]\ncommands = @read\nkeys = {*}:*\nper = key\nlimit = 2\nwindow = 1h\n")
    assert [count(limited, "t1:a", "t1:b"), count(limited, "t1:c"), count(limited, "t2:a"), count(limited, "x")] == [5, 4, 4, 4]
    assert count(limited, "t2:a", "t1:a").startswith(b"RATELIMITED t: 2 in 1h per key exceeded")
    assert limited("KEYED.BEHINDWORD", "option", "keys", "t1:a").startswith(b"RATELIMITED t: ")
    assert limited("KEYED.STILL", "t1:a").startswith(b"RATELIMITED t: ")
    assert limited("GET", "t1:a").startswith(b"RATELIMITED t: ")
    assert count(limited, "t2:a") == 4


def test_their_keys_are_a_cost(client):
    limited = client("[limit:t]\ncommands = @read\nper = all\ncost = keys\nlimit = 3\nwindow = 1h\n")
    assert count(limited, "a", "b") == 5
    assert count(limited, "a", "b").startswith(b"RATELIMITED t: ")
    assert count(limited, "a") == 4
