"""Thousands of bad requests of HTTP at once: memory stays bounded, and clients of Redis notice nothing."""

import os
import random
import socket
import struct

from harness.http import ask
from harness.resp import wait_for
from harness.threads import at_once

STORMS = 4
EACH = 120
PATHS = [b"/live", b"/ready", b"/metrics", b"/stats.json", b"/counters.json", b"/", b"/nothing", b"//", b"/%00", b"*"]
METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"BREW", b"\0", b""]
HEADERS = [
    b"Host: localhost", b"Host: evil.example", b"Host:", b"Origin: null", b"Sec-Fetch-Site: cross-site",
    b"Authorization: Basic ====", b"Authorization: Basic " + b"A" * 5000, b"Content-Length: 5", b"Content-Length: -1",
    b"Content-Length: 1e9", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close",
    b"Connection: upgrade", b"Range: bytes=0-", b": ", b" folded", b"X: " + b"y" * 20_000, b"\xff\xfe: \x00",
]  # fmt: skip


def bad_request(dice):
    head = b" ".join([dice.choice(METHODS), dice.choice(PATHS), dice.choice([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0", b""])])
    lines = [head, *dice.choices(HEADERS, k=dice.randrange(6))]
    data = bytearray(dice.choice([b"\r\n", b"\r\n", b"\n"]).join(lines) + b"\r\n\r\n")
    for _ in range(dice.randrange(3)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def attack(dice, connect):
    """One connection: a pipeline of bad requests, all of it, half of it, or reset behind it; perhaps it is read."""
    data = b"".join(bad_request(dice) for _ in range(dice.choice([1, 1, 2, 50])))
    if dice.random() < 0.3:
        data = data[: dice.randrange(len(data))]
    with connect() as client:
        try:
            client.sendall(data)
            if dice.random() < 0.5:
                client.recv(1 << 16)
        except OSError:
            pass
        if dice.random() < 0.3:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def count_files(headgate):
    return len(os.listdir(f"/proc/{headgate.process.pid}/fd"))


def test_a_storm_of_bad_requests_reaches_nobody_else(started, redis):
    headgate = started(redis, "[latency]\nenabled = on\n", threads=2)
    address = ("127.0.0.1", headgate.http_port)

    def connect():
        client = socket.create_connection(address, timeout=30)
        # Of one whose request has no end nothing comes: who waits for that goes on.
        client.settimeout(0.1)
        return client

    # What the first requests have made is there for good, and so is what a storm leaves to the allocator.
    dice = random.Random(1)
    for _ in range(100):
        attack(dice, connect)
    before, files = headgate.rss(), count_files(headgate)
    half = [connect() for _ in range(40)]
    for client in half:
        client.sendall(b"GET /stats.json HTTP/1.1\r\nHost: local")
    clients = [headgate.connect() for _ in range(STORMS)]

    def storm(number):
        own = random.Random(number)
        for turn in range(EACH):
            attack(own, connect)
            assert clients[number]("ECHO", f"{number}-{turn}") == b"%d-%d" % (number, turn)

    at_once(storm, STORMS, seconds=300)
    assert ask(headgate, "/live").status == 200 and ask(headgate, "/metrics").status == 200
    for client in half:
        client.close()
    wait_for(lambda: count_files(headgate) <= files + 8, what="the connections to be closed")
    assert headgate.rss() < before + (64 << 20), (before, headgate.rss())
