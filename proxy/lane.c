#include "lane.h"

#include "log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lane_connect(struct lane *lane);

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

static void lane_move(struct lane *lane, enum lane_state state)
{
    assert(lane->state != LANE_CLOSED);
    lane->state = state;
}

/* ---- the queue of runs ---- */

static void queue_append(struct lane *lane, struct run *run)
{
    run->lane_next = NULL;
    if (lane->first == NULL) {
        lane->first = run;
        lane->progress_us = reactor_now(lane->reactor);
    } else {
        lane->last->lane_next = run;
    }
    lane->last = run;
}

static struct run *queue_pop(struct lane *lane)
{
    struct run *run = lane->first;

    lane->first = run->lane_next;
    if (lane->first == NULL) {
        lane->last = NULL;
    }
    run->lane_next = NULL;
    run->lane = NULL;
    lane->requests_waiting -= run->requests - run->answered;
    return run;
}

static void run_was_answered(struct lane *lane, struct run *run)
{
    if (run->receiver != NULL) {
        run->receiver->answered(run);
    } else {
        run_give(lane->runs, run);
    }
}

static void run_was_lost(struct lane *lane, struct run *run, enum run_loss loss, const char *why)
{
    if (run->receiver != NULL) {
        if (loss == RUN_LOST) {
            stats_add(lane->settings->stats, STATS_REQUESTS_LOST, run->requests - run->answered);
        }
        run->receiver->lost(run, loss, why);
    } else {
        run_give(lane->runs, run);
    }
}

static bool run_is_unsent(const struct lane *lane, const struct run *run)
{
    return run->first_byte >= lane->written;
}

/* ---- congestion ---- */

static void waiter_push(struct lane_waiter **first, struct lane_waiter *waiter)
{
    assert(waiter->link == NULL);
    waiter->next = *first;
    waiter->link = first;
    if (waiter->next != NULL) {
        waiter->next->link = &waiter->next;
    }
    *first = waiter;
}

void lane_await(struct lane *lane, struct lane_waiter *waiter)
{
    waiter_push(&lane->waiters, waiter);
}

void lane_waiter_cancel(struct lane_waiter *waiter)
{
    if (waiter->link == NULL) {
        return;
    }
    *waiter->link = waiter->next;
    if (waiter->next != NULL) {
        waiter->next->link = waiter->link;
    }
    waiter->link = NULL;
}

/* In the order in which they came, so that nobody waits longer than others. */
static void wake_waiters(struct lane *lane)
{
    struct lane_waiter *first = NULL;

    while (lane->waiters != NULL) {
        struct lane_waiter *waiter = lane->waiters;
        lane_waiter_cancel(waiter);
        waiter_push(&first, waiter);
    }
    while (first != NULL) {
        struct lane_waiter *waiter = first;
        lane_waiter_cancel(waiter);
        waiter->wake(waiter);
    }
}

/* To be called when there may be less output than before. */
static void note_relief(struct lane *lane)
{
    if (!lane->was_congested || lane_is_congested(lane)) {
        return;
    }
    lane->was_congested = false;
    wake_waiters(lane);
    if (lane->owner != NULL) {
        lane->owner_events->writable(lane->owner);
    }
}

/* ---- what happens when a lane breaks ---- */

static void lose_sent_runs(struct lane *lane, const char *why)
{
    while (lane->first != NULL && !run_is_unsent(lane, lane->first)) {
        run_was_lost(lane, queue_pop(lane), RUN_LOST, why);
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
        run_was_lost(lane, queue_pop(lane), RUN_UNSENT, why);
    }
    buffer_clear(&lane->reactor->buffers, &lane->output);
    lane->written = lane->appended;
}

/*
 * Leaves in the output just the bytes of the runs that are still waiting and have an owner, in order, as the stream of
 * the next connection. Called with only unsent runs in the queue.
 */
