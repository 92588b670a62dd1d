"""What a proxy's clients cost it in memory."""
import resource
import socket
import time
from dataclasses import dataclass

from bench_targets import Failure

PING = b"*1\r\n$4\r\nPING\r\n"
SOURCES = ("127.0.0.1", "127.0.0.2")


@dataclass
class IdleCost:
    """Resident bytes of the proxy and of Redis: at the start, with the clients connected, after each sent a PING, and
    after they left. served: how many got an answer."""
    clients: int
    served: int
    start: int
    connected: int
    used: int
    left: int
    redis_start: int
    redis_used: int

    def bytes_per_idle_client(self):
        return (self.connected - self.start) / self.clients

    def bytes_per_used_client(self):
        return (self.used - self.start) / self.clients

    def redis_bytes_per_client(self):
        return (self.redis_used - self.redis_start) / self.clients


def raise_file_limit(wanted):
    """Returns how many files a process may open from here on; the children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in ((wanted, max(hard, wanted)), (min(wanted, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            return limit[0]
        except (ValueError, OSError):
            continue
    return soft


def settled(target, seconds=5.0):
    """Resident bytes once they stand still: connections are accepted, and buffers freed, a moment after the call."""
    deadline = time.monotonic() + seconds
    last, unchanged = target.resident(), 0
    while unchanged < 4 and time.monotonic() < deadline:
        time.sleep(0.25)
        now = target.resident()
        unchanged = unchanged + 1 if now == last else 0
        last = now
    return last


def connect(target, source, context):
    connection = socket.create_connection((target.host, target.port), timeout=5, source_address=(source, 0))
    return context.wrap_socket(connection, server_hostname=target.host) if context else connection


def connect_all(target, count, context=None):
    """Two source addresses, because one has only some 28,000 ports towards one destination. context: of TLS."""
    connections = []
    try:
        for number in range(count):
            connections.append(connect(target, SOURCES[number % len(SOURCES)], context))
    except OSError as error:
        close_all(connections)
        raise Failure(f"{target.name}: client {len(connections) + 1} could not connect: {error}") from error
    return connections


def close_all(connections):
    for connection in connections:
        connection.close()


def count_pongs(connections):
    served = 0
    for connection in connections:
        try:
            connection.sendall(PING)
        except OSError:
            continue
    for connection in connections:
        try:
            served += connection.recv(64).startswith(b"+PONG")
        except OSError:
            continue
    return served


def measure_idle(target, redis, count, context=None):
    """The target and its Redis should be fresh. context: clients speak TLS."""
    start, redis_start = settled(target), redis.resident()
    connections = connect_all(target, count, context)
    try:
        connected = settled(target)
        served = count_pongs(connections)
        used, redis_used = settled(target), redis.resident()
    finally:
        close_all(connections)
    time.sleep(1)
    return IdleCost(count, served, start, connected, used, settled(target), redis_start, redis_used)
