/* The lanes of a worker: which there are, what they tell, when they go. */
#include "upstream/upstream_private.h"

#include "base/log.h"
#include "base/places.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How long an unused lane keeps the name of its last client. */
#define NAME_PATIENCE_US ((int64_t)1000000)
/* A pooled lane that was in use within that time is likely to be wanted again. µs. */
#define SPARE_PATIENCE_US ((int64_t)200000)

/* ---- what lanes tell ---- */

bool upstream_is_locked(const struct upstream *upstream)
{
    return upstream->base->needs_password;
}

static void on_ready(struct lane *lane)
{
    struct upstream *upstream = lane_profile(lane)->upstream;

    if (upstream_trial_is_ready(lane)) {
        return;
    }
    lane_profile(lane)->may_not_ask_id = lane_profile(lane)->may_not_ask_id || lane->link.may_not_ask_id;
    upstream_prefer_target(upstream, &lane->link.target);
    upstream_is_up(upstream);
    if (!upstream->reachable || !upstream->told) {
        log_info("upstream", "connected to Redis at %s", upstream->settings.lane.target_text);
        upstream->reachable = true;
        upstream->told = true;
    }
    if (lane->link.greeting.has_credentials && !lane->link.taken_over) {
        upstream_credentials_accepted(lane_profile(lane));
    }
    if (lane->spare) {
        upstream_spare_is_ready(lane);
        return;
    }
    if (lane->use == LANE_SHARED && !lane->link.taken_over) {
        upstream_open_spares(lane_profile(lane));
    }
    if (lane->use == LANE_SHARED && lane_profile(lane) == upstream->base && !upstream_is_extra(lane)) {
        upstream->ready(upstream->context);
    }
}

static void tell_loss(const struct upstream *upstream, const char *why, uint64_t requests)
{
    if (upstream->lost != NULL) {
        upstream->lost(upstream->lost_context, why, requests);
    }
}

static void log_failure(const struct upstream *upstream, const char *why)
{
    const char *target = upstream->settings.lane.target_text;

    if (upstream->settings.serves_clients) {
        log_error("upstream", "no connection to Redis at %s: %s; trying again", target, why);
    } else {
        log_warning("upstream", "no connection to a policy's Redis at %s: %s; trying again", target, why);
    }
}

static void on_failed(struct lane *lane, const char *why)
{
    struct upstream *upstream = lane_profile(lane)->upstream;

    if (upstream_trial_has_failed(lane, why)) {
        return;
    }
    upstream_note_connecting(upstream);
    if (lane->link.refused) {
        upstream_old_password_refused(lane_profile(lane));
    }
    if (lane->link.refused && upstream_lane_refused(lane)) {
        return;
    }
    if (upstream_is_for_nobody(lane)) {
        lane_close(lane, why);
        return;
    }
    if (why[0] == '-') {
        /* It is there, and has said so. */
        return;
    }
    upstream_is_down(upstream);
    if (upstream->reachable || !upstream->told) {
        log_failure(upstream, why);
        upstream->reachable = false;
        upstream->told = true;
        tell_loss(upstream, why, 0);
    }
}

/* Applications see closed connections, and ask why. */
static void log_loss(struct lane *lane, const char *why, uint64_t requests)
{
    struct upstream *upstream = lane_profile(lane)->upstream;
    uint64_t more = 0;

    if (!upstream->settings.serves_clients || lane->link.is_left || (requests == 0 && lane->owner == NULL) ||
        !log_limiter_take(&upstream->losses, reactor_now(upstream->reactor), &more)) {
        return;
    }
    log_warning("upstream",
                "a connection to Redis at %s broke: %s; whoever waited on it (%" PRIu64
                " requests), or has it alone, is closed (%" PRIu64 " more such since the last line)",
                upstream->settings.lane.target_text, why, requests, more);
}

/* Redis closes a connection whose client has ended its stream, with a blocked request, too: that is no loss. */
static void on_broken(struct lane *lane, const char *why, uint64_t requests)
{
    upstream_note_connecting(lane_profile(lane)->upstream);
    lane_profile(lane)->upstream->left_requests += lane->link.is_left ? requests : 0;
    if (!lane->ending) {
        log_loss(lane, why, requests);
        tell_loss(lane_profile(lane)->upstream, why, requests);
    }
}

