"""Who answers at a node's address is asked for its id: another cluster's node, or a lone Redis, is never sent a request.
And who nodes are told that a connection is."""

import random

import pytest

from harness.admin import stats
from harness.cluster import SLOTS, Cluster, Node, key_in, slot_of
from harness.fake_redis import FakeRedis, always, answer_hello
from harness.resp import OK, Closed, Error, bulk, wait_for
from harness.rules import launch
from harness.servers import Redis


@pytest.fixture
def cluster():
    """Three masters; the slots of two are served when one is gone."""
    with Cluster("--cluster-require-full-coverage", "no", masters=3, replicas=0, tls=False) as cluster:
        yield cluster


def other_cluster(port):
    """A node that has all slots, and takes anybody's requests."""
    node = Node("--cluster-require-full-coverage", "no", port=port, tls=False)
    node.tell("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    wait_for(lambda: node.cluster_info()["cluster_state"] == "ok", 60, "a cluster of one node")
    return node


def lone_redis(port):
    return Redis(port=port, tls=False)


@pytest.fixture
def start():
    """start(stranger, port): a server that ends with the test, if not before."""
    started = []

    def start(stranger, port):
        started.append(stranger(port))
        return started[-1]

    yield start
    for server in started:
        server.discard()


def strangers(headgate):
    return int(stats(headgate)["upstream_strangers_total"])


def ask_for_size(server):
    with server.connect() as client:
        return client("DBSIZE")


@pytest.mark.parametrize("stranger, command", ((other_cluster, "SET"), (lone_redis, "transaction")))
def test_another_server_at_the_address_of_a_node(cluster, make_headgate, start, pool, stranger, command):
    headgate = make_headgate(cluster.url("cluster"), pool=pool, upstream_wait="400ms", tls=False)
    kept, _, lost = cluster.masters
    here, there = key_in(cluster.slots_of(kept)), key_in(cluster.slots_of(lost))
    with headgate.connect() as client:
        wait_for(lambda: [client("SET", key, "v") for key in (here, there)] == [OK, OK], what="both to be served")
    lost.kill()
    other = start(stranger, lost.port)
    wait_for(lambda: asks(headgate, there, command) and strangers(headgate) > 0, 60, "a stranger that is noticed")
    for _ in range(5):
        assert isinstance(asks(headgate, there, command), Error), "after a bounded time"
        with headgate.connect() as client:
            assert client("SET", here, "v") == OK, "the others are none the worse"
    assert ask_for_size(other) == 0
    headgate.await_log(f"what answers at {lost.url} (")
    other.discard()
    lost.start()
    wait_for(lambda: asks(headgate, there, command) in (OK, [OK]), 60, "the node that is there again")
    assert lost.ask("GET", there) == b"new"


def asks(headgate, key, command):
    """The reply, or an error that stands for a connection that was closed."""
    with headgate.connect() as client:
        try:
            if command == "SET":
                return client("SET", key, "new")
            return client.pipeline([("MULTI",), ("SET", key, "new"), ("EXEC",)])[-1]
        except (OSError, Closed) as error:
            return Error(str(error).encode())


def id_of(number):
    return f"{number:040d}"


def slots_of(nodes):
    """CLUSTER SLOTS of [(fake, id)], each of which has as many slots as the others."""
    bounds = [SLOTS * number // len(nodes) for number in range(len(nodes) + 1)]
    entries = [
        f"*3\r\n:{first}\r\n:{end - 1}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{fake.port}\r\n$40\r\n{node_id}\r\n"
        for (fake, node_id), first, end in zip(nodes, bounds, bounds[1:])
    ]
    return f"*{len(nodes)}\r\n{''.join(entries)}".encode()


class Told:
    """What the nodes of a cluster that the test plays say of it: changed by the test while they serve."""

    def __init__(self, *fakes):
        self.ids = {fake: id_of(number) for number, fake in enumerate(fakes)}
        self.nodes = [(fake, self.ids[fake]) for fake in fakes]
        self.idle = []  # the same without slots
        for fake in fakes:
            fake.answers["CLUSTER"] = lambda _lane, arguments, fake=fake: self._answer(fake, arguments)

    def _answer(self, fake, arguments):
        lines = [f"{node_id} 127.0.0.1:{node.port}@1 master - 0 0 0 connected\n" for node, node_id in self.nodes + self.idle]
        known = {
            b"SLOTS": lambda: slots_of(self.nodes),
            b"MYID": lambda: bulk(self.ids[fake]),
            b"NODES": lambda: bulk("".join(lines)),
        }
        return known.get(arguments[1].upper(), lambda: b"-ERR nobody asks for that\r\n")()


def test_who_may_not_know_the_map_is_sent_on_to_seeds(cluster, make_headgate):
    for node in cluster.nodes:
        node.tell("ACL", "SETUSER", "hg", "on", ">word", "~*", "&*", "+@all", "-cluster")
    user = {"upstream_user": "hg", "upstream_password": "word"}
    client = make_headgate(cluster.url("cluster"), upstream_wait="1s", **user).connect()
    for node in cluster.masters:
        assert client("SET", key_in(cluster.slots_of(node)), "v") == OK


GLOBAL_RULE = "[limit:all]\ncommands = set\nper = all\nlimit = 100\nwindow = 1m\nscope = global\non_error = allow\n"


@pytest.mark.parametrize("word", ("MOVED", "ASK"))
def test_who_is_none_of_the_cluster_is_not_met(fake, make_headgate, pool, word):
    """What a module's command says by its error its client may choose: whoever is there would be told passwords."""
    met = FakeRedis()
    told = Told(fake, met)
    del told.nodes[1:]
    error = f"{word} {slot_of('a')} 127.0.0.1:{met.port}".encode()
    for name in ("EVAL", "EVALSHA", "EXISTS", "SSUBSCRIBE"):
        fake.answers[name] = always(b"-" + error + b"\r\n")
    hasty = launch(make_headgate, f"cluster://{fake.url}", pool, GLOBAL_RULE, upstream_wait="400ms")
    hasty.await_log("1 of them masters with slots")
    for command in (("SET", "a", 1), ("FCALL", "f", 1, "a"), ("PUBLISH", "a", "x"), ("SSUBSCRIBE", "a")):
        for resp in (2, 3):
            with hasty.connect() as client:
                client("HELLO", resp)
                client.request(*command)
                if command[0] != "SSUBSCRIBE":
                    fake.expect(*command).reply(b"-" + error + b"\r\n")
                assert client.read() == Error(error)
    assert met.lanes == [] and fake.pending.qsize() == 0, "nobody was told anything, and nothing was done twice"
    patient = make_headgate(f"cluster://{fake.url}", pool=pool, upstream_wait="60s")
    client = patient.connect()
    client.request("SET", "a", 1)
    fake.expect("SET", "a", 1).reply(b"-" + error + b"\r\n")
    client.assert_silent()
    (told.nodes if word == "MOVED" else told.idle).append((met, told.ids[met]))
    if word == "ASK":
        met.expect("ASKING").reply(b"+OK\r\n")
    met.expect("SET", "a", 1).reply(b"+OK\r\n")
    assert client.read() == OK
    met.close()


def test_a_node_that_loads_its_data_is_asked_again(fake, make_headgate):
    """Meanwhile it does not say who it is, and by then may be another one."""
    other = FakeRedis()
    told = Told(fake, other)
    answer = other.answers["CLUSTER"]
    loading = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 3
    other.answers["CLUSTER"] = lambda lane, arguments: (
        loading.pop() if loading and arguments[1].upper() == b"MYID" else answer(lane, arguments)
    )
    told.ids[other] = id_of(8)
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="60s", reconnect_max="100ms")
    key = key_in(range(SLOTS // 2, SLOTS))
    client = headgate.connect()
    client.request("SET", key, 1)
    wait_for(lambda: strangers(headgate) > 0, 60, "an id that is not known")
    assert not loading and other.pending.qsize() == 0
    told.ids[other] = id_of(1)
    other.expect("SET", key, 1).reply(b"+OK\r\n")
    assert client.read() == OK
    other.close()


class Ear(Told):
    """Two nodes that hear who each connection says it is: `faults` are those that it cannot be. Channels begin as all users
    of their one subscriber do."""

    def __init__(self, fake):
        self.other, self.away, self.faults, self.refused, self.subscribed = FakeRedis(), None, [], 0, 0
        super().__init__(fake, self.other)
        for fake in self.ids:
            fake.answers |= {"HELLO": self._greet, "AUTH": self._greet, "SSUBSCRIBE": self._subscribe}

    def leave(self):
        self.away = self.other
        self.other.close_lanes()

    def _greet(self, lane, arguments):
        if b"AUTH" in arguments:
            lane.user, password = arguments[arguments.index(b"AUTH") + 1 :][:2]
            self.faults += [arguments] if password.rstrip(b"+") != b"of-" + lane.user else []
            if lane.fake is self.away:
                self.refused += 1
                return b"-LOADING Redis is loading\r\n"
        return answer_hello(lane, arguments) if arguments[0] == b"HELLO" else b"+OK\r\n"

    def _subscribe(self, lane, arguments):
        self.subscribed += 1
        self.faults += [] if arguments[1].startswith(lane.user[:2]) else [(lane.user, arguments)]
        return b">3\r\n$10\r\nssubscribe\r\n" + bulk(arguments[1]) + b":1\r\n"


def test_nobody_speaks_for_another_user(fake, make_headgate):
    """Subscribers authenticate as others while their lanes come to be, and profiles come and go."""
    ear = Ear(fake)
    headgate = make_headgate(f"cluster://{fake.url}", upstream_wait="60s", exclusive_ready=0)
    headgate.await_log("2 of them masters with slots")
    chance, subscribers = random.Random(1), [headgate.connect() for _ in range(3)]

    def login(client, name):
        user = f"{name}{chance.choice('abcdefgh')}"
        client("HELLO", 3, "AUTH", user, f"of-{user}")

    for number, client in enumerate(subscribers):
        login(client, f"{number}-")
        client.request("SSUBSCRIBE", key_in(range(SLOTS // 2, SLOTS), f"{number}-"))
        assert client.read()[0] == b"ssubscribe"
    for _ in range(10):
        ear.leave()
        for number in chance.choices(range(3), k=8):
            login(subscribers[number], f"{number}-")
            with headgate.connect() as visitor:
                login(visitor, chance.randrange(10, 99))
        ear.subscribed, ear.away = 0, None
        wait_for(lambda: ear.subscribed >= 3, what="all of them to be subscribed again")
        assert not ear.faults
    ear.other.close()


def test_a_password_is_exchanged_while_requests_wait_for_a_node(fake, make_headgate):
    """With the last of them goes all that knows the old one."""
    ear = Ear(fake)
    identity = "[identity:here]\naddress = 127.0.0.1\nupstream_user = app\nupstream_password = of-app{}\n"
    headgate = make_headgate(f"cluster://{fake.url}", start=False, upstream_wait="200ms", reload_on_change="off")
    headgate.write_rules(identity.format(""))
    headgate.start()
    headgate.await_log("2 of them masters with slots")
    ear.leave()
    for number in range(6):
        ear.refused = 0
        with headgate.connect() as client, headgate.admin() as admin:
            client.request("SCRIPT", "LOAD", "return 1")
            wait_for(lambda: ear.refused > 0, what="a request that waits")
            headgate.write_rules(identity.format("+" * (number % 2)))
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
            assert client.read().startswith(b"ERR headgate: no connection to Redis")
    ear.other.close()
