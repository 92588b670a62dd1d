"""Fixtures of the fault tests."""

import contextlib
import signal

import pytest


@pytest.fixture
def stopped():
    """with stopped(redis): the process hangs, its sockets stay."""

    @contextlib.contextmanager
    def stop(server):
        server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            server.signal(signal.SIGCONT)

    return stop
