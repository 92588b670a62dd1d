"""The parts of the differential test, each on a world of its own: for the tests, and for the long run."""

import random

from attacks import OF_RENAMED, Numbers, other_name, renamed_attacks, state_attacks
from forms import Catalogue
from hits import find_hits
from scenarios import Runner
from sequences import Sequences
from table import all_rows
from world import World

# Every how-manieth of what there is too much of for a test of a minute.
WORDS_STEP = 3
ATTACKS_STEP = 4
SEQUENCES = 2500


def catalogue(world, seed):
    client = world.observer.client
    rows = all_rows(client)
    return Catalogue(rows, find_hits(client, rows, seed), seed)


def run_names(world, seed, step=1, most=5):
    """Every command and subcommand in every form of its name."""
    runner = Runner(world, most_findings=most)
    forms = list(catalogue(world, seed).of_names())
    runner.forms(forms[seed % step :: step], random.Random(seed))
    return runner


def run_words(world, seed, step=WORDS_STEP, most=5):
    """Every option and value in every form."""
    runner = Runner(world, most_findings=most)
    forms = list(catalogue(world, seed).of_words())
    runner.forms(forms[seed % step :: step], random.Random(seed))
    return runner


def run_attacks(world, seed, step=ATTACKS_STEP, most=5, renamed=None):
    """The attacks on a server with its own names, or with another one for one command; each at once and one by one."""
    numbers = Numbers({renamed.lower()} if renamed else ())
    runner = Runner(world, most_findings=most)
    requests = list(renamed_attacks(renamed) if renamed else state_attacks())
    scenarios = [(request, pipelined) for request in requests for pipelined in (True, False)]
    runner.scenarios(numbers.scenario(*scenario) for scenario in scenarios[seed % step :: step])
    return runner


def run_sequences(world, seed, count=SEQUENCES, most=5):
    """Two to six forms in a row by one client."""
    runner = Runner(world, most_findings=most)
    forms = catalogue(world, seed)
    runner.scenarios(Sequences(list(forms.of_names()) + list(forms.of_words()), seed).scenarios(count))
    return runner


def world_with(renamed=None):
    # Who has logged in by another name than AUTH is not logged in again, and waits for that.
    return World(renamed={renamed: other_name(renamed)}, upstream_wait="3s") if renamed else World()


RENAMED = sorted(OF_RENAMED)
