/*
 * Requests on hold. Each of its charges has a place: in the queue of its bucket, or with what Redis said of it. A
 * request that is asked about again finds its places, unless its buckets are others by now: then it begins anew.
 */
#include "limit/limit_private.h"

#include <stdlib.h>

/* ---- the list ---- */

static struct limit_held *held_new(struct limit *limit, void *holder)
{
    struct limit_held *held = calloc(1, sizeof *held + limit->charge_count * sizeof held->places[0]);

    if (held != NULL) {
        held->holder = holder;
        TAILQ_INSERT_TAIL(&limit->held, held, of_limit);
    }
    return held;
}

static void held_free(struct limit *limit, struct limit_held *held)
{
    TAILQ_REMOVE(&limit->held, held, of_limit);
    free(held);
}

/* ---- places ---- */

static bool fits(const struct limit *limit, const struct limit_held *held)
{
    bool same = held->count == limit->charge_count;

    for (size_t i = 0; same && i < held->count; i++) {
        same = held->places[i].bucket == limit->charges[i].bucket;
    }
    return same;
}

bool limit_find_places(struct limit *limit, struct limit_held *held)
{
    bool found = held == NULL || fits(limit, held);

    for (size_t i = 0; held != NULL && found && i < limit->charge_count; i++) {
        limit->charges[i].place = &held->places[i];
    }
    return found;
}

struct limit_held *limit_hold(struct limit *limit, struct limit_held *held, void *holder)
{
    if (held != NULL) {
        return held;
    }
    held = held_new(limit, holder);
    for (; held != NULL && held->count < limit->charge_count; held->count++) {
        struct limit_charge *charge = &limit->charges[held->count];
        held->places[held->count] =
            (struct limit_place){.bucket = charge->bucket, .rule = charge->rule, .cost = charge->cost, .held = held};
        charge->bucket->pins++;
        charge->place = &held->places[held->count];
    }
    return held;
}

void limit_queue(struct limit_place *place)
{
    if (place->state == LIMIT_PLACE_EMPTY) {
        place->state = LIMIT_PLACE_QUEUED;
        place->bucket->queued += place->cost;
    }
}

static void leave_place(struct limit *limit, struct limit_place *place)
{
    limit_locks locks = limit_bucket_locks(place->bucket);

    limit_call_leave(limit, place);
    if (place->state == LIMIT_PLACE_QUEUED) {
        limit_share_lock(limit->share, locks);
        place->bucket->queued -= place->cost;
        limit_share_unlock(limit->share, locks);
    }
    limit_bucket_unpin(limit->share, place->bucket);
}

void limit_leave_places(struct limit *limit, struct limit_held *held)
{
    while (held->count > 0) {
        leave_place(limit, &held->places[--held->count]);
    }
}

void limit_end_hold(struct limit *limit, struct limit_held *held)
{
    limit_leave_places(limit, held);
    held_free(limit, held);
}