static bool keep_unsent_runs(struct lane *lane)
{
    struct buffer kept = {0};
    struct run *run = lane->first;
    uint64_t position = 0;
    bool whole = true;

    lane->first = NULL;
    lane->last = NULL;
    lane->requests_waiting = 0;
    while (run != NULL) {
        struct run *next = run->lane_next;
        if (run->receiver == NULL) {
            run->lane = NULL;
            run_give(lane->runs, run);
        } else {
            const char *bytes = buffer_head(&lane->output) + (run->first_byte - lane->written);
            whole = buffer_append(&lane->reactor->buffers, &kept, bytes, run->length) && whole;
            run->first_byte = position;
            position += run->length;
            queue_append(lane, run);
            lane->requests_waiting += run->requests;
        }
        run = next;
    }
    buffer_clear(&lane->reactor->buffers, &lane->output);
    lane->output = kept;
    lane->appended = position;
    lane->written = 0;
    return whole;
}

static void stop_connection(struct lane *lane)
{
    connection_close(&lane->connection);
    event_del(&lane->timer);
    reactor_cancel(lane->reactor, REACTOR_STAGE_REQUESTS, &lane->flush);
    reactor_cancel(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
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
    stop_connection(lane);
    lane_move(lane, LANE_CLOSED);
    lane->owner = NULL;
    lose_sent_runs(lane, why);
    fail_unsent_runs(lane, why);
    wake_waiters(lane);
    lane->events->closed(lane, why);
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
    back_off(lane, why);
    lane->events->failed(lane, why);
}

/* A ready lane broke: what was sent is lost, what was not sent waits, if the lane may come back. */
static void lane_break(struct lane *lane, const char *why)
{
    if (lane->state == LANE_CONNECTING || lane->state == LANE_HANDSHAKE) {
        attempt_failed(lane, why);
        return;
    }
    stats_add(lane->settings->stats, STATS_LANES_LOST, 1);
    lane->events->broken(lane, why, count_sent_requests(lane));
    if (lane->use == LANE_SHARED) {
        back_off(lane, why);
        lose_sent_runs(lane, why);
        if (lane->state != LANE_CLOSED && !keep_unsent_runs(lane)) {
            fail_unsent_runs(lane, "out of memory");
        }
        note_relief(lane);
        return;
    }
    const struct lane_owner *events = lane->owner_events;
    void *owner = lane->owner;
    lane_close(lane, why);
    if (owner != NULL) {
        events->broken(owner, why);
    }
}

void lane_fail(struct lane *lane, const char *why)
{
    if (lane->state != LANE_CLOSED) {
        lane->untidy = true;
        lane_break(lane, why);
    }
}

/* Bytes that cannot be anybody's reply: nothing that follows can be trusted. */
static void lane_desync(struct lane *lane, const char *why)
{
    stats_add(lane->settings->stats, STATS_LANES_DESYNCED, 1);
    /* An attempt to connect that failed so is repeated, and logged by who is told of it. */
    if (lane->state == LANE_READY) {
        log_error("lane", "lane %llu to %s: %s; closing it", (unsigned long long)lane->id, lane->settings->target_text,
                  why);
    }
    lane_break(lane, why);
}

/* ---- sending ---- */

static void want_flush(struct lane *lane)
{
    if (lane->state == LANE_READY) {
        reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REQUESTS, &lane->flush);
    }
}

static bool append_output(struct lane *lane, const char *data, size_t length)
{
    if (!buffer_append(&lane->reactor->buffers, &lane->output, data, length)) {
        return false;
    }
    lane->appended += length;
    lane->used_us = reactor_now(lane->reactor);
    if (lane_is_congested(lane)) {
        lane->was_congested = true;
    }
    want_flush(lane);
    return true;
}

bool lane_send(struct lane *lane, struct run *run, const char *data, size_t length)
{
    assert(lane->state != LANE_CLOSED && run->requests > 0);
    run->first_byte = lane->appended;
    run->length = length;
    run->queued_us = reactor_now(lane->reactor);
    if (!append_output(lane, data, length)) {
        return false;
    }
    run->lane = lane;
    queue_append(lane, run);
    lane->requests_waiting += run->requests;
    return true;
}

bool lane_extend(struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    struct run *run = lane->last;

    assert(lane->state != LANE_CLOSED && run->first_byte + run->length == lane->appended);
    if (!append_output(lane, data, length)) {
        return false;
    }
    run->length += length;
    run->requests += requests;
    lane->requests_waiting += requests;
    return true;
}

