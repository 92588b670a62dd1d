"""Clients that never read: what they take of memory has a bound, others are served, and it is given back."""

import resource
import socket
import time

from harness.admin import stats
from harness.resp import OK, Client, encode, wait_for
from harness.servers import elapsed, sanitizer_overhead

MEBIBYTE = 1 << 20
CLIENTS = 2_000
RULES = "[deny:forbidden]\ncommands = flushall\n[latency]\nenabled = on\n"
LIMIT = MEBIBYTE
# What docs/operations.md says that one may cost at most.
BOUND = 2 * LIMIT + 4 * MEBIBYTE
# What these cost is far less: each does one of the things that it could, and Redis keeps most of the replies.
EXPECTED = LIMIT


def most_clients():
    """As many as the descriptors of this process allow, and at least 500."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, CLIENTS + 500)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    count = min(CLIENTS, wanted - 200)
    assert count >= 500, f"ulimit -n is too low: {hard}"
    return count


class Deaf(Client):
    """Its kernel takes little for it."""

    def __init__(self, address):
        super().__init__(address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(0)

    def pour(self, data):
        try:
            self.socket.send(data)
        except OSError:
            pass


WORDS = [
    encode("GET", "large") * 15,
    encode("GET", "small") * 1_000,
    encode("GET", "small") + encode("FLUSHALL") * 3_000,
    encode("BLPOP", "none", 0) + encode("FLUSHALL") * 20_000,
    encode("SUBSCRIBE", "busy"),
    encode("MULTI") + encode("GET", "large") * 20 + encode("EXEC"),
    encode("HELLO", 3) + encode("CLIENT", "TRACKING", "on") + encode("GET", "huge"),
    encode("GET", "large") + encode("SET", "k", b"v" * 60_000) * 5,
]


def per_client(headgate, before, count):
    return (headgate.peak_rss() - before - sanitizer_overhead()) / count


def test_two_thousand_clients_that_never_read(redis, make_headgate, pool, record_property):
    count = most_clients()
    with redis.connect() as client:
        assert client("CONFIG", "SET", "client-output-buffer-limit", "pubsub 8mb 4mb 10") == OK
        for key, size in (("small", 10), ("large", 30_000), ("huge", 700_000)):
            client("SET", key, b"v" * size)
    headgate = make_headgate(redis, pool=pool, start=False, client_output_limit="1mb", threads=2)
    headgate.write_rules(RULES)
    headgate.start()
    with headgate.connect() as steady:
        assert steady("GET", "small") == b"v" * 10
        before = headgate.rss()
        deaf = [Deaf(headgate.address) for _ in range(count)]
        steady.socket.settimeout(60)
        worst = 0
        with redis.connect() as publisher:
            for _ in range(4):
                for number, client in enumerate(deaf):
                    client.pour(WORDS[number % len(WORDS)])
                    if number % 100 == 0:
                        publisher("PUBLISH", "busy", b"m" * 30_000)
                        worst = max(worst, elapsed(lambda: steady("GET", "small")))
        time.sleep(2)
        worst = max(worst, elapsed(lambda: steady("GET", "small")))
        taken = per_client(headgate, before, count)
        record_property("bytes_for_each_client", int(taken))
        assert taken < EXPECTED < BOUND
        assert worst < 30, f"{worst:.1f} s for a GET"
        for client in deaf:
            client.close()
        wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "1", 60, what="the others to be gone")
        rest = before + 64 * MEBIBYTE + 2 * sanitizer_overhead()
        wait_for(lambda: headgate.rss() < rest, 60, what=f"RSS below {rest >> 20} MiB")
