"""Clients that go away while their requests wait: nobody stays, and nothing is popped for who is gone."""

import contextlib
import itertools
import random
import signal
import time

import pytest

from harness.admin import await_outage, stats
from harness.resp import OK, PONG, Client, Closed, Error, encode, wait_for
from harness.rules import launch
from harness.target import MODES, info

# Any rule makes what follows CLIENT SETNAME wait for its answer.
RULES = "[deny:forbidden]\ncommands = flushall\n"
RULES += "[limit:slow]\ncommands = strlen\nper = all\nlimit = 1\nwindow = 1m\naction = delay\nmax_delay = 10m\n"

PING = encode("PING")
BLPOP = encode("BLPOP", "q", 0)
# More than is read ahead of a client that waits.
MUCH = PING * 20_000


class Place:
    """Where clients connect: Redis itself, or Headgate with rules before it."""

    def __init__(self, mode, redis, make_headgate, **options):
        self.redis = redis
        self.headgate = None
        if mode != "direct":
            self.headgate = launch(make_headgate, redis, mode, RULES, **options)
        self.observer = redis.connect()

    def connect(self):
        return self.headgate.connect() if self.headgate else self.redis.connect()

    def reload(self, **options):
        self.headgate.write_config(**options)
        with self.headgate.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")

    def await_blocked(self, count):
        wait_for(lambda: info(self.observer, "clients")["blocked_clients"] == str(count), PATIENCE, f"{count} blocked clients")

    def await_gone(self):
        """No client, no lane of a client's own, nobody blocked."""

        def counts():
            now = stats(self.headgate)
            return int(now["clients_connected"]), int(now["lanes_exclusive"]) - int(now["lanes_pooled"])

        self.await_blocked(0)
        if self.headgate:
            wait_for(lambda: counts() == (0, 0), PATIENCE, what="all clients to be gone")
            assert int(stats(self.headgate)["clients_exclusive"]) == 0

    def assert_nothing_is_popped(self):
        assert self.observer("RPUSH", "q", "precious") == 1
        assert self.observer("LRANGE", "q", 0, -1) == [b"precious"]
        self.observer("DEL", "q")


@pytest.fixture(params=MODES)
def place(request, redis, make_headgate):
    return Place(request.param, redis, make_headgate)


@pytest.fixture
def behind(redis, make_headgate, pool):
    """The same without the comparison."""
    return Place(pool, redis, make_headgate)


PATIENCE = 30

VANISH = ("close", "reset", "shutdown_write")

PIPELINES = {
    "reset": BLPOP + encode("RESET"), "reset-and-more": BLPOP + encode("RESET") + MUCH,
    "name-and-more": BLPOP + encode("CLIENT", "SETNAME", "me") + MUCH, "quit": BLPOP + encode("QUIT"),
    "quit-and-more": BLPOP + encode("QUIT") + MUCH, "much": BLPOP + MUCH, "only": BLPOP, "two": BLPOP + BLPOP + encode("RESET") + PING,
    "stream": encode("XREAD", "BLOCK", 0, "STREAMS", "s", "$") + encode("RESET") + MUCH,
    "wait": encode("SET", "k", 1) + encode("WAIT", 1, 0) + encode("RESET") + MUCH,
    "unseen": encode("CLIENT", "REPLY", "SKIP") + BLPOP + MUCH,
    "subscriber": encode("HELLO", 3) + encode("SUBSCRIBE", "c") + BLPOP + encode("RESET") + MUCH,
    "transaction": BLPOP + encode("MULTI") + encode("SET", "k", 1) + encode("EXEC") + encode("RESET") + PING,
    "half-a-request": BLPOP + b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"v" * 300_000,
    "denied": BLPOP + encode("FLUSHALL") * 100 + encode("RESET") + MUCH, "held": BLPOP + encode("STRLEN", "k") * 2 + MUCH,
}


@pytest.mark.parametrize("vanish", VANISH)
def test_behind_a_command_that_blocks(place, vanish):
    for name, pipeline in PIPELINES.items():
        print(name)
        client = place.connect()
        client.send(pipeline)
        place.await_blocked(1)
        getattr(client, vanish)()
        place.await_gone()
        place.assert_nothing_is_popped()
        client.close()


def test_every_reply_comes_after_the_end_of_the_input(place):
    """What has to wait is carried out all the same, if only what can be answered is before it."""
    place.observer("RPUSH", "q", "a", "b")
    name, count = encode("CLIENT", "SETNAME", "me"), encode("INCR", "n")
    with place.connect() as client:
        client.send((name + count) * 10 + encode("RESET") + count + BLPOP + name + count * 2 + encode("GET", "n"))
        client.shutdown_write()
        expected = b"".join(b"+OK\r\n:%d\r\n" % number for number in range(1, 11))
        expected += b"+RESET\r\n:11\r\n*2\r\n$1\r\nq\r\n$1\r\na\r\n+OK\r\n:12\r\n:13\r\n$2\r\n13\r\n"
        assert client.read_to_end() == expected
    place.await_gone()
    assert place.observer("LRANGE", "q", 0, -1) == [b"b"]


