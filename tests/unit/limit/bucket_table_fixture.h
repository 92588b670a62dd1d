/* Bucket tables as tests have them: shares, one rule, buckets that are pinned and charged. */
#ifndef HEADGATE_TESTS_BUCKET_TABLE_FIXTURE_H
#define HEADGATE_TESTS_BUCKET_TABLE_FIXTURE_H

#include "limit/limit_bucket_table.h"

#define SECOND INT64_C(1000000)
#define NOW (1000 * SECOND)

struct limit_meter window_of(int64_t limit, int64_t length_us);

struct limit_share *share_of(size_t threads);
void join(struct limit_share *share, struct limit_member *member, const char *rule, const char *identity,
          struct limit_meter meter, size_t buckets_max);

/* A share with one rule: five in a minute. */
struct one_rule {
    struct limit_share *share;
    struct limit_meter meter;
    struct limit_member member;
};

struct one_rule *one_rule(size_t threads, size_t buckets_max);
void one_rule_free(struct one_rule *one);

struct limit_bucket *pin(struct limit_share *share, const struct limit_member *member, const char *name,
                         int64_t now_us);
/* Pins one that has a state of its own, at NOW. */
struct limit_bucket *pin_tracked(struct limit_share *share, const struct limit_member *member, const char *name);
/* Admits if it may. */
bool charge(struct limit_share *share, const struct limit_meter *meter, struct limit_bucket *bucket, int64_t now_us);
/* Pins a bucket for as long as it takes to charge it, or to look at it. */
bool charge_once(struct one_rule *one, const char *name, int64_t now_us);
bool is_tracked_at(struct one_rule *one, const char *name, int64_t now_us);

/* Sweeps every part of every bucket table. */
void sweep_all(struct limit_share *share, int64_t now_us);

/* What the admin port shows; the caller frees it. */
char *printed(struct limit_share *share, int64_t now_us);
void assert_printed(struct limit_share *share, int64_t now_us, const char *expected);

#endif
