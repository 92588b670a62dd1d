"""[route:NAME] reads = …: rules say which requests replicas answer, and which the master, whatever the server says."""

import subprocess

import pytest

from harness.admin import await_end_seen, stats
from harness.cluster import Cluster, tag_of
from harness.reads import Calls, await_fit, nodes
from harness.resp import OK, Client, Error, wait_for
from harness.rules import reload
from harness.sentinel import Group
from harness.servers import BINARY, free_port


def replicas(group):
    return [server for server in group.servers if server is not group.master()]


def route(name, **options):
    return "\n".join([f"[route:{name}]", *(f"{option} = {value}" for option, value in options.items())]) + "\n"


@pytest.fixture
def make(group, make_headgate):
    """A Headgate with those rules, all replicas of which are fit."""

    def start(rules, reads="master", **options):
        options = {"read_own_writes": "0", "sentinel_timeout": "20s", **options}
        headgate = make_headgate(group.url, start=False, reads=reads, **options)
        headgate.write_rules(rules)
        headgate.start()
        await_fit(headgate, replicas(group))
        return headgate

    return start


def who_reads(group, client, *request, times=6):
    """ "master" or "replica": who has answered so many of that request."""
    reading = Calls(group, request[0])
    for _ in range(times):
        assert not isinstance(client(*request), Error)
    of_master = reading.of(group.master())
    of_replicas = sum(reading.of(server) for server in replicas(group))
    assert sorted((of_master, of_replicas)) == [0, times]
    return "master" if of_master else "replica"


# ---- which requests ----


@pytest.mark.parametrize("threads", (1, 4))
def test_keys_are_routed_to_replicas(group, make, threads):
    headgate = make(route("cache", keys="cache:*", reads="prefer-replica"), threads=threads)
    for client in [headgate.connect() for _ in range(4)]:
        assert who_reads(group, client, "GET", "cache:1") == "replica"
        assert who_reads(group, client, "GET", "account:1") == "master"
        assert who_reads(group, client, "MGET", "cache:1", "cache:2") == "replica"
        assert who_reads(group, client, "MGET", "cache:1", "account:1") == "master", "one is not the rule's"
        assert who_reads(group, client, "DBSIZE") == "master"


def test_keys_are_kept_from_replicas(group, make):
    headgate = make(route("strict", keys="account:*", reads="master"), reads="prefer-replica")
    with headgate.connect() as client:
        assert who_reads(group, client, "GET", "cache:1") == "replica"
        assert who_reads(group, client, "GET", "account:1") == "master"
        assert who_reads(group, client, "MGET", "cache:1", "account:1") == "master", "one is the rule's"
        assert who_reads(group, client, "EXISTS", "cache:1", "cache:2") == "replica"


def test_commands_are_routed(group, make):
    rules = route("sets", commands="@set !scard", reads="replica")
    headgate = make(rules)
    with headgate.connect() as client:
        assert who_reads(group, client, "SMEMBERS", "s") == "replica"
        assert who_reads(group, client, "SCARD", "s") == "master"
        assert who_reads(group, client, "GET", "k") == "master"
        assert client("SADD", "s", "m") in (0, 1), "a write is the master's, whatever the rule says"


@pytest.mark.parametrize("clients", ("name:report-*", "ip:127.0.0.0/8 name:nobody"))
def test_clients_are_routed(group, make, clients):
    headgate = make(route("reports", clients=clients, reads="prefer-replica"))
    with headgate.connect() as client:
        assert client("CLIENT", "SETNAME", "report-1") == OK
        assert who_reads(group, client, "GET", "k") == "replica"
        assert client("CLIENT", "SETNAME", "web") == OK
        assert who_reads(group, client, "GET", "k") == ("replica" if clients.startswith("ip:") else "master")


def test_users_and_identities_are_routed(group, make):
    for server in group.servers:
        with group.direct(server) as client:
            assert client("ACL", "SETUSER", "reader", "on", ">pass", "+@all", "~*", "&*") == OK
    rules = route("user", clients="user:reader", reads="prefer-replica") + route(
        "identity", clients="identity:here", reads="prefer-replica", commands="strlen"
    )
    headgate = make(rules + "[identity:here]\naddress = ip:127.0.0.0/8\n")
    with headgate.connect() as client:
        assert who_reads(group, client, "GET", "k") == "master"
        assert who_reads(group, client, "STRLEN", "k") == "replica"
        assert client("AUTH", "reader", "pass") == OK
        assert who_reads(group, client, "GET", "k") == "replica"


