"""Limits under whatever happens: rules, requests and trouble are drawn from the world's seed.

A request's decision lies between its sending and its execution, which MONITOR tells to the µs, and MONITOR shows the state
of global rules, which is read here without their scripts. From that follows, of each rule and subject,

- admitted: never more in any time than fit, of local rules by Headgate's clock, of global ones by Redis': each admission has
  a permit of its own that Redis had granted to be spent then;
- refused: only by who has no room, and not for longer, nor for less, than until there is room;
- undecided: only when Redis was away, full, or further than decision_timeout;
- counted: STATS and LIMITS tell what clients saw.
"""

import ast
import collections
import contextlib
import dataclasses
import heapq
import itertools
import re
import signal
import socket
import struct
import threading
import time
import types

import pytest

from harness import world
from harness.admin import stats
from harness.limits import REFUSAL
from harness.global_limits import UNDECIDED
from harness.relay import Relay, shut
from harness.resp import OK, Client, Closed, Error, encode, wait_for
from harness.rules import launch, reload
from harness.sentinel import Group

ROUNDS = 9
CLIENTS = 8
# What a clock may have gone on between two looks at it that belong together.
EPSILON = 0.0003
# No rule remembers for longer, but a funnel that never ran empty.
OLDEST = 11
WORD = re.compile(r'"(?:[^"\\]|\\.)*"')


