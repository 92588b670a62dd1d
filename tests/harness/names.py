"""Names whose addresses a test decides on, as a name server would (tests/preload/names.c)."""

import os
import pathlib

from harness.servers import BINARY, child_environment

LIBRARY = pathlib.Path(os.environ.get("HEADGATE_NAMES_LIBRARY", pathlib.Path(BINARY).parent / "headgate-names.so"))


class Names:
    """set(name, what): its addresses with blanks between, "!" or "?", as tests/preload/names.c has it."""

    def __init__(self, directory):
        assert LIBRARY.exists(), f"no {LIBRARY}: build it, or name it in HEADGATE_NAMES_LIBRARY"
        self.path = directory / "names"
        self.known = {}
        self.write()

    def set(self, name, what):
        self.known[name] = what
        self.write()

    def write(self):
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{name} {what}\n" for name, what in self.known.items()))
        os.replace(fresh, self.path)

    def environment(self):
        """For a process that is to find them. gcc's address sanitizer wants to be loaded first, and need not be."""
        sanitizer = child_environment()["ASAN_OPTIONS"] + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(LIBRARY), "HEADGATE_TEST_NAMES": str(self.path), "ASAN_OPTIONS": sanitizer}
