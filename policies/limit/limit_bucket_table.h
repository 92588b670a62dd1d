/*
 * What limits remember: a bucket table for each rule, in it a bucket for each client, user or key that the rule counts.
 * It is shared by all workers. A request that concerns several buckets locks them together, so that all are charged or
 * none; with one worker nothing is locked.
 *
 * Memory is bounded: a bucket table tracks only so many buckets. When it is full and another is asked for, a bucket
 * that stands for all of those is given instead: they share what one of them would have had.
 */
#ifndef HEADGATE_LIMIT_BUCKET_TABLE_H
#define HEADGATE_LIMIT_BUCKET_TABLE_H

#include "base/table.h"
#include "limit/limit_meter.h"
#include "policy/policy.h"

#include <stdio.h>
#include <sys/queue.h>

/* The longest name of a bucket, in bytes. */
#define LIMIT_BUCKET_MAX 512

struct limit_share;
struct limit_bucket_table;

struct limit_place;

/* Permits that were fetched from Redis and may be spent here until then. */
struct limit_batch {
    int64_t permits;
    int64_t until_us;
};

/* What is known here of a bucket whose state is in Redis. */
struct limit_remote {
    int64_t refused_until_us; /* Redis has said so of requests that cost … */
    int64_t refused_cost;
    struct limit_batch batches[2]; /* the first is spent first */
    int64_t batch_size;            /* how many permits to fetch next */
    bool is_fetching;              /* a batch is on its way to some worker */
    uint32_t resetting;            /* LIMIT RESETs under way */
    int64_t trip_us;               /* how long Redis took to answer the last time */
    uint64_t changes;              /* in Redis, which have ended: refusals of what was asked before are void */
    uint64_t resets;               /* LIMIT RESET: permits that were asked for before are void */
};

struct limit_bucket {
    struct table_node node; /* by name */
    union limit_meter_state state;
    struct limit_bucket_table *bucket_table;
    uint64_t refused;
    int64_t queued;                 /* what requests on hold wait for, … */
    LIST_HEAD(, limit_place) queue; /* … whose places these are; the last one comes first */
    int64_t keep_until_us;          /* it is not idle before */
    struct limit_remote *remote;    /* of global rules, made when it is needed first */
    uint32_t told_number;           /* a process that takes over was told of it the last time with this number */
    uint32_t pins;                  /* who keeps a pointer to it: it is not freed meanwhile */
    bool transient;                 /* there was no room for it: it is gone when it is not pinned any more */
    bool revoked : 1;  /* it was idle, and its room was needed: who has it pinned must look for another one */
    bool was_left : 1; /* the queue was: turns may come earlier */
    uint16_t length;
    char name[]; /* "user:alice", not terminated */
};

static inline struct slice limit_bucket_name(const struct limit_bucket *bucket)
{
    return (struct slice){bucket->name, bucket->length};
}

/* A rule's counters of one worker, and its hold on the bucket table. */
enum limit_count { LIMIT_ADMITTED, LIMIT_REFUSED, LIMIT_DELAYED, LIMIT_OBSERVED, LIMIT_COUNTS };

struct limit_member {
    LIST_ENTRY(limit_member) of_bucket_table;
    struct limit_bucket_table *bucket_table;
    const char *description; /* for LIMITS, the member's */
    _Atomic uint64_t counts[LIMIT_COUNTS];
};

/* What a bucket table is made for. */
struct limit_terms {
    const char *rule;
    const char
        *identity; /* bucket tables of equal identity are one: a rule that a reload left as it was keeps its own */
    struct limit_meter meter;
    size_t buckets_max;
    /* What is remembered here is but a copy: a bucket without room is kept while it is pinned, instead of sharing one.
     */
    bool is_cache;
};

/* ---- the share ---- */

/* NULL when memory is short. */
struct limit_share *limit_share_new(size_t threads);
/* All members must have left. */
void limit_share_free(struct limit_share *share);
/* Drops buckets that are idle, a part of them at each call, if no other worker is at it. */
void limit_share_sweep(struct limit_share *share, int64_t now_us);
/* How many buckets are tracked. */
size_t limit_share_tracked(struct limit_share *share);

/* ---- members ---- */

/* Joins the bucket table of that identity, which is made if there is none. member is the caller's, its description set,
 * and must stay where it is. False when memory is short. */
bool limit_bucket_table_join(struct limit_share *share, struct limit_member *member, const struct limit_terms *terms);
/* The last one takes the bucket table with it: nothing may be pinned then that others still look at. */
void limit_bucket_table_leave(struct limit_share *share, struct limit_member *member);

/* Whether a trouble of the rule is to be logged: once a minute, whichever worker has it. */
bool limit_bucket_table_may_warn(struct limit_bucket_table *bucket_table, int64_t now_us);

/* True once for each of the two: a process whose user alone can be told, and one of which nothing can. */
bool limit_bucket_table_is_first_untold(struct limit_bucket_table *bucket_table, bool has_user);

/* ---- buckets ---- */

/*
 * The bucket of that name, pinned. If so many are tracked that there is no room, those that are idle give up theirs,
 * even if they are pinned: they are revoked. Without any, it is the bucket that stands for those without room, or a
 * transient one. NULL when memory is short.
 */
struct limit_bucket *limit_bucket_pin(struct limit_share *share, struct limit_bucket_table *bucket_table,
                                      struct slice name, int64_t now_us);
bool limit_bucket_is_tracked(const struct limit_bucket *bucket);
void limit_bucket_unpin(struct limit_share *share, struct limit_bucket *bucket);

/* The locks that guard a bucket, as a set; sets are joined by |. */
typedef uint64_t limit_locks;
limit_locks limit_bucket_locks(const struct limit_bucket *bucket);
/* Only what is locked may be looked at, but for bucket table and name. */
void limit_share_lock(struct limit_share *share, limit_locks locks);
void limit_share_unlock(struct limit_share *share, limit_locks locks);

/* ---- for another process ---- */

/* Writes what a process that takes over is to know, up to most bytes and a bucket more. Returns the number to go on
 * with, from 0 on; 0: that was all. */
uint64_t limit_share_tell(struct limit_share *share, FILE *out, uint64_t at, size_t most);
/* Takes what it has written, and passes over what cannot be understood. */
void limit_share_hear(struct limit_share *share, struct slice text, int64_t now_us);

/* ---- for the admin port ---- */

/* Tells what each rule has counted here: enum limit_count, and how many buckets are tracked. From any thread. */
#define LIMIT_RULE_COUNTERS (LIMIT_COUNTS + 1)
void limit_share_tell_rules(struct limit_share *share, policy_rule_told *told, void *context);
/* Writes one line for each rule, and under it those who were refused most. */
void limit_share_print(struct limit_share *share, FILE *out, int64_t now_us);
/* The name of the bucket that is shown so: its length, or 0 if none is, or if its bytes are shown by their numbers. */
size_t limit_bucket_table_name(struct slice shown, char name[LIMIT_BUCKET_MAX]);
/* Forgets what was admitted: of all buckets of the rule, or (name, as it is shown, not empty) of one. forgotten may be
 * NULL; it is called for each of them while it is locked. False: there is none. */
typedef void limit_forgotten_callback(void *context, struct limit_bucket *bucket);
bool limit_share_reset(struct limit_share *share, struct slice rule, struct slice name,
                       limit_forgotten_callback *forgotten, void *context);

#endif
