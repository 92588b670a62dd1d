/* What bucket tables tell and forget at the admin port's word. */
#include "limit/limit_bucket_table_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OFFENDERS_SHOWN 10

/* What its members and those who have left have counted. The registry is locked. */
static uint64_t count_of(const struct limit_bucket_table *bucket_table, enum limit_count count)
{
    uint64_t sum = bucket_table->counts_of_those_who_left[count];

    for (const struct limit_member *member = LIST_FIRST(&bucket_table->members); member != NULL;
         member = LIST_NEXT(member, of_bucket_table)) {
        sum += atomic_load_explicit(&member->counts[count], memory_order_relaxed);
    }
    return sum;
}

/* A copy of what is shown of a bucket, as it may be gone once its stripe is unlocked. */
struct offender {
    uint64_t refused;
    int64_t wait_us;
    size_t length;
    char name[LIMIT_BUCKET_MAX];
};

/* The worst come first. */
struct offenders {
    int64_t now_us;
    size_t count;
    struct offender list[OFFENDERS_SHOWN];
};

static void note_offender(void *context, struct limit_bucket *bucket)
{
    struct offenders *offenders = context;
    int64_t now_us = offenders->now_us;
    size_t place = offenders->count;

    while (place > 0 && offenders->list[place - 1].refused < bucket->refused) {
        place--;
    }
    if (bucket->refused == 0 || place == OFFENDERS_SHOWN) {
        return;
    }
    offenders->count += offenders->count < OFFENDERS_SHOWN;
    memmove(&offenders->list[place + 1], &offenders->list[place],
            (offenders->count - place - 1) * sizeof offenders->list[0]);
    struct offender *offender = &offenders->list[place];
    offender->refused = bucket->refused;
    offender->wait_us = limit_meter_wait(&bucket->bucket_table->meter, &bucket->state, now_us, 1);
    if (bucket->remote != NULL && bucket->remote->refused_until_us - now_us > offender->wait_us) {
        offender->wait_us = bucket->remote->refused_until_us - now_us;
    }
    offender->length = bucket->length;
    memcpy(offender->name, bucket->name, bucket->length);
}

/* Names as operators see and give them: "user:alice+key:a\x20b". */
struct shown_name {
    char text[4 * LIMIT_BUCKET_MAX + 1];
};

/* A key, which is the last part of a name, may hold any bytes: what would break the line, or look like another part or
 * another field, is shown by its number. */
static struct shown_name show_name(const char *name, size_t length)
{
    struct shown_name shown;
    char *at = shown.text;
    bool in_key = length >= 4 && memcmp(name, "key:", 4) == 0;

    for (size_t i = 0; i < length; i++) {
        unsigned char character = (unsigned char)name[i];
        if (character == '\n' && !in_key) {
            *at++ = '+'; /* between the parts */
            in_key = length - i > 4 && memcmp(name + i + 1, "key:", 4) == 0;
        } else if (character > ' ' && character < 0x7f && character != '\\' && character != '+') {
            *at++ = (char)character;
        } else {
            at += sprintf(at, "\\x%02x", character);
        }
    }
    *at = '\0';
    return shown;
}

static void print_bucket_table(struct limit_share *share, struct limit_bucket_table *bucket_table, FILE *out,
                               int64_t now_us)
{
    struct offenders offenders = {.now_us = now_us};

    fprintf(out,
            "rule=%s %s admitted=%" PRIu64 " refused=%" PRIu64 " delayed=%" PRIu64 " observed=%" PRIu64
            " tracked=%zu\n",
            bucket_table->rule, LIST_FIRST(&bucket_table->members)->description, count_of(bucket_table, LIMIT_ADMITTED),
            count_of(bucket_table, LIMIT_REFUSED), count_of(bucket_table, LIMIT_DELAYED),
            count_of(bucket_table, LIMIT_OBSERVED),
            atomic_load_explicit(&bucket_table->bucket_count, memory_order_relaxed));
    limit_bucket_table_visit(share, bucket_table, note_offender, &offenders);
    for (size_t i = 0; i < offenders.count; i++) {
        const struct offender *offender = &offenders.list[i];
        struct shown_name shown = show_name(offender->name, offender->length);
        fprintf(out, "offender=%s rule=%s refused=%" PRIu64 " next_admission_ms=%" PRId64 "\n", shown.text,
                bucket_table->rule, offender->refused, offender->wait_us / 1000 + (offender->wait_us % 1000 != 0));
    }
}

