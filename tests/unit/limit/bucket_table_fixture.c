#include "bucket_table_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* So many sweeps reach every part of every bucket table. */
#define SWEEPS_OF_ALL 64

struct limit_meter window_of(int64_t limit, int64_t length_us)
{
    return (struct limit_meter){
        .algorithm = LIMIT_SLIDING_WINDOW, .most = limit, .window = {.limit = limit, .length_us = length_us}};
}

struct limit_share *share_of(size_t threads)
{
    struct limit_share *share = limit_share_new(threads);

    cr_assert_not_null(share);
    return share;
}

void join(struct limit_share *share, struct limit_member *member, const char *rule, const char *identity,
          struct limit_meter meter, size_t buckets_max)
{
    const struct limit_terms terms = {.rule = rule, .identity = identity, .meter = meter, .buckets_max = buckets_max};

    cr_assert(limit_bucket_table_join(share, member, &terms));
}

struct one_rule *one_rule(size_t threads, size_t buckets_max)
{
    struct one_rule *one = calloc(1, sizeof *one);

    cr_assert_not_null(one);
    one->share = share_of(threads);
    one->meter = window_of(5, 60 * SECOND);
    one->member.description = "per=user";
    join(one->share, &one->member, "api", "what api counts", one->meter, buckets_max);
    return one;
}

void one_rule_free(struct one_rule *one)
{
    limit_bucket_table_leave(one->share, &one->member);
    limit_share_free(one->share);
    free(one);
}

struct limit_bucket *pin(struct limit_share *share, const struct limit_member *member, const char *name, int64_t now_us)
{
    return limit_bucket_pin(share, member->bucket_table, slice_of(name), now_us);
}

struct limit_bucket *pin_tracked(struct limit_share *share, const struct limit_member *member, const char *name)
{
    struct limit_bucket *bucket = pin(share, member, name, NOW);

    cr_assert(limit_bucket_is_tracked(bucket), "%s", name);
    cr_assert(bucket->length == strlen(name) && memcmp(bucket->name, name, bucket->length) == 0);
    cr_assert_eq(bucket->bucket_table, member->bucket_table);
    return bucket;
}

bool charge(struct limit_share *share, const struct limit_meter *meter, struct limit_bucket *bucket, int64_t now_us)
{
    limit_locks locks = limit_bucket_locks(bucket);

    limit_share_lock(share, locks);
    bool admitted = limit_meter_wait(meter, &bucket->state, now_us, 1) == 0;
    if (admitted) {
        cr_assert(limit_meter_charge(meter, &bucket->state, now_us, 1));
    }
    limit_share_unlock(share, locks);
    return admitted;
}

bool charge_once(struct one_rule *one, const char *name, int64_t now_us)
{
    struct limit_bucket *bucket = pin(one->share, &one->member, name, now_us);
    bool admitted = charge(one->share, &one->meter, bucket, now_us);

    limit_bucket_unpin(one->share, bucket);
    return admitted;
}

bool is_tracked_at(struct one_rule *one, const char *name, int64_t now_us)
{
    struct limit_bucket *bucket = pin(one->share, &one->member, name, now_us);
    bool tracked = limit_bucket_is_tracked(bucket);

    limit_bucket_unpin(one->share, bucket);
    return tracked;
}

void sweep_all(struct limit_share *share, int64_t now_us)
{
    for (int i = 0; i < SWEEPS_OF_ALL; i++) {
        limit_share_sweep(share, now_us);
    }
}

char *printed(struct limit_share *share, int64_t now_us)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    limit_share_print(share, out, now_us);
    cr_assert_eq(fclose(out), 0);
    return text;
}

void assert_printed(struct limit_share *share, int64_t now_us, const char *expected)
{
    char *text = printed(share, now_us);

    cr_assert_str_eq(text, expected);
    free(text);
}
