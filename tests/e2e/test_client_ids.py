"""Ids of clients in `shared`: they are Headgate's, cost no lane, and name their clients to CLIENT KILL, UNBLOCK and TRACKING."""

import random
import threading
import time

import pytest

from harness.admin import stats
from harness.fake_redis import DEFAULT_ANSWERS, reply_in_pieces
from harness.resp import NIL_ARRAY, NULL, OK, QUEUED, Closed, Error, Push, bulk, encode, same, wait_for
from harness.rules import launch
from harness.target import client_list

# Above what Redis gets to by counting, and whole numbers in JavaScript, too.
FIRST, END = 2**52, 2**53
NO_SUCH_CLIENT = Error(b"ERR The client ID you want redirect to does not exist")
CHANNEL = "__redis__:invalidate"


def exclusive(headgate):
    return int(stats(headgate, "clients")["clients_exclusive"])


def await_no_lanes(headgate, clients=0):
    wait_for(lambda: exclusive(headgate) == clients, what=f"{clients} lanes of their own")


def identity(client):
    number = client("CLIENT", "ID")
    assert FIRST <= number < END
    return number


def info(client):
    return dict(word.split("=", 1) for word in client("CLIENT", "INFO").decode().removeprefix("txt:").split())


@pytest.fixture(params=(1, 4))
def headgate(redis, make_headgate, request):
    return make_headgate(redis, pool="shared", threads=request.param)


def crowd(headgate):
    """So many that there are some on each worker."""
    return [headgate.connect() for _ in range(8)]


# ---- who one is ----


def test_asking_costs_no_lane(headgate):
    clients = [headgate.connect() for _ in range(20)]
    ids = [identity(client) for client in clients]
    assert len(set(ids)) == len(clients)
    for client, number in zip(clients, ids):
        assert info(client)["id"] == str(number)
        assert client("SET", "k", 1) == OK
        assert client("CLIENT", "ID") == number
    await_no_lanes(headgate)


@pytest.mark.parametrize("resp", (2, 3))
def test_an_id_stays_whatever_its_client_does(headgate, redis, resp):
    client = headgate.connect()
    client("HELLO", resp)
    number = identity(client)
    client("SELECT", 3)
    assert client("CLIENT", "ID") == number
    client("WATCH", "k")
    assert client("CLIENT", "ID") == number
    assert client("UNWATCH") == OK
    if resp == 3:
        assert isinstance(client("SUBSCRIBE", "a"), Push)
        assert client("CLIENT", "ID") == number
        assert info(client)["id"] == str(number)
    else:
        client("SUBSCRIBE", "a")
        assert isinstance(client("CLIENT", "ID"), Error)
        client("UNSUBSCRIBE")
        assert client("CLIENT", "ID") == number
    assert client("RESET") == b"RESET"
    assert client("CLIENT", "ID") == number
    client("WAIT", 0, 1)
    assert client("CLIENT", "ID") == number


def test_an_id_outlives_redis(headgate, redis):
    client = headgate.connect()
    number = identity(client)
    redis.restart()
    wait_for(lambda: client("PING") == b"PONG", what="Redis to be back")
    wait_for(lambda: client("CLIENT", "ID") == number, what="the same id")


def test_info_is_about_the_client(headgate):
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", "me") == OK
    host, port = client.socket.getsockname()
    fields = info(client)
    assert fields["addr"] == f"{host}:{port}" and fields["name"] == "me" and fields["db"] == "0"
    client("HELLO", 3)
    line = client("CLIENT", "INFO").decode()
    assert f" addr={host}:{port} " in line and " name=me " in line and " resp=3" in line
    assert line.startswith(f"txt:id={identity(client)} ") or line.startswith(f"id={identity(client)} ")
    client("SELECT", 3)
    assert info(client)["db"] == "3"
    client("CLIENT", "TRACKING", "ON")
    assert info(client)["id"] == str(identity(client))
    assert client("CLIENT", "TRACKING", "OFF") == OK
    await_no_lanes(headgate)


def test_ids_of_several_headgates_do_not_meet(redis, make_headgate):
    ids = set()
    for _ in range(3):
        headgate = make_headgate(redis, pool="shared")
        ids |= {identity(headgate.connect()) for _ in range(10)}
    assert len(ids) == 30


