/*
 * Bytes in: they are read, and framed into requests, each of which goes its way (client_request.c).
 *
 * A request that has to wait (for earlier ones to be answered, for a lane, for a policy) stays at the head of the input
 * with everything behind it, so a client's requests take effect in the order in which they were sent.
 */
#include "client/client_private.h"

#include <errno.h>
#include <string.h>

/* Read from a client in one go: a deep pipeline, but not so much of a long payload that could be passed on. Bytes. */
#define READ_SIZE ((size_t)64 * 1024)

/* ---- taking requests ---- */

/* Frames what is there of the request at data. */
static enum resp_status frame_request(struct client *client, const char *data, size_t length)
{
    size_t scanned = (size_t)client->command.size;
    enum resp_status status = RESP_MORE;
    size_t taken;

    if (client->command_whole) {
        status = RESP_DONE;
    } else if (length > scanned) {
        status = resp_command_feed(&client->command, data + scanned, length - scanned,
                                   client->service->settings.max_request, &taken);
    }
    bool is_late = status == RESP_DONE && buffer_length(&client->arrivals) > 0;
    client->framed_us = is_late ? client_arrival_of(client, data + client->command.size) : client->read_us;
    return status;
}

/* Takes the beginning of a request, or answers one that has a fault. TAKEN: all that has come of it was. */
static enum client_outcome take_beginning(struct client *client, struct client_batch *batch, const char *data,
                                          enum resp_status status)
{
    if (client_end_group(client, batch) == CLIENT_TAKEN_IN_PART) {
        return CLIENT_TAKEN_IN_PART;
    }
    if (!client_batch_send(client, batch)) {
        return CLIENT_WAITS;
    }
    if (status == RESP_FAULT) {
        client_protocol_error(client);
        return CLIENT_WAITS;
    }
    bool begins = client_is_long(client) && client_may_take(client, 0) && client_begin_stream(client, batch, data);
    return begins ? CLIENT_TAKEN : CLIENT_WAITS;
}

/* Takes the requests in data from *done on, and leaves some of them in the batch. */
static enum client_outcome take_requests(struct client *client, struct client_batch *batch, const char *data,
                                         size_t length, size_t *done)
{
    while (*done < length && client_may_take(client, client_batch_count(batch))) {
        const char *frame = data + *done;
        if (client->streaming) {
            *done += client_continue_stream(client, frame, length - *done);
            continue;
        }
        enum resp_status status = frame_request(client, frame, length - *done);
        size_t size = (size_t)client->command.size;
        enum client_outcome outcome = status == RESP_DONE ? client_take_whole(client, batch, frame)
                                                          : take_beginning(client, batch, frame, status);
        if (outcome != CLIENT_TAKEN) {
            return outcome;
        }
        *done += size;
    }
    return CLIENT_TAKEN;
}

/* Takes the requests in data, as many as may be taken now. Returns the bytes that are done with. */
static size_t take_all(struct client *client, const char *data, size_t length)
{
    struct client_batch batch;
    size_t done = 0;

    client_batch_empty(&batch);
    while (take_requests(client, &batch, data, length, &done) == CLIENT_TAKEN_IN_PART ||
           client_end_group(client, &batch) == CLIENT_TAKEN_IN_PART) {
        /* Those behind the batch are framed anew, to be put to the policies one by one. */
        resp_command_reset(&client->command);
        client->command_whole = false;
        done = (size_t)(batch.data + batch.length - data);
    }
    done = client_batch_send(client, &batch) ? done : length;
    client_note_aside(client);
    return done;
}

/* ---- going on ---- */

/* All that had been sent before its stream was ended (client_hung_up()) is answered. What waits behind that is sent on
 * another lane, if that will do. That WAIT has spoken of the lane, or that its id was told, is no reason to keep it, as
 * nothing can be said on it any more. */
static void leave_ended_lane(struct client *client)
{
    if (session_may_leave_node(client)) {
        session_leave_lane(client);
    } else {
        client_finish(client);
    }
}

/* Nothing is under way: the session's views agree. A clean exclusive lane on which something was sent can go. */
static void became_quiet(struct client *client)
{
    client->session.sent_transaction = client->session.known_transaction;
    (void)client_wait_is_over(client, CLIENT_WAIT_QUIET);
    struct lane *lane = client->exclusive;
    if (lane != NULL && lane->ending) {
        leave_ended_lane(client);
        return;
    }
    if (lane != NULL && client->session.was_reset) {
        session_leave_lane(client);
        return;
    }
    if (lane != NULL && lane->awaits_quiet) {
        return;
    }
    if (lane != NULL && lane->bare && lane->state == LANE_READY) {
        /* Its AUTH was refused. */
        session_leave_lane(client);
    } else if (lane != NULL && lane->id == client->last_lane_id && session_is_clean(client) &&
               (buffer_length(&client->input) == 0 || lane->dirty || client->session.split)) {
        session_leave_lane(client);
    } else if (lane != NULL && client->session.split && client->service->cluster != NULL &&
               session_may_leave_node(client)) {
        /* What it says of slots is not believed any more. */
        session_leave_node(client);
    }
}

static void finish_ended_input(struct client *client)
{
    if (!client->input_ended) {
        return;
    }
    if (!client_may_take(client, 0)) {
        client_hung_up(client);
        return;
    }
    if (client->exclusive != NULL && client->first != NULL) {
        lane_end_output(client->exclusive);
    }
    client_finish(client);
}

