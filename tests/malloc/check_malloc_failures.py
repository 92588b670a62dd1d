"""Memory that runs out: check_malloc_failures.py HEADGATE MALLOC_WATCHER

Under a mixed load one call to the allocator in 1,000 fails, down to one in 20. Headgate may close connections and answer
with errors, but never ends, hangs or gives a client what is another's; when memory is there again, it serves as before.
Each client has an identity: all that it writes carries it, and so does all that it reads.
"""

import argparse
import os
import pathlib
import random
import ssl
import struct
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("headgate")
parser.add_argument("watcher")
parser.add_argument("--preload", default="", help="a library to be preloaded behind the watcher")
parser.add_argument("--seconds", type=float, default=1.5, help="of load at each rate of failures")
parser.add_argument("--seeds", default="1,2")
parser.add_argument("--every", default="1000,300,100,50,20")
parser.add_argument("--pools", default="shared,session")
parser.add_argument("--transport", choices=("plain", "tls"), default="plain", help="of clients and Redis")
options = parser.parse_args()

os.environ["HEADGATE_BINARY"] = str(pathlib.Path(options.headgate).resolve())
WATCHER = pathlib.Path(options.watcher).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import tls
from harness.admin import stats
from harness.certificates import certificates
from harness.resp import NULL, OK, PONG, QUEUED, Client, Closed, Error, Push, encode, wait_for
from harness.servers import BINARY, Headgate, Redis, preloaded

WORKERS = 10
USER, PASSWORD = "alice", "secret"
BIG = 300_000
# A request that is not answered in that time hangs.
PATIENCE = 30

RULES = """
[limit:window]
per = user+name
limit = 100000000
window = 60s
[limit:funnel]
per = ip
algorithm = funnel
capacity = 100000000
leak = 100000000/s
[limit:keys]
per = key
limit = 100000000
window = 60s
max_clients_tracked = 1000
[limit:late]
per = connection
commands = strlen
limit = 5
window = 100ms
action = delay
max_delay = 2s
[limit:exact]
scope = global
per = user
commands = incr
limit = 100000000
window = 60s
on_error = allow
[limit:leased]
scope = global
accuracy = leased
per = all
commands = append
limit = 100000000
window = 60s
on_error = allow
[limit:bytes]
per = all
commands = set
cost = bytes
limit = 100000000000
window = 60s
[lease:lock]
keys = lock:*
grace = 1s
[deny:never]
commands = flushall
[latency]
enabled = on
flush = 1s
slowlog_threshold = 1ms
by = user
[latency:keys]
commands = get
keys = k:*
[counters]
enabled = on
[events]
enabled = on
"""


class Wrong(Exception):
    """A reply that must not be."""


class FailingHeadgate(Headgate):
    """Headgate with an allocator that fails when it is told to."""

    def start(self):
        self.orders_path = self.directory / "malloc-failures"
        self.orders_path.write_bytes(bytes(40))
        preload = preloaded(WATCHER, self.directory, "HEADGATE_MALLOC_ORDERS", self.orders_path)
        preload["LD_PRELOAD"] += f" {options.preload}"
        self.launch(["env", *(f"{name}={value}" for name, value in preload.items()), BINARY, "-c", str(self.config_path)])
        self.await_port(self.address)

    def fail_one_in(self, every, seed=0):
        with open(self.orders_path, "r+b") as orders:
            orders.write(struct.pack("=QQ", every, seed))

    def failures(self):
        """(calls, failures) so far."""
        return struct.unpack("=QQQQQ", self.orders_path.read_bytes())[2:4]


def connect(headgate):
    """By TLS with a certificate, so that all there is to a handshake is done."""
    if options.transport == "tls":
        return tls.connect(headgate.address, tls.client_context(certificates().client))
    return Client(headgate.address, timeout=PATIENCE)


def expect(reply, *wanted):
    """Errors are allowed, as memory is short: they end what was begun."""
    if isinstance(reply, Error):
        raise Closed(reply)
    if reply not in wanted:
        raise Wrong(f"{reply!r:.200} instead of {wanted!r:.200}")


