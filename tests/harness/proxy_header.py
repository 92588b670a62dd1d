"""Headers of the PROXY protocol, and connections that begin with one."""

import socket
import struct

from harness.resp import Client

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21


def line(client, port=4711, server="10.0.0.1"):
    """Version 1."""
    family = "TCP6" if ":" in client else "TCP4"
    return f"PROXY {family} {client} {server if family == 'TCP4' else '::1'} {port} 6379\r\n".encode()


def binary(client=None, port=4711, command=PROXY, more=b""):
    """Version 2; client: an address, a path, or None for one of whom nothing is said. more: what follows the addresses."""
    if client is None:
        family, addresses = 0x00, b""
    elif client.startswith("/"):
        family, addresses = 0x31, client.encode().ljust(108, b"\0") * 2
    else:
        kind = socket.AF_INET6 if ":" in client else socket.AF_INET
        host = socket.inet_pton(kind, client)
        family = 0x21 if kind == socket.AF_INET6 else 0x11
        addresses = host + host + struct.pack("!HH", port, 6379)
    return SIGNATURE + struct.pack("!BBH", command, family, len(addresses) + len(more)) + addresses + more


def connect(address, header, **options):
    """A client that sends the header first."""
    client = Client(address, **options)
    client.send(header)
    return client
