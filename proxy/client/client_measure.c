/*
 * Measuring: what is known of a client's requests until their replies are there.
 *
 *   taken ─► noted (client->note) ─► in a span that waits (client->waiting_spans) ─► sent: in the spans of its run ─►
 *   reply ─► sample
 *                                 ─► answered by Headgate: sample
 *
 * Replies from Redis come in the order of the requests of a run, so its spans are a queue. Each request of a run that
 * is measured is in one, even without a tag: the queue must not get out of step with the replies. Requests under one
 * tag that are sent in one batch share a span, and those of them whose replies are read at once share a sample, unless
 * the policy attends to each.
 */
#include "client/client_private.h"

#include <stdlib.h>
#include <string.h>

/* From here on client_output_limit is looked at with each loop iteration. */
#define SPANS_MARK ((size_t)64 * 1024)

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

/* ---- spans that wait for their run ---- */

/* Those that wait, of which there are some from now on. NULL when memory is short. */
static inline struct spans *waiting_spans(struct client *client)
{
    if (client->waiting_spans == NULL) {
        client->waiting_spans = spans_take(&client->service->spans);
    }
    return client->waiting_spans;
}

/* There is more of them than lies in the queue itself. NULL when memory is short. */
static struct span *append_behind(struct client *client, struct spans *spans, size_t size)
{
    struct span *span = spans_append_behind(spans, &client->service->reactor->buffers, size);

    if (span != NULL) {
        client->measured += size;
    }
    if (client->measured > SPANS_MARK) {
        client_check_room(client);
        client_want_flush(client);
    }
    return span;
}

/* Adds a span of one request or more, with so many of their first bytes; the rest of it is to be set. NULL when memory
 * is short; else it is there until something else is done to the queue. */
static inline struct span *append_to(struct client *client, struct spans *spans, struct slice heads)
{
    size_t size = spans_size_of(heads.length);
    struct span *span = spans_take_slot(spans, size);

    if (span == NULL) {
        span = append_behind(client, spans, size);
    }
    if (span != NULL) {
        span->heads_length = (uint32_t)heads.length;
        span->heads_told = 0;
        memcpy(span_heads(span), heads.data, heads.length);
    }
    return span;
}