class Worker:
    """One client after the other, each with an identity of its own, doing all that a client may do."""

    def __init__(self, headgate, number):
        self.headgate = headgate
        self.random = random.Random(number)
        self.number = number
        self.lives = 0
        self.done = 0

    def run(self, until):
        while not until.is_set():
            self.lives += 1
            self.me = f"{self.number}.{self.lives}".encode()
            try:
                with connect(self.headgate) as client:
                    self.live(client, until)
            except (Closed, ConnectionError, BrokenPipeError, ssl.SSLError):
                pass

    def live(self, client, until):
        for _ in range(12):
            if until.is_set():
                return
            self.random.choice(self.steps())(client)
            self.done += 1

    def steps(self):
        return [self.plain, self.pipeline, self.transaction, self.blocking, self.subscribe, self.authenticate, self.hello,
                self.select, self.script, self.big, self.lock, self.counted, self.delayed, self.named, self.reply_modes,
                self.watched, self.late_reader, self.unknown, self.access]  # fmt: skip

    def key(self, kind="k"):
        return b"%s:%s" % (kind.encode(), self.me)

    def value(self, size=20):
        return (self.me + b"/") * (size // (len(self.me) + 1) + 1)

    def plain(self, client):
        expect(client("SET", self.key(), self.value()), OK)
        expect(client("GET", self.key()), self.value())

    def pipeline(self, client):
        texts = [b"%s#%d" % (self.me, n) for n in range(self.random.choice([5, 50, 400]))]
        commands = [("ECHO", text) if n % 3 else ("PING", text) for n, text in enumerate(texts)]
        if self.random.random() < 0.5:
            commands = [("SET", self.key(), self.value()) if n % 5 == 0 else c for n, c in enumerate(commands)]
        client.send(b"".join(encode(*command) for command in commands))
        for n, text in enumerate(texts):
            reply = client.read()
            if not isinstance(reply, Error):
                expect(reply, OK if commands[n][0] == "SET" else text)

    def transaction(self, client):
        client.send(encode("MULTI") + encode("ECHO", self.me) + encode("SET", self.key("t"), self.me) + encode("EXEC"))
        replies = client.read_many(4)
        if any(isinstance(reply, Error) for reply in replies):
            raise Closed()
        if replies != [OK, QUEUED, QUEUED, [self.me, OK]]:
            raise Wrong(replies)

    def watched(self, client):
        expect(client("WATCH", self.key("w")), OK)
        expect(client("GET", self.key("w")), None, NULL)
        expect(client("UNWATCH"), OK)

    def blocking(self, client):
        expect(client("RPUSH", self.key("l"), self.me), 1)
        expect(client("BLPOP", self.key("l"), 1), [self.key("l"), self.me])

    def subscribe(self, client):
        expect(client("SUBSCRIBE", self.me), [b"subscribe", self.me, 1], Push([b"subscribe", self.me, 1]))
        expect(client("UNSUBSCRIBE", self.me), [b"unsubscribe", self.me, 0], Push([b"unsubscribe", self.me, 0]))

    def authenticate(self, client):
        expect(client("AUTH", USER, PASSWORD), OK)
        expect(client("ACL", "WHOAMI"), USER.encode())
        expect(client("ECHO", self.me), self.me)

    def hello(self, client):
        version = self.random.choice([2, 3])
        words = self.random.choice([(), ("AUTH", USER, PASSWORD), ("SETNAME", self.me)])
        reply = client("HELLO", version, *words)
        if isinstance(reply, Error):
            raise Closed()
        if b"proto" not in reply or reply[reply.index(b"proto") + 1] != version:
            raise Wrong(reply)
        if words[:1] == ("AUTH",):
            expect(client("ACL", "WHOAMI"), USER.encode())
        if words[:1] == ("SETNAME",):
            expect(client("CLIENT", "GETNAME"), self.me)

    def select(self, client):
        number = self.random.randrange(16)
        expect(client("SELECT", number), OK)
        expect(client("SET", self.key("d"), b"%d" % number), OK)
        expect(client("GET", self.key("d")), b"%d" % number)
        if self.random.random() < 0.5:
            expect(client("SELECT", 0), OK)

    def script(self, client):
        expect(client("EVAL", "return {KEYS[1], ARGV[1]}", 1, self.key(), self.me), [self.key(), self.me])

    def big(self, client):
        value = self.value(self.random.choice([20_000, 70_000, BIG]))
        expect(client("SET", self.key("b"), value, "EX", 5), OK)
        expect(client("GET", self.key("b")), value)

    def late_reader(self, client):
        """Replies pile up before they are read."""
        value = self.value(50_000)
        expect(client("SET", self.key("b"), value, "EX", 5), OK)
        client.send(encode("GET", self.key("b")) * 20)
        time.sleep(0.05)
        for _ in range(20):
            expect(client.read(), value)

    def lock(self, client):
        expect(client("SET", self.key("lock"), self.me, "NX", "PX", 1000), OK, None, NULL)
        expect(client("GET", self.key("lock")), self.me, None, NULL)
        script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
        expect(client("EVAL", script, 1, self.key("lock"), self.me), 0, 1)

    def counted(self, client):
        expect(client("DEL", self.key("n"), self.key("a")), 0, 1, 2)
        expect(client("INCR", self.key("n")), 1)
        expect(client("APPEND", self.key("a"), self.me), len(self.me))

    def delayed(self, client):
        client.send(encode("STRLEN", self.key()) * 6)
        for reply in client.read_many(6):
            if not isinstance(reply, (int, Error)):
                raise Wrong(reply)

    def named(self, client):
        expect(client("CLIENT", "SETNAME", self.me), OK)
        expect(client("CLIENT", "GETNAME"), self.me)

    def unknown(self, client):
        """Commands that nobody knows, and inline ones."""
        reply = client(b"NONE." + self.me, self.me)
        if not isinstance(reply, Error):
            raise Wrong(reply)
        client.send(b'ECHO "%s"\r\n' % self.me)
        expect(client.read(), self.me)

    def access(self, client):
        """What all workers have to hear of."""
        expect(client("ACL", "SETUSER", "bob", "on", ">secret"), OK)

    def reply_modes(self, client):
        client.send(encode("CLIENT", "REPLY", "SKIP") + encode("PING", "x") + encode("ECHO", self.me))
        reply = client.read()
        expect(reply, self.me)


class Operator(Worker):
    """The same, on the admin port."""

    VERBS = [("PING", "me"), ("STATS",), ("CLIENTS",), ("LANES",), ("CONFIG",), ("HELP",), ("HELP", "COUNTERS"),
             ("CONFIG", "SHOW"), ("LOGLEVEL",), ("STATS", "JSON"), ("RESETSTAT",)]
    VERBS += [("LIMITS",), ("LEASES",), ("SLOWLOG",), ("HOTKEYS",), ("LATENCY",), ("REPORT", "*"), ("SLOWLOG", "RESET")]
    VERBS += [("RECENT", "refusals", "info"), ("COUNTER", "requests", "5"), ("LIMIT", "RESET", "window")]
    VERBS += [("LEASE", "DROP", "lock:x"), ("BIGLOG",), ("COMMON", "slow", "warning"), ("VERSION",)]
    STARTS = {("STATS",): b"# Server", ("CONFIG",): b"[headgate]", ("PING", "me"): b"me", ("HELP",): b"PING"}

    def run(self, until):
        while not until.is_set():
            self.lives += 1
            try:
                with Client(self.headgate.admin_address, timeout=PATIENCE) as admin:
                    self.ask(admin, until)
            except (Closed, ConnectionError, BrokenPipeError):
                pass

    def ask(self, admin, until):
        for _ in range(20):
            if until.is_set():
                return
            verb = self.random.choice(self.VERBS)
            if self.random.random() < 0.3:
                admin.send(" ".join(verb).encode() + b"\r\n")
                reply = admin.read()
            else:
                reply = admin(*verb)
            if not isinstance(reply, Error) and not reply.startswith(self.STARTS.get(verb, b"")):
                raise Wrong((verb, reply[:200]))
            self.done += 1


def break_lanes(redis, until):
    """Connections to Redis break now and then, so that others are made."""
    while not until.wait(0.4):
        with redis.connect() as direct:
            direct("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def load(redis, headgate, seconds, seed):
    """All kinds of clients at once; what they found wrong, and how much they did."""
    until, wrong = threading.Event(), []
    workers = [Worker(headgate, seed * 1000 + n) for n in range(WORKERS)]
    workers += [Operator(headgate, seed * 1000 + WORKERS + n) for n in range(2)]

    def run(worker):
        try:
            worker.run(until)
        except Exception as error:  # pylint: disable=broad-exception-caught
            wrong.append(f"{type(worker).__name__} {worker.number}: {error!r}")
            until.set()

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in workers]
    threads.append(threading.Thread(target=break_lanes, args=(redis, until), daemon=True))
    for thread in threads:
        thread.start()
    until.wait(seconds)
    until.set()
    for thread in threads:
        thread.join(PATIENCE + 15)
        if thread.is_alive():
            wrong.append("a client hangs")
    return wrong, sum(worker.done for worker in workers), sum(worker.lives for worker in workers)


def serves_as_before(redis, headgate):
    """All that a client may do is done without an error."""
    wait_for(headgate.serves, PATIENCE, what="a client to be served")
    wait_for(lambda: answers(headgate), PATIENCE, what="the admin port to answer")
    worker = Worker(headgate, 999_999)
    for step in worker.steps():
        worker.lives += 1
        worker.me = b"after.%d" % worker.lives
        with connect(headgate) as client:
            step(client)
    with headgate.admin() as admin:
        for verb in Operator.VERBS:
            reply = admin(*verb)
            if isinstance(reply, Error) and verb[0] not in ("COUNTER", "RECENT", "COMMON", "REPORT", "LEASE"):
                raise Wrong((verb, reply))
    gone = ("clients_connected", "clients_exclusive")
    wait_for(lambda: all(stats(headgate)[name] == "0" for name in gone), PATIENCE, what=f"{gone} to be 0")


def answers(headgate):
    try:
        with headgate.admin() as admin:
            return admin("PING") == PONG
    except (Closed, ConnectionError):
        return False


def check(pool):
    """How many of the rates did not go well."""
    failures = 0
    by_tls = options.transport == "tls"
    redis = Redis(tls=by_tls)
    headgate = FailingHeadgate(redis, pool=pool, threads=2, start=False, tls=by_tls)
    if by_tls:
        headgate.write_config(tls_ca=certificates().ca, client_certificates="optional")
    headgate.write_rules(RULES)
    with redis.connect() as direct:
        direct("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
    headgate.start()
    try:
        for seed in map(int, options.seeds.split(",")):
            for every in map(int, options.every.split(",")):
                before = headgate.failures()
                headgate.fail_one_in(every, seed * 7919 + every)
                wrong, done, lives = load(redis, headgate, options.seconds, seed * 100 + every)
                headgate.fail_one_in(0)
                calls, failed = (after - count for after, count in zip(headgate.failures(), before))
                try:
                    if not headgate.is_alive():
                        raise Wrong(f"Headgate ended with {headgate.wait()}")
                    headgate.check_log()
                    serves_as_before(redis, headgate)
                except Exception as error:  # pylint: disable=broad-exception-caught
                    wrong.append(f"afterwards: {error!r}")
                good = not wrong and done > 0 and failed > 0
                failures += not good
                print(
                    f"{'ok  ' if good else 'FAIL'} pool = {pool}, {options.transport}, one in {every}, seed {seed}: {failed} of {calls} calls "
                    f"failed, {done} steps of {lives} clients"
                    + "".join(f"\n     {line[:500]}" for line in wrong),
                    flush=True,
                )
                if wrong:
                    print(headgate.log_tail(), flush=True)
                # From cold: much is allocated once only.
                if headgate.is_alive():
                    assert headgate.terminate() == 0
                headgate.start()
        with headgate.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        headgate.finish()
    finally:
        headgate.discard()
        redis.discard()
    return failures


sys.exit(1 if sum(check(pool) for pool in options.pools.split(",")) else 0)
