"""What scripts/test-clients makes of its outcomes: which cells are worse than recorded, and that the record is of all."""

import sys

import pytest

from harness.servers import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))

import clients_record
import clients_trial
from clients_record import LACKS, SAME, WRONG
from clients_table import FEATURES, LIBRARIES

PAGE = REPOSITORY / "docs" / "clients.md"


@pytest.mark.parametrize(
    ("cell", "known", "worse"),
    [
        (SAME, SAME, False), (LACKS, SAME, True), (WRONG, SAME, True),
        (SAME, LACKS, False), (LACKS, LACKS, False), (WRONG, LACKS, True),
        (SAME, WRONG, False), (LACKS, WRONG, False), (WRONG, WRONG, False),
        (SAME, None, False), (LACKS, None, False), (WRONG, None, True),
    ],
)  # fmt: skip
def test_a_cell_is_worse_than_recorded(cell, known, worse):
    assert clients_record.is_worse(cell, known) == worse


def test_more_connections_than_recorded_are_worse():
    assert not clients_record.costs_more({"shared": 20}, None)
    assert not clients_record.costs_more({"shared": 5}, {"shared": "4"})
    assert clients_record.costs_more({"shared": 20}, {"shared": "4"})
    assert not clients_record.costs_more({"shared": 12}, {"shared": "4"}, threads=2)


def outcomes(**changed):
    """Of one feature, equal in all ways but what is changed: way=(lines, digest)."""
    found = {}
    for way in clients_trial.WAYS:
        lines, digest = changed.get(way, (["reply 1"], b"data"))
        outcome = found[way] = clients_trial.Outcome()
        if lines is not None:
            outcome.replies["strings"], outcome.digests["strings"] = lines, digest
    return found


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, None),
        ({"shared": (["reply 2"], b"data")}, "shared: reply 1 directly, but reply 2"),
        ({"session": (["reply 1", "reply 1"], b"data")}, "session: 2 replies"),
        ({"shared": (["reply 1"], b"other")}, "shared: the data differ"),
        ({"shared": (["error lost"], b"data")}, "shared: error lost"),
        ({"direct": (["error lost"], b"data")}, "direct: error lost"),
        ({"shared": (None, None)}, "shared: not tried"),
    ],
)
def test_what_is_wrong_with_a_feature(changed, fault):
    faults = clients_trial.faults_of(outcomes(**changed), FEATURES[0])
    assert FEATURES[0].name == "strings"
    assert (fault in faults) if fault else not faults, faults


def test_requests_that_were_lost_are_counted_and_not_compared():
    trial = clients_trial.Trial.__new__(clients_trial.Trial)
    trial.outcome = clients_trial.Outcome()
    assert trial._without_losses(["reply lost=3", "reply 'lost=2'", "reply 7"]) == ["reply lost", "reply 'lost'", "reply 7"]
    assert trial.outcome.lost == 5


def test_tables_are_read_as_they_are_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{clients_record.BEGIN}\n{clients_record.END}\nthe end\n")
    assert clients_record.recorded(page) == ({}, {})
    head, costs = ["library", "version", "strings"], ["library", "shared"]
    clients_record.write(page, "today", [head, ["b", "1", SAME]], [costs, ["b", "4"]], ["a", "b"])
    clients_record.write(page, "today", [head, ["a", "2", WRONG]], [costs, ["a", "5"]], ["a", "b"])
    features, connections = clients_record.recorded(page)
    assert list(features) == ["a", "b"] and features["b"]["strings"] == SAME and features["a"]["strings"] == WRONG
    assert connections["b"]["shared"] == "4"
    assert page.read_text().startswith("# Page\n") and page.read_text().endswith("the end\n")


def test_the_record_is_of_all_libraries_and_features():
    features, costs = clients_record.recorded(PAGE)
    assert list(features) == [library.name for library in LIBRARIES]
    assert set(costs) == set(features)
    for cells in features.values():
        assert list(cells) == ["library", "version", *(feature.name for feature in FEATURES)]


def test_programs_are_there():
    for library in LIBRARIES:
        assert (REPOSITORY / "tests" / "newest" / library.language / library.program).is_file()
