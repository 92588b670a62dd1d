"""The socket by which the tests speak TLS does what a socket does."""

import socket
import threading

import pytest

from harness.tls import TlsSocket, client_context, server_context

PIECE = b"x" * 16_384


def make_pair():
    """Two that speak to each other: a client, and a server."""
    raw = socket.socketpair()
    server = TlsSocket(raw[1], server_context(), server=True, handshake=False)
    shaking = threading.Thread(target=server.do_handshake, daemon=True)
    shaking.start()
    client = TlsSocket(raw[0], client_context())
    shaking.join()
    return client, server


def fill(client):
    """Sends until nothing more is taken, and a record is sent in part. Returns the bytes that were accepted."""
    client.settimeout(0.01)
    sent = 0
    while not client.pieces:
        sent += client.send(PIECE)
    return sent


def test_reading_does_not_wait_until_all_is_sent():
    """Who has to be read from before it takes more is read from, and what was sent in part is whole in the end."""
    client, server = make_pair()
    sent = fill(client)
    client.settimeout(5)
    server.settimeout(5)
    server.sendall(b"first")
    assert client.recv(100) == b"first"
    assert client.pieces
    server.sendall(b"second")
    answers = []
    reading = threading.Thread(target=lambda: answers.extend([client.recv(100), client.recv(100)]), daemon=True)
    reading.start()
    received = 0
    while received < sent:
        received += len(server.recv(1 << 20))
    server.sendall(b"third")
    reading.join(5)
    assert received == sent
    assert answers == [b"second", b"third"]
    client.close()
    server.close()


def test_reading_from_one_that_was_closed_is_an_error_of_the_socket():
    """Another thread may have closed it, while something was still to be sent."""
    client, server = make_pair()
    fill(client)
    client.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        client.recv(100)
    server.close()
