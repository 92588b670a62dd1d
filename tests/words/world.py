"""A Redis behind Headgate and its twin, which is asked directly, with an observer at each.

Nothing here waits for a time to pass: Redis and Headgate each have one thread for this, so who is answered knows that
everything that was sent before has been read (settle()).
"""

import time

from harness.resp import OK, Client, Error
from harness.servers import Headgate, Redis
from party import Party

REST = 3.0
# Looks at a millisecond's distance that show the same.
STANDSTILL = 20
LOW = ("on", ">pw", "~*", "&*", "+@all")


class Observer:
    """An administrator's connection to Redis itself. renamed: what commands are called on this server."""

    def __init__(self, redis, renamed):
        self.redis = redis
        self.renamed = renamed
        self.client = None
        self.open()

    def open(self):
        self.client = Client(self.redis.address)
        self.address = "%s:%d" % self.client.socket.getsockname()

    def __call__(self, name, *arguments):
        return self.client(self.renamed.get(name, name), *arguments)

    def settle(self, rounds=3):
        for _ in range(rounds):
            self.client("PING")

    def connections(self):
        """CLIENT LIST without the observer itself."""
        lines = self("CLIENT", "LIST").decode(errors="replace").splitlines()
        entries = [dict(word.split("=", 1) for word in line.split(" ") if "=" in word) for line in lines]
        return [entry for entry in entries if entry["addr"] != self.address]

    def fresh(self):
        """What CLIENT LIST tells of a connection that has only just come."""
        with self.redis.connect() as client:
            mine = "%s:%d" % client.socket.getsockname()
            return next(entry for entry in self.connections() if entry["addr"] == mine)

    def close(self):
        self.client.close()


class World:
    def __init__(self, renamed=None, redis_options=(), **headgate_options):
        self.renamed = renamed or {}
        options = list(redis_options) + ["--enable-debug-command", "yes"]
        for name, other in self.renamed.items():
            options += ["--rename-command", name, other]
        self.options = options
        self.redis = Redis(*options)
        self.twin = Redis(*options)
        # Lanes of many profiles come into being; they go soon, but not before victims had them.
        self.headgate_options = {"exclusive_idle": 24, "lane_idle_timeout": "2s", **headgate_options}
        self.parties = 0
        self.observer = Observer(self.redis, self.renamed)
        self.twin_observer = Observer(self.twin, self.renamed)
        self.fresh = self.observer.fresh()
        self.is_valkey = b"valkey_version" in self.observer("INFO", "server")
        self.headgate = None
        self.give_users()
        self.start_headgate()

    def give_users(self):
        for observer in (self.observer, self.twin_observer):
            assert observer("ACL", "SETUSER", "low", *LOW) == OK

    def start_headgate(self):
        self.headgate = Headgate(self.redis, start=False, **self.headgate_options)
        self.socket_path = self.headgate.directory / "headgate.sock"
        self.headgate.write_config(listen=f"{self.headgate.options['listen']}, unix:{self.socket_path}")
        self.headgate.start()
        self.headgate.await_port(self.socket_path)
        self.admin = self.headgate.admin()

    def restart_headgate(self):
        """After a finding nothing may be left of it."""
        self.admin.close()
        self.headgate.finish()
        self.start_headgate()

    def finish(self):
        self.observer.close()
        self.twin_observer.close()
        try:
            self.admin.close()
            self.headgate.finish()
        finally:
            self.redis.discard()
            self.twin.discard()

    def clean(self):
        """What forms have left in the servers."""
        for observer in (self.observer, self.twin_observer):
            users = [name.decode() for name in observer("ACL", "USERS")]
            extra = [name for name in users if name not in ("default", "low")]
            if extra:
                observer("ACL", "DELUSER", *extra)
            for words in (("FLUSHALL",), ("SCRIPT", "FLUSH"), ("FUNCTION", "FLUSH"), ("CONFIG", "SET", "hz", "10")):
                reply = observer(*words)
                assert not isinstance(reply, Error), (words, reply)

    # ---- parties ----

    def through(self):
        """A client of Headgate."""
        return Party(self.socket_path)

    def direct(self):
        """A client of the twin."""
        return Party(self.twin.socket_path)

    # ---- waiting ----

    def lanes(self):
        text = self.admin("LANES").decode()
        return [dict(word.split("=", 1) for word in line.split()) for line in text.splitlines() if line]

    def clients(self):
        text = self.admin("CLIENTS").decode(errors="replace")
        return [line for line in text.splitlines() if line]

    def business(self):
        """What Headgate has to write yet, has to read on, or opens, as text; empty if there is nothing."""
        lanes = [str(lane) for lane in self.lanes() if lane["state"] != "ready" or lane["obuf"] != "0"]
        return "\n".join(lanes + [line for line in self.clients() if " qbuf=0 obuf=0" not in line])

    def settle(self):
        """Until all that was sent was read, by Headgate, by Redis, and what Redis said by Headgate again. A client that
        waits behind its own blocking request may never be read to the end: then until nothing changes."""
        seen, alike = None, 0
        self.lanes()
        while (business := self.business()) and alike < STANDSTILL:
            alike = alike + 1 if business == seen else 0
            seen = business
            time.sleep(0.001)
        self.observer.settle()
        for _ in range(2):
            self.lanes()

    def at_rest(self):
        """True when no client is there and every lane is known to both sides, free, and owed nothing."""
        if self.clients():
            return False
        lanes = self.lanes()
        if any(lane["use"] == "exclusive" or lane["state"] != "ready" or lane["pending"] != "0" for lane in lanes):
            return False
        return len(self.observer.connections()) == len(lanes)

    def lanes_and_connections(self):
        """LANES and CLIENT LIST of one moment: idle lanes may go in between, and Redis hears of it later."""
        deadline = time.monotonic() + REST
        while True:
            lanes = self.lanes()
            connections = self.observer.connections()
            same_lanes = self.lanes_by_id(lanes) == self.lanes_by_id(self.lanes())
            if same_lanes and (len(lanes) == len(connections) or time.monotonic() > deadline):
                return lanes, connections

    @staticmethod
    def lanes_by_id(lanes):
        return {lane["id"]: lane["use"] for lane in lanes}

    def await_rest(self, seconds=REST):
        """Whether it came to rest."""
        deadline = time.monotonic() + seconds
        while not self.at_rest():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True
