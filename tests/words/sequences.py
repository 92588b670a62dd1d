"""Random sequences of forms by one client, the same ones for a seed."""

import random

from bases import APART, WORDS_ONLY
from scenarios import Scenario

# Commands that change the connection, or its place among lanes, are more than half of what is drawn.
SHARE_OF_STATES = 0.6
SHARE_OF_SOUND = 0.5
ORDINARY = {"ORDINARY", "UNKNOWN"}
# They stop the server, stop others, or speak to them.
NEVER = APART | {"swapdb", "pfselftest", "lolwut", "migrate", "script|debug", "config|set", "acl|setuser", "acl|load"}


def is_fit(form):
    name = form.row.full_name
    if form.role == "value" and form.change.startswith(("number", "empty", "cut")):
        # Keys and channels that all would share.
        return False
    return name not in NEVER and form.row.name not in NEVER and name not in WORDS_ONLY


class Sequences:
    def __init__(self, forms, seed):
        self.rng = random.Random(seed)
        forms = [form for form in forms if is_fit(form)]
        self.states = [form for form in forms if form.row.kind not in ORDINARY]
        self.sound_states = [form for form in self.states if form.change == "as-it-is"]
        self.others = [form for form in forms if form.row.kind in ORDINARY]

    def form(self):
        if self.rng.random() > SHARE_OF_STATES:
            return self.rng.choice(self.others)
        return self.rng.choice(self.sound_states if self.rng.random() < SHARE_OF_SOUND else self.states)

    def scenario(self, number):
        """All at once, one by one, or in two parts."""
        forms = [self.form() for _ in range(self.rng.randint(2, 6))]
        requests = [form.bytes(number) for form in forms]
        cut = self.rng.choice((0, 1, len(requests)))
        steps = requests[:cut] + ([b"".join(requests[cut:])] if requests[cut:] else [])
        return Scenario(steps, forms)

    def scenarios(self, count):
        for number in range(count):
            yield self.scenario(number)
