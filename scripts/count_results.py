#!/usr/bin/env python3
"""Counts the tests in JUnit files, as ctest and pytest write them, and prints "PASSED FAILED".

A CTest test that is a Criterion binary counts as the tests inside it, which Criterion sums up in its output. A test
that was skipped did not pass: it counts as failed.
"""
import re
import sys
import xml.etree.ElementTree

CRITERION_SUMMARY = re.compile(r"Tested: \d+ \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
NOT_PASSED = ("failure", "error", "skipped")


def count_case(case):
    passed = all(case.find(kind) is None for kind in NOT_PASSED)
    summary = CRITERION_SUMMARY.search(re.sub(r"\x1b\[[0-9;]*m", "", case.findtext("system-out") or ""))
    if summary is None:
        return (1, 0) if passed else (0, 1)
    passing, failing, crashing = map(int, summary.groups())
    # A binary that ended badly although all of its tests passed is a failure of its own: a leak, a crash at exit.
    return passing, failing + crashing or (0 if passed else 1)


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
    main(sys.argv[1:])
