"""[lease:NAME]: only a proof changes a lease. What others ask for and Redis refuses, or never comes to, what they have too much
of, and places that hang, take nothing from a holder."""

import subprocess

import pytest

from harness.admin import send_and_await, stats
from harness.identity import authenticated, named
from harness.leases import COMPARE_AND_DELETE, COMPARE_AND_PEXPIRE, LEASE_MS, rule, take, transact
from harness.leases import assert_kept, await_gone, await_keys, await_lease, await_left
from harness.leases import counter, keys_of, lease_of, leases, losses, remaining, say
from harness.relay import Relay
from harness.resp import OK, PONG, QUEUED, Error, encode, wait_for
from harness.rules import reload
from harness.servers import sanitizer_overhead

POOLS = pytest.mark.parametrize("pool", ["shared", "session"])
# Renewed after two thirds at the latest, and so twice within some seconds.
SHORT_MS = 4500
TAKE = ("SET", "KEY", "t", "NX", "PX", LEASE_MS)
ACQUIRE = (  # of node-redlock
    '\n  -- Return 0 if an entry already exists.\n  for i, key in ipairs(KEYS) do\n    if redis.call("exists", key) == 1 then'
    "\n      return 0\n    end\n  end\n\n  -- Create an entry for each provided key.\n  for i, key in ipairs(KEYS) do\n"
    '    redis.call("set", key, ARGV[1], "PX", ARGV[2])\n  end\n\n  -- Return the number of entries added.\n  return #KEYS\n'
)


@pytest.fixture
def mallory(redis):
    """Connects as a user who has no right to others' keys."""
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "mallory", "on", ">secret", "~mine:*", "+@all", "-@dangerous") == OK
    return lambda headgate: authenticated(headgate, "mallory")


def of(key, command):
    return tuple(key if word == "KEY" else word for word in command)


def behind_a_wait(*command):
    return encode("BLPOP", "mine:nokey", 0) + encode(*command)


def await_clients(headgate, count):
    wait_for(lambda: stats(headgate, "clients")["clients_connected"] == str(count), what=f"{count} clients to be left")


def assert_refused(*replies):
    assert all(isinstance(reply, Error) for reply in replies), replies