static void on_closed(struct lane *lane, const char *why)
{
    struct profile *profile = lane_profile(lane);
    struct upstream *upstream = profile->upstream;

    log_write_about(LOG_LEVEL_DEBUG, &(const struct log_subject){.lane = lane->id}, "upstream",
                    "lane %llu (%s) closed: %s", (unsigned long long)lane->id, lane_use_name(lane->use), why);
    if (lane->use == LANE_SHARED) {
        upstream_forget_place(lane);
    } else if (lane->use == LANE_POOLED) {
        upstream_forget_pooled(lane);
    }
    if (lane->spare) {
        upstream_spare_ended(lane);
    }
    upstream_trial_has_closed(lane);
    LIST_REMOVE(lane, of_upstream);
    upstream_free_at_turn_end(upstream, lane);
    profile_release(profile);
}

static void on_readonly(struct lane *lane)
{
    upstream_note_readonly(lane_profile(lane)->upstream);
}

static const struct lane_events lane_events = {
    .greeting = upstream_greeting,
    .readonly = on_readonly,
    .ready = on_ready,
    .failed = on_failed,
    .broken = on_broken,
    .needs_password = upstream_lane_needs_password,
    .closed = on_closed,
};

bool upstream_may_wait(const struct upstream *upstream, const struct lane *lane)
{
    return lane->state == LANE_READY || lane->requests_waiting < (uint64_t)upstream->settings.wait_requests;
}

/* ---- time ---- */

static bool is_idle(const struct upstream *upstream, const struct lane *lane, int64_t now)
{
    bool makes_room = upstream_is_extra(lane) && places_are_short();
    int64_t limit = makes_room ? SPARE_PATIENCE_US : clock_ms_to_us(upstream->settings.lane_idle_timeout);

    return limit > 0 && lane->use != LANE_EXCLUSIVE && lane->first == NULL && now - lane->used_us >= limit &&
           !upstream_is_kept(lane);
}

/* Somebody, perhaps of another worker, may have no descriptor for a lane: the pooled one that was not used for longest
 * makes room, if all were in use lately none. One at a time, as each may be wanted again. */
static void make_room(struct upstream *upstream, int64_t now)
{
    struct lane *oldest = upstream_longest_idle(upstream);

    if (oldest != NULL && now - oldest->used_us >= SPARE_PATIENCE_US) {
        lane_close(oldest, "others need the descriptor");
    }
}

/* The name of a client that has left goes with a delay: most often the next one has the same, and a transaction of a
 * client with a name costs Redis no further command. */
static void forget_name(struct lane *lane, int64_t now)
{
    if (lane->use == LANE_POOLED && lane->named && now - lane->used_us >= NAME_PATIENCE_US) {
        upstream_forget_name(lane);
    }
}

void upstream_tick(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);
    struct lane *lane = LIST_FIRST(&upstream->lanes);

    upstream_look_if_due(upstream);
    upstream_tend_parked(upstream);
    upstream_tend_renewals(upstream);
    upstream_tend_silent(upstream);
    while (lane != NULL) {
        /* Lanes that are closed meanwhile keep their place: they are freed at the end of the loop iteration. */
        struct lane *next = LIST_NEXT(lane, of_upstream);
        if (lane->state == LANE_CLOSED) {
            lane = next;
            continue;
        }
        if (is_idle(upstream, lane, now)) {
            lane_close(lane, "idle");
        } else {
            forget_name(lane, now);
            lane_tick(lane, upstream->settings.wait);
            if (lane->state != LANE_CLOSED) {
                upstream_check_unwanted(lane);
            }
        }
        lane = next;
    }
    if (stats_get(upstream->settings.lane.stats, STATS_LANES_POOLED) > 0 && places_are_short()) {
        make_room(upstream, now);
    }
}

void upstream_visit_lanes(struct upstream *upstream, void (*visit)(void *context, struct lane *lane), void *context)
{
    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        visit(context, lane);
    }
}

/* ---- life ---- */

