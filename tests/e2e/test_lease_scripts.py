"""[lease:NAME]: scripts of libraries, known by their digests. Their texts are not here: a scripted Redis answers as they
would. What Headgate asks for then is a script of its own, of which the keys and arguments are looked at."""

import collections
import queue
import time

import pytest

from harness.leases import LONG, await_keys, counters, keys_of, lease_of, leases, losses, rule
from harness.resp import OK, wait_for
from harness.rules import launch

# Not the 30 s of locks that Redisson renews itself.
LEASE_MS = 29_000
# Of leases whose end is waited for.
SHORT_MS = 10_000
NIL = b"$-1\r\n"
REDISSON = {
    "lock": "149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
    "fair": "762bfafa6be221431a0b668685dd15c926483619",
    "fence": "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45",
    "write": "6306ba3bf1f563b284bed52d305fce615c6664d9",
    "read": "95553a6ff11176c18e71344e89d116b06fd6f753",
    "renewal": "8e19a1ddbdee9138df9f32a480c57addab4353d1",
    "renewals": "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635",
    "unlock": "6866459238a13a701d42f4971f12d9f3a50e2442",
    "read-unlock": "6e1b10e11ac0a3ed8e902562ecd32ce01b553039",
    "force": "605e338249a7a1d40df83b04f7658354f883b41b",
    "permit": "992c96b09a3d8ea0b37f5dc12e5347a44d93909d",
    "permit-release": "4ce079451bee2993ce00c8a4e205b536c6ccad67",
}
REDLOCK = {
    "acquire": "96da70f7716f27d278a5218544df37fd8b0a5e4c",
    "extend": "aed6f382e410db8ba7926d4e5e9aab410bf2a78a",
    "release": "e4612211c9f8f51c257e26e056b0a654b3187242",
}
SEMAPHORE = {
    "acquire": "43ebdb49120d170e08af560cb4e46e36f8585936",
    "release": "7157921a7cc7cfba979acf6d63f073151df17d12",
}
SHEDLOCK_EXTEND = "67256370c2d1c87e2250898075542b1a7fa5b917"
AIOREDLOCK = "c75a9bf1538efcdb1f383acc3e273c5089d57e58"
PYTHON_REDIS_LOCK_UNLOCK = "90da91872223f85eb1376a17e3c4df21ace8c54b"

Call = collections.namedtuple("Call", "keys values")


class Scripts:
    """Answers the scripts of clients as it is told, one after the other, and those of Headgate by 1 and the lease."""

    def __init__(self, fake):
        self.replies = queue.Queue()
        self.calls = []
        self.known = {*REDISSON.values(), *REDLOCK.values(), *SEMAPHORE.values(), AIOREDLOCK, SHEDLOCK_EXTEND}
        self.known |= {PYTHON_REDIS_LOCK_UNLOCK}
        self.own_reply = lambda _call: b"*2\r\n:1\r\n:%d\r\n" % LEASE_MS
        fake.answers["EVALSHA"] = self.answer

    def answer(self, _lane, arguments):
        if arguments[1].decode() in self.known:
            return self.replies.get_nowait()
        count = int(arguments[2])
        call = Call([key.decode() for key in arguments[3 : 3 + count]], arguments[3 + count :])
        self.calls.append(call)
        return self.own_reply(call)

    def of(self, key):
        return [call for call in list(self.calls) if call.keys and call.keys[0] == key]

    def await_calls(self, key):
        """The next two: whatever the client has been answered by now, the last of them was made behind it."""
        before = len(self.of(key))
        wait_for(lambda: len(self.of(key)) >= before + 2, what=f"two scripts for {key}")
        return self.of(key)[before:]


@pytest.fixture
def scripts(fake):
    return Scripts(fake)


@pytest.fixture
def headgate(fake, make_headgate):
    return launch(make_headgate, fake.url, "shared", rule(keys="*", prolong_explicit="yes"))


def run(scripts, client, reply, digest, *arguments):
    scripts.replies.put(reply)
    return client("EVALSHA", digest, *arguments)


@pytest.mark.parametrize("kind", ["lock", "write", "fair", "fence"])
def test_redisson(headgate, scripts, kind):
    """A hash: the owner is a field, nil is success."""
    client = headgate.connect()
    keys, granted, refused = ("n",), NIL, b":500\r\n"
    values = (LEASE_MS, "uuid:1")
    if kind == "fair":
        keys, values = ("n", "redisson_lock_queue:{n}", "redisson_lock_timeout:{n}"), (*values, 300000, 1)
    elif kind == "fence":
        keys, granted, refused = ("n", "redisson_lock_token:{n}"), b"*2\r\n:-1\r\n:7\r\n", b"*2\r\n:500\r\n:-1\r\n"
    run(scripts, client, refused, REDISSON[kind], len(keys), *keys, *values)
    assert keys_of(headgate) == set()
    run(scripts, client, granted, REDISSON[kind], len(keys), *keys, *values)
    lease = lease_of(headgate, "n")
    assert (lease["kind"], lease["state"], lease["lease"]) == ("hash", "held", str(LEASE_MS))
    for call in scripts.await_calls("n"):
        assert call.keys == ["n"] and call.values[:2] == [b"uuid:1", b"%d" % LEASE_MS]


