/*
 * Where Redis is. That may change: its name gets other addresses, and lanes to those that it has left are retired.
 *
 *   shared     new requests take a new lane at once; the old one is closed when all on it are answered
 *   pooled     closed at once
 *   exclusive  goes on for its client until it is clean, at most for retire_timeout: then the client is closed, as it
 *              would be if that Redis had gone. A subscriber, say, would hear nothing any more, and not know
 *
 * Where another server has taken over, all of this happens at once (upstream_move()), as nobody may read what is stale
 * or write what will be dropped: lanes that owe answers have a moment for them, and are broken then.
 */
#include "upstream/upstream_private.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* How long what was sent to a server that is left may be answered. One that was told to step down answers at once. */
#define LEAVE_PATIENCE_US ((int64_t)50000)
/* How often it is looked meanwhile who owes nothing any more: who asks without a pause does so for a moment only. */
#define LEAVE_STEP_US ((int64_t)5000)
/* READONLY errors come as often as clients write. */
#define READONLY_PAUSE_US ((int64_t)50000)

static const char why_retired[] = "the name of Redis has other addresses now";
static const char why_left[] = "another server is the master now";

/* ---- which of the addresses ---- */

static bool is_target(const struct upstream *upstream, const struct connection_target *target)
{
    return connection_targets_find(&upstream->targets, target) < upstream->targets.count;
}

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

/* Lanes that are closed meanwhile keep their place in such a walk: they are freed at the end of the loop iteration. */
static void visit_all(struct upstream *upstream, void (*visit)(struct upstream *upstream, struct lane *lane))
{
    struct lane *lane;

    LIST_FOREACH(lane, &upstream->lanes, of_upstream)
    {
        if (lane->state != LANE_CLOSED) {
            visit(upstream, lane);
        }
    }
}

/* The lane may be closed by it. */
static void retire(struct upstream *upstream, struct lane *lane)
{
    lane->link.retired_us = reactor_now(upstream->reactor);
    stats_add(upstream->settings.lane.stats, STATS_LANES_RETIRED, 1);
    if (lane->use == LANE_SHARED) {
        upstream_forget_place(lane);
    }
    upstream_check_unwanted(lane);
}

/* A shared lane without a place may have broken, and have another connection by now: it was there for what waited. */
void upstream_check_unwanted(struct lane *lane)
{
    const struct upstream *upstream = lane_profile(lane)->upstream;
    int64_t timeout = clock_ms_to_us(upstream->settings.retire_timeout);
    const struct lane_link *link = &lane->link;
    bool is_retired = link->retired_us != 0;

    if (lane->use == LANE_SHARED ? lane->first == NULL && upstream_find_shared(lane_profile(lane), lane->id) == NULL
                                 : lane->use == LANE_POOLED && (is_retired || link->outdated)) {
        lane_close(lane, link->outdated ? "the password was changed" : is_retired ? why_retired : "it has no place");
    } else if (lane->use == LANE_EXCLUSIVE && is_retired && timeout > 0 &&
               reactor_now(upstream->reactor) - link->retired_us >= timeout) {
        lane_fail(lane, why_retired);
    }
}

static void follow(struct upstream *upstream, struct lane *lane)
{
    bool is_there = is_target(upstream, &lane->link.target);

    if (lane->state != LANE_READY) {
        lane_follow_targets(lane);
    } else if (!is_there && lane->link.retired_us == 0) {
        retire(upstream, lane);
    } else if (is_there && lane->use == LANE_EXCLUSIVE) {
        lane->link.retired_us = 0;
    }
}

void upstream_set_targets(struct upstream *upstream, const struct connection_targets *targets)
{
    const struct connection_target before = upstream->targets.items[0];

    upstream->targets = *targets;
    upstream_prefer_target(upstream, &before);
    visit_all(upstream, follow);
}

/* ---- a server that is left at once ---- */

/* Its owner may go on without it, or is told that it broke. */
static void leave_exclusive(struct lane *lane)
{
    bool is_free = lane->owner != NULL && lane->owner_events->leave != NULL && lane->owner_events->leave(lane->owner);

    if (!is_free) {
        lane_profile(lane)->upstream->left_clients += lane->owner != NULL;
        lane_fail(lane, why_left);
    }
}

