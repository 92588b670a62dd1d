/* Who waits while there is too much to write, or too much that was not answered. */
#include "upstream/lane_private.h"

#include <assert.h>

void lane_await(struct lane *lane, struct lane_waiter *waiter)
{
    assert(!waiter->waits);
    waiter->waits = true;
    LIST_INSERT_HEAD(&lane->waiters, waiter, of_lane);
}

void lane_waiter_cancel(struct lane_waiter *waiter)
{
    if (waiter->waits) {
        waiter->waits = false;
        LIST_REMOVE(waiter, of_lane);
    }
}

void lane_wake_waiters(struct lane *lane)
{
    LIST_HEAD(, lane_waiter) woken = LIST_HEAD_INITIALIZER(woken);

    while (!LIST_EMPTY(&lane->waiters)) {
        struct lane_waiter *waiter = LIST_FIRST(&lane->waiters);
        LIST_REMOVE(waiter, of_lane);
        LIST_INSERT_HEAD(&woken, waiter, of_lane);
    }
    while (!LIST_EMPTY(&woken)) {
        struct lane_waiter *waiter = LIST_FIRST(&woken);
        lane_waiter_cancel(waiter);
        waiter->wake(waiter);
    }
}

void lane_tell_relief(struct lane *lane)
{
    lane->was_congested = false;
    lane_wake_waiters(lane);
    if (lane->owner != NULL) {
        lane->owner_events->writable(lane->owner);
    }
}
