/*
 * Measuring: what is known of a client's requests until their replies are there.
 *
 *   taken ─► noted (client->note) ─► sent: in a span behind those of the requests before it ─► reply ─► sample
 *                                 ─► answered by Headgate: sample
 *
 * Replies from Redis come in the order of the requests that were sent, so the spans are a queue. While a client
 * measures, each request that Redis is to answer is in one, even without a tag: the queue must not get out of step with
 * the replies. Requests under one tag that are sent in one batch share a span, and those of them whose replies are read
 * at once share a sample, unless the policy attends to each.
 */
#include "client/client_private.h"

#include <stdlib.h>
#include <string.h>

/* From here on client_output_limit is looked at with each loop iteration. */
#define SPANS_MARK ((size_t)64 * 1024)

/*
 * Requests under way. Behind it lie the first bytes of each of them, if the policy wants such, one behind the other; of
 * requests that share a span these are their whole frames.
 */
struct span {
    int64_t received_us;
    int64_t sent_us;
    uint64_t request_bytes; /* of those in count */
    uint32_t count;         /* requests that no sample told of yet */
    uint32_t tag;
    uint32_t heads_length; /* the bytes behind; in the queue rounded up to a multiple of 8 */
    uint32_t heads_told;   /* how many of them are of requests that samples told of */
    bool is_alone;         /* of a request that is told of by itself */
};

/* A sample whose reply was not written yet. */
struct client_unwritten {
    STAILQ_ENTRY(client_unwritten) next;
    struct policy_sample sample;
    char head[POLICY_HEAD_MAX];
};

/* ---- noting ---- */

