"""Who makes up credentials, databases and RESP versions costs Redis no more connections than clients without Headgate."""

import threading

import pytest

from harness.admin import stats
from harness.resp import OK, encode, wait_for
from harness.target import client_list, info

# Of each worker: the profiles that linger, with a shared lane and perhaps one for scripts, those of the default
# profile, and what is just being opened and closed.
FEW = 40


class Watch:
    """Looks at Redis' connections all the time. largest: the most there were, without the one that looks."""

    def __init__(self, redis):
        self.client = redis.connect()
        self.largest = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.wait(0.002):
            self.largest = max(self.largest, int(info(self.client, "clients")["connected_clients"]) - 1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join(20)
        self.client.close()


def passwords(count, name="random"):
    return [f"{name}-{number}" for number in range(count)]


def logged_in(password):
    return encode("AUTH", "default", password)


def test_a_thousand_passwords_of_one_client(redis, make_headgate):
    """Any password fits a user that needs none. Each is used on a shared lane, too."""
    headgate = make_headgate(redis, threads=2)
    client, other = headgate.connect(), headgate.connect()
    assert other("SET", "k", 1) == OK
    opened = int(stats(headgate)["lanes_opened_total"])
    with Watch(redis) as watch:
        for number, password in enumerate(passwords(1_000)):
            assert client("AUTH", "default", password) == OK
            assert client("GET", "k") == b"1"
            if number % 100 == 0:
                assert other("GET", "k") == b"1"
    assert watch.largest <= FEW * 2
    # Who changes so often is given no further lane to share, so that none are opened and closed all the time.
    assert int(stats(headgate)["lanes_opened_total"]) - opened <= 100


@pytest.mark.parametrize("staying", (0, 1))
def test_connections_in_pools_are_bounded_for_all_profiles_together(redis, make_headgate, staying):
    """Whether somebody stays in each or not; who stays may keep the one that it has, as its password may be changed."""
    headgate = make_headgate(redis, exclusive_idle=20)
    with Watch(redis) as watch:
        for turn in range(20):
            clients = [headgate.connect() for _ in range(15)]
            for client in clients:
                client.send(logged_in(f"random-{turn}") + encode("WATCH", "k") + encode("UNWATCH"))
            for client in clients:
                assert client.read_many(3) == [OK] * 3
            for client in clients[staying:]:
                client.close()
    assert watch.largest <= FEW + 20 + 15 + 20 * staying


def test_clients_of_another_database_that_come_and_go(redis, make_headgate):
    """Each SELECTs, asks, and leaves: Redis has to be asked once whether it may, and no connection is left behind."""
    headgate = make_headgate(redis, threads=4)
    with Watch(redis) as watch:
        for number in range(1, 151):
            with headgate.connect() as client:
                assert client.pipeline([("SELECT", 5), ("INCR", "n")]) == [OK, number]
    assert watch.largest <= 8 * 4


def test_many_clients_with_a_password_each(redis, make_headgate):
    """Beyond a bound each client keeps the connection on which it authenticated: one for each, as without Headgate."""
    count = 400
    headgate = make_headgate(redis, lanes=1)
    other = headgate.connect()
    assert other("SET", "k", 1) == OK
    with Watch(redis) as watch:
        clients = [headgate.connect() for _ in range(count)]
        for number, client in enumerate(clients):
            assert client("AUTH", "default", f"random-{number}") == OK
            assert client("GET", "k") == b"1"
        for client in clients:
            assert client.pipeline([("GET", "k"), ("MULTI",), ("GET", "k"), ("EXEC",)])[3] == [b"1"]
        assert other("GET", "k") == b"1"
        assert int(stats(headgate)["lanes_shared"]) <= 256 + 2
    assert watch.largest <= count + 256 + FEW
    for client in clients:
        client.close()
    wait_for(lambda: len(client_list(redis.connect())) <= FEW + 64, what="their connections to be closed")
    with headgate.connect() as client:
        assert client("AUTH", "default", "another") == OK
        assert client("GET", "k") == b"1"
        with headgate.admin() as admin:
            assert b"lane=shared" in admin("CLIENTS")


def test_clients_of_one_user_find_a_warm_lane(redis, make_headgate):
    """Come, authenticate, ask, leave: one connection for each authentication at most, and none for the rest."""
    with redis.connect() as direct:
        assert direct("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all") == OK
    headgate = make_headgate(redis, lanes=1)

    def visit():
        with headgate.connect() as client:
            assert client("AUTH", "app", "pw") == OK
            assert client("SET", "k", 1) == OK
            assert client("GET", "k") == b"1"

    visit()
    before = int(stats(headgate)["lanes_opened_total"])
    for _ in range(50):
        visit()
    assert int(stats(headgate)["lanes_opened_total"]) - before <= 51
    assert int(stats(headgate)["lanes_shared"]) <= 4


def test_what_headgate_asks_for_itself_is_not_cut_off(redis, make_headgate):
    """Limits that hold for several sidecars go by scripts, of the default profile, in whose database nobody is."""
    headgate = make_headgate(redis, start=False)
    headgate.write_rules("[limit:all]\nscope = global\nlimit = 1000000\nwindow = 60s\ncommands = get\n")
    headgate.start()
    client, attacker = headgate.connect(), headgate.connect()
    for password in passwords(300):
        client.request("GET", "k")
        assert attacker("AUTH", "default", password) == OK
        assert attacker("GET", "k") is None
        assert client.read() is None
    assert stats(headgate)["control_errors_total"] == "0"
