/*
 * Bytes out. Replies leave in the order of the requests: the first run's replies go straight to the output, those of a
 * later one wait in its own buffer until it is the first.
 *
 * Most replies are never copied: a run of them lies in the scratch memory of the lane that was read, and is written to
 * the client from there ("borrowed") before the scratch memory is used again. Only what the socket does not take, or
 * what does not follow the borrowed bytes directly, is copied to the output buffer.
 */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A client that did not keep up with its replies stays off the shared lanes for so many runs of requests, or
 * ticks in which it rests. */
#define HEAVY_REQUESTS 32

/* Up to here no limit is near: it is that of the lowest client_output_limit. Bytes. */
#define KEPT_MARK ((size_t)64 * 1024)

/* ---- output ---- */

static bool keep_borrowed(struct client *client)
{
    bool kept =
        buffer_append(&client->service->reactor->buffers, &client->output, client->borrowed, client->borrowed_length);

    client->borrowed = NULL;
    client->borrowed_length = 0;
    return kept;
}

bool client_keep_borrowed(struct client *client)
{
    if (!keep_borrowed(client)) {
        client_close(client, "out of memory");
        return false;
    }
    return true;
}

void client_output(struct client *client, const char *data, size_t length, bool borrowed)
{
    if (client->state == CLIENT_CLOSED || client->deaf || length == 0) {
        return;
    }
    if (borrowed && client->borrowed_length > 0 && client->borrowed + client->borrowed_length == data) {
        client->borrowed_length += length;
        return;
    }
    bool kept = client->borrowed_length == 0 || keep_borrowed(client);
    if (borrowed && client->late_us == 0) {
        client->borrowed = data;
        client->borrowed_length = length;
    } else {
        kept = buffer_append(&client->service->reactor->buffers, &client->output, data, length) && kept;
    }
    if (!kept) {
        client_close(client, "out of memory");
        return;
    }
    client_want_flush(client);
}

/*
 * All that is there for it to read, wherever that waits. What is kept of requests under way counts beside it if their
 * replies are not read, or if they are behind one that Redis may keep for ever. Of any other client it goes as Redis
 * answers, and client_check_room() bounds it.
 */
static uint64_t held_for(const struct client *client)
{
    uint64_t held = buffer_length(&client->output) + client->kept.texts + client_subscriber_kept(client);

    if (client->output_congested || session_may_block(client)) {
        held += client->kept.records + client_measure_kept(client);
    }
    return held;
}

bool client_is_over_limit(struct client *client)
{
    uint64_t limit = client->service->settings.output_limit;
    uint64_t share = memory_limit_of(client->service->reactor->buffers.memory) / CLIENT_MEMORY_SHARE;
    uint64_t held = held_for(client);

    if ((limit == 0 || held <= limit) && (share == 0 || held <= share)) {
        return false;
    }
    client_log(client, LOG_LEVEL_WARNING,
               "closing client %s: %llu bytes wait for it to read its replies, more than client_output_limit or a "
               "quarter of memory_limit",
               client->address_text, (unsigned long long)held);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_OUTPUT, 1);
    client_close(client, "past client_output_limit");
    return true;
}

/* Writes once. False if the client was closed. */
static bool write_some(struct client *client, const char *data, size_t length, size_t *written)
{
    struct reactor *reactor = client->service->reactor;
    ssize_t done = connection_write(&client->connection, data, length);

    stats_add(reactor->stats, STATS_CLIENT_WRITES, 1);
    if (done == CONNECTION_BROKEN) {
        client_was_reset(client, connection_why(&client->connection));
        *written = 0;
        return client->state != CLIENT_CLOSED;
    }
    *written = done > 0 ? (size_t)done : 0;
    stats_add(reactor->stats, STATS_CLIENT_BYTES_OUT, *written);
    if (*written > 0) {
        client->active_us = reactor_now(reactor);
    }
    return true;
}

static bool write_output(struct client *client)
{
    size_t written;

    if (buffer_length(&client->output) == 0) {
        return true;
    }
    if (!write_some(client, buffer_head(&client->output), buffer_length(&client->output), &written)) {
        return false;
    }
    buffer_consume(&client->service->reactor->buffers, &client->output, written);
    return true;
}

static bool write_borrowed(struct client *client)
{
    size_t written;

    if (client->borrowed_length == 0) {
        return true;
    }
    if (buffer_length(&client->output) == 0) {
        if (!write_some(client, client->borrowed, client->borrowed_length, &written)) {
            return false;
        }
        client->borrowed += written;
        client->borrowed_length -= written;
    }
    if (client->borrowed_length > 0 && !keep_borrowed(client)) {
        client_close(client, "out of memory");
        return false;
    }
    return true;
}

