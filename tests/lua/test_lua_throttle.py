"""throttle.lua, on a real Redis: CL.THROTTLE against a model of the module that it is known from."""

import random
from typing import NamedTuple

import pytest
from limit_scripts import (
    DAY, EPOCH, HOUR, OVERWRITTEN, OWN_CLOCK, SECOND, WRONG_TYPE, assert_life, level_of, redis_time,
)  # fmt: skip

NANOSECONDS = 1_000_000_000


class Rate(NamedTuple):
    max_burst: int
    count: int
    period: int  # in s


@pytest.fixture
def throttle(ask):
    """Answers [refused, limit, remaining, retry after, reset after], these in s."""
    script = ask.script("throttle", OWN_CLOCK)

    def call(rate, quantity, now, key="a"):
        return script(key, *rate, quantity, now)

    call.script = script
    return call


def test_it_answers_as_the_module_does(throttle):
    for at_ms, quantity, *expected in [
        (0, 6, 1, 5, 5, -1, 0), (0, 1, 0, 5, 4, -1, 1), (0, 1, 0, 5, 3, -1, 2), (0, 1, 0, 5, 2, -1, 3),
        (0, 1, 0, 5, 1, -1, 4), (0, 1, 0, 5, 0, -1, 5), (0, 1, 1, 5, 0, 1, 5), (0, 5, 1, 5, 0, 5, 5),
        (0, 6, 1, 5, 0, -1, 5), (3000, 1, 0, 5, 2, -1, 3), (3100, 1, 0, 5, 1, -1, 4), (4000, 1, 0, 5, 1, -1, 4),
        (8000, 1, 0, 5, 4, -1, 1), (9500, 1, 0, 5, 4, -1, 1), (9500, 0, 0, 5, 4, -1, 1), (9500, 2, 0, 5, 2, -1, 3),
        (9500, 5, 1, 5, 2, 3, 3), (9600, 0, 0, 5, 2, -1, 3),
    ]:  # fmt: skip
        assert throttle(Rate(4, 1, 1), quantity, EPOCH + at_ms * 1000) == expected, (at_ms, quantity)
    # What its manual begins with.
    assert throttle(Rate(15, 30, 60), 1, EPOCH, "user123") == [0, 16, 15, -1, 2]


