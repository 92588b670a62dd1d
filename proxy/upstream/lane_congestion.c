/* Who waits for a lane: while there is too much to write, or too much that was not answered, or it is not ready. */
#include "upstream/lane_private.h"

void lane_waiter_cancel(struct lane_waiter *waiter)
{
    if (waiter->lane != NULL) {
        waiter->lane = NULL;
        LIST_REMOVE(waiter, of_lane);
    }
}

void lane_await(struct lane *lane, struct lane_waiter *waiter)
{
    lane_waiter_cancel(waiter);
    waiter->lane = lane;
    LIST_INSERT_HEAD(&lane->waiters, waiter, of_lane);
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