def test_in_session_ids_are_those_of_redis(redis, make_headgate):
    headgate = make_headgate(redis, pool="session")
    client = headgate.connect()
    with redis.connect() as direct:
        assert str(client("CLIENT", "ID")) in [entry["id"] for entry in client_list(direct)]


def test_as_libraries_connect(headgate):
    """StackExchange.Redis, and RQ through redis-py: all of it in one write, the id in the middle."""
    for turn in range(10):
        client = headgate.connect()
        client.send(
            b"".join(
                encode(*words)
                for words in [
                    ("CLIENT", "SETNAME", f"worker-{turn}"), ("CLIENT", "SETINFO", "lib-name", "SE.Redis"),
                    ("CLIENT", "SETINFO", "lib-ver", "2.8"), ("CLIENT", "ID"), ("CONFIG", "GET", "timeout"),
                    ("GET", "__tiebreak"), ("CLIENT", "ID"), ("ECHO", "done"),
                ]
            )  # fmt: skip
        )
        replies = client.read_many(8)
        assert replies[0] == OK and FIRST <= replies[3] < END and replies[3] == replies[6] and replies[7] == b"done"
        assert info(client)["name"] == f"worker-{turn}"
    await_no_lanes(headgate)


def test_in_a_pipeline_replies_keep_their_order(headgate):
    client = headgate.connect()
    commands = []
    for turn in range(50):
        commands += [("SET", "k", turn), ("CLIENT", "ID"), ("GET", "k"), ("CLIENT", "UNBLOCK", FIRST)]
    replies = client.pipeline(commands)
    assert len(set(replies[1::4])) == 1
    assert replies[0::4] == [OK] * 50 and replies[2::4] == [b"%d" % turn for turn in range(50)]
    assert replies[3::4] == [0] * 50
    await_no_lanes(headgate)


def test_inline(headgate):
    client = headgate.connect()
    client.send(b"client id\r\nclient info\r\nPING\r\n")
    number, line, pong = client.read_many(3)
    assert FIRST <= number < END and line.startswith(b"id=%d " % number) and pong == b"PONG"


def test_within_a_transaction_it_is_that_of_the_lane(headgate):
    client = headgate.connect()
    assert client.pipeline([("MULTI",), ("CLIENT", "ID"), ("EXEC",)])[:2] == [OK, QUEUED]
    await_no_lanes(headgate, 1)


@pytest.mark.parametrize("user", ("-client|id", "-client|info", "-client"))
def test_who_may_not_ask_is_told_so_by_redis(headgate, redis, user):
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "low", "reset", "on", ">pw", "~*", "+@all", user)
    client = headgate.connect()
    assert client("AUTH", "low", "pw") == OK
    if user != "-client|info":
        assert client("CLIENT", "ID").startswith(b"NOPERM")
    if user != "-client|id":
        assert client("CLIENT", "INFO").startswith(b"NOPERM")
    assert client("SET", "k", 1) == OK
    await_no_lanes(headgate)


def test_rules_count_each_request_once(redis, make_headgate):
    """However often Redis is asked, and whoever has to wait."""
    rules = "[limit:names]\nscope = local\nper = connection\ncommands = CLIENT\nlimit = 6\nwindow = 1h\n"
    headgate = launch(make_headgate, redis, "shared", rules, threads=4)
    victims, client = crowd(headgate), headgate.connect()
    ids = [identity(victim) for victim in victims]
    assert client("CLIENT", "ID") not in ids
    for number in ids[:5]:
        assert client("CLIENT", "KILL", "ID", number) == 1
    assert client("CLIENT", "UNBLOCK", ids[5]).startswith(b"RATELIMITED")
    assert client("CLIENT", "KILL", "ID", ids[5]).startswith(b"RATELIMITED")
    assert victims[5]("ECHO", "alive") == b"alive"


# ---- UNBLOCK ----


@pytest.mark.parametrize("version", (2, 3))
def test_a_blocked_client_is_unblocked(headgate, version):
    waiters = crowd(headgate)
    other = headgate.connect()
    for waiter in waiters:
        waiter("HELLO", version)
    ids = [identity(waiter) for waiter in waiters]
    for how in ("TIMEOUT", "ERROR", None):
        arguments = [how] if how else []
        assert other("CLIENT", "UNBLOCK", ids[0], *arguments) == 0
        for waiter, number in zip(waiters, ids):
            waiter.request("BLPOP", "none", 0)
            wait_for(lambda: other("CLIENT", "UNBLOCK", number, *arguments) == 1, what="it to be unblocked")
            reply = waiter.read()
            assert reply.startswith(b"UNBLOCKED") if how == "ERROR" else same(reply, NIL_ARRAY if version == 2 else NULL)
    assert other("SET", "k", 1) == OK
    for waiter in waiters:
        assert waiter("SET", "k", 1) == OK
    await_no_lanes(headgate)


