/*
 * What a process that takes over is told of buckets, before it serves: what was admitted when, and how often was
 * refused. From then on each process counts for itself what its own clients do, until those of the old one are gone.
 * Both have the same clock. What is told again replaces what was told before.
 *
 *   table IDENTITY              those that follow are of this rule
 *   window NAME REFUSED AT COUNT …     a bucket, with what was admitted when (µs)
 *   funnel NAME REFUSED EMPTY          … with the time when it will be empty (ns)
 */
#include "base/percent.h"
#include "limit/limit_bucket_table_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The longest identity of a bucket table: more is none. */
#define IDENTITY_MAX 4096

static const char without_room[] = "others";

/* A bucket table is told of in steps, one for each of its stripes. Where the telling goes on is its place in the list
 * by this, and the step. */
#define STEPS ((uint64_t)LIMIT_STRIPES)
/* So many buckets are looked at, and those of a stripe more, before the worker has a moment for its clients. */
#define LOOKED_AT_ONCE 2048

/* ---- telling ---- */

struct telling {
    FILE *out;
    uint32_t number;
    size_t looked;
    size_t written;
    size_t most;
    const struct limit_bucket_table *named; /* of which the last lines are */
};

/* The number of a connection says nothing in another process. A key, which is the last part, may hold any bytes. */
static bool is_of_connection(struct slice name)
{
    static const char part[] = "connection:", key[] = "key:";

    while (name.length > 0 && !slice_begins(name, key)) {
        if (slice_begins(name, part)) {
            return true;
        }
        const char *end = memchr(name.data, '\n', name.length);
        size_t length = end != NULL ? (size_t)(end - name.data) + 1 : name.length;
        name = (struct slice){name.data + length, name.length - length};
    }
    return false;
}

static void tell_slot(void *context, int64_t at_us, int64_t count)
{
    struct telling *telling = context;

    telling->written += (size_t)fprintf(telling->out, " %" PRId64 " %" PRId64, at_us, count);
}

static void tell_state(struct telling *telling, struct limit_bucket *bucket)
{
    bool is_window = bucket->bucket_table->meter.algorithm == LIMIT_SLIDING_WINDOW;

    telling->written += (size_t)fprintf(telling->out, is_window ? "window " : "funnel ");
    telling->written += percent_write(telling->out, limit_bucket_name(bucket));
    telling->written += (size_t)fprintf(telling->out, " %" PRIu64, bucket->refused);
    if (is_window) {
        limit_window_tell(&bucket->state.window, tell_slot, telling);
    } else {
        int64_t empty_ns = (int64_t)((bucket->state.funnel + LIMIT_FUNNEL_NS - 1) / LIMIT_FUNNEL_NS);
        telling->written += (size_t)fprintf(telling->out, " %" PRId64, empty_ns);
    }
    telling->written += (size_t)fprintf(telling->out, "\n");
    bucket->told_number = telling->number;
}

static void name_table(struct telling *telling, const struct limit_bucket_table *bucket_table)
{
    if (telling->named != bucket_table) {
        telling->named = bucket_table;
        telling->written += (size_t)fprintf(telling->out, "table ");
        telling->written += percent_write(telling->out, slice_of(bucket_table->identity));
        telling->written += (size_t)fprintf(telling->out, "\n");
    }
}

static void tell_bucket(void *context, struct limit_bucket *bucket)
{
    struct telling *telling = context;

    telling->looked++;
    if (bucket->told_number != telling->number && telling->written < telling->most &&
        !is_of_connection(limit_bucket_name(bucket))) {
        name_table(telling, bucket->bucket_table);
        tell_state(telling, bucket);
    }
}

/* Returns the step to go on with. A stripe of which there may be more is told of again: what was told is passed over.
 */
static uint64_t tell_step(struct telling *telling, struct limit_share *share, struct limit_bucket_table *bucket_table,
                          uint64_t step)
{
    if (bucket_table->is_cache) {
        return STEPS;
    }
    limit_bucket_table_visit_stripe(share, bucket_table, step, tell_bucket, telling);
    return telling->written < telling->most ? step + 1 : step;
}

uint64_t limit_share_tell(struct limit_share *share, FILE *out, uint64_t at, size_t most)
{
    struct telling telling = {.out = out, .most = most};
    uint64_t from = at > 0 ? at - 1 : 0, place = 0, step = from % STEPS;

    pthread_mutex_lock(&share->registry);
    share->told_number += at == 0 ? 1 : 0;
    telling.number = share->told_number;
    struct limit_bucket_table *bucket_table = LIST_FIRST(&share->bucket_tables);
    for (; bucket_table != NULL && place < from / STEPS; place++) {
        bucket_table = LIST_NEXT(bucket_table, of_share);
    }
    while (bucket_table != NULL && telling.written < most && telling.looked < LOOKED_AT_ONCE) {
        step = tell_step(&telling, share, bucket_table, step);
        if (step == STEPS) {
            bucket_table = LIST_NEXT(bucket_table, of_share);
            place++;
            step = 0;
        }
    }
    bool is_over = bucket_table == NULL;
    pthread_mutex_unlock(&share->registry);
    return is_over ? 0 : 1 + place * STEPS + step;
}

