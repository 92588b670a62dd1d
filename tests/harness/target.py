"""What a test of transparent behaviour is run against: Redis itself, or Redis behind Headgate in one pool mode."""

from harness.resp import Client, wait_for
from harness.servers import Headgate, Redis

MODES = ("direct", "shared", "session")


class Target:
    """connect() is what an application would do; direct() goes behind Headgate's back, to look and to interfere."""

    def __init__(self, mode, *redis_options, **headgate_options):
        self.mode = mode
        self.password = None
        self.redis = Redis(*redis_options)
        self.headgate = None
        if mode != "direct":
            self.headgate = Headgate(self.redis, pool=mode, **headgate_options)
        self.clients = []

    @property
    def address(self):
        return self.headgate.address if self.headgate else self.redis.address

    def connect(self):
        return self._keep(self.headgate.connect() if self.headgate else Client(self.address))

    def direct(self):
        client = self._keep(self.redis.connect())
        if self.password:
            client("AUTH", self.password)
        return client

    def _keep(self, client):
        self.clients.append(client)
        return client

    def clean(self):
        """Between two tests: no client left, an empty and awake Redis."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        assert self.redis.is_alive(), "redis-server ended"
        assert self.headgate is None or self.headgate.is_alive(), "headgate ended during the test"
        with self.redis.connect() as client:
            if self.password:
                client("AUTH", self.password)
            client("CLIENT", "UNPAUSE")
            client("FLUSHALL")
            client("FUNCTION", "FLUSH")

    def await_blocked(self, count):
        """Until that many clients are blocked in Redis."""
        client = self.direct()
        wait_for(lambda: info(client, "clients")["blocked_clients"] == str(count), what=f"{count} blocked clients")

    def finish(self):
        try:
            if self.headgate:
                self.headgate.finish()
        finally:
            self.redis.discard()


def info(client, section):
    """A section of INFO as a dictionary of text."""
    reply = client("INFO", section)
    lines = [line for line in reply.decode().split("\r\n") if ":" in line]
    return dict(line.split(":", 1) for line in lines)


def client_list(client):
    """Redis' CLIENT LIST as a list of dictionaries."""
    lines = client("CLIENT", "LIST").decode().splitlines()
    return [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]


def script_calls(redis):
    """How often Redis was asked to run a script, by command."""
    with redis.connect() as client:
        commands = info(client, "commandstats")

    def calls(name):
        line = commands.get(f"cmdstat_{name}", "calls=0,")
        return int(line.split("calls=")[1].split(",")[0])

    return {name: calls(name) for name in ("eval", "evalsha")}
