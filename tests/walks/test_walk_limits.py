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
import heapq
import itertools
import re
import signal
import socket
import struct
import threading
import time

import pytest

from harness import world
from harness.admin import stats
from harness.limits import REFUSAL
from harness.global_limits import UNDECIDED
from harness.relay import Relay
from harness.resp import OK, Client, Closed, Error, encode, wait_for
from harness.rules import launch, reload
from harness.sentinel import Group

ROUNDS = 9
CLIENTS = 8
# What a clock may have gone on between two looks at it that belong together.
EPSILON = 0.0003
# No rule remembers for longer.
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
        self.revision = 0
        self.renew()

    def renew(self):
        self.revision += 1
        self.most = self.draw.choice((12, 40, 64, 100) if self.is_leased else (2, 3, 5, 12, 64, 65, 100))
        self.window = self.draw.choice((1000, 3000) if self.is_leased else (100, 300, 1000, 3000)) / 1000
        self.drop = self.draw.choice((1, 4, 20, 100)) / 1000
        self.since = time.time()
        if self.is_leased and self.hold < 0.001:
            self.renew()  # no such rule may be

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

    def key(self, subject):
        return f"headgate:hist:{'funnel' if self.is_funnel else 'slots'}:{self.name}:{subject}"


class Request:
    """charges: {(rule, subject): cost}. Until `executed` at the latest it was decided; lost: nobody knows how."""

    def __init__(self, number, headgate, command, charges):
        self.number, self.headgate, self.command, self.charges = number, headgate, command, charges
        self.sent = self.replied = self.executed = None
        self.reply = None
        self.lost = False

    @property
    def admitted(self):
        return not self.lost and not (isinstance(self.reply, Error) and self.reply.startswith(b"RATELIMITED"))

    @property
    def may_count(self):
        return self.lost or self.admitted

    def __repr__(self):
        times = [at and round(at % 1000, 6) for at in (self.sent, self.executed, self.replied)]
        charges = {f"{rule}:{subject}": cost for (rule, subject), cost in self.charges.items()}
        return f"<{self.number} by {self.headgate} of {charges} {times} {self.reply!r}>"


Answer = collections.namedtuple("Answer", "at free cost distance")  # Redis had no room for all that was asked for, but from then on


class Grant:
    """Permits that may be spent meanwhile."""

    def __init__(self, at, until, count, epoch):
        self.at, self.until, self.count, self.epoch = at, until, count, epoch


