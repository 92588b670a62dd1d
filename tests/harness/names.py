"""Names whose addresses a test decides on, as a name server would (tests/preload/names.c)."""

import os
import pathlib

from harness.servers import BINARY, preloaded

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
        """For a process that is to find them."""
        return preloaded(LIBRARY, self.path.parent, "HEADGATE_TEST_NAMES", self.path)