@pytest.mark.parametrize("pool, command", [("shared", ("DEL", "KEY")), ("session", ("FLUSHALL",))], ids=str)
def test_nobody_stops_the_renewals_of_others(make, redis, mallory, pool, command):
    """By what stands behind a request that blocks, or a reply that is not read; by what is refused again and again."""
    headgate = make(rule())
    redis.connect()("SET", "mine:huge", b"v" * (16 << 20))
    holder, blocked, deaf = headgate.connect(), mallory(headgate), mallory(headgate)
    keys = ["lock:blocked", "lock:deaf", "lock:busy"]
    for key in keys:
        take(holder, key, ms=SHORT_MS)
    blocked.send(behind_a_wait(*of(keys[0], command)))
    await_lease(headgate, keys[0], "releasing" if command[0] == "DEL" else "held")
    deaf.send(encode("GET", "mine:huge") + encode(*of(keys[1], command)))
    ask = ["redis-cli", "-p", str(headgate.port), "--user", "mallory", "--pass", "secret", "-r", "-1", "-i", "0.02"]
    ask += of(keys[2], command)
    busy = [subprocess.Popen(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
    try:
        assert_kept(redis, keys)
        assert [asking.poll() for asking in busy] == [None] * 3
    finally:
        for asking in busy:
            asking.kill()
            asking.wait()
    assert keys_of(headgate) == set(keys) and not losses(headgate) and counter(headgate, "released_total") == 0


@pytest.mark.parametrize("farewell", ["expire", "release"])
def test_who_is_refused_owns_nothing(make_shared, redis, mallory, farewell):
    """Neither another's lock, by its token, nor one that is not on file and that he may not touch."""
    headgate = make_shared(rule(owner="connection", on_owner_gone=farewell))
    holder, loser, refused, direct = headgate.connect(), headgate.connect(), mallory(headgate), redis.connect()
    take(holder, "lock:a")
    owner = lease_of(headgate, "lock:a")["owner"]
    assert direct("SET", "lock:stranger", "t", "PX", LEASE_MS) == OK
    for script in (ACQUIRE, COMPARE_AND_PEXPIRE, COMPARE_AND_DELETE):
        for call in (("EVAL", script), ("EVALSHA", direct("SCRIPT", "LOAD", script))):
            assert_refused(*(refused(*call, 1, key, "t", LEASE_MS) for key in ("lock:a", "lock:stranger")))
    for beside, nothing in ((("GET", "other"), None), (("LRANGE", "other", 0, -1), [])):
        assert transact(loser, beside, of("lock:a", TAKE)) == [nothing, None]
    assert [(lease["key"], lease["owner"]) for lease in leases(headgate)] == [("lock:a", owner)]
    refused.close()
    loser.close()
    await_clients(headgate, 1)
    assert_kept(redis, ["lock:a"])
    await_left(redis, "lock:stranger")
    assert counter(headgate, "acquired_total") == holder("DEL", "lock:a") == 1 and not losses(headgate)


@POOLS
def test_what_was_refused_or_never_ran_changes_nothing(make, redis, mallory, pool):
    headgate = make(rule())
    holder, honest, heard, gone = headgate.connect(), headgate.connect(), mallory(headgate), mallory(headgate)
    keys = [f"lock:{name}" for name in ("off", "skip", "move", "elsewhere", "gone")]
    for key in keys:
        take(holder, key)
    asked = [("CLIENT", "REPLY", "OFF"), ("DEL", "lock:off"), ("CLIENT", "REPLY", "ON")]
    asked += [("CLIENT", "REPLY", "SKIP"), ("DEL", "lock:skip"), ("PING",)]
    heard.send(b"".join(encode(*command) for command in asked))
    assert heard.read_many(2) == [OK, PONG]
    honest.send(encode("CLIENT", "REPLY", "OFF") + encode("SELECT", 5) + encode("DEL", "lock:elsewhere"))
    assert honest("CLIENT", "REPLY", "ON") == OK
    with redis.connect() as direct:
        sets = [("SET", "lock:setnx", 1), ("SET", "lock:set", 1), ("SELECT", 1), ("SET", "lock:move", "another")]
        assert direct.pipeline(sets) == [OK] * 4
    assert holder("MOVE", "lock:move", 1) == 0
    assert_refused(holder("MOVE", "lock:move", 0), holder("MOVE", "lock:move", 99), mallory(headgate)("MOVE", "lock:move", 2))
    gone.send(behind_a_wait("DEL", "lock:gone"))
    await_lease(headgate, "lock:gone", "releasing")
    gone.close()
    # Keys without an end that have the value are none of who has only asked for them.
    for attempt in (("SETNX", "lock:setnx", 1), ("SET", "lock:set", 1, "NX")):
        gone = mallory(headgate)
        send_and_await(headgate, gone, behind_a_wait(*attempt))
        gone.close()
    await_clients(headgate, 4)
    assert holder("SETNX", "lock:taken", 1) == 1
    wait_for(lambda: remaining(redis, "lock:taken")["lock:taken"] > 0, what="what was taken later to be given an end")
    assert_kept(redis, keys)
    await_keys(headgate, [*keys, "lock:taken"])
    assert remaining(redis, "lock:setnx", "lock:set") == {"lock:setnx": -1, "lock:set": -1}
    assert not losses(headgate) and counter(headgate, "released_total") == 0


def test_who_extends_a_lock_is_one_more_owner(make_shared, redis):
    """However the owner is told, and whatever becomes of its locks: it ends when all are gone."""
    cases = [(owner, farewell) for owner in ("process", "connection", "client") for farewell in ("expire", "release")]
    headgate = make_shared("".join(rule(f"{o}-{f}", keys=f"lock:{o}:{f}", owner=o, on_owner_gone=f) for o, f in cases))
    holder, other, keys = named(headgate, "holder"), headgate.connect(), [f"lock:{o}:{f}" for o, f in cases]
    for key in keys:
        take(holder, key)
    wait_for(lambda: lease_of(headgate, keys[0])["owner"].startswith("process:"), what="the process to be found")
    for key in keys:
        extend = ["redis-cli", "-p", str(headgate.port), "EVAL", COMPARE_AND_PEXPIRE, "1", key, "t", str(LEASE_MS)]
        assert subprocess.run(extend, capture_output=True, check=True).stdout == b"1\n"
    await_clients(headgate, 2)
    assert_kept(redis, keys)
    assert other("EVAL", COMPARE_AND_PEXPIRE, 1, "lock:connection:release", "t", LEASE_MS) == 1
    holder.close()
    left = ["lock:process:expire", "lock:process:release", "lock:connection:release"]
    await_keys(headgate, left)
    await_gone(redis, "lock:client:release")
    assert_kept(redis, left)
    other.close()
    await_keys(headgate, [])
    await_gone(redis, *left[1:])
    assert counter(headgate, "owner_gone_total") == len(keys) and not losses(headgate)


class Hanging(Relay):
    """Once it hangs, nothing comes back over connections that have selected database 1."""

    hangs = False

    def _pass_on(self, data, redis, deaf):
        deaf.is_of_one = getattr(deaf, "is_of_one", False) or b"SELECT\r\n$1\r\n1\r\n" in data
        if self.hangs and deaf.is_of_one:
            deaf.set()
        return super()._pass_on(data, redis, deaf)


def test_a_place_that_hangs_takes_nothing_from_another(make_sidecar, redis):
    """More locks of a database that does not answer than scripts are sent at once, and one of another database."""
    relay = Hanging(redis)
    headgate = make_sidecar(rule(renew=None), relay.url)
    many, one = headgate.connect(), headgate.connect()
    sent = [("SELECT", 1), *(("SET", f"lock:{number}", "t", "NX", "PX", SHORT_MS) for number in range(1100))]
    assert many.pipeline(sent) == [OK] * len(sent)
    relay.hangs = True
    take(one, "lock:one", ms=SHORT_MS)
    assert_kept(redis, ["lock:one"], 4)
    assert "unanswered" in {lease["state"] for lease in leases(headgate, "lock:1*")}
    relay.close()


def test_what_a_transaction_says_of_which_lock(make_shared, redis):
    """A long command that comes in pieces counts once; SELECT counts; a rule that is gone when EXEC comes does not."""
    headgate = make_shared(rule(), cut_through="64kb")
    holder, client = headgate.connect(), headgate.connect()
    take(holder, "lock:a")
    sent = encode("MULTI") + encode("DEL", *(f"junk:{number}" for number in range(6000)))
    for piece in (sent[:40_000], sent[40_000:80_000], sent[80_000:]):
        send_and_await(headgate, client, piece)
    assert client.read_many(2) == [OK, QUEUED]
    behind = [("SET", "lock:a", "u", "NX", "PX", LEASE_MS), *[("LTRIM", "junk", 0, 1)] * 8, ("EXEC",)]
    assert client.pipeline(behind)[-1] == [0, None, *[OK] * 8]
    assert counter(headgate, "acquired_total") == 1
    assert transact(client, ("SELECT", 1), of("lock:a", TAKE), ("DEL", "lock:b")) == [OK, OK, 0]
    wait_for(lambda: sorted(lease["db"] for lease in leases(headgate)) == ["0", "1"], what="one lock in each database")
    wait_for(lambda: min(int(lease["renewals"]) for lease in leases(headgate)) > 1, what="renewals of both")
    assert client("DEL", "lock:a") == 1
    assert "0" in [lease["db"] for lease in leases(headgate)] and not losses(headgate)
    client = headgate.connect()
    client.pipeline([("MULTI",), of("lock:c", TAKE)])
    reload(headgate, rule("b", keys="job:*"), holder)
    assert client("EXEC") == [OK]
    await_keys(headgate, [])
    assert counter(headgate, "acquired_total") == 2


def test_what_is_queued_is_bounded(make_shared, redis):
    """Megabytes of DEL in MULTI: what there is no room for is said."""
    headgate = make_shared("[lease]\nmax_leases = 1000\n" + rule())
    client, before = headgate.connect(), headgate.rss()
    dels = [("DEL", *(f"lock:{turn}:{number}" for number in range(60_000))) for turn in range(8)]
    assert client.pipeline([("MULTI",), *dels]) == [OK] + [QUEUED] * len(dels)
    assert headgate.rss() - before < (30 << 20) + sanitizer_overhead()
    headgate.await_log("max_leases reached: lock:")


def test_what_is_watched_is_not_renewed_while_there_is_time(make_shared, redis):
    """Hundreds of locks, and one that is taken in the same pipeline: EXEC is not told of interference."""
    headgate = make_shared(rule(renew="1/15"))
    many, one, keys = headgate.connect(), headgate.connect(), [f"lock:{number}" for number in range(300)]
    assert many.pipeline([of(key, TAKE) for key in keys]) == [OK] * len(keys)
    assert many("WATCH", *keys) == OK
    assert one.pipeline([of("lock:one", TAKE), ("WATCH", "lock:one")]) == [OK, OK]
    take(one, "lock:other")
    assert_kept(redis, ["lock:other"])
    assert transact(many, ("GET", keys[0])) == transact(one, ("GET", "lock:one")) == [b"t"]
    assert_kept(redis, [*keys, "lock:one"], 1)


# What an owner may do to his lock: it goes on, or was given up.
GOES_ON = ["SET KEY t KEEPTTL", "SETRANGE KEY 0 t", "GETEX KEY", "GETEX KEY PX 20000", "EXPIRE KEY 20", "PEXPIRE KEY 20000"]
GIVEN_UP = ["SET KEY u KEEPTTL", "APPEND KEY x", "SETRANGE KEY 0 u", "GETEX KEY PERSIST", "SET KEY t PX 20000", "SET KEY t"]


def test_what_the_owner_does_itself_is_no_loss(make_shared, redis):
    """Over the connection that took it, or another one of his."""
    headgate = make_shared(rule())
    clients = [headgate.connect(), headgate.connect()]
    cases = {f"lock:{at}:{command.replace(' ', '-')}": (at, command) for at in (0, 1) for command in GOES_ON + GIVEN_UP}
    for key, (at, command) in cases.items():
        take(clients[0], key)
        assert not isinstance(say(clients[at], command, key), Error), key
    assert clients[0].pipeline([("SET", "lock:past", "t", "NX", word, 1) for word in ("EXAT", "PXAT")]) == [OK, OK]
    kept = [key for key, (_at, command) in cases.items() if command in GOES_ON]
    await_keys(headgate, kept)
    assert_kept(redis, kept)
    assert not losses(headgate), headgate.log()
    assert counter(headgate, "released_total") == len(cases) - len(kept)


def test_msetnx_and_what_is_healed(make_shared, redis):
    """One value over all keys: each gets an end, whether its owner lives or not, and none beyond max_hold."""
    headgate = make_shared(rule(ttl=f"{LEASE_MS}ms", owner="connection") + rule("b", keys="hold:*", ttl="10m", max_hold="5m"))
    client, dying = headgate.connect(), headgate.connect()
    assert client("MSETNX", "lock:a", "t", "lock:b", "t") == 1
    assert transact(client, ("MSETNX", "lock:c", "t", "lock:d", "t")) == [1]
    assert dying("MSETNX", "lock:e", "t", "lock:f", "t") == client("SETNX", "hold:a", "t") == 1
    assert dying("MSETNX", "lock:a", "u", "lock:z", "u") == 0
    assert keys_of(headgate) == {"lock:a", "lock:c", "lock:e", "hold:a"}
    dying.reset()
    keys = [f"lock:{name}" for name in "abcdef"]
    wait_for(lambda: min(remaining(redis, *keys, "hold:a").values()) > 0, what="all to be given an end")
    assert remaining(redis, "hold:a")["hold:a"] <= 300_000
    await_left(redis, *keys[4:])
    assert_kept(redis, keys[:4])
    assert client("DEL", *keys[:4], "hold:a") == 5
    await_keys(headgate, [])
    assert counter(headgate, "released_total") == 3 and not losses(headgate)