/*
 * A client that does not read: on an exclusive lane its replies are left to Redis, which keeps them as it does for any
 * client, while its requests still go through, for many a client writes a whole pipeline before it reads. One on a
 * shared lane moves to an exclusive one.
 */
static void update_congestion(struct client *client)
{
    bool congested = buffer_length(&client->output) + client->unwritten_bytes > CLIENT_OUTPUT_MARK;

    if (congested == client->output_congested) {
        return;
    }
    client->output_congested = congested;
    if (client->exclusive != NULL) {
        lane_pause(client->exclusive, congested);
    } else if (congested) {
        client->heavy = HEAVY_REQUESTS;
    }
}

/*
 * Whether the client, who has all its replies, has to stay for requests without replies that are still on their way to
 * Redis. The lane is ended behind them; when Redis has taken them, it closes the lane, and the client ends with it.
 */
static bool is_lane_draining(struct client *client)
{
    struct lane *lane = client->exclusive;
    /* Redis hands nothing out to who has gone. */
    bool resets = client->session.resets && !(client->input_ended && client->session.blocking_unseen);

    if (lane != NULL && (buffer_length(&lane->output) > 0 || client->session.passthrough) && !lane->ending && !resets) {
        lane_end_output(lane);
    }
    /* A lane that never came to be, and has nothing to send any more, will not tell. */
    return lane != NULL && (lane->ending || resets) && (lane->state == LANE_READY || buffer_length(&lane->output) > 0);
}

/* To who is amid a long request the kernel would answer a close by a reset, and few look for an answer behind that: so
 * the rest of it is read first, at most for ENDING_PATIENCE_US. */
static bool is_amid_request(const struct client *client)
{
    return client->streaming && client->command.size > 0 && !client->deaf && !client->input_ended;
}

bool client_write(struct client *client)
{
    if (!write_output(client) || !write_borrowed(client)) {
        return false;
    }
    connection_want_write(&client->connection, buffer_length(&client->output) > 0);
    if (client_is_over_limit(client)) {
        return false;
    }
    /* First, as what is kept for replies that are written now counts below: nobody would look again. */
    if (!STAILQ_EMPTY(&client->unwritten) && buffer_length(&client->output) == 0) {
        client_measure_written(client, true);
    }
    update_congestion(client);
    client_check_room(client);
    if (client->state == CLIENT_ENDING && client->first == NULL && buffer_length(&client->output) == 0 &&
        !is_lane_draining(client)) {
        if (!is_amid_request(client)) {
            client_close(client, "done");
            return false;
        }
        connection_end_output(&client->connection);
    }
    return true;
}

/* ---- runs ---- */

/* More is kept of the requests under way. Who is past client_output_limit by that is closed when the clients are
 * settled, as those who queue requests go on with them. */
static void look_at_kept(struct client *client)
{
    if (client->kept.records + client->kept.texts > KEPT_MARK) {
        client_check_room(client);
        client_want_flush(client);
    }
}

bool client_add_text(struct client *client, struct run *run, const char *text, size_t length)
{
    size_t before = run->text.capacity;
    bool kept = buffer_append(&client->service->reactor->buffers, &run->text, text, length);

    client->kept.texts += run->text.capacity - before;
    look_at_kept(client);
    return kept;
}

void client_clear_text(struct client *client, struct buffer *text)
{
    client->kept.texts -= text->capacity;
    buffer_clear(&client->service->reactor->buffers, text);
}

void client_queue_run(struct client *client, struct run *run)
{
    size_t kept = sizeof *run;

    kept += run->expected != NULL ? expected_reply_size(run->expected) : 0;
    /* Policies keep what they like of the request, its keys above all. */
    kept += run->policy_record != NULL ? chain_record_size() + run->length : 0;
    kept += run->spans != NULL ? sizeof(struct spans) : 0;
    run->kept = kept < UINT32_MAX ? (uint32_t)kept : UINT32_MAX;
    run->client_next = NULL;
    if (client->first == NULL) {
        client->first = run;
    } else {
        client->last->client_next = run;
    }
    client->last = run;
    client->in_flight += run->requests;
    client_count_kept(client, run->kept);
    look_at_kept(client);
}

static bool is_complete(const struct run *run)
{
    return run->lane == NULL && run->answered == run->requests;
}

bool client_is_within_push(const struct client *client)
{
    const struct lane *lane = client->exclusive;

    return lane != NULL && lane_is_within_frame(lane) && (lane->first == NULL || lane->reply.type == '>');
}

/* Whether the answer to another request may join those of the run. */
static bool takes_answers(const struct run *run)
{
    return is_complete(run) && run->expected == NULL && run->policy_record == NULL && run->requests < UINT32_MAX / 2;
}

