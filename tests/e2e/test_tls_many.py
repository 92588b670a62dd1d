"""Many clients with TLS at once: handshakes beside those who are served, and what runs out."""

import contextlib
import functools
import os
import pathlib
import resource
import threading
import time

import pytest

from harness import tls
from harness.admin import stats
from harness.resp import PONG, Client, wait_for
from harness.tls import client_context, is_refused, start_with_tls, towards_clients


HANDSHAKES = 300


@pytest.fixture
def make_shared(redis, make_headgate):
    """A Headgate whose clients speak TLS, in front of a Redis that does not."""
    return functools.partial(start_with_tls, make_headgate, redis)


def niceness_by_thread(headgate):
    """(name, niceness) of each thread, in order."""
    tasks = pathlib.Path(f"/proc/{headgate.process.pid}/task")
    # Behind the name, which is in brackets: state, ppid, …, niceness.
    return sorted(
        ((task / "comm").read_text().strip(), int((task / "stat").read_text().rpartition(")")[2].split()[16]))
        for task in tasks.iterdir()
    )  # fmt: skip


def test_handshakes_have_threads_of_their_own_that_stand_back(redis, make_redis, make_headgate):
    """Each worker has one for its clients, of a lower priority, and one for Redis, which is not: where there is no
    connection to Redis, all clients wait for one. Who speaks no TLS has none."""
    headgate = make_headgate(make_redis(tls=True), threads=2, tls=True)
    clients = [headgate.connect() for _ in range(4)]
    assert [client("PING") for client in clients] == [PONG] * 4
    threads = niceness_by_thread(headgate)
    usual = dict(threads)["worker-0"]
    assert [threads.count(("handshakes", niceness)) for niceness in (usual, min(19, usual + 10))] == [2, 2], threads
    assert [name for name, _ in threads if name.startswith("worker")] == ["worker-0", "worker-1"]
    plain = make_headgate(redis, threads=2, tls=False)
    assert plain.connect()("PING") == PONG
    assert "handshakes" not in dict(niceness_by_thread(plain))


@contextlib.contextmanager
def descriptors_left(headgate, count):
    """About so many, as some that are counted as used may be closed soon."""
    pid = headgate.process.pid
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = [number for number in range(4096) if number not in used]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[count], limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def test_clients_beyond_the_descriptors_are_refused_and_others_served(make_shared):
    """What handshakes need is there from the start."""
    headgate = make_shared(threads=1)
    with headgate.connect() as first:
        assert first("PING") == PONG
    wait_for(lambda: stats(headgate)["clients_connected"] == "0", what="its end")
    with descriptors_left(headgate, 17):  # of which up to 14 are kept for others
        clients = []
        while len(clients) < 10 and not is_refused(lambda: clients.append(headgate.connect()) or clients[-1]):
            assert clients[-1]("PING") == PONG
        assert 0 < len(clients) < 10
        for client in clients:
            client.close()
        wait_for(lambda: not is_refused(headgate.connect), what="the next one to be served")


def test_an_operators_handshake_takes_no_more_descriptors(redis, make_headgate):
    """The main thread has its thread for handshakes from the start."""
    headgate = make_headgate(redis, start=False, **towards_clients())
    headgate.write_config(admin=f"rediss://127.0.0.1:{headgate.admin_port}")
    headgate.start()
    wait_for(headgate.serves, what="clients to be served")
    with descriptors_left(headgate, 4):
        assert not is_refused(lambda: tls.connect(headgate.admin_address))
    assert headgate.serves()


def test_hundreds_of_handshakes_at_once(make_shared):
    """Established clients are served meanwhile, and in the end all of them are."""
    headgate = make_shared(threads=1, max_clients=3000, tls_handshake_timeout="1h")
    steady = headgate.connect()
    assert steady("PING") == PONG
    sockets = [tls.connect_raw(headgate.address, timeout=300) for _ in range(HANDSHAKES)]
    context = client_context()
    waits, ended = [], threading.Event()

    def ping():
        while not ended.is_set():
            start = time.monotonic()
            assert steady("PING") == PONG
            waits.append(time.monotonic() - start)

    pinger = threading.Thread(target=ping)
    pinger.start()
    try:
        peers = [tls.TlsSocket(raw, context, handshake=False) for raw in sockets]
        for peer in peers:
            # The first flight of all, before anybody reads an answer.
            assert not peer._try(peer.tls.do_handshake)
            peer._flush()
        for peer in peers:
            peer.do_handshake()
        clients = [Client(peer) for peer in peers]
        for client in clients:
            client.request("PING")
        assert [client.read() for client in clients] == [PONG] * HANDSHAKES
    finally:
        ended.set()
        pinger.join(60)
        for raw in sockets:
            raw.close()
    assert len(waits) > 1 and max(waits) < 20, (len(waits), max(waits))