def test_the_first_rule_that_means_it_says_so(group, make):
    rules = route("hot", keys="cache:hot:*", reads="master") + route("cache", keys="cache:*", reads="replica")
    headgate = make(rules)
    with headgate.connect() as client:
        assert who_reads(group, client, "GET", "cache:hot:1") == "master"
        assert who_reads(group, client, "GET", "cache:1") == "replica"
        assert who_reads(group, client, "MGET", "cache:1", "cache:hot:1") == "master"


def test_what_sort_reads_beside_its_key_may_be_anything(group, make):
    headgate = make(route("cache", keys="cache:*", reads="replica"))
    with headgate.connect() as client:
        assert who_reads(group, client, "SORT_RO", "cache:list") == "replica"
        assert who_reads(group, client, "SORT_RO", "cache:list", "BY", "weight:*") == "master"


def test_writes_transactions_and_own_writes_are_the_masters(group, make):
    headgate = make(route("all", reads="prefer-replica"), read_own_writes="1h")
    with headgate.connect() as client:
        assert who_reads(group, client, "GET", "k") == "replica"
        reading = Calls(group, "get")
        assert client("MULTI") == OK and client("GET", "k") == b"QUEUED"
        client("EXEC")
        assert reading.of(group.master()) == 1
    with headgate.connect() as client:
        for number in range(20):
            assert client("SET", "own", number) == OK
            assert client("GET", "own") == str(number).encode()
        assert who_reads(group, client, "GET", "k") == "master", "it wrote"


# ---- order ----


def test_a_pipeline_of_both_kinds_keeps_its_order(group, make):
    rules = route("cache", keys="cache:*", reads="prefer-replica") + route("strict", keys="strict:*", reads="replica")
    headgate = make(rules)
    with headgate.connect() as client:
        for number in range(40):
            said, wanted = [], []
            for key in ("cache:a", "strict:b", "c"):
                said += [("SET", key, number), ("STRLEN", "strict:none"), ("GET", key), ("STRLEN", "cache:none")]
                wanted += [OK, 0]
            replies = client.pipeline(said)
            assert replies[::4] == [OK] * 3 and replies[1::2] == [0] * 6
            assert replies[10] == str(number).encode(), "what is the master's is always up to date"


def test_who_may_only_read_replicas_waits_for_one_and_others_do_not(make_headgate):
    """Both kinds in one pipeline, with no replica left: nothing of the strict kind is answered by the master."""
    own = Group(down_after=60_000)
    try:
        own.await_agreement()
        rules = route("cache", keys="cache:*", reads="prefer-replica") + route("strict", keys="strict:*", reads="replica")
        headgate = make_headgate(
            own.url, start=False, read_own_writes="0", upstream_wait="200s", sentinel_check="100ms", sentinel_timeout="20s"
        )
        headgate.write_rules(rules)
        headgate.start()
        others = replicas(own)
        await_fit(headgate, others)
        client, strict = headgate.connect(), headgate.connect()
        strict.socket.settimeout(200)  # sentinels take their time to make replicas of them again
        assert client.pipeline([("GET", "cache:1"), ("GET", "strict:1")]) == [None, None]
        for server in others:
            server.kill()
            await_end_seen(headgate, server.port)
        assert client("GET", "cache:1") is None, "from the master"
        reading = Calls(own, "get")
        strict.request("GET", "strict:1")
        assert [client("GET", "cache:1") for _ in range(5)] == [None] * 5
        assert reading.of(own.master()) == 5
        for server in others:
            server.start()
        assert strict.read() is None
        assert reading.of(own.master()) == 5
    finally:
        own.discard()


# ---- settings ----


def test_reload_takes_effect(group, make, make_headgate):
    headgate = make_headgate(group.url, read_own_writes="0", sentinel_timeout="20s")
    client = headgate.connect()
    assert who_reads(group, client, "GET", "cache:1") == "master"
    reload(headgate, route("cache", keys="cache:*", reads="prefer-replica"), client)
    await_fit(headgate, replicas(group))
    assert who_reads(group, client, "GET", "cache:1") == "replica"
    reload(headgate, route("cache", keys="other:*", reads="prefer-replica"), client)
    assert who_reads(group, client, "GET", "cache:1") == "master"
    reload(headgate, "", client)
    assert who_reads(group, client, "GET", "other:1") == "master"
    wait_for(lambda: {node["reads"] for node in nodes(headgate)} == {""}, 30, "nobody to be asked any more")


def test_only_the_servers_that_it_names_have_it(group, make_headgate):
    port = free_port()
    headgate = make_headgate(group.url, start=False, read_own_writes="0", sentinel_timeout="20s")
    headgate.write_rules(
        f"[server:second]\nlisten = 127.0.0.1:{port}\nupstream = {group.url}\n"
        + route("cache", keys="cache:*", reads="prefer-replica", servers="default")
    )
    headgate.start()
    await_fit(headgate, replicas(group))
    with headgate.connect() as client, Client(("127.0.0.1", port)) as other:
        assert who_reads(group, client, "GET", "cache:1") == "replica"
        assert who_reads(group, other, "GET", "cache:1") == "master"


