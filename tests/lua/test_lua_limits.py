"""The scripts of limits, on a real Redis, against models that keep everything and reckon in whole numbers."""

import random
from typing import NamedTuple

import pytest
from limit_scripts import (
    DAY, EPOCH, HOUR, OVERWRITTEN, SECOND, WRONG_TYPE, Funnel, History, Limit, Window, assert_life,
    assert_slots_stay_small, demand, level_of, pause, redis_time, spenders, time_of, wait_until,
)  # fmt: skip

# ---- windows ----


class Trial(NamedTuple):
    window: Window
    calls: int
    hold: int = 0
    hold_varies: bool = False  # from 0 to hold
    late: int = 0  # how much later than it could a permit may come back
    steady: bool = False  # many small costs, less than the limit, and the whole limit now and then


def model_grant(history, window, now, cost, least):
    """What the whole history says of a demand, in a window that may be longer than the limit's own."""
    granted = min(cost, window.limit - history.spent_after(now - window.length))
    return 0 if granted < least else granted


def model_wait(history, window, now, least):
    """Until so many have left the window that the least is free."""
    left = history.spent_after(0)
    for _, last, count in sorted(history.grants, key=lambda grant: grant[1]):
        left -= count
        if last + window.length > now and left + least <= window.limit:
            return last + window.length - now
    return float("inf")