def test_a_malformed_unblock(headgate):
    client, other = headgate.connect(), headgate.connect()
    number = identity(client)
    assert other("CLIENT", "UNBLOCK", number, "PERHAPS").startswith(b"ERR CLIENT UNBLOCK reason")
    assert isinstance(other("CLIENT", "UNBLOCK", f"{number}x"), Error)
    await_no_lanes(headgate)


# ---- KILL ----


def test_a_client_without_a_lane_is_killed_alone(headgate):
    victims = crowd(headgate)
    ids = [identity(victim) for victim in victims]
    killer = headgate.connect()
    for turn, victim in enumerate(victims[:-2]):
        skip = (("SKIPME", "yes"), ("SKIPME", "no"), ())[turn % 3]
        assert killer("CLIENT", "KILL", "ID", ids[turn], *skip) == 1
        victim.assert_closed()
        assert killer("CLIENT", "KILL", "ID", ids[turn], *skip) == 0
    assert killer("CLIENT", "KILL", "ID", ids[-1], "USER", "default") == 0
    for victim in victims[-2:]:
        assert victim("ECHO", "alive") == b"alive"
    await_no_lanes(headgate)


def test_a_client_with_a_lane_is_killed_by_redis(headgate):
    victims = crowd(headgate)
    ids = [identity(victim) for victim in victims]
    killer = headgate.connect()
    for victim, number in zip(victims, ids):
        assert victim("WATCH", "k") == OK
        assert killer("CLIENT", "KILL", "ID", number, "TYPE", "pubsub") == 0
        assert killer("CLIENT", "KILL", "TYPE", "normal", "ID", number) == 1
        victim.assert_closed()
    assert killer("ECHO", "alive") == b"alive"


def test_a_monitor_is_killed(headgate):
    
    victim, killer = headgate.connect(), headgate.connect()
    number = identity(victim)
    assert victim("MONITOR") == OK
    wait_for(lambda: killer("CLIENT", "KILL", "ID", number) == 1, what="it to be killed")
    wait_for(lambda: exclusive(headgate) == 0, what="its lane to go")


@pytest.mark.parametrize("own_lane", (False, True))
def test_killing_oneself(headgate, own_lane):
    client, other = headgate.connect(), headgate.connect()
    number = identity(client)
    if own_lane:
        assert client("WATCH", "k") == OK
    assert client("CLIENT", "KILL", "ID", number) == 0
    client.request("CLIENT", "KILL", "ID", number, "SKIPME", "no")
    assert client.read() == 1
    client.assert_closed()
    assert other("ECHO", "alive") == b"alive"
    await_no_lanes(headgate)


def test_a_busy_client_is_killed(headgate):
    """It takes lanes and leaves them all the time."""
    for _ in range(5):
        victim, killer = headgate.connect(), headgate.connect()
        number = identity(victim)
        for _ in range(50):
            victim.send(encode("BLPOP", "none", "0.001") + encode("GET", "k"))
        assert killer("CLIENT", "KILL", "ID", number) == 1
        victim.read_to_end()
        assert killer("CLIENT", "KILL", "ID", number) == 0


@pytest.mark.parametrize("right", ("-client|kill", "-client|unblock", "-client|tracking", "-client"))
def test_who_may_not_name_others_does_nothing_to_them(headgate, redis, right):
    with redis.connect() as direct:
        direct("ACL", "SETUSER", "low", "reset", "on", ">pw", "~*", "&*", "+@all", right)
    low = headgate.connect()
    assert low("AUTH", "low", "pw") == OK
    victims = crowd(headgate)
    for victim in victims:
        number = identity(victim)
        if right in ("-client|kill", "-client"):
            assert low("CLIENT", "KILL", "ID", number).startswith(b"NOPERM")
        if right in ("-client|unblock", "-client"):
            assert low("CLIENT", "UNBLOCK", number).startswith(b"NOPERM")
        if right in ("-client|tracking", "-client"):
            assert low("CLIENT", "TRACKING", "ON", "REDIRECT", number).startswith(b"NOPERM")
    time.sleep(0.3)
    assert exclusive(headgate) == 0
    for victim in victims:
        assert victim("ECHO", "alive") == b"alive"