def check(tmp_path, text):
    path = tmp_path / "h.ini"
    path.write_text(text)
    return subprocess.run([BINARY, "-t", "-c", path], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    "text, fault",
    (
        ("[route:a]\nkeys = a:*\n", "does not say who answers"),
        ("[route:a]\nreads = sometimes\n", "sometimes"),
        ("[route:a]\nreads = master\nserver = geo\n", "server = ********: is an option no more; expected a listen of"),
        ("[lease:a]\nkeys = a:*\nconfirm = 1\n", "confirm = ********: is an option no more; expected WAIT"),
        ("[route:a]\nreads = master\nclients = web\n", "is none of ip:ADDRESS"),
        ("[route:a]\nreads = master\ncommands = gte\n", "is no command"),
        ("[route:a]\nreads = master\nservers = other\n", "other"),
        (
            "[headgate]\nupstream = sentinel://127.0.0.1:1/m\npool = session\n[route:a]\nreads = replica\n",
            "needs pool = shared",
        ),
        (
            "[server:s]\nlisten = 127.0.0.1:1\nupstream = cluster://127.0.0.1:2\npool = session\n"
            "[route:a]\nreads = replica\nservers = s\n",
            "needs pool = shared",
        ),
    ),
)
def test_what_is_refused(tmp_path, text, fault):
    checked = check(tmp_path, text)
    assert checked.returncode != 0 and fault in checked.stderr + checked.stdout


@pytest.mark.parametrize(
    "text, warning",
    (
        ("[route:a]\nreads = replica\n", "does nothing: the upstream names no sentinels"),
        (
            "[headgate]\nupstream = sentinel://127.0.0.1:1/m\n[route:a]\nreads = replica\n"
            "[route:b]\nkeys = b:*\nreads = master\n",
            "never applies: [route:a]",
        ),
        (
            "[headgate]\nupstream = sentinel://127.0.0.1:1/m\n[route:a]\nreads = replica\nclients = identity:nobody\n",
            "is no identity of the file",
        ),
    ),
)
def test_what_is_warned_of(tmp_path, text, warning):
    checked = check(tmp_path, text)
    assert checked.returncode == 0 and warning in checked.stderr + checked.stdout


def test_nothing_is_said_of_what_is_in_order(tmp_path):
    text = (
        "[headgate]\nupstream = sentinel://127.0.0.1:1/m\n[route:a]\nkeys = a:*\nreads = replica\n"
        "[route:b]\nkeys = a:b:*\nreads = master\n"
    )
    checked = check(tmp_path, text)
    assert checked.returncode == 0 and "warning" not in (checked.stderr + checked.stdout).lower()


# ---- before a cluster ----


@pytest.fixture(scope="module")
def cluster():
    with Cluster(replicas=1) as made:
        yield made


def calls(node, command):
    for line in node.ask("INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:calls="):
            return int(line.split("=")[1].split(",")[0])
    return 0


@pytest.mark.parametrize("threads", (1, 4))
def test_before_a_cluster(cluster, make_headgate, threads):
    headgate = make_headgate(
        cluster.url(), start=False, threads=threads, read_own_writes="0", upstream_wait="60s", sentinel_check="100ms",
        sentinel_timeout="20s",
    )
    headgate.write_rules(route("cache", keys="*:cache", reads="prefer-replica") + route("s", keys="*:strict", reads="replica"))
    headgate.start()

    def are_fit():
        listed = nodes(headgate, "replica")
        return len(listed) == 3 and all(node["state"] == "up" and node["lag"] != "" for node in listed)

    wait_for(are_fit, 60, "the replicas to be fit")
    tags = [f"{{{tag_of(slot)}}}" for slot in range(100, 16384, 16384 // 12)]
    for node in cluster.alive():
        node.tell("CONFIG", "RESETSTAT")
    with headgate.connect() as client:
        said = [("GET", tag + kind) for tag in tags for kind in (":cache", ":strict", ":other")]
        assert client.pipeline(said) == [None] * len(said)
        assert [client(*request) for request in said] == [None] * len(said)
    of_masters = sum(calls(node, "get") for node in cluster.masters)
    of_replicas = sum(calls(node, "get") for node in cluster.replicas)
    assert (of_masters, of_replicas) == (2 * len(tags), 4 * len(tags))
    assert int(stats(headgate, "topology")["reads_replica_total"]) == of_replicas
