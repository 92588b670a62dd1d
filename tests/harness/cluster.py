"""Real Redis Clusters on loopback: made by hand, resharded slot by slot, failed over, killed, grown and shrunk.

A slot is moved as redis-cli does, but in steps, so that a test can stop in between: begin_migration(), move_keys(),
end_migration(). What the tests call a node is its Redis; nodes know their cluster by `number`, the place in `nodes`.
"""

import concurrent.futures
import itertools
import shutil
import signal
import time

from harness.certificates import certificates
from harness.resp import OK, Closed, wait_for
from harness.servers import Redis, directory_in_memory, free_port, speaks_tls

SLOTS = 16384
# Long enough that a node that merely waits for a turn of a busy machine is not failed over.
NODE_TIMEOUT_MS = 3000
# For what takes some rounds of gossip, or a failover.
SETTLE_SECONDS = 60.0


def crc16(data):
    """CRC16/XMODEM."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ 0x1021 if value & 0x8000 else value << 1) & 0xFFFF
    return value


def slot_of(key):
    key = key.encode() if isinstance(key, str) else bytes(key)
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1 : end]
    return crc16(key) % SLOTS


def key_in(slots, prefix="key"):
    """A key whose slot is one of these (a number, or a container)."""
    wanted = {slots} if isinstance(slots, int) else slots
    for number in itertools.count():
        key = f"{prefix}:{number}"
        if slot_of(key) in wanted:
            return key


def tag_of(slot, cache={}):
    """A short text of that slot, for hash tags."""
    if slot not in cache:
        for number in itertools.count(len(cache)):
            cache.setdefault(slot_of(str(number)), str(number))
            if slot in cache:
                break
    return cache[slot]


def tls_options():
    """Nodes want a certificate of each other."""
    certificate, key = certificates().client
    return ["--tls-cluster", "yes", "--tls-replication", "yes", "--tls-client-cert-file", certificate,
            "--tls-client-key-file", key]  # fmt: skip


class Node(Redis):
    """A Redis with cluster-enabled; a connection for the test's own questions is kept. password: that of all nodes. With
    tls=True nodes speak TLS to each other, too: else they do not know each other's ports for it."""

    def __init__(self, *options, node_timeout=NODE_TIMEOUT_MS, password=None, **keywords):
        self.bus_port = free_port()
        self.asking = None
        self.password = password
        self.memory = directory_in_memory("node")
        node = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        node += ["--cluster-config-file", str(self.memory / "nodes.conf")]
        node += ["--cluster-node-timeout", str(node_timeout), "--cluster-allow-replica-migration", "no"]
        node += ["--requirepass", password, "--masterauth", password] if password else []
        node += tls_options() if speaks_tls(keywords.get("tls")) else []
        super().__init__(*node, *options, **keywords)
        self.id = self.ask("CLUSTER", "MYID").decode()

    @property
    def cluster_address(self):
        """By which the others know it."""
        return (self.host, self.tls_port or self.port)

    def _connect_anew(self):
        self.asking = self.connect()
        if self.password:
            assert self.asking("AUTH", self.password) == OK

    def ask(self, *command):
        if self.asking is None:
            self._connect_anew()
        try:
            return self.asking(*command)
        except (Closed, OSError):
            self._connect_anew()
            return self.asking(*command)

    def tell(self, *command):
        """The same where only OK will do."""
        reply = self.ask(*command)
        assert reply == OK, f"{command}: {reply}"

    def info(self, section):
        pairs = (line.split(":", 1) for line in self.ask("INFO", section).decode().split("\r\n") if ":" in line)
        return dict(pairs)

    def cluster_info(self):
        text = self.ask("CLUSTER", "INFO").decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def cluster_nodes(self):
        """What it knows of each node, by id: (flags, id of its master or "-", link state, slots as text)."""
        known = {}
        for line in self.ask("CLUSTER", "NODES").decode().splitlines():
            parts = line.split(" ")
            known[parts[0]] = (parts[2].split(","), parts[3], parts[7], parts[8:])
        return known

    def is_master(self):
        return self.ask("ROLE")[0] == b"master"

    def slots(self):
        """{slot: id of its master}, as it sees them."""
        owners = {}
        for first, last, master, *_ in self.ask("CLUSTER", "SLOTS"):
            owners.update(dict.fromkeys(range(first, last + 1), master[2].decode()))
        return owners

    def pause(self):
        """It hangs, as a host that swaps would: SIGSTOP."""
        self.asking = None
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.asking = None
        super().kill()

    def discard(self):
        super().discard()
        shutil.rmtree(self.memory, ignore_errors=True)