def test_no_exact_second_is_rounded_up(throttle):
    for count in range(1, 101):
        rate = Rate(2 * count - 1, count, 1)
        for used in range(1, 2 * count + 1):
            expected = [0, 2 * count, 2 * count - used, -1, -(-used // count)]
            assert throttle(rate, 1, EPOCH, f"count-{count}") == expected
        assert throttle(rate, count, EPOCH, f"count-{count}") == [1, 2 * count, 0, 1, 2]


class Cell:
    """The module's own arithmetic, in nanoseconds, of which an interval is a whole number here."""

    def __init__(self, now):
        self.now, self.tat = now, 0  # at most now: unknown

    def verdict(self, rate, quantity):
        """What it answers, and whether that is near to where a nanosecond that the script does not see may decide."""
        interval = rate.period * NANOSECONDS // rate.count
        tolerance = interval * (rate.max_burst + 1)
        tat = max(self.tat, self.now)
        ahead, early = tat - self.now, tat + interval * quantity - tolerance - self.now
        later = ahead + interval * quantity
        close = is_close(ahead, interval) or any(is_close(each, NANOSECONDS) for each in (early, ahead, later))
        retry = -1
        if early <= 0:
            self.tat = tat = tat + interval * quantity
        elif interval * quantity <= tolerance:
            retry = seconds_up(early)
        left = tolerance - (tat - self.now)
        remaining = left // interval if left > 0 else 0
        return [int(early > 0), rate.max_burst + 1, remaining, retry, seconds_up(tat - self.now)], close


def is_close(number, step, edge=20):
    past = abs(number) % step
    return step > 4 * edge and (past < edge or past > step - edge)


def seconds_up(number):
    return -(-number // NANOSECONDS)


RATES = [
    Rate(0, 1, 1), Rate(15, 30, 60), Rate(4, 5, 1), Rate(100, 1000, 1), Rate(999, 10000, 1), Rate(50, 10000, 1),
    Rate(0, 1000000, 1), Rate(20, 1000000, 1), Rate(5000000, 1000000, 1), Rate(10, 1, 3600), Rate(1000, 1, 86400),
    Rate(3, 400000, 2), Rate(59, 60, 60), Rate(0, 1000000, 60), Rate(1000000, 1000000, 86400),
]  # fmt: skip


def test_it_does_as_the_model_from_any_state(ask, throttle):
    chance, compared = random.Random(15), 0
    for _ in range(8000):
        rate, before = chance.choice(RATES), chance.choice(RATES)
        interval = rate.period * NANOSECONDS // rate.count
        full = interval * (rate.max_burst + 1)
        cell = Cell((EPOCH + chance.randrange(DAY)) * 1000)
        # From nearly empty to over the brim, as an asker with another rate may have left it.
        cell.tat = cell.now + chance.randrange(2 * interval + 2 if chance.randrange(2) == 0 else full + full // 5 + 2)
        left_by = chance.choice((before, rate))
        drop = left_by.period * 1e6 / left_by.count
        ask("SET a", f"{(cell.tat - cell.now) / 1000 / drop!r} {cell.now // 1000} {drop!r}")
        cell.now += chance.randrange(2) * 1000 * chance.randrange(full // 500 + 2)
        quantity = chance.randrange(4 if chance.randrange(2) == 0 else rate.max_burst + 4)
        expected, close = cell.verdict(rate, quantity)
        verdict = throttle(rate, quantity, cell.now // 1000)
        assert close or verdict == expected
        compared += not close
    assert compared > 4000


@pytest.mark.parametrize("rate", RATES)
def test_it_does_as_the_model_step_by_step(throttle, rate):
    chance, cell = random.Random(16), Cell(EPOCH * 1000)
    interval = rate.period * NANOSECONDS // rate.count
    for _ in range(500):
        quantity = 1 if chance.randrange(5) > 0 else chance.randrange(rate.max_burst + 3)
        before = cell.tat
        expected, close = cell.verdict(rate, quantity)
        verdict = throttle(rate, quantity, cell.now // 1000)
        if not close:
            assert verdict == expected
        elif verdict[0] != expected[0]:
            cell.tat = before if verdict[0] else cell.tat + interval * quantity
        cell.now += 1000 * chance.randrange(2 * interval // 1000 + 2)


@pytest.mark.parametrize(
    ("rate", "pause"),
    [(Rate(9, 10000, 1), 300), (Rate(9, 1000000, 1), 4), (Rate(9, 700001, 1), 5), (Rate(2, 3, 3600), HOUR // 3)],
)
def test_high_rates_are_kept_exactly(throttle, rate, pause):
    """Always one too many: in the long run exactly count in each period, at any rate."""
    chance, now, admitted = random.Random(17), EPOCH, 0
    for _ in range(1500):
        while throttle(rate, 1, now)[0] == 0:
            admitted += 1
        whole, past = divmod((now - EPOCH) * rate.count, rate.period * SECOND)
        near = not 10 < past < rate.period * SECOND - 10
        assert abs(admitted - rate.max_burst - 1 - whole) <= near
        now += 1 + chance.randrange(pause)


def test_every_digit_of_the_level_is_kept(ask, throttle):
    rate, level = Rate(999999, 7, 3), 123456.0
    throttle(rate, 123456, EPOCH)
    for later in range(1, 100):
        throttle(rate, 1, EPOCH + later)
        level = level - 7 / 3e6 + 1
        assert level_of(ask) == level


@pytest.mark.parametrize(
    ("rate", "life"), [(Rate(9, 1, 3600), 3600000), (Rate(9, 1000000, 1), 1), (Rate(0, 1, 9000000000), 9000000000000)]
)
def test_its_state_is_kept_as_long_as_it_says_anything(ask, rate, life):
    assert_life(ask, ask.script("throttle"), (*rate, 1), life)


def test_a_quantity_of_0_looks_only(ask, throttle):
    rate = Rate(4, 1, 3600)
    assert throttle(rate, 0, EPOCH) == [0, 5, 5, -1, 0] and ask("EXISTS a") == 0
    assert throttle(rate, 5, EPOCH) == [0, 5, 0, -1, 18000]
    before = ask("GET a")
    assert throttle(rate, 0, EPOCH + 1) == [0, 5, 0, -1, 18000]
    assert throttle(rate, 1, EPOCH + 1) == [1, 5, 0, 3600, 18000]
    assert ask("GET a") == before
    assert throttle(Rate(1, 1, 3600), 0, EPOCH) == [1, 2, 0, 10800, 18000], "with a smaller burst it is over the brim"
    assert ask("DBSIZE") == 1


def test_it_survives_a_clock_set_back(throttle):
    rate, now = Rate(1, 1, 3600), EPOCH - 10 * DAY
    throttle(rate, 2, EPOCH)
    assert throttle(rate, 1, now) == [1, 2, 0, 3600, 7200]
    assert throttle(rate, 1, now + HOUR) == [0, 2, 0, -1, 7200]


def test_it_takes_redis_time_in_real_time(ask):
    before = redis_time(ask)
    assert ask.script("throttle")("a", 4, 1, 3600, 1) == [0, 5, 4, -1, 3600]
    assert before <= int(ask("GET a").split()[1]) <= redis_time(ask)


@pytest.mark.parametrize(
    "arguments",
    [
        "-1 1 1 1", "1 0 1 1", "1 1 0 1", "1 1 1 -1", "1.5 1 1 1", "x 1 1 1", "1 nan 1 1", "1 1 inf 1", "1 1 1",
        "9007199254740992 1 9 1",
    ],
)  # fmt: skip
def test_what_it_cannot_reckon_with_is_refused(ask, throttle, arguments):
    assert throttle.script.error("a", *arguments.split()) == "ERR max_burst, count, period or quantity out of range"
    assert ask("DBSIZE") == 0


@pytest.mark.parametrize(
    "other",
    [
        "", "1700000000123456789",  # what the module itself would have written
        "hello", "1 2", "1 2 3 4", "nan 1 1", "-1 1700000000000000 1", "1e999 1700000000000000 1",
        "1e300 1700000000000000 1",
    ],
)  # fmt: skip
def test_a_state_of_others_is_told(ask, throttle, other):
    ask("RPUSH list a")
    assert throttle.script.error("list", 1, 1, 1, 1, EPOCH) == WRONG_TYPE
    ask("SET text", other)
    assert throttle.script.error("text", 1, 1, 1, 1, EPOCH) == OVERWRITTEN
