"""Headgate and Redis understand each request alike, and nothing of one client is left for the next.

What is run and how it is judged is told in docs/testing.md. WORDS_SEED gives another sample.
"""

import os

import pytest

from differences import is_unknown
from harness.resp import Error
from judge import Victim, faults_of_connections, told
from parts import RENAMED, run_attacks, run_names, run_sequences, run_words, world_with

SEED = int(os.environ.get("WORDS_SEED", "1"))


@pytest.fixture
def world():
    opened = world_with()
    yield opened
    opened.finish()


@pytest.fixture(params=RENAMED)
def renamed_world(request):
    opened = world_with(request.param)
    yield opened, request.param
    opened.finish()


def check(runner, least):
    assert runner.findings == [], "\n" + "\n".join(map(str, runner.findings))
    assert runner.count >= least, f"only {runner.count} were run"


def test_every_name_of_a_command_in_every_form(world):
    check(run_names(world, SEED), least=8000)


def test_words_of_options_and_values(world):
    check(run_words(world, SEED), least=4000)


def test_what_changes_a_connection_two_by_two(world):
    check(run_attacks(world, SEED), least=3000)


def test_commands_under_another_name(renamed_world):
    world, name = renamed_world
    check(run_attacks(world, SEED, step=1, renamed=name), least=50)


def test_random_sequences(world):
    check(run_sequences(world, SEED), least=2000)


# ---- the judges ----

FRESH = {"user": "default", "db": "0", "resp": "2", "flags": "N", "sub": "0", "psub": "0", "multi": "-1", "redir": "-1"}
FRESH["cmd"] = "get"


@pytest.mark.parametrize(
    "change",
    [{"user": "low"}, {"db": "1"}, {"resp": "3"}, {"flags": "t"}, {"sub": "1"}, {"multi": "1"}, {"redir": "7"}],
)
def test_the_judge_sees_what_is_left(change):
    assert faults_of_connections([FRESH], [FRESH]) == []
    assert faults_of_connections([{**FRESH, **change}], [FRESH])


def test_only_errors_say_unknown():
    assert is_unknown(Error(b"ERR unknown command 'x', with args beginning with: "))
    assert not is_unknown(b"ERR unknown command 'x'")
    assert not is_unknown(Error(b"ERR syntax error"))


def test_a_victim_notices_that_it_is_somebody_else(world):
    victim = Victim(world, {"user": "low", "db": "0", "resp": "2"})
    victim.user = b"default"
    victim.begin("MULTI")
    told([victim])
    victim.end()
    told([victim])
    assert "was told" in victim.fault()
    victim.party.close()