def test_redisson_is_held_as_long_as_it_was_taken(headgate, scripts):
    """0 of an unlock: held still. 1: released, and nothing is asked for any more. nil: not its owner."""
    client = headgate.connect()
    unlock = (REDISSON["unlock"], 3, "n", "redisson_lock__channel:{n}", "redisson_unlock_latch:{n}:1", 0, LEASE_MS)
    for _ in range(2):
        assert run(scripts, client, NIL, REDISSON["lock"], 1, "n", LEASE_MS, "uuid:1") is None
    assert run(scripts, client, b":0\r\n", *unlock, "uuid:1", "PUBLISH", 1000) == 0
    scripts.await_calls("n")
    assert run(scripts, client, NIL, *unlock, "uuid:2", "PUBLISH", 1000) is None
    assert run(scripts, client, b":1\r\n", *unlock, "uuid:1", "PUBLISH", 1000) == 1
    await_keys(headgate, [])
    time.sleep(0.1)
    before = len(scripts.of("n"))
    time.sleep(LONG)
    assert len(scripts.of("n")) == before
    assert counters(headgate)["released_total"] == 1


def test_redisson_is_released_by_force(headgate, scripts):
    client = headgate.connect()
    run(scripts, client, NIL, REDISSON["lock"], 1, "n", LEASE_MS, "uuid:1")
    assert run(scripts, client, b":1\r\n", REDISSON["force"], 2, "n", "redisson_lock__channel:{n}", 0, "PUBLISH") == 1
    assert keys_of(headgate) == set() and counters(headgate)["released_total"] == 1


def test_redisson_renews_itself(headgate, scripts):
    """In bulk, too. As long as it does, there is nothing for Headgate to do."""
    client = headgate.connect()
    for name in ("n", "m"):
        run(scripts, client, NIL, REDISSON["lock"], 1, name, LEASE_MS, "uuid:1")
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        assert run(scripts, client, b":1\r\n", REDISSON["renewal"], 1, "n", LEASE_MS, "uuid:1") == 1
        run(scripts, client, b"*1\r\n:1\r\n", REDISSON["renewals"], 1, "m", LEASE_MS, "uuid:1")
        time.sleep(0.02)
    assert keys_of(headgate) == {"n", "m"} and not losses(headgate)


@pytest.mark.parametrize(("name", "braced"), [("n", "{n}"), ("a:{n}", "a:{n}")])
def test_redissons_read_lock(headgate, scripts, name, braced):
    """Beside the hash each hold has a key of its own, and all of them are renewed."""
    client = headgate.connect()
    holds = f"{braced}:uuid:1:rwlock_timeout"
    for _ in range(3):
        run(scripts, client, NIL, REDISSON["read"], 2, name, holds, LEASE_MS, "uuid:1", "uuid:1:write")
    assert lease_of(headgate, name)["kind"] == "read-lock"
    assert scripts.await_calls(name)[-1].keys == [name, f"{holds}:1", f"{holds}:2", f"{holds}:3"]
    unlock = (REDISSON["read-unlock"], 2, name, "channel", 0, "uuid:1", "PUBLISH", 1000)
    assert run(scripts, client, b":1\r\n", *unlock) == 1
    assert keys_of(headgate) == set() or leases(headgate)[0]["state"] == "checking"


def test_redissons_permits(headgate, scripts):
    """The set is the second key, a permit its member, and the score the time of its end."""
    client = headgate.connect()
    now = int(time.time() * 1000)
    permit = bytes(range(128, 144))
    end = (1, now + LEASE_MS, now, 922337203685477, "PUBLISH", permit)
    reply = run(scripts, client, b"$2\r\nOK\r\n", REDISSON["permit"], 3, "n", "{n}:timeout", "channel", *end)
    assert reply == b"OK"
    assert lease_of(headgate, "{n}:timeout")["kind"] == "semaphore"
    calls = scripts.await_calls("{n}:timeout")
    assert calls[0].values[0] == permit
    scores = [float(call.values[1]) for call in calls]
    assert now + LEASE_MS < scores[0] < scores[1] < now + 60_000
    release = (REDISSON["permit-release"], 3, "n", "channel", "{n}:timeout", permit, 1, now, "PUBLISH")
    assert run(scripts, client, b":1\r\n", *release) == 1
    assert keys_of(headgate) == set()