bool lane_send_silent(struct lane *lane, const char *data, size_t length)
{
    assert(lane->use == LANE_EXCLUSIVE && lane->state != LANE_CLOSED);
    return append_output(lane, data, length);
}

ssize_t lane_pull_silent(struct lane *lane, struct connection *from, size_t most)
{
    struct reactor *reactor = lane->reactor;
    size_t left;

    if (lane->state != LANE_READY || buffer_length(&lane->output) > 0) {
        return 0;
    }
    ssize_t taken = connection_pull(from, &lane->connection, most, &left);
    if (taken <= 0) {
        return taken;
    }
    lane->used_us = reactor_now(reactor);
    lane->appended += (uint64_t)taken;
    lane->written += (uint64_t)taken - left;
    stats_add(lane->settings->stats, STATS_UPSTREAM_WRITES, 1);
    stats_add(lane->settings->stats, STATS_UPSTREAM_BYTES_OUT, (uint64_t)taken - left);
    if (left > 0 && !splice_fetch(&reactor->splice, &reactor->buffers, &lane->output, left)) {
        lane_fail(lane, "out of memory");
    } else if (left > 0) {
        lane->was_congested = lane->was_congested || lane_is_congested(lane);
        want_flush(lane);
    }
    return taken;
}

static void end_stream_when_written(struct lane *lane)
{
    if (lane->ending && buffer_length(&lane->output) == 0 && lane->state == LANE_READY) {
        shutdown(lane->connection.fd, SHUT_WR);
    }
}

void lane_end_output(struct lane *lane)
{
    assert(lane->use == LANE_EXCLUSIVE);
    lane->ending = true;
    lane->untidy = true;
    end_stream_when_written(lane);
}

static void lane_flush(struct lane *lane)
{
    size_t length = buffer_length(&lane->output);

    if (lane->state != LANE_READY || length == 0) {
        return;
    }
    ssize_t done = connection_write(&lane->connection, buffer_head(&lane->output), length);
    stats_add(lane->settings->stats, STATS_UPSTREAM_WRITES, 1);
    if (done == CONNECTION_BROKEN) {
        lane_break(lane, strerror(errno));
        return;
    }
    if (done > 0) {
        stats_add(lane->settings->stats, STATS_UPSTREAM_BYTES_OUT, (uint64_t)done);
        buffer_consume(&lane->reactor->buffers, &lane->output, (size_t)done);
        lane->written += (uint64_t)done;
    }
    connection_want_write(&lane->connection, buffer_length(&lane->output) > 0);
    end_stream_when_written(lane);
    note_relief(lane);
}

static void lane_flush_task(struct reactor_task *task)
{
    lane_flush((struct lane *)(void *)((char *)task - offsetof(struct lane, flush)));
}

/* ---- the greeting ---- */

static void lane_now_ready(struct lane *lane)
{
    event_del(&lane->timer);
    lane_move(lane, LANE_READY);
    lane->failures = 0;
    lane->progress_us = reactor_now(lane->reactor);
    connection_want_read(&lane->connection, !lane->paused);
    want_flush(lane);
    end_stream_when_written(lane);
    lane->events->ready(lane);
    if (lane->owner != NULL) {
        lane->owner_events->writable(lane->owner);
    }
}

static bool head_starts(const struct resp_reply *reply, const char *text)
{
    size_t length = strlen(text);

    return reply->head_length >= length && memcmp(reply->head, text, length) == 0;
}

/* What Redis says, unasked, to a connection that it does not take. */
static bool is_unwelcome(const struct lane *lane)
{
    return head_starts(&lane->reply, "-ERR max number of clients") || head_starts(&lane->reply, "-DENIED");
}

static bool ping_was_refused(const struct lane *lane)
{
    return head_starts(&lane->reply, "-NOAUTH") && lane->greeting.password_known;
}

static void greeting_refused(struct lane *lane)
{
    char why[sizeof lane->why];

    snprintf(why, sizeof why, "Redis answered %.*s", (int)resp_reply_head_line(&lane->reply), lane->reply.head);
    lane_break(lane, why);
}

