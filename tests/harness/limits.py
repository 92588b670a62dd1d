"""[limit:NAME] rules as text, what their refusals say, and what the admin port tells of them."""

import re

from harness.admin import stats, text
from harness.resp import Error, wait_for

REFUSAL = re.compile(rb"RATELIMITED (\S+): (.+) exceeded, retry in (\d+) ms")
EXPLAINED = re.compile(rb"RATELIMITED (\S+): cost (\d+) is more than (.+) ever admits")
KIB_300 = 300 * 1024  # beyond cut_through


def rule(name="a", **options):
    """A rule as text: of INCR, so that tests can look around by other commands, and with a window in which nothing
    comes back, unless told otherwise. None leaves an option out; a "_" at the end of a name is dropped (except_)."""
    options = {"commands": "incr", "window": "1h", **options}
    lines = [f"{option.rstrip('_')} = {value}" for option, value in options.items() if value is not None]
    return "\n".join([f"[limit:{name}]", *lines]) + "\n"


def funnel(name="a", **options):
    return rule(name, **{"window": None, "algorithm": "funnel", "leak": "1/h", **options})


def refuses(reply, name="a"):
    return isinstance(reply, Error) and reply.startswith(f"RATELIMITED {name}: ".encode())


def admitted(replies, name="a"):
    """How many were not refused. Any other error, or a refusal by another rule, is a failure."""
    errors = [reply for reply in replies if isinstance(reply, Error)]
    assert all(refuses(error, name) for error in errors), errors
    return len(replies) - len(errors)


def spend(client, *command, count=10, name="a"):
    """How many of so many at once are admitted."""
    return admitted(client.pipeline([command or ("INCR", "n")] * count), name)


def explain(refusal):
    """The rule, what was exceeded, and the wait in ms."""
    match = isinstance(refusal, Error) and REFUSAL.fullmatch(refusal)
    assert match, refusal
    return match[1].decode(), match[2].decode(), int(match[3])


def assert_never(refusal, cost, name="a"):
    """It says that no waiting helps."""
    match = isinstance(refusal, Error) and EXPLAINED.fullmatch(refusal)
    assert match, refusal
    assert (match[1], int(match[2])) == (name.encode(), cost)


def counter(headgate, name):
    return int(stats(headgate, "limit")[f"limit_{name}"])


def await_tracked(headgate, *counts):
    """It is a gauge, which may lag behind a little."""
    wait_for(lambda: counter(headgate, "tracked") in counts, 30, what=f"limit_tracked to be one of {counts}")


def await_holds(headgate, count):
    """Until that many requests were held. One that was asked about again counts again."""
    wait_for(lambda: int(stats(headgate, "policies")["policy_holds_total"]) >= count, what=f"{count} held requests")


def limits(headgate):
    """What LIMITS tells: the lines of the rules by name, and those of the offenders, as dictionaries of text."""
    with headgate.admin() as admin:
        lines = text(admin("LIMITS")).splitlines()
    words = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
    rules = {line["rule"]: line for line in words if line and "offender" not in line}
    return rules, [line for line in words if "offender" in line]


def forget(headgate, *what):
    with headgate.admin() as admin:
        return admin("LIMIT", "RESET", *what)