def steady_demand(chance, limit):
    """The whole limit is never free: it is asked for to be told how long it takes."""
    return (limit, limit) if chance.randrange(8) == 0 else demand(chance, limit // 24)


def next_arrival(chance, now, length, wait):
    """After a refusal, sometimes comes when it was told to, or a microsecond too early."""
    choice = chance.randrange(6)
    return now + wait - choice if wait > 0 and choice < 2 else now + pause(chance, length)


def assert_like_model(ask, trial, now=EPOCH):
    """The script must grant no more than the history of its own grants allows, and no less than if the window were so
    much longer as it may be late; with 0 it must do exactly as the model."""
    chance = random.Random(7)
    window, longer = trial.window, Window(trial.window.limit, trial.window.length + trial.late)
    limit, history, granted, promised = Limit(ask, window), History(), 0, None
    for _ in range(trial.calls):
        hold = chance.randrange(trial.hold + 1) if trial.hold_varies else trial.hold
        cost, least = (steady_demand if trial.steady else demand)(chance, window.limit)
        kept = promised is not None and promised[0] == now
        if kept:
            cost = least = promised[1]
        history.forget_until(now - longer.length)
        got, wait = limit(now, cost, least, hold)
        assert got <= model_grant(history, window, now, cost, least), "more than the limit"
        assert got >= model_grant(history, longer, now, cost, least), "permits came back late"
        assert not kept or got == least, "it was not enough to wait as told"
        promised = None
        if got > 0:
            history.remember(now, now + hold, got)
            granted += got
        if got < cost:
            assert wait >= model_wait(history, window, now, least), "too short a wait"
            assert wait <= model_wait(history, longer, now, least), "too long a wait"
            promised = (now + wait, least)
        step = chance.randrange(window.length // 150) if trial.steady else 0
        now = now + step if trial.steady else next_arrival(chance, now, window.length, wait)
    assert granted > window.limit * 2, "hardly anything was granted"
    assert ask("DBSIZE") == 1, "another key than its own was written"


@pytest.mark.parametrize(
    "trial",
    [
        # Exact up to 64.
        Trial(Window(1, HOUR), 2000), Trial(Window(2, HOUR), 2000), Trial(Window(7, HOUR), 2000),
        Trial(Window(20, HOUR), 2000, HOUR // 10), Trial(Window(64, HOUR), 2000), Trial(Window(64, HOUR), 2000, HOUR),
        # Late by a 64th of a large limit, whether or not it is a multiple of 64 microseconds.
        Trial(Window(65, HOUR), 3000, late=HOUR // 64), Trial(Window(1000, HOUR), 3000, late=HOUR // 64),
        Trial(Window(1000000, HOUR), 3000, late=HOUR // 64), Trial(Window(500, HOUR + 63), 3000, late=HOUR // 64 + 1),
        Trial(Window(500, HOUR), 3000, HOUR // 10, late=(HOUR + HOUR // 10) // 64),
        Trial(Window(500, HOUR), 4000, late=HOUR // 64, steady=True),
        Trial(Window(3000, HOUR), 4000, HOUR, late=2 * HOUR // 64, steady=True),
        # Late by the hold where holds vary: slots stay in order, so that a permit for at once comes back no sooner than
        # a lease that was granted before it.
        Trial(Window(20, HOUR), 3000, HOUR // 10, hold_varies=True, late=HOUR // 10),
        Trial(Window(500, HOUR), 3000, HOUR // 10, hold_varies=True, late=HOUR // 10 + HOUR // 50),
    ],
)  # fmt: skip
def test_slots_do_as_the_model(ask, trial):
    assert_like_model(ask, trial)


def test_slots_grant_what_there_is_down_to_the_least(ask):
    limit = Limit(ask, Window(10, HOUR))
    assert limit(EPOCH, 7, 1)[0] == 7
    assert limit(EPOCH, 7, 4) == (0, HOUR)
    assert limit(EPOCH, 7, 3) == (3, HOUR), "and when as much comes back"
    assert limit(EPOCH + 10, 1) == (0, HOUR - 10)
    # More than the limit: some of it may do.
    assert limit(EPOCH, 11, key="b") == (0, -1) and limit(EPOCH, 11, 10, key="b")[0] == 10
    assert limit(EPOCH + 1, 2, 1, key="b", limit=Window(4, HOUR)) == (0, HOUR - 1), "a limit that was lowered"


def test_slots_take_large_costs(ask):
    most = 10**15
    limit = Limit(ask, Window(most, HOUR))
    assert limit(EPOCH, most - 1)[0] == most - 1
    assert limit(EPOCH + 1, most, 1)[0] == 1
    assert limit(EPOCH + 2, most) == (0, HOUR - 1)
    assert limit(EPOCH + HOUR + HOUR // 64, 1)[0] == 1


@pytest.mark.parametrize("most", [12, 400])
def test_slots_hold_the_limit_however_late_a_lease_is_spent(ask, most):
    chance, window, history, now = random.Random(8), Window(most, HOUR), History(), EPOCH
    limit = Limit(ask, window)
    for _ in range(1500):
        # Leases of several lengths, and permits for at once among them.
        hold = chance.randrange(3) * HOUR // (2 + chance.randrange(20))
        got, wait = limit(now, *demand(chance, most), hold)
        if got > 0:
            history.remember(now, now + hold, got)
        assert got > 0 or wait <= 2 * HOUR
        now = next_arrival(chance, now, HOUR, wait)
    history.assert_no_window_holds_more(window)
    assert sum(count for _, _, count in history.grants) > most * 10


@pytest.mark.parametrize("most", [7, 300])
def test_slots_limit_in_real_time(ask, most):
    """Between two readings of Redis' clock that nothing else comes between. Grants that together are more than the
    limit took at least a window, whatever the moments between the readings."""
    chance, window, grants = random.Random(9), Window(most, 20000), []
    limit = Limit(ask, window, "")

    def ask_between(cost, least):
        words = limit.script.words("a").split()
        ask.client.pipeline([("MULTI",), ("TIME",), (*words, *window, cost, least, 0), ("TIME",)])
        before, (got, wait, _), after = ask.client("EXEC")
        grants.append((time_of(before), time_of(after), got))
        return got, wait

    for _ in range(150):
        cost, least = demand(chance, most)
        got, wait = ask_between(cost, least)
        if got == 0:
            assert wait <= 20000 + 20000 // 64 + 1
            wait_until(ask, grants[-1][1] + wait)
            assert ask_between(least, least)[0] == least, "it was not enough to wait as told"
    for number, (first, _, _) in enumerate(grants):
        together = 0
        for _, last, count in grants[number:]:
            together += count
            if together > most:
                assert last - first >= 20000
                break
    assert sum(count for _, _, count in grants) >= 150


def test_slots_stay_small(ask):
    chance, limit, now = random.Random(10), Limit(ask, Window(1000000, HOUR)), EPOCH
    for call in range(6000):
        limit(now, 1 + chance.randrange(9000), 1, chance.choice((0, HOUR // 10, HOUR)))
        now += chance.randrange(HOUR // 500)
        if call % 50 == 0:
            assert_slots_stay_small(ask)
    # As many slots as there can be: each share begins with a permit, and ends with one.
    for share in range(200):
        assert limit(EPOCH + share * HOUR // 64, 1, key="b")[0] == 1
        limit(EPOCH + (share + 1) * HOUR // 64 - 1, 1, key="b")
        assert_slots_stay_small(ask, "b")
    # Also when the window is made longer.
    for number in range(66):
        limit(EPOCH + number * 100, 1, key="c", limit=Window(1000, 6400))
    for number in range(1, 66):
        assert limit(EPOCH + number * HOUR // 64, 1, key="c", limit=Window(1000, HOUR))[0] == 1
        assert_slots_stay_small(ask, "c")


# ---- windows whose clock jumps, whose state is lost or is not theirs ----


@pytest.mark.parametrize(("most", "late"), [(3, 0), (3000, HOUR // 64)])
def test_slots_survive_a_clock_set_back(ask, most, late):
    limit, now = Limit(ask, Window(most, HOUR)), EPOCH - 10 * DAY
    assert limit(EPOCH, most)[0] == most
    # What was granted is taken for granted now: it neither floods nor locks.
    assert limit(now, 1) == (0, HOUR) and limit(now + HOUR - 1, 1) == (0, 1)
    assert limit(now + HOUR, most)[0] == most
    # A jump that may be within the window of the others.
    now += HOUR // 2
    got, wait = limit(now, 1)
    assert got == 0 and wait <= 2 * HOUR
    assert limit(now + wait, most)[0] == most
    # From there on it is as if nothing had happened.
    assert_like_model(ask, Trial(Window(most, HOUR), 300, late=late), now + wait + 2 * HOUR)


def test_slots_stay_in_order_when_the_clock_is_set_back(ask):
    """Many slots, of which the clock's jump puts only some beyond doubt."""
    limit, now = Limit(ask, Window(100, HOUR)), EPOCH - HOUR - HOUR // 2
    for number in range(32):
        limit(EPOCH + number * HOUR // 32, 3)
    assert limit(now, 50) == (0, HOUR) and limit(now + HOUR, 100)[0] == 100


def test_slots_stay_apart_when_the_clock_is_set_back(ask):
    """Newest slots that began in the future must not take all in until then."""
    limit, now = Limit(ask, Window(1000, HOUR)), EPOCH - 10 * DAY
    assert all(limit(EPOCH + number * HOUR // 200, 1)[0] == 1 for number in range(200))
    assert all(limit(now + number * HOUR // 200, 1)[0] == 1 for number in range(600))
    assert limit(now + 3 * HOUR, 1000, 1)[0] >= 1000 - 200 - 200 // 64 - 1


@pytest.mark.parametrize("terms", [Window(1, 30000), Funnel(1, 1, 30000)])
def test_a_clock_set_back_in_real_time(ask, terms):
    """What Redis finds after its own clock was set back by a day."""
    own, real = Limit(ask, terms), Limit(ask, terms, "")
    assert own(redis_time(ask) + DAY, 1)[0] == 1
    got, wait = real(None, 1)
    assert got == 0 and 30000 <= wait <= 30000 + isinstance(terms, Funnel)
    before = redis_time(ask)
    wait_until(ask, before + wait)
    assert real(None, 1)[0] == 1
    state = ask("GET a") if isinstance(terms, Funnel) else None
    assert state is None or before + wait <= int(state.split()[1]) <= redis_time(ask)


SLOTS_OF_OTHERS = ["", "hello", "12", "slots:", "slots:1234567812345678", "slots:12345678123456781234567812345678x"]
FUNNELS_OF_OTHERS = [
    "", "hello", "1", "1 2 3", " 1 2", "-1 1000", "nan 17000000", "0x10 100", "1 1e9", "1e999 1700000000000000",
    "nan 1700000000000000", "-1 1700000000000000",
]  # fmt: skip


@pytest.mark.parametrize(
    ("terms", "others"),
    [
        (Window(1000, HOUR), [*SLOTS_OF_OTHERS, "as long a text as a state of one slot."]),
        (Funnel(3, 1, HOUR), FUNNELS_OF_OTHERS),
    ],
)
def test_a_state_that_was_overwritten(ask, terms, others):
    limit = Limit(ask, terms)
    call = (*terms, 1, 1, 0, EPOCH)
    ask("RPUSH list a")
    assert limit.script.error("list", *call) == WRONG_TYPE
    for other in others:
        ask("SET text", other)
        assert limit.script.error("text", *call) == OVERWRITTEN, other
        assert ask("GET text") == other, "it was overwritten in turn"
    assert limit(EPOCH, 1, key="own")[0] == 1
    if isinstance(terms, Window):
        ask("APPEND own x")
        assert limit.script.error("own", *call) == OVERWRITTEN
    assert ask("LLEN list") == 1


@pytest.mark.parametrize(
    ("terms", "call", "life"),
    [
        (Window(1, HOUR), (1, 1, 0), 3600000), (Window(1, 500), (1, 1, 0), 1),
        (Window(1, HOUR + 1), (1, 1, HOUR // 4), 3600001 + 900000),
        (Funnel(5, 1, HOUR), (3, 3, 0), 3 * 3600000), (Funnel(5, 1000000, SECOND), (1, 1, 0), 1),
        (Funnel(5, 1, HOUR), (1, 1, HOUR), 2 * 3600000),
    ],
)  # fmt: skip
def test_a_state_expires_when_it_says_nothing_any_more(ask, terms, call, life):
    assert_life(ask, Limit(ask, terms, "").script, (*terms, *call), life)


def test_a_permit_for_at_once_does_not_cut_short_what_is_remembered_of_a_lease(ask):
    limit = Limit(ask, Window(2, 24 * DAY), "")
    limit(None, 1, hold=24 * DAY)
    limit(None, 1)
    assert ask("PTTL a") > 40 * DAY // 1000


# ---- funnels ----


class FunnelModel:
    """A drop is period parts, of which leak leave in each microsecond: whole numbers only."""

    def __init__(self, funnel):
        self.funnel, self.parts, self.time = funnel, 0, EPOCH

    def leak_until(self, now):
        self.parts = max(0, self.parts - (now - self.time) * self.funnel.leak)
        self.time = now


def is_at_edge(funnel, parts):
    """A millionth of a drop is more than what a fraction of a double loses."""
    past, edge = parts % funnel.period, funnel.period // 1000000 + 1
    return past < edge or past > funnel.period - edge


@pytest.mark.parametrize(
    "funnel",
    [
        Funnel(1, 1, HOUR), Funnel(5, 1, HOUR), Funnel(1000, 7, 3 * SECOND), Funnel(1000, 3, SECOND),
        Funnel(300, 1, SECOND), Funnel(3000000, 10000, SECOND),
    ],
)  # fmt: skip
def test_a_funnel_does_as_the_model(ask, funnel):
    chance, limit, model = random.Random(11), Limit(ask, funnel), FunnelModel(funnel)
    now, granted, full = EPOCH, 0, funnel.capacity * funnel.period // funnel.leak
    for _ in range(2000):
        cost, least = demand(chance, funnel.capacity)
        got, wait = limit(now, cost, least)
        model.leak_until(now)
        room = funnel.capacity * funnel.period - model.parts
        fits = min(room // funnel.period, cost)
        if not is_at_edge(funnel, room):
            assert got == (0 if fits < least else fits)
        else:
            assert got == 0 or abs(got - fits) <= 1
        if got == 0:
            exact = -(-(least * funnel.period - room) // funnel.leak)
            assert exact <= wait <= exact + 1
            # What it told is enough.
            if chance.randrange(3) == 0:
                now += wait
                got, _ = limit(now, least)
                assert got == least
                model.leak_until(now)
        model.parts += got * funnel.period
        granted += got
        now += chance.randrange(full * 3 // 2 if chance.randrange(8) == 0 else full // funnel.capacity + 2)
    assert granted > funnel.capacity and ask("DBSIZE") == 1


@pytest.mark.parametrize(
    ("funnel", "pause"),
    [
        (Funnel(3000, 1000000, SECOND), 1000), (Funnel(3000, 999999, SECOND), 1000), (Funnel(3, 1, HOUR), HOUR // 3),
        (Funnel(1000000, 1, HOUR), HOUR // 3),
    ],
)  # fmt: skip
def test_a_funnel_leaks_without_rounding(ask, funnel, pause):
    """Always thirsty, never empty: in the long run exactly what leaks."""
    chance, limit, now, granted = random.Random(12), Limit(ask, funnel), EPOCH, 0
    for _ in range(4000):
        granted += limit(now, funnel.capacity, 1)[0]
        leaked = (now - EPOCH) * funnel.leak
        assert is_at_edge(funnel, leaked) or granted == funnel.capacity + leaked // funnel.period
        now += chance.randrange(pause)
    leaked = (now - EPOCH) * funnel.leak // funnel.period
    assert abs(granted - funnel.capacity - leaked) <= 1 + pause * funnel.leak // funnel.period


def test_a_funnel_keeps_every_digit_of_its_level(ask):
    limit, level = Limit(ask, Funnel(1000000, 7, 3 * SECOND)), 123456.0
    limit(EPOCH, 123456, 1)
    for later in range(1, 100):
        limit(EPOCH + later, 1)
        level = level - 7 / 3e6 + 1
        assert level_of(ask) == level


def test_a_funnel_grants_what_fits_down_to_the_least(ask):
    limit = Limit(ask, Funnel(10, 1, HOUR))
    assert limit(EPOCH, 7, 1)[0] == 7
    assert limit(EPOCH, 7, 4)[1] <= HOUR + 1
    assert limit(EPOCH, 7, 3)[0] == 3
    assert limit(EPOCH, 11, key="b") == (0, -1) and limit(EPOCH, 11, 10, key="b")[0] == 10


def test_a_funnel_never_runs_over_however_late_a_lease_is_spent(ask):
    chance, funnel, history, now = random.Random(13), Funnel(200, 1, 60 * SECOND), History(), EPOCH
    limit = Limit(ask, funnel)
    for _ in range(1500):
        hold = chance.randrange(2) * chance.randrange(HOUR)
        got, _ = limit(now, *demand(chance, 200), hold)
        if got > 0:
            history.remember(now, now + hold, got)
        now += chance.randrange(HOUR if chance.randrange(5) == 0 else 120 * SECOND)
    assert len(history.grants) > 300
    for spend in spenders():
        history.assert_never_runs_over(funnel, spend)


def test_a_funnel_survives_a_clock_set_back(ask):
    limit, now = Limit(ask, Funnel(3, 1, HOUR)), EPOCH - 10 * DAY
    assert limit(EPOCH, 3)[0] == 3
    assert limit(now, 1)[1] <= HOUR + 1
    # Though that was refused, it leaks by the new time from then on.
    assert limit(now + HOUR // 2, 1)[1] <= HOUR // 2 + 1
    assert limit(now + 2 * HOUR, 3, 1)[0] == 2


# ---- giving back ----


@pytest.mark.parametrize("most", [2, 20, 64, 1000, 10**12])
def test_slots_are_as_if_nothing_had_been_granted(ask, most):
    limit, now = Limit(ask, Window(most, HOUR)), EPOCH + HOUR // 2 + 50
    assert limit(EPOCH, most // 2)[0] == limit(EPOCH + HOUR // 2, most // 2)[0] == most // 2
    mark = limit.mark
    assert limit.takes_back(now, 1) == 1
    assert limit(now, most, 1)[0] == 1
    assert limit.takes_back(now, 1) + limit.takes_back(now, most // 2 - 1, mark) == most // 2
    # The first half was granted long before, and comes back when it would have.
    assert limit(now, most) == (0, HOUR // 2 - 50)
    assert limit(now, most, 1)[0] == most // 2


def test_slots_take_back_from_their_own_and_no_more_than_there_is(ask):
    limit = Limit(ask, Window(10, HOUR))
    for later in range(4):
        limit(EPOCH + later, 2)
    assert [limit.takes_back(EPOCH + 4, 3, EPOCH + later) for later in (1, 0, 2, 3)] == [2] * 4
    assert ask("EXISTS a") == 0, "an empty state says nothing"
    # That grant was lost with its state, and this one is another's.
    assert limit(EPOCH + HOUR // 20, 11, 1)[0] == 10
    assert limit.takes_back(EPOCH + HOUR // 20, 1, EPOCH) == 0


def test_slots_take_nothing_back_that_was_granted_before_or_has_left_the_window(ask):
    limit = Limit(ask, Window(10, HOUR))
    limit(EPOCH, 4)
    limit(EPOCH + 100, 4)
    assert [limit.takes_back(EPOCH + 120, 5) for _ in range(2)] == [4, 0]
    # It holds those that others have been granted since.
    assert limit.takes_back(EPOCH + HOUR, 4, EPOCH) == 0
    assert limit(EPOCH + 120, 10, 1)[0] == 6


def test_small_limits_stay_exact(ask):
    """What is taken and given back again and again neither fills the slots up nor makes them coarse."""
    limit, now = Limit(ask, Window(64, HOUR)), EPOCH
    for _ in range(63):
        for turn in range(5):
            assert limit(now + turn, 1)[0] == limit.takes_back(now + turn, 1) == 1
        assert limit(now + 5, 1)[0] == 1
        now += HOUR // 64
    assert limit(now, 64)[1] == 62 * (HOUR // 64) + 5 + HOUR - (now - EPOCH)
    assert limit(EPOCH + 4 + HOUR, 2) == (0, 1)
    assert limit(EPOCH + 5 + HOUR, 2)[0] == 2


@pytest.mark.parametrize("terms", [Window(12, HOUR), Window(64, 2000), Window(400, HOUR), Funnel(50, 1, SECOND)])
def test_nothing_is_given_away_that_others_were_granted(ask, terms):
    """Of several askers at once some give back, in any order: what is left and spent never breaks the limit."""
    chance, limit, history, now = random.Random(14), Limit(ask, terms), History(), EPOCH
    pending, given, granted = [None] * 8, 0, 0
    is_funnel = isinstance(terms, Funnel)
    for _ in range(4000):
        place = chance.randrange(len(pending))
        if pending[place]:
            mark, *grant = pending[place]
            if chance.randrange(3) > 0:
                history.remember(*grant)
            else:
                back = limit.takes_back(now, grant[2], mark)
                assert back <= grant[2]
                given += back
        hold = 0 if is_funnel or chance.randrange(3) else terms.length // 20
        got, _ = limit(now, *demand(chance, terms[0]), hold)
        pending[place] = (limit.mark, now, now + hold, got) if got else None
        granted += got
        if is_funnel:
            now += chance.randrange(60 * SECOND if chance.randrange(20) == 0 else SECOND // 5)
        else:
            now += chance.randrange(3) if chance.randrange(3) > 0 else pause(chance, terms.length)
    assert granted > terms[0] * 10 and given > granted / 20, "hardly anything was given back"
    if is_funnel:
        history.assert_never_runs_over(terms, min)
    else:
        history.assert_no_window_holds_more(terms)
        assert_slots_stay_small(ask)


def test_a_funnel_is_emptied_by_as_much(ask):
    limit = Limit(ask, Funnel(10, 1, HOUR))
    assert limit(EPOCH, 7)[0] == 7
    assert limit.takes_back(EPOCH + 100, 3) == 3 and level_of(ask) == 4
    assert limit.takes_back(EPOCH + 100, 2) == 2
    assert limit(EPOCH + 100, 10, 1)[0] == 8
    assert limit.takes_back(EPOCH + 100, 100) == 10
    assert ask("EXISTS a") == 0, "an empty state says nothing"
    assert limit.takes_back(EPOCH + 100, 1) == 0


def test_a_funnel_takes_back_what_has_not_leaked(ask):
    limit, now = Limit(ask, Funnel(10, 1, SECOND)), EPOCH + 5 * SECOND
    # Five are taken, all leak, others take three: of the five nothing is there.
    limit(EPOCH, 5)
    limit(now, 3)
    assert limit.takes_back(now, 5, EPOCH) == 0 and level_of(ask) == 3
    assert limit.takes_back(now - 1, 3) == 0, "nobody knows what has leaked out before a clock was set back"
    assert limit.takes_back(now, 3, now - SECOND // 2) == 3 and level_of(ask) == 0.5, "rounded up"


@pytest.mark.parametrize("terms", [Window(1000, HOUR), Funnel(3, 1, HOUR)])
def test_what_is_no_state_is_left_alone(ask, terms):
    limit = Limit(ask, terms)
    for other in [*SLOTS_OF_OTHERS, *FUNNELS_OF_OTHERS[-3:]]:
        ask("SET text", other)
        assert limit.takes_back(EPOCH, 1, key="text") == 0
        assert ask("GET text") == other, "it was overwritten in turn"
    ask("RPUSH list a")
    assert limit.takes_back(EPOCH, 1, key="list") == limit.takes_back(EPOCH, 1, key="none") == 0
    assert ask("DBSIZE") == 2 and ask("LLEN list") == 1


@pytest.mark.parametrize(("terms", "life"), [(Window(5, HOUR), 3600000), (Funnel(5, 1, HOUR), 2 * 3600000)])
def test_what_is_left_expires_when_it_would_have(ask, terms, life):
    limit, before = Limit(ask, terms, ""), redis_time(ask)
    limit(None, 2)
    assert limit.takes_back(None, 1) == 1
    left = ask("PTTL a")
    assert life + 1000 - (redis_time(ask) - before) // 1000 - 2 <= left <= life + 1001


def test_redis_time_counts_for_what_is_given_back_in_real_time(ask):
    limit = Limit(ask, Window(5, HOUR), "")
    limit(None, 2)
    assert limit.takes_back(None, 2, limit.mark + 1) == limit.takes_back(None, 2, limit.mark - HOUR) == 0
    assert limit.takes_back(None, 2) == 2


def test_what_is_forgotten_is_available_again(ask):
    limit, forget = Limit(ask, Window(5, HOUR), ""), ask.script("limit_forget")
    assert forget("a") == 0
    assert limit(None, 5, key="a")[0] == limit(None, 5, key="b")[0] == 5
    assert [forget("a"), forget("a")] == [1, 0]
    assert limit(None, 5, key="a")[0] == 5 and limit(None, 5, key="b")[0] == 0
    # Also what took its place.
    ask("RPUSH list a b")
    assert forget("list") == 1 and ask("EXISTS list") == 0


# ---- DELIFEQ ----


def test_only_what_equals_is_deleted(ask):
    delete = ask.script("delifeq")
    assert delete("lock", "") == 0, "there is none"
    for value, others in [("mine", ["theirs", "min", "MINE"]), ("a\0b", ["a\0c", "a"]), ("10", ["1e1"]), ("", ["x"])]:
        ask("SET lock", value)
        assert not any(delete("lock", other) for other in others) and ask("EXISTS lock")
        assert delete("lock", value) == 1 and ask("EXISTS lock") == 0
        assert delete("lock", value) == 0
    ask("SADD set a")
    assert delete.error("set", "a") == WRONG_TYPE and ask("SCARD set") == 1


