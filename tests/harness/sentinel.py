"""A master with replicas, and sentinels that watch over them, on loopback."""

import contextlib
import shutil
import threading
import time

from harness import tls
from harness.certificates import certificates
from harness.resp import Client, Closed, wait_for
from harness.servers import REDIS_SERVER, Redis, Server, directory_in_memory, free_port

NAME = "mymaster"


class Sentinel(Server):
    """One sentinel, which learns of the others from the master."""

    def __init__(self, master, quorum=2, down_after=1000, speaks_tls=False, password=None, options=(), port=None):
        super().__init__("sentinel")
        self.memory = directory_in_memory("sentinel")
        self.port = port or free_port()
        self.speaks_tls = speaks_tls
        self.password = password
        lines = [
            f"port {0 if speaks_tls else self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            *options,
            f"sentinel monitor {NAME} {master.host} {master.sentinel_port} {quorum}",
            f"sentinel down-after-milliseconds {NAME} {down_after}",
            f"sentinel failover-timeout {NAME} 4000",
            f"sentinel parallel-syncs {NAME} 2",
        ]
        if speaks_tls:
            certificate, key = certificates().server
            lines += [f"tls-port {self.port}", f"tls-cert-file {certificate}", f"tls-key-file {key}"]
            lines += [f"tls-ca-cert-file {certificates().ca}", "tls-auth-clients no", "tls-replication yes"]
        if master.password:
            lines += [f"sentinel auth-pass {NAME} {master.password}"]
        if password:
            lines += [f"requirepass {password}"]
        self.config_path = self.memory / "sentinel.conf"
        self.config_path.write_text("\n".join(lines) + "\n")
        self.start()

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    @property
    def url(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        self.launch([REDIS_SERVER, str(self.config_path), "--sentinel"])
        self.await_port(self.address)

    def discard(self):
        super().discard()
        shutil.rmtree(self.memory, ignore_errors=True)

    def connect(self):
        client = tls.connect(self.address) if self.speaks_tls else Client(self.address)
        if self.password:
            client("AUTH", self.password)
        return client

    def __call__(self, *arguments):
        with self.connect() as client:
            return client("SENTINEL", *arguments)

    def master(self):
        """(host, port) as it says."""
        host, port = self("GET-MASTER-ADDR-BY-NAME", NAME)
        return host.decode(), int(port)

    def field(self, name):
        pairs = self("MASTER", NAME)
        return dict(zip(pairs[::2], pairs[1::2]))[name.encode()].decode()


class Announcements:
    """Hears of the sentinels themselves when they announce another master, and where: (port, time)."""

    def __init__(self, sentinels):
        self.heard = []
        self.clients = [sentinel.connect() for sentinel in sentinels]
        for client in self.clients:
            client("SUBSCRIBE", "+switch-master")
            threading.Thread(target=self._listen, args=(client,), daemon=True).start()

    def _listen(self, client):
        with contextlib.suppress(Closed, OSError, TimeoutError):
            while True:
                message = client.read()
                self.heard.append((int(message[2].split()[-1]), time.monotonic()))

    def first(self, server):
        """The time when that server was announced first. Whoever led the failover before may announce that one late."""

        def times():
            return [heard for port, heard in self.heard if port == server.sentinel_port]

        wait_for(times, 60, "+switch-master")
        return min(times())

    def close(self):
        for client in self.clients:
            client.close()


class Group:
    """A master, replicas and sentinels that know of each other."""

    def __init__(self, replicas=2, sentinels=3, speaks_tls=False, password=None, sentinel_password=None,
                 down_after=1000, server=REDIS_SERVER):  # fmt: skip
        """server: the binary of master and replicas."""
        self.server = server
        self.speaks_tls = speaks_tls
        self.password = password
        options = ["--repl-diskless-sync", "yes", "--repl-diskless-load", "on-empty-db", "--repl-timeout", "10"]
        if password:
            options += ["--requirepass", password, "--masterauth", password]
        if speaks_tls:
            options += ["--tls-replication", "yes"]
        self.servers = []
        self.sentinels = []
        try:
            for _ in range(replicas + 1):
                self._add_server(options)
            for replica in self.servers[1:]:
                with self.direct(replica) as client:
                    client("REPLICAOF", self.servers[0].host, self.servers[0].sentinel_port)
            for replica in self.servers[1:]:
                self.await_link(replica)
            for _ in range(sentinels):
                self.sentinels.append(
                    Sentinel(self.servers[0], sentinels // 2 + 1, down_after, speaks_tls, sentinel_password)
                )
            self.await_whole()
        except BaseException:
            self.discard()
            raise

    def _add_server(self, options):
        server = Redis(*options, server=self.server, tls=self.speaks_tls)
        server.password = self.password
        server.sentinel_port = server.tls_port if self.speaks_tls else server.port
        self.servers.append(server)

    def direct(self, server):
        client = server.connect()
        if self.password:
            client("AUTH", self.password)
        return client

    def info(self, server, field):
        with self.direct(server) as client:
            for line in client("INFO", "replication").decode().splitlines():
                if line.startswith(field + ":"):
                    return line.split(":", 1)[1]
        return ""

    def await_link(self, replica):
        wait_for(lambda: self.info(replica, "master_link_status") == "up", 60, "a replica to have its master")

    def await_whole(self):
        """Until every sentinel knows all others and all replicas, and all servers are as they should be."""

        def is_whole(sentinel):
            return (
                sentinel.field("num-other-sentinels") == str(len(self.sentinels) - 1)
                and sentinel.field("num-slaves") == str(len(self.servers) - 1)
                and sentinel.field("flags") == "master"
            )

        for sentinel in self.sentinels:
            wait_for(lambda one=sentinel: is_whole(one), 60, "the sentinels to know each other")

    def await_agreement(self, replicas=None):
        """Until all sentinels name one master that has so many replicas (None: all others); it is returned. One that was
        the master before becomes a replica some ten seconds later."""
        wanted = len(self.servers) - 1 if replicas is None else replicas

        def agreed():
            named = {sentinel.master() for sentinel in self.sentinels if sentinel.is_alive()}
            if len(named) != 1:
                return None
            master = self.server_at(named.pop())
            return master if int(self.info(master, "connected_slaves") or 0) >= wanted else None

        return wait_for(agreed, 90, "one master with all replicas")

    def server_at(self, address):
        return next(server for server in self.servers if (server.host, server.sentinel_port) == address)

    def server_of(self, run_id):
        def has_it(server):
            with self.direct(server) as client:
                return b"run_id:" + run_id in client("INFO", "server")

        return next(server for server in self.servers if server.is_alive() and has_it(server))

    def master(self):
        return self.server_at(self.sentinels[0].master())

    @property
    def url(self):
        hosts = ",".join(sentinel.url for sentinel in self.sentinels)
        return f"sentinel{'s' if self.speaks_tls else ''}://{hosts}/{NAME}"

    def failover(self):
        """Has the sentinels make another server the master; returns when the first of them says so."""
        before = self.sentinels[0].master()

        def is_begun():
            return self.sentinels[0]("FAILOVER", NAME) == b"OK"

        wait_for(is_begun, 60, "the sentinels to begin a failover")
        wait_for(lambda: any(sentinel.master() != before for sentinel in self.sentinels), 60, "another master")

    def discard(self):
        for server in self.sentinels + self.servers:
            server.discard()
