/* What the files of bucket tables share: limit_bucket_table.c, and limit_bucket_table_report.c for the admin port. */
#ifndef HEADGATE_LIMIT_BUCKET_TABLE_PRIVATE_H
#define HEADGATE_LIMIT_BUCKET_TABLE_PRIVATE_H

#include "base/siphash.h"
#include "limit/limit_bucket_table.h"

#include <pthread.h>

/* As many as a limit_locks has bits. */
#define LIMIT_STRIPES 64

struct limit_bucket_table {
    LIST_ENTRY(limit_bucket_table) of_share;
    char *rule;
    char *identity;
    struct limit_meter meter;
    bool is_cache;
    _Atomic size_t buckets_max;
    _Atomic size_t bucket_count;
    LIST_HEAD(, limit_member) members; /* guarded by the registry's lock, and so are the counts */
    uint64_t counts_of_those_who_left[LIMIT_COUNTS];
    size_t sweep_stripe;
    _Atomic int64_t reclaimed_us;
    _Atomic int64_t warned_us; /* 0: never */
    _Atomic bool said_untold[2];
    struct table stripes[LIMIT_STRIPES]; /* buckets, each guarded by the lock of the same number */
    struct limit_bucket *overflow;       /* stands for those without room; in no table */
};

struct limit_share {
    bool locks; /* there are several workers */
    struct siphash_key key;
    pthread_mutex_t registry; /* guards the list of bucket tables; taken before any stripe's */
    LIST_HEAD(, limit_bucket_table) bucket_tables;
    pthread_mutex_t stripes[LIMIT_STRIPES];
    uint32_t told_number; /* of the last time that all was told; guarded by the registry's lock */
};

/* Calls visit for each bucket of the bucket table, the one of those without room among them, while it is locked; the
 * registry is locked. visit must not add or drop any. */
typedef void limit_bucket_visitor(void *context, struct limit_bucket *bucket);
void limit_bucket_table_visit(struct limit_share *share, struct limit_bucket_table *bucket_table,
                              limit_bucket_visitor *visit, void *context);
/* The same for those of one stripe, below LIMIT_STRIPES. */
void limit_bucket_table_visit_stripe(struct limit_share *share, struct limit_bucket_table *bucket_table, size_t number,
                                     limit_bucket_visitor *visit, void *context);

#endif
