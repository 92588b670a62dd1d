/* Lanes as they are opened, found at their places, and freed; what is known by them of Redis. */
#include "base/places.h"
#include "upstream/upstream_private.h"

#include <assert.h>

/* Who opens lanes all the time does not ask all the time. */
#define ASK_PAUSE_US ((int64_t)500000)

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

/* ---- lanes ---- */

struct lane *upstream_open_lane(struct profile *profile, enum lane_use use)
{
    struct upstream *upstream = profile->upstream;
    struct lane *lane = lane_new(upstream->reactor, upstream->runs, &upstream->settings.lane, upstream->lane_events,
                                 use, profile, ++upstream->last_lane_id);

    if (lane == NULL) {
        return NULL;
    }
    profile_reference(profile);
    LIST_INSERT_HEAD(&upstream->lanes, lane, of_upstream);
    return lane;
}

void upstream_help_soon(struct upstream *upstream)
{
    reactor_at_turn_end(upstream->reactor, REACTOR_STAGE_FREE, &upstream->help);
}

void upstream_start_lane(struct lane *lane)
{
    if (upstream_is_refused(lane_profile(lane))) {
        lane_park(lane);
        upstream_help_soon(lane_profile(lane)->upstream);
    } else {
        upstream_note_connecting(lane_profile(lane)->upstream);
        lane_start(lane);
    }
}

void upstream_carry_exclusive(struct lane *lane, struct profile *profile)
{
    struct profile *before = lane_profile(lane);

    assert(lane->use == LANE_EXCLUSIVE && !lane->bare);
    lane_carry(lane, &profile->upstream->settings.lane);
    lane->context = profile_reference(profile);
    LIST_REMOVE(lane, of_upstream);
    LIST_INSERT_HEAD(&profile->upstream->lanes, lane, of_upstream);
    profile_release(before);
    upstream_start_lane(lane);
}

void upstream_lane_speaks_for(struct lane *lane, struct profile *profile)
{
    struct profile *before = lane_profile(lane);

    if (lane->state != LANE_READY) {
        /* It may have said half of what it was to say before: the verdict on that would be taken for one on this. */
        upstream_carry_exclusive(lane, profile);
        return;
    }
    lane->context = profile_reference(profile);
    lane->link.resp3 = profile->resp == 3;
    profile_release(before);
}

void upstream_free_closed(struct reactor_task *task)
{
    struct upstream *upstream = (struct upstream *)(void *)((char *)task - offsetof(struct upstream, free_closed));

    while (!LIST_EMPTY(&upstream->closed)) {
        struct lane *lane = LIST_FIRST(&upstream->closed);
        LIST_REMOVE(lane, of_pool);
        lane_free(lane);
    }
    upstream_free_released(upstream);
}

void upstream_free_at_turn_end(struct upstream *upstream, struct lane *lane)
{
    LIST_INSERT_HEAD(&upstream->closed, lane, of_pool);
    reactor_at_turn_end(upstream->reactor, REACTOR_STAGE_FREE, &upstream->free_closed);
}

struct lane *upstream_find_starting(const struct upstream *upstream, int64_t since_us)
{
    struct lane *lane = LIST_FIRST(&upstream->lanes);

    while (lane != NULL && !((lane->state == LANE_CONNECTING || lane->state == LANE_HANDSHAKE) && lane->first != NULL &&
                             lane->first->queued_us <= since_us)) {
        lane = LIST_NEXT(lane, of_upstream);
    }
    return lane;
}

/* ---- the places of shared lanes ---- */

#define EXTRA_PAUSE_US 1000000 /* between two that are opened by need: Redis may take no more */

struct lane *upstream_first_lane(const struct profile *profile)
{
    return profile->shared[0];
}

struct lane *upstream_find_shared(const struct profile *profile, uint64_t id)
{
    size_t i = 0, count = profile->upstream->settings.shared_lanes;

    while (i < count && (profile->shared[i] == NULL || profile->shared[i]->id != id)) {
        i++;
    }
    return i < count ? profile->shared[i] : NULL;
}

