"""The build that scripts/run would begin with is there before any test that is bound in time."""

import subprocess

import pytest

from harness.servers import REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def built():
    subprocess.run([REPOSITORY / "scripts" / "build", "release"], check=True, capture_output=True)
