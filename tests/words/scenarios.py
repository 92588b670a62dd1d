"""Runs requests through Headgate and on the twin, compares, lets all leave, and looks at what is left."""

import time

from differences import (
    ends_valkey,
    is_apart,
    is_not_compared,
    is_of_the_moment,
    is_unknown,
    refuses_a_name,
    says_unknown_alike,
    that_are_always_told,
)
from harness.resp import Error, Push, encode, same
from judge import faults_of_connections, faults_of_victims

AGREEMENT = 3.0
MOST_OF_ONE_BATCH = 3
NONCE = b"still-in-step"


class Scenario:
    """What one client does. steps: bytes; each step is sent when the one before is answered. forms: what is in them.
    names: the commands in it, where there are no forms. found_by_chance: it has a name with a NUL."""

    def __init__(self, steps, forms=(), names=(), found_by_chance=False, what=None):
        self.steps = steps
        self.forms = forms
        self.names = set(names) | {form.row.name for form in forms}
        self.found_by_chance = found_by_chance or any(form.is_name_with_nul for form in forms)
        self.all_bytes = b"".join(steps).upper()
        self.what = what or ", ".join(form.what for form in forms)

    def __repr__(self):
        shown = " | ".join(repr(step[:300]) for step in self.steps)
        return f"{self.what}: {shown}"


class Finding:
    def __init__(self, scenarios, faults):
        self.scenarios = scenarios
        self.faults = faults

    def __repr__(self):
        return str(self)

    def __str__(self):
        return "\n    ".join([repr(scenario) for scenario in self.scenarios[:6]] + [fault[:600] for fault in self.faults[:6]])


def is_counted_alike(ours, theirs):
    return len(told_by(ours)) == len(told_by(theirs)) and ours.closed == theirs.closed


def told_by(party):
    return that_are_always_told(party.replies)


def is_settled(scenario, ours, theirs):
    if is_not_compared(scenario) or is_counted_alike(ours, theirs):
        return True
    return bool(scenario.found_by_chance and ours.replies and theirs.replies)


def kind(reply):
    return "error" if isinstance(reply, Error) else "push" if isinstance(reply, Push) else "reply"


def difference(scenario, ours, theirs):
    """How the client was told otherwise than by Redis, as text, or None."""
    if is_not_compared(scenario):
        return None
    if scenario.found_by_chance and not (theirs.replies and is_unknown(theirs.replies[0])):
        # The twin found it, and may wait. Redis itself would have, or not.
        return None if ours.replies and is_unknown(ours.replies[0]) else f"told {shown(ours)}, not that it is unknown"
    if not is_counted_alike(ours, theirs):
        return f"told {shown(ours)}, but directly {shown(theirs)}"
    for mine, direct in zip(told_by(ours), told_by(theirs)):
        if same(mine, direct) or says_unknown_alike(mine, direct) or refuses_a_name(scenario, mine):
            continue
        if is_of_the_moment(scenario) and kind(mine) == kind(direct):
            continue
        return f"told {mine!r:.300}, but directly {direct!r:.300}"
    return None


def shown(party):
    return f"{party.replies!r:.300}{' closed' if party.closed else ''}"


def perform(world, scenarios):
    """Faults of what the clients of these scenarios are told. All have left afterwards."""
    ours = [world.through() for _ in scenarios]
    theirs = [world.direct() for _ in scenarios]
    for number in range(max(len(scenario.steps) for scenario in scenarios)):
        for scenario, mine, direct in zip(scenarios, ours, theirs):
            if number < len(scenario.steps):
                mine.write(scenario.steps[number])
                direct.write(scenario.steps[number])
        await_agreement(world, scenarios, ours, theirs)
    faults = []
    for scenario, mine, direct in zip(scenarios, ours, theirs):
        fault = difference(scenario, mine, direct)
        if fault:
            faults.append((scenario, fault))
        mine.close()
        direct.close()
    return faults