class Watch:
    """What one Redis executes: requests, and what scripts of limits make of their state."""

    def __init__(self, walk, redis):
        self.walk, self.redis = walk, redis
        self.states, self.epochs = {}, collections.Counter()
        self.call = self.listener = None
        self.start()

    def start(self):
        """Once more for each life of it, when all of the last has been heard."""
        if self.listener:
            self.listener.join(30)
            self._end_call()
        self.states.clear()
        self.life = next(self.walk.lives)
        self.listener = threading.Thread(target=self._listen, args=(self._monitor(),), daemon=True)
        self.listener.start()

    def _monitor(self):
        client = self.redis.connect()
        client.socket.settimeout(None)
        assert client("MONITOR") == OK
        return client

    def _listen(self, client):
        """Sentinels close what is connected to who is not the master any more, or is it now."""
        with contextlib.suppress(ConnectionRefusedError):
            while True:
                with contextlib.suppress(Closed):
                    while True:
                        self._take(client.read().decode("latin-1"))
                if not self.walk.group:
                    break
                client = self._monitor()

    def _take(self, line):
        head, words = line.split("] ", 1)
        words = [ast.literal_eval("b" + word) for word in WORD.findall(words)]
        at, name = float(head.split()[0]), words[0].upper()
        if name == b"MSET" or name == b"SET" and b":hist:" not in words[1]:
            self.walk.executed[int(words[2])] = min(at, self.walk.executed.get(int(words[2]), at))
        elif name in (b"EVALSHA", b"EVAL"):
            self._end_call()
            self.call = [at, words[3].decode(), words[4:], False] if words[2] == b"1" and b":hist:" in words[3] else None
        elif name == b"TIME" and self.call:
            self.call[3] = True
        elif name == b"SET" and b":hist:" in words[1]:
            self._changed(at, words[1].decode(), words[2], words[3:], head.endswith("lua"))
        elif name == b"DEL" and b":hist:" in words[1]:
            self.states.pop(words[1].decode(), None)
            if self.call and self.call[2]:
                self.walk.given_back.add(words[1].decode())
            else:
                self.epochs[words[1].decode()] += 1
            self.call = None if head.endswith("lua") else self.call
        elif not head.endswith("lua"):
            self._end_call()
            if name == b"PING" and len(words) > 1:
                self.walk.pinged.add(words[1])

    def _rule(self, key, arguments):
        rule = self.walk.rules[key.split(":")[3]]
        numbers = tuple(map(int, arguments))
        known = len(rule.arguments())
        assert numbers[:known] == rule.arguments(), f"{numbers} asked for {key}, of which {rule.arguments()} is true"
        return rule, *numbers[known : known + 2]

    def state(self, key, at):
        """What has not expired."""
        state, until = self.states.get(key, ([], 0))
        return state if at < until else []

    def _changed(self, at, key, value, expiry, by_script):
        """The state is another. It is told in seconds: slots are (time, count), a funnel's drops all of one time."""
        before = self.state(key, at)
        if b"slots:" in value[:6]:
            pairs = [struct.unpack(">dd", value[i : i + 16]) for i in range(22, len(value), 16)]
            after = [(last / 1e6, count) for last, count in pairs]
        else:
            level, then = value.split()
            after = [(int(then) / 1e6, float(level))]
        lasts = {b"PX": at + int(expiry[1]) / 1e3, b"PXAT": int(expiry[1]) / 1e3}[expiry[0].upper()] if expiry else None
        self.states[key] = after, lasts or self.states[key][1]
        call, self.call = self.call, None
        if not by_script or not call or call[1] != key:
            return
        if not call[2][0].isdigit():
            self.walk.given_back.add(key)
            return
        rule, wanted, least = self._rule(key, call[2])
        at = call[0]
        if rule.is_funnel:
            now = after[0][0]
            left = max(0, before[0][1] - max(0, now - before[0][0]) / rule.drop) if before else 0
            count = round(after[0][1] - max(left, int(call[2][5]) / 1e6 / rule.drop))
        else:
            now = after[-1][0] - int(call[2][4]) / 1e6
            # What was there longer is there no more; the newest may stand later than now.
            now = now if not before or after[-1][0] > before[-1][0] else at
            kept = [(last, one) for last, one in before if last > now - rule.window + 1e-7]
            count = round(sum(one for _, one in after) - sum(one for _, one in kept))
        assert least <= count <= wanted, f"{count} of {wanted} granted, {key}: {before}, {after}"
        hold = int(call[2][-1]) / 1e6
        assert abs(hold - rule.hold) < 2e-6, f"held for {hold} s instead of {rule.hold}"
        self.walk.grants[key].append(Grant(at - EPSILON, at + hold + EPSILON, count, (self.life, key, self.epochs[key], rule.revision)))
        if count < wanted:
            self.walk.answers[key].append(Answer(at, rule.free_at(after, least), least, self.walk.distance()))

    def _end_call(self):
        """It has changed nothing: Redis refused, or had no such script, or no memory."""
        call, self.call = self.call, None
        if call and call[3] and call[2] and call[2][0].isdigit():
            rule, _, least = self._rule(call[1], call[2])
            self.walk.answers[call[1]].append(Answer(call[0], rule.free_at(self.state(call[1], call[0]), least), least, self.walk.distance()))

    def catch_up(self):
        word = b"%d" % next(self.walk.numbers)
        with self.redis.connect() as direct:
            direct("PING", word)
        wait_for(lambda: word in self.walk.pinged, 60, "MONITOR to tell all")


class Way(Relay):
    """From one Headgate to Redis; closed while nobody watches that."""

    is_open = True

    def _serve(self, lane):
        if self.is_open:
            super()._serve(lane)
        else:
            lane.close()


