#!/usr/bin/env python3
"""Counts the tests in JUnit files, as ctest and pytest write them, and prints "PASSED FAILED"; with --tell FOLDER which tests took
longest, and how each that failed is run alone. A file has the name of its stage.

A CTest test that is a Criterion binary counts as the tests inside it, which Criterion sums up in its output. A test
that was skipped did not pass: it counts as failed.
"""
import pathlib
import re
import shlex
import sys
import xml.etree.ElementTree

CRITERION_SUMMARY = re.compile(r"Tested: \d+ \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
SLOWEST = 10
NOT_PASSED = ("failure", "error", "skipped")


def count_case(case):
    passed = all(case.find(kind) is None for kind in NOT_PASSED)
    summary = CRITERION_SUMMARY.search(re.sub(r"\x1b\[[0-9;]*m", "", case.findtext("system-out") or ""))
    if summary is None:
        return (1, 0) if passed else (0, 1)
    passing, failing, crashing = map(int, summary.groups())
    # A binary that ended badly although all of its tests passed is a failure of its own: a leak, a crash at exit.
    return passing, failing + crashing or (0 if passed else 1)


def name_of(case):
    """As scripts/test takes it behind --."""
    folder, _, name = (case.get("classname") or "").rpartition(".")
    return f"{folder.replace('.', '/')}/{name}.py::{case.get('name')}" if folder.startswith("tests") else case.get("name") or name


def tell(folder):
    cases = [(case, path.stem) for path in folder.glob("*.xml") for case in xml.etree.ElementTree.parse(path).iter("testcase")]
    print("the slowest:")
    for case, stage in sorted(cases, key=lambda found: -float(found[0].get("time") or 0))[:SLOWEST]:
        print(f"{float(case.get('time') or 0):6.1f} s  {stage:10} {name_of(case)}")
    for command in dict.fromkeys(f"scripts/test {stage} -- {shlex.quote(name_of(case))}" for case, stage in cases if count_case(case)[1]):
        print(f"failed: {command}")


def count_file(path):
    # pytest reports a test that failed and whose teardown failed, too, as two cases of one name.
    counts = {}
    for number, case in enumerate(xml.etree.ElementTree.parse(path).iter("testcase")):
        name = (case.get("classname"), case.get("name") or number)
        passed, failed = count_case(case)
        previous = counts.get(name, (passed, 0))
        counts[name] = (min(previous[0], passed), max(previous[1], failed))
    return counts.values()


def main(paths):
    counts = [count for path in paths for count in count_file(path)]
    print(sum(passed for passed, _ in counts), sum(failed for _, failed in counts))


if __name__ == "__main__":
    tell(pathlib.Path(sys.argv[2])) if sys.argv[1] == "--tell" else main(sys.argv[1:])