struct upstream *upstream_new(struct reactor *reactor, struct run_pool *runs, const struct upstream_settings *settings,
                              upstream_ready_callback *ready, void *context)
{
    struct upstream *upstream = calloc(1, sizeof *upstream);

    if (upstream == NULL) {
        return NULL;
    }
    upstream->reactor = reactor;
    upstream->runs = runs;
    upstream->settings = *settings;
    upstream->settings.lane.targets = &upstream->targets;
    upstream->lane_events = &lane_events;
    upstream->last_lane_id = settings->first_lane_id;
    upstream->ready = ready;
    upstream->context = context;
    TAILQ_INIT(&upstream->lingering);
    upstream->free_closed.run = upstream_free_closed;
    upstream->help.run = upstream_help_task;
    upstream->looked_us = reactor_now(reactor);
    upstream_prepare_move(upstream);
    if (!upstream_make_base(upstream)) {
        free(upstream);
        return NULL;
    }
    return upstream;
}

struct stats *upstream_stats(const struct upstream *upstream)
{
    return upstream->settings.lane.stats;
}

struct profile *upstream_default_profile(struct upstream *upstream)
{
    return profile_reference(upstream->base);
}

/* With a password for the same user as before, be it another one, whoever is there stays. */
static bool keeps_user(const struct upstream_settings *old, const struct upstream_settings *settings)
{
    return strcmp(old->user, settings->user) == 0 && *old->password != '\0' && *settings->password != '\0';
}

static void change_base(struct upstream *upstream)
{
    struct profile *before = profile_reference(upstream->base);

    (void)upstream_make_base(upstream);
    upstream_drop_renewal(before);
    profile_release(before);
}

void upstream_reconfigure(struct upstream *upstream, const struct upstream_settings *settings)
{
    size_t shared_lanes = upstream->settings.shared_lanes;
    bool stays = keeps_user(&upstream->settings, settings);
    bool renews = stays && strcmp(upstream->settings.password, settings->password) != 0;

    /* It goes by the settings of before, whose texts and certificates go. */
    upstream->look_wanted = upstream->look_wanted || upstream->look != NULL;
    upstream_end_look(upstream);
    /* How many shared lanes there are is fixed: the profiles' tables have that size. */
    upstream->settings = *settings;
    upstream->settings.shared_lanes = shared_lanes;
    upstream->settings.lane.targets = &upstream->targets;
    upstream->settings.lane.host = upstream->host != NULL ? upstream->host : settings->lane.host;
    if (renews) {
        upstream_renew_password(upstream, upstream->base->user, upstream->base->password, settings->password);
    } else if (!stays) {
        change_base(upstream);
    }
}

void upstream_tell_losses(struct upstream *upstream, upstream_lost_callback *lost, void *context)
{
    upstream->lost = lost;
    upstream->lost_context = context;
}

bool upstream_is_out_of_reach(const struct upstream *upstream)
{
    return upstream->told && !upstream->reachable;
}

bool upstream_has_no_lanes(const struct upstream *upstream)
{
    return LIST_EMPTY(&upstream->lanes);
}

/* What a client has on a lane of its own stays together, in its order: its owner says where it goes. */
static void give_back(struct lane *lane, const char *why)
{
    if (lane->use == LANE_SHARED) {
        lane_give_back(lane, why);
    } else if (lane->owner != NULL && lane->owner_events->reroute != NULL && !lane->bare) {
        lane->owner_events->reroute(lane->owner);
    }
}

void upstream_give_back(struct upstream *upstream, const char *why)
{
    struct lane *lane = LIST_FIRST(&upstream->lanes);

    while (lane != NULL) {
        /* Lanes that are closed meanwhile keep their place in this walk, and those that go elsewhere leave it. */
        struct lane *next = LIST_NEXT(lane, of_upstream);
        if (lane->state != LANE_READY && lane->state != LANE_CLOSED) {
            give_back(lane, why);
        }
        lane = next;
    }
}

void upstream_close_lanes(struct upstream *upstream, const char *why)
{
    while (!LIST_EMPTY(&upstream->lanes)) {
        lane_close(LIST_FIRST(&upstream->lanes), why);
    }
}

void upstream_free(struct upstream *upstream)
{
    upstream_end_look(upstream);
    upstream_end_renewals(upstream);
    upstream_close_lanes(upstream, "shutting down");
    profile_release(upstream->base);
    assert(LIST_EMPTY(&upstream->profiles));
    reactor_cancel(upstream->reactor, REACTOR_STAGE_FREE, &upstream->help);
    reactor_cancel(upstream->reactor, REACTOR_STAGE_FREE, &upstream->free_closed);
    upstream_free_closed(&upstream->free_closed);
    event_del(&upstream->leave_timer);
    free(upstream->host);
    free(upstream);
}