class Walk:
    def __init__(self, make_headgate, servers, draw, group=None):
        """group: of the servers; else relays are put before the one there is."""
        self.draw = draw
        self.numbers, self.lives = itertools.count(1), itertools.count()
        self.executed, self.pinged = {}, set()
        self.grants, self.answers = collections.defaultdict(list), collections.defaultdict(list)
        self.rules = {letter: Rule(letter, draw) for letter in "abgh"}
        self.troubles = []  # (from, to): Redis may be late, or not answer, for reasons that were made
        self.forgotten = collections.defaultdict(list)  # (headgate, rule): (from, to, subject or None)
        self.requests, self.seen = [], collections.Counter()
        self.spent = collections.defaultdict(list)  # by what was granted together: (since, until, cost, request)
        self.given_back = set()  # keys; by what was granted before nobody can tell whether it was spent
        self.undecided = collections.defaultdict(set)  # by Headgate: requests, and rules to which they were
        self.servers, self.watches = servers, [Watch(self, server) for server in servers]
        self.group = group
        self.ways = [] if group else [Way(servers[0]) for _ in range(draw.choice((2, 2, 3)))]
        text = self.text()
        self.headgates = [
            launch(make_headgate, server, draw.choice(("shared", "session")), text, threads=draw.choice((1, 2)), upstream_wait="3s",
                   connect_timeout="1s", reload_on_change="off")
            for server in ([way.url for way in self.ways] or [group.url] * 2)
        ]  # fmt: skip
        self.clients = [None] * CLIENTS
        self.actions = [self.stop_redis, self.stop_headgate, self.flush_scripts, self.reset, self.fill, self.reload]
        self.actions += [self.restart] if self.ways else [self.fail_over]
        self.began = time.time()

    def distance(self):
        return max((way.delay for way in self.ways), default=0)

    def text(self):
        return "".join(rule.text() for rule in self.rules.values())

    def bucket(self, request, name, subject):
        return None if self.rules[name].is_global else request.headgate, name, subject

    def judge_counters(self):
        """Each rule counts what it admits, and who is refused is counted once. Who had no reply may be counted."""
        for index, headgate in enumerate(self.headgates):
            own = [one for one in self.requests if one.headgate == index]
            admitted = sum(len({name for name, _ in one.charges}) for one in own if one.admitted)
            lost = sum(len({name for name, _ in one.charges}) for one in own if one.lost)
            refused = sum(not one.may_count for one in own)
            told = {name: int(count) for name, count in stats(headgate, "limit").items()}
            assert admitted <= told["limit_admitted_total"] <= admitted + lost, (admitted, lost, told)
            assert refused <= told["limit_refused_total"] <= refused + lost, (refused, lost, told)
            undecided = sum(one.reply is not None and bool(UNDECIDED.fullmatch(one.reply)) for one in own if not one.may_count)
            assert undecided + len(self.undecided[index]) <= told["limit_undecided_total"] + lost, (
                f"{undecided} denied, {sorted(self.undecided[index])} admitted undecided; {told['limit_undecided_total']} told"
            )
            self.seen["undecided"] += told["limit_undecided_total"]
            self.seen["script calls"] += told["limit_script_calls_total"]

    def told(self):
        refused = sum(not one.may_count for one in self.requests)
        lost = sum(one.lost for one in self.requests)
        figures = {"virtual seconds": round(time.time() - self.began), "requests": len(self.requests), "refused": refused, "lost": lost}
        return ", ".join(f"{count} {name}" for name, count in {**figures, **self.seen}.items())

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

    def request(self, draw, headgate, subjects):
        """MSET of keys such as ag:1: rules a and g, and if they count by key, 1."""
        number = next(self.numbers)
        letters = "".join(draw.sample("abgh", draw.choice((1, 1, 1, 2))))
        parts = draw.sample(range(3), draw.choice((1, 1, 2)))
        if "a" in letters and self.rules["a"].is_plain:
            letters, parts = "a", [0]
        charges = {}
        for rule in (self.rules[letter] for letter in letters):
            for part in parts:
                subject = f"key:{part}" if rule.per == "key" else subjects[rule.per]
                charges[rule.name, subject] = len(parts) if rule.cost == "keys" else 1
        command = ["SET" if self.rules[letters[0]].is_plain else "MSET", *itertools.chain(*((f"{letters}:{part}", number) for part in parts))]
        return Request(number, headgate, command, charges)

    def work(self, draw, number, until):
        try:
            client, headgate, subjects = self.clients[number]
            while time.time() < until:
                one = self.request(draw, headgate, subjects)
                batch = [one]
                for _ in range(draw.choice((0, 0, 0, 2, 7))):
                    again = next(self.numbers)
                    command = [word if index % 2 or not index else again for index, word in enumerate(one.command)]
                    batch.append(Request(again, headgate, command, one.charges))
                self.ask(client, batch)
                refused = isinstance(batch[-1].reply, Error) and REFUSAL.fullmatch(batch[-1].reply)
                wait = int(refused[3]) / 1000 if refused else 0.3
                together = -time.time() % 0.1
                time.sleep(min(1, draw.choice((together, together, 0.0002, 0.003, wait, max(0, wait - 0.0015), wait * draw.random()))))
        except (Closed, OSError):
            self.clients[number] = None

    def ask(self, client, batch):
        sent = time.time()
        for request in batch:
            request.sent, request.lost = sent, True
        self.requests += batch
        client.send(b"".join(encode(*request.command) for request in batch))
        for request in batch:
            request.reply = client.read()
            request.replied, request.lost = time.time(), False

    # ---- what happens ----

    @contextlib.contextmanager
    def trouble(self, settle=0.0):
        began = time.time()
        index = len(self.troubles)
        self.troubles.append((began, float("inf")))
        yield
        self.troubles[index] = began, time.time() + settle

    def stop_redis(self):
        with self.trouble(0.2):
            server = self.draw.choice(self.servers)
            server.signal(signal.SIGSTOP)
            time.sleep(self.draw.choice((0.02, 0.1, 0.3)))
            server.signal(signal.SIGCONT)

    def stop_headgate(self):
        with self.trouble():
            headgate = self.draw.choice(self.headgates)
            headgate.signal(signal.SIGSTOP)
            time.sleep(self.draw.choice((0.02, 0.2, 0.8)))
            headgate.signal(signal.SIGCONT)

    def flush_scripts(self):
        for server in self.servers:
            with server.connect() as direct:
                assert direct("SCRIPT", "FLUSH") == OK

    def restart(self):
        with self.trouble(1.5):
            for way in self.ways:
                way.is_open = False
            self.servers[0].kill()
            time.sleep(self.draw.choice((0, 0.3)))
            self.servers[0].start()
            self.watches[0].start()
            for way in self.ways:
                way.is_open = True

    def fail_over(self):
        """Once: one that was a replica again may have been sent states in a way that MONITOR does not tell."""
        if not self.seen["failed over"]:
            self.seen["failed over"] += 1
            with self.trouble(3):
                self.group.failover()

    def fill(self):
        with self.trouble():
            for memory in (1, 0):
                for server in self.servers:
                    with server.connect() as direct:
                        assert direct("CONFIG", "SET", "maxmemory", memory) == OK
                time.sleep(0.1 * memory)

    def reset(self):
        headgate, rule = self.draw.randrange(len(self.headgates)), self.draw.choice(list(self.rules.values()))
        known = sorted({subject for request in self.requests for name, subject in request.charges if name == rule.name})
        subject = self.draw.choice([None, *known])
        began = time.time()
        with self.headgates[headgate].admin() as admin:
            reply = admin("LIMIT", "RESET", rule.name, *filter(None, [subject]))
        if reply == OK:
            self.forgotten[headgate, rule.name].append((began, time.time(), subject))
        else:  # it may have been done, or not: it counts as neither
            self.seen["resets refused"] += 1
            self.forgotten[headgate, rule.name].append((began, float("inf"), subject))

    def reload(self):
        """Nothing changes that anybody could see."""
        for headgate in self.headgates:
            reload(headgate, self.text())

    def renew(self):
        """Other numbers, while nobody asks: local rules begin anew, what is in Redis stays (under a key of its own kind)."""
        rule = self.draw.choice(list(self.rules.values()))
        # An answer that is under way would be to the old numbers.
        for watch in self.watches:
            watch.catch_up()
        rule.renew()
        began = time.time()
        clients = [headgate.connect() for headgate in self.headgates for _ in range(8)]
        for headgate in self.headgates:
            reload(headgate, self.text(), *[client for client in clients if client.socket.getpeername() == headgate.address])
        for index in range(len(self.headgates)):
            self.forgotten[index, rule.name].append((began, time.time(), None))

    def round(self):
        for number in range(CLIENTS):
            if self.clients[number] is None or self.draw.random() < 0.3:
                self.connect(number)
        first = len(self.requests)
        distances = [self.draw.choice((0, 0, 0.001, 0.02, 0.15)) for _ in self.ways]
        for way, distance in zip(self.ways, distances):
            way.delay = distance
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
        Judge(self, self.requests[first:], distances).judge()


