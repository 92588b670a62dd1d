/* What goes to Redis: requests that are sent, and when they are written. */
#include "upstream/lane_private.h"

#include <assert.h>
#include <stdio.h>

/* Requests are held until there are so many: more make a write no cheaper. */
#define LANE_BATCH 64
/* Redis reads no more at once. Bytes. */
#define LANE_BATCH_BYTES ((size_t)16 * 1024)
/* A Redis that has said nothing for so long is busy, or hangs: others are not to be late for it. µs */
#define LANE_SILENCE_US 5000

void lane_want_flush(struct lane *lane)
{
    if (lane->state == LANE_READY) {
        reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REQUESTS, &lane->flush);
    }
}

static bool append_output(struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    if (!buffer_append(&lane->reactor->buffers, &lane->output, data, length)) {
        return false;
    }
    lane->appended += length;
    lane->gathered += requests;
    lane->used_us = reactor_now(lane->reactor);
    if (lane_is_congested(lane)) {
        lane->was_congested = true;
    }
    lane_want_flush(lane);
    return true;
}

bool lane_send(struct lane *lane, struct run *run, const char *data, size_t length)
{
    assert(lane->state != LANE_CLOSED && run->requests > 0);
    run->first_byte = lane->appended;
    run->length = length;
    run->queued_us = reactor_now(lane->reactor);
    if (!append_output(lane, data, length, run->requests)) {
        return false;
    }
    run->lane = lane;
    lane_queue_append(lane, run);
    lane->requests_waiting += run->requests;
    return true;
}

bool lane_extend(struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    struct run *run = lane->last;

    assert(lane->state != LANE_CLOSED && run->first_byte + run->length == lane->appended);
    if (!append_output(lane, data, length, requests)) {
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
    return append_output(lane, data, length, 0);
}

ssize_t lane_pull_silent(struct lane *lane, struct connection *from, size_t most)
{
    struct reactor *reactor = lane->reactor;
    size_t left;

    if (lane->state != LANE_READY || buffer_length(&lane->output) > 0 || lane->follows) {
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
        lane_want_flush(lane);
    }
    return taken;
}

void lane_end_stream_when_written(struct lane *lane)
{
    if (lane->ending && buffer_length(&lane->output) == 0 && lane->state == LANE_READY) {
        connection_end_output(&lane->connection);
    }
}

void lane_end_output(struct lane *lane)
{
    assert(lane->use == LANE_EXCLUSIVE);
    lane->ending = true;
    lane->dirty = true;
    lane_end_stream_when_written(lane);
}

void lane_flush(struct lane *lane)
{
    size_t length = buffer_length(&lane->output);

    if (lane->state != LANE_READY || length == 0 || lane->link.takes_nothing) {
        return;
    }
    /* Forgotten bit by bit; a long pipeline is no larger crowd. */
    lane->crowd -= lane->crowd > 0;
    lane->crowd = lane->requests_waiting > lane->crowd ? lane->requests_waiting : lane->crowd;
    lane->crowd = lane->crowd > LANE_BATCH ? LANE_BATCH : lane->crowd;
    lane->batch = lane->gathered;
    lane->gathered = 0;
    ssize_t done = connection_write(&lane->connection, buffer_head(&lane->output), length);
    stats_add(lane->settings->stats, STATS_UPSTREAM_WRITES, 1);
    if (done == CONNECTION_BROKEN) {
        /* Redis may have said why, and closes a connection that it refuses before all of it has come. */
        lane->link.takes_nothing = true;
        snprintf(lane->why, sizeof lane->why, "%s", connection_why(&lane->connection));
        connection_want_write(&lane->connection, false);
        reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
        return;
    }
    if (done > 0 && lane->follows && !lane_keep_sent(lane, (size_t)done)) {
        lane_break(lane, "out of memory");
        return;
    }
    if (done > 0) {
        stats_add(lane->settings->stats, STATS_UPSTREAM_BYTES_OUT, (uint64_t)done);
        buffer_consume(&lane->reactor->buffers, &lane->output, (size_t)done);
        lane->written += (uint64_t)done;
    }
    connection_want_write(&lane->connection, buffer_length(&lane->output) > 0);
    lane_end_stream_when_written(lane);
    lane_note_relief(lane);
    if (buffer_length(&lane->output) == 0) {
        /* Silent requests are answered by nothing that would tell. */
        lane_tell_quiet(lane);
    }
}

/*
 * Redis takes in one go what it finds on a connection, and answers it in one go. While it has one batch at hand and the
 * next one lies there, a further write buys little but wakes it more often. So what is gathered then is held for one
 * turn, which begins with a doze: it ends with an answer, or soon, and clients do not wake it one by one. A batch is
 * what comes in meanwhile, and grows with the load by itself. Not where few wait, or Redis is far: it would be felt.
 */
static bool is_to_be_held(const struct lane *lane)
{
    return lane->requests_waiting > lane->batch + lane->gathered && lane->use == LANE_SHARED && lane->link.is_near &&
           lane->crowd >= LANE_CROWD && lane->gathered < LANE_BATCH &&
           buffer_length(&lane->output) < LANE_BATCH_BYTES && !lane->take.queued &&
           reactor_now(lane->reactor) - lane->progress_us < LANE_SILENCE_US;
}

void lane_flush_task(struct reactor_task *task)
{
    struct lane *lane = (struct lane *)(void *)((char *)task - offsetof(struct lane, flush));

    if (lane->hold == LANE_HELD) {
        lane->hold = LANE_DUE;
        lane_want_flush(lane);
    } else if (lane->hold == LANE_FREE && lane->state == LANE_READY && is_to_be_held(lane)) {
        lane->hold = LANE_HELD;
        stats_add(lane->settings->stats, STATS_LANE_HOLDS, 1);
        reactor_at_turn_end(lane->reactor, REACTOR_STAGE_HELD, &lane->flush);
    } else {
        lane->hold = LANE_FREE;
        lane_flush(lane);
    }
}
