"""Requests with the times between which each was admitted or refused, and judges that go by those alone.

The client's own clock judges: a request is admitted somewhere between its sending and its reply, so that too many were
admitted only if all of them lie, from the first sending to the last reply, surely within one window.
"""

import bisect
import collections
import concurrent.futures
import time

from harness.limits import admitted

Attempt = collections.namedtuple("Attempt", "sent replied admitted")


def attempt(client, *command):
    sent = time.monotonic()
    reply = client(*command)
    return Attempt(sent, time.monotonic(), admitted([reply]) == 1)


def burst(client, count, *command):
    sent = time.monotonic()
    replies = client.pipeline([command] * count)
    replied = time.monotonic()
    return [Attempt(sent, replied, admitted([reply]) == 1) for reply in replies]


def hammer(clients, seconds, *command):
    """All of them at once, each as fast as it gets replies."""

    def work(client):
        attempts = []
        while time.monotonic() < until:
            attempts.append(attempt(client, *command))
        return attempts

    until = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as executor:
        return [one for attempts in executor.map(work, clients) for one in attempts]


def never_more(attempts, limit, seconds):
    """In no window more than limit, by the sending of the first and the reply to the last in it. Those that were."""
    taken = [one for one in attempts if one.admitted]
    for first in taken:
        surely = sum(first.sent <= one.sent and one.replied < first.sent + seconds for one in taken)
        assert surely <= limit, f"{surely} in {seconds} s from {first.sent}"
    return taken


def judge_window(attempts, limit, seconds):
    """Never more than limit in any window; and nobody is refused while there is plenty of room."""
    taken = never_more(attempts, limit, seconds)
    sent = sorted(one.sent for one in taken)
    replied = sorted(one.replied for one in taken)
    for refused in attempts:
        # Half a window of leeway: permits may come back a little late, but not much.
        gone = bisect.bisect_left(replied, refused.sent - 1.5 * seconds)
        perhaps = bisect.bisect_right(sent, refused.replied) - gone
        assert refused.admitted or perhaps >= limit, f"{refused} was refused with {perhaps} in its window"


def judge_funnel(attempts, capacity, drop):
    """In any time no more than fit at once and leak meanwhile."""
    taken = [one for one in attempts if one.admitted]
    for first in taken:
        ends = sorted(one.replied for one in taken if one.sent >= first.sent)
        for count, end in enumerate(ends, 1):
            assert count <= capacity + (end - first.sent) / drop, f"{count} in {end - first.sent} s"


def judge_refusals_of_funnel(attempts, capacity, drop):
    """Nobody is refused by a funnel that cannot be full. attempts: one client's, in order."""
    empty = 0.0
    for one in attempts:
        if one.admitted:
            empty = max(empty, one.replied) + drop
        else:
            assert empty - one.sent > (capacity - 2) * drop, f"{one} was refused by a funnel with room for two"
