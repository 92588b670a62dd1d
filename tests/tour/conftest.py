"""The build that scripts/run would begin with is there before any test that is bound in time."""

import fcntl
import subprocess

import pytest

from harness.servers import REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def built():
    """One process of the tests after the other, and none beside a scripts/run: it locks the same file."""
    tree = REPOSITORY / "build"
    tree.mkdir(exist_ok=True)
    with open(tree / ".scripts-run", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([REPOSITORY / "scripts" / "build", "release"], check=True, capture_output=True)
