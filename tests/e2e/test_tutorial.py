"""The policy that CONTRIBUTING.md writes: the page shows the file that is built, and the policy does what the page says."""

import re

import pytest

from harness.admin import stats
from harness.resp import OK, Error
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
