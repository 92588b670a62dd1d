"""A client library that is not Python's: Debian's node-redis 4, against Redis and through Headgate in both modes."""

import os
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).parent / "node_redis.js"
# Where Debian puts the modules; a node that is not Debian's does not look there by itself.
DEBIAN_NODE_PATH = "/usr/share/nodejs"


def test_node_redis(target):
    result = subprocess.run(
        ["/usr/bin/node", PROGRAM, *map(str, target.address)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "NODE_PATH": DEBIAN_NODE_PATH},
    )
    assert result.returncode == 0 and result.stdout.strip().endswith("fine"), result.stdout + result.stderr