/* The newest stands first in the list; operators want the order of their file, which joined in that order. */
static void print_from_last(struct limit_share *share, struct limit_bucket_table *bucket_table, FILE *out,
                            int64_t now_us)
{
    if (bucket_table != NULL) {
        print_from_last(share, LIST_NEXT(bucket_table, of_share), out, now_us);
        print_bucket_table(share, bucket_table, out, now_us);
    }
}

void limit_share_print(struct limit_share *share, FILE *out, int64_t now_us)
{
    pthread_mutex_lock(&share->registry);
    print_from_last(share, LIST_FIRST(&share->bucket_tables), out, now_us);
    pthread_mutex_unlock(&share->registry);
}

void limit_share_tell_rules(struct limit_share *share, policy_rule_told *told, void *context)
{
    const struct limit_bucket_table *bucket_table;
    uint64_t values[LIMIT_RULE_COUNTERS];

    pthread_mutex_lock(&share->registry);
    LIST_FOREACH(bucket_table, &share->bucket_tables, of_share)
    {
        for (enum limit_count i = 0; i < LIMIT_COUNTS; i++) {
            values[i] = count_of(bucket_table, i);
        }
        values[LIMIT_COUNTS] = atomic_load_explicit(&bucket_table->bucket_count, memory_order_relaxed);
        told(context, bucket_table->rule, values);
    }
    pthread_mutex_unlock(&share->registry);
}

size_t limit_bucket_table_name(struct slice shown, char name[LIMIT_BUCKET_MAX])
{
    if (shown.length > LIMIT_BUCKET_MAX || memchr(shown.data, '\\', shown.length) != NULL) {
        return 0;
    }
    for (size_t i = 0; i < shown.length; i++) {
        name[i] = shown.data[i] == '+' ? '\n' : shown.data[i];
    }
    return shown.length;
}

/* What is to be forgotten, and who is told. */
struct reset {
    struct slice name; /* as it is shown; empty for any */
    bool found;
    limit_forgotten_callback *forgotten;
    void *context;
};

static void reset_bucket(void *context, struct limit_bucket *bucket)
{
    struct reset *reset = context;

    if (reset->name.length > 0) {
        struct shown_name shown = show_name(bucket->name, bucket->length);
        if (!slice_is(reset->name, shown.text)) {
            return;
        }
    }
    limit_meter_clear(&bucket->bucket_table->meter, &bucket->state);
    bucket->refused = 0;
    bucket->was_left = true;
    if (bucket->remote != NULL) {
        bucket->remote->resets++;
        bucket->remote->batches[0] = bucket->remote->batches[1] = (struct limit_batch){0};
    }
    reset->found = true;
    if (reset->forgotten != NULL) {
        reset->forgotten(reset->context, bucket);
    }
}

bool limit_share_reset(struct limit_share *share, struct slice rule, struct slice name,
                       limit_forgotten_callback *forgotten, void *context)
{
    struct reset reset = {.name = name, .forgotten = forgotten, .context = context};

    pthread_mutex_lock(&share->registry);
    for (struct limit_bucket_table *bucket_table = LIST_FIRST(&share->bucket_tables); bucket_table != NULL;
         bucket_table = LIST_NEXT(bucket_table, of_share)) {
        if (slice_is(rule, bucket_table->rule)) {
            reset.found = reset.found || name.length == 0;
            limit_bucket_table_visit(share, bucket_table, reset_bucket, &reset);
        }
    }
    pthread_mutex_unlock(&share->registry);
    return reset.found;
}