bool upstream_is_extra(const struct lane *lane)
{
    return lane->use == LANE_SHARED && lane != upstream_first_lane(lane_profile(lane));
}

bool upstream_is_for_nobody(const struct lane *lane)
{
    return lane->spare || (upstream_is_extra(lane) && lane->first == NULL);
}

static struct lane *open_shared(struct profile *profile, size_t place)
{
    profile->shared[place] = upstream_open_lane(profile, LANE_SHARED);
    if (profile->shared[place] != NULL) {
        upstream_start_lane(profile->shared[place]);
    }
    return profile->shared[place];
}

struct lane *upstream_shared_lane(struct profile *profile)
{
    return profile->shared[0] != NULL ? profile->shared[0] : open_shared(profile, 0);
}

/* Of its first run, which may have been made longer for hours, nobody knows how much is answered. */
static bool is_full(const struct lane *lane)
{
    const struct run *second = lane->first != NULL ? lane->first->lane_next : NULL;

    return second != NULL && lane->appended - second->first_byte >= LANE_FULL;
}

struct lane *upstream_lane_with_room(struct profile *profile)
{
    size_t count = profile->upstream->settings.shared_lanes, missing = 0;
    struct lane *first = upstream_shared_lane(profile), *ready = NULL;

    for (size_t i = 0; i < count; i++) {
        struct lane *lane = profile->shared[i];
        if (lane != NULL && lane->state == LANE_READY && !is_full(lane)) {
            return lane;
        }
        ready = ready == NULL && lane != NULL && lane->state == LANE_READY ? lane : ready;
        missing = missing == 0 && lane == NULL ? i : missing;
    }
    bool may_open = ready != NULL && missing > 0 && !upstream_is_refused(profile) && !places_are_short();
    if (may_open && reactor_now(profile->upstream->reactor) - profile->extra_us >= EXTRA_PAUSE_US) {
        profile->extra_us = reactor_now(profile->upstream->reactor);
        (void)open_shared(profile, missing);
    }
    return ready != NULL ? ready : first;
}

void upstream_warm_up(struct upstream *upstream)
{
    (void)upstream_shared_lane(upstream->base);
}

bool upstream_may_share(const struct profile *profile)
{
    /* What it gives to the pool comes back to the shared lane that it takes then. */
    bool comes_back = profile->upstream->settings.exclusive_idle > 0;

    return !upstream_is_refused(profile) || comes_back || upstream_has_ready_lane(profile);
}

void upstream_forget_place(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    struct lane **shared = profile->shared;

    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (shared[i] == lane) {
            shared[i] = NULL;
        } else if (shared[0] == NULL && shared[i] != NULL && shared[i]->state == LANE_READY) {
            shared[0] = shared[i];
            shared[i] = NULL;
        }
    }
    if (profile->upstream->settings.changes != NULL) {
        ++*profile->upstream->settings.changes;
    }
}

/* ---- whether Redis is there ---- */

bool upstream_has_ready_lane(const struct profile *profile)
{
    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (profile->shared[i] != NULL && profile->shared[i]->state == LANE_READY) {
            return true;
        }
    }
    return false;
}

bool upstream_has_connection(const struct upstream *upstream, const struct profile *credentials)
{
    const struct lane *lane = LIST_FIRST(&upstream->lanes);

    while (lane != NULL && !(upstream_is_let_in(lane) && profile_same_credentials(lane_profile(lane), credentials))) {
        lane = LIST_NEXT(lane, of_upstream);
    }
    return lane != NULL;
}

void upstream_is_up(struct upstream *upstream)
{
    if (!upstream->settings.is_aside) {
        stats_set(upstream->settings.lane.stats, STATS_UPSTREAM_UP, 1);
    }
}

/* That one more could not be made, or one of a client's own credentials, says nothing while requests are carried. */
void upstream_is_down(struct upstream *upstream)
{
    if (!upstream->settings.is_aside && !upstream_has_ready_lane(upstream->base)) {
        stats_set(upstream->settings.lane.stats, STATS_UPSTREAM_UP, 0);
    }
}
