"""[limit:NAME] rules with scope = global: their kinds, several sidecars of one Redis, and a Redis that decides late."""

import re
import select
import signal
import time

from harness.admin import stats
from harness.limits import admitted, counter, funnel, rule
from harness.resp import PONG, encode, wait_for
from harness.target import script_calls

UNDECIDED = re.compile(rb"RATELIMITED (\S+): not decided in (\S+|\d+ ms), retry in (\d+) ms")
PATIENT = {"scope": "global", "per": "all", "on_error": "deny", "decision_timeout": "30s"}


def shared(name="a", **options):
    return rule(name, **{**PATIENT, **options})


def shared_funnel(name="a", **options):
    return funnel(name, **{**PATIENT, **options})


# Each kind of state: a rule that admits so much in an hour.
EXACT = {
    "slots": lambda most, name="a", **options: shared(name, limit=most, **options),
    "funnel": lambda most, name="a", **options: shared_funnel(name, capacity=most, **options),
}
LEASED = {
    "leased": lambda most, name="a", **options: shared(name, limit=most, accuracy="leased", **options),
    "leased funnel": lambda most, name="a", **options: shared_funnel(
        name, capacity=most, accuracy="leased", **options
    ),
}
KEYS = {"slots": "slots", "funnel": "funnel", "leased": "slots", "leased funnel": "funnel"}
ALL_KINDS = {**EXACT, **LEASED}


def key_of(kind, subject="all", name="a"):
    return f"headgate:hist:{KEYS[kind]}:{name}:{subject}"


def connect_to(headgates, count):
    return [headgate.connect() for _ in range(count) for headgate in headgates]


def rush(clients, count, *command):
    """So many requests of each client, all at once; how many were admitted."""
    for client in clients:
        client.send(encode(*(command or ("INCR", "n"))) * count)
    return sum(admitted(client.read_many(count)) for client in clients)


def total(headgates, name):
    return sum(counter(headgate, name) for headgate in headgates)


def asked(redis):
    """How often Redis was asked to run a script, whoever asked."""
    return sum(script_calls(redis).values())


def settle(redis, headgate, clients=20):
    """Until no worker has anything to ask Redis on its own account any more."""
    for _ in range(clients):
        with headgate.connect() as client:
            assert client("PING") == PONG
    wait_for(lambda: int(stats(headgate, "control")["control_script_loads_total"]) >= 1, what="the first script")
    seen = []

    def quiet():
        seen.append(asked(redis))
        time.sleep(0.05)
        return len(seen) > 3 and len(set(seen[-3:])) == 1

    wait_for(quiet, what="no more scripts")


class Stopped:
    """Redis stands still for as long as this lasts."""

    def __init__(self, redis):
        self.redis = redis

    def __enter__(self):
        self.redis.signal(signal.SIGSTOP)

    def __exit__(self, *_):
        self.redis.signal(signal.SIGCONT)


def has_reply(client):
    return bool(select.select([client.socket], [], [], 0)[0])


class Decider:
    """Stands in for the scripts of limits: answer is bytes, or None for no answer until the test gives one."""

    def __init__(self, fake, answer=None):
        self.asked = []
        self.answer = answer
        self.pass_on = fake.received_command
        fake.received_command = self.receive

    def receive(self, command):
        name, *arguments = command.arguments
        # Scripts without keys are Headgate's own business.
        if name.upper() not in (b"EVALSHA", b"EVAL") or arguments[1] == b"0":
            self.pass_on(command)
            return
        self.asked.append(command)
        if self.answer is not None:
            command.reply(self.answer)

    def await_asked(self, count):
        wait_for(lambda: len(self.asked) >= count, what=f"{count} questions to Redis")

    def say(self, number, text):
        """Answers a question that was left open."""
        self.asked[number].reply(text)


GRANTED = b"*3\r\n:1\r\n:0\r\n:1700000000000000\r\n"


def refused_for(microseconds):
    return b"*3\r\n:0\r\n:%d\r\n:0\r\n" % microseconds
