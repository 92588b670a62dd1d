"""Which tests could notice which mutant, and which do."""

import concurrent.futures
import time

from mutants.running import PYTEST_STAGES
from mutants.tree import ROOT

# A batch takes so many seconds of tests, each next one twice as many.
FIRST_BATCH = 4
# A test hangs that takes so many times as long as without a mutant, and so many seconds more.
HANG_FACTOR, HANG_SECONDS = 5, 30
# Tests of Python beside each other, which mostly wait: in one trial, and for each processor.
BESIDE, BESIDE_MOST = 4, 8
NOTICED = ("failed", "hung")
# Each of these loads the machine by itself.
ALONE = ("crosstalk",)


def look(tests, runner, stage, jobs, is_quick):
    """Runs that stage with no mutant active, and keeps of each test {stage, result, seconds, sites}."""
    if stage in PYTEST_STAGES:
        quick = [line for line in (ROOT / "tests" / "quick.txt").read_text().splitlines() if line.startswith(f"tests/{stage}/")]
        ended = runner.run_pytest(is_quick and quick or [f"tests/{stage}"], None, beside=BESIDE_MOST * jobs)
    else:
        commands = runner.ctests([stage])
        with concurrent.futures.ThreadPoolExecutor(1 if stage in ALONE else jobs) as pool:
            ended = dict(zip(commands, pool.map(lambda command: runner.run_ctest(command, 300), commands.values())))
    tests.add({name: dict(test, stage=stage) for name, test in ended.items()})
    unused = [name for name, test in ended.items() if test["result"] in NOTICED]
    print(f"{len(ended)} tests; not used, as they fail without a mutant: {', '.join(unused) or 'none'}", flush=True)


class Trials:
    """Of each mutant {state, stages, by, how, seconds, ran, chance}, as results."""

    def __init__(self, results, tests, runner, options):
        self.results, self.tests, self.runner, self.options = results, tests.items, runner, options
        self.commands = runner.ctests(options.stages)

    def run(self, sites):
        left = [site for site in sites if str(site["number"]) not in self.results.items]
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.one, left))

    def one(self, site):
        result = self.trial(site["number"], self.options.stages)
        if self.options.each_stage and result["state"] == "noticed":
            for stage in set(self.options.stages) - set(result["stages"]):
                result["stages"][stage] = self.trial(site["number"], [stage])["state"]
        self.results.add({str(site["number"]): result})
        what = f"by {result['by']} ({result['how']})" if result["by"] else ""
        print(f"{len(self.results.items):4d}  {site['path']}:{site['line']} {site['kind']}: {result['state']} {what}", flush=True)

    def trial(self, number, stages):
        """Runs the tests of those stages until one notices the mutant. One that fails has to fail again."""
        left, size, start = self.reaching(number, stages), FIRST_BATCH, time.monotonic()
        result = {"state": "not noticed" if left else "not reached", "stages": {}, "by": None, "ran": 0, "chance": []}
        while left and not result["by"]:
            batch = self.batch(left, size, self.options.seconds - (time.monotonic() - start))
            if not batch:
                result["state"] = "out of time"
                break
            ended = self.run_batch(number, batch)
            for name in (name for name, test in ended.items() if test["result"] in NOTICED):
                how = ended[name]["result"]
                if how == "hung" or self.run_batch(number, [name]).get(name, {"result": "hung"})["result"] in NOTICED:
                    result |= {"state": "noticed", "by": name, "how": how, "stages": {self.tests[name]["stage"]: "noticed"}}
                    break
                result["chance"].append(name)
            # What did not even begin is not tried for ever.
            left = [name for name in left if name not in (ended or batch)]
            size *= 2
            result["ran"] += len(ended)
        return dict(result, seconds=round(time.monotonic() - start, 1))

    def reaching(self, number, stages):
        """Those that are sound, the most particular first."""
        sound = {name: test for name, test in self.tests.items() if test["stage"] in stages and test["result"] == "passed"}
        names = [name for name, test in sound.items() if number in test["sites"]]
        return sorted(names, key=lambda name: (len(sound[name]["sites"]), sound[name]["seconds"]))

    def batch(self, left, size, most):
        """The next of them that take so many seconds together, without those that take more than there is."""
        taken = []
        for name in left:
            together = self.seconds([*taken, name])
            if taken and together > size:
                break
            if together <= most:
                taken.append(name)
        return taken

    def seconds(self, names):
        return sum(self.tests[name]["seconds"] for name in names)

    def run_batch(self, number, batch):
        """{name: what came of it}, up to the first that notices it."""
        ended = {}
        for name in (name for name in batch if name in self.commands):
            ended[name] = self.runner.run_ctest(self.commands[name], HANG_SECONDS + HANG_FACTOR * self.seconds([name]), number)
            if ended[name]["result"] in NOTICED:
                return ended
        others = [name for name in batch if name not in self.commands]
        if others:
            of_one = HANG_SECONDS + HANG_FACTOR * max(self.seconds([name]) for name in others)
            limit = 2 * of_one + HANG_FACTOR * self.seconds(others)
            ended |= self.runner.run_pytest(others, limit, number, min(BESIDE, len(others) // 2), ["-x"], of_one)
        return ended
