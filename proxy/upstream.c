#include "upstream.h"

#include "log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct upstream {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream_settings settings;
    upstream_ready_callback *ready;
    void *context;
    struct profile *profiles;
    struct profile *base; /* the default profile */
    struct lane *lanes;   /* all of them */
    struct lane *closed;  /* to be freed at the end of the turn, linked by pool_next */
    struct reactor_task free_closed;
    uint64_t last_lane_id;
    uint32_t generation; /* of the default profile */
    bool reachable;      /* what was logged last */
    bool told;           /* whether anything was logged yet */
};

/* How long an unused lane keeps the name of its last client. */
#define NAME_PATIENCE_US ((int64_t)1000000)

static const struct lane_events lane_events;

/* ---- profiles ---- */

static size_t shared_places(const struct upstream *upstream)
{
    return upstream->settings.shared_lanes + 1;
}

/* What shared lanes say besides: the name shows operators what these connections are, and PING shows whether Redis
 * wants a password. */
static const char tail[] = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$8\r\nheadgate\r\n*1\r\n$4\r\nPING\r\n";
#define TAIL_REPLIES 2

/* Appends a command to *text, which is extended by realloc; counts it in *replies. */
static bool greeting_add(struct profile *profile, size_t argument_count, const char *const *arguments)
{
    size_t length = profile->greeting_length;
    size_t room = 32;

    for (size_t i = 0; i < argument_count; i++) {
        room += strlen(arguments[i]) + 32;
    }
    char *text = realloc(profile->greeting, length + room);
    if (text == NULL) {
        return false;
    }
    length += (size_t)sprintf(text + length, "*%zu\r\n", argument_count);
    for (size_t i = 0; i < argument_count; i++) {
        length += (size_t)sprintf(text + length, "$%zu\r\n%s\r\n", strlen(arguments[i]), arguments[i]);
    }
    profile->greeting = text;
    profile->greeting_length = length;
    profile->greeting_replies++;
    return true;
}

static bool greeting_add_credentials(struct profile *profile)
{
    const char *user = profile->user != NULL ? profile->user : "default";

    if (profile->resp == 3) {
        const char *const hello[] = {"HELLO", "3", "AUTH", user, profile->password};
        return greeting_add(profile, profile->password != NULL ? 5 : 2, hello);
    }
    if (profile->password == NULL) {
        return true;
    }
    if (profile->user == NULL) {
        const char *const auth[] = {"AUTH", profile->password};
        return greeting_add(profile, 2, auth);
    }
    const char *const auth[] = {"AUTH", user, profile->password};
    return greeting_add(profile, 3, auth);
}

static bool greeting_build(struct profile *profile)
{
    char database[24];
    const char *const select[] = {"SELECT", database};

    snprintf(database, sizeof database, "%lld", (long long)profile->database);
    if (!greeting_add_credentials(profile) || (profile->database != 0 && !greeting_add(profile, 2, select))) {
        return false;
    }
    char *text = realloc(profile->greeting, profile->greeting_length + sizeof tail);
    if (text == NULL) {
        return false;
    }
    memcpy(text + profile->greeting_length, tail, sizeof tail);
    profile->greeting = text;
    profile->greeting_tail_length = sizeof tail - 1;
    return true;
}

