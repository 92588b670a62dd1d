/* The pool: exclusive lanes that are clean, and without an owner. */
#include "upstream/upstream_private.h"

#include <stdio.h>

void upstream_forget_name(struct lane *lane)
{
    lane->named = !upstream_name_lane(lane, "");
}

bool upstream_may_be_pooled(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    return lane->use == LANE_EXCLUSIVE && !lane->dirty && !lane->link.outdated && lane->link.retired_us == 0 &&
           upstream_is_let_in(lane) && !profile->needs_password && profile->upstream->settings.exclusive_idle > 0;
}

void upstream_pool(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    struct upstream *upstream = profile->upstream;

    if (!upstream_may_be_pooled(lane)) {
        lane_close(lane, "not needed any more");
        return;
    }
    lane->use = LANE_POOLED;
    lane->used_us = reactor_now(lane->reactor);
    LIST_INSERT_HEAD(&profile->pooled, lane, of_pool);
    profile->pooled_count++;
    upstream->pooled_count++;
    stats_add(lane->settings->stats, STATS_LANES_POOLED, 1);
    if (profile->refused) {
        upstream_help_soon(upstream);
    }
}

void upstream_forget_pooled(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);

    LIST_REMOVE(lane, of_pool);
    profile->pooled_count--;
    profile->upstream->pooled_count--;
    stats_subtract(lane->settings->stats, STATS_LANES_POOLED, 1);
}

/*
 * Makes a lane of the same credentials and database speak for the profile: HELLO goes ahead of the owner's commands.
 * The database is never changed like that: were SELECT refused, the commands behind it would be executed in another
 * one.
 */
static bool adapt(struct lane *lane, struct profile *profile)
{
    char command[48];
    int length = snprintf(command, sizeof command, "*2\r\n$5\r\nHELLO\r\n$1\r\n%d\r\n", profile->resp);

    if (!upstream_send_hidden(lane, command, (size_t)length, true)) {
        return false;
    }
    upstream_lane_speaks_for(lane, profile);
    return true;
}

bool profile_fits_pool(const struct profile *other, const struct profile *profile)
{
    return other->generation == profile->generation && other->database == profile->database &&
           profile_same_credentials(other, profile);
}

void upstream_move_pooled(struct lane *lane, struct profile *profile)
{
    upstream_forget_pooled(lane);
    lane->use = LANE_EXCLUSIVE;
    if (adapt(lane, profile)) {
        upstream_pool(lane);
    } else {
        lane_close(lane, "out of memory");
    }
}

static struct lane *find_pooled(struct profile *profile)
{
    struct profile *other = LIST_FIRST(&profile->upstream->profiles);

    if (!LIST_EMPTY(&profile->pooled)) {
        return LIST_FIRST(&profile->pooled);
    }
    while (other != NULL && !(!LIST_EMPTY(&other->pooled) && profile_fits_pool(other, profile))) {
        other = LIST_NEXT(other, of_upstream);
    }
    return other != NULL ? LIST_FIRST(&other->pooled) : NULL;
}

struct lane *upstream_take_pooled(struct profile *profile)
{
    struct lane *lane = find_pooled(profile);

    if (lane == NULL) {
        return NULL;
    }
    upstream_forget_pooled(lane);
    lane->use = LANE_EXCLUSIVE;
    if (lane_profile(lane) != profile && !adapt(lane, profile)) {
        lane_close(lane, "out of memory");
        return NULL;
    }
    return lane;
}