void client_resume(struct client *client)
{
    if (client->state != CLIENT_OPEN) {
        return;
    }
    if (client->sent_runs == 0) {
        became_quiet(client);
    }
    if (buffer_length(&client->input) > 0 && client->wait == CLIENT_WAIT_NOTHING) {
        size_t done = take_all(client, buffer_head(&client->input), buffer_length(&client->input));
        if (client->state != CLIENT_OPEN) {
            /* Nothing more is taken, and the input may be gone already. */
            return;
        }
        client_input_passed(client, done);
        buffer_consume(&client->service->reactor->buffers, &client->input, done);
    }
    if (client->state == CLIENT_OPEN) {
        finish_ended_input(client);
    }
}

void client_flush_task(struct reactor_task *task)
{
    struct client *client = (struct client *)(void *)((char *)task - offsetof(struct client, flush));

    if (client->state != CLIENT_CLOSED && client_write(client)) {
        client_resume(client);
        client_update_reading(client);
    }
}

/* ---- reading ---- */

static void on_input_end(struct client *client)
{
    client->input_ended = true;
    if (client->state == CLIENT_ENDING) {
        if (client->exclusive != NULL && client->first != NULL) {
            lane_end_output(client->exclusive);
        }
        connection_want_read(&client->connection, false);
        client_want_flush(client);
        return;
    }
    client_resume(client);
    client_update_reading(client);
}

/* Reads into the scratch memory; only what is left of it is kept. */
static ssize_t read_afresh(struct client *client)
{
    struct reactor *reactor = client->service->reactor;
    ssize_t got = connection_read(&client->connection, reactor->scratch, READ_SIZE);

    if (got <= 0) {
        return got;
    }
    size_t length = (size_t)got;
    if (client_may_be_stray(client, reactor->scratch) && client_refuse_stray(client, reactor->scratch, length)) {
        return got;
    }
    size_t done = take_all(client, reactor->scratch, length);
    if (client->state != CLIENT_OPEN || done == length) {
        return got;
    }
    if (!buffer_append(&reactor->buffers, &client->input, reactor->scratch + done, length - done)) {
        client_close(client, "out of memory");
    } else if (reactor->measures) {
        client_arrived(client);
    }
    return got;
}

/* How much to read behind the beginning of a request that is kept: the rest of it, within reason. */
static size_t reading_size(const struct client *client)
{
    uint64_t missing = client->command.payload_left + 2;

    return missing < 16 * 1024 ? 16 * 1024 : missing > CLIENT_INPUT_MARK ? CLIENT_INPUT_MARK : (size_t)missing;
}

static ssize_t read_on(struct client *client)
{
    struct reactor *reactor = client->service->reactor;
    size_t size = reading_size(client);
    char *room = buffer_reserve(&reactor->buffers, &client->input, size);

    if (room == NULL) {
        client_close(client, "out of memory");
        return CONNECTION_AGAIN;
    }
    ssize_t got = connection_read(&client->connection, room, size);
    if (got > 0) {
        buffer_commit(&client->input, (size_t)got);
        if (reactor->measures) {
            client_arrived(client);
        }
        client_resume(client);
    }
    return got;
}

/* Whether nothing stands between the client's socket and its lane but the payload of a long request. */
static bool may_pass_on(const struct client *client)
{
    return client->streaming && !client->discarding && client->state == CLIENT_OPEN &&
           client->wait == CLIENT_WAIT_NOTHING && buffer_length(&client->input) == 0 &&
           resp_command_payload_left(&client->command) > SPLICE_LEAST;
}

/* Moves payload on inside the kernel; 0 if it has to be read. */
static ssize_t pass_on(struct client *client)
{
    size_t most = (size_t)resp_command_payload_left(&client->command) - 1;
    ssize_t taken = lane_pull_silent(client->exclusive, &client->connection, most);

    if (taken > 0 && client->state == CLIENT_OPEN) {
        resp_command_skip(&client->command, (uint64_t)taken);
        if (lane_is_congested(client->exclusive)) {
            (void)client_wait_for_lane(client, client->exclusive);
        }
    }
    return taken;
}

/* What comes from a client that takes no more requests is of no interest but for its end, and that of the request. */
static ssize_t read_away(struct client *client)
{
    char *scratch = client->service->reactor->scratch;
    ssize_t got = connection_read(&client->connection, scratch, REACTOR_SCRATCH_SIZE);

    if (got > 0) {
        client_pass_over(client, scratch, (size_t)got);
        client_want_flush(client);
    }
    return got;
}

void client_readable(evutil_socket_t fd, short what, void *context)
{
    struct client *client = context;
    struct stats *stats = client->service->reactor->stats;

    (void)fd;
    (void)what;
    client->read_us = reactor_now(client->service->reactor);
    if (client->connection.secure != NULL && !client->is_secure && !client_now_secure(client)) {
        return;
    }
    ssize_t got = may_pass_on(client) ? pass_on(client) : 0;
    if (got == 0) {
        got = client->state == CLIENT_ENDING       ? read_away(client)
              : buffer_length(&client->input) == 0 ? read_afresh(client)
                                                   : read_on(client);
    }
    if (client->state == CLIENT_CLOSED || got == CONNECTION_AGAIN) {
        return;
    }
    if (got == CONNECTION_BROKEN) {
        client_was_reset(client, connection_why(&client->connection));
    }
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    if (got <= 0) {
        on_input_end(client);
        return;
    }
    stats_add(stats, STATS_CLIENT_READS, 1);
    stats_add(stats, STATS_CLIENT_BYTES_IN, (uint64_t)got);
    if (client->state == CLIENT_OPEN) {
        client->active_us = reactor_now(client->service->reactor);
    }
    client_update_reading(client);
}
