"""[lease:NAME] rules as text, locks as clients take them, and how they are seen: on the admin port and by MONITOR."""

import re
import threading
import time

from harness.admin import stats, text
from harness.resp import OK, QUEUED, Closed, Error, wait_for

# The lease of most locks. It is renewed after a hundredth, so that a test need not wait for it, and a machine may stand
# still for as long as tests wait for anything.
LEASE_MS = 30_000
LEASE = LEASE_MS / 1000
# Who may not be renewed had three occasions by then.
LONG = 0.03 * LEASE + 0.1

COMPARE_AND_DELETE = """
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
else
    return 0
end
"""
COMPARE_AND_PEXPIRE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end"
COMPARE_AND_EXPIRE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end"
)
WORD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)')
STATES = {"held", "releasing", "unhealed", "ownerless", "checking", "self", "max-hold", "unanswered"}


def rule(name="a", **options):
    """A rule as text: for keys that begin with lock:, with an owner that is gone at once. None leaves an option out."""
    options = {"keys": "lock:*", "grace": 0, "renew": "1/100", **options}
    lines = [f"{option} = {value}" for option, value in options.items() if value is not None]
    return "\n".join([f"[lease:{name}]", *lines]) + "\n"


def unquote(word):
    return word[1:-1].encode().decode("unicode_escape") if word.startswith('"') else word


def leases(headgate, *glob):
    """What LEASES tells, a dictionary of text for each lease."""
    with headgate.admin() as admin:
        lines = text(admin("LEASES", *glob)).splitlines()
    found = [{name: unquote(word) for name, word in WORD.findall(line)} for line in lines]
    assert all(line["state"] in STATES for line in found), lines
    return found


def lease_of(headgate, key):
    """The one lease of that key, or None."""
    found = [lease for lease in leases(headgate) if lease["key"] == key]
    assert len(found) < 2, found
    return found[0] if found else None


def await_lease(headgate, key, state="held"):
    def is_there():
        lease = lease_of(headgate, key)
        return lease if lease and lease["state"] == state else None

    return wait_for(is_there, what=f"{key} to be {state}")


def keys_of(headgate):
    return {lease["key"] for lease in leases(headgate)}


def await_keys(headgate, keys, seconds=30):
    """Until leases of exactly these keys are on file."""
    try:
        wait_for(lambda: keys_of(headgate) == set(keys), seconds)
    except AssertionError:
        found = keys_of(headgate)
        raise AssertionError(f"missing {set(keys) - found}, too many {found - set(keys)}") from None


def counter(headgate, name):
    return int(stats(headgate, "lease")[f"lease_{name}"])


def counters(headgate):
    """Those that are not 0, without the beginning of their names, but for what leases weigh."""
    values = {name.removeprefix("lease_"): int(value) for name, value in stats(headgate, "lease").items()}
    return {name: value for name, value in values.items() if value and name != "weight"}


def await_counter(headgate, name, value, seconds=30):
    wait_for(lambda: counter(headgate, name) >= value, seconds, what=f"lease_{name} to reach {value}")
    assert counter(headgate, name) == value


def losses(headgate):
    """How many locks were lost, by reason."""
    found = {name: value for name, value in counters(headgate).items() if name.startswith("lost_")}
    return {name.removeprefix("lost_").removesuffix("_total"): value for name, value in found.items()}


def take(client, key, token="t", ms=LEASE_MS):
    assert client("SET", key, token, "NX", "PX", ms) == OK, f"{key} is taken"


def say(client, line, key):
    """The last reply to commands that stand between semicolons. KEY stands for the key, RELEASE and EXTEND for scripts, MS and
    END for a lease and its end."""
    texts = {"RELEASE": COMPARE_AND_DELETE, "EXTEND": COMPARE_AND_PEXPIRE, "MS": LEASE_MS}
    texts["END"] = int(time.time() * 1000) + LEASE_MS
    commands = [command.split() for command in line.split("; ")]
    return client.pipeline([[texts.get(word) or word.replace("KEY", key) for word in command] for command in commands])[-1]


def remaining(redis, *keys):
    """Their times to live in ms, by key."""
    with redis.connect() as direct:
        return dict(zip(keys, direct.pipeline([("PTTL", key) for key in keys])))


def ends(redis, *keys):
    """When each of them expires, in ms since 1970; -1 and -2 as of PTTL."""
    with redis.connect() as direct:
        return dict(zip(keys, direct.pipeline([("PEXPIRETIME", key) for key in keys])))


