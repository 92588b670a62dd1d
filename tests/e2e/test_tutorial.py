"""The policy that CONTRIBUTING.md writes: the page shows the file that is built, and the policy does what the page says."""

import re

import pytest

from harness.admin import stats
from harness.resp import OK, QUEUED, Error, wait_for
from harness.servers import REPOSITORY

REFUSED = Error(b"DENIED databases: 1 is the last one")


@pytest.fixture
def make(redis, pool, make_probe):
    """Starts headgate-probe, which has the policy, with these rules."""

    def start(rules):
        probe = make_probe(redis, pool=pool, start=False)
        probe.write_rules(rules)
        probe.start()
        return probe

    return start


def refused(probe):
    return int(stats(probe, "Databases")["databases_refused_total"])


def test_the_page_shows_what_is_built():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    shown = re.findall(r"^```c\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    built = (REPOSITORY / "tests" / "policy" / "databases.c").read_text()
    assert "\n".join(shown) == built


def test_databases_up_to_the_highest_may_be_selected(make):
    probe = make("[databases]\nhighest = 1\n")
    with probe.connect() as client:
        assert client("SELECT", "1") == OK
        assert client("SET", "a", "1") == OK
        for name, number in (("SELECT", "2"), ("select", "15"), ("Select", "1000000")):
            assert client(name, number) == REFUSED
        assert client("GET", "a") == b"1"
        assert client("SELECT", "0") == OK
        assert client("GET", "a") is None
    assert refused(probe) == 3


def test_what_is_no_number_is_for_redis(make, redis):
    probe = make("[databases]\nhighest = 1\n")
    with probe.connect() as client, redis.connect() as direct:
        for words in (("SELECT",), ("SELECT", "two"), ("SELECT", "02"), ("SELECT", "-1"), ("SELECT", "1", "2")):
            answer = client(*words)
            assert isinstance(answer, Error) and answer == direct(*words)
    assert refused(probe) == 0


def test_a_refusal_spoils_the_transaction(make):
    probe = make("[databases]\nhighest = 1\n")
    with probe.connect() as client:
        replies = client.pipeline([("MULTI",), ("SELECT", "2"), ("SET", "a", "1"), ("EXEC",), ("EXISTS", "a")])
    assert replies[:3] == [OK, REFUSED, QUEUED]
    assert replies[3].startswith(b"EXECABORT") and replies[4] == 0


def test_a_reload_is_taken(make):
    probe = make("")
    with probe.connect() as client:
        assert client("SELECT", "2") == OK
        probe.write_rules("[databases]\nhighest = 1\n")
        with probe.admin() as admin:
            wait_for(lambda: admin("RELOAD") == OK, what="the reload to be taken")
        wait_for(lambda: client("SELECT", "2") == REFUSED, what="the new rules")
