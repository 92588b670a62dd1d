"""All wire tests are about plain connections; one in so many is repeated with TLS on both sides. Which, a hash of its
name says, so that it is the same each time. HEADGATE_WIRE_TLS=1 repeats them all."""

import os
import zlib

import pytest

from harness import tls

ONE_IN = int(os.environ.get("HEADGATE_WIRE_TLS", 4))


def pytest_generate_tests(metafunc):
    metafunc.parametrize("transport", ["plain", "tls"], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if is_left_out(item)]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)


def is_left_out(item):
    parameters = getattr(item, "callspec", None) and item.callspec.params or {}
    is_by_tls = "wire" in item.path.parts and parameters.get("transport") == "tls"
    return is_by_tls and zlib.crc32(item.nodeid.encode()) % ONE_IN != 0


@pytest.fixture(autouse=True)
def transport(request, monkeypatch):
    monkeypatch.setattr(tls, "TRANSPORT", request.param)
