"""scripts/run --demo: its clients are at work, what they are there for can be seen, and they end with it."""

import json
import socket
import urllib.request

import pytest

from harness.resp import wait_for
from running import Run, tour_port

# Beside other tests a hundred clients take their time.
PATIENCE = 90


@pytest.fixture
def demo():
    port = tour_port()
    run = Run("--demo", "--port", port)
    run.port = port
    yield run
    run.end()


def test_demo(demo):
    demo.await_start()
    page = f"http://127.0.0.1:{demo.port + 11}/"
    assert page in demo.printed()

    def stats():
        with urllib.request.urlopen(page + "stats.json", timeout=30) as answer:
            return json.load(answer)

    def all_is_there():
        seen = stats()
        names = {operation["name"] for operation in seen["operations"]}
        return (
            seen["clients"]["count"] > 90
            and seen["counters"]["limit_refused_total"] > 10
            and any(lease.get("key") == "lock:demo-report" and lease["held"] > 3 for lease in seen["leases"])
            and seen["big"] and seen["slow"] and seen["events"]
            and any(key.get("key") == "demo:feature-flags" for key in seen["hot_keys"])
            and {"get", "brpop|blocking", "publish", "exec", "eval"} <= names
        )  # fmt: skip

    wait_for(all_is_there, seconds=PATIENCE, what="all that the page is to show")
    assert demo.interrupt() == 130
    for offset in (-1, 0, 10, 11):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", demo.port + offset)).close()