def assert_kept(redis, keys, times=2):
    """Each is renewed so often from now on, and neither ends nor is made to live for ever."""
    before = ends(redis, *keys)
    for _ in range(times):
        wait_for(lambda: all(0 <= end != before[key] for key, end in ends(redis, *keys).items()), what=f"{keys} to be renewed")
        before = ends(redis, *keys)


def await_left(redis, *keys):
    """Until they are renewed no more, and would end with their lease; or are gone."""

    def are_left():
        before = ends(redis, *keys)
        time.sleep(LONG)
        return all(end in (-2, before[key]) for key, end in ends(redis, *keys).items())

    wait_for(are_left, what=f"{keys} to be left")


def await_gone(redis, *keys, seconds=LEASE / 2):
    """Released, and not left until they expire."""
    wait_for(lambda: all(life == -2 for life in remaining(redis, *keys).values()), seconds, what=f"{keys} to be gone")


def transact(client, *commands):
    """What EXEC replies."""
    replies = client.pipeline([("MULTI",), *commands, ("EXEC",)])
    assert replies[:-1] == [OK] + [QUEUED] * len(commands), replies
    return replies[-1]


class Monitor:
    """What Redis has executed, in order: lines of MONITOR."""

    def __init__(self, redis):
        self.client = redis.connect()
        self.client.socket.settimeout(None)
        self.lines = []
        assert self.client("MONITOR") == OK
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while True:
                self.lines.append(self.client.read().decode())
        except (Closed, OSError):
            pass

    def mark(self, redis):
        """Where the lines of what comes from now on begin."""
        word = f"mark:{time.monotonic_ns()}"
        with redis.connect() as direct:
            direct("ECHO", word)

        def behind():
            """None until it is there: it may be the first of all lines."""
            return next((at + 1 for at, line in enumerate(self.lines) if f'"{word}"' in line), None)

        return wait_for(behind, what="the mark in MONITOR")

    def of(self, key, start=0):
        """Lines that name the key."""
        return [line for line in self.lines[start:] if f'"{key}"' in line]

    def renewals(self, key, start=0):
        """Those that a renewal has had an effect with."""
        return [line for line in self.of(key, start) if re.search(r' lua\] "(?i:PEXPIRE|ZADD)" ', line)]

    def close(self):
        self.client.close()


def assert_untouched(redis, monitor, keys, seconds=LONG):
    """Nobody asks for any of them meanwhile. What was on its way before has a moment to arrive."""
    time.sleep(0.1)
    start = monitor.mark(redis)
    time.sleep(seconds)
    seen = {key: monitor.of(key, start) for key in keys}
    assert not any(seen.values()), {key: lines for key, lines in seen.items() if lines}


# ---- semaphores of the book ----


def sweep_and_add(client, key, token, now, bound):
    """The rank that the token has then, by which it holds a permit or does not."""
    replies = transact(
        client, ("ZREMRANGEBYSCORE", key, "-inf", bound), ("ZADD", key, now, token), ("ZRANK", key, token)
    )
    return replies[2]


def take_permit(client, key, token, limit, lease=LEASE):
    """The counting semaphore. Whether the permit was granted."""
    now = time.time()
    if sweep_and_add(client, key, token, now, now - lease) < limit:
        return True
    client("ZREM", key, token)
    return False


def sweep_and_add_fairly(client, key, token, now, bound):
    """The rank that the token has then by a counter, as clocks differ."""
    owners = f"{key}:owner"
    number = transact(
        client,
        ("ZREMRANGEBYSCORE", key, "-inf", bound),
        ("ZINTERSTORE", owners, 2, owners, key, "WEIGHTS", 1, 0),
        ("INCR", f"{key}:counter"),
    )[-1]
    return transact(client, ("ZADD", key, now, token), ("ZADD", owners, number, token), ("ZRANK", owners, token))[-1]


def take_fair_permit(client, key, token, limit, lease=LEASE):
    """The fair semaphore. Whether the permit was granted."""
    now = time.time()
    if sweep_and_add_fairly(client, key, token, now, now - lease) < limit:
        return True
    transact(client, ("ZREM", key, token), ("ZREM", f"{key}:owner", token))
    return False


def score_of(redis, key, token):
    with redis.connect() as direct:
        score = direct("ZSCORE", key, token)
    assert not isinstance(score, Error), score
    return None if score is None else float(score)
