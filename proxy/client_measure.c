/*
 * Measuring: what is known of a client's requests until their replies are there.
 *
 *   taken ─► noted (client->note) ─► sent: a record behind those of the requests before it ─► reply ─► sample
 *                                 ─► answered by Headgate: sample
 *
 * Replies from Redis come in the order of the requests that were sent, so the records are a queue. While a client
 * measures, each request that Redis is to answer has one, even without a tag: the queue must not get out of step with
 * the replies.
 */
#include "client_private.h"

#include <stdlib.h>
#include <string.h>

/* What is kept of a request under way; the first bytes of it lie behind. */
struct record {
    int64_t received_us;
    int64_t sent_us;
    uint64_t request_bytes;
    uint32_t tag;
    uint32_t head_length; /* rounded up to a multiple of 8 in the queue */
};

/* A sample whose reply was not written yet. */
struct client_unwritten {
    struct client_unwritten *next;
    struct policy_sample sample;
    char head[POLICY_HEAD_MAX];
};

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* ---- noting ---- */

static uint32_t tag_of(struct client *client, const struct command *command, const struct resp_command *framed,
                       struct slice frame, uint32_t tag)
{
    if (tag != POLICY_TAG_ASK) {
        return tag;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, command, framed, frame);
    return chain_measure(client->service->chain, &request);
}

static void show_spot(struct client *client, const struct command *command, const struct resp_command *framed,
                      struct slice frame)
{
    struct client_service *service = client->service;

    if (--service->until_spot > 0) {
        return;
    }
    service->until_spot = POLICY_SPOT_INTERVAL;
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, command, framed, frame);
    chain_spot(service->chain, &request);
}

void client_note(struct client *client, const struct command *command, const struct chain_interest *interest,
                 const struct resp_command *framed, struct slice frame)
{
    struct client_note *note = &client->note;

    if (note->taken) {
        return;
    }
    note->taken = true;
    note->received_us = client->read_us;
    note->request_bytes = frame.length;
    note->tag = tag_of(client, command, framed, frame, interest->tag);
    show_spot(client, command, framed, frame);
}

void client_note_end(struct client *client)
{
    client->note.taken = false;
}

/* ---- the queue ---- */

bool client_measure_sent(struct client *client, struct slice frame)
{
    struct buffer_pool *pool = &client->service->reactor->buffers;
    size_t head = chain_keeps_heads(client->service->chain) ? frame.length : 0;
    struct record record = {
        .received_us = client->note.received_us,
        .request_bytes = client->note.request_bytes,
        .tag = client->note.tag,
        .head_length = (uint32_t)(head < POLICY_HEAD_MAX ? head : POLICY_HEAD_MAX),
    };
    size_t size = sizeof record + padded(record.head_length);
    int64_t now = reactor_now(client->service->reactor);
    record.sent_us = now > record.received_us ? now : record.received_us;
    char *room = buffer_reserve(pool, &client->records, size);

    client_note_end(client);
    if (room == NULL) {
        return false;
    }
    memcpy(room, &record, sizeof record);
    memcpy(room + sizeof record, frame.data, record.head_length);
    buffer_commit(&client->records, size);
    client->last_record = size;
    return true;
}

size_t client_measured(const struct client *client)
{
    return buffer_length(&client->records);
}

void client_unmeasure(struct client *client, size_t length)
{
    buffer_truncate(&client->records, length);
}

void client_measure_grown(struct client *client, uint64_t bytes)
{
    struct record record;

    /* The reply may have come before the end of the request. */
    if (buffer_length(&client->records) < client->last_record || client->last_record == 0) {
        return;
    }
    char *last = client->records.data + client->records.end - client->last_record;
    memcpy(&record, last, sizeof record);
    record.request_bytes = bytes;
    record.received_us = client->read_us;
    record.sent_us = client->read_us;
    memcpy(last, &record, sizeof record);
}

/* ---- samples ---- */

/* Keeps a sample until the reply has been written. Without memory nobody hears of it again. */
static void keep_sample(struct client *client, const struct policy_sample *sample)
{
    struct client_unwritten *kept = malloc(sizeof *kept);

    if (kept == NULL) {
        return;
    }
    kept->sample = *sample;
    kept->sample.client = NULL;
    if (sample->head.length > 0) {
        memcpy(kept->head, sample->head.data, sample->head.length);
    }
    kept->sample.head = (struct slice){kept->head, sample->head.length};
    kept->next = client->unwritten;
    client->unwritten = kept;
    client_want_flush(client);
}

static void give_sample(struct client *client, struct policy_sample *sample)
{
    struct policy_client view = client_policy_view(client);

    sample->client = &view;
    bool is_wanted = sample->tag != POLICY_TAG_NONE && chain_sample(client->service->chain, sample);
    sample->client = NULL;
    if (is_wanted && client->state != CLIENT_CLOSED) {
        keep_sample(client, sample);
    }
}

static void end_record(struct client *client, bool is_error, int64_t answered_us, uint64_t reply_bytes)
{
    const char *head = buffer_head(&client->records);
    struct record record;

    if (buffer_length(&client->records) < sizeof record) {
        return;
    }
    memcpy(&record, head, sizeof record);
    struct policy_sample sample = {
        .tag = record.tag,
        .is_error = is_error,
        .received_us = record.received_us,
        .sent_us = record.sent_us,
        .answered_us = answered_us > record.received_us ? answered_us : record.received_us,
        .request_bytes = record.request_bytes,
        .reply_bytes = reply_bytes,
        .head = {head + sizeof record, record.head_length},
    };
    give_sample(client, &sample);
    buffer_consume(&client->service->reactor->buffers, &client->records, sizeof record + padded(record.head_length));
}

void client_measure_reply(struct client *client, const struct resp_reply *reply, int64_t read_us)
{
    end_record(client, reply->type == '-' || reply->type == '!', read_us, reply->size);
}

void client_measure_lost(struct client *client, uint32_t requests)
{
    int64_t now = reactor_now(client->service->reactor);

    for (; requests > 0 && buffer_length(&client->records) > 0; requests--) {
        end_record(client, true, now, 0);
    }
}

void client_measure_local(struct client *client, bool is_error, size_t length)
{
    struct client_note *note = &client->note;

    if (!note->taken) {
        return;
    }
    int64_t now = reactor_now(client->service->reactor);
    struct policy_sample sample = {
        .tag = note->tag,
        .is_error = is_error,
        .is_local = true,
        .received_us = note->received_us,
        .answered_us = now > note->received_us ? now : note->received_us,
        .request_bytes = note->request_bytes,
        .reply_bytes = length,
    };
    give_sample(client, &sample);
    client_note_end(client);
}

void client_measure_written(struct client *client, bool is_written)
{
    struct policy_client view = client_policy_view(client);

    while (client->unwritten != NULL) {
        struct client_unwritten *kept = client->unwritten;
        client->unwritten = kept->next;
        kept->sample.client = &view;
        kept->sample.written_us = is_written ? clock_now_us() : 0;
        chain_written(client->service->chain, &kept->sample);
        free(kept);
    }
}

void client_measure_end(struct client *client)
{
    buffer_clear(&client->service->reactor->buffers, &client->records);
    client_note_end(client);
}
