"""[limit:NAME] per process, uid and host: told by real processes of this machine, over TCP and Unix sockets."""

import os
import signal
import socket
import time

import pytest

from harness.admin import text
from harness.limits import refuses, rule, spend
from harness.resp import Client, wait_for
from harness.rules import reload


def connect_and_end(path):
    """A process that connects, leaves the connection to this one, and ends: its number, and the connection."""
    given, taken = socket.socketpair(socket.AF_UNIX)
    number = os.fork()
    if number == 0:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            socket.send_fds(given, [b"x"], [connection.fileno()])
        os._exit(0)
    with given, taken:
        connection = socket.socket(fileno=socket.recv_fds(taken, 1, 1)[1][0])
    assert os.waitpid(number, 0) == (number, 0)
    return number, connection


def settle(headgate, program, connection="a"):
    """On a busy machine it may take a moment until a process is found: what comes before counts for its user."""

    def is_known():
        program.send(connection, "INCR", "n")
        return f"process:{program.pid}/" in limits(headgate)

    wait_for(is_known, what="the process to be found")


def limits(headgate):
    with headgate.admin() as admin:
        return text(admin("LIMITS"))


@pytest.mark.threads
def test_each_process_has_a_limit_of_its_own(served, threads, start_program):
    """By default, and over all of its connections: two programs of one user and one address do not share it."""
    headgate, address = served(rule(limit=5, per=None), threads=threads)
    first, second = start_program(address), start_program(address)
    for program in (first, second):
        replies = [program.send(f"line{number}", "INCR", "n") for number in range(8)]
        refused = [reply for reply in replies if reply.startswith("-RATELIMITED a: 5 in 1h per process exceeded")]
        assert len(refused) >= 1
    for program in (first, second):
        wait_for(lambda: program.send("line0", "INCR", "n").startswith("-RATELIMITED"), what="a refusal")
        settle(headgate, program)
    assert f"process:{first.pid}/" in limits(headgate) and f"process:{second.pid}/" in limits(headgate)


@pytest.mark.root
@pytest.mark.real  # The kernel's clock tells which of two processes of that number it is.
def test_the_next_process_of_a_number_begins_anew(served, start_program):
    """The kernel gives numbers again; another program does not go on with what is left to the one before it."""
    headgate, address = served(rule(limit=3, per="process"))
    program = start_program(address)
    settle(headgate, program)
    wait_for(lambda: program.send("a", "INCR", "n").startswith("-RATELIMITED"), what="a refusal")
    program.kill()
    again = start_program(address, pid=program.pid)
    settle(headgate, again)
    assert again.send("a", "INCR", "n").startswith(":")


@pytest.mark.root
@pytest.mark.real
def test_who_has_the_number_of_who_connected_is_not_charged(make_shared, start_program, open_directory):
    """The kernel tells of a Unix socket the number that its process had. That one may end before it is asked for, and
    leave the connection to a child."""
    path = f"{open_directory}/h.sock"
    headgate = make_shared(rule(limit=3, per="process"), listen=f"unix:{path}")
    parent, connection = connect_and_end(path)
    with Client(connection) as client:
        assert client("ECHO", "x") == b"x"
        time.sleep(0.1)
        successor = start_program(path, pid=parent)
        for _ in range(5):
            client("INCR", "n")
        assert f"process:{parent}" not in limits(headgate)
        assert successor.send("a", "INCR", "n").startswith(":")


def test_a_reload_asks_of_clients_that_are_connected(served, start_program):
    """Who is at the other end is looked up when a rule wants it."""
    headgate, address = served(rule(limit=1000, per="all"))
    program = start_program(address)
    assert program.send("a", "INCR", "n").startswith(":")
    reload(headgate, rule(limit=2, per="process"))
    wait_for(lambda: program.send("a", "INCR", "n").startswith("-RATELIMITED a: 2 in 1h per process"), what="a refusal")


OTHER = 65534


@pytest.mark.root
def test_uid(served, start_program):
    """All programs of one user share it."""
    headgate, address = served(rule(limit=4, per="uid"))
    programs = [start_program(address, user=OTHER) for _ in range(2)]
    replies = [program.send("a", "INCR", "n") for _ in range(4) for program in programs]
    assert [reply[0] for reply in replies] == [":"] * 4 + ["-"] * 4
    assert replies[-1].startswith("-RATELIMITED a: 4 in 1h per uid exceeded")
    assert f"uid:{OTHER} " in limits(headgate)
    assert start_program(address).send("a", "INCR", "n").startswith(":")


