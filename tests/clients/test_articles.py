"""The recipes of the articles: the same client code directly and through Headgate with all policies on.

What a recipe sees and the data set at its end are the same. recipes/ has them.
"""

import pytest
from harness.admin import stats
from harness.resp import wait_for
from harness.servers import Headgate, Redis
from recipes import Place, counting, data_of, locking, queueing, recipes_of

import redis as library

RECIPES = recipes_of(counting, locking, queueing)
TIMED = ("semaphore:",)

# Nothing here refuses what the recipes do: the limits are wide, and what is denied is not theirs.
POLICIES = """[limit:clients]
per = process
limit = 1000000
window = 1h
[limit:users]
per = user
algorithm = funnel
capacity = 1000000
leak = 1000000/s
[limit:fleet]
commands = incr zincrby
per = key
scope = global
limit = 1000000
window = 1h
[deny:dangerous]
commands = flushall shutdown debug
[deny:watched]
commands = keys
action = observe
[lease:locks]
keys = lock:*
[lease:semaphores]
keys = semaphore:*
score = acquired
ttl = 60s
[latency]
enabled = on
[counters]
enabled = on
[events]
enabled = on
"""

COUNTED = ("latency_samples_total", "lease_acquired_total", "lease_released_total", "limit_admitted_total")


@pytest.fixture(scope="module")
def servers():
    """The first is asked directly, the other by Headgate."""
    started = [Redis(), Redis()]
    yield started
    for server in started:
        server.discard()


@pytest.fixture(scope="module")
def headgate(servers):
    started = Headgate(servers[1], pool="shared", start=False)
    started.write_rules(POLICIES)
    started.start()
    yield started
    started.finish()


def outcome(recipe, through, server):
    """What was seen, and the data set at the end."""
    with server.connect() as client:
        client("FLUSHALL")
    place = Place(through.address)
    try:
        seen = recipe(place)
    finally:
        place.close()
    direct = library.Redis(*server.address, decode_responses=True)
    data = data_of(direct, TIMED)
    direct.close()
    return seen, data


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_as_directly(servers, headgate, name):
    expected = outcome(RECIPES[name], servers[0], servers[0])
    assert expected[0], "a recipe that sees nothing shows nothing"
    assert outcome(RECIPES[name], headgate, servers[1]) == expected
    lost = {name: value for name, value in stats(headgate, "lease").items() if name.startswith("lease_lost")}
    assert lost and set(lost.values()) == {"0"}, lost


def test_the_policies_were_on(servers, headgate):
    """Otherwise the others would show little."""
    before = {name: counter(headgate, name) for name in COUNTED}
    for name in ("set_nx_ex_with_compare_and_delete", "counting_semaphore", "message_frequency_by_hour", "time_sliced_counters"):
        outcome(RECIPES[name], headgate, servers[1])
    for name in COUNTED:
        wait_for(lambda name=name: counter(headgate, name) > before[name], what=f"{name} to count")


def counter(headgate, name):
    return int(stats(headgate, name.partition("_")[0])[name])
