/*
 * TOP: the busiest clients, operations and keys of some seconds.
 *
 * The verb is put to one worker's instance, which notes it down in what all share. Each instance finds it at its next
 * tick, counts what it sees from then on, adds that to what all share when the time is over, and says so; then the verb
 * is answered.
 */
#include "trace/trace_private.h"

#include "base/siphash.h"
#include "trace/trace_table.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_DEFAULT 2
/* The answer is waited for no longer than POLICY_ANSWER_PATIENCE_MS. */
#define SECONDS_MAX 8
#define LINES_DEFAULT 10
#define KEY_SHOWN_MAX ((size_t)96)

enum top_kind { TOP_CLIENTS, TOP_OPERATIONS, TOP_KEYS, TOP_KINDS };

enum top_order { TOP_BY_REQUESTS, TOP_BY_BYTES, TOP_BY_TIME };

static const char *const order_names[] = {"requests", "bytes", "time"};

/* What is counted. */
struct top_tables {
    struct trace_table *kinds[TOP_KINDS];
    struct trace_row all;
};

/* Of one worker. */
struct trace_top {
    struct top_tables tables;
    int64_t since_us;
    int64_t until_us;
    int64_t unseen_us; /* trace_budget_unseen() when it began */
};

struct trace_shared {
    struct siphash_key hash_key;
    size_t threads;
    pthread_mutex_t mutex;   /* of all below but for these: */
    _Atomic uint32_t number; /* of the TOP that is asked for: another one with each, written last */
    _Atomic int64_t duration_us;
    struct top_tables tables; /* what workers have added */
    size_t added;             /* so many of them have */
    bool has_lost;            /* memory was short for one of them */
    int64_t counted_us;       /* the sum of the times for which they have counted, … */
    int64_t unseen_us;        /* … and of those within them in which nothing was looked at */
    /* The first worker's own: */
    struct admin_query *admin_query; /* NULL: none is under way */
    size_t lines;
    enum top_order order;
};

/* ---- tables ---- */

static void close_tables(struct top_tables *tables)
{
    for (size_t i = 0; i < TOP_KINDS; i++) {
        trace_table_free(tables->kinds[i]);
    }
    *tables = (struct top_tables){0};
}

/* False when memory is short, and there are none. */
static bool open_tables(struct top_tables *tables)
{
    bool opened = true;

    *tables = (struct top_tables){0};
    for (size_t i = 0; i < TOP_KINDS; i++) {
        tables->kinds[i] = trace_table_new();
        opened = opened && tables->kinds[i] != NULL;
    }
    if (!opened) {
        close_tables(tables);
    }
    return opened;
}

static void add_tables(struct top_tables *into, const struct top_tables *from)
{
    for (size_t i = 0; i < TOP_KINDS; i++) {
        trace_table_merge(into->kinds[i], from->kinds[i]);
    }
    into->all.count += from->all.count;
    into->all.bytes_in += from->all.bytes_in;
    into->all.bytes_out += from->all.bytes_out;
    into->all.redis_us += from->all.redis_us;
}

void *trace_top_share(size_t threads)
{
    struct trace_shared *shared = calloc(1, sizeof *shared);

    if (shared != NULL) {
        shared->hash_key = siphash_random_key();
        shared->threads = threads;
        pthread_mutex_init(&shared->mutex, NULL);
    }
    return shared;
}

void trace_top_unshare(void *context)
{
    struct trace_shared *shared = context;

    close_tables(&shared->tables);
    pthread_mutex_destroy(&shared->mutex);
    free(shared);
}

/* ---- counting ---- */

static uint64_t hash_of(const struct trace *trace, const void *data, size_t length)
{
    return siphash(&trace->shared->hash_key, data, length);
}

struct key_count {
    struct trace *trace;
    struct trace_table *table;
    uint64_t bytes;
};

static bool count_key(void *context, struct slice key, uint32_t argument_index)
{
    const struct key_count *count = context;
    struct trace_row *row = trace_table_count(count->table, hash_of(count->trace, key.data, key.length), 1);

    (void)argument_index;
    row->bytes_in += count->bytes;
    if (row->label[0] == '\0') {
        struct slice shown = {key.data, key.length < KEY_SHOWN_MAX ? key.length : KEY_SHOWN_MAX};
        size_t length = trace_word(shown, row->label, sizeof row->label - 4);
        memcpy(row->label + length, key.length > shown.length ? "..." : "", key.length > shown.length ? 4 : 1);
    }
    return true;
}

