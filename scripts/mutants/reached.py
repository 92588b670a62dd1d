"""For pytest (-p mutants.reached): a line of JSON in HEADGATE_MUTANTS_FOLDER when a test begins, for those that never end, and
one when it ends: its result, how long it took, and which mutants it has reached. Headgate notes these in a file of the process
of pytest, which is emptied before each test, as a server of many tests goes on noting."""

import json
import mmap
import os
import pathlib
import time

import pytest

BYTES = 65536  # MUTANTS_MOST of mutants.h


class Reached:
    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(BYTES))
        # Headgate may run as another user.
        path.chmod(0o666)
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), BYTES)

    def sites(self):
        return [number for number, byte in enumerate(self.map[:]) if byte]


if "HEADGATE_MUTANTS_FOLDER" in os.environ:
    FOLDER = pathlib.Path(os.environ["HEADGATE_MUTANTS_FOLDER"])
    REACHED = Reached(FOLDER / f"{os.getpid()}.reached")
    # Before the harness takes its copy.
    os.environ["HEADGATE_MUTANTS_REACHED"] = str(REACHED.path)
    OUTCOMES = []

    def tell(**line):
        with open(FOLDER / f"{os.getpid()}.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def result():
        """None of a test that was interrupted. A whole one is set up, called and torn down."""
        known = [outcome for outcome in ("failed", "skipped") if outcome in OUTCOMES]
        return known[0] if known else "passed" if len(OUTCOMES) == 3 else None

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item):
        name = item.nodeid
        for mark in item.iter_markers("xdist_group"):
            name = name.removesuffix(f"@{mark.args[0]}")
        tell(test=name, result=None)
        OUTCOMES.clear()
        REACHED.map[:] = bytes(BYTES)
        start = time.monotonic()
        yield
        tell(test=name, result=result(), seconds=round(time.monotonic() - start, 3), sites=REACHED.sites())

    def pytest_collection_finish(session):
        """A test that hangs is ended earlier than its conftest would."""
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "TEST_TIMEOUT"):
                plugin.TEST_TIMEOUT = float(os.environ.get("HEADGATE_MUTANTS_SECONDS", plugin.TEST_TIMEOUT))

    def pytest_runtest_logreport(report):
        OUTCOMES.append(report.outcome)
