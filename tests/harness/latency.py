"""[latency]: what Headgate says it has measured, and what is on record."""

import shlex
import time

from harness.admin import stats, text
from harness.resp import Error, wait_for

ON = "[latency]\nenabled = on\nflush = 1s\n"
# A bucket's values are that near to the one that stands for them.
ERROR = 2 ** (1 / 32)
# What clients and Headgate read from the clock does not happen at quite the same time. Seconds.
SLACK = 0.005
# A script that works for ARGV[1] µs, however quick Redis is. Each look at the clock is an entry of Redis' own SLOWLOG, so
# it does not look all the time.
SPIN = """local t = redis.call('TIME') repeat for _ = 1, 2000 do end local n = redis.call('TIME')
until (n[1] - t[1]) * 1e6 + n[2] - t[2] >= tonumber(ARGV[1])"""


def words_of(line):
    """The words of a line, each with its value. Quotes are rare, and shlex is slow where lines are many."""
    words = shlex.split(line) if '"' in line or "'" in line or "\\" in line else line.split()
    return dict(word.partition("=")[::2] for word in words)


def ask(headgate, *question):
    """The lines of an answer, each as a dictionary of its words."""
    with headgate.admin() as admin:
        reply = admin(*question)
    assert isinstance(reply, bytes) and not isinstance(reply, Error), reply
    return [words_of(line) for line in text(reply).splitlines()]


def interfaces(headgate, *question):
    return {line["interface"]: line for line in ask(headgate, *question)}


def reported_with(headgate, prefix):
    """How many interfaces of this prefix are on record; None if that cannot be told, as when Redis is slow."""
    try:
        return sum(name.startswith(prefix) for name in interfaces(headgate, "REPORT", "*", "FROM", "-5m"))
    except AssertionError:
        return None


def reported(headgate, interface):
    """How many requests of the last two hours are on record, as text; None if that cannot be told."""
    with headgate.admin() as admin:
        reply = admin("REPORT", interface, "FROM", "-2h")
    if isinstance(reply, Error):
        return None
    return words_of(text(reply))["count"]


def await_report(headgate, interface, count):
    """The line of the interface, once so many requests are on record."""
    wait_for(lambda: reported(headgate, interface) == str(count), 30, f"{count} requests on record")
    return ask(headgate, "REPORT", interface, "FROM", "-2h")[0]


def timed(client, *command):
    """How long it took, in seconds, for the client."""
    begin = time.monotonic()
    reply = client(*command)
    took = time.monotonic() - begin
    assert not isinstance(reply, Error), reply
    return took


def counter(headgate, name):
    return int(stats(headgate, "latency")[f"latency_{name}"])


def on_record(redis, prefix="headgate:statistics_get"):
    """What Redis itself has of an interface, of all minutes: the members of all sorted sets, added up."""
    sums = {}
    with redis.connect() as direct:
        for key in direct("KEYS", f"{prefix}_[0-9]*_for_*"):
            kind = key.decode().rpartition("_for_")[2]
            members = direct("ZRANGE", key, 0, -1, "WITHSCORES")
            for member, score in zip(members[::2], members[1::2]):
                name = "hist" if kind == "hist" else member.decode()
                sums[name] = sums.get(name, 0) + float(score)
    return sums