/* The answer waits for its turn behind what is under way. False when memory is short. */
static bool queue_answer(struct client *client, const char *text, size_t length, struct chain_record *record)
{
    struct run *run = client->last;

    if (run != NULL && record == NULL && takes_answers(run)) {
        run->requests++;
        run->answered++;
        client->in_flight++;
        return client_add_text(client, run, text, length);
    }
    run = run_take(client->service->runs);
    if (run == NULL) {
        client->held = record;
        client_end_record(client, POLICY_OUTCOME_OWNERLESS);
        return false;
    }
    run->receiver = &client_run_receiver;
    run->owner = client;
    run->requests = 1;
    run->answered = 1;
    run->policy_record = record;
    client_queue_run(client, run);
    return client_add_text(client, run, text, length);
}

bool client_answer(struct client *client, const char *text, size_t length, struct chain_record *record)
{
    struct client_service *service = client->service;

    stats_add(service->reactor->stats, STATS_REQUESTS_LOCAL, 1);
    client_measure_local(client, length > 0 && *text == '-', length);
    if (client->first == NULL && !client_is_within_push(client)) {
        struct policy_client view = client_policy_view(client);
        chain_end(service->chain, record, &view, POLICY_OUTCOME_LOCAL, (struct slice){0}, length,
                  reactor_now(service->reactor));
        client_output(client, text, length, false);
        return true;
    }
    return queue_answer(client, text, length, record);
}

bool client_push(struct client *client, const char *text, size_t length)
{
    if (client->first == NULL && !client_is_within_push(client)) {
        client_output(client, text, length, false);
        return true;
    }
    return queue_answer(client, text, length, NULL);
}

void client_end_policies(struct client *client, struct run *run, enum policy_outcome outcome,
                         const struct resp_reply *reply)
{
    struct slice head = {0};

    if (run->policy_record == NULL) {
        return;
    }
    struct policy_client view = client_policy_view(client);
    if (reply != NULL) {
        head = (struct slice){reply->head, reply->head_length};
    }
    chain_end(client->service->chain, run->policy_record, &view, outcome, head, run->reply_bytes,
              reactor_now(client->service->reactor));
    run->policy_record = NULL;
}

void client_left_lane(struct client *client)
{
    client->sent_runs--;
    if (client->sent_runs == 0) {
        client->lane_in_use = NULL;
    }
}

static void free_run(struct client *client, struct run *run)
{
    struct client_service *service = client->service;

    if (run->expected != NULL) {
        expected_reply_give(service, run->expected);
        run->expected = NULL;
    }
    client_clear_text(client, &run->text);
    client_measure_end(client, run);
    client_uncount_kept(client, run->kept);
    run_give(service->runs, run);
}

/* Sends on what the first runs have, and takes those off that are complete. */
static void advance(struct client *client)
{
    struct run *run = client->first;

    while (run != NULL) {
        if (run->spread != NULL && !client_spread_advance(client, run)) {
            return;
        }
        client_output(client, buffer_head(&run->text), buffer_length(&run->text), false);
        client_measure_first(client, run);
        if (client->state == CLIENT_CLOSED) {
            return;
        }
        client_clear_text(client, &run->text);
        if (!is_complete(run)) {
            return;
        }
        client->first = run->client_next;
        client->in_flight -= run->requests;
        client_end_policies(client, run, POLICY_OUTCOME_LOCAL, NULL);
        if (run->spread != NULL) {
            client_spread_leave(run);
        }
        free_run(client, run);
        run = client->first;
    }
    client->last = NULL;
}

void client_push_ended(struct client *client)
{
    if (client->first != NULL && is_complete(client->first)) {
        advance(client);
    }
}

void client_drop_runs(struct client *client)
{
    struct run *run = client->first;

    client_measure_forget(client);
    client_redirect_forget(client);
    client->first = NULL;
    client->last = NULL;
    client->in_flight = 0;
    client->sent_runs = 0;
    client->lane_in_use = NULL;
    while (run != NULL) {
        struct run *next = run->client_next;
        bool lost = run->answered < run->requests && (run->lane == NULL || client->lost);
        client_end_policies(client, run, lost ? POLICY_OUTCOME_LOST : POLICY_OUTCOME_OWNERLESS, NULL);
        if (client->lost) {
            client_measure_lost(client, run, UINT32_MAX);
        }
        client_measure_end(client, run);
        if (run->lane != NULL) {
            if (run->expected != NULL) {
                expected_reply_give(client->service, run->expected);
                run->expected = NULL;
            }
            client_clear_text(client, &run->text);
            client_uncount_kept(client, run->kept);
            if (run->lane->use == LANE_EXCLUSIVE) {
                /* Replies are still to come on it that nobody waits for. */
                run->lane->dirty = true;
            }
            run->gone = true;
            run->receiver = NULL;
            run->owner = NULL;
            client_spread_leave(run);
        } else {
            client_spread_leave(run);
            free_run(client, run);
        }
        run = next;
    }
    assert(client->kept.records == 0 && client->kept.texts == 0);
}

