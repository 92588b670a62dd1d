"""Reading the admin port."""

import os
import re

from harness.resp import wait_for


def stats(headgate, *section):
    """STATS as a dictionary of text, without its section lines."""
    with headgate.admin() as client:
        reply = client("STATS", *section)
    assert isinstance(reply, bytes), reply
    pairs = [line.split(":", 1) for line in reply.decode().splitlines() if line and not line.startswith("#")]
    return {name: value for name, value in pairs}


def send_and_await(headgate, client, data):
    """Sends it, and returns when Headgate has read it. Nothing else is read meanwhile."""
    before = int(stats(headgate)["client_bytes_in_total"])
    client.send(data)
    wait_for(lambda: int(stats(headgate)["client_bytes_in_total"]) >= before + len(data), what="the reading")


def await_outage(headgate):
    """Until Redis is seen to be away, on all connections: what is sent on one of which the end has not been seen is lost."""

    def is_seen():
        figures = stats(headgate)
        return figures["upstream_up"] == figures["lanes_pooled"] == "0"

    wait_for(is_seen, what="the outage to be noticed")


def await_ended(headgate, count):
    """Until so many connections to Redis have been seen to end, all in all. One that was not ready yet has failed."""
    totals = ("lanes_lost_total", "lanes_failed_total")
    wait_for(lambda: sum(int(stats(headgate)[name]) for name in totals) >= count, what="all ends to be seen")


def await_end_seen(headgate, port):
    """Until Headgate has closed all that it had open to who was at this port of 127.0.0.1, and is no more."""

    def is_seen():
        descriptors = f"/proc/{headgate.process.pid}/fd"
        own = {read_link(f"{descriptors}/{name}") for name in os.listdir(descriptors)}
        with open("/proc/net/tcp") as sockets:
            rows = [row.split() for row in sockets.readlines()[1:]]
        # The far address, the state (established, or ended by the other side), the number of the socket.
        return not any(
            int(row[2].split(":")[1], 16) == port and row[3] in ("01", "08") and f"socket:[{row[9]}]" in own for row in rows
        )

    wait_for(is_seen, what="the end of the connections to be seen")


def read_link(path):
    """What it leads to; None if it is gone."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def await_empty(headgate):
    """Until no client is connected: that which waited for the start has been seen to leave, too."""
    wait_for(lambda: stats(headgate, "clients")["clients_connected"] == "0", what="no client to be connected")


def text(reply):
    """A reply as text."""
    assert isinstance(reply, bytes), reply
    return reply.decode()


def audits(headgate, start=""):
    """What the log says of changes that were asked for, without time and level."""
    return [line for line in re.findall(r" audit: (.*)", headgate.log()) if line.startswith(start)]
