"""A library's program before servers that take over from each other: Headgate behind sentinels, and before Redis Cluster.

A program that knows of neither is compared with itself at one Redis. One in its library's cluster mode is compared with
itself at the cluster.
"""

import contextlib
import threading
import time

from clients_program import Broken
from clients_trial import KEY_SECONDS, Trial
from harness.cluster import Cluster
from harness.resp import Closed
from harness.sentinel import Group
from harness.servers import Redis

NODES = 3
# For what programs do, after which they give up.
PATIENCE = 15.0


class Clusters:
    """One for each way, made when it is first asked for, and emptied each time. Who uses them has the lock: they are for
    one library at a time."""

    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.making = threading.Lock()
        self.made = {}

    def of(self, way):
        with self.making:
            if way not in self.made:
                self.made[way] = Cluster(masters=NODES, replicas=0, server=self.server)
        for node in self.made[way].masters:
            node.tell("FLUSHALL")
        return self.made[way]

    def close(self):
        for cluster in self.made.values():
            cluster.discard()


def digest_of(servers):
    """What keys there are, and what they hold, wherever they are."""
    found = []
    for server in servers:
        with server.connect() as look:
            if keys := look("KEYS", "*"):
                found += zip(keys, look("DEBUG", "DIGEST-VALUE", *keys))
    return sorted(found)


class ClusterTrial(Trial):
    """Plain clients: at one Redis, and at Headgate before a cluster. In their cluster mode (is_mode): at the cluster."""

    def __init__(self, *arguments, clusters, is_mode=False):
        super().__init__(*arguments)
        self.clusters = clusters
        self.is_mode = is_mode

    def _start_servers(self):
        if self.way == "direct" and not self.is_mode:
            self.servers = [self._start_redis()]
            return self.servers[0].address
        cluster = self.clusters.of(self.way)
        self.servers = cluster.masters
        if self.way == "direct":
            return cluster.masters[0].address
        # An application that knows of no cluster has keys of several slots in a command.
        return self._start_headgate(cluster.url("cluster"), cross_slot="split").address

    def _digest(self, _feature):
        return digest_of(self.servers)

    def _empty(self):
        for server in self.servers:
            with server.connect() as look:
                look("FLUSHALL")

    def _look_at_connections(self):
        """They are of each node."""


class SentinelTrial(Trial):
    """Clients that know of no sentinel: at one Redis that is killed and started again, and at Headgate, which follows
    the sentinels to the next master."""

    def _start_servers(self):
        if self.way == "direct":
            return super()._start_servers()
        self.group = Group(replicas=1, server=self.server)
        self.stack.callback(self.group.discard)
        self._look_at_master()
        return self._start_headgate(self.group.url, upstream_wait="20s").address

    def _look_at_master(self):
        self.redis = self.group.master()
        self.look = self.redis.connect()

    def _kill_redis(self):
        if self.way == "direct":
            super()._kill_redis()
            return
        before = self.group.master()
        before.kill()
        end = time.monotonic() + PATIENCE
        while self.group.master() is before or not self._is_master(self.group.master()):
            if time.monotonic() > end:
                raise Broken("no failover")
            time.sleep(0.05)
        # As one that was started anew: programs wait until their data have gone.
        with self.group.master().connect() as look:
            look("FLUSHALL")

    def _is_master(self, server):
        with contextlib.suppress(Closed, OSError), server.connect() as look:
            return look("ROLE")[0] == b"master"
        return False

    def _look_anew(self):
        if self.way == "direct":
            super()._look_anew()
        else:
            self._look_at_master()

    def _look_at_connections(self):
        """Sentinels and replicas have some, too."""