@pytest.mark.parametrize("element", [True, False], ids=["popped", "blocked"])
def test_behind_what_blocks_the_input_ends_as_in_redis(place, element):
    """Redis reads all that there is before it comes to the end."""
    if element:
        place.observer("RPUSH", "q", "a")
    with place.connect() as client:
        client.send(encode("SET", "k", 1) + BLPOP + encode("CLIENT", "SETNAME", "me") + encode("INCR", "n"))
        client.shutdown_write()
        popped = b"*2\r\n$1\r\nq\r\n$1\r\na\r\n+OK\r\n:1\r\n"
        assert client.read_to_end() == b"+OK\r\n" + (popped if element else b"")
    place.await_gone()
    assert place.observer("GET", "n") == (b"1" if element else None)


BEHIND_WAIT = [
    ([("CLIENT", "SETNAME", "me"), ("INCR", "n")], [OK, 2]), ([("AUTH", "default", "any"), ("INCR", "n")], [OK, 2]),
    ([("FLUSHALL",), ("RESET",), ("INCR", "n")], None), ([("CLIENT", "SETNAME", "me"), ("QUIT",)], [OK, OK]),
]


def test_behind_wait_all_is_carried_out(place):
    """Redis has answered it when it comes to the end."""
    for ahead, (rest, replies) in itertools.product(([], [("CLIENT", "ID")]), BEHIND_WAIT):
        place.observer("DEL", "n")
        client = place.connect()
        assert client("PING") == PONG
        place.redis.signal(signal.SIGSTOP)
        client.send(b"".join(encode(*command) for command in [*ahead, ("INCR", "n"), ("WAIT", 0, 0), *rest]))
        client.shutdown_write()
        if place.headgate:
            # It has seen the end by then.
            stats(place.headgate)
        place.redis.signal(signal.SIGCONT)
        assert client.read_many(len(ahead) + 2)[-2:] == [1, 0]
        told = client.read_many(len(rest))
        assert told == replies or (replies is None and told[1:] == [b"RESET", told[2]] and told[2] in (1, 2))
        client.assert_closed()
        place.await_gone()


def test_much_behind_a_request_whose_answer_was_not_seen(place):
    """Redis takes its time, and the end of the input comes long before it has taken all."""
    count = encode("EVAL", "for i = 1, 1000 do end redis.call('INCR', 'n')", 0, "x" * 6000)
    for turn, unseen in enumerate((encode("NOSUCH"), encode("BLPOP", "none", "0.01"))):
        with place.connect() as client:
            client.send(encode("CLIENT", "REPLY", "SKIP") + unseen + PING)
            assert client.read() == PONG
            client.send(encode("CLIENT", "REPLY", "OFF") + count * 1_500)
            client.shutdown_write()
            assert client.read_to_end() == b""
        assert place.observer("GET", "n") == b"%d" % (1_500 * (turn + 1))


@pytest.mark.parametrize("vanish, much", [("close", MUCH), ("reset", b""), ("shutdown_write", MUCH)], ids=VANISH)
def test_held_by_a_rule(behind, vanish, much):
    """What waits for its turn is dropped. What was sent before keeps its replies."""
    with behind.connect() as first:
        assert first("STRLEN", "k") == 0
    clients = [behind.connect() for _ in range(5)]
    assert [client("PING") for client in clients] == [PONG] * 5
    behind.redis.signal(signal.SIGSTOP)
    for client in clients:
        client.send(encode("INCR", "n") + encode("STRLEN", "k") + much)
    wait_for(lambda: stats(behind.headgate, "policies")["policy_holds_total"] == "5", what="the clients to be held")
    for client in clients:
        getattr(client, vanish)()
    # It has seen the end by then.
    stats(behind.headgate)
    behind.redis.signal(signal.SIGCONT)
    if vanish == "shutdown_write":
        assert sorted(client.read_to_end() for client in clients) == [b":%d\r\n" % (n + 1) for n in range(5)]
    behind.await_gone()
    assert behind.observer("GET", "n") == b"5"


def test_while_redis_hangs(behind):
    """They wait for all kinds of things, and none of it will come. Who is reset is gone, whatever that is."""
    big = encode("SET", "k", b"v" * 3_000_000)
    pipelines = [PING, encode("GET", "k") + MUCH, encode("MULTI") + MUCH, big * 4, PING + BLPOP, BLPOP + MUCH]
    pipelines += [encode("CLIENT", "SETNAME", "x" * 300) + MUCH, encode("QUIT") + MUCH, encode("SELECT", 3) + MUCH]
    steady = behind.connect()
    assert steady("PING") == PONG
    clients = [behind.connect() for _ in pipelines]
    behind.redis.signal(signal.SIGSTOP)
    for client, pipeline in zip(clients, pipelines):
        client.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            client.send(pipeline)
    time.sleep(0.3)
    for client in clients:
        client.reset()
    wait_for(lambda: stats(behind.headgate)["clients_connected"] == "1", PATIENCE, what="the others to be gone")
    behind.redis.signal(signal.SIGCONT)
    assert steady("PING") == PONG
    steady.close()
    behind.await_gone()
    behind.assert_nothing_is_popped()