static void profile_free(struct profile *profile)
{
    if (profile->password != NULL) {
        explicit_bzero(profile->password, strlen(profile->password));
    }
    if (profile->greeting != NULL) {
        explicit_bzero(profile->greeting, profile->greeting_length);
    }
    free(profile->user);
    free(profile->password);
    free(profile->shared);
    free(profile->greeting);
    free(profile);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_credentials(const struct profile *a, const struct profile *b)
{
    return same_text(a->user, b->user) && same_text(a->password, b->password);
}

static struct profile *profile_find(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = upstream->profiles;

    while (profile != NULL && !(profile->database == wanted->database && profile->resp == wanted->resp &&
                                profile->generation == wanted->generation && same_credentials(profile, wanted))) {
        profile = profile->next;
    }
    return profile;
}

static struct profile *profile_create(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = calloc(1, sizeof *profile);

    if (profile == NULL) {
        return NULL;
    }
    profile->upstream = upstream;
    profile->database = wanted->database;
    profile->resp = wanted->resp;
    profile->generation = wanted->generation;
    profile->user = wanted->user != NULL ? strdup(wanted->user) : NULL;
    profile->password = wanted->password != NULL ? strdup(wanted->password) : NULL;
    profile->shared = calloc(shared_places(upstream), sizeof *profile->shared);
    /* Of the same credentials, so Redis' answer will be the same. */
    profile->needs_password = wanted->needs_password;
    profile->naming = wanted->naming;
    if ((wanted->user != NULL && profile->user == NULL) || (wanted->password != NULL && profile->password == NULL) ||
        profile->shared == NULL || !greeting_build(profile)) {
        profile_free(profile);
        return NULL;
    }
    profile->next = upstream->profiles;
    upstream->profiles = profile;
    return profile;
}

static struct profile *profile_get(struct upstream *upstream, const struct profile *wanted)
{
    struct profile *profile = profile_find(upstream, wanted);

    if (profile == NULL) {
        profile = profile_create(upstream, wanted);
    }
    return profile != NULL ? profile_reference(profile) : NULL;
}

struct profile *profile_reference(struct profile *profile)
{
    profile->references++;
    return profile;
}

void profile_release(struct profile *profile)
{
    struct profile **link = &profile->upstream->profiles;

    assert(profile->references > 0);
    if (--profile->references > 0) {
        return;
    }
    while (*link != profile) {
        link = &(*link)->next;
    }
    *link = profile->next;
    profile_free(profile);
}

struct stats *upstream_stats(const struct upstream *upstream)
{
    return upstream->settings.lane.stats;
}

struct profile *upstream_default_profile(struct upstream *upstream)
{
    return profile_reference(upstream->base);
}

struct profile *profile_with_database(struct profile *profile, int64_t database)
{
    struct profile wanted = *profile;

    wanted.database = database;
    return profile_get(profile->upstream, &wanted);
}

struct profile *profile_with_resp(struct profile *profile, int resp)
{
    struct profile wanted = *profile;

    wanted.resp = resp;
    return profile_get(profile->upstream, &wanted);
}

struct profile *profile_with_credentials(struct profile *profile, struct slice user, struct slice password)
{
    struct profile wanted = *profile;
    struct profile *found = NULL;

    wanted.user = user.data != NULL ? strndup(user.data, user.length) : NULL;
    wanted.password = strndup(password.data, password.length);
    wanted.needs_password = false;
    wanted.naming = PROFILE_NAMING_UNKNOWN;
    wanted.generation = 0;
    if (wanted.password != NULL && (wanted.user != NULL || user.data == NULL)) {
        found = profile_get(profile->upstream, &wanted);
        explicit_bzero(wanted.password, strlen(wanted.password));
    }
    free(wanted.user);
    free(wanted.password);
    return found;
}

const char *profile_user(const struct profile *profile)
{
    return profile->user != NULL ? profile->user : "default";
}

/* ---- the list of lanes ---- */

static void list_add(struct upstream *upstream, struct lane *lane)
{
    lane->next = upstream->lanes;
    if (lane->next != NULL) {
        lane->next->previous = lane;
    }
    upstream->lanes = lane;
}

static void list_remove(struct upstream *upstream, struct lane *lane)
{
    if (lane->previous != NULL) {
        lane->previous->next = lane->next;
    } else {
        upstream->lanes = lane->next;
    }
    if (lane->next != NULL) {
        lane->next->previous = lane->previous;
    }
}

static enum stats_id use_gauge(enum lane_use use)
{
    return use == LANE_SHARED ? STATS_LANES_SHARED : STATS_LANES_EXCLUSIVE;
}

static struct lane *open_lane(struct profile *profile, enum lane_use use)
{
    struct upstream *upstream = profile->upstream;
    struct lane *lane = lane_new(upstream->reactor, upstream->runs, &upstream->settings.lane, &lane_events, use,
                                 profile, ++upstream->last_lane_id);

    if (lane == NULL) {
        return NULL;
    }
    profile_reference(profile);
    list_add(upstream, lane);
    stats_add(upstream->settings.lane.stats, use_gauge(use), 1);
    return lane;
}

/* An exclusive lane shows its client whatever Redis says, so it needs no PING to find out. */
static void start_lane(struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);
    bool shared = lane->use == LANE_SHARED;
    struct lane_greeting greeting = {
        .bytes = profile->greeting,
        .length = profile->greeting_length + (shared ? profile->greeting_tail_length : 0),
        .replies = profile->greeting_replies + (shared ? TAIL_REPLIES : 0),
        .has_tail = shared,
        .password_known = profile->password != NULL || !profile->upstream->settings.serves_clients,
    };

    lane_start(lane, &greeting);
}