class Rule:
    """numbers: (limit, window) or (capacity, seconds a drop takes to leak), of which a reload may make others."""

    def __init__(self, letter, draw):
        self.name, self.draw = letter, draw
        self.is_global = letter in "gh"
        self.is_funnel = draw.random() < 0.4
        self.per = draw.choice(("all", "key", "name", "ip"))
        self.cost = draw.choice(("1", "1", "keys")) if self.per != "key" else "1"
        # It looks at the client alone: a pipeline is judged as a whole.
        self.is_plain = letter == "a" and self.per != "key"
        self.max_delay = draw.choice((0, 0, 0, 0.02, 0.3))
        self.is_leased = letter == "h"
        self.on_error = draw.choice(("allow", "deny", "deny", "local"))
        self.timeout = draw.choice((0.05, 0.2, 2))
        self.revision, self.most = 0, None
        self.renew()

    def renew(self):
        """Others: the same would change nothing, and of no hold there may be none."""
        self.revision += 1
        last = self.most and self.arguments()
        while not self.most or self.arguments() == last or (self.is_leased and self.hold < 0.001):
            self.most = self.draw.choice((12, 40, 64, 100) if self.is_leased else (2, 3, 5, 12, 64, 65, 100))
            self.window = self.draw.choice((1000, 3000) if self.is_leased else (100, 300, 1000, 3000)) / 1000
            self.drop = self.draw.choice((1, 4, 20, 100)) / 1000
        self.since = time.time()

    @property
    def hold(self):
        if not self.is_leased:
            return 0
        return min(0.5, self.most * self.drop / 8 if self.is_funnel else self.window / 20)

    @property
    def lag(self):
        """By how much a permit may come back late: slots are shared."""
        return 0 if self.is_funnel or self.most <= 64 else (self.window + self.hold) / 64 + EPSILON

    def text(self):
        keys = f"keys = *{self.name}*:{{*}}" if self.per == "key" else f"keys = *{self.name}*:*"
        lines = [f"[limit:{self.name}]", f"per = {self.per}", f"cost = {self.cost}"]
        lines += ["commands = set"] if self.is_plain else ["commands = mset", keys]
        if self.is_funnel:
            lines += ["algorithm = funnel", f"capacity = {self.most}", f"leak = 1/{self.drop * 1000:.0f}ms"]
        else:
            lines += [f"limit = {self.most}", f"window = {self.window * 1000:.0f}ms"]
        if self.max_delay:
            lines += ["action = delay", f"max_delay = {self.max_delay * 1000:.0f}ms"]
        if self.is_global:
            lines += ["scope = global", f"accuracy = {'leased' if self.is_leased else 'exact'}", f"on_error = {self.on_error}",
                      f"decision_timeout = {self.timeout * 1000:.0f}ms"]  # fmt: skip
        return "\n".join(lines) + "\n"

    def arguments(self):
        """What scripts are told of it."""
        rate = (1, round(self.drop * 1e6)) if self.is_funnel else (round(self.window * 1e6),)
        return (self.most, *rate)

    def fits(self, seconds):
        """The most that may be admitted from a moment until so long after it."""
        if self.is_funnel:
            return self.most + (seconds + EPSILON) / self.drop
        return self.most * (1 + (seconds + 1e-6) // self.window)

    def free_at(self, taken, cost):
        """From when on so much more is admitted. taken: (time, cost) of what was."""
        taken = sorted(taken)
        if self.is_funnel:
            total, ends = 0, [float("-inf")]
            for at, one in reversed(taken):
                total += one
                ends.append(at + total * self.drop)
            return max(ends) - (self.most - cost) * self.drop
        over = sum(one for _, one in taken) + cost - self.most
        free = float("-inf")
        for at, one in taken:
            if over <= 0:
                break
            over, free = over - one, at + self.window
        return free

    def granted(self, before, after, at):
        """What a script has added to its state."""
        now = after[-1][0] - self.hold
        if self.is_funnel:
            now = after[0][0]
            left = max(0, before[0][1] - max(0, now - before[0][0]) / self.drop) if before else 0
            return round(after[0][1] - max(left, self.hold / self.drop))
        # What was there longer is there no more; the newest may stand later than now.
        now = now if not before or after[-1][0] > before[-1][0] else at
        kept = [one for last, one in before if last > now - self.window + 1e-7]
        return round(sum(one for _, one in after) - sum(kept))

    def key(self, subject):
        return f"headgate:hist:{'funnel' if self.is_funnel else 'slots'}:{self.name}:{subject}"


@dataclasses.dataclass(eq=False)
class Request:
    """charges: {(rule, subject): cost}. Until `executed` at the latest it was decided; lost: nobody knows how."""

    number: int
    headgate: int
    command: list
    charges: dict
    sent: float
    executed: float = None
    replied: float = None
    reply: object = None
    lost: bool = True

    @property
    def is_refused(self):
        return isinstance(self.reply, Error) and self.reply.startswith(b"RATELIMITED")

    @property
    def is_admitted(self):
        return not self.lost and not self.is_refused


# Redis had no room for all that was asked for, but from then on for the least of it.
Answer = collections.namedtuple("Answer", "at free least distance")


class Watch:
    """What one Redis executes: requests, and what scripts of limits make of their state."""

    def __init__(self, walk, redis):
        self.walk, self.redis = walk, redis
        self.start()

    def start(self):
        """Once more for each life of it, when all of the last has been heard."""
        self.states, self.epochs = {}, collections.defaultdict(lambda: next(self.walk.numbers))
        self.call = None  # at, by which Headgate, key, arguments, {command: what it was told}
        self.listener = threading.Thread(target=self._listen, args=(self._monitor(),), daemon=True)
        self.listener.start()

    def end(self):
        """Nothing that anybody was answered is missing."""
        self.catch_up()
        self.redis.kill()
        self.listener.join(30)
        assert not self.listener.is_alive()

    def catch_up(self):
        word = b"%d" % next(self.walk.numbers)
        with self.redis.connect() as direct:
            direct("PING", word)
        wait_for(lambda: word in self.walk.pinged, 60, "MONITOR to tell all")

    def _monitor(self):
        client = self.redis.connect()
        client.socket.settimeout(None)
        assert client("MONITOR") == OK
        return client

    def _listen(self, client):
        """Sentinels close what is connected to who is not the master any more, or is it now."""
        while client:
            with contextlib.suppress(Closed):
                while True:
                    self._take(client.read().decode("latin-1"))
            client = None
            with contextlib.suppress(ConnectionRefusedError):
                client = self.walk.group and self._monitor()

    def _take(self, line):
        head, words = line.split("] ", 1)
        words = [ast.literal_eval("b" + word) for word in WORD.findall(words)]
        at, name = float(head.split()[0]), words[0].upper()
        if head.endswith("lua"):
            if self.call:
                self.call[-1][name] = words
            return
        self._end_call()
        is_state = b":hist:" in words[min(1, len(words) - 1)]
        if name in (b"EVALSHA", b"EVAL") and words[2] == b"1" and b":hist:" in words[3]:
            headgate = self.walk.lanes.get(int(head.rsplit(":", 1)[1]), (None,))[0]
            self.call = at, headgate, words[3].decode(), words[4:], {}
        elif name in (b"SET", b"DEL") and is_state:  # by replication
            self._change(at, words[1].decode(), {name: words})
        elif name in (b"SET", b"MSET"):
            self.walk.executed[int(words[2])] = min(at, self.walk.executed.get(int(words[2]), at))
        elif name == b"PING" and len(words) > 1:
            self.walk.pinged.add(words[1])

    def state(self, key, at):
        """What has not expired: slots are (time, count), a funnel's drops all of one time."""
        state, until = self.states.get(key, ([], 0))
        return state if at < until else []

    def _change(self, at, key, did):
        if b"DEL" in did:
            self.states.pop(key, None)
        if b"SET" in did:
            _, _, value, *expiry = did[b"SET"]
            if value.startswith(b"slots:"):
                pairs = [struct.unpack(">dd", value[i : i + 16]) for i in range(22, len(value), 16)]
            else:
                pairs = [tuple(map(float, reversed(value.split())))]
            ends = expiry and {b"PX": at + int(expiry[1]) / 1e3, b"PXAT": int(expiry[1]) / 1e3}[expiry[0].upper()]
            self.states[key] = [(last / 1e6, count) for last, count in pairs], ends or self.states[key][1]

    def _end_call(self):
        """All of it was told. It has done nothing if Redis refused, or had no such script, or no memory."""
        call, self.call = self.call, None
        if not call or not call[-1]:
            return
        at, headgate, key, arguments, did = call
        before = self.state(key, at)
        self._change(at, key, did)
        if not arguments:
            self.epochs.pop(key, None)
            for mark in [one for one in self.walk.marks if one[:2] == (key, headgate)]:
                del self.walk.marks[mark]  # it knows what it has forgotten
        elif not arguments[0].isdigit():
            mark = key, headgate, int(arguments[2])
            self.walk.marks[mark] -= int(arguments[1])
            if b"SET" in did or b"DEL" in did:
                assert self.walk.marks[mark] >= 0, f"{arguments} gives {key} back at {at} what was not granted, or forgotten since"
                self.walk.given_back.add(key)
        else:
            self._asked(at, headgate, key, tuple(map(int, arguments)), before, b"SET" in did)

    def _asked(self, at, headgate, key, numbers, before, is_granted):
        rule = self.walk.rules[key.split(":")[3]]
        *told, wanted, least, hold = numbers
        assert tuple(told) == rule.arguments(), f"{numbers} asked for {key}, of which {rule.arguments()} is true"
        assert abs(hold / 1e6 - rule.hold) < 2e-6, f"held for {hold} us instead of {rule.hold}"
        after, count = self.state(key, at), 0
        if is_granted:
            count = rule.granted(before, after, at)
            assert least <= count <= wanted, f"{count} of {wanted} granted, {key}: {before}, {after}"
            times = {"at": at - EPSILON, "until": at + rule.hold + EPSILON}
            grant = types.SimpleNamespace(**times, count=count, epoch=(self.epochs[key], key, rule.revision))
            self.walk.grants[key, headgate].append(grant)
            self.walk.marks[key, headgate, round(after[-1][0] * 1e6)] += count
        if count < wanted:
            answer = Answer(at, rule.free_at(after, least), least, self.walk.distance(headgate))
            self.walk.answers[key, headgate].append(answer)


class Way(Relay):
    """From one Headgate to Redis; closed while nobody watches that."""

    def __init__(self, walk, headgate):
        self.walk, self.headgate = walk, headgate
        super().__init__(walk.servers[0])

    def _pass_on(self, data, redis, deaf):
        self.walk.lanes[redis.getsockname()[1]] = self.headgate, redis
        return self.walk.is_watched and super()._pass_on(data, redis, deaf)


class Walk:
    def __init__(self, make_headgate, servers, draw, group=None):
        """group: of the servers; else relays are put before the one there is."""
        self.draw = draw
        self.numbers = itertools.count(1)
        self.executed, self.pinged = {}, set()
        self.lanes, self.is_watched = {}, True  # {port: (Headgate, socket)}
        # By key in Redis and Headgate (of a group: None). A grant may be spent meanwhile; epoch: of the state it was taken from.
        self.grants, self.answers = collections.defaultdict(list), collections.defaultdict(list)
        self.rules = {letter: Rule(letter, draw) for letter in "abgh"}
        self.marks = collections.Counter()  # (key, Headgate, mark of a grant): what was not given back of it
        self.troubles = []  # (from, to): Redis may be late, or not answer, for reasons that were made
        self.forgotten = collections.defaultdict(list)  # (headgate, rule): (from, to, subject or None)
        self.requests, self.seen = [], collections.Counter()
        self.spent = collections.defaultdict(list)  # by what was granted together: (since, until, cost, request)
        self.given_back = set()  # keys; by what was granted before nobody can tell whether it was spent
        self.undecided = set()  # that were admitted: (number, rule)
        self.group = group
        self.servers, self.watches = servers, [Watch(self, server) for server in servers]
        self.ways = [] if group else [Way(self, index) for index in range(draw.choice((2, 2, 3)))]
        text = self.text()
        self.headgates = [
            launch(make_headgate, server, draw.choice(("shared", "session")), text, threads=draw.choice((1, 2)), upstream_wait="3s",
                   connect_timeout="1s", reload_on_change="off")
            for server in ([way.url for way in self.ways] or [group.url] * 2)
        ]  # fmt: skip
        self.clients = [None] * CLIENTS
        self.actions = [self.stop, self.stop, self.flush_scripts, self.reset_any, self.fill, self.reload]
        self.actions += [self.restart] if self.ways else [self.fail_over]
        self.began = time.time()

    def distance(self, headgate):
        return 0 if self.group else self.ways[headgate].delay

    def text(self):
        return "".join(rule.text() for rule in self.rules.values())

    def judge_counters(self):
        """Each rule counts what it admits, and who is refused is counted once. Who had no reply may be counted."""
        sums = collections.Counter()
        for index, headgate in enumerate(self.headgates):
            own = [one for one in self.requests if one.headgate == index]
            rules = [(one, len({name for name, _ in one.charges})) for one in own]
            admitted, lost = sum(count for one, count in rules if one.is_admitted), sum(count for one, count in rules if one.lost)
            refused = sum(one.is_refused for one in own)
            told = {name: int(count) for name, count in stats(headgate, "limit").items()}
            assert admitted <= told["limit_admitted_total"] <= admitted + lost, (admitted, lost, told)
            assert refused <= told["limit_refused_total"] <= refused + lost, (refused, lost, told)
            sums.update(told)
        denied = sum(one.is_refused and bool(UNDECIDED.fullmatch(one.reply)) for one in self.requests)
        assert denied + len(self.undecided) <= sums["limit_undecided_total"], (denied, self.undecided, sums)
        self.seen["undecided"] += sums["limit_undecided_total"]
        self.seen["script calls"] += sums["limit_script_calls_total"]

    def figures(self):
        lost, refused = (sum(getattr(one, name) for one in self.requests) for name in ("lost", "is_refused"))
        return {"requests": len(self.requests), "refused": refused, "lost": lost, **self.seen}

    # ---- requests ----

    def connect(self, number):
        """Another one, of another name and address."""
        if self.clients[number]:
            self.clients[number][0].close()
        headgate, address, name = self.draw.randrange(len(self.headgates)), self.draw.randrange(1, 3), self.draw.choice("xyz")
        end = socket.create_connection(self.headgates[headgate].address, 30, (f"127.0.0.{address}", 0))
        client = Client(end)
        assert client("CLIENT", "SETNAME", name) == OK
        self.clients[number] = client, headgate, {"all": "all", "name": f"name:{name}", "ip": f"ip:127.0.0.{address}"}

    def batch(self, draw, headgate, subjects):
        """MSETs of keys such as ag:1: rules a and g, and if they count by key, 1."""
        letters = "".join(draw.sample("abgh", draw.choice((1, 1, 1, 2))))
        parts = draw.sample(range(3), draw.choice((1, 1, 2)))
        if "a" in letters and self.rules["a"].is_plain:
            letters, parts = "a", [0]
        charges = {}
        for rule, part in itertools.product((self.rules[letter] for letter in letters), parts):
            subject = f"key:{part}" if rule.per == "key" else subjects[rule.per]
            charges[rule.name, subject] = len(parts) if rule.cost == "keys" else 1
        name, sent = "SET" if self.rules[letters[0]].is_plain else "MSET", time.time()
        for number in itertools.islice(self.numbers, draw.choice((1, 1, 1, 3, 8))):
            command = [name, *itertools.chain(*((f"{letters}:{part}", number) for part in parts))]
            yield Request(number, headgate, command, charges, sent)

    def work(self, draw, number, until):
        client, headgate, subjects = self.clients[number]
        try:
            while time.time() < until:
                batch = list(self.batch(draw, headgate, subjects))
                self.requests += batch
                client.send(b"".join(encode(*request.command) for request in batch))
                for request in batch:
                    request.reply, request.replied, request.lost = client.read(), time.time(), False
                if draw.random() < 0.04:
                    # While much is under way for who is charged, and before more is.
                    self.reset(headgate, *draw.choice(list(request.charges)))
                    continue
                refused = isinstance(request.reply, Error) and REFUSAL.fullmatch(request.reply)
                wait = int(refused[3]) / 1000 if refused else 0.3
                together = -time.time() % 0.1
                pauses = together, together, 0.0002, 0.003, wait, max(0, wait - 0.0015), wait * draw.random()
                time.sleep(min(1, draw.choice(pauses)))
        except (Closed, OSError):
            self.clients[number] = None

    # ---- what happens ----

    @contextlib.contextmanager
    def trouble(self, settle=0.0):
        began = time.time()
        index = len(self.troubles)
        self.troubles.append((began, float("inf")))
        yield
        self.troubles[index] = began, time.time() + settle

    def stop(self):
        with self.trouble(0.2):
            one = self.draw.choice(self.draw.choice((self.servers, self.headgates)))
            one.signal(signal.SIGSTOP)
            time.sleep(self.draw.choice((0.02, 0.1, 0.3, 0.8)))
            one.signal(signal.SIGCONT)

    def tell_redis(self, *words):
        for server in self.servers:
            with server.connect() as direct:
                assert direct(*words) == OK

    def flush_scripts(self):
        self.tell_redis("SCRIPT", "FLUSH")

    def restart(self):
        with self.trouble(1.5):
            self.is_watched = False
            for _, end in list(self.lanes.values()):
                shut(end)
            self.watches[0].end()
            time.sleep(self.draw.choice((0, 0.3)))
            self.servers[0].start()
            self.watches[0].start()
            self.is_watched = True

    def fail_over(self):
        """Once: one that was a replica again may have been sent states in a way that MONITOR does not tell."""
        if not self.seen["failed over"]:
            self.seen["failed over"] += 1
            with self.trouble(3):
                self.group.failover()

    def fill(self):
        with self.trouble():
            self.tell_redis("CONFIG", "SET", "maxmemory", 1)
            time.sleep(0.1)
            self.tell_redis("CONFIG", "SET", "maxmemory", 0)

    def reset_any(self):
        name = self.draw.choice(list(self.rules))
        known = sorted({subject for request in self.requests for other, subject in request.charges if other == name})
        self.reset(self.draw.randrange(len(self.headgates)), name, self.draw.choice([None, *known]))

    def reset(self, headgate, name, subject):
        began = time.time()
        with self.headgates[headgate].admin() as admin:
            reply = admin("LIMIT", "RESET", name, *filter(None, [subject]))
        # One that was refused may have been done, or not: it counts as neither.
        self.seen["resets refused"] += reply != OK
        self.forgotten[headgate, name].append((began, time.time() if reply == OK else float("inf"), subject))

    def reload(self):
        """Nothing changes that anybody could see."""
        for headgate in self.headgates:
            reload(headgate, self.text())

    def renew(self):
        """Other numbers, while nobody asks: local rules begin anew, what is in Redis stays (under a key of its own kind)."""
        rule = self.draw.choice(list(self.rules.values()))
        # What is under way to Redis, and what waits for its answer to be sent then, has the old numbers.
        time.sleep(12 * max((way.delay for way in self.ways), default=0))
        for watch in self.watches:
            watch.catch_up()
        rule.renew()
        began = time.time()
        for index, headgate in enumerate(self.headgates):
            reload(headgate, self.text(), *[headgate.connect() for _ in range(8)])
            self.forgotten[index, rule.name].append((began, time.time(), None))

    def round(self):
        for number in range(CLIENTS):
            if self.clients[number] is None or self.draw.random() < 0.3:
                self.connect(number)
        first = len(self.requests)
        for way in self.ways:
            way.delay = self.draw.choice((0, 0, 0.001, 0.02, 0.15))
        until = time.time() + self.draw.choice((0.3, 1, 2))
        draws = [type(self.draw)(self.draw.getrandbits(32)) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=self.work, args=(draws[number], number, until)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while time.time() < until:
            time.sleep(self.draw.random() * 0.8)
            action = self.draw.choice([*self.actions, lambda: None])
            self.seen[action.__name__.strip("<>")] += 1
            action()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a client that has no reply"
        # Until nothing is under way.
        time.sleep(0.5)
        for watch in self.watches:
            watch.catch_up()
        Judge(self, self.requests[first:]).judge()


class Judge:
    """Of one round, with what was before it."""

    def __init__(self, walk, requests):
        self.walk, self.requests = walk, requests
        for request in requests:
            at = walk.executed.get(request.number)
            request.executed = at - walk.distance(request.headgate) + EPSILON if at else request.replied or time.time()
            assert not at or not request.is_refused, f"executed, though refused: {request}"
        self.buckets = collections.defaultdict(list)
        self.queued = collections.defaultdict(list)  # perhaps, by rules that delay, until others refused them
        for request in walk.requests:
            by = request.is_refused and request.reply.split()[1].rstrip(b":").decode()
            for name, subject in request.charges:
                rule, is_new = walk.rules[name], request.executed > requests[0].sent - OLDEST
                if not by and (is_new or rule.is_funnel):
                    self.buckets[request.headgate, name, subject].append(request)
                elif by and is_new and by != name and rule.max_delay and not rule.is_global:
                    self.queued[request.headgate, name, subject].append(request)

    def judge(self):
        for charge in sorted({bucket[1:] for bucket in self.buckets}):
            name, subject = charge
            owners = [None] if self.walk.group and self.walk.rules[name].is_global else range(len(self.walk.headgates))
            for owner in owners:
                if self.walk.rules[name].is_global:
                    self.judge_grants(self.walk.rules[name], subject, owner)
                else:
                    self.judge_local(self.walk.rules[name], subject, owner, self.buckets[owner, name, subject])
        for request in filter(lambda one: one.is_refused, self.requests):
            self.judge_refusal(request)

    def resets(self, headgate, rule, subject, since, until):
        """Those between, surely or perhaps."""
        forgotten = self.walk.forgotten[headgate, rule.name]
        return [one for one in forgotten if one[2] in (None, subject) and one[1] > since and one[0] < until]

    def judge_local(self, rule, subject, headgate, requests):
        points = [(one.sent, one.executed, one.charges[rule.name, subject], one) for one in requests if one.is_admitted]
        since = max(rule.since, self.requests[0].sent - OLDEST)
        points = [point for point in points if point[0] > since]
        never_more(rule, points, lambda since, until: not self.resets(headgate, rule, subject, since, until))

    def judge_grants(self, rule, subject, owner):
        """Each that was admitted had a permit, and these were not too many. owner: None for all Headgates."""
        charge, key = (rule.name, subject), rule.key(subject)
        new = [one for one in self.requests if one.is_admitted and charge in one.charges and owner in (None, one.headgate)]
        for grant in self.walk.grants[key, owner]:
            # What was granted before is not spent by who comes after Headgate has forgotten it.
            ends = [until for since, until, _ in self.resets(owner, rule, subject, grant.at, float("inf")) if grant.at < since]
            grant.until = min(grant.until, *ends, float("inf"))
        without = match(new, charge, self.walk.grants[key, owner], self.walk.spent, key in self.walk.given_back)
        for one in without:
            assert rule.on_error != "deny" and self.is_excused(one, rule), f"admitted by nobody: {one}"
        self.walk.undecided.update((one.number, rule.name) for one in without)
        if rule.on_error == "local":
            for headgate in range(len(self.walk.headgates)):
                self.judge_local(rule, subject, headgate, [one for one in without if one.headgate == headgate])
        for epoch, points in self.walk.spent.items():
            if epoch[1:] == (key, rule.revision):
                never_more(rule, [point for point in points if point[1] > self.requests[0].sent - OLDEST])

    def is_excused(self, request, rule):
        """Redis may not have decided in time."""
        late = any(since < request.replied and request.sent - rule.timeout < until for since, until in self.walk.troubles)
        return late or 4 * self.walk.distance(request.headgate) + 0.005 >= rule.timeout

    def judge_refusal(self, request):
        undecided = UNDECIDED.fullmatch(request.reply)
        name, wait = (undecided or REFUSAL.fullmatch(request.reply)).group(1, 3)
        rule, wait = self.walk.rules[name.decode()], int(wait) / 1000
        may_be_undecided = rule.is_global and self.is_excused(request, rule)
        if undecided:
            assert rule.on_error == "deny" and may_be_undecided, f"undecided: {request}"
            return
        asked = [(subject, cost) for (other, subject), cost in request.charges.items() if other == rule.name]
        # Room comes back between the two, by what it was told: that is rounded up to ms.
        span = request.sent + wait - 0.001 - EPSILON, request.replied + wait + EPSILON
        explains = [self.explains_globally] if rule.is_global else [self.explains_locally]
        explains += [self.explains_locally] if rule.on_error == "local" and may_be_undecided else []
        why = [explain(request, rule, subject, cost, span) for explain in explains for subject, cost in asked]
        assert None in why, f"{request}, told {span}, but {why}"

    def explains_locally(self, request, rule, subject, cost, span):
        perhaps, surely = [], []
        for one in self.buckets[request.headgate, rule.name, subject]:
            resets = self.resets(request.headgate, rule, subject, one.sent, request.replied)
            if one.sent <= request.replied and not any(since >= one.executed and until <= request.sent for since, until, _ in resets):
                perhaps.append((one.executed, one.charges[rule.name, subject]))
            if one.is_admitted and one.executed <= request.sent and not resets:
                surely.append((one.sent, one.charges[rule.name, subject]))
        for one in self.queued[request.headgate, rule.name, subject]:
            # It stood before this one, whose time was reckoned as if it would be admitted.
            if one.sent <= request.replied and request.sent <= one.replied:
                part = one.charges[rule.name, subject]
                perhaps.append((max(request.replied, rule.free_at(perhaps, part)), part))
        last, first = rule.free_at(perhaps, cost) + rule.lag, rule.free_at(surely, cost)
        return None if span[0] <= last and first <= span[1] else f"room between {first} and {last}"

    def explains_globally(self, request, rule, subject, cost, span):
        """An answer of Redis to this Headgate told so, that was not forgotten since."""
        resets = self.resets(request.headgate, rule, subject, 0, request.sent)
        since = max([request.sent - OLDEST, *(began for began, ended, _ in resets if ended < request.sent)])
        answers = self.walk.answers[rule.key(subject), None if self.walk.group else request.headgate]
        answers = [one for one in answers if since < one.at < request.replied and one.least == cost]
        for one in answers:
            overlaps = (min(until, request.replied) - max(since, one.at) for since, until in self.walk.troubles)
            travel = 2 * one.distance + 2 * EPSILON + sum(max(0, overlap) for overlap in overlaps)
            if one.free - EPSILON <= span[1] and span[0] <= one.free + travel:
                return None
        return f"room at {[(one.at, one.free) for one in answers[-8:]]}"


def never_more(rule, points, counts=lambda since, until: True):
    """points: (since, until, cost, request): each is somewhere between."""
    points = sorted(points, key=lambda point: point[:3])
    for index, (since, *_) in enumerate(points):
        total = 0
        for _, until, cost, _ in sorted(points[index:], key=lambda point: point[1]):
            if counts(since, until):
                total += cost
                most = rule.fits(until - since)
                assert total <= most, f"{total} instead of {most} in {until - since} s by {rule.text()}: {points[index:]}"


def match(requests, charge, grants, spent, is_loose):
    """Gives each request permits that could be spent then: those that end first to whom ends first. Who gets none is told.
    spent: by what was granted together."""
    waiting, without = [], []
    requests = collections.deque(sorted(requests, key=lambda one: one.sent))
    for grant in grants:
        while requests and requests[0].sent <= grant.until:
            one = requests.popleft()
            heapq.heappush(waiting, [one.executed, one.number, one.charges[charge], one])
        while waiting and grant.count > 0:
            executed, _, cost, one = waiting[0]
            if executed < grant.at:
                without.append(heapq.heappop(waiting)[-1])
                continue
            part = min(cost, grant.count)
            grant.count -= part
            waiting[0][2] -= part
            # Of permits that were granted for a while some are not spent: it may have been given later ones.
            last = executed if is_loose or grant.until - grant.at > 3 * EPSILON else grant.until
            spent[grant.epoch].append((max(one.sent, grant.at), min(executed, last), part, one))
            if part == cost:
                heapq.heappop(waiting)
    return without + [one[-1] for one in waiting] + list(requests)


@pytest.mark.world
def test_walk(make_headgate, make_redis, record_property):
    draw = world.draws()
    with contextlib.ExitStack() as stack:
        group = Group(replicas=1) if draw.random() < 0.3 else None
        if group:
            stack.callback(group.discard)
        walk = Walk(make_headgate, group.servers if group else [make_redis()], draw, group)
        for index in range(ROUNDS):
            if index and draw.random() < 0.4:
                walk.renew()
            walk.round()
        walk.judge_counters()
    for name, count in walk.figures().items():
        record_property(name, count)
