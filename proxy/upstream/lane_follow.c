/*
 * Lanes to the nodes of a cluster. What was sent may be answered by a redirect, and has to be sent elsewhere then: so
 * its bytes are kept until it was answered, in the order of the stream. An ordinary request costs nothing by that: what
 * a write took is copied as a whole, what a read has answered is dropped as a whole, and a request is found only when
 * it is needed, by framing its run again.
 */
#include "upstream/lane_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool lane_keep_sent(struct lane *lane, size_t length)
{
    if (lane->first == NULL) {
        /* Requests without replies: they cannot be redirected, and nothing would have them forgotten. */
        buffer_clear(&lane->reactor->buffers, &lane->sent);
        return true;
    }
    if (buffer_length(&lane->sent) == 0) {
        lane->sent_from = lane->written;
    }
    assert(lane->sent_from + buffer_length(&lane->sent) == lane->written);
    bool is_kept = buffer_append(&lane->reactor->buffers, &lane->sent, buffer_head(&lane->output), length);
    lane->was_congested = lane->was_congested || buffer_length(&lane->sent) > LANE_SENT_MARK;
    return is_kept;
}

void lane_forget_answered(struct lane *lane)
{
    bool is_unsent = lane->first == NULL || lane->first->first_byte > lane->written;
    uint64_t needed = is_unsent ? lane->written : lane->first->first_byte;

    if (buffer_length(&lane->sent) > 0 && needed > lane->sent_from) {
        buffer_consume(&lane->reactor->buffers, &lane->sent, (size_t)(needed - lane->sent_from));
        lane->sent_from = needed;
    }
    lane_note_relief(lane);
}

void lane_forget_sent(struct lane *lane)
{
    buffer_clear(&lane->reactor->buffers, &lane->sent);
    buffer_clear(&lane->reactor->buffers, &lane->unread);
}

/* Takes the first request off. It is empty if that is not there whole: Redis may answer before it has read all. */
static struct slice take_request(struct slice *bytes)
{
    struct resp_command command = {0};
    size_t taken;
    bool is_whole =
        bytes->length > 0 && resp_command_feed(&command, bytes->data, bytes->length, UINT64_MAX, &taken) == RESP_DONE;
    struct slice request = {bytes->data, is_whole ? taken : 0};

    if (request.length > 0) {
        bytes->data += request.length;
        bytes->length -= request.length;
    }
    return request;
}

/* The run's bytes, as far as they were written. */
static struct slice bytes_of(const struct lane *lane, const struct run *run)
{
    if (run->first_byte < lane->sent_from || run->first_byte >= lane->written) {
        return (struct slice){0};
    }
    size_t start = (size_t)(run->first_byte - lane->sent_from);
    size_t there = buffer_length(&lane->sent) - start;

    return (struct slice){buffer_head(&lane->sent) + start, run->length < there ? (size_t)run->length : there};
}

struct slice lane_request_at_hand(const struct lane *lane, const struct run *run)
{
    struct slice bytes = bytes_of(lane, run);
    struct slice request = {0};

    for (uint32_t i = 0; i <= run->answered; i++) {
        request = take_request(&bytes);
    }
    return request;
}

size_t lane_recall(struct lane *lane, char *scratch)
{
    size_t length = buffer_length(&lane->unread);

    if (length > 0) {
        memcpy(scratch, buffer_head(&lane->unread), length);
    }
    return length;
}

size_t lane_error_length(const char *data, size_t length)
{
    const char *end = memchr(data, '\n', length);

    /* A line that long is none of those that matter. */
    return end != NULL ? (size_t)(end - data) + 1 : length > RESP_LINE_MAX ? length : 0;
}

bool lane_is_redirected(struct lane *lane, struct slice error)
{
    struct run *run = lane->first;

    if (run->receiver == NULL || run->receiver->redirected == NULL || run->requests == 0) {
        return false;
    }
    struct slice request = lane_request_at_hand(lane, run);
    if (request.length == 0) {
        return false;
    }
    size_t behind = (size_t)(request.data + request.length - bytes_of(lane, run).data);
    if (!run->receiver->redirected(run, error, request)) {
        return false;
    }
    if (lane->first == run) {
        run->first_byte += behind;
        run->length -= behind;
        run->requests -= run->answered + 1;
        run->answered = 0;
        lane->requests_waiting--;
    }
    return true;
}

/* ---- the end of a lane that gives back ---- */

void lane_run_was_lost(struct lane *lane, struct run *run, enum run_loss loss, const char *why)
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

/* The bytes of the lane's first run, which may have been written in part: then they are put together, in *copy. False
 * when memory is short. */
static bool gather(const struct lane *lane, const struct run *run, char **copy, struct slice *bytes)
{
    struct slice written = bytes_of(lane, run);
    size_t left = (size_t)run->length - written.length;
    uint64_t behind = run->first_byte > lane->written ? run->first_byte - lane->written : 0;

    *copy = NULL;
    if (left == 0) {
        *bytes = written;
        return true;
    }
    const char *rest = buffer_head(&lane->output) + behind;
    if (written.length == 0) {
        *bytes = (struct slice){rest, left};
        return true;
    }
    *copy = malloc((size_t)run->length);
    if (*copy == NULL) {
        return false;
    }
    memcpy(*copy, written.data, written.length);
    memcpy(*copy + written.length, rest, left);
    *bytes = (struct slice){*copy, (size_t)run->length};
    return true;
}

static void give_back_first(struct lane *lane, bool is_within, const char *why)
{
    struct run *run = lane->first;
    bool may_return = run->receiver != NULL && run->receiver->returned != NULL && !is_within;
    char *copy = NULL;
    struct slice bytes;

    may_return = may_return && gather(lane, run, &copy, &bytes);
    for (uint32_t i = 0; may_return && i < run->answered; i++) {
        (void)take_request(&bytes);
    }
    (void)lane_queue_pop(lane);
    if (may_return) {
        run->receiver->returned(run, bytes);
    } else {
        lane_run_was_lost(lane, run, run->first_byte >= lane->written ? RUN_UNSENT : RUN_LOST, why);
    }
    free(copy);
}

void lane_give_back_all(struct lane *lane, const char *why)
{
    /* The first has a part of its reply, which may have gone out. */
    bool is_within = lane_is_within_frame(lane);

    if (!lane->settings->gives_back || lane->giving_back) {
        return;
    }
    lane->giving_back = true;
    while (lane->first != NULL) {
        give_back_first(lane, is_within, why);
        is_within = false;
    }
    buffer_clear(&lane->reactor->buffers, &lane->output);
    lane->written = lane->appended;
    lane->giving_back = false;
}
