"""All kinds of policies on together: each has what is its own of a pipeline, whatever lies between, and no more."""

import random

import pytest

from harness.admin import stats
from harness.leases import rule
from harness.resp import OK, Error, wait_for

MEASURE = "[latency]\nenabled = on\n[counters]\nenabled = on\n[events]\nenabled = on\n"
TWO_LIMITS = """[limit:ip]
commands = get set
per = ip
limit = 1000000
window = 1h
[limit:user]
commands = get set
per = user
algorithm = funnel
capacity = 1000000
leak = 1000000/s
"""
DENY = "[deny:internal]\nkeys = internal:*\n[deny:big]\ncommands = set\nmax_bytes = 1kb\n"
WATCH = "[deny:watched]\nkeys = watched:*\naction = observe\n"
TOGETHER = TWO_LIMITS + DENY + WATCH + rule("locks", owner="client", grace="1h") + MEASURE
LOCK = ("NX", "PX", 600_000)


def refusal(command, name="internal", why="on such a key"):
    return Error(f"DENIED {name}: {command} is not allowed {why}".encode())


def count(headgate, section, name):
    return int(stats(headgate, section)[f"{section}_{name}"])


def assert_counts(headgate, section, **expected):
    found = stats(headgate, section)
    assert {name: int(found.get(f"{section}_{name}", found.get(name))) for name in expected} == expected


class Model:
    """What the keys hold, and what the policies are to have counted."""

    def __init__(self):
        self.values = {}
        self.requests = self.limited = self.denied = self.observed = self.acquired = self.released = 0

    def ask(self, chance):
        """A request and its reply."""
        number = chance.randrange(4)
        self.requests += 1
        return getattr(self, chance.choice(("set", "set", "get", "get", "lock", "release", "deny", "big", "watch")))(number)

    def set(self, number):
        self.limited += 1
        self.values[f"k:{number}"] = value = b"%d" % self.requests
        return ("SET", f"k:{number}", value), OK

    def get(self, number):
        self.limited += 1
        return ("GET", f"k:{number}"), self.values.get(f"k:{number}")

    def lock(self, number):
        self.limited += 1
        is_free = self.values.setdefault(f"lock:{number}", self.requests) == self.requests
        self.acquired += is_free
        return ("SET", f"lock:{number}", "t", *LOCK), OK if is_free else None

    def release(self, number):
        is_held = self.values.pop(f"lock:{number}", None) is not None
        self.released += is_held
        return ("DEL", f"lock:{number}"), int(is_held)

    def deny(self, number):
        self.denied += 1
        return ("GET", f"internal:{number}"), refusal("get")

    def big(self, number):
        self.denied += 1
        return ("SET", f"k:{number}", "v" * 1500), refusal("set", "big", "at this size")

    def watch(self, number):
        self.limited += 1
        self.observed += 1
        return ("GET", f"watched:{number}"), None


@pytest.mark.parametrize(("threads", "seed"), ((1, 0), (4, 1)))
def test_random_pipelines(make, threads, seed):
    """One client after the other, as they share keys, each with pipelines of any length."""
    chance = random.Random(seed)
    headgate = make(TOGETHER, threads=threads)
    model = Model()
    for _ in range(6):
        with headgate.connect() as client:
            for _ in range(20):
                asked = [model.ask(chance) for _ in range(chance.choice((1, 2, 7, 16, 100)))]
                assert client.pipeline([request for request, _ in asked]) == [reply for _, reply in asked]
    wait_for(lambda: count(headgate, "latency", "samples_total") >= model.requests, what="samples")
    assert_counts(headgate, "deny", rejected_total=model.denied, observed_total=model.observed)
    assert_counts(headgate, "limit", admitted_total=2 * model.limited, refused_total=0)
    assert_counts(headgate, "lease", acquired_total=model.acquired, released_total=model.released)
    # A request that is not the test's own would be in both, a sample that was lost or counted twice in the second only.
    assert_counts(headgate, "traffic", requests_total=model.requests)
    assert_counts(headgate, "latency", samples_total=model.requests)
