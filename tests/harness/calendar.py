"""A Headgate whose calendar a test sets, apart from that of Redis (tests/preload/clock.c)."""

import os
import pathlib

from harness.servers import BINARY, preloaded

LIBRARY = pathlib.Path(os.environ.get("HEADGATE_CLOCK_LIBRARY", pathlib.Path(BINARY).parent / "headgate-clock.so"))


class Calendar:
    """set(seconds): ahead of the system's. passed: so many more seconds seem to be over."""

    def __init__(self, directory):
        assert LIBRARY.exists(), f"no {LIBRARY}: build it, or name it in HEADGATE_CLOCK_LIBRARY"
        self.path = directory / "calendar"
        self.set(0)

    def set(self, seconds, passed=0):
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{seconds} {passed}")
        os.replace(fresh, self.path)

    def environment(self):
        """For a process that is to have it."""
        return preloaded(LIBRARY, self.path.parent, "HEADGATE_TEST_CLOCK", self.path)