class Judge:
    """Of one round, with what was before it."""

    def __init__(self, walk, requests, distances):
        self.walk, self.requests = walk, requests
        self.distance = walk.distance()
        for request in requests:
            at = walk.executed.get(request.number)
            distance = distances[request.headgate] if distances else 0
            request.executed = at - distance + EPSILON if at else request.replied or time.time()
            assert not at or request.may_count, f"executed, though refused: {request}"
        self.buckets = collections.defaultdict(list)
        for request in walk.requests:
            if request.may_count and request.executed > requests[0].sent - OLDEST:
                for name, subject in request.charges:
                    self.buckets[walk.bucket(request, name, subject)].append(request)

    def judge(self):
        for bucket, requests in self.buckets.items():
            rule = self.walk.rules[bucket[1]]
            if rule.is_global:
                self.judge_grants(rule, bucket)
            else:
                self.judge_local(rule, bucket, requests)
        for request in self.requests:
            if not request.may_count:
                self.judge_refusal(request)

    def resets(self, bucket, since, until):
        """Those between, surely or perhaps; of one Headgate, or None: of any."""
        return [one for one in self.walk.forgotten[bucket[0], bucket[1]] if one[2] in (None, bucket[2]) and one[1] > since and one[0] < until]

    def judge_local(self, rule, bucket, requests):
        points = [(one.sent, one.executed, one.charges[bucket[1:]], one) for one in requests if one.admitted and one.sent > rule.since]
        never_more(rule, points, lambda since, until: not self.resets(bucket, since, until))

    def judge_grants(self, rule, bucket):
        """Each that was admitted had a permit, and these were not too many."""
        new = [one for one in self.requests if one.admitted and bucket[1:] in one.charges]
        key = rule.key(bucket[2])
        without = match(new, bucket[1:], self.walk.grants[key], self.walk.spent, key in self.walk.given_back)
        for one in without:
            assert rule.on_error != "deny" and self.is_excused(one, rule), f"admitted by nobody: {one}"
            self.walk.undecided[one.headgate].add((one.number, rule.name))
        if rule.on_error == "local":
            for headgate in range(len(self.walk.headgates)):
                own = [(one.sent, one.executed, one.charges[bucket[1:]], one) for one in without if one.headgate == headgate]
                place = headgate, *bucket[1:]
                never_more(rule, own, lambda since, until, place=place: not self.resets(place, since, until))
        for epoch, points in self.walk.spent.items():
            if epoch[1] == key and epoch[-1] == rule.revision:
                never_more(rule, [point for point in points if point[1] > self.requests[0].sent - OLDEST])

    def is_excused(self, request, rule):
        """Redis may not have decided in time."""
        late = any(since < request.replied and request.sent - rule.timeout < until for since, until in self.walk.troubles)
        return late or 4 * self.distance + 0.005 >= rule.timeout

    def judge_refusal(self, request):
        undecided = UNDECIDED.fullmatch(request.reply)
        if undecided:
            rule = self.walk.rules[undecided[1].decode()]
            assert rule.on_error == "deny" and self.is_excused(request, rule), f"undecided: {request}"
            return
        name, _, wait = REFUSAL.fullmatch(request.reply).groups()
        rule, wait = self.walk.rules[name.decode()], int(wait) / 1000
        asked = [(subject, cost) for (other, subject), cost in request.charges.items() if other == rule.name]
        assert asked, f"by a rule that does not mean it: {request}"
        # Room comes back between the two, by what it was told: that is rounded up to ms.
        span = request.sent + wait - 0.001 - EPSILON, request.replied + wait + EPSILON
        explain = self.explains_globally if rule.is_global else self.explains_locally
        why = [explain(request, rule, subject, cost, span) for subject, cost in asked]
        if rule.is_global and rule.on_error == "local" and self.is_excused(request, rule):
            why += [self.explains_locally(request, rule, subject, cost, span) for subject, cost in asked]
        assert None in why, f"{request}, told {span}, but {why}"

    def explains_locally(self, request, rule, subject, cost, span):
        bucket = request.headgate, rule.name, subject
        others = self.buckets[bucket]
        if rule.is_global:
            others = [one for one in self.buckets[None, *bucket[1:]] if one.headgate == request.headgate]
        perhaps, surely = [], []
        for one in others:
            resets = self.resets(bucket, one.sent, request.replied)
            if one.sent <= request.replied and not any(since >= one.executed and until <= request.sent for since, until, _ in resets):
                perhaps.append((one.executed, one.charges[bucket[1:]]))
            if one.admitted and one.executed <= request.sent and not resets:
                surely.append((one.sent, one.charges[bucket[1:]]))
        last, first = rule.free_at(perhaps, cost) + rule.lag, rule.free_at(surely, cost)
        return None if span[0] <= last and first <= span[1] else f"room between {first} and {last}"

    def explains_globally(self, request, rule, subject, cost, span):
        """An answer of Redis told so, that was not forgotten since."""
        resets = [one[0] for one in self.resets((request.headgate, rule.name, subject), 0, request.sent) if one[1] < request.sent]
        answers = [one for one in self.walk.answers[rule.key(subject)] if max(resets, default=0) < one.at < request.replied]
        answers = [one for one in answers if one.cost == cost and one.at > request.sent - OLDEST]
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
def test_walk(make_headgate, make_redis):
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
    print(walk.told())