void trace_top_count(struct trace *trace, struct traced *traced, const struct trace_subject *subject)
{
    struct top_tables *tables = &trace->top->tables;
    const struct policy_client *client = subject->request->client;
    struct key_count keys = {trace, tables->kinds[TOP_KEYS], subject->bytes};

    traced->client_hash = hash_of(trace, &client->id, sizeof client->id);
    traced->operation_hash = hash_of(trace, subject->operation, strlen(subject->operation));
    struct trace_row *row = trace_table_count(tables->kinds[TOP_CLIENTS], traced->client_hash, 1);
    row->bytes_in += subject->bytes;
    if (row->label[0] == '\0') {
        (void)trace_client(client, row->label, sizeof row->label);
    }
    row = trace_table_count(tables->kinds[TOP_OPERATIONS], traced->operation_hash, 1);
    row->bytes_in += subject->bytes;
    snprintf(row->label, sizeof row->label, "op=%s", subject->operation);
    tables->all.count++;
    tables->all.bytes_in += subject->bytes;
    (void)match_visit_keys(subject->request, count_key, &keys);
}

static void end_row(struct trace_row *row, uint64_t bytes, int64_t redis_us)
{
    if (row != NULL) {
        row->bytes_out += bytes;
        row->redis_us += (uint64_t)redis_us;
    }
}

void trace_top_end(struct trace *trace, const struct traced *traced, const struct policy_reply *reply)
{
    int64_t redis_us = traced->sent_us > 0 ? reply->now_us - traced->sent_us : 0;

    if (trace->top == NULL || traced->received_us < trace->top->since_us) {
        return;
    }
    end_row(trace_table_find(trace->top->tables.kinds[TOP_CLIENTS], traced->client_hash), reply->length, redis_us);
    end_row(trace_table_find(trace->top->tables.kinds[TOP_OPERATIONS], traced->operation_hash), reply->length,
            redis_us);
    end_row(&trace->top->tables.all, reply->length, redis_us);
}

/* ---- the answer ---- */

static int descending(uint64_t a, uint64_t b)
{
    return a > b ? -1 : a < b;
}

static const struct trace_row *row_at(const void *place)
{
    return *(const struct trace_row *const *)place;
}

static int by_requests(const void *a, const void *b)
{
    return descending(row_at(a)->count, row_at(b)->count);
}

static int by_bytes(const void *a, const void *b)
{
    return descending(row_at(a)->bytes_in + row_at(a)->bytes_out, row_at(b)->bytes_in + row_at(b)->bytes_out);
}

static int by_time(const void *a, const void *b)
{
    return descending(row_at(a)->redis_us, row_at(b)->redis_us);
}

static double seconds_of(const struct trace_shared *shared)
{
    return (double)shared->counted_us / (double)shared->threads / 1e6;
}

/* Of the time, the share in which requests were looked at. */
static double watched(const struct trace_shared *shared)
{
    return shared->counted_us > 0 ? 1 - (double)shared->unseen_us / (double)shared->counted_us : 1;
}

static void write_counts(const struct trace_shared *shared, const struct trace_row *row, FILE *out)
{
    double seconds = seconds_of(shared) * watched(shared);

    fprintf(out, " requests=%" PRIu64 " per_second=%.1f", row->count, seconds > 0 ? (double)row->count / seconds : 0);
}

static void write_sums(const struct trace_row *row, FILE *out)
{
    fprintf(out, " in=%" PRIu64 " out=%" PRIu64 " redis=%" PRIu64 ".%03" PRIu64 " error=%" PRIu64 "\n", row->bytes_in,
            row->bytes_out, row->redis_us / 1000, row->redis_us % 1000, row->error);
}

static void write_kind(const struct trace_shared *shared, enum top_kind kind, FILE *out)
{
    static int (*const orders[])(const void *, const void *) = {
        [TOP_BY_REQUESTS] = by_requests, [TOP_BY_BYTES] = by_bytes, [TOP_BY_TIME] = by_time};
    static const char *const names[] = {"client ", "operation ", "key key="};
    const struct trace_row *rows[TRACE_TABLE_ROWS];
    /* What keys' replies have, and take, is not told apart. */
    bool is_keys = kind == TOP_KEYS;
    size_t count = trace_table_sort(shared->tables.kinds[kind], is_keys ? by_requests : orders[shared->order], rows);

    for (size_t i = 0; i < count && i < shared->lines; i++) {
        fprintf(out, "top=%s%s", names[kind], rows[i]->label);
        write_counts(shared, rows[i], out);
        if (is_keys) {
            fprintf(out, " in=%" PRIu64 " error=%" PRIu64 "\n", rows[i]->bytes_in, rows[i]->error);
        } else {
            write_sums(rows[i], out);
        }
    }
}

static void write_answer(const struct trace_shared *shared, FILE *out)
{
    fprintf(out, "top=all seconds=%.1f", seconds_of(shared));
    if (shared->unseen_us > 0) {
        fprintf(out, " watched=%.2f%%", 100 * watched(shared));
    }
    write_counts(shared, &shared->tables.all, out);
    write_sums(&shared->tables.all, out);
    for (enum top_kind kind = 0; kind < TOP_KINDS; kind++) {
        write_kind(shared, kind, out);
    }
}

static void answer_error(struct trace *trace, struct admin_query *admin_query, const char *text)
{
    trace->host->answer(trace->host->context, admin_query, POLICY_ANSWER_ERROR, (struct slice){text, strlen(text)});
}

