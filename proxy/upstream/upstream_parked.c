/*
 * Lanes that cannot be made, as Redis refuses what their clients have authenticated with: they are parked until a
 * connection that was made before is free, which they take over.
 */
#include "upstream/upstream_private.h"

#include "base/log.h"

/* Whether nobody needs it at the moment. One with a name is told ahead to have none. */
static bool is_idle(struct lane *lane)
{
    bool is_free = lane->first == NULL && lane->state == LANE_READY && resp_reply_idle(&lane->reply) && !lane->dirty;
    bool is_nameless = !lane->named;

    if (is_free && !is_nameless) {
        upstream_forget_name(lane);
    }
    return is_free && is_nameless;
}

/* A connection in the pool of that profile that nobody needs. */
static struct lane *find_pooled(const struct profile *profile)
{
    struct lane *lane = LIST_FIRST(&profile->pooled);

    while (lane != NULL && !is_idle(lane)) {
        lane = LIST_NEXT(lane, of_pool);
    }
    return lane;
}

/* The same, or for a client's own that of a shared lane: the next one at its place waits until it comes back. */
static struct lane *find_idle(const struct lane *parked)
{
    const struct profile *profile = lane_profile(parked);
    struct lane *found = find_pooled(profile);

    for (size_t i = 0; parked->use == LANE_EXCLUSIVE && found == NULL && i < profile->upstream->settings.shared_lanes;
         i++) {
        found = profile->shared[i] != NULL && is_idle(profile->shared[i]) ? profile->shared[i] : NULL;
    }
    return found;
}

/* The one that has waited longest, of those that can be helped. */
static struct lane *find_parked(const struct upstream *upstream)
{
    struct lane *found = NULL;

    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        bool can_be_helped = lane->parked && lane->state == LANE_BACKOFF && find_idle(lane) != NULL;
        if (can_be_helped && (found == NULL || lane->id < found->id)) {
            found = lane;
        }
    }
    return found;
}

/* A connection that only lacks the profile's RESP version. */
static struct lane *find_idle_elsewhere(const struct profile *profile)
{
    struct lane *lane = NULL;

    for (struct profile *other = LIST_FIRST(&profile->upstream->profiles); other != NULL && lane == NULL;
         other = LIST_NEXT(other, of_upstream)) {
        lane = other != profile && profile_fits_pool(other, profile) ? find_pooled(other) : NULL;
    }
    return lane;
}

/* Parked lanes that find nothing in their own pool get something there, for the next time. */
static void fetch_for_parked(struct upstream *upstream)
{
    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        struct profile *profile = lane_profile(lane);
        bool lacks = lane->parked && lane->state == LANE_BACKOFF && LIST_EMPTY(&profile->pooled);
        struct lane *found = lacks ? find_idle_elsewhere(profile) : NULL;
        if (found != NULL) {
            upstream_move_pooled(found, profile);
        }
    }
}

static void help_parked(struct upstream *upstream)
{
    struct lane *lane = find_parked(upstream);

    while (lane != NULL) {
        lane_take_over(lane, find_idle(lane));
        lane = find_parked(upstream);
    }
    fetch_for_parked(upstream);
}

void upstream_help_task(struct reactor_task *task)
{
    help_parked((struct upstream *)(void *)((char *)task - offsetof(struct upstream, help)));
}

/* Those who share a lane that cannot be made are without a connection. */
static void give_up_shared(struct lane *lane)
{
    struct profile *profile = profile_reference(lane_profile(lane));
    struct upstream *upstream = profile->upstream;

    if (upstream->refused != NULL) {
        upstream->refused(upstream->refused_context, lane);
    }
    lane_close(lane, lane->why);
    profile_release(profile);
}

void upstream_tend_parked(struct upstream *upstream)
{
    struct lane *lane;

    help_parked(upstream);
    LIST_FOREACH(lane, &upstream->lanes, of_upstream)
    {
        bool is_in_vain =
            lane->parked && lane->state == LANE_BACKOFF && !upstream_has_connection(upstream, lane_profile(lane));
        if (is_in_vain && lane->use == LANE_SHARED) {
            give_up_shared(lane);
        }
    }
}

void upstream_tell_refusals(struct upstream *upstream, upstream_refused_callback *refused, void *context)
{
    upstream->refused = refused;
    upstream->refused_context = context;
}

/* Redis is there, and serves the others: it is no outage. The lane goes on trying; a spare is tried again with the next
 * one. Always true. */
static bool identity_refused(struct lane *lane, bool is_news)
{
    const struct profile *profile = lane_profile(lane);

    if (is_news) {
        log_error("upstream", "Redis at %s does not take the password of identity %s, user %s: %s; trying again",
                  profile->upstream->settings.lane.target_text, upstream_identity_of(profile), profile_user(profile),
                  lane->why);
    }
    if (upstream_is_for_nobody(lane)) {
        lane_close(lane, lane->why);
    }
    return true;
}

bool upstream_lane_refused(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    bool is_news = upstream_mark_refused(profile, true);

    if (upstream_is_operators(profile)) {
        /* A client may be about to authenticate for itself. */
        if (lane->awaits_quiet) {
            lane_wake_waiters(lane);
        }
        return !upstream_is_default(profile) && identity_refused(lane, is_news);
    }
    if (is_news) {
        log_warning("upstream", "Redis at %s does not take %s of user %s any more; clients share what they have",
                    profile->upstream->settings.lane.target_text,
                    profile->password != NULL ? "the password" : "connections without a password",
                    profile_user(profile));
    }
    if (upstream_is_for_nobody(lane)) {
        lane_close(lane, lane->why);
        return true;
    }
    lane_park(lane);
    upstream_help_soon(profile->upstream);
    if (lane->awaits_quiet) {
        lane_wake_waiters(lane);
    }
    return true;
}