/* One reply to the greeting has ended. */
static void greeting_answered(struct lane *lane)
{
    bool is_ping = lane->greeting.has_tail && lane->greetings_left == 1;
    bool is_naming = lane->greeting.has_tail && lane->greetings_left == 2;
    bool refused = is_ping ? ping_was_refused(lane) : !is_naming && lane->reply.type == '-';

    if (refused || is_unwelcome(lane)) {
        greeting_refused(lane);
        return;
    }
    if (is_naming) {
        lane->named = lane->reply.type != '-';
    }
    if (is_ping && head_starts(&lane->reply, "-NOAUTH")) {
        lane->events->needs_password(lane);
        return;
    }
    resp_reply_reset(&lane->reply);
    lane->greetings_left--;
    if (lane->greetings_left == 0) {
        lane->reply.keep_head = false;
        lane_now_ready(lane);
    }
}

static void take_greeting(struct lane *lane, const char *data, size_t length)
{
    while (length > 0 && lane->state == LANE_HANDSHAKE) {
        size_t taken;
        enum resp_status status = resp_reply_feed(&lane->reply, data, length, &taken);
        if (status == RESP_FAULT) {
            lane_desync(lane, "Redis answered the greeting with bytes that are not RESP");
            return;
        }
        data += taken;
        length -= taken;
        if (status == RESP_DONE) {
            greeting_answered(lane);
        }
    }
    if (length > 0 && lane->state == LANE_READY) {
        lane_desync(lane, "Redis answered more than it was asked");
    }
}

static void greet(struct lane *lane)
{
    const struct lane_greeting *greeting = &lane->greeting;

    if (greeting->replies == 0) {
        lane_now_ready(lane);
        return;
    }
    lane_move(lane, LANE_HANDSHAKE);
    lane->greetings_left = greeting->replies;
    lane->reply.keep_head = true;
    /* A fresh socket takes a few hundred bytes whole, or it is broken. */
    if (connection_write(&lane->connection, greeting->bytes, greeting->length) != (ssize_t)greeting->length) {
        lane_break(lane, "the greeting could not be written");
    }
}

/* ---- receiving ---- */

/* Hands over the bytes of replies of the first run, or of nobody. */
static void hand_over(struct lane *lane, const char *data, size_t length)
{
    struct run *run = lane->first;

    if (length == 0) {
        return;
    }
    if (run == NULL || lane->reply.type == '>') {
        lane->owner_events->bytes(lane->owner, data, length);
    } else {
        run->reply_bytes += length;
        if (run->receiver != NULL) {
            run->receiver->bytes(run, data, length);
        }
    }
}

/* Whether the frame that data goes on with, or begins, is a push. */
static bool is_push(const struct lane *lane, const char *data)
{
    return (resp_reply_idle(&lane->reply) ? *data : lane->reply.type) == '>';
}

/* Whether the next bytes answer a run of whose replies only the ends matter. */
static bool is_plain(const struct lane *lane, const char *data)
{
    return lane->first != NULL && lane->first->observation == NULL && !lane->expects_pushes && !is_push(lane, data);
}

/* ---- measuring ---- */

static void tell_tally(const struct lane *lane, struct run *run, const struct run_tally *tally)
{
    if (tally->count > 0) {
        run->receiver->measured(run, tally, lane->read_us);
    }
}

static void renew_tally(const struct lane *lane, struct run *run, struct run_tally *tally)
{
    tell_tally(lane, run, tally);
    *tally = run->receiver->tally(run, lane->read_us);
}

/* The reply at hand has ended. */
static inline void count_reply(const struct lane *lane, struct run *run, struct run_tally *tally)
{
    const struct resp_reply *reply = &lane->reply;
    bool is_large = reply->size >= tally->large;

    if (tally->count > 0 && (is_large || tally->count >= tally->most)) {
        renew_tally(lane, run, tally);
    }
    tally->count++;
    tally->errors += reply->type == '-' || reply->type == '!';
    tally->bytes += reply->size;
    if (is_large) {
        tally->most = 1;
    }
}

/* ---- taking replies apart ---- */

