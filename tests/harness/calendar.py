"""A Headgate whose calendar a test sets, apart from that of Redis (tests/preload/clock.c)."""

import os
import pathlib

from harness.servers import BINARY, child_environment

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
        """For a process that is to have it. gcc's address sanitizer wants to be loaded first, and need not be."""
        sanitizer = child_environment()["ASAN_OPTIONS"] + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(LIBRARY), "HEADGATE_TEST_CLOCK": str(self.path), "ASAN_OPTIONS": sanitizer}