/* Adds such a span of requests that are sent now. */
static inline struct span *append_span(struct client *client, int64_t received_us, uint32_t tag, struct slice heads)
{
    int64_t now = reactor_now(client->service->reactor);
    struct spans *spans = waiting_spans(client);
    struct span *span = spans != NULL ? append_to(client, spans, heads) : NULL;

    if (span != NULL) {
        span->received_us = received_us;
        span->sent_us = now > received_us ? now : received_us;
        span->tag = tag;
        span->is_alone = false;
    }
    return span;
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

static inline bool begin_part(struct client *client, struct client_part *part, int64_t received_us, uint32_t tag,
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

bool client_measure_begins(struct client *client, struct client_part *part, int64_t received_us, uint32_t tag,
                           struct slice frame)
{
    return begin_part(client, part, received_us, tag, frame);
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

    if (is_noted || !begin_part(client, part, client->framed_us, interest->tag, frame)) {
        return false;
    }
    service->until_spot--;
    return true;
}

bool client_measure_join(struct client *client, struct run *run)
{
    struct spans *waiting = client->waiting_spans;
    struct spans *spans = run->spans;

    client->waiting_spans = NULL;
    client->measured -= buffer_length(&spans->more) + buffer_length(&waiting->more);
    bool joined = spans_join(spans, &client->service->reactor->buffers, waiting);
    client->measured += buffer_length(&spans->more);
    client_measure_give(client, waiting);
    return joined;
}

size_t client_measure_kept(const struct client *client)
{
    return client->measured + client->unwritten_bytes;
}

void client_measure_grown(struct client *client, uint64_t bytes)
{
    struct run *run = client->stream_measured ? client->last : NULL;
    /* The reply may have come before the end of the request. */
    struct span *last = run != NULL && run->spans != NULL ? spans_last(run->spans) : NULL;

    if (last != NULL) {
        last->request_bytes = bytes;
        last->received_us = client->read_us;
        last->sent_us = client->read_us;
    }
}

/* ---- samples ---- */

/* Keeps a sample until the reply has been written, which cannot be while those of other runs are ahead of it. Without
 * memory nobody hears of it again. */
static void keep_sample(struct client *client, const struct run *run, const struct policy_sample *sample)
{
    struct spans *behind = run != NULL && run != client->first ? run->spans : NULL;
    struct client_unwritten *kept = malloc(sizeof *kept);

    if (kept == NULL) {
        return;
    }
    kept->sample = *sample;
    if (sample->head.length > 0) {
        memcpy(kept->head, sample->head.data, sample->head.length);
    }
    kept->sample.head = (struct slice){kept->head, sample->head.length};
    client->unwritten_bytes += sizeof *kept;
    buffer_pool_count(&client->service->reactor->buffers, sizeof *kept);
    if (behind != NULL) {
        STAILQ_INSERT_TAIL(&behind->unwritten, kept, next);
    } else {
        STAILQ_INSERT_TAIL(&client->unwritten, kept, next);
        client_want_flush(client);
    }
}

/* run: of which it is; NULL: Headgate has answered. */
static void give_sample(struct client *client, const struct run *run, const struct policy_sample *sample)
{
    if (sample->tag != POLICY_TAG_NONE && chain_sample(client->service->chain, sample) && sample->count == 1 &&
        client->state != CLIENT_CLOSED) {
        keep_sample(client, run, sample);
    }
}

void client_measure_come(struct client *client, struct spans *spans)
{
    if (!STAILQ_EMPTY(&spans->unwritten)) {
        STAILQ_CONCAT(&client->unwritten, &spans->unwritten);
        client_want_flush(client);
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
static inline struct part take_part(struct span *span, uint32_t count)
{
    const char *heads = span_heads(span);
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

static inline void drop_if_told(struct client *client, struct spans *spans, const struct span *first)
{
    if (first->count > 0) {
        return;
    }
    if (spans->slot_used > 0) {
        spans->slot_used = 0;
        return;
    }
    size_t size = spans_size_of(first->heads_length);
    client->measured -= size;
    buffer_consume(&client->service->reactor->buffers, &spans->more, size);
}

struct run_tally client_measure_tally(const struct client *client, const struct run *run, int64_t answered_us)
{
    const struct policy_attention *attention = client->service->attention;
    const struct span *span = spans_first(run->spans);
    bool is_alone = span == NULL || span->is_alone || answered_us - span->received_us >= attention->us;

    return (struct run_tally){.most = is_alone ? 1 : span->count, .large = attention->bytes};
}

void client_measure_replies(struct client *client, struct run *run, const struct run_tally *tally, int64_t answered_us)
{
    struct span *span = spans_first(run->spans);

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
    give_sample(client, run, &sample);
    drop_if_told(client, run->spans, span);
}

void client_measure_lost(struct client *client, struct run *run, uint32_t requests)
{
    int64_t now = reactor_now(client->service->reactor);

    while (requests > 0 && run->spans != NULL && spans_first(run->spans) != NULL) {
        struct run_tally tally = client_measure_tally(client, run, now);
        tally.count = tally.most < requests ? tally.most : requests;
        tally.errors = tally.count;
        client_measure_replies(client, run, &tally, now);
        requests -= tally.count;
    }
}

void client_measure_answered(struct client *client, struct run *run, struct run *before)
{
    struct spans *spans = run->spans;

    if (spans == NULL || STAILQ_EMPTY(&spans->unwritten)) {
        return;
    }
    struct spans *answered = spans_take(&client->service->spans);
    if (answered != NULL) {
        STAILQ_CONCAT(&answered->unwritten, &spans->unwritten);
        before->spans = answered;
    }
}

bool client_measure_taken(struct client *client, struct run *run, struct run *taken)
{
    struct span *span = run->spans != NULL ? spans_first(run->spans) : NULL;

    if (span == NULL) {
        return true;
    }
    struct part part = take_part(span, 1);
    size_t shown = part.heads.length < POLICY_HEAD_MAX ? part.heads.length : POLICY_HEAD_MAX;
    struct spans *spans = spans_take(&client->service->spans);
    struct span *alone = spans != NULL ? append_to(client, spans, (struct slice){part.heads.data, shown}) : NULL;
    if (alone != NULL) {
        alone->received_us = span->received_us;
        alone->sent_us = span->sent_us;
        alone->request_bytes = part.bytes;
        alone->count = 1;
        alone->tag = span->tag;
        alone->is_alone = true;
    }
    taken->spans = spans;
    drop_if_told(client, run->spans, span);
    return alone != NULL;
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
    give_sample(client, NULL, &sample);
    client_note_end(client);
}

void client_measure_written(struct client *client, bool is_written)
{
    struct policy_client view = client_policy_view(client);

    while (!STAILQ_EMPTY(&client->unwritten)) {
        struct client_unwritten *kept = STAILQ_FIRST(&client->unwritten);
        STAILQ_REMOVE_HEAD(&client->unwritten, next);
        client->unwritten_bytes -= sizeof *kept;
        buffer_pool_uncount(&client->service->reactor->buffers, sizeof *kept);
        kept->sample.client = &view;
        kept->sample.written_us = is_written ? clock_now_us() : 0;
        chain_written(client->service->chain, &kept->sample);
        free(kept);
    }
}

void client_measure_give(struct client *client, struct spans *spans)
{
    client->measured -= buffer_length(&spans->more);
    if (!STAILQ_EMPTY(&spans->unwritten)) {
        STAILQ_CONCAT(&client->unwritten, &spans->unwritten);
    }
    spans_give(&client->service->spans, &client->service->reactor->buffers, spans);
}

void client_measure_forget(struct client *client)
{
    if (client->waiting_spans != NULL) {
        client_measure_give(client, client->waiting_spans);
        client->waiting_spans = NULL;
    }
    client_note_end(client);
}