def in_parallel(actions):
    """Runs them all at once; the results in their order. The first failure is raised."""
    with concurrent.futures.ThreadPoolExecutor(len(actions)) as executor:
        return [begun.result() for begun in [executor.submit(action) for action in actions]]


class Cluster:
    """masters with so many replicas each. options: of every node's command line; further ones: of a Redis."""

    def __init__(self, *options, masters=3, replicas=1, **keywords):
        self.options, self.keywords = options, keywords
        self.nodes = []
        self.agreed = {}  # whose replica each was when they agreed last: the id of its master, or "-"
        count = masters * (1 + replicas)
        if speaks_tls(keywords.get("tls")):
            certificates()  # made once, and not by all threads at once
        try:
            self.nodes = in_parallel([self._make] * count)
            self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
            self._give_slots()
            self._meet()
            self._replicate()
            self.await_agreement()
        except BaseException:
            self.discard()
            raise

    def _make(self):
        return Node(*self.options, **self.keywords)

    def _give_slots(self):
        for number, node in enumerate(self.nodes):
            node.tell("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        bounds = [SLOTS * i // len(self.masters) for i in range(len(self.masters) + 1)]
        for node, first, end in zip(self.masters, bounds, bounds[1:]):
            node.tell("CLUSTER", "ADDSLOTSRANGE", first, end - 1)

    def _meet(self):
        """Everybody everybody: gossip alone would take seconds."""
        for one, other in itertools.combinations(self.nodes, 2):
            one.tell("CLUSTER", "MEET", *other.cluster_address, other.bus_port)
        wait_for(lambda: all(self._knows_all(node) for node in self.nodes), SETTLE_SECONDS, "nodes that know each other")

    def _knows_all(self, node):
        known = node.cluster_nodes()
        return len(known) == len(self.nodes) and not any("handshake" in flags for flags, *_ in known.values())

    def _replicate(self):
        for number, replica in enumerate(self.replicas):
            replica.tell("CLUSTER", "REPLICATE", self.masters[number % len(self.masters)].id)

    # ---- what is where ----

    def alive(self):
        return [node for node in self.nodes if node.is_alive()]

    def url(self, scheme=None, password=""):
        """For upstream = …, with all nodes as seeds."""
        tls = self.nodes[0].tls_port is not None
        scheme = scheme or ("clusters" if tls else "cluster")
        seeds = ",".join(f"{node.host}:{node.tls_port if scheme == 'clusters' else node.port}" for node in self.nodes)
        return f"{scheme}://{password and f':{password}@'}{seeds}"

    def node_with(self, node_id):
        return next(node for node in self.nodes if node.id == node_id)

    def owner(self, slot, asked=None):
        """The master that has the slot."""
        asked = asked or self.alive()[0]
        return self.node_with(asked.slots()[slot])

    def slots_of(self, node):
        return {slot for slot, owner in node.slots().items() if owner == node.id}

    def keys_at(self, count, prefix="key"):
        """{master: [so many keys of it]}"""
        return {
            master: [key_in(slots, f"{prefix}{number}") for number in range(count)]
            for master in self.current_masters()
            if (slots := self.slots_of(master))
        }

    def current_masters(self):
        return [node for node in self.alive() if node.is_master()]

    def await_agreement(self, nodes=None):
        """All of them (those that are alive) say the same of all slots and of who is whose replica, the cluster is well,
        and replicas are there. They have heard of the newest epoch, too: a node that takes a slot without knowing it would
        have to give it back."""
        nodes = nodes or self.alive()
        ids = {node.id for node in nodes}

        def agree():
            told = [node.cluster_info() for node in nodes]
            if any(info.get("cluster_state") != "ok" for info in told):
                return False
            if len({info["cluster_current_epoch"] for info in told}) > 1:
                return False
            views = [node.slots() for node in nodes]
            masters = [{one: of for one, (_, of, *_) in node.cluster_nodes().items() if one in ids} for node in nodes]
            is_same = all(view == views[0] for view in views) and all(view == masters[0] for view in masters)
            self.agreed = masters[0]
            return len(views[0]) == SLOTS and is_same and all(map(is_linked, nodes))

        def is_linked(node):
            return node.is_master() or node.info("replication")["master_link_status"] == "up"

        wait_for(agree, SETTLE_SECONDS, "a cluster that agrees")

    # ---- slots ----

    def begin_migration(self, slot, to):
        source = self.owner(slot)
        to.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        return source

    def move_keys(self, slot, source, to, count=1000):
        """Moves so many at most; how many were moved."""
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            login = ["AUTH", to.password] if to.password else []
            migrate = ("MIGRATE", *to.cluster_address, "", 0, 10000, *login, "KEYS", *keys)
            while (reply := source.ask(*migrate)).startswith(b"CLUSTERDOWN"):
                # Nothing is moved while it is down, as it may be when another master fails over.
                wait_for(lambda: b"cluster_state:ok" in source.ask("CLUSTER", "INFO"), SETTLE_SECONDS, "the cluster")
            assert reply in (OK, b"NOKEY"), reply
        return len(keys)

    def end_migration(self, slot, to):
        """The target first, so that nobody is sent in a circle."""
        to.tell("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        for node in self.current_masters():
            if node is not to:
                node.tell("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    def abort_migration(self, slot):
        for node in self.current_masters():
            node.tell("CLUSTER", "SETSLOT", slot, "STABLE")

    def move_slot(self, slot, to):
        """With all its keys."""
        source = self.begin_migration(slot, to)
        if source is not to:
            while self.move_keys(slot, source, to):
                pass
        self.end_migration(slot, to)

    def reshard(self, slots, to):
        for slot in slots:
            self.move_slot(slot, to)

    # ---- nodes ----

    def replicas_of(self, master):
        """Those that it knows to be its own, and that have found it."""
        known = master.cluster_nodes()
        own = [node for node in self.alive() if known.get(node.id, ("", ""))[1] == master.id]
        return [node for node in own if b"master_link_status:up" in node.ask("INFO", "replication")]

    def replica_of(self, master):
        known = master.cluster_nodes()
        return next(node for node in self.alive() if known[node.id][1] == master.id)

    def fail_over(self, replica, *how):
        """CLUSTER FAILOVER: by agreement with its master; how: FORCE or TAKEOVER. It is a master when this returns."""

        def is_done():
            # It is refused as long as replica and master have not found each other, and comes to nothing when other
            # masters have voted on this one just now.
            if replica.ask("CLUSTER", "FAILOVER", *how) != OK:
                return replica.is_master()
            deadline = time.monotonic() + 2
            while not replica.is_master() and time.monotonic() < deadline:
                time.sleep(0.01)
            return replica.is_master()

        wait_for(is_done, SETTLE_SECONDS, "a failover")

    def await_failover(self, lost):
        """The replica that has become the master in place of one that is gone or hangs."""
        others = [node for node in self.alive() if node is not lost]
        replicas = [node for node in others if node.cluster_nodes()[node.id][1] == lost.id]
        # One may have taken over already.
        replicas = replicas or [node for node in others if self.agreed.get(node.id) == lost.id]
        assert replicas, f"{lost.url} has no replica"

        def successor():
            view = others[0].cluster_nodes()
            return next((node for node in replicas if "master" in view[node.id][0] and node.is_master()), None)

        return wait_for(successor, SETTLE_SECONDS, "a replica that takes over")

    def add_node(self, master=None):
        """A new node, without slots; the replica of that master if one is given."""
        node = self._make()
        for other in self.alive():
            node.tell("CLUSTER", "MEET", *other.cluster_address, other.bus_port)
        self.nodes.append(node)
        wait_for(lambda: all(self._knows_all(each) for each in self.alive()), SETTLE_SECONDS, "a node that is known")
        if master:
            node.tell("CLUSTER", "REPLICATE", master.id)
        self.await_agreement()
        return node

    def remove_node(self, node):
        """It must have no slots."""
        self.nodes.remove(node)
        for other in self.alive():
            other.tell("CLUSTER", "FORGET", node.id)
        node.discard()

    def discard(self):
        for node in self.nodes:
            node.discard()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()
