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


def test_a_cell_is_worse_than_recorded():
    worse = {(known, cell) for known in (SAME, LACKS, WRONG, None) for cell in (SAME, LACKS, WRONG)
             if clients_record.is_worse(cell, known)}  # fmt: skip
    assert worse == {(SAME, LACKS), (SAME, WRONG), (LACKS, WRONG), (None, WRONG)}


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


def test_the_record_is_of_all_libraries_and_features():
    features, costs = clients_record.recorded(PAGE)
    assert list(features) == [library.name for library in LIBRARIES]
    assert set(costs) == set(features)
    for cells in features.values():
        assert list(cells) == ["library", "version", *(feature.name for feature in FEATURES)]


def test_programs_are_there():
    for library in LIBRARIES:
        assert (REPOSITORY / "tests" / "newest" / library.language / library.program).is_file()