static void forget_place(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);

    for (size_t i = 0; i < shared_places(profile->upstream); i++) {
        if (profile->shared[i] == lane) {
            profile->shared[i] = NULL;
        }
    }
}

static void forget_pooled(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    struct lane **link = &profile->pooled;

    while (*link != lane) {
        link = &(*link)->pool_next;
    }
    *link = lane->pool_next;
    profile->pooled_count--;
    stats_subtract(lane->settings->stats, STATS_LANES_POOLED, 1);
}

static void free_closed(struct reactor_task *task)
{
    struct upstream *upstream = (struct upstream *)(void *)((char *)task - offsetof(struct upstream, free_closed));

    while (upstream->closed != NULL) {
        struct lane *lane = upstream->closed;
        upstream->closed = lane->pool_next;
        lane_free(lane);
    }
}

/* ---- what lanes tell ---- */

static void on_ready(struct lane *lane)
{
    struct upstream *upstream = lane_profile(lane)->upstream;

    if (!upstream->reachable || !upstream->told) {
        log_info("upstream", "connected to Redis at %s", upstream->settings.lane.target_text);
        upstream->reachable = true;
        upstream->told = true;
    }
    if (lane->use == LANE_SHARED) {
        lane_profile(lane)->naming = lane->named ? PROFILE_NAMING_ALLOWED : PROFILE_NAMING_REFUSED;
    }
    if (lane->use == LANE_SHARED && lane_profile(lane) == upstream->base) {
        upstream->ready(upstream->context);
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

    if (upstream->reachable || !upstream->told) {
        log_failure(upstream, why);
        upstream->reachable = false;
        upstream->told = true;
    }
}

/*
 * Redis wants a password that this profile does not have. What waited gets the answer that Redis gives to any command
 * before AUTH; from now on each client of the profile talks to Redis on a lane of its own until it authenticates.
 */
static void on_needs_password(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);

    if (!profile->needs_password) {
        log_info("upstream", "Redis at %s wants a password; clients share no lane until they authenticate",
                 profile->upstream->settings.lane.target_text);
    }
    profile->needs_password = true;
    lane_close(lane, "-NOAUTH Authentication required.");
}

static void on_closed(struct lane *lane, const char *why)
{
    struct profile *profile = lane_profile(lane);
    struct upstream *upstream = profile->upstream;

    log_debug("upstream", "lane %llu (%s) closed: %s", (unsigned long long)lane->id, lane_use_name(lane->use), why);
    if (lane->use == LANE_SHARED) {
        forget_place(lane);
    } else if (lane->use == LANE_POOLED) {
        forget_pooled(lane);
    }
    stats_subtract(upstream->settings.lane.stats, use_gauge(lane->use), 1);
    list_remove(upstream, lane);
    lane->pool_next = upstream->closed;
    upstream->closed = lane;
    reactor_at_turn_end(upstream->reactor, REACTOR_STAGE_FREE, &upstream->free_closed);
    profile_release(profile);
}

static const struct lane_events lane_events = {
    .ready = on_ready,
    .failed = on_failed,
    .needs_password = on_needs_password,
    .closed = on_closed,
};

/* ---- shared lanes ---- */

static struct lane *lane_at(struct profile *profile, size_t place)
{
    struct lane **slot = &profile->shared[place];

    if (*slot == NULL) {
        struct lane *lane = open_lane(profile, LANE_SHARED);
        if (lane == NULL) {
            return NULL;
        }
        *slot = lane;
        start_lane(lane);
    }
    return *slot;
}

struct lane *upstream_shared_lane(struct profile *profile, size_t place)
{
    return lane_at(profile, place % profile->upstream->settings.shared_lanes);
}

struct lane *upstream_script_lane(struct profile *profile)
{
    return lane_at(profile, profile->upstream->settings.shared_lanes);
}

bool upstream_is_script_lane(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    return profile->shared[profile->upstream->settings.shared_lanes] == lane;
}

bool upstream_may_wait(const struct upstream *upstream, const struct lane *lane)
{
    return lane->state == LANE_READY || lane->requests_waiting < (uint64_t)upstream->settings.wait_requests;
}

void upstream_warm_up(struct upstream *upstream)
{
    (void)upstream_shared_lane(upstream->base, 0);
}

/* ---- exclusive lanes ---- */

