#include "upstream/lane_private.h"

#include "base/log.h"
#include "base/places.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one that follows, which may have to find a request in it; requests. */
#define LANE_FOLLOWED_RUN 64

static void lane_connect(struct lane *lane);
static void connect_next(struct lane *lane, const char *why);

const char *lane_state_name(enum lane_state state)
{
    static const char *const names[] = {"connecting", "handshake", "ready", "backoff", "closed"};

    return names[state];
}

const char *lane_use_name(enum lane_use use)
{
    static const char *const names[] = {"shared", "exclusive", "pooled"};

    return names[use];
}

static enum stats_id gauge_of(enum lane_use use)
{
    return use == LANE_SHARED ? STATS_LANES_SHARED : STATS_LANES_EXCLUSIVE;
}

/* One that connects, or waits to do so, is not open: while Redis is away there is none. */
void lane_move(struct lane *lane, enum lane_state state)
{
    struct stats *stats = lane->settings->stats;

    assert(lane->state != LANE_CLOSED);
    if (lane->state != LANE_READY && state == LANE_READY) {
        stats_add(stats, gauge_of(lane->use), 1);
    } else if (lane->state == LANE_READY && state != LANE_READY) {
        stats_subtract(stats, gauge_of(lane->use), 1);
    }
    lane->state = state;
}

/* ---- what happens when a lane breaks ---- */

static bool run_is_unsent(const struct lane *lane, const struct run *run)
{
    return run->first_byte >= lane->written;
}

/* What Redis said unasked may have gone out as a part of the first one's reply: that is lost, sent or not. */
static void lose_sent_runs(struct lane *lane, const char *why)
{
    bool is_within = lane_is_within_frame(lane);

    for (; lane->first != NULL && (is_within || !run_is_unsent(lane, lane->first)); is_within = false) {
        lane_run_was_lost(lane, lane_queue_pop(lane), RUN_LOST, why);
    }
}

/* Those that lose_sent_runs() will lose. */
static uint64_t count_sent_requests(const struct lane *lane)
{
    uint64_t requests = 0;

    for (const struct run *run = lane->first; run != NULL && !run_is_unsent(lane, run); run = run->lane_next) {
        requests += run->receiver != NULL ? run->requests - run->answered : 0;
    }
    return requests;
}

static void fail_unsent_runs(struct lane *lane, const char *why)
{
    while (lane->first != NULL) {
        lane_run_was_lost(lane, lane_queue_pop(lane), RUN_UNSENT, why);
    }
    buffer_clear(&lane->reactor->buffers, &lane->output);
    lane->written = lane->appended;
}

void lane_keep_owned(struct lane *lane)
{
    char *bytes = buffer_length(&lane->output) > 0 ? lane->output.data + lane->output.start : NULL;
    struct run *run = lane->first;
    uint64_t position = 0;

    lane->first = NULL;
    lane->last = NULL;
    lane->requests_waiting = 0;
    while (run != NULL) {
        struct run *next = run->lane_next;
        if (run->gone || (run->receiver == NULL && next != NULL && next->gone)) {
            run->lane = NULL;
            run_give(lane->runs, run);
        } else {
            memmove(bytes + position, bytes + (run->first_byte - lane->written), run->length);
            run->first_byte = position;
            position += run->length;
            lane_queue_append(lane, run);
            lane->requests_waiting += run->requests;
        }
        run = next;
    }
    if (position > 0) {
        buffer_truncate(&lane->output, position);
    } else {
        buffer_clear(&lane->reactor->buffers, &lane->output);
    }
    lane->appended = position;
    lane->written = 0;
    lane->owned_from = 0;
}

/* What they are sent again on may be this lane, so what was there before is taken off it first. */
void lane_give_back(struct lane *lane, const char *why)
{
    struct buffer output = lane->output;
    uint64_t from = lane->written;
    struct run *last = lane->last;
    struct run *run = NULL;

    assert(lane->state != LANE_READY);
    lane->output = (struct buffer){0};
    lane->written = lane->appended;
    while (lane->first != NULL && run != last) {
        run = lane_queue_pop(lane);
        struct slice bytes = {buffer_head(&output) + (run->first_byte - from), (size_t)run->length};
        if (run->receiver != NULL && run->receiver->returned != NULL) {
            run->receiver->returned(run, bytes);
        } else {
            lane_run_was_lost(lane, run, RUN_UNSENT, why);
        }
    }
    buffer_clear(&lane->reactor->buffers, &output);
    lane_note_relief(lane);
}

