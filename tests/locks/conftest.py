"""The tests of this folder run beside each other, since nearly all of their time goes by waiting for leases to end.

Each is an ordinary function of its parameters. It runs in a thread; pytest, which asks for one after the other, waits
for what it came to. Servers and programs are each test's own.
"""

import concurrent.futures
import os
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent

AT_ONCE = int(os.environ.get("LOCKS_AT_ONCE", "24"))
OUTCOMES = pytest.StashKey()


@pytest.fixture(autouse=True)
def sound_logs():
    """Each laboratory looks at the log of its own Headgate when it ends; others may be at work."""


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    executor = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    items = [item for item in session.items if item.path.is_relative_to(HERE)]
    session.config.stash[OUTCOMES] = executor, {
        item.nodeid: executor.submit(item.obj, **item.callspec.params) for item in items
    }


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    _, outcomes = pyfuncitem.config.stash[OUTCOMES]
    outcomes[pyfuncitem.nodeid].result()
    return True


def pytest_sessionfinish(session):
    if OUTCOMES in session.config.stash:
        executor, _ = session.config.stash[OUTCOMES]
        executor.shutdown(cancel_futures=True)
