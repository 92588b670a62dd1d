"""headgate-probe: Headgate with the policies that only tests use (tests/policy/probe.h)."""

import os
import pathlib

from harness.resp import Error, wait_for
from harness.servers import BINARY, Headgate

PROBE_BINARY = os.environ.get("HEADGATE_PROBE_BINARY", str(pathlib.Path(BINARY).parent / "headgate-probe"))


def refused(order):
    """What the probe answers to a request that it is to refuse."""
    return Error(f"PROBE refused {order}".encode())


class Probe(Headgate):
    """headgate-probe, and what its policies have counted."""

    def start(self):
        assert os.access(PROBE_BINARY, os.X_OK), f"no {PROBE_BINARY}: build it, or name it in HEADGATE_PROBE_BINARY"
        self.launch([PROBE_BINARY, "-c", str(self.config_path)])
        self.await_port(self.address)

    def counts(self, key="probe:counts"):
        with self.connect() as client:
            lines = client("GET", key).decode().splitlines()
        return {name: int(value) for name, value in (line.split(":") for line in lines)}

    def await_counts(self, held=0, **expected):
        """Until each of the probe's counts is as said. A held request may be asked about early, and be held again."""

        def reached():
            counts = self.counts()
            return counts["held"] >= held and expected.items() <= counts.items()

        try:
            wait_for(reached)
        except AssertionError:
            raise AssertionError(f"{self.counts()} instead of {expected} with {held} held") from None

    def await_balance(self):
        """Until no request is open; every one that was passed or held to the end has had its one reply."""
        wait_for(lambda: self.counts()["open"] == 0, what="the end of all requests")
        counts = self.counts()
        ends = counts["reply"] + counts["local"] + counts["lost"] + counts["ownerless"]
        assert ends == counts["requests"] - counts["replied"] - counts["closed"], counts
        watched = self.counts("probe:watched")
        assert watched["open"] == 0 and watched["passed"] == watched["requests"], watched
        ends = watched["reply"] + watched["local"] + watched["lost"] + watched["ownerless"]
        assert ends == watched["requests"], watched
