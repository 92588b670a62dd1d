"""The recipes of the articles: the same client code directly and through Headgate with all policies on, in both pools.

What a recipe sees and the data set at its end are the same. recipes/ has them.
"""

import pytest
from harness.admin import stats
from harness.resp import Error, wait_for
from harness.servers import Headgate, Redis
from recipes import Place, counting, data_of, finding, limiting, locking, queueing, recipes_of

import redis as library

RECIPES = recipes_of(counting, finding, limiting, locking, queueing)
TIMED = ("semaphore:",)
SERVERS = 5

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
LIMITS = {
    "sliding_window": "[limit:reply]\ncommands = lpush\nper = key\nlimit = 5\nwindow = 60s\n",
    "funnel": "[limit:reply]\ncommands = lpush\nper = key\nalgorithm = funnel\ncapacity = 15\nleak = 1/1m\n",
}


@pytest.fixture(scope="module")
def servers():
    """The first is asked directly, the others by Headgates."""
    started = [Redis() for _ in range(2 * SERVERS)]
    yield started
    for server in started:
        server.discard()


def sidecars(upstreams, pool):
    started = []
    for upstream in upstreams:
        headgate = Headgate(upstream, pool=pool, start=False)
        headgate.write_rules(POLICIES)
        headgate.start()
        started.append(headgate)
    return started


@pytest.fixture(scope="module")
def headgates(servers):
    started = sidecars(servers[SERVERS:], "shared")
    yield started
    for headgate in started:
        headgate.finish()


def outcome(recipe, places, server):
    """What was seen, and the data set at the end."""
    place = Place(places[0].address, [other.address for other in places[1:]])
    try:
        seen = recipe(place)
    finally:
        place.close()
    direct = library.Redis(*server.address, decode_responses=True)
    data = data_of(direct, TIMED)
    direct.close()
    return seen, data


def empty(servers):
    for server in servers:
        with server.connect() as client:
            client("FLUSHALL")


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_as_directly(servers, headgates, name):
    empty(servers)
    expected = outcome(RECIPES[name], servers[:SERVERS], servers[0])
    assert expected[0], "a recipe that sees nothing shows nothing"
    assert outcome(RECIPES[name], headgates, servers[SERVERS]) == expected
    assert_nothing_was_lost(headgates)


def assert_nothing_was_lost(headgates):
    for headgate in headgates:
        counters = stats(headgate, "lease")
        lost = {name: value for name, value in counters.items() if name.startswith("lease_lost")}
        assert lost and set(lost.values()) == {"0"}, lost


def test_the_policies_were_on(servers, headgates):
    """Otherwise the others would show little."""
    empty(servers)
    before = {name: counter(headgates[0], name) for name in COUNTED}
    for name in ("set_nx_ex_with_compare_and_delete", "counting_semaphore", "ranking", "time_sliced_counters"):
        outcome(RECIPES[name], headgates, servers[SERVERS])
    for name in COUNTED:
        wait_for(lambda name=name: counter(headgates[0], name) > before[name], what=f"{name} to count")


def counter(headgate, name):
    return int(stats(headgate, name.partition("_")[0])[name])


@pytest.mark.parametrize("name, rule", LIMITS.items())
def test_the_same_limits_by_headgate(servers, make_headgate, name, rule):
    """What the application does by a script, or a pipeline of five commands, an operator does by four lines."""
    empty(servers)
    seen, _ = outcome(RECIPES[f"{name}_in_the_client"], servers[:SERVERS], servers[0])
    headgate = make_headgate(servers[0], start=False)
    headgate.write_rules(rule)
    headgate.start()
    with headgate.connect() as client:
        answers = [not isinstance(client("LPUSH", "reply:laoqian", number), Error) for number in range(20)]
    assert answers == [bool(admitted) for admitted in seen[0]]


def test_they_are_those_that_are_told():
    """One that is lost on the way is missed."""
    assert len(RECIPES) == 40
