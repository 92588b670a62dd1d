"""clock.lua, on a real Redis."""

import time


def test_it_tells_the_time_in_microseconds(ask):
    clock, last, remainders = ask.script("clock"), 0, 0
    for _ in range(50):
        before = time.time_ns() // 1000
        now = clock("")
        # Redis reads its clock once before a script, so that it may lag a little.
        assert max(before - 1_000_000, last) <= now <= time.time_ns() // 1000
        last = now
        remainders += now % 1000 != 0
        time.sleep(0.0005)
    assert remainders > 25, "the digits below a millisecond are lost"