static bool hidden_reply(struct run *run, const struct resp_reply *reply)
{
    if (reply->type == '>') {
        return false;
    }
    if (reply->type == '-') {
        char why[96];
        snprintf(why, sizeof why, "Redis answered %.*s to a command of Headgate's own",
                 (int)resp_reply_head_line(reply), reply->head);
        lane_fail(run->lane, why);
    }
    return true;
}

static void hidden_bytes(struct run *run, const char *data, size_t length)
{
    (void)run;
    (void)data;
    (void)length;
}

static void hidden_answered(struct run *run)
{
    run_give(run->owner, run);
}

static void hidden_lost(struct run *run, enum run_loss loss, const char *why)
{
    (void)loss;
    (void)why;
    run_give(run->owner, run);
}

static const struct run_receiver hidden_receiver = {
    .bytes = hidden_bytes,
    .reply = hidden_reply,
    .answered = hidden_answered,
    .lost = hidden_lost,
};

static struct run *hidden_run(struct lane *lane, uint32_t requests, bool must_succeed)
{
    struct run *run = run_take(lane->runs);

    if (run == NULL) {
        return NULL;
    }
    run->requests = requests;
    if (must_succeed) {
        run->receiver = &hidden_receiver;
        run->owner = lane->runs;
        run->observation = run;
    }
    return run;
}

bool upstream_send_hidden(struct lane *lane, const char *command, size_t length, bool must_succeed)
{
    struct run *run = hidden_run(lane, 1, must_succeed);

    if (run != NULL && !lane_send(lane, run, command, length)) {
        run_give(lane->runs, run);
        run = NULL;
    }
    return run != NULL;
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

static struct lane *find_pooled(struct profile *profile)
{
    struct profile *other = profile->upstream->profiles;

    if (profile->pooled != NULL) {
        return profile->pooled;
    }
    while (other != NULL && !(other->pooled != NULL && other->generation == profile->generation &&
                              other->database == profile->database && same_credentials(other, profile))) {
        other = other->next;
    }
    return other != NULL ? other->pooled : NULL;
}

static struct lane *take_pooled(struct profile *profile)
{
    struct lane *lane = find_pooled(profile);

    if (lane == NULL) {
        return NULL;
    }
    forget_pooled(lane);
    lane->use = LANE_EXCLUSIVE;
    if (lane_profile(lane) != profile && !adapt(lane, profile)) {
        lane_close(lane, "out of memory");
        return NULL;
    }
    return lane;
}

struct lane *upstream_take_exclusive(struct profile *profile, bool fresh, const struct lane_owner *events, void *owner)
{
    struct lane *lane = fresh ? NULL : take_pooled(profile);

    stats_add(profile->upstream->settings.lane.stats, STATS_EXCLUSIVE_TAKEN, 1);
    if (lane != NULL) {
        lane_set_owner(lane, events, owner);
        return lane;
    }
    lane = open_lane(profile, LANE_EXCLUSIVE);
    if (lane != NULL) {
        lane_set_owner(lane, events, owner);
        start_lane(lane);
    }
    return lane;
}

void upstream_make_exclusive(struct lane *lane, const struct lane_owner *events, void *owner)
{
    struct stats *stats = lane->settings->stats;

    forget_place(lane);
    lane_make_exclusive(lane, events, owner);
    stats_subtract(stats, STATS_LANES_SHARED, 1);
    stats_add(stats, STATS_LANES_EXCLUSIVE, 1);
    stats_add(stats, STATS_EXCLUSIVE_TAKEN, 1);
}

void upstream_release_exclusive(struct lane *lane, bool clean)
{
    struct profile *profile = lane_profile(lane);
    struct upstream *upstream = profile->upstream;

    assert(lane->use == LANE_EXCLUSIVE);
    lane_set_owner(lane, NULL, NULL);
    if (!clean || lane->untidy || lane->state != LANE_READY || !resp_reply_idle(&lane->reply) ||
        profile->needs_password || profile->pooled_count >= (size_t)upstream->settings.exclusive_idle) {
        lane_close(lane, "not needed any more");
        return;
    }
    lane_pause(lane, false);
    lane->expects_pushes = false;
    lane->use = LANE_POOLED;
    lane->used_us = reactor_now(upstream->reactor);
    lane->pool_next = profile->pooled;
    profile->pooled = lane;
    profile->pooled_count++;
    stats_add(upstream->settings.lane.stats, STATS_LANES_POOLED, 1);
    stats_add(upstream->settings.lane.stats, STATS_EXCLUSIVE_RETURNED, 1);
}

bool upstream_greet_again(struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);
    struct run *run;

    if (profile->greeting_replies == 0) {
        return true;
    }
    run = hidden_run(lane, profile->greeting_replies, true);
    if (run == NULL || !lane_send(lane, run, profile->greeting, profile->greeting_length)) {
        return false;
    }
    return true;
}