def test_while_redis_is_away(behind):
    """When it is back, nothing is popped for who left meanwhile."""
    behind.reload(upstream_wait="60s")
    behind.redis.kill()
    names = ("much", "name-and-more", "quit-and-more", "quit")
    leaving = [(behind.connect(), name, vanish) for name in names for vanish in VANISH[:2]]
    for client, pipeline, _ in leaving:
        client.send(PIPELINES[pipeline])
    # A first attempt to connect has failed by then.
    wait_for(lambda: int(stats(behind.headgate)["lanes_failed_total"]) > 10, what="attempts to connect")
    for client, _, vanish in leaving:
        getattr(client, vanish)()
    wait_for(lambda: stats(behind.headgate)["clients_connected"] == "0", PATIENCE, what="the clients to be gone")
    behind.redis.start()
    behind.observer = behind.redis.connect()
    with behind.connect() as client:
        assert client("PING") == PONG
    behind.await_gone()
    behind.assert_nothing_is_popped()


def test_while_redis_is_away_who_waits_is_told(behind):
    """A client that has closed its writing half gets its answer: that Redis cannot be reached."""
    behind.reload(upstream_wait="60s")
    behind.redis.kill()
    await_outage(behind.headgate)
    with behind.connect() as client:
        client.send(BLPOP + encode("RESET"))
        client.shutdown_write()
        assert client.read_to_end().startswith(b"-ERR headgate: no connection to Redis")
    wait_for(lambda: stats(behind.headgate)["clients_connected"] == "0", PATIENCE, what="the client to be gone")


def test_while_draining(behind):
    """Who has been blocked for half a second is closed by the drain itself: so may some be before they go."""
    behind.reload(drain_timeout="60s")
    idle = behind.connect()
    assert idle("PING") == PONG
    clients = [behind.connect() for _ in range(9)]
    for number, client in enumerate(clients):
        client.send(list(PIPELINES.values())[number % 7])
    behind.await_blocked(9)
    behind.headgate.signal(signal.SIGTERM)
    idle.assert_closed()
    for number, client in enumerate(clients):
        with contextlib.suppress(OSError):
            getattr(client, VANISH[number // 3])()
    assert behind.headgate.wait(30) == 0
    behind.await_blocked(0)
    behind.assert_nothing_is_popped()


WORDS = [
    PING, encode("INCR", "n"), encode("GET", "k"), encode("SET", "k", b"v" * 20_000), encode("FLUSHALL"),
    encode("CLIENT", "SETNAME", "me"), encode("SELECT", 0), encode("MULTI") + encode("INCR", "n") + encode("EXEC"),
    encode("WATCH", "k"), encode("UNWATCH"), encode("SUBSCRIBE", "c"), encode("UNSUBSCRIBE", "c"), encode("RESET"),
    encode("QUIT"), encode("EVAL", "return redis.call('INCR', 'n')", 0), encode("CLIENT", "REPLY", "SKIP"),
    encode("CLIENT", "ID"), encode("WAIT", 0, 10), encode("WAIT", 1, 0), encode("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
    encode("BLPOP", "none", "0.05"), encode("BLMOVE", "q", "moved", "LEFT", "LEFT", 0), encode("SET", "k", b"v" * 300_000),
    encode("NOSUCH"), MUCH, b"*2\r\n$4\r\nEC",
]


def live(place, client, dice):
    """One client's life. What it has taken of the list is told by itself."""
    client.socket.settimeout(0.3)
    words = dice.choices(WORDS, k=dice.randint(1, 12)) + [BLPOP] * dice.choice([0, 0, 1])
    dice.shuffle(words)
    data = b"".join(words)
    with contextlib.suppress(OSError, Closed):
        client.send(data[: dice.randrange(len(data)) + 1] if dice.random() < 0.3 else data)
        if dice.random() < 0.3:
            client.read()
    with contextlib.suppress(OSError):  # it was closed from the other side, as after QUIT
        getattr(client, dice.choice(VANISH))()
    return client


@pytest.mark.threads
@pytest.mark.parametrize("seed", range(2))
def test_random_pipelines_that_end_somewhere(redis, make_headgate, pool, open_directory, seed):
    """Of clients by TCP and by a Unix socket, with one worker and with several."""
    dice = random.Random(seed)
    path = f"{open_directory}/h.sock"
    place = Place(pool, redis, make_headgate, listen=f"unix:{path}", threads=1 + 3 * seed)
    for _ in range(4):
        clients = [live(place, Client(path) if number % 2 else place.connect(), dice) for number in range(16)]
        place.await_gone()
        place.observer("DEL", "q", "moved")
        place.assert_nothing_is_popped()
        for client in clients:
            client.close()
    with place.connect() as client:
        assert client("PING") == PONG
        assert isinstance(client("FLUSHALL"), Error)
