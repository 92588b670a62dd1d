/*
 * Whether Redis wants a password of those who come, where Headgate gives none for them. The first lane of a profile
 * finds out. That changes with commands of clients, which are told of here, or behind Headgate's back: a look finds out
 * by a connection of its own, since those that are there stay authenticated and would not notice.
 */
#include "upstream/upstream_private.h"

#include "base/log.h"

#include <stdio.h>

static const struct lane_events look_events;

/* ---- what is known ---- */

static void renew_default(struct upstream *upstream)
{
    for (struct profile *profile = LIST_FIRST(&upstream->profiles); profile != NULL;
         profile = LIST_NEXT(profile, of_upstream)) {
        profile->granted = 0;
        profile->denied = 0;
    }
    upstream_forget_refusals(upstream);
    if (upstream->base->password == NULL) {
        upstream->generation++;
        (void)upstream_make_base(upstream);
    }
}

static void want_password(struct upstream *upstream)
{
    if (upstream->base->needs_password) {
        return;
    }
    stats_add(upstream->settings.lane.stats, STATS_ACCESS_CHANGES, 1);
    log_info("upstream", "Redis at %s wants a password now; those who come share no lane until they authenticate",
             upstream->settings.lane.target_text);
    renew_default(upstream);
    upstream->base->needs_password = true;
}

static void want_none(struct upstream *upstream)
{
    bool wanted = false;

    for (struct profile *profile = LIST_FIRST(&upstream->profiles); profile != NULL;
         profile = LIST_NEXT(profile, of_upstream)) {
        wanted = wanted || profile->needs_password;
        profile->needs_password = false;
        if (profile->password == NULL) {
            upstream_credentials_accepted(profile);
        }
    }
    if (wanted) {
        stats_add(upstream->settings.lane.stats, STATS_ACCESS_CHANGES, 1);
        log_info("upstream", "Redis at %s wants no password any more; clients share lanes",
                 upstream->settings.lane.target_text);
    }
}

void upstream_set_access(struct upstream *upstream, enum upstream_access access)
{
    if (access != UPSTREAM_ACCESS_CHANGED) {
        upstream_is_up(upstream);
    }
    if (access == UPSTREAM_ACCESS_CHANGED) {
        renew_default(upstream);
    } else if (upstream->base->password != NULL) {
        return;
    } else if (access == UPSTREAM_ACCESS_CLOSED) {
        want_password(upstream);
    } else {
        want_none(upstream);
    }
}

void upstream_tell_access(struct upstream *upstream, upstream_access_callback *access, void *context)
{
    upstream->access = access;
    upstream->access_context = context;
}

static void tell(struct upstream *upstream, enum upstream_access access)
{
    upstream_set_access(upstream, access);
    if (upstream->access != NULL) {
        upstream->access(upstream->access_context, access);
    }
}

void upstream_access_changed(struct upstream *upstream)
{
    tell(upstream, UPSTREAM_ACCESS_CHANGED);
}

/* All profiles of the same credentials share their fate. */
static void mark_locked(const struct profile *locked)
{
    struct profile *profile;

    LIST_FOREACH(profile, &locked->upstream->profiles, of_upstream)
    {
        profile->needs_password = profile->needs_password || profile_same_credentials(profile, locked);
    }
}

/* Who was there before stays, as at Redis, on the connections that there are. If there are none, each client talks to
 * Redis on a lane of its own until it authenticates. */
bool upstream_lane_needs_password(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    struct upstream *upstream = profile->upstream;

    upstream_is_up(upstream);
    if (!profile->needs_password && !upstream->settings.is_session && upstream_has_connection(upstream, profile)) {
        if (profile_same_credentials(profile, upstream->base)) {
            tell(upstream, UPSTREAM_ACCESS_CLOSED);
        }
        /* Its profile may have gone with that, and the lane. */
        if (lane->state != LANE_CLOSED) {
            snprintf(lane->why, sizeof lane->why, "-NOAUTH Authentication required.");
            (void)upstream_lane_refused(lane);
        }
        return false;
    }
    if (!profile->needs_password) {
        log_info("upstream", "Redis at %s wants a password; clients share no lane until they authenticate",
                 upstream->settings.lane.target_text);
    }
    mark_locked(profile);
    if (lane->owner != NULL && lane->link.greeting.has_tail) {
        return true;
    }
    lane_end(lane, "-NOAUTH Authentication required.");
    return false;
}

/* ---- the look ---- */

/*
 * Redis answers NOAUTH where it wants a password; any other answer, an error or not, says that it does not. HELLO is
 * what any user may use. Who is not let in at all (maxclients, protected mode) has learned nothing, which is a failure
 * of the lane.
 */
static struct lane_greeting look_greeting(const struct lane *lane, struct slice *text)
{
    (void)lane;
    *text = slice_of("*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n");
    return (struct lane_greeting){.replies = 1, .has_tail = true};
}

static void begin_look(struct upstream *upstream)
{
    upstream->look_wanted = false;
    upstream->looked_us = reactor_now(upstream->reactor);
    /* What the lane goes by has to stay as it is while it is there. */
    upstream->look_lane = upstream->settings.lane;
    upstream->look_lane.stats = &upstream->look_stats;
    upstream->look_lane.wants_master = false;
    upstream->look =
        lane_new(upstream->reactor, upstream->runs, &upstream->look_lane, &look_events, LANE_EXCLUSIVE, upstream, 0);
    if (upstream->look != NULL) {
        stats_add(upstream->settings.lane.stats, STATS_ACCESS_LOOKS, 1);
        lane_start(upstream->look);
    }
}

void upstream_look_if_due(struct upstream *upstream)
{
    int64_t interval = clock_ms_to_us(upstream->settings.access_check);
    bool is_due = interval > 0 && reactor_now(upstream->reactor) - upstream->looked_us >= interval;

    if (upstream->look != NULL) {
        lane_tick(upstream->look, 0);
    }
    if ((is_due || upstream->look_wanted) && upstream->look == NULL && upstream->base->password == NULL) {
        begin_look(upstream);
    }
}

void upstream_look_soon(struct upstream *upstream)
{
    upstream->look_wanted = true;
}

void upstream_end_look(struct upstream *upstream)
{
    if (upstream->look != NULL) {
        lane_close(upstream->look, "it was looked");
    }
}

/* Whether what was found out while something else may have come to hold is worth telling. */
static void found(struct lane *lane, enum upstream_access access)
{
    struct upstream *upstream = lane->context;

    if (!upstream->look_wanted) {
        tell(upstream, access);
    }
    lane_close(lane, "it was looked");
}

static void look_ready(struct lane *lane)
{
    found(lane, UPSTREAM_ACCESS_OPEN);
}

static bool look_needs_password(struct lane *lane)
{
    found(lane, UPSTREAM_ACCESS_CLOSED);
    return false;
}

static void look_failed(struct lane *lane, const char *why)
{
    upstream_is_down(lane->context);
    lane_close(lane, why);
}

static void look_broken(struct lane *lane, const char *why, uint64_t requests)
{
    (void)lane;
    (void)why;
    (void)requests;
}

static void look_closed(struct lane *lane, const char *why)
{
    struct upstream *upstream = lane->context;

    (void)why;
    upstream->look = NULL;
    upstream_free_at_turn_end(upstream, lane);
}

static const struct lane_events look_events = {
    .greeting = look_greeting,
    .ready = look_ready,
    .failed = look_failed,
    .broken = look_broken,
    .needs_password = look_needs_password,
    .closed = look_closed,
};