/* ---- what lanes tell ---- */

/*
 * What comes from the lane for a run that is not the first, while the first is complete, is the rest of a push: it had
 * begun to go out when the first was answered here, and the run was sent only after that.
 */
static bool is_rest_of_push(const struct client *client)
{
    return client->first != NULL && is_complete(client->first);
}

void client_run_bytes(struct run *run, const char *data, size_t length)
{
    struct client *client = run->owner;

    if (client->first == run || is_rest_of_push(client)) {
        client_output(client, data, length, true);
    } else if (!client_add_text(client, run, data, length)) {
        client_close(client, "out of memory");
    }
}

bool client_run_reply(struct run *run, const struct resp_reply *reply)
{
    struct client *client = run->owner;

    if (!session_reply(client, run->expected, reply)) {
        client_push_ended(client);
        return false;
    }
    /* A client that was closed just now has let go of its runs, and this one may have gone with its lane. */
    if (client->state != CLIENT_CLOSED && run->receiver != NULL) {
        client_end_policies(client, run, POLICY_OUTCOME_REPLY, reply);
    }
    return true;
}

/* A client that caught up may come back to the shared lanes after a while. */
static void note_weight(struct client *client)
{
    if (client->heavy > 0 && !client->output_congested) {
        client->heavy--;
    }
}

struct run_tally client_run_tally(const struct run *run, int64_t read_us)
{
    return client_measure_tally(run->owner, run, read_us);
}

void client_run_measured(struct run *run, const struct run_tally *tally, int64_t read_us)
{
    client_measure_replies(run->owner, run, tally, read_us);
}

void client_run_answered(struct run *run)
{
    struct client *client = run->owner;

    note_weight(client);
    client_left_lane(client);
    if (client->first == run) {
        advance(client);
    }
    client_want_flush(client);
}

/* Nothing of the run was sent: each of its requests gets an error in its place, and the client may go on. */
static void answer_unsent(struct client *client, struct run *run, const char *why)
{
    struct client_service *service = client->service;
    char text[384];
    int length;

    if (why[0] == '-') {
        length = snprintf(text, sizeof text, "%s\r\n", why);
    } else {
        length = snprintf(text, sizeof text, "-ERR headgate: no connection to Redis at %s: %s\r\n",
                          service->settings.upstream_text, why);
    }
    client_measure_lost(client, run, run->requests - run->answered);
    for (; run->answered < run->requests; run->answered++) {
        if (!client_add_text(client, run, text, (size_t)length)) {
            client_close(client, "out of memory");
            return;
        }
        stats_add(service->reactor->stats, STATS_REQUESTS_UNREACHABLE, 1);
    }
}

/*
 * A lane that never came to be has nothing of the client's state; once all its requests were answered with an error,
 * none of them (BLPOP, MULTI, SUBSCRIBE, …) means anything any more, and the lane can be let go.
 */
static void forget_unsent_state(struct client *client)
{
    const struct lane *lane = client->exclusive;

    if (lane != NULL && lane->state != LANE_READY && lane->state != LANE_CLOSED && client->sent_runs == 0 &&
        buffer_length(&lane->output) == 0) {
        client->session = (struct session){0};
    }
}

void client_run_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;
    /* If none of the requests sent was lost, the client may still have a part of a reply or a push. */
    bool is_within = client->exclusive != NULL && lane_is_within_frame(client->exclusive);

    client_left_lane(client);
    session_request_unsent(client, run->expected);
    if (loss == RUN_LOST || client->streaming || client->session.passthrough || is_within) {
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
        client->lost = true;
        client_end(client, why);
        return;
    }
    if (upstream_is_refused(client->profile)) {
        client_close_refused(client);
        return;
    }
    answer_unsent(client, run, why);
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    client_end_policies(client, run, POLICY_OUTCOME_LOST, NULL);
    /* Before a cluster, MULTI may have been answered before its lane was chosen: the transaction goes with it. */
    if (session_is_presumed(run->expected) || client->session.known_transaction) {
        client_finish_presuming(client);
    }
    if (client->first == run) {
        advance(client);
    }
    forget_unsent_state(client);
    client_want_flush(client);
}

const struct run_receiver client_run_receiver = {
    .bytes = client_run_bytes,
    .reply = client_run_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = client_run_answered,
    .lost = client_run_lost,
};