void upstream_lane_speaks_for(struct lane *lane, struct profile *profile)
{
    struct profile *before = lane_profile(lane);

    lane->context = profile_reference(profile);
    profile_release(before);
}

/* ---- time ---- */

static bool is_idle(const struct upstream *upstream, const struct lane *lane, int64_t now)
{
    int64_t limit = clock_ms_to_us(upstream->settings.lane_idle_timeout);
    bool kept_warm =
        lane->use == LANE_SHARED && lane_profile(lane) == upstream->base && upstream->settings.serves_clients;

    return limit > 0 && lane->use != LANE_EXCLUSIVE && lane->first == NULL && !kept_warm &&
           now - lane->used_us >= limit;
}

/* The name of a client that has left goes with a delay: most often the next one has the same, and a transaction of a
 * client with a name costs Redis no further command. */
static void forget_name(struct lane *lane, int64_t now)
{
    static const char unname[] = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$0\r\n\r\n";

    if (lane->use == LANE_POOLED && lane->named && now - lane->used_us >= NAME_PATIENCE_US) {
        lane->named = !upstream_send_hidden(lane, unname, sizeof unname - 1, false);
    }
}

void upstream_tick(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);
    struct lane *lane = upstream->lanes;

    while (lane != NULL) {
        /* Lanes that are closed meanwhile keep their place in this walk: they are freed at the end of the turn. */
        struct lane *next = lane->next;
        if (lane->state == LANE_CLOSED) {
            lane = next;
            continue;
        }
        if (is_idle(upstream, lane, now)) {
            lane_close(lane, "idle");
        } else {
            forget_name(lane, now);
            lane_tick(lane, upstream->settings.wait);
        }
        lane = next;
    }
}

void upstream_visit_lanes(struct upstream *upstream, void (*visit)(void *context, struct lane *lane), void *context)
{
    for (struct lane *lane = upstream->lanes; lane != NULL; lane = lane->next) {
        visit(context, lane);
    }
}

/* ---- life ---- */

static bool make_base(struct upstream *upstream)
{
    const struct upstream_settings *settings = &upstream->settings;
    char *user = settings->user[0] != '\0' ? strdup(settings->user) : NULL;
    char *password = settings->password[0] != '\0' ? strdup(settings->password) : NULL;
    struct profile wanted = {.user = user, .password = password, .resp = 2, .generation = upstream->generation};

    upstream->base = profile_get(upstream, &wanted);
    free(user);
    free(password);
    return upstream->base != NULL;
}

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
    upstream->ready = ready;
    upstream->context = context;
    upstream->free_closed.run = free_closed;
    if (!make_base(upstream)) {
        free(upstream);
        return NULL;
    }
    return upstream;
}

void upstream_renew_default(struct upstream *upstream)
{
    struct profile *before = upstream->base;

    for (struct profile *profile = upstream->profiles; profile != NULL; profile = profile->next) {
        profile->naming = PROFILE_NAMING_UNKNOWN;
    }
    if (before->password != NULL) {
        return;
    }
    upstream->generation++;
    if (make_base(upstream)) {
        profile_release(before);
    } else {
        upstream->base = before;
    }
}

void upstream_reconfigure(struct upstream *upstream, const struct upstream_settings *settings)
{
    struct profile *before = upstream->base;
    size_t shared_lanes = upstream->settings.shared_lanes;

    /* How many shared lanes there are is fixed: the profiles' tables have that size. */
    upstream->settings = *settings;
    upstream->settings.shared_lanes = shared_lanes;
    if (make_base(upstream)) {
        profile_release(before);
    } else {
        upstream->base = before;
    }
}

void upstream_free(struct upstream *upstream)
{
    while (upstream->lanes != NULL) {
        lane_close(upstream->lanes, "shutting down");
    }
    reactor_cancel(upstream->reactor, REACTOR_STAGE_FREE, &upstream->free_closed);
    free_closed(&upstream->free_closed);
    profile_release(upstream->base);
    assert(upstream->profiles == NULL);
    free(upstream);
}
