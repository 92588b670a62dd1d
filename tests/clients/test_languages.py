"""Client libraries of other languages: one program each, run against Redis and through Headgate in both modes."""

import os
import pathlib
import subprocess

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
TIMEOUT = 60

# Where Debian puts the modules; a node that is not Debian's does not look there by itself.
DEBIAN_NODE_PATH = "/usr/share/nodejs"

LIBRARIES = [
    pytest.param(["ruby", PROGRAMS / "ruby_redis.rb"], ["ruby"], id="ruby-redis"),
    pytest.param(["ruby", PROGRAMS / "ruby_redis.rb"], ["hiredis"], id="ruby-redis-hiredis"),
    pytest.param(["php", PROGRAMS / "php_redis.php"], [], id="php-redis"),
    pytest.param(["php", PROGRAMS / "predis.php"], [], id="predis"),
    pytest.param(["perl", PROGRAMS / "perl_redis.pl"], ["Redis"], id="perl-Redis"),
    pytest.param(["perl", PROGRAMS / "perl_redis.pl"], ["Redis::Fast"], id="perl-Redis-Fast"),
    pytest.param(["/usr/bin/node", PROGRAMS / "node_redis.js"], [], id="node-redis"),
    pytest.param(["lua5.1", PROGRAMS / "lua_redis.lua"], [], id="lua-redis"),
]


@pytest.mark.parametrize("command, arguments", LIBRARIES)
def test_library(target, command, arguments):
    host, port = target.address
    try:
        result = subprocess.run(
            [*map(str, command), host, str(port), *arguments],
            capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, "NODE_PATH": DEBIAN_NODE_PATH},
        )
    except FileNotFoundError:
        pytest.fail(f"{command[0]} is not installed: install the packages of tests/clients/packages.txt")
    assert result.returncode == 0, (
        f"the packages of tests/clients/packages.txt are needed\n{result.stdout}\n{result.stderr}"
    )
    assert result.stdout.strip().endswith("fine"), result.stdout
