"""Plays requests through Headgate and on the twin, compares, lets all leave, and looks at what is left."""

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


class Act:
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
    def __init__(self, acts, faults):
        self.acts = acts
        self.faults = faults

    def __repr__(self):
        return str(self)

    def __str__(self):
        return "\n    ".join([repr(act) for act in self.acts[:6]] + [fault[:600] for fault in self.faults[:6]])


def is_counted_alike(ours, theirs):
    return len(told_by(ours)) == len(told_by(theirs)) and ours.closed == theirs.closed


def told_by(party):
    return that_are_always_told(party.replies)


def is_settled(act, ours, theirs):
    if is_not_compared(act) or is_counted_alike(ours, theirs):
        return True
    return bool(act.found_by_chance and ours.replies and theirs.replies)


def kind(reply):
    return "error" if isinstance(reply, Error) else "push" if isinstance(reply, Push) else "reply"


def difference(act, ours, theirs):
    """How the client was told otherwise than by Redis, as text, or None."""
    if is_not_compared(act):
        return None
    if act.found_by_chance and not (theirs.replies and is_unknown(theirs.replies[0])):
        # The twin found it, and may wait. Redis itself would have, or not.
        return None if ours.replies and is_unknown(ours.replies[0]) else f"told {shown(ours)}, not that it is unknown"
    if not is_counted_alike(ours, theirs):
        return f"told {shown(ours)}, but directly {shown(theirs)}"
    for mine, direct in zip(told_by(ours), told_by(theirs)):
        if same(mine, direct) or says_unknown_alike(mine, direct) or refuses_a_name(act, mine):
            continue
        if is_of_the_moment(act) and kind(mine) == kind(direct):
            continue
        return f"told {mine!r:.300}, but directly {direct!r:.300}"
    return None


def shown(party):
    return f"{party.replies!r:.300}{' closed' if party.closed else ''}"


def perform(world, acts):
    """Faults of what the clients of these acts are told. All have left afterwards."""
    ours = [world.through() for _ in acts]
    theirs = [world.direct() for _ in acts]
    for number in range(max(len(act.steps) for act in acts)):
        for act, mine, direct in zip(acts, ours, theirs):
            if number < len(act.steps):
                mine.write(act.steps[number])
                direct.write(act.steps[number])
        await_agreement(world, acts, ours, theirs)
    faults = []
    for act, mine, direct in zip(acts, ours, theirs):
        fault = difference(act, mine, direct)
        if fault:
            faults.append((act, fault))
        mine.close()
        direct.close()
    return faults


def await_agreement(world, acts, ours, theirs):
    """Until each client has as many replies as its twin, or has waited long enough for what is missing."""
    deadline = time.monotonic() + AGREEMENT
    rounds = 10 if any(len(step) > 16000 for act in acts for step in act.steps) else 3
    while True:
        world.twin_observer.settle(rounds)
        world.settle()
        news = [party.drain() for party in ours + theirs]
        if all(is_settled(act, *pair) for act, pair in zip(acts, zip(ours, theirs))):
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


def findings_one_by_one(world, acts, faults):
    """Plays again, one by one, what shared a fault, so that a finding names who did it."""
    findings = []
    for act in acts:
        if len(findings) == MOST_OF_ONE_BATCH:
            break
        world.restart_headgate()
        told = [fault for _, fault in perform(world, [act])]
        told += faults_left(world, victims=True)
        if told:
            findings.append(Finding([act], told))
    world.restart_headgate()
    return findings or [Finding(acts, ["only together: " + fault for fault in faults])]


def act_of_form(form, number, manner):
    """manner: alone, or with an ECHO behind it in the same write or in a later one."""
    request = form.bytes(number)
    echo = encode("ECHO", NONCE)
    steps = {"alone": [request], "echo": [request + echo], "later": [request, echo]}[manner]
    return Act(steps, [form])


class Player:
    """Plays a stream of acts in batches. Counts what it did, and keeps the findings."""

    def __init__(self, world, batch=24, victims_after=48, most_findings=40):
        self.world = world
        self.batch = batch
        self.victims_after = victims_after
        self.most_findings = most_findings
        self.played = 0
        self.findings = []
        self.waiting = []
        self.since_victims = []

    def add(self, act):
        if self.world.is_valkey and ends_valkey(act):
            return
        if is_apart(act):
            self._play([act])
        else:
            self.waiting.append(act)
            if len(self.waiting) == self.batch:
                self.flush()

    def flush(self):
        if self.waiting:
            acts, self.waiting = self.waiting, []
            self._play(acts)

    def _play(self, acts):
        before = self.played // 2000
        self.played += len(acts)
        self.since_victims += acts
        told = perform(self.world, acts)
        left = faults_left(self.world, victims=False)
        if told or left:
            faults = [fault for _, fault in told] + left
            self.findings += findings_one_by_one(self.world, acts if left else [act for act, _ in told], faults)
            self.since_victims = []
        elif len(self.since_victims) >= self.victims_after:
            self._send_victims()
        if self.played // 2000 != before:
            self.world.clean()

    def finish(self):
        self.flush()
        self._send_victims()

    def _send_victims(self):
        """Those who play are each other's victims, too; these ask for everything."""
        faults = faults_left(self.world, victims=True)
        if faults:
            self.findings += findings_one_by_one(self.world, self.since_victims, faults)
        self.since_victims = []

    @property
    def has_enough(self):
        return len(self.findings) >= self.most_findings

    def acts(self, acts):
        for act in acts:
            if self.has_enough:
                return
            self.add(act)
        self.finish()

    def forms(self, forms, rng, manners=("alone", "echo", "later")):
        for form in forms:
            if self.has_enough:
                return
            self.add(act_of_form(form, self.played + len(self.waiting), rng.choice(manners)))
        self.finish()
