"""Policies before a cluster: their scripts run at the node of their key, and follow its slot."""

import pytest

from e2e.test_cluster_redirect import tell_of
from harness.admin import text
from harness.cluster import slot_of
from harness.global_limits import connect_to, rush, shared, total
from harness.latency import ON, ask, await_report, counter, interfaces
from harness.leases import await_keys, leases
from harness.leases import rule as lease_rule
from harness.resp import OK, Error, wait_for
from harness.rules import launch


@pytest.fixture(autouse=True)
def emptied(cluster):
    for node in cluster.current_masters():
        node.ask("FLUSHALL")


def test_two_sidecars_share_a_limit(cluster, make_headgate):
    headgates = [launch(make_headgate, cluster.url(), "shared", shared(limit=100), threads=count) for count in (1, 4)]
    assert rush(connect_to(headgates, 6), 25) == 100
    assert [total(headgates, name) for name in ("admitted_total", "undecided_total")] == [100, 0]
    keys = {key for node in cluster.current_masters() for key in node.ask("KEYS", "headgate:*")}
    assert keys == {b"headgate:hist:slots:a:all"}


def test_scripts_wait_for_the_map(fake, make_headgate):
    """As requests do: a node that has not got their slot would refuse them."""
    headgate = launch(make_headgate, f"cluster://{fake.url}", "shared", shared(limit=5, commands="set"), lanes=1)
    headgate.connect().request("SET", "a", 1)
    headgate.connect().request("ECHO", "behind it")
    questions = []
    while (command := fake.next()).arguments[0] == b"CLUSTER":
        questions.append(command)
    assert command.arguments[0] == b"ECHO"
    tell_of(fake)
    for question in questions:
        question.reply(fake.answers["CLUSTER"](None, question.arguments))
    while (command := fake.next()).arguments[0] == b"CLUSTER":  # it may ask again meanwhile
        command.reply(fake.answers["CLUSTER"](None, command.arguments))
    assert command.arguments[0] in (b"EVAL", b"EVALSHA")


def test_leases_are_renewed_where_their_keys_are(cluster, make_headgate):
    headgate = launch(make_headgate, cluster.url(), "shared", lease_rule("jobs", owner="client"))
    client = headgate.connect()
    nodes = cluster.keys_at(2, "lock:")
    for keys in nodes.values():
        for key in keys:
            assert client("SET", key, "token", "NX", "PX", 5000) == OK
    moved = next(iter(nodes.values()))[0]
    source = cluster.owner(slot_of(moved))
    cluster.move_slot(slot_of(moved), next(node for node in nodes if node is not source))

    def renewals():
        with headgate.admin() as admin:
            lines = admin("LEASES").decode().splitlines()
        return [int(line.split("renewals=")[1].split()[0]) for line in lines if "renewals=" in line]

    wait_for(lambda: len(renewals()) == 6 and min(renewals()) >= 3, 60, "renewals of all leases")
    for keys in nodes.values():
        for key in keys:
            assert cluster.owner(slot_of(key)).ask("GET", key) == b"token"


def test_what_several_nodes_have_deleted_is_held_no_more(cluster, make_headgate):
    """A DEL that is taken apart, and FLUSHALL: what all nodes say together is what Redis has said."""
    headgate = launch(make_headgate, cluster.url(), "shared", lease_rule("a", owner="client"), cross_slot="split")
    client = headgate.connect()
    keys = [key for of_node in cluster.keys_at(2, "lock:").values() for key in of_node]
    for command, reply in ((("DEL", *keys), len(keys)), (("FLUSHALL",), OK)):
        for key in keys:
            assert client("SET", key, "token", "NX", "PX", 60000) == OK
        assert {lease["state"] for lease in leases(headgate)} == {"held"}
        assert client(*command) == reply
        assert "held" not in {lease["state"] for lease in leases(headgate)}
        await_keys(headgate, [])


EVENTS = "[counters]\nenabled = on\n[events]\nenabled = on\n[deny:no]\ncommands = keys\n"


def test_figures_are_on_record_without_further_options(cluster, make_headgate, pool):
    """What each call writes is in one slot, whatever the interface, the counter and the event."""
    headgate = launch(make_headgate, cluster.url(), pool, ON + EVENTS)
    client = headgate.connect()
    for keys in cluster.keys_at(2).values():
        for key in keys:
            assert client("SET", key, "x") == OK
            assert client("GET", key) == b"x"
    assert isinstance(client("KEYS", "*"), Error)
    for interface, count in (("set", 6), ("get", 6), ("keys", 1)):
        await_report(headgate, interface, count)
    wait_for(lambda: {"get", "set", "keys"} <= interfaces(headgate, "REPORT", "*").keys(), 30, "all to be listed")

    def counted():
        lines = [line for name in ("requests", "refusals") for line in ask(headgate, "COUNTER", name, "86400")]
        return sum(int(line["count"]) for line in lines)

    wait_for(lambda: counted() == 14, 30, "13 requests and a refusal to be counted")
    wait_for(lambda: "deny:no keys" in told(headgate, "RECENT", "refusals", "info"), 30, "the refusal to be on record")
    assert "deny:no keys" in told(headgate, "COMMON", "refusals", "info")
    assert counter(headgate, "flush_failures_total") == 0
    assert "not written" not in headgate.log()


def told(headgate, *question):
    with headgate.admin() as admin:
        return text(admin(*question))