/*
 * The fast path: replies of a plain run, up to its last or up to a push, without a look at any of them. Returns the
 * bytes that it dealt with.
 */
static size_t take_plain(struct lane *lane, const char *data, size_t length)
{
    struct run *run = lane->first;
    bool measures = run->measured && run->receiver != NULL;
    struct run_tally tally = {0};
    const char *desync = NULL;
    size_t position = 0;

    if (measures) {
        tally = run->receiver->tally(run, lane->read_us);
    }
    while (position < length && run->answered < run->requests && !is_push(lane, data + position)) {
        size_t taken;
        enum resp_status status = resp_reply_feed(&lane->reply, data + position, length - position, &taken);
        if (status == RESP_FAULT || lane->reply.type == '>') {
            desync =
                status == RESP_FAULT ? "Redis sent bytes that are not RESP" : "Redis sent a push with an attribute";
            break;
        }
        position += taken;
        if (status == RESP_DONE) {
            if (measures) {
                count_reply(lane, run, &tally);
            }
            run->answered++;
            lane->requests_waiting--;
            resp_reply_reset(&lane->reply);
        }
    }
    if (measures) {
        tell_tally(lane, run, &tally);
    }
    if (desync != NULL) {
        lane_desync(lane, desync);
        return length;
    }
    run->reply_bytes += position;
    if (run->receiver != NULL) {
        run->receiver->bytes(run, data, position);
    }
    if (lane->first == run && run->answered == run->requests) {
        run_was_answered(lane, queue_pop(lane));
    }
    return position;
}

/* A frame has ended on a lane where frames must be looked at: decide what it was. */
static void frame_ended(struct lane *lane)
{
    struct run *run = lane->first;
    bool counts = run != NULL && lane->reply.type != '>';

    if (run != NULL && run->observation != NULL && run->receiver != NULL) {
        counts = run->receiver->reply(run, &lane->reply);
    } else if (run == NULL || lane->expects_pushes || lane->reply.type == '>') {
        counts = !lane->owner_events->frame(lane->owner, &lane->reply) && counts;
    }
    if (lane->state != LANE_READY || !counts) {
        return;
    }
    if (run->measured && run->receiver != NULL) {
        struct run_tally tally = {.most = 1, .large = UINT64_MAX};
        count_reply(lane, run, &tally);
        tell_tally(lane, run, &tally);
    }
    run->answered++;
    lane->requests_waiting--;
    if (run->answered == run->requests) {
        run_was_answered(lane, queue_pop(lane));
    }
}

/* One frame, or what there is of it. Returns the bytes that it dealt with. */
static size_t take_frame(struct lane *lane, const char *data, size_t length)
{
    size_t taken;

    if (lane->owner == NULL && (lane->first == NULL || is_push(lane, data))) {
        lane_desync(lane, "Redis sent bytes that answer no request");
        return length;
    }
    lane->reply.keep_head = true;
    enum resp_status status = resp_reply_feed(&lane->reply, data, length, &taken);
    if (status == RESP_FAULT) {
        lane_desync(lane, "Redis sent bytes that are not RESP");
        return length;
    }
    if (lane->owner == NULL && lane->reply.type == '>') {
        lane_desync(lane, "Redis sent a push with an attribute");
        return length;
    }
    hand_over(lane, data, taken);
    if (status == RESP_DONE && lane->state == LANE_READY) {
        frame_ended(lane);
        resp_reply_reset(&lane->reply);
    }
    return taken;
}

static void take_replies(struct lane *lane, const char *data, size_t length)
{
    lane->progress_us = reactor_now(lane->reactor);
    while (length > 0 && lane->state == LANE_READY) {
        if (lane->raw && lane->first == NULL && lane->owner != NULL) {
            lane->owner_events->bytes(lane->owner, data, length);
            return;
        }
        lane->reply.keep_head = false;
        size_t taken = is_plain(lane, data) ? take_plain(lane, data, length) : take_frame(lane, data, length);
        data += taken;
        length -= taken;
    }
}