def await_agreement(world, scenarios, ours, theirs):
    """Until each client has as many replies as its twin, or has waited long enough for what is missing."""
    deadline = time.monotonic() + AGREEMENT
    rounds = 10 if any(len(step) > 16000 for scenario in scenarios for step in scenario.steps) else 3
    while True:
        world.twin_observer.settle(rounds)
        world.settle()
        news = [party.drain() for party in ours + theirs]
        if all(is_settled(scenario, *pair) for scenario, pair in zip(scenarios, zip(ours, theirs))):
            return
        if time.monotonic() > deadline:
            return
        if not any(news):
            time.sleep(0.002)


def faults_left(world, victims):
    """Faults of what is left when all have gone; with victims, of what those who come next are told, too."""
    faults = [] if world.await_rest() else [f"not at rest: {world.clients()} {world.lanes()}"]
    lanes, connections = world.lanes_and_connections()
    faults += faults_of_connections(connections, lanes, world.fresh)
    if victims:
        faults += faults_of_victims(world, world.renamed.get("MULTI", "MULTI"))
        if not world.await_rest():
            faults.append(f"not at rest after the victims: {world.clients()} {world.lanes()}")
    return faults


def findings_one_by_one(world, scenarios, faults):
    """Runs again, one by one, what shared a fault, so that a finding names who did it."""
    findings = []
    for scenario in scenarios:
        if len(findings) == MOST_OF_ONE_BATCH:
            break
        world.restart_headgate()
        told = [fault for _, fault in perform(world, [scenario])]
        told += faults_left(world, victims=True)
        if told:
            findings.append(Finding([scenario], told))
    world.restart_headgate()
    return findings or [Finding(scenarios, ["only together: " + fault for fault in faults])]


def scenario_of_form(form, number, manner):
    """manner: alone, or with an ECHO behind it in the same write or in a later one."""
    request = form.bytes(number)
    echo = encode("ECHO", NONCE)
    steps = {"alone": [request], "echo": [request + echo], "later": [request, echo]}[manner]
    return Scenario(steps, [form])


class Runner:
    """Runs a stream of scenarios in batches. Counts what it did, and keeps the findings."""

    def __init__(self, world, batch=24, victims_after=48, most_findings=40):
        self.world = world
        self.batch = batch
        self.victims_after = victims_after
        self.most_findings = most_findings
        self.count = 0
        self.findings = []
        self.waiting = []
        self.since_victims = []

    def add(self, scenario):
        if self.world.is_valkey and ends_valkey(scenario):
            return
        if is_apart(scenario):
            self._run([scenario])
        else:
            self.waiting.append(scenario)
            if len(self.waiting) == self.batch:
                self.flush()

    def flush(self):
        if self.waiting:
            scenarios, self.waiting = self.waiting, []
            self._run(scenarios)

    def _run(self, scenarios):
        before = self.count // 2000
        self.count += len(scenarios)
        self.since_victims += scenarios
        told = perform(self.world, scenarios)
        left = faults_left(self.world, victims=False)
        if told or left:
            faults = [fault for _, fault in told] + left
            self.findings += findings_one_by_one(self.world, scenarios if left else [scenario for scenario, _ in told], faults)
            self.since_victims = []
        elif len(self.since_victims) >= self.victims_after:
            self._send_victims()
        if self.count // 2000 != before:
            self.world.clean()

    def finish(self):
        self.flush()
        self._send_victims()

    def _send_victims(self):
        """Those who run are each other's victims, too; these ask for everything."""
        faults = faults_left(self.world, victims=True)
        if faults:
            self.findings += findings_one_by_one(self.world, self.since_victims, faults)
        self.since_victims = []

    @property
    def has_enough(self):
        return len(self.findings) >= self.most_findings

    def scenarios(self, scenarios):
        for scenario in scenarios:
            if self.has_enough:
                return
            self.add(scenario)
        self.finish()

    def forms(self, forms, rng, manners=("alone", "echo", "later")):
        for form in forms:
            if self.has_enough:
                return
            self.add(scenario_of_form(form, self.count + len(self.waiting), rng.choice(manners)))
        self.finish()