@pytest.mark.root
def test_processes_that_cannot_be_told_share_one_limit_and_are_told_so(make_without_rights, start_program):
    """Of another user's processes only the user is known without rights. The log says it once, with what to do, and a
    refusal does not say "per process" alone; who can be told has a limit of its own still."""
    headgate = make_without_rights(rule(limit=5, per="process") + rule("g", limit=1000, per="process", scope="global"))
    strangers = [start_program(headgate.address, user=OTHER) for _ in range(2)]
    own = start_program(headgate.address, rights=False)
    for stranger in strangers:
        for number in range(3):
            stranger.send(f"line{number}", "INCR", "n")
    settle(headgate, own)
    own_reply = wait_refused(own)
    assert own_reply.startswith("-RATELIMITED a: 5 in 1h per process exceeded, retry in ")
    reply = wait_refused(strangers[1])
    shared = f"-RATELIMITED a: 5 in 1h per process (those of user {OTHER} as one) exceeded, retry in "
    assert reply.startswith(shared), reply
    assert f"process:uid/{OTHER} " in limits(headgate)
    assert headgate.log().count("rule a: per = process, but") == headgate.log().count("rule g: per = process, but") == 1
    for words in ("another user's", f"all of user {OTHER} that", "Unix socket", "docs/limits.md"):
        assert words in headgate.log()


def wait_refused(program):
    replies = []

    def is_refused():
        replies.append(program.send("line0", "INCR", "n"))
        return replies[-1].startswith("-RATELIMITED a")

    wait_for(is_refused, what="a refusal")
    return replies[-1]


@pytest.mark.root
def test_a_unix_socket_tells_processes_of_others(make_without_rights, start_program, open_directory):
    path = f"{open_directory}/h.sock"
    headgate = make_without_rights(rule(limit=5), listen=f"unix:{path}")
    wait_for(lambda: os.path.exists(path), what="the socket")
    strangers = [start_program(path, user=OTHER) for _ in range(2)]
    for stranger in strangers:
        settle(headgate, stranger)
    assert all(f"process:{stranger.pid}/" in limits(headgate) for stranger in strangers)
    assert "cannot be told" not in headgate.log()


def test_who_has_gone_before_it_is_looked_at_reads_as_nobody_elses(make_shared):
    """A process that sends and ends at once cannot be told any more: all such share one limit, by a name that is no
    other machine's address."""
    headgate = make_shared(rule(limit=5))
    headgate.signal(signal.SIGSTOP)
    for _ in range(8):
        with socket.create_connection(headgate.address) as leaving:
            leaving.sendall(b"INCR n\r\n")
    headgate.signal(signal.SIGCONT)
    wait_for(lambda: "offender=process:untold/127.0.0.1 " in limits(headgate) or None, what="who has gone")
    assert "process:127.0.0.1" not in limits(headgate)
    assert headgate.log().count("rule a: per = process, but") == 1 and "has closed its socket" in headgate.log()


def test_host_counts_each_sidecar_for_itself(make_sidecar):
    """With scope = global, and by the name that it is given, else by that of the machine."""
    rules = rule(limit=4, per="host", scope="global", decision_timeout="30s")
    named = [make_sidecar(rules, host_name=name) for name in ("web1", "web2", "web2")]
    clients = [headgate.connect() for headgate in named]
    assert [spend(client) for client in clients] == [4, 4, 0]
    assert "host:web1 " in limits(named[0])
    unnamed = make_sidecar(rules)
    assert spend(unnamed.connect()) == 4
    assert f"host:{socket.gethostname()} " in limits(unnamed)


def test_processes_of_two_hosts_are_two(make_sidecar, redis):
    """The pid alone is none: with scope = global it is told with the sidecar and with when it was started."""
    rules = rule(limit=4, per="process", scope="global")
    first, second, third = (make_sidecar(rules, host_name=name) for name in ("web1", "web2", "web2"))
    clients = [headgate.connect() for headgate in (first, second, third)]

    def is_known(headgate, client, name):
        client("INCR", "n")
        return f"process:{name}/{os.getpid()}/" in limits(headgate)

    for headgate, client, name in zip((first, second, third), clients, ("web1", "web2", "web2")):
        wait_for(lambda: is_known(headgate, client, name), what="the process to be found")
    for client in clients:
        wait_for(lambda: refuses(client("INCR", "n")), what="a refusal")
    with redis.connect() as direct:
        keys = [key.decode() for key in direct("KEYS", f"*process:web*/{os.getpid()}/*")]
    assert len(keys) == 2, keys