@pytest.mark.parametrize(("name", "key"), [("sem:n", "{sem:n}:timeout"), ("sem:{n}", "sem:{n}:timeout")])
def test_the_name_of_a_semaphore_means_the_key_of_its_permits(fake, make_headgate, scripts, name, key):
    """Which Redisson makes of it, in braces unless there are some."""
    headgate = launch(make_headgate, fake.url, "shared", rule(keys="sem:*"))
    client = headgate.connect()
    now = int(time.time() * 1000)
    end = (1, now + LEASE_MS, now, 922337203685477, "PUBLISH", "id")
    run(scripts, client, b"$2\r\nOK\r\n", REDISSON["permit"], 3, name, key, "channel", *end)
    assert lease_of(headgate, key)["state"] == "held"
    scripts.await_calls(key)
    other = key.replace("sem:", "other:")
    run(scripts, client, b"$2\r\nOK\r\n", REDISSON["permit"], 3, "other:n", other, "channel", *end)
    assert keys_of(headgate) == {key}
    release = (REDISSON["permit-release"], 3, name, "channel", key, "id", 1, now, "PUBLISH")
    assert run(scripts, client, b":1\r\n", *release) == 1
    assert keys_of(headgate) == set() and counters(headgate)["released_total"] == 1


def test_a_lease_that_was_asked_for_is_a_wish(fake, make_headgate, scripts):
    """lock(2, SECONDS) of Redisson ends when it was to, and nothing is said of it; lock() is left to its own watchdog,
    also when that has stopped. What a command takes is renewed as ever."""
    headgate = launch(make_headgate, fake.url, "shared", rule(keys="*", watchdog=f"redisson:{SHORT_MS}ms"))
    client = headgate.connect()
    run(scripts, client, NIL, REDISSON["lock"], 1, "asked", SHORT_MS + 1, "uuid:1")
    run(scripts, client, NIL, REDISSON["read"], 2, "read", "{read}:uuid:1:rwlock_timeout", 2, "uuid:1", "uuid:1:write")
    run(scripts, client, NIL, REDISSON["lock"], 1, "watched", SHORT_MS, "uuid:1")
    run(scripts, client, b":1\r\n", REDISSON["renewal"], 1, "elsewhere", SHORT_MS, "uuid:1")
    run(scripts, client, b"+OK\r\n", AIOREDLOCK, 1, "aio", "token", LEASE_MS)
    run(scripts, client, b":1\r\n", REDLOCK["acquire"], 1, "redlock", "value", LEASE_MS)
    scripts.await_calls("redlock")
    states = {lease["key"]: lease["state"] for lease in leases(headgate)}
    assert states == {"watched": "self", "elsewhere": "self", "redlock": "held", "aio": "held"}
    assert not scripts.of("asked") and not scripts.of("read")
    # At its end it is looked whether it is there, with a lease of 1 ms, which changes nothing.
    scripts.own_reply = lambda call: b"*2\r\n:0\r\n:-2\r\n" if b"uuid:1" in call.values else b"*2\r\n:1\r\n:800\r\n"
    await_keys(headgate, ["redlock", "aio"])
    assert all(call.values[1] == b"1" for call in scripts.of("watched") + scripts.of("elsewhere"))


def test_a_lock_of_several_keys(headgate, scripts):
    """Granted by the number of its keys; renewed all together."""
    client = headgate.connect()
    assert run(scripts, client, b":0\r\n", REDLOCK["acquire"], 3, "a", "b", "c", "value", LEASE_MS) == 0
    assert keys_of(headgate) == set()
    assert run(scripts, client, b":3\r\n", REDLOCK["acquire"], 3, "a", "b", "c", "value", LEASE_MS) == 3
    lease = lease_of(headgate, "a")
    assert lease["kind"] == "strings" and lease["state"] == "held"
    call = scripts.await_calls("a")[-1]
    assert sorted(call.keys) == ["a", "b", "c"] and call.values[:2] == [b"value", b"%d" % LEASE_MS]
    assert run(scripts, client, b":3\r\n", REDLOCK["extend"], 3, "a", "b", "c", "value", 2 * LEASE_MS) == 3
    assert lease_of(headgate, "a")["lease"] == str(2 * LEASE_MS)
    assert run(scripts, client, b":3\r\n", REDLOCK["release"], 3, "a", "b", "c", "value") == 3
    assert keys_of(headgate) == set() and counters(headgate)["released_total"] == 1


def test_a_lock_of_several_keys_of_which_one_is_deleted(headgate, scripts, fake):
    """It is not whole any more: nothing of it is renewed."""
    client = headgate.connect()
    assert run(scripts, client, b":2\r\n", REDLOCK["acquire"], 2, "a", "b", "value", LEASE_MS) == 2
    client.request("DEL", "b")
    fake.expect("DEL", "b").reply(b":1\r\n")
    assert client.read() == 1
    await_keys(headgate, [])