/* ---- hearing ---- */

static struct limit_bucket_table *find_table(const struct limit_share *share, struct slice identity)
{
    struct limit_bucket_table *bucket_table;

    LIST_FOREACH(bucket_table, &share->bucket_tables, of_share)
    {
        if (slice_is(identity, bucket_table->identity)) {
            return bucket_table;
        }
    }
    return NULL;
}

/* NULL: this process has no such rule. */
static struct limit_bucket_table *hear_table(const struct limit_share *share, struct slice line)
{
    char identity[IDENTITY_MAX];
    struct slice word;
    size_t length;

    return percent_take_word(&line, &word) && percent_read(word, identity, sizeof identity, &length)
               ? find_table(share, (struct slice){identity, length})
               : NULL;
}

/* What was admitted later than now cannot have been told by who has this clock. */
static void hear_window(struct limit_bucket *bucket, struct slice line, int64_t now_us)
{
    int64_t at_us, count, last_us = 0;

    while (percent_take_number(&line, &at_us) && percent_take_number(&line, &count) && at_us <= now_us &&
           at_us > last_us && count > 0) {
        (void)limit_window_note(&bucket->bucket_table->meter.window, &bucket->state.window, at_us, count);
        last_us = at_us;
    }
}

static void hear_funnel(struct limit_bucket *bucket, struct slice line, int64_t now_us)
{
    const struct limit_funnel *funnel = &bucket->bucket_table->meter.funnel;
    int64_t empty_ns;

    if (percent_take_number(&line, &empty_ns) && empty_ns > now_us * 1000 &&
        empty_ns - now_us * 1000 <= funnel->full_ns) {
        bucket->state.funnel = empty_ns * LIMIT_FUNNEL_NS;
    }
}

static void hear_bucket(struct limit_bucket *bucket, struct slice kind, struct slice line, int64_t now_us)
{
    bool is_window = bucket->bucket_table->meter.algorithm == LIMIT_SLIDING_WINDOW;
    int64_t refused;

    if (percent_take_number(&line, &refused) && slice_is(kind, is_window ? "window" : "funnel")) {
        limit_meter_clear(&bucket->bucket_table->meter, &bucket->state);
        bucket->refused = (uint64_t)refused;
        (is_window ? hear_window : hear_funnel)(bucket, line, now_us);
    }
}

static struct limit_bucket *pin(struct limit_share *share, struct limit_bucket_table *bucket_table, struct slice name,
                                int64_t now_us)
{
    if (slice_is(name, without_room)) {
        struct limit_bucket *bucket = bucket_table->overflow;
        limit_share_lock(share, limit_bucket_locks(bucket));
        bucket->pins++;
        limit_share_unlock(share, limit_bucket_locks(bucket));
        return bucket;
    }
    return limit_bucket_pin(share, bucket_table, name, now_us);
}

static void hear_of_bucket(struct limit_share *share, struct limit_bucket_table *bucket_table, struct slice kind,
                           struct slice line, int64_t now_us)
{
    char name[LIMIT_BUCKET_MAX];
    struct slice word;
    size_t length;

    if (!percent_take_word(&line, &word) || !percent_read(word, name, sizeof name, &length)) {
        return;
    }
    struct limit_bucket *bucket = pin(share, bucket_table, (struct slice){name, length}, now_us);
    if (bucket != NULL) {
        limit_share_lock(share, limit_bucket_locks(bucket));
        hear_bucket(bucket, kind, line, now_us);
        limit_share_unlock(share, limit_bucket_locks(bucket));
        limit_bucket_unpin(share, bucket);
    }
}

void limit_share_hear(struct limit_share *share, struct slice text, int64_t now_us)
{
    struct limit_bucket_table *bucket_table = NULL;
    struct slice line, kind;

    pthread_mutex_lock(&share->registry);
    while (percent_take_line(&text, &line)) {
        if (!percent_take_word(&line, &kind)) {
            continue;
        }
        if (slice_is(kind, "table")) {
            bucket_table = hear_table(share, line);
        } else if (bucket_table != NULL && !bucket_table->is_cache) {
            hear_of_bucket(share, bucket_table, kind, line, now_us);
        }
    }
    pthread_mutex_unlock(&share->registry);
}
