"""What a lane may not have about it when it is given to another client, and what a victim has to be told."""

import collections
import select
import time

from harness.resp import OK, QUEUED, Error, encode, same

# CLIENT LIST of a connection on which nothing was left. What a server does not tell is not looked at.
FRESH = {"flags": "N", "sub": "0", "psub": "0", "ssub": "0", "multi": "-1", "watch": "0", "redir": "-1"}
FRESH |= {"lib-name": "", "lib-ver": "", "capa": ""}
# The lane of a pooled lane keeps its last client's name for a second; shared ones are called so.
LANE_NAME = "headgate"
PATIENCE = 5.0


def identity(entry):
    return entry["user"], entry["db"], entry["resp"]


def is_left(name, value, fresh):
    """Valkey goes on showing a transaction of no commands after the last one has ended; flags tell whether there is one."""
    return value != fresh.get(name, value) and not (name == "multi" and value in ("-1", "0"))


def faults_of_connections(connections, lanes, fresh=FRESH):
    """Faults, as text, of the connections of a Headgate at rest. fresh: what a new connection shows."""
    faults = []
    for entry in connections:
        odd = {name: entry[name] for name in FRESH if name in entry and is_left(name, entry[name], fresh)}
        if odd:
            faults.append(f"left on a lane: {odd}, its last command {entry['cmd']}")
    told = collections.Counter(identity(entry) for entry in connections)
    believed = collections.Counter(identity(lane) for lane in lanes)
    if told != believed:
        faults.append(
            f"(user, db, resp): Redis has {dict(told - believed)}, Headgate takes it for {dict(believed - told)}"
        )
    return faults


class Victim:
    """A client that comes after the attackers."""

    number = 0

    def __init__(self, world, lane):
        """lane: the line of LANES of the lane that it may get."""
        Victim.number += 1
        self.nonce = b"victim-%d" % Victim.number
        self.user = lane["user"].encode()
        self.party = world.through()
        self.expected = []
        self.became = 0
        if lane["user"] == "low":
            self.become("AUTH", "low", "pw")
        if lane["resp"] == "3":
            self.become("HELLO", "3")
        if lane["db"] != "0":
            self.become("SELECT", lane["db"])

    def become(self, *words):
        self.party.write(encode(*words))
        self.became += 1

    def ask(self, requests):
        """requests: (words, reply). What is expected is compared with when it is told."""
        for words, reply in requests:
            self.expected.append(reply)
        self.party.write(b"".join(encode(*words) for words, _ in requests))

    def begin(self, multi):
        """Takes a lane of its own."""
        self.ask([((multi,), OK)])

    def end(self):
        self.ask(
            [
                (("ACL", "WHOAMI"), QUEUED),
                (("ECHO", self.nonce), QUEUED),
                (("GET", self.nonce), QUEUED),
                (("EXEC",), [self.user, self.nonce, None]),
            ]
        )

    def share(self):
        """On the home lane and on that of scripts."""
        self.ask(
            [
                (("ECHO", self.nonce), self.nonce),
                (("ACL", "WHOAMI"), self.user),
                (("EVAL", "return ARGV[1]", "0", self.nonce), self.nonce),
            ]
        )

    @property
    def is_told(self):
        return self.party.closed or len(self.party.replies) >= self.became + len(self.expected)

    def fault(self):
        """What it was told wrongly, as text, or None."""
        replies = self.party.replies[self.became :]
        refused = [reply for reply in self.party.replies[: self.became] if isinstance(reply, Error)]
        if refused:
            return f"a victim was refused: {refused}"
        expected = [
            as_told(reply, replies[place] if place < len(replies) else None)
            for place, reply in enumerate(self.expected)
        ]
        if self.party.is_raw or self.party.rest or not same(list(replies), expected):
            return f"a victim was told {replies!r}{' and was closed' if self.party.closed else ''}, not {expected!r}"
        return None


def as_told(expected, reply):
    """RESP3 has another null."""
    if isinstance(expected, list) and isinstance(reply, list):
        return type(reply)(
            theirs if repr(theirs) == "NULL" and ours is None else ours for ours, theirs in zip(expected, reply)
        )
    return expected


def told(victims):
    """Until every victim has its replies or is closed. Who waits in vain is found by what it was told."""
    deadline = time.monotonic() + PATIENCE
    waiting = {victim.party.socket: victim for victim in victims if not victim.is_told}
    while waiting and time.monotonic() < deadline:
        readable, _, _ = select.select(list(waiting), [], [], 0.1)
        for socket in readable:
            waiting[socket].party.drain()
            if waiting[socket].is_told:
                del waiting[socket]


def faults_of_victims(world, multi="MULTI"):
    """Sends victims onto every pooled lane and onto the shared ones."""
    lanes = world.lanes()
    plain = {"user": "default", "db": "0", "resp": "2"}
    pooled = [lane for lane in lanes if lane["use"] == "pooled"]
    ours = [lane for lane in pooled if identity(lane) == identity(plain)]
    others = [
        lane
        for lane in lanes
        if lane not in ours and identity(lane) != identity(plain) and lane["user"] in ("default", "low")
    ]
    victims = [Victim(world, plain) for _ in range(len(ours) + 1)]
    victims += [Victim(world, lane) for lane in others[:8]]
    if others:
        told(victims)
    for victim in victims:
        victim.begin(multi)
    told(victims)
    for victim in victims:
        victim.end()
    told(victims)
    for victim in victims[:1] + victims[len(ours) + 1 :]:
        victim.share()
    told(victims)
    world.settle()
    faults = []
    for victim in victims:
        victim.party.drain()
        fault = victim.fault()
        if fault:
            faults.append(fault)
        victim.party.close()
    return faults