def test_an_id_of_nobody(headgate):
    client = headgate.connect()
    number = identity(client)
    for nobody in (FIRST, END - 1, number + 1000, number - 1):
        assert client("CLIENT", "KILL", "ID", nobody) == 0
        assert client("CLIENT", "UNBLOCK", nobody) == 0
        assert client("CLIENT", "TRACKING", "ON", "REDIRECT", nobody) == NO_SUCH_CLIENT
    await_no_lanes(headgate)


def test_a_client_of_another_headgate_is_not_known(redis, make_headgate):
    here, there = (make_headgate(redis, pool="shared") for _ in range(2))
    client, other = here.connect(), there.connect()
    assert client("CLIENT", "KILL", "ID", identity(other)) == 0
    assert other("ECHO", "alive") == b"alive"


def test_what_is_huge_is_not_looked_at(headgate):
    client, other = headgate.connect(), headgate.connect()
    number = identity(other)
    many = ["ID", number] * 2000
    began = time.monotonic()
    assert client("CLIENT", "KILL", *many) == 0
    assert client("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "x" * 300_000, "REDIRECT", number) == NO_SUCH_CLIENT
    assert client("CLIENT", "KILL", "ID", number, "ID", number) == 0
    assert client("CLIENT", "KILL", "ADDR", "1.2.3.4:5" + " " * 5000, "ID", number) == 0
    assert time.monotonic() - began < 60
    assert other("ECHO", "alive") == b"alive"


# ---- TRACKING … REDIRECT ----


@pytest.mark.parametrize("subscribed_first", (True, False))
def test_invalidations_are_redirected(headgate, subscribed_first):
    """As the documentation of Redis has it, in RESP2: two connections, by the id of one of them."""
    listeners, readers, writer = crowd(headgate), crowd(headgate), headgate.connect()
    # Whoever comes next is of another worker, if there are several.
    readers = readers[1:] + readers[:1]
    for turn, (listener, reader) in enumerate(zip(listeners, readers)):
        number = identity(listener)
        if subscribed_first:
            assert listener("SUBSCRIBE", CHANNEL)[0] == b"subscribe"
        assert reader("CLIENT", "TRACKING", "ON", "REDIRECT", number) == OK
        if not subscribed_first:
            assert listener("SUBSCRIBE", CHANNEL)[0] == b"subscribe"
        assert reader("CLIENT", "GETREDIR") == number
        assert number in reader("CLIENT", "TRACKINGINFO")
        assert info(reader)["redir"] == str(number)
        key = f"k{turn}"
        assert reader("GET", key) is None
        assert writer("SET", key, 1) == OK
        assert listener.read() == [b"message", CHANNEL.encode(), [key.encode()]]
        assert reader("CLIENT", "TRACKING", "OFF") == OK
        assert reader("CLIENT", "GETREDIR") == -1


def test_invalidations_are_redirected_to_who_speaks_resp3(headgate):
    listener, reader, writer = headgate.connect(), headgate.connect(), headgate.connect()
    listener("HELLO", 3)
    number = identity(listener)
    assert reader("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", number, "PREFIX", "redirect") == OK
    assert writer("SET", "redirect:1", 1) == OK
    assert listener.read() == Push([b"invalidate", [b"redirect:1"]])
    assert reader("CLIENT", "GETREDIR") == number


def test_who_is_busy_is_waited_for(headgate):
    """It takes a lane when its own requests are answered."""
    listener, reader = headgate.connect(), headgate.connect()
    number = identity(listener)
    listener.request("BLPOP", "none", "0.5")
    assert reader("CLIENT", "TRACKING", "ON", "REDIRECT", number) == OK
    assert same(listener.read(), NIL_ARRAY)


def test_tracking_with_faults(headgate):
    listener, reader = headgate.connect(), headgate.connect()
    number = identity(listener)
    for words in (("ON", "REDIRECT"), ("ON", "BCAST", "REDIRECT", number, "NO-SUCH"), ("MAYBE", "REDIRECT", number, "x")):
        assert isinstance(reader("CLIENT", "TRACKING", *words), Error)
    assert reader("CLIENT", "GETREDIR") == -1
    assert identity(reader) != number


def test_redirecting_to_oneself(headgate):
    client = headgate.connect()
    client("HELLO", 3)
    number = identity(client)
    assert client("CLIENT", "TRACKING", "ON", "REDIRECT", number) == OK
    assert client("CLIENT", "GETREDIR") == number
    assert client("CLIENT", "ID") == number


# ---- forged replies ----


def test_messages_are_not_taken_for_replies(headgate):
    """Whoever may PUBLISH chooses what is in a message; ids of lanes and clients are not learned from that."""
    stop = threading.Event()
    texts = [":7\r\n", "id=7 addr=1.1.1.1:1 name=x\n", "$2\r\nid\r\n:7\r\n", "+OK\r\n:7\r\n"]

    def publish():
        writer = headgate.connect()
        while not stop.is_set():
            writer.pipeline([("PUBLISH", "a", text) for text in texts * 5])

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for resp in (2, 3):
            client = headgate.connect()
            client("HELLO", resp)
            number = identity(client)
            for _ in range(30):
                replies = among_messages(client, resp, number)
                assert replies == [number], replies
    finally:
        stop.set()
        thread.join(30)
    assert stats(headgate, "upstream")["lanes_desynced_total"] == "0"


def among_messages(client, resp, number):
    """The ids that are said in answers to CLIENT ID amid SUBSCRIBE, UNSUBSCRIBE and messages."""
    client.send(encode("SUBSCRIBE", "a") + encode("CLIENT", "ID") + encode("UNSUBSCRIBE", "a") + encode("CLIENT", "ID"))
    client.send(encode("ECHO", "end"))
    said, texts = [], (b":7", b"7")
    while True:
        reply = client.read()
        if reply == b"end":
            break
        if isinstance(reply, int):
            said.append(reply)
            assert reply == number
        else:
            assert isinstance(reply, (list, Push, Error)), (reply, texts)
    return sorted(set(said))


def test_a_subscriber_is_told_by_redis(headgate):
    """In RESP2 a subscriber cannot ask: Redis says so, and nothing else is taken for the answer."""
    client, writer = headgate.connect(), headgate.connect()
    number = identity(client)
    client("SUBSCRIBE", "a")
    writer("PUBLISH", "a", ":7\r\n")
    assert client.read() == [b"message", b"a", b":7\r\n"]
    assert isinstance(client("CLIENT", "ID"), Error)
    assert isinstance(client("CLIENT", "INFO"), Error)
    client("UNSUBSCRIBE")
    assert client("CLIENT", "ID") == number


@pytest.mark.parametrize("size", (1, 2, 3, 7, 50))
def test_replies_in_pieces(fake, make_headgate, monkeypatch, size):
    """Wherever they are cut, the client gets one whole reply, behind those to what it asked before."""
    headgate = make_headgate(fake.url, pool="shared")
    client = headgate.connect()
    client.request("GET", "warm")
    fake.expect("GET", "warm").reply(b"+v\r\n")
    assert client.read() == b"v"
    monkeypatch.delitem(DEFAULT_ANSWERS, "CLIENT")
    client.send(encode("GET", "a") + encode("CLIENT", "ID") + encode("CLIENT", "INFO") + encode("GET", "b"))
    fake.expect("GET", "a").reply(b"+a\r\n")
    asked = fake.next()
    lane = asked.lane.number + 1
    reply_in_pieces([(asked, b":%d\r\n" % lane)], [size] * 200)
    asked = fake.next()
    assert asked.lane.number + 1 == lane
    reply_in_pieces([(asked, bulk(f"id={lane} addr=1.2.3.4:5 name=x age=9 redir=-1\n"))], [size] * 200)
    fake.expect("GET", "b").reply(b"+b\r\n")
    first, number, listed, last = client.read_many(4)
    assert (first, last) == (b"a", b"b") and FIRST <= number < END
    assert listed.startswith(b"id=%d addr=127.0.0.1:" % number) and listed.endswith(b" name= age=0 redir=-1\n")


def test_an_id_that_is_not_that_of_the_lane_is_passed_on(fake, make_headgate, monkeypatch):
    """What does not say what HELLO has said is not rewritten, and costs a lane as before."""
    headgate = make_headgate(fake.url, pool="shared")
    client = headgate.connect()
    monkeypatch.delitem(DEFAULT_ANSWERS, "CLIENT")
    client.request("CLIENT", "ID")
    fake.expect("CLIENT", "ID").reply(b":987654\r\n")
    assert client.read() == 987654
    client.request("CLIENT", "INFO")
    fake.expect("CLIENT", "INFO").reply(bulk("id=1234567 addr=1.2.3.4:5\n"))
    assert client.read() == b"id=1234567 addr=1.2.3.4:5\n"
    assert exclusive(headgate) == 1


# ---- nobody else is hit ----


@pytest.mark.parametrize("words", [("UNBLOCK",), ("KILL", "ID")])
def test_a_lane_that_was_named_is_for_nobody_else(fake, make_headgate, monkeypatch, words):
    """The target leaves its lane while the request that names it is under way: the next client gets another one."""
    monkeypatch.delitem(DEFAULT_ANSWERS, "CLIENT")
    headgate = make_headgate(fake.url, pool="shared", exclusive_ready=0)
    target, other, next_one = (headgate.connect() for _ in range(3))
    target.request("CLIENT", "ID")
    asked = fake.expect("CLIENT", "ID")
    asked.reply(b":%d\r\n" % (asked.lane.number + 1))
    number = target.read()
    assert FIRST <= number < END
    target.request("BLPOP", "none", 0)
    blocked = fake.expect("BLPOP", "none", "0")
    named = blocked.lane.number
    other.request("CLIENT", *words, number)
    fake.expect("CLIENT", *words, str(number)).reply(b":0\r\n")
    request = fake.expect("CLIENT", *words, str(named + 1))
    blocked.reply(b"*-1\r\n")
    assert same(target.read(), NIL_ARRAY)
    next_one.request("BLPOP", "other", 0)
    assert fake.expect("BLPOP", "other", "0").lane.number != named
    request.reply(b":0\r\n")
    assert other.read() == (0 if words == ("UNBLOCK",) else 1)


def test_nobody_else_is_hit(redis, make_headgate):
    """Targets leave lanes and take them while they are named: who was not named is neither unblocked nor closed."""
    headgate = make_headgate(redis, pool="shared", threads=4)
    targets = [headgate.connect() for _ in range(6)]
    ids = [identity(target) for target in targets]
    stop, faults = threading.Event(), []

    def take_and_leave(client):
        while not stop.is_set():
            client("BLPOP", "none", "0.001")

    def be_innocent(number):
        """Is on lanes that others have left. It would be told of an unblocking, or closed."""
        client = headgate.connect()
        while not stop.is_set():
            try:
                client.request("BLPOP", f"innocent{number}", "0.01")
                reply = client.read()
                if not same(reply, NIL_ARRAY):
                    faults.append(reply)
            except (Closed, OSError) as error:
                faults.append(error)
                return

    def name_them(*words):
        client = headgate.connect()
        while not stop.is_set():
            client.pipeline([("CLIENT", *words, random.choice(ids), *(("ERROR",) if "UNBLOCK" in words else ())) for _ in range(5)])

    threads = [threading.Thread(target=take_and_leave, args=(target,)) for target in targets]
    threads += [threading.Thread(target=be_innocent, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=name_them, args=("UNBLOCK",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(5)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not faults


def test_only_who_is_killed_is_closed(redis, make_headgate):
    headgate = make_headgate(redis, pool="shared", threads=4)
    stop, faults = threading.Event(), []

    def be_innocent(number):
        client = headgate.connect()
        while not stop.is_set():
            try:
                client.request("BLPOP", f"innocent{number}", "0.003")
                if not same(client.read(), NIL_ARRAY):
                    faults.append("unblocked")
            except (Closed, OSError) as error:
                faults.append(error)
                return

    def take_and_leave(client):
        try:
            while not stop.is_set():
                client("BLPOP", "none", "0.001")
        except (Closed, OSError):
            pass

    innocent = [threading.Thread(target=be_innocent, args=(number,)) for number in range(6)]
    for thread in innocent:
        thread.start()
    killer = headgate.connect()
    for _ in range(150):
        victim = headgate.connect()
        number = identity(victim)
        thread = threading.Thread(target=take_and_leave, args=(victim,))
        thread.start()
        time.sleep(random.random() / 100)
        assert killer("CLIENT", "KILL", "ID", number) == 1
        assert killer("CLIENT", "KILL", "ID", number) == 0
        thread.join(30)
        assert not thread.is_alive()
    stop.set()
    for thread in innocent:
        thread.join(30)
    assert not faults
