"""Reading from replicas: who has answered, and who is fit to."""

from harness.resp import wait_for


def nodes(headgate, role=None):
    """The lines of NODES as dictionaries."""
    with headgate.admin() as admin:
        lines = admin("NODES").decode().splitlines()
    listed = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]
    return [node for node in listed if role in (None, node["role"])]


def fit(headgate):
    """The ports of the replicas that are read from, as far as that shows."""
    return {int(node["address"].rsplit(":", 1)[1]) for node in nodes(headgate, "replica")
            if node["state"] == "up" and node["lag"] != ""}  # fmt: skip


def await_fit(headgate, servers):
    wanted = {server.sentinel_port for server in servers}
    wait_for(lambda: fit(headgate) == wanted, 60, "these replicas to be fit")


def calls(group, server, command):
    """How often that server has executed the command since it started."""
    with group.direct(server) as client:
        for line in client("INFO", "commandstats").decode().splitlines():
            if line.startswith(f"cmdstat_{command.lower()}:calls="):
                return int(line.split("=")[1].split(",")[0])
    return 0


class Calls:
    """How often each server has executed a command since this was made."""

    def __init__(self, group, command):
        self.group = group
        self.command = command
        self.before = {server.port: calls(group, server, command) for server in group.servers if server.is_alive()}

    def of(self, server):
        return calls(self.group, server, self.command) - self.before[server.port]
