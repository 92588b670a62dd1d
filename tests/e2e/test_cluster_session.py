"""What a client has said of its connection, before a cluster: it must not keep it from the other nodes."""

import pytest

from harness.cluster import slot_of
from harness.resp import OK, Error


@pytest.fixture
def headgate(cluster, make_headgate, pool):
    made = make_headgate(cluster.url(), pool=pool)
    made.await_log("3 of them masters with slots")
    return made


def keys_of(cluster):
    return [key for (key,) in cluster.keys_at(1).values()]


def test_all_nodes_can_be_reached_after(cluster, headgate):
    """Whatever comes first, and whatever comes between."""
    for number, command in enumerate(("CLIENT ID", "CLIENT INFO", "WAIT 0 0", "CLIENT GETREDIR", "LATENCY HISTOGRAM")):
        with headgate.connect() as client:
            client("HELLO", 2 + number % 2)
            for _ in range(3):
                assert not isinstance(client(*command.split()), Error)
                assert [client("SET", key, "v") for key in keys_of(cluster) * 2] == [OK] * 6
                assert client.pipeline([("MULTI",), ("SET", keys_of(cluster)[1], 1), ("EXEC",)])[2] == [OK]


def test_a_watch_that_is_sent_elsewhere_ends_with_unwatch(cluster, headgate):
    """UNWATCH in the pipeline comes behind it. What a script has said before is of no account: that connection was left."""
    # They are nowhere yet, so that a node that gives their slot away answers ASK.
    keys = [f"{{{key}}}:watched" for key in keys_of(cluster)]
    slot, client = slot_of(keys[0]), headgate.connect()
    assert client("EVAL", "return redis.error_reply('ERR no')", 1, keys[0]) == Error(b"ERR no")
    cluster.begin_migration(slot, cluster.owner(slot_of(keys[1])))
    try:
        assert client.pipeline([("WATCH", keys[0]), ("UNWATCH",), *(("SET", key, 1) for key in keys)]) == [OK] * 5
        assert client.pipeline([("DEL", key) for key in keys]) == [1] * 3
    finally:
        cluster.abort_migration(slot)
