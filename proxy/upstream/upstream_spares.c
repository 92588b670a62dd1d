/*
 * A spare is an unused exclusive lane, opened ahead: whoever needs one finds it, and the next is opened. So a SUBSCRIBE
 * reaches Redis before what others send behind it.
 */
#include "upstream/upstream_private.h"

static bool has_clients(const struct profile *profile)
{
    return profile->clients > 0 || profile == profile->upstream->base;
}

/* With more profiles than this a spare for each would be connections of which few are ever used. */
#define PROFILES_WITH_SPARES 8

/* Lanes that whoever takes one for the profile finds, or will find soon. */
static size_t count_ready(const struct profile *profile)
{
    size_t count = 0;

    for (const struct profile *other = LIST_FIRST(&profile->upstream->profiles); other != NULL;
         other = LIST_NEXT(other, of_upstream)) {
        if (profile_fits_pool(other, profile)) {
            count += other->pooled_count + other->spares_under_way;
        }
    }
    return count;
}

/* How many lanes are to be ready for the profile. */
static size_t spares_of(const struct profile *profile)
{
    const struct upstream *upstream = profile->upstream;
    const struct upstream_settings *settings = &upstream->settings;
    size_t most = (size_t)settings->exclusive_idle;

    if (!settings->serves_clients || !has_clients(profile) || upstream->sharing > PROFILES_WITH_SPARES) {
        return 0;
    }
    return settings->spares < most ? settings->spares : most;
}

void upstream_open_spares(struct profile *profile)
{
    bool is_able = !profile->needs_password && !profile->refused && profile->may_share;
    size_t ready = count_ready(profile);
    size_t wanted = is_able ? spares_of(profile) : 0;

    /* Counted ahead: one that cannot be made is closed at once, and is tried again when the next one is taken. */
    for (size_t opened = ready; opened < wanted; opened++) {
        struct lane *lane = upstream_open_lane(profile, LANE_EXCLUSIVE);
        if (lane == NULL) {
            return;
        }
        lane->spare = true;
        profile->spares_under_way++;
        upstream_start_lane(lane);
    }
}

void upstream_spare_is_ready(struct lane *lane)
{
    upstream_spare_ended(lane);
    if (has_clients(lane_profile(lane))) {
        upstream_pool(lane);
    } else {
        lane_close(lane, "its last client has left");
    }
}

void upstream_spare_ended(struct lane *lane)
{
    lane->spare = false;
    lane_profile(lane)->spares_under_way--;
}

/*
 * The last unused lanes of a profile with clients are their spares. If these have authenticated, or came before Redis
 * wanted a password, the connections are what they have when others are refused, so one stays in any case, and the
 * first shared lane does.
 */
bool upstream_is_kept(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);
    const struct upstream *upstream = profile->upstream;
    bool is_scarce = profile->password != NULL || profile->generation != upstream->base->generation;

    if (!upstream->settings.serves_clients || !has_clients(profile)) {
        return false;
    }
    if (lane->use == LANE_SHARED) {
        const struct lane *first = upstream_first_lane(profile);
        return (profile == upstream->base || is_scarce) &&
               (first == lane || first == NULL || first->state != LANE_READY);
    }
    bool is_needed = is_scarce && (!upstream_has_ready_lane(profile) || upstream->sharing <= PROFILES_WITH_SPARES);
    return count_ready(profile) <= spares_of(profile) || (is_needed && profile->pooled_count == 1);
}

struct lane *upstream_longest_idle(const struct upstream *upstream)
{
    struct lane *lane, *oldest = NULL;

    LIST_FOREACH(lane, &upstream->lanes, of_upstream)
    {
        bool is_older = lane->use == LANE_POOLED && lane->state != LANE_CLOSED && lane->first == NULL &&
                        (oldest == NULL || lane->used_us < oldest->used_us);
        if (is_older && !upstream_is_kept(lane)) {
            oldest = lane;
        }
    }
    return oldest;
}
