/* What comes from Redis: it is read, taken apart into replies, and each is handed to the run that it answers. */
#include "upstream/lane_private.h"

#include <string.h>

static void run_was_answered(struct lane *lane, struct run *run)
{
    lane->link.is_near = lane->link.is_near || clock_now_us() - run->queued_us <= LANE_NEAR_US;
    if (run->receiver != NULL) {
        run->receiver->answered(run);
    } else {
        run_give(lane->runs, run);
    }
    lane_tell_quiet(lane);
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
    return lane->first != NULL && lane->first->expected == NULL && !lane->expects_pushes && !is_push(lane, data);
}

/* ---- measuring ---- */

/* The last reply of a run is told of by itself in any case. */
static struct run_tally begin_tally(const struct lane *lane, const struct run *run)
{
    return run->requests - run->answered == 1 ? (struct run_tally){.most = 1, .large = UINT64_MAX}
                                              : run->receiver->tally(run, lane->read_us);
}

static void tell_tally(const struct lane *lane, struct run *run, const struct run_tally *tally)
{
    if (tally->count > 0) {
        run->receiver->measured(run, tally, lane->read_us);
    }
}

static void renew_tally(const struct lane *lane, struct run *run, struct run_tally *tally)
{
    tell_tally(lane, run, tally);
    *tally = begin_tally(lane, run);
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

/* Whether the replies that are taken together end before this one: it is a push, or has to be looked at. */
static inline bool ends_plain(const struct lane *lane, const char *data, size_t position, bool follows)
{
    return is_push(lane, data + position) || (follows && position > 0 && lane_begins_error(lane, data + position));
}

/* The reply at hand has ended. */
static inline void count_answer(struct lane *lane, struct run *run, bool follows)
{
    if (follows && run->watched && run->receiver != NULL) {
        run->receiver->passed(run, lane_request_at_hand(lane, run));
    }
    run->answered++;
    lane->requests_waiting--;
    resp_reply_reset(&lane->reply);
}

/*
 * The fast path: replies of a plain run, up to its last or up to a push, without a look at any of them; on a lane that
 * follows redirects, up to an error. Returns the bytes that it dealt with. Twice in the program, so that lanes of a
 * lone Redis do not look at what only others need.
 */
__attribute__((always_inline)) static inline size_t take_run(struct lane *lane, const char *data, size_t length,
                                                             const bool follows)
{
    struct run *run = lane->first;
    bool measures = run->spans != NULL && run->receiver != NULL;
    struct run_tally tally = {0};
    const char *desync = NULL;
    size_t position = 0;

    if (measures) {
        tally = begin_tally(lane, run);
    }
    while (position < length && run->answered < run->requests && !ends_plain(lane, data, position, follows)) {
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
            count_answer(lane, run, follows);
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
        run_was_answered(lane, lane_queue_pop(lane));
    }
    return position;
}

static size_t take_plain(struct lane *lane, const char *data, size_t length)
{
    return take_run(lane, data, length, false);
}

static size_t take_plain_followed(struct lane *lane, const char *data, size_t length)
{
    return take_run(lane, data, length, true);
}

/* A frame has ended on a lane where frames must be looked at: decide what it was. */
static void frame_ended(struct lane *lane)
{
    struct run *run = lane->first;
    bool counts = run != NULL && lane->reply.type != '>';

    if (run != NULL && run->expected != NULL && run->receiver != NULL) {
        counts = run->receiver->reply(run, &lane->reply);
    } else if (run == NULL || lane->expects_pushes || lane->reply.type == '>') {
        counts = !lane->owner_events->frame(lane->owner, &lane->reply) && counts;
    }
    if (lane->state != LANE_READY || !counts) {
        return;
    }
    if (run->spans != NULL && run->receiver != NULL) {
        struct run_tally tally = {.most = 1, .large = UINT64_MAX};
        count_reply(lane, run, &tally);
        tell_tally(lane, run, &tally);
    }
    if (lane->follows && run->watched && run->receiver != NULL) {
        run->receiver->passed(run, lane_request_at_hand(lane, run));
    }
    run->answered++;
    lane->requests_waiting--;
    if (run->answered == run->requests) {
        run_was_answered(lane, lane_queue_pop(lane));
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

static size_t take_some(struct lane *lane, const char *data, size_t length)
{
    return lane_is_unwanted_push(lane, data) ? lane_drop_push(lane, data, length)
           : is_plain(lane, data)            ? take_plain(lane, data, length)
                                             : take_frame(lane, data, length);
}

/* Redirected: what is left of the run may be nothing. */
static void end_empty_run(struct lane *lane)
{
    if (lane->state == LANE_READY && lane->first != NULL && lane->first->requests == 0) {
        run_was_answered(lane, lane_queue_pop(lane));
    }
}

/* The same as take_some() on a lane that follows redirects; 0: the rest of an error has to come first. */
static size_t take_followed(struct lane *lane, const char *data, size_t length)
{
    if (lane_is_unwanted_push(lane, data)) {
        return lane_drop_push(lane, data, length);
    }
    if (lane_begins_error(lane, data)) {
        size_t error = lane_error_length(data, length);
        if (error > 0 && lane_is_redirected(lane, (struct slice){data, error})) {
            end_empty_run(lane);
            return error;
        }
        length = error;
    }
    if (length == 0) {
        return 0;
    }
    return is_plain(lane, data) ? take_plain_followed(lane, data, length) : take_frame(lane, data, length);
}

/* Returns the bytes that are to be read again with what follows. */
static size_t take_replies(struct lane *lane, const char *data, size_t length)
{
    lane->progress_us = reactor_now(lane->reactor);
    while (length > 0 && lane->state == LANE_READY) {
        if (lane->raw && lane->first == NULL && lane->owner != NULL) {
            lane->owner_events->bytes(lane->owner, data, length);
            return 0;
        }
        lane->reply.keep_head = false;
        size_t taken = lane->follows ? take_followed(lane, data, length) : take_some(lane, data, length);
        if (taken == 0 && lane->follows) {
            return length;
        }
        data += taken;
        length -= taken;
    }
    return 0;
}

/* ---- reading ---- */

/* What was kept of an error is in front of what was read; what is left of it now is kept again. */
static void take_read(struct lane *lane, const char *data, size_t length)
{
    size_t left = take_replies(lane, data, length);

    if (!lane->follows) {
        return;
    }
    buffer_clear(&lane->reactor->buffers, &lane->unread);
    if (lane->state == LANE_READY && left > 0 &&
        !buffer_append(&lane->reactor->buffers, &lane->unread, data + length - left, left)) {
        lane_break(lane, "out of memory");
    }
    lane_forget_answered(lane);
}

static inline void lane_read(struct lane *lane)
{
    char *scratch = lane->reactor->scratch;
    size_t kept = lane->follows ? lane_recall(lane, scratch) : 0;
    ssize_t got = connection_read(&lane->connection, scratch + kept, REACTOR_SCRATCH_SIZE - kept);
    if (got == CONNECTION_AGAIN && !lane->link.takes_nothing) {
        return;
    }
    if (got <= 0) {
        lane_unheard(lane, got == CONNECTION_AGAIN ? lane->why
                           : got == 0              ? "Redis closed the connection"
                                                   : connection_why(&lane->connection));
        return;
    }
    if (lane->link.takes_nothing) {
        reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
    }
    lane->read_us = reactor_read_time(lane->reactor);
    stats_add(lane->settings->stats, STATS_UPSTREAM_READS, 1);
    stats_add(lane->settings->stats, STATS_UPSTREAM_BYTES_IN, (uint64_t)got);
    if (lane->settings->wants_master && memmem(scratch, (size_t)got, "-READONLY ", 10) != NULL) {
        lane->events->readonly(lane);
    }
    if (lane->state == LANE_HANDSHAKE) {
        lane_take_greeting(lane, scratch, (size_t)got);
    } else {
        take_read(lane, scratch, kept + (size_t)got);
    }
}

/* Clients may borrow the bytes of their replies from the scratch memory, so they are written before it is used again.
 */
void lane_take_task(struct reactor_task *task)
{
    struct lane *lane = (struct lane *)(void *)((char *)task - offsetof(struct lane, take));

    lane_read(lane);
    reactor_settle_stage(lane->reactor, REACTOR_STAGE_CLIENTS);
}
