"""A redis-server for each test of a script of lua/."""

import pytest
from asking import Asker

from harness.resp import Client


@pytest.fixture
def ask(redis):
    with Client(redis.socket_path) as client:
        yield Asker(client)