def test_a_semaphore_by_script(headgate, scripts):
    """limit, token, lease and time of start: the score goes on from the client's own, in ms."""
    client = headgate.connect()
    now = int(time.time() * 1000)
    acquire = (SEMAPHORE["acquire"], 1, "n", 2, "id", LEASE_MS, now)
    assert run(scripts, client, b":0\r\n", *acquire) == 0
    assert keys_of(headgate) == set()
    assert run(scripts, client, b":1\r\n", *acquire) == 1
    assert lease_of(headgate, "n")["state"] == "self", "by default it is left to the library"


def test_a_refusal_that_is_an_error(headgate, scripts):
    client = headgate.connect()
    run(scripts, client, b"-ERROR not the owner\r\n", AIOREDLOCK, 1, "n", "id", LEASE_MS)
    assert keys_of(headgate) == set()
    run(scripts, client, b"+OK\r\n", AIOREDLOCK, 1, "n", "id", LEASE_MS)
    scripts.await_calls("n")
    assert run(scripts, client, b":1\r\n", PYTHON_REDIS_LOCK_UNLOCK, 2, "n", "signal", "id", 1000) == 1
    scripts.await_calls("n")
    assert run(scripts, client, b":0\r\n", PYTHON_REDIS_LOCK_UNLOCK, 2, "n", "signal", "id", 1000) == 0
    assert keys_of(headgate) == set()


def test_shedlock_releases_by_a_short_lease(headgate, scripts, fake):
    """As lockAtLeastFor wants it; a longer one extends."""
    client = headgate.connect()
    client.request("SET", "n", "t", "NX", "PX", LEASE_MS)
    fake.expect("SET", "n", "t", "NX", "PX", LEASE_MS).reply(b"+OK\r\n")
    assert client.read() == OK
    assert run(scripts, client, b":1\r\n", SHEDLOCK_EXTEND, 1, "n", "t", 60_000) == 1
    assert lease_of(headgate, "n")["lease"] == "60000"
    assert run(scripts, client, b":1\r\n", SHEDLOCK_EXTEND, 1, "n", "t", 1000) == 1
    assert keys_of(headgate) == set() and counters(headgate)["released_total"] == 1


def test_nothing_is_renewed_while_a_release_is_on_its_way(headgate, scripts, fake):
    """From the moment it is forwarded, however long Redis takes; a refusal lets it go on, nil or not."""
    client = headgate.connect()
    client.request("SET", "n", "t", "NX", "PX", LEASE_MS)
    fake.expect("SET", "n", "t", "NX", "PX", LEASE_MS).reply(b"+OK\r\n")
    assert client.read() == OK
    scripts.await_calls("n")
    client.request("DEL", "n")
    release = fake.expect("DEL", "n")
    before = len(scripts.of("n"))
    assert lease_of(headgate, "n")["state"] == "releasing"
    time.sleep(LONG)
    assert len(scripts.of("n")) == before, "renewed while it was being released"
    release.reply(b":0\r\n")
    assert client.read() == 0
    scripts.await_calls("n")
    client.request("DEL", "n")
    fake.expect("DEL", "n").reply(b":1\r\n")
    assert client.read() == 1
    assert keys_of(headgate) == set()


def test_a_release_whose_answer_never_comes(headgate, scripts, fake):
    """Who asked for it does not want it kept, whether Redis has heard of it or not."""
    client = headgate.connect()
    client.request("SET", "n", "t", "NX", "PX", LEASE_MS)
    fake.expect("SET", "n", "t", "NX", "PX", LEASE_MS).reply(b"+OK\r\n")
    assert client.read() == OK
    client.request("DEL", "n")
    fake.expect("DEL", "n")
    fake.close_lanes()
    await_keys(headgate, [])
    before = len(scripts.of("n"))
    time.sleep(LONG)
    assert len(scripts.of("n")) == before


@pytest.mark.parametrize(
    "reply",
    [b"$3\r\nfoo\r\n", b":1\r\n", b"*0\r\n", b"*1\r\n:1\r\n", b"*2\r\n:99\r\n:1\r\n", b"-ERR what\r\n", b"*2\r\n$1\r\na\r\n:1\r\n"],
    ids=repr,
)
def test_answers_that_mean_nothing(headgate, scripts, fake, reply):
    """Of a Redis that answers a renewal by what no script of ours says: lost when the lease is over."""
    scripts.own_reply = lambda _call: reply
    client = headgate.connect()
    client.request("SET", "n", "t", "NX", "PX", 500)
    fake.expect("SET", "n", "t", "NX", "PX", 500).reply(b"+OK\r\n")
    assert client.read() == OK
    await_keys(headgate, [])
    assert losses(headgate) == {"unreachable": 1}
