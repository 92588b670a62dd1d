/*
 * Requests on hold. Each of its charges has a place: in the queue of its bucket, or with what Redis said of it. A
 * request that is asked about again finds its places, unless its buckets are others by now: then it begins anew.
 */
#include "limit/limit_private.h"

#include <stdlib.h>

bool limit_find_places(struct limit *limit, struct limit_held *held)
{
    size_t same = 0;

    while (held != NULL && same < held->count && same < limit->charge_count &&
           held->places[same].bucket == limit->charges[same].bucket) {
        limit->charges[same].place = &held->places[same];
        same++;
    }
    return held == NULL || (same == held->count && same == limit->charge_count);
}

struct limit_held *limit_hold(struct limit *limit, struct limit_held *held, void *holder)
{
    if (held != NULL) {
        return held;
    }
    held = calloc(1, sizeof *held + limit->charge_count * sizeof held->places[0]);
    if (held != NULL) {
        held->holder = holder;
        held->counted = limit->was_delayed;
        TAILQ_INSERT_TAIL(&limit->held, held, of_limit);
    }
    for (; held != NULL && held->count < limit->charge_count; held->count++) {
        struct limit_charge *charge = &limit->charges[held->count];
        held->places[held->count] =
            (struct limit_place){.bucket = charge->bucket, .rule = charge->rule, .cost = charge->cost, .held = held};
        charge->bucket->pins++;
        charge->place = &held->places[held->count];
    }
    return held;
}

void limit_queue(struct limit_place *place, int64_t turn_us)
{
    if (place->state == LIMIT_PLACE_EMPTY) {
        place->state = LIMIT_PLACE_QUEUED;
        place->bucket->queued += place->cost;
        LIST_INSERT_HEAD(&place->bucket->queue, place, of_bucket);
    }
    place->turn_us = turn_us;
    place->moved = false;
}

static void leave_place(struct limit *limit, struct limit_place *place)
{
    limit_locks locks = limit_bucket_locks(place->bucket);

    limit_call_leave(limit, place);
    if (place->state == LIMIT_PLACE_QUEUED) {
        limit_share_lock(limit->share, locks);
        place->bucket->queued -= place->cost;
        LIST_REMOVE(place, of_bucket);
        place->bucket->was_left = true;
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
    TAILQ_REMOVE(&limit->held, held, of_limit);
    free(held);
}

int64_t limit_due_ahead(const struct limit_place *place, int64_t now_us)
{
    int64_t ahead = 0;

    while ((place = LIST_NEXT(place, of_bucket)) != NULL) {
        ahead += place->turn_us <= now_us ? place->cost : 0;
    }
    return ahead;
}

/* Of a place of a global rule: whether what Redis said of it was void since. */
static bool was_reset(struct limit_place *place)
{
    const struct limit_remote *remote = place->bucket->remote;
    bool is_void = remote != NULL && remote->resets != place->resets && place->rule->action == LIMIT_DELAY &&
                   place->call == NULL && remote->resetting == 0;

    if (is_void) {
        place->resets = remote->resets;
        place->state = LIMIT_PLACE_EMPTY;
    }
    return is_void;
}

/* Reckons anew when the turns in its bucket come, from the last one on: none gets later. */
static bool has_moved_up(struct limit_place *place, int64_t now_us)
{
    struct limit_bucket *bucket = place->bucket;
    int64_t ahead = bucket->queued;

    for (struct limit_place *at = LIST_FIRST(&bucket->queue); bucket->was_left && at != NULL;
         at = LIST_NEXT(at, of_bucket)) {
        ahead -= at->cost;
        int64_t turn_us =
            now_us + limit_meter_wait_behind(&place->rule->meter, &bucket->state, now_us, ahead, at->cost);
        at->moved = at->moved || turn_us < at->turn_us;
        at->turn_us = turn_us < at->turn_us ? turn_us : at->turn_us;
    }
    bucket->was_left = false;
    return place->moved;
}

void limit_move_up(struct limit *limit, int64_t now_us)
{
    for (struct limit_held *held = TAILQ_FIRST(&limit->held); held != NULL; held = TAILQ_NEXT(held, of_limit)) {
        for (size_t i = 0; i < held->count; i++) {
            limit_locks locks = limit_bucket_locks(held->places[i].bucket);
            limit_share_lock(limit->share, locks);
            bool moved = has_moved_up(&held->places[i], now_us) || was_reset(&held->places[i]);
            limit_share_unlock(limit->share, locks);
            if (moved) {
                limit->host->resume(limit->host->context, held->holder);
            }
        }
    }
}
