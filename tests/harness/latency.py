"""What Headgate says of latency on its admin port."""

import shlex

from harness.admin import stats, text
from harness.resp import Error, wait_for


def ask(headgate, *question):
    """The lines of an answer, each as a dictionary of its words."""
    with headgate.admin() as admin:
        reply = admin(*question)
    assert isinstance(reply, bytes), reply
    return [dict(word.partition("=")[::2] for word in shlex.split(line)) for line in text(reply).splitlines()]


def interfaces(headgate, *question):
    return {line["interface"]: line for line in ask(headgate, *question)}


def reported(headgate, interface):
    """How many requests of the last two hours are on record, as text; None if that cannot be told."""
    with headgate.admin() as admin:
        reply = admin("REPORT", interface, "FROM", "-2h")
    if isinstance(reply, Error):
        return None
    return dict(word.partition("=")[::2] for word in shlex.split(text(reply)))["count"]


def await_report(headgate, interface, count):
    """The line of the interface, once so many requests are on record."""
    wait_for(lambda: reported(headgate, interface) == str(count), 30, f"{count} requests on record")
    return ask(headgate, "REPORT", interface, "FROM", "-2h")[0]


def counter(headgate, name):
    return int(stats(headgate, "latency")[f"latency_{name}"])
