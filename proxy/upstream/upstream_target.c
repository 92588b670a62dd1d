/*
 * Where Redis is. That may change: its name gets other addresses, and lanes to those that it has left are retired.
 *
 *   shared     new requests take a new lane at once; the old one is closed when all on it are answered
 *   pooled     closed at once
 *   exclusive  goes on for its client until it is clean, at most for retire_timeout: then the client is closed, as it
 *              would be if that Redis had gone. A subscriber, say, would hear nothing any more, and not know
 */
#include "upstream/upstream_private.h"

/* Who opens lanes all the time does not ask all the time. */
#define ASK_PAUSE_US ((int64_t)500000)

static const char why_retired[] = "the name of Redis has other addresses now";

/* ---- which of the addresses ---- */

void upstream_prefer_target(struct upstream *upstream, const struct connection_target *target)
{
    struct connection_targets *targets = &upstream->targets;
    size_t place = connection_targets_find(targets, target);

    if (place == 0 || place == targets->count) {
        return;
    }
    const struct connection_target preferred = *target;
    for (; place > 0; place--) {
        targets->items[place] = targets->items[place - 1];
    }
    targets->items[0] = preferred;
}

/* ---- lanes that are retired ---- */

bool upstream_has_place(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (profile->shared[i] == lane) {
            return true;
        }
    }
    return false;
}

/* The lane may be closed by it. */
static void retire(struct upstream *upstream, struct lane *lane)
{
    lane->retired_us = reactor_now(upstream->reactor);
    stats_add(upstream->settings.lane.stats, STATS_LANES_RETIRED, 1);
    if (lane->use == LANE_SHARED) {
        upstream_forget_place(lane);
    }
    upstream_check_retired(lane);
}

void upstream_check_retired(struct lane *lane)
{
    const struct upstream *upstream = lane_profile(lane)->upstream;
    int64_t timeout = clock_ms_to_us(upstream->settings.retire_timeout);

    if (lane->retired_us == 0) {
        return;
    }
    if (lane->use == LANE_POOLED || (lane->use == LANE_SHARED && lane->first == NULL && !upstream_has_place(lane))) {
        lane_close(lane, why_retired);
    } else if (lane->use == LANE_EXCLUSIVE && timeout > 0 &&
               reactor_now(upstream->reactor) - lane->retired_us >= timeout) {
        lane_fail(lane, why_retired);
    }
}

static void follow(struct upstream *upstream, struct lane *lane)
{
    bool is_there = connection_targets_find(&upstream->targets, &lane->target) < upstream->targets.count;

    if (lane->state != LANE_READY) {
        lane_follow_targets(lane);
    } else if (!is_there && lane->retired_us == 0) {
        retire(upstream, lane);
    } else if (is_there && lane->use == LANE_EXCLUSIVE) {
        lane->retired_us = 0;
    }
}

void upstream_set_targets(struct upstream *upstream, const struct connection_targets *targets)
{
    const struct connection_target before = upstream->targets.items[0];
    struct lane *lane = LIST_FIRST(&upstream->lanes);

    upstream->targets = *targets;
    upstream_prefer_target(upstream, &before);
    while (lane != NULL) {
        /* Lanes that are closed meanwhile keep their place in this walk: they are freed at the end of the loop
         * iteration. */
        struct lane *next = LIST_NEXT(lane, of_upstream);
        if (lane->state != LANE_CLOSED) {
            follow(upstream, lane);
        }
        lane = next;
    }
}

/* ---- who looks the name up ---- */

void upstream_tell_connecting(struct upstream *upstream, upstream_connecting_callback *connecting, void *context)
{
    upstream->connecting = connecting;
    upstream->connecting_context = context;
}

void upstream_note_connecting(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);

    if (upstream->connecting != NULL && now - upstream->asked_us >= ASK_PAUSE_US) {
        upstream->asked_us = now;
        upstream->connecting(upstream->connecting_context);
    }
}