static void answer(struct trace *trace)
{
    struct trace_shared *shared = trace->shared;
    struct admin_query *admin_query = shared->admin_query;
    struct text_stream text;
    bool is_whole = !shared->has_lost && text_open(&text);

    shared->admin_query = NULL;
    if (is_whole) {
        write_answer(shared, text.out);
        is_whole = text_close(&text);
        if (is_whole) {
            trace->host->answer(trace->host->context, admin_query, POLICY_ANSWER_TEXT,
                                (struct slice){text.bytes, text.length});
        }
        text_free(&text);
    }
    if (!is_whole) {
        answer_error(trace, admin_query, "out of memory");
    }
}

/* ---- following ---- */

static void begin(struct trace *trace, int64_t now_us)
{
    struct trace_top *top = calloc(1, sizeof *top);

    if (top == NULL || !open_tables(&top->tables)) {
        free(top);
        pthread_mutex_lock(&trace->shared->mutex);
        trace->shared->has_lost = true;
        trace->shared->added++;
        pthread_mutex_unlock(&trace->shared->mutex);
        return;
    }
    top->since_us = now_us;
    top->unseen_us = trace_budget_unseen(trace, now_us);
    top->until_us = now_us + atomic_load(&trace->shared->duration_us);
    trace->top = top;
    trace_changed(trace);
}

static void end(struct trace *trace, int64_t now_us)
{
    struct trace_shared *shared = trace->shared;

    pthread_mutex_lock(&shared->mutex);
    add_tables(&shared->tables, &trace->top->tables);
    shared->counted_us += now_us - trace->top->since_us;
    shared->unseen_us += trace_budget_unseen(trace, now_us) - trace->top->unseen_us;
    shared->added++;
    pthread_mutex_unlock(&shared->mutex);
    trace_top_free(trace);
    trace_changed(trace);
}

static bool all_have_added(struct trace_shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    bool all = shared->added == shared->threads;
    pthread_mutex_unlock(&shared->mutex);
    return all;
}

void trace_top_tick(struct trace *trace, int64_t now_us)
{
    struct trace_shared *shared = trace->shared;
    uint32_t number = atomic_load_explicit(&shared->number, memory_order_acquire);

    if (number != trace->followed) {
        trace->followed = number;
        begin(trace, now_us);
    }
    if (trace->top != NULL && now_us >= trace->top->until_us) {
        end(trace, now_us);
    }
    if (trace->host->worker == 0 && shared->admin_query != NULL && all_have_added(shared)) {
        answer(trace);
        close_tables(&shared->tables);
    }
}

void trace_top_free(struct trace *trace)
{
    if (trace->top != NULL) {
        close_tables(&trace->top->tables);
        free(trace->top);
        trace->top = NULL;
    }
}

/* ---- the verb ---- */

struct top_words {
    int64_t seconds;
    int64_t lines;
    enum top_order order;
};

static bool read_order(struct slice word, enum top_order *order)
{
    size_t i = 0;

    while (i < sizeof order_names / sizeof order_names[0] && !word_is(word, order_names[i])) {
        i++;
    }
    *order = (enum top_order)i;
    return i < sizeof order_names / sizeof order_names[0];
}

static bool read_words(size_t count, const struct slice *words, struct top_words *read)
{
    bool is_sound = true;

    for (size_t i = 1; i < count && is_sound; i++) {
        if (i + 1 < count && word_is(words[i], "count")) {
            is_sound = word_integer(words[++i], &read->lines) && read->lines > 0 && read->lines <= TRACE_TABLE_ROWS;
        } else if (i + 1 < count && word_is(words[i], "by")) {
            is_sound = read_order(words[++i], &read->order);
        } else {
            is_sound =
                i == 1 && word_integer(words[i], &read->seconds) && read->seconds > 0 && read->seconds <= SECONDS_MAX;
        }
    }
    return is_sound;
}

void trace_top_ask(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct trace *trace = instance;
    struct trace_shared *shared = trace->shared;
    struct top_words words = {.seconds = SECONDS_DEFAULT, .lines = LINES_DEFAULT};

    if (!read_words(count, arguments, &words)) {
        answer_error(trace, admin_query,
                     "usage: TOP [seconds] [COUNT n] [BY requests or bytes or time], 1 to 8 seconds, n up to 512");
        return;
    }
    if (shared->admin_query != NULL) {
        answer_error(trace, admin_query, "another TOP is under way; try again");
        return;
    }
    if (!open_tables(&shared->tables)) {
        answer_error(trace, admin_query, "out of memory");
        return;
    }
    shared->admin_query = admin_query;
    shared->lines = (size_t)words.lines;
    shared->order = words.order;
    shared->added = 0;
    shared->has_lost = false;
    shared->counted_us = 0;
    shared->unseen_us = 0;
    atomic_store(&shared->duration_us, words.seconds * 1000000);
    atomic_fetch_add_explicit(&shared->number, 1, memory_order_release);
}