static void lane_read(struct lane *lane)
{
    char *scratch = lane->reactor->scratch;
    ssize_t got = connection_read(&lane->connection, scratch, REACTOR_SCRATCH_SIZE);
    if (got == CONNECTION_AGAIN) {
        return;
    }
    if (got <= 0) {
        lane_break(lane, got == 0 ? "Redis closed the connection" : strerror(errno));
        return;
    }
    lane->read_us = reactor_read_time(lane->reactor);
    stats_add(lane->settings->stats, STATS_UPSTREAM_READS, 1);
    stats_add(lane->settings->stats, STATS_UPSTREAM_BYTES_IN, (uint64_t)got);
    if (lane->state == LANE_HANDSHAKE) {
        take_greeting(lane, scratch, (size_t)got);
    } else {
        take_replies(lane, scratch, (size_t)got);
    }
}

/* Clients may borrow the bytes of their replies from the scratch memory, so they are written before it is used again.
 */
static void lane_take_task(struct reactor_task *task)
{
    struct lane *lane = (struct lane *)(void *)((char *)task - offsetof(struct lane, take));

    lane_read(lane);
    reactor_settle_stage(lane->reactor, REACTOR_STAGE_CLIENTS);
}

static void lane_readable(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;

    (void)fd;
    (void)what;
    reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
}

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
    wake_waiters(lane);
}

/* ---- connecting ---- */

static void lane_writable(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;

    (void)what;
    if (lane->state != LANE_CONNECTING) {
        lane_flush(lane);
        return;
    }
    int outcome = connection_outcome(fd);
    if (outcome != 0) {
        lane_break(lane, strerror(outcome));
        return;
    }
    connection_want_write(&lane->connection, false);
    connection_want_read(&lane->connection, true);
    greet(lane);
}

static void lane_timer(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;

    (void)fd;
    (void)what;
    if (lane->state == LANE_BACKOFF) {
        lane_connect(lane);
    } else if (lane->state == LANE_CONNECTING) {
        attempt_failed(lane, "no answer within connect_timeout");
    } else if (lane->state == LANE_HANDSHAKE) {
        attempt_failed(lane, "no answer to the greeting within connect_timeout");
    }
}

static void lane_connect(struct lane *lane)
{
    int fd = connection_start(&lane->settings->target);

    lane_move(lane, LANE_CONNECTING);
    resp_reply_reset(&lane->reply);
    stats_add(lane->settings->stats, STATS_LANES_OPENED, 1);
    if (fd < 0) {
        attempt_failed(lane, strerror(errno));
        return;
    }
    connection_tune(fd, &lane->settings->tuning);
    connection_open(&lane->connection, lane->reactor, fd, lane_readable, lane_writable, lane);
    connection_want_write(&lane->connection, true);
    set_timer(lane, clock_ms_to_us(lane->settings->connect_timeout));
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

void lane_start(struct lane *lane, const struct lane_greeting *greeting)
{
    lane->greeting = *greeting;
    lane_connect(lane);
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
    struct run *run = queue_pop(lane);
    uint64_t end = run->first_byte + run->length;

    buffer_consume(&lane->reactor->buffers, &lane->output, (size_t)(end - lane->written));
    lane->written = end;
    note_relief(lane);
    run_was_lost(lane, run, RUN_UNSENT, lane->why);
}

static void expire_runs(struct lane *lane, int64_t queued_before_us)
{
    while (lane->state != LANE_CLOSED && lane->first != NULL && lane->first->queued_us <= queued_before_us) {
        expire_first_run(lane);
    }
}

void lane_tick(struct lane *lane, int64_t wait_ms)
{
    int64_t now = reactor_now(lane->reactor);
    int64_t timeout = clock_ms_to_us(lane->settings->reply_timeout);

    if (lane->first == NULL) {
        return;
    }
    if (lane->state != LANE_READY) {
        expire_runs(lane, now - clock_ms_to_us(wait_ms));
        return;
    }
    if (timeout > 0 && lane->use == LANE_SHARED && now - lane->progress_us >= timeout) {
        log_error("lane", "lane %llu: %s has not answered for %lld ms (upstream_reply_timeout); closing it",
                  (unsigned long long)lane->id, lane->settings->target_text, (long long)lane->settings->reply_timeout);
        lane_break(lane, "no answer within upstream_reply_timeout");
    }
}
