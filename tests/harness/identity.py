"""Clients of somebody in particular: of an address, a name, a user of Redis."""

import socket

from harness.resp import OK, SOCKET_TIMEOUT, Client


class SourceClient(Client):
    """A client with a source address of its choice; on Linux all of 127.0.0.0/8 is this machine."""

    def __init__(self, address, source):
        self.socket = socket.create_connection(address, timeout=SOCKET_TIMEOUT, source_address=(source, 0))
        self.timeout = SOCKET_TIMEOUT
        self.buffer = bytearray()
        self.position = 0


def connect_from(headgate, source):
    headgate.clients.append(SourceClient(headgate.address, source))
    return headgate.clients[-1]


def named(headgate, name):
    client = headgate.connect()
    assert client("CLIENT", "SETNAME", name) == OK
    return client


def add_users(redis, *names):
    with redis.connect() as client:
        for name in names:
            assert client("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all") == OK


def authenticated(headgate, user):
    client = headgate.connect()
    assert client("AUTH", user, "secret") == OK
    return client