static void stop_connection(struct lane *lane)
{
    connection_close(&lane->connection);
    lane_forget_sent(lane);
    event_del(&lane->timer);
    reactor_cancel(lane->reactor, lane->hold == LANE_HELD ? REACTOR_STAGE_HELD : REACTOR_STAGE_REQUESTS, &lane->flush);
    reactor_cancel(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
    lane->hold = LANE_FREE;
    if (lane->state != LANE_READY) {
        /* A part of an answer to the greeting is nobody's. */
        resp_reply_reset(&lane->reply);
    }
}

void lane_close(struct lane *lane, const char *why)
{
    if (lane->state == LANE_CLOSED) {
        return;
    }
    lane_give_back_all(lane, why);
    stop_connection(lane);
    lane_move(lane, LANE_CLOSED);
    lane->owner = NULL;
    lose_sent_runs(lane, why);
    fail_unsent_runs(lane, why);
    lane_wake_waiters(lane);
    lane->events->closed(lane, why);
}

void lane_end(struct lane *lane, const char *why)
{
    const struct lane_owner *events = lane->owner_events;
    void *owner = lane->owner;

    lane_close(lane, why);
    if (owner != NULL) {
        events->broken(owner, why);
    }
}

/* Exponential with jitter between half and the whole of the step, so that many lanes do not come back as one. */
static int64_t backoff_us(struct lane *lane)
{
    uint32_t doublings = lane->failures > 16 ? 16 : lane->failures;
    int64_t step = clock_ms_to_us(lane->settings->reconnect_min) << (doublings > 0 ? doublings - 1 : 0);
    int64_t most = clock_ms_to_us(lane->settings->reconnect_max);

    if (step > most) {
        step = most;
    }
    lane->jitter = lane->jitter * 6364136223846793005ULL + 1442695040888963407ULL;
    return step / 2 + (int64_t)((lane->jitter >> 33) % (uint64_t)(step / 2 + 1));
}

static void set_timer(struct lane *lane, int64_t delay_us)
{
    struct timeval delay = {.tv_sec = delay_us / 1000000, .tv_usec = delay_us % 1000000};

    event_add(&lane->timer, &delay);
}

static void back_off(struct lane *lane, const char *why)
{
    snprintf(lane->why, sizeof lane->why, "%s", why);
    stop_connection(lane);
    lane_move(lane, LANE_BACKOFF);
    lane->failures++;
    set_timer(lane, backoff_us(lane));
}

/* An attempt to connect came to nothing. No byte of any run was sent, so all runs wait for the next attempt. */
static void attempt_failed(struct lane *lane, const char *why)
{
    stats_add(lane->settings->stats, STATS_LANES_FAILED, 1);
    lane->next_target++;
    back_off(lane, why);
    lane->events->failed(lane, why);
}

/* The same of one address; there may be others. */
static void target_failed(struct lane *lane, const char *why)
{
    if (lane->targets_left == 0) {
        attempt_failed(lane, why);
        return;
    }
    stats_add(lane->settings->stats, STATS_LANES_FAILED, 1);
    lane->next_target++;
    stop_connection(lane);
    connect_next(lane, why);
}

void lane_refused(struct lane *lane, const char *why)
{
    attempt_failed(lane, why);
}

/* Whether all that its owner has of an exclusive one are requests of which nothing was sent: another connection will do
 * as well. What belongs to no run could not be told of if there is none. */
static bool is_untouched(const struct lane *lane)
{
    uint64_t waiting = 0;

    for (const struct run *run = lane->first; run != NULL; run = run->lane_next) {
        waiting += run_is_unsent(lane, run) ? run->length : 0;
    }
    return lane->owner != NULL && lane->written <= lane->owned_from && waiting > 0 &&
           waiting == buffer_length(&lane->output) && !lane->ending && !lane_is_within_frame(lane);
}

/* A ready lane broke: what was sent is lost, what was not sent waits, if the lane may come back. */
void lane_break(struct lane *lane, const char *reason)
{
    char why[sizeof lane->why];

    /* What TLS has to say goes with the connection. */
    snprintf(why, sizeof why, "%s", reason);
    if (lane->state == LANE_CONNECTING || lane->state == LANE_HANDSHAKE) {
        target_failed(lane, why);
        return;
    }
    stats_add(lane->settings->stats, STATS_LANES_LOST, 1);
    lane->events->broken(lane, why, count_sent_requests(lane));
    if (lane->use == LANE_SHARED || is_untouched(lane)) {
        lane_give_back_all(lane, why);
        back_off(lane, why);
        lose_sent_runs(lane, why);
        if (lane->state != LANE_CLOSED) {
            lane_keep_owned(lane);
        }
        lane_note_relief(lane);
        return;
    }
    lane_end(lane, why);
}

void lane_fail(struct lane *lane, const char *why)
{
    if (lane->state != LANE_CLOSED) {
        lane->dirty = true;
        lane_break(lane, why);
    }
}

void lane_desync(struct lane *lane, const char *why)
{
    stats_add(lane->settings->stats, STATS_LANES_DESYNCED, 1);
    /* An attempt to connect that failed so is repeated, and logged by who is told of it. */
    if (lane->state == LANE_READY) {
        lane->desynced = true;
        log_write_about(LOG_LEVEL_ERROR, &(const struct log_subject){.lane = lane->id}, "lane",
                        "lane %llu to %s: %s; closing it", (unsigned long long)lane->id, lane->settings->target_text,
                        why);
    }
    lane_break(lane, why);
}

/* ---- owners ---- */

bool lane_serves_others(const struct lane *lane, const void *owner)
{
    const struct run *run = lane->first;

    while (run != NULL && (run->receiver == NULL || run->owner == owner)) {
        run = run->lane_next;
    }
    return run != NULL;
}

void lane_pause(struct lane *lane, bool paused)
{
    lane->paused = paused;
    if (connection_is_open(&lane->connection) && lane->state == LANE_READY) {
        connection_want_read(&lane->connection, !paused);
    }
}

void lane_set_owner(struct lane *lane, const struct lane_owner *events, void *owner)
{
    lane->owner_events = events;
    lane->owner = owner;
}

void lane_make_exclusive(struct lane *lane, const struct lane_owner *events, void *owner)
{
    assert(lane->use == LANE_SHARED);
    lane->use = LANE_EXCLUSIVE;
    lane->was_congested = lane_is_congested(lane);
    lane_set_owner(lane, events, owner);
    lane_wake_waiters(lane);
}

/* ---- connecting ---- */

/* Whether there is a connection, and Redis has yet to answer on it. One that has never spoken TLS may never do so. */
static bool is_unanswered(const struct lane *lane)
{
    bool is_securing = lane->state == LANE_CONNECTING && connection_secrecy(&lane->connection) == CONNECTION_SECURING;

    return lane->state == LANE_HANDSHAKE ||
           (is_securing && stats_get(lane->settings->stats, STATS_UPSTREAM_TLS_HANDSHAKES) > 0);
}

static void lane_timer(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;
    bool is_waited_for = is_unanswered(lane) && lane->targets_left == 0 && buffer_length(&lane->output) > 0;

    (void)fd;
    (void)what;
    if (lane->state == LANE_BACKOFF) {
        lane_connect(lane);
    } else if (lane->state == LANE_CONNECTING && !is_waited_for) {
        bool is_securing = connection_secrecy(&lane->connection) == CONNECTION_SECURING;
        target_failed(lane, is_securing ? "TLS: no handshake within connect_timeout; does it speak TLS?"
                                        : "no answer within connect_timeout");
    } else if (lane->state == LANE_HANDSHAKE && !is_waited_for) {
        target_failed(lane, "no answer to the greeting within connect_timeout");
    }
}

/* What is left of the time is shared out among the addresses that are left, this one included. */
static int64_t patience_us(struct lane *lane)
{
    int64_t left = (lane->attempt_until_us - reactor_now(lane->reactor)) / (int64_t)(lane->targets_left + 1);

    return left > 1000 ? left : 1000;
}

/* False with errno set. */
static bool connect_to(struct lane *lane, const struct connection_target *target)
{
    int fd = connection_start(target, places_for_all());

    lane_move(lane, LANE_CONNECTING);
    lane->link = (struct lane_link){.target = *target};
    resp_reply_reset(&lane->reply);
    stats_add(lane->settings->stats, STATS_LANES_OPENED, 1);
    if (fd < 0) {
        return false;
    }
    connection_tune(fd, &lane->settings->tuning);
    (void)reactor_wakes_by(lane->reactor, fd);
    connection_open(&lane->connection, lane->reactor, fd, lane_readable, lane_writable, lane);
    connection_want_write(&lane->connection, true);
    set_timer(lane, patience_us(lane));
    return true;
}

/* Tries the addresses that are left, of which there is one. */
static void connect_next(struct lane *lane, const char *why)
{
    const struct connection_targets *targets = lane->settings->targets;

    while (lane->targets_left > 0) {
        lane->targets_left--;
        if (connect_to(lane, &targets->items[lane->next_target % targets->count])) {
            return;
        }
        why = strerror(errno);
        if (lane->targets_left > 0) {
            stats_add(lane->settings->stats, STATS_LANES_FAILED, 1);
            lane->next_target++;
        }
    }
    attempt_failed(lane, why);
}

/* Nobody knows where Redis is. As long as that is only being looked up, it is no failure. */
static void wait_for_target(struct lane *lane, const char *why)
{
    if (why != NULL) {
        attempt_failed(lane, why);
        return;
    }
    snprintf(lane->why, sizeof lane->why, "its name is being looked up");
    lane_move(lane, LANE_BACKOFF);
    set_timer(lane, clock_ms_to_us(lane->settings->reconnect_max));
}

static void lane_connect(struct lane *lane)
{
    const struct connection_targets *targets = lane->settings->targets;

    lane->targets_left = targets->count;
    lane->attempt_until_us = reactor_now(lane->reactor) + clock_ms_to_us(lane->settings->connect_timeout);
    if (targets->count > 0) {
        connect_next(lane, "");
    } else {
        wait_for_target(lane, targets->why);
    }
}

void lane_follow_targets(struct lane *lane)
{
    const struct connection_targets *targets = lane->settings->targets;
    bool is_near = (lane->state == LANE_CONNECTING || lane->state == LANE_HANDSHAKE) &&
                   connection_targets_find(targets, &lane->link.target) < targets->count;

    if (is_near) {
        lane->targets_left = targets->count - 1;
    } else if (lane->state != LANE_READY && lane->state != LANE_CLOSED && !lane->parked) {
        stop_connection(lane);
        lane->next_target = 0;
        lane_connect(lane);
    }
}

void lane_carry(struct lane *lane, const struct lane_settings *settings)
{
    assert(lane->state != LANE_READY && lane->state != LANE_CLOSED);
    stop_connection(lane);
    lane->settings = settings;
    lane->parked = false;
    lane->failures = 0;
    lane->next_target = 0;
}

struct lane *lane_new(struct reactor *reactor, struct run_pool *runs, const struct lane_settings *settings,
                      const struct lane_events *events, enum lane_use use, void *context, uint64_t id)
{
    struct lane *lane = calloc(1, sizeof *lane);

    if (lane == NULL) {
        return NULL;
    }
    lane->reactor = reactor;
    lane->runs = runs;
    lane->settings = settings;
    lane->events = events;
    lane->use = use;
    lane->follows = settings->follows;
    lane->longest_run = settings->follows ? LANE_FOLLOWED_RUN : UINT32_MAX / 2;
    lane->context = context;
    lane->id = id;
    lane->connection.fd = -1;
    lane->flush.run = lane_flush_task;
    lane->take.run = lane_take_task;
    lane->used_us = reactor_now(reactor);
    lane->jitter = (uint64_t)clock_now_us() ^ (id << 32) ^ (uint64_t)(uintptr_t)lane;
    evtimer_assign(&lane->timer, reactor->base, lane_timer, lane);
    return lane;
}

void lane_start(struct lane *lane)
{
    lane_connect(lane);
}

void lane_park(struct lane *lane)
{
    stop_connection(lane);
    lane_move(lane, LANE_BACKOFF);
    lane->parked = true;
    if (lane->why[0] == '\0') {
        snprintf(lane->why, sizeof lane->why, "Redis does not take the password any more");
    }
}

void lane_unpark(struct lane *lane)
{
    lane->parked = false;
    set_timer(lane, 0);
}

void lane_free(struct lane *lane)
{
    assert(lane->state == LANE_CLOSED && lane->first == NULL);
    free(lane);
}

/* ---- time ---- */

/* The first run has waited long enough for a connection. Takes its bytes out of the output, too. */
static void expire_first_run(struct lane *lane)
{
    struct run *run = lane_queue_pop(lane);
    uint64_t end = run->first_byte + run->length;

    buffer_consume(&lane->reactor->buffers, &lane->output, (size_t)(end - lane->written));
    lane->written = end;
    lane_note_relief(lane);
    lane_run_was_lost(lane, run, RUN_UNSENT, lane->why[0] != '\0' ? lane->why : "not connected yet");
}

/* On an exclusive lane they are one client's, and later ones rely on earlier ones, as within MULTI: they go together.
 */
static void expire_runs(struct lane *lane, int64_t queued_before_us)
{
    bool all = lane->use == LANE_EXCLUSIVE && lane->first != NULL && lane->first->queued_us <= queued_before_us;

    while (lane->state != LANE_CLOSED && lane->first != NULL && (all || lane->first->queued_us <= queued_before_us)) {
        expire_first_run(lane);
    }
}

/* Who greets well and then talks nonsense is not asked again and again: the pauses grow until it has kept to RESP for
 * as long as the longest of them. */
static void forgive(struct lane *lane, int64_t now_us)
{
    if (lane->desynced && lane->state == LANE_READY &&
        now_us - lane->ready_us >= clock_ms_to_us(lane->settings->reconnect_max)) {
        lane->desynced = false;
        lane->failures = 0;
    }
}

void lane_expire(struct lane *lane)
{
    expire_runs(lane, INT64_MAX);
}

/* Redis is paused, or runs a slow script: what waits on a connection that stands is answered when it goes on. */
static bool is_silent_for_too_long(const struct lane *lane, int64_t now)
{
    int64_t timeout = clock_ms_to_us(lane->settings->reply_timeout);

    return timeout > 0 && now - lane->progress_us >= timeout;
}

void lane_tick(struct lane *lane, int64_t wait_ms)
{
    int64_t now = reactor_now(lane->reactor);

    forgive(lane, now);
    if (lane->state != LANE_READY && !lane->parked && !evtimer_pending(&lane->timer, NULL)) {
        /* There was no memory for it. */
        set_timer(lane, clock_ms_to_us(lane->settings->reconnect_max));
    }
    if (is_unanswered(lane)) {
        if (is_silent_for_too_long(lane, now)) {
            target_failed(lane, "no answer to the greeting within upstream_reply_timeout");
        }
        return;
    }
    if (lane->state != LANE_READY) {
        expire_runs(lane, now - clock_ms_to_us(wait_ms));
        return;
    }
    if (lane->first != NULL && lane->use == LANE_SHARED && is_silent_for_too_long(lane, now)) {
        log_write_about(LOG_LEVEL_ERROR, &(const struct log_subject){.lane = lane->id}, "lane",
                        "lane %llu: %s has not answered for %lld ms (upstream_reply_timeout); closing it",
                        (unsigned long long)lane->id, lane->settings->target_text,
                        (long long)lane->settings->reply_timeout);
        lane_break(lane, "no answer within upstream_reply_timeout");
    }
}