static uint32_t tag_of(struct client *client, const struct request *request)
{
    if (request->interest->tag != POLICY_TAG_ASK) {
        return request->interest->tag;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request asked = client_describe(client, &view, request);
    return chain_measure(client->service->chain, &asked);
}

/* So many requests later the next one is shown. By chance, as what clients do may go in steps. */
static uint32_t spot_distance(struct client_service *service)
{
    uint32_t chance = service->spot_chance;

    chance ^= chance << 13;
    chance ^= chance >> 17;
    chance ^= chance << 5;
    service->spot_chance = chance;
    return 1 + chance % (2 * POLICY_SPOT_INTERVAL - 1);
}

static void show_spot(struct client *client, const struct request *request)
{
    struct client_service *service = client->service;

    if (--service->until_spot > 0) {
        return;
    }
    service->until_spot = spot_distance(service);
    struct policy_client view = client_policy_view(client);
    struct policy_request shown = client_describe(client, &view, request);
    chain_spot(service->chain, &shown);
}

void client_note(struct client *client, const struct request *request)
{
    struct client_note *note = &client->note;
    struct slice frame = request->frame;

    bool is_first = !note->taken;

    note->frame = frame;
    /* More of one that had to wait may have come. */
    if (!is_first && frame.length == note->request_bytes) {
        return;
    }
    note->taken = true;
    note->received_us = client->framed_us;
    note->request_bytes = frame.length;
    note->tag = tag_of(client, request);
    if (is_first) {
        show_spot(client, request);
    }
}

/* ---- the queue ---- */

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* NULL: there are none. */
static struct span *first_span(struct client *client)
{
    struct client_spans *spans = &client->spans;

    if (spans->slot_used > 0) {
        return (struct span *)(void *)spans->slot;
    }
    return buffer_length(&spans->more) > 0 ? (struct span *)(void *)(spans->more.data + spans->more.start) : NULL;
}

/* There is one. */
static struct span *last_span(struct client *client)
{
    struct client_spans *spans = &client->spans;

    return buffer_length(&spans->more) > 0
               ? (struct span *)(void *)(spans->more.data + spans->more.end - spans->last_size)
               : (struct span *)(void *)spans->slot;
}

/* Room behind the last one. NULL when memory is short. */
static void *append_room(struct client *client, size_t size)
{
    struct client_spans *spans = &client->spans;

    if (size <= sizeof spans->slot && client_measured(client) == 0) {
        spans->slot_used = (uint32_t)size;
        spans->last_size = (uint32_t)size;
        return spans->slot;
    }
    void *room = buffer_reserve(&client->service->reactor->buffers, &spans->more, size);
    if (room != NULL) {
        buffer_commit(&spans->more, size);
        spans->last_size = (uint32_t)size;
    }
    return room;
}

/* Adds a span of requests that are sent now, with so many of their first bytes. NULL when memory is short; else it is
 * there until something else is done to the queue. */
static struct span *append_span(struct client *client, int64_t received_us, uint32_t tag, struct slice heads)
{
    int64_t now = reactor_now(client->service->reactor);
    struct span *span = append_room(client, sizeof(struct span) + padded(heads.length));

    if (span == NULL) {
        return NULL;
    }
    *span = (struct span){.received_us = received_us,
                          .sent_us = now > received_us ? now : received_us,
                          .tag = tag,
                          .heads_length = (uint32_t)heads.length};
    memcpy(span + 1, heads.data, heads.length);
    if (buffer_length(&client->spans.more) > SPANS_MARK) {
        client_check_room(client);
        client_want_flush(client);
    }
    return span;
}

static void drop_first_span(struct client *client, const struct span *span)
{
    size_t size = sizeof *span + padded(span->heads_length);

    if (client->spans.slot_used > 0) {
        client->spans.slot_used = 0;
    } else {
        buffer_consume(&client->service->reactor->buffers, &client->spans.more, size);
    }
}

/* What is kept of those bytes. */
static struct slice heads_of(const struct client *client, const char *data, size_t length)
{
    return (struct slice){data, client->service->attention->heads ? length : 0};
}

/* One that is told of by itself. frame: what there is of it. */
static bool append_alone(struct client *client, int64_t received_us, uint32_t tag, uint64_t bytes, struct slice frame)
{
    size_t shown = frame.length < POLICY_HEAD_MAX ? frame.length : POLICY_HEAD_MAX;
    struct span *span = append_span(client, received_us, tag, heads_of(client, frame.data, shown));

    if (span == NULL) {
        return false;
    }
    span->count = 1;
    span->request_bytes = bytes;
    span->is_alone = true;
    return true;
}

bool client_measure_sent(struct client *client, struct slice frame)
{
    const struct client_note *note = &client->note;
    bool is_kept = append_alone(client, note->received_us, note->tag, note->request_bytes, frame);

    client_note_end(client);
    return is_kept;
}

bool client_measure_part(struct client *client, struct client_part *part)
{
    if (part->count == 0) {
        return true;
    }
    struct span *span = append_span(client, part->received_us, part->tag, heads_of(client, part->data, part->length));
    if (span == NULL) {
        return false;
    }
    span->count = part->count;
    span->request_bytes = part->length;
    part->count = 0;
    return true;
}

/* The longest request that may share a span: where heads are kept, that of others behind it must be found. */
static size_t longest_to_share(const struct policy_attention *attention)
{
    size_t most = attention->heads ? POLICY_HEAD_MAX : CLIENT_PART_MAX;

    return attention->bytes > most ? most : attention->bytes > 0 ? (size_t)attention->bytes - 1 : 0;
}

bool client_measure_begins(struct client *client, struct client_part *part, int64_t received_us, uint32_t tag,
                           struct slice frame)
{
    size_t longest = longest_to_share(client->service->attention);

    if (!client_measure_part(client, part)) {
        return false;
    }
    if (frame.length > longest) {
        return append_alone(client, received_us, tag, frame.length, frame);
    }
    *part = (struct client_part){.data = frame.data,
                                 .length = frame.length,
                                 .count = 1,
                                 .tag = tag,
                                 .received_us = received_us,
                                 .longest = longest};
    return true;
}

bool client_measure_batched(struct client *client, struct client_part *part, struct slice frame)
{
    const struct client_note *note = &client->note;
    bool is_kept = client_part_takes(part, note->received_us, note->tag, frame.length) ||
                   client_measure_begins(client, part, note->received_us, note->tag, frame);

    client_note_end(client);
    return is_kept;
}

bool client_measure_plain(struct client *client, struct client_part *part, const struct chain_interest *interest,
                          struct slice frame)
{
    struct client_service *service = client->service;
    bool is_noted =
        client->note.taken || interest->wanted != 0 || interest->tag == POLICY_TAG_ASK || service->until_spot == 1;

    if (is_noted || !client_measure_begins(client, part, client->framed_us, interest->tag, frame)) {
        return false;
    }
    service->until_spot--;
    return true;
}

size_t client_measure_kept(const struct client *client)
{
    return client_measured(client) + client->unwritten_bytes;
}

void client_measure_grown(struct client *client, uint64_t bytes)
{
    /* The reply may have come before the end of the request. */
    if (client->stream_measured && client_measured(client) > 0) {
        struct span *last = last_span(client);
        last->request_bytes = bytes;
        last->received_us = client->read_us;
        last->sent_us = client->read_us;
    }
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
    if (sample->head.length > 0) {
        memcpy(kept->head, sample->head.data, sample->head.length);
    }
    kept->sample.head = (struct slice){kept->head, sample->head.length};
    STAILQ_INSERT_TAIL(&client->unwritten, kept, next);
    client->unwritten_bytes += sizeof *kept;
    client_want_flush(client);
}

static void give_sample(struct client *client, const struct policy_sample *sample)
{
    if (sample->tag != POLICY_TAG_NONE && chain_sample(client->service->chain, sample) && sample->count == 1 &&
        client->state != CLIENT_CLOSED) {
        keep_sample(client, sample);
    }
}

/* What is known of the first requests of a span, which are told of now. */
struct part {
    uint64_t bytes;
    struct slice heads;
};

/* Where the frames end that begin there. */
static const char *pass_frames(const char *frames, const char *end, uint32_t count)
{
    struct slice argument;

    for (; count > 0; count--) {
        struct resp_walk walk = resp_walk_start((struct slice){frames, (size_t)(end - frames)});
        while (resp_walk_next(&walk, &argument)) {
        }
        frames = walk.next;
    }
    return frames;
}

/* Where it is not known how long each request is, all count as equal. */
static struct part take_part(struct span *span, uint32_t count)
{
    const char *heads = (const char *)(span + 1);
    const char *from = heads + span->heads_told;
    const char *end = heads + span->heads_length;
    struct part part = {span->request_bytes, {from, (size_t)(end - from)}};

    if (count < span->count && span->heads_length > 0) {
        part.heads.length = (size_t)(pass_frames(from, end, count) - from);
        part.bytes = part.heads.length;
    } else if (count < span->count) {
        part.bytes = span->request_bytes / span->count * count;
    }
    span->request_bytes -= part.bytes;
    span->heads_told += (uint32_t)part.heads.length;
    span->count -= count;
    return part;
}

struct run_tally client_measure_tally(struct client *client, int64_t answered_us)
{
    const struct policy_attention *attention = client->service->attention;
    const struct span *span = first_span(client);
    bool is_alone = span == NULL || span->is_alone || answered_us - span->received_us >= attention->us;

    return (struct run_tally){.most = is_alone ? 1 : span->count, .large = attention->bytes};
}

void client_measure_replies(struct client *client, const struct run_tally *tally, int64_t answered_us)
{
    struct span *span = first_span(client);

    if (span == NULL) {
        return;
    }
    struct part part = take_part(span, tally->count);
    const struct policy_sample sample = {
        .tag = span->tag,
        .count = tally->count,
        .errors = tally->errors,
        .received_us = span->received_us,
        .sent_us = span->sent_us,
        .answered_us = answered_us > span->received_us ? answered_us : span->received_us,
        .request_bytes = part.bytes,
        .reply_bytes = tally->bytes,
        .head = tally->count == 1 ? part.heads : (struct slice){0},
    };
    give_sample(client, &sample);
    if (span->count == 0) {
        drop_first_span(client, span);
    }
}

void client_measure_lost(struct client *client, uint32_t requests)
{
    int64_t now = reactor_now(client->service->reactor);

    while (requests > 0 && client_measured(client) > 0) {
        struct run_tally tally = client_measure_tally(client, now);
        tally.count = tally.most < requests ? tally.most : requests;
        tally.errors = tally.count;
        client_measure_replies(client, &tally, now);
        requests -= tally.count;
    }
}

void client_measure_local(struct client *client, bool is_error, size_t length)
{
    struct client_note *note = &client->note;

    if (!note->taken) {
        return;
    }
    int64_t now = reactor_now(client->service->reactor);
    size_t head = client->service->attention->heads ? note->frame.length : 0;
    const struct policy_sample sample = {
        .tag = note->tag,
        .count = 1,
        .errors = is_error,
        .is_local = true,
        .received_us = note->received_us,
        .answered_us = now > note->received_us ? now : note->received_us,
        .request_bytes = note->request_bytes,
        .reply_bytes = length,
        .head = {note->frame.data, head < POLICY_HEAD_MAX ? head : POLICY_HEAD_MAX},
    };
    give_sample(client, &sample);
    client_note_end(client);
}

void client_measure_written(struct client *client, bool is_written)
{
    struct policy_client view = client_policy_view(client);

    while (!STAILQ_EMPTY(&client->unwritten)) {
        struct client_unwritten *kept = STAILQ_FIRST(&client->unwritten);
        STAILQ_REMOVE_HEAD(&client->unwritten, next);
        client->unwritten_bytes -= sizeof *kept;
        kept->sample.client = &view;
        kept->sample.written_us = is_written ? clock_now_us() : 0;
        chain_written(client->service->chain, &kept->sample);
        free(kept);
    }
}

void client_measure_end(struct client *client)
{
    client->spans.slot_used = 0;
    buffer_clear(&client->service->reactor->buffers, &client->spans.more);
    client_note_end(client);
}
