"""Alternating rounds: every run against a target stands between two runs against a reference, and its ratio is to the
mean of these two, so that a machine that slows down for a while slows both. The mean is the geometric one: with the
other, targets as fast as the reference would have a median below 1, and the more so the noisier the machine is."""
import math
import sys
from dataclasses import dataclass, field
from statistics import geometric_mean, median

import bench_load

OPERATIONS = ("get", "set")
CALIBRATION_SHARE = 0.15
NORMAL_DEVIATION = 1.483     # of normal values: the standard deviation, as a multiple of the median distance
NORMAL_MEDIAN_ERROR = 1.253  # and the standard error of their median, as a multiple of that of their mean


@dataclass
class Series:
    """All runs of one target in one cell, and their ratios to the reference (none for the reference itself)."""
    runs: list = field(default_factory=list)
    ratios: list = field(default_factory=list)

    def middle(self, attribute):
        values = [getattr(run, attribute) for run in self.runs]
        return None if None in values else median(values)

    def ratio(self):
        return median(self.ratios) if self.ratios else None

    def uncertainty(self):
        """The standard error of ratio(), from the median distance to it, as single runs may be far off; of one round
        nobody can tell."""
        if len(self.ratios) < 2:
            return None
        middle = self.ratio()
        deviation = NORMAL_DEVIATION * median(abs(ratio - middle) for ratio in self.ratios)
        return NORMAL_MEDIAN_ERROR * deviation / math.sqrt(len(self.ratios))


class Benchmark:
    """Runs of redis-benchmark that take about so many seconds."""

    def __init__(self, redis, seconds):
        self.redis = redis
        self.seconds = seconds
        self.speed = {}

    def measure(self, target, operation, cell):
        requests = int(self._speed_of(target, operation, cell) * self.seconds)
        run = bench_load.measure(target, self.redis, operation, cell, max(requests, cell.smallest_run()))
        self.speed[target.name, operation, cell] = run.rps
        return run

    def _speed_of(self, target, operation, cell):
        """Requests a second to expect: those of the last run, or those of a short one, sized by a shorter one."""
        key = target.name, operation, cell
        if key not in self.speed:
            requests = cell.smallest_run()
            for _ in range(2):
                # The clock of redis-benchmark goes by milliseconds: of less than one it says "inf".
                speed = min(bench_load.measure(target, self.redis, operation, cell, requests).rps, requests * 1000)
                requests = max(int(speed * self.seconds * CALIBRATION_SHARE), requests)
            self.speed[key] = speed
        return self.speed[key]


class Sitting:
    """series by (target name, operation, cell). measure(target, operation, cell) is one run."""

    def __init__(self, reference, targets, cells, operations, measure):
        self.reference = reference
        self.targets = targets
        self.cells = cells
        self.operations = operations
        self.measure = measure
        self.series = {}

    def run(self, rounds):
        for number in range(rounds):
            for cell in self.cells:
                for operation in self.operations:
                    progress(f"round {number + 1} of {rounds}: {operation} {cell.name}")
                    self._run_cell(operation, cell)

    def _run_cell(self, operation, cell):
        for target in (self.reference, *self.targets):
            bench_load.preload(target, cell)
        before = self._measure(self.reference, operation, cell)
        for target in self.targets:
            run = self._measure(target, operation, cell)
            after = self._measure(self.reference, operation, cell)
            self.series[target.name, operation, cell].ratios.append(run.rps / geometric_mean((before.rps, after.rps)))
            before = after

    def _measure(self, target, operation, cell):
        run = self.measure(target, operation, cell)
        self.series.setdefault((target.name, operation, cell), Series()).runs.append(run)
        return run

    def rows(self):
        """(operation, cell, target name, series) in the order of the table."""
        for cell in self.cells:
            for operation in self.operations:
                for target in (self.reference, *self.targets):
                    yield operation, cell, target.name, self.series[target.name, operation, cell]


def progress(text):
    print(text, file=sys.stderr, flush=True)


def number(value, pattern):
    return "-" if value is None else pattern.format(value)


def verdict(good):
    return "ok" if good else "MISSED"
