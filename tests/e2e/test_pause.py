"""PAUSE and RESUME on the admin port: clients are held, and none of them hears an error."""

import socket
import threading

import pytest

from harness.admin import stats
from harness.resp import NIL_ARRAY, OK, PONG, QUEUED, encode, wait_for

MANY = 40


def ask(headgate, *words):
    with headgate.admin() as admin:
        return admin(*words)


def count(headgate, name):
    return int(stats(headgate, "pause")[f"pause_{name}"])


def await_held(headgate, number):
    wait_for(lambda: count(headgate, "held") == number, what=f"{number} clients to be held")


@pytest.mark.threads
def test_clients_are_held_and_go_on(make, redis):
    headgate = make("", threads=4)
    clients = [headgate.connect() for _ in range(MANY)]
    assert [client("PING") for client in clients] == [PONG] * MANY
    assert ask(headgate, "PAUSE") == OK
    for number, client in enumerate(clients):
        client.send(encode("INCR", "n") + encode("SET", f"k{number}", number) + encode("GET", f"k{number}"))
    await_held(headgate, MANY)
    assert count(headgate, "active") == 1
    with redis.connect() as direct:
        assert direct("EXISTS", "n") == 0, "nothing has reached Redis"
    assert ask(headgate, "RESUME") == OK
    for number, client in enumerate(clients):
        client.read()
        assert [client.read(), client.read()] == [OK, b"%d" % number]
    assert clients[0]("GET", "n") == b"%d" % MANY
    assert (count(headgate, "active"), count(headgate, "held"), count(headgate, "held_total")) == (0, 0, MANY)


@pytest.mark.threads
def test_after_the_answer_nothing_is_sent(make, redis):
    """Not even by another worker: who does something to Redis then may count on it."""
    headgate = make("", threads=4)
    clients = [headgate.connect() for _ in range(8)]
    stop = threading.Event()

    def work(client):
        while not stop.is_set():
            assert isinstance(client("INCR", "n"), int)

    workers = [threading.Thread(target=work, args=(client,)) for client in clients]
    for worker in workers:
        worker.start()
    with redis.connect() as direct:
        for _ in range(5):
            wait_for(lambda: int(direct("GET", "n") or 0) > 0, what="work")
            assert ask(headgate, "PAUSE") == OK
            await_held(headgate, len(clients))
            before = direct("GET", "n")
            direct("SET", "n", 0)
            assert before != b"0" and direct("GET", "n") == b"0"
            assert ask(headgate, "RESUME") == OK
    stop.set()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()


def test_writes_alone(make):
    headgate = make("")
    reader, writer, publisher = (headgate.connect() for _ in range(3))
    assert writer("SET", "k", "old") == OK
    assert ask(headgate, "PAUSE", "write") == OK
    writer.request("SET", "k", "new")
    publisher.request("PUBLISH", "channel", "m")
    await_held(headgate, 2)
    assert reader("GET", "k") == b"old"
    assert reader("EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k") == b"old"
    reader.request("EVAL", "return redis.call('set', KEYS[1], 'script')", "1", "k")
    await_held(headgate, 3)
    assert ask(headgate, "PAUSE") == OK, "from writes to all"
    late = headgate.connect()
    late.request("GET", "k")
    await_held(headgate, 4)
    assert ask(headgate, "PAUSE", "WRITE") == OK, "and back"
    assert late.read() == b"old"
    assert ask(headgate, "RESUME") == OK
    assert (writer.read(), publisher.read(), reader.read()) == (OK, 0, OK)


def test_a_transaction_is_held_at_its_end(make, redis):
    """What Redis only queues goes through; with WATCH, too, whose key may change meanwhile."""
    headgate = make("")
    client = headgate.connect()
    assert client("WATCH", "k") == OK and client("MULTI") == OK
    assert ask(headgate, "PAUSE") == OK
    assert client("SET", "k", "mine") == QUEUED
    client.request("EXEC")
    await_held(headgate, 1)
    with redis.connect() as direct:
        direct("SET", "k", "theirs")
    assert ask(headgate, "RESUME") == OK
    assert client.read() == NIL_ARRAY
    assert client("GET", "k") == b"theirs"


def hold_many(headgate):
    """So many clients, each with an INCR that is held."""
    clients = [headgate.connect() for _ in range(MANY)]
    assert ask(headgate, "PAUSE") == OK
    for client in clients:
        client.request("INCR", "n")
    await_held(headgate, MANY)
    return clients


def test_what_is_held_of_a_client_that_has_gone_is_dropped(make, redis):
    """As Redis drops what CLIENT PAUSE holds: who has gone will have asked again, and it would be done twice."""
    headgate = make("")
    clients = hold_many(headgate)
    for number, client in enumerate(clients[1:]):
        if number % 2:
            client.close()
        else:
            client.socket.shutdown(socket.SHUT_WR)
    await_held(headgate, 1)
    assert ask(headgate, "RESUME") == OK
    assert clients[0].read() == 1
    with redis.connect() as direct:
        assert direct("GET", "n") == b"1"
    assert headgate.serves()


def test_the_end_of_the_process_lets_them_go(make):
    headgate = make("", drain_timeout="1h")
    client = headgate.connect()
    assert ask(headgate, "PAUSE") == OK
    client.request("PING")
    await_held(headgate, 1)
    headgate.terminate(timeout=60)
    assert client.read() == PONG