/* Nothing is under way on it, or for too long. What was not sent goes on to the new server, on the same lane. */
static void leave_now(struct lane *lane)
{
    if (lane->use == LANE_EXCLUSIVE) {
        leave_exclusive(lane);
    } else if (lane->use == LANE_SHARED && lane->first != NULL) {
        lane_fail(lane, why_left);
        lane_follow_targets(lane);
    } else {
        lane_close(lane, why_left);
    }
}

static void begin_to_leave(struct upstream *upstream, struct lane *lane)
{
    lane->link.is_left = true;
    upstream->left_lanes++;
    lane->link.retired_us = reactor_now(upstream->reactor);
    stats_add(upstream->settings.lane.stats, STATS_LANES_RETIRED, 1);
    if (lane->use == LANE_SHARED) {
        upstream_forget_place(lane);
    }
    if (lane->first == NULL) {
        leave_now(lane);
    }
}

static void leave_or_follow(struct upstream *upstream, struct lane *lane)
{
    if (lane->state != LANE_READY) {
        lane_follow_targets(lane);
    } else if (!is_target(upstream, &lane->link.target) && !lane->link.is_left) {
        begin_to_leave(upstream, lane);
    }
}

static void end_leaving(struct upstream *upstream, struct lane *lane)
{
    bool is_over = reactor_now(upstream->reactor) - lane->link.retired_us >= LEAVE_PATIENCE_US;

    if (lane->link.is_left && lane->state == LANE_READY && (lane->first == NULL || is_over)) {
        leave_now(lane);
    }
}

static void look_again_soon(struct upstream *upstream)
{
    const struct timeval step = {.tv_sec = 0, .tv_usec = LEAVE_STEP_US};

    event_add(&upstream->leave_timer, &step);
}

static bool is_leaving(const struct upstream *upstream)
{
    const struct lane *lane = LIST_FIRST(&upstream->lanes);

    while (lane != NULL && !(lane->link.is_left && lane->state == LANE_READY)) {
        lane = LIST_NEXT(lane, of_upstream);
    }
    return lane != NULL;
}

static void say_left(struct upstream *upstream)
{
    if (upstream->left_lanes > 0) {
        log_info("upstream",
                 "%llu connections to the server of before were given up, with %llu requests under way; %llu clients "
                 "that had one of their own were closed",
                 (unsigned long long)upstream->left_lanes, (unsigned long long)upstream->left_requests,
                 (unsigned long long)upstream->left_clients);
    }
    upstream->left_lanes = 0;
    upstream->left_requests = 0;
    upstream->left_clients = 0;
}

static void on_leave_timer(evutil_socket_t fd, short what, void *context)
{
    struct upstream *upstream = context;

    (void)fd;
    (void)what;
    visit_all(upstream, end_leaving);
    if (is_leaving(upstream)) {
        look_again_soon(upstream);
    } else {
        say_left(upstream);
    }
}

void upstream_prepare_move(struct upstream *upstream)
{
    evtimer_assign(&upstream->leave_timer, upstream->reactor->base, on_leave_timer, upstream);
}

/* Without memory for it the certificate is judged by the name of before, and may be refused. */
static void take_host(struct upstream *upstream, const char *host)
{
    char *copy = *host != '\0' ? strdup(host) : NULL;

    if (copy != NULL) {
        free(upstream->host);
        upstream->host = copy;
        upstream->settings.lane.host = copy;
    }
}

void upstream_move(struct upstream *upstream, const struct connection_targets *targets, const char *host)
{
    /* It goes to the server of before, by a name that is forgotten now. */
    upstream->look_wanted = upstream->look_wanted || upstream->look != NULL;
    upstream_end_look(upstream);
    upstream->targets = *targets;
    take_host(upstream, host);
    visit_all(upstream, leave_or_follow);
    look_again_soon(upstream);
}

void upstream_note_readonly(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);

    stats_add(upstream->settings.lane.stats, STATS_UPSTREAM_READONLY, 1);
    if (upstream->connecting != NULL && now - upstream->readonly_us >= READONLY_PAUSE_US) {
        upstream->readonly_us = now;
        upstream->connecting(upstream->connecting_context);
    }
}
