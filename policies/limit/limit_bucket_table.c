#include "limit/limit_bucket_table_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How often room is looked for in a full bucket table. */
#define RECLAIM_US 100000
#define WARN_US INT64_C(60000000)

/* ---- locks ---- */

/* By the highest bits: the lowest are the table's. */
static size_t stripe_of(uint64_t hash)
{
    return hash / (UINT64_MAX / LIMIT_STRIPES + 1);
}

limit_locks limit_bucket_locks(const struct limit_bucket *bucket)
{
    return UINT64_C(1) << stripe_of(bucket->node.hash);
}

/* Always in the same order, so that nobody waits for who waits for him. */
void limit_share_lock(struct limit_share *share, limit_locks locks)
{
    for (; share->locks && locks != 0; locks &= locks - 1) {
        pthread_mutex_lock(&share->stripes[__builtin_ctzll(locks)]);
    }
}

void limit_share_unlock(struct limit_share *share, limit_locks locks)
{
    for (; share->locks && locks != 0; locks &= locks - 1) {
        pthread_mutex_unlock(&share->stripes[__builtin_ctzll(locks)]);
    }
}

/* ---- the share ---- */

struct limit_share *limit_share_new(size_t threads)
{
    struct limit_share *share = calloc(1, sizeof *share);

    if (share == NULL) {
        return NULL;
    }
    share->locks = threads > 1;
    share->key = siphash_random_key();
    pthread_mutex_init(&share->registry, NULL);
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        pthread_mutex_init(&share->stripes[i], NULL);
    }
    return share;
}

void limit_share_free(struct limit_share *share)
{
    assert(LIST_EMPTY(&share->bucket_tables));
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        pthread_mutex_destroy(&share->stripes[i]);
    }
    pthread_mutex_destroy(&share->registry);
    free(share);
}

/* ---- buckets ---- */

static struct limit_bucket *bucket_new(struct limit_bucket_table *bucket_table, struct slice name, uint64_t hash)
{
    struct limit_bucket *bucket = malloc(sizeof *bucket + name.length);

    if (bucket != NULL) {
        *bucket =
            (struct limit_bucket){.node.hash = hash, .bucket_table = bucket_table, .length = (uint16_t)name.length};
        memcpy(bucket->name, name.data, name.length);
    }
    return bucket;
}

static void bucket_free(struct limit_bucket *bucket)
{
    limit_meter_clear(&bucket->bucket_table->meter, &bucket->state);
    free(bucket->remote);
    free(bucket);
}

static struct limit_bucket *bucket_at(struct table_node *node)
{
    return (struct limit_bucket *)(void *)node;
}

static struct limit_bucket *stripe_find(const struct table *stripe, struct slice name, uint64_t hash)
{
    struct table_node *node = table_first(stripe, hash);

    while (node != NULL && !slice_equal(name, (struct slice){bucket_at(node)->name, bucket_at(node)->length})) {
        node = table_next(node);
    }
    return bucket_at(node);
}

/* NULL if there is no room, unless it may be a transient one; or if memory is short. */
static struct limit_bucket *track(struct limit_bucket_table *bucket_table, struct slice name, uint64_t hash,
                                  bool may_be_transient)
{
    bool has_room =
        atomic_fetch_add_explicit(&bucket_table->bucket_count, 1, memory_order_relaxed) < bucket_table->buckets_max;
    struct limit_bucket *bucket = has_room || may_be_transient ? bucket_new(bucket_table, name, hash) : NULL;

    if (bucket != NULL && !table_add(&bucket_table->stripes[stripe_of(hash)], &bucket->node, hash)) {
        free(bucket);
        bucket = NULL;
    }
    if (bucket != NULL) {
        bucket->transient = !has_room;
    }
    if (bucket == NULL || !has_room) {
        atomic_fetch_sub_explicit(&bucket_table->bucket_count, 1, memory_order_relaxed);
    }
    return bucket;
}

/* ---- sweeping ---- */

static void untrack(struct limit_bucket_table *bucket_table, struct table *stripe, struct limit_bucket *bucket)
{
    table_remove(stripe, &bucket->node);
    if (!bucket->transient) {
        atomic_fetch_sub_explicit(&bucket_table->bucket_count, 1, memory_order_relaxed);
    }
    if (bucket->pins > 0) {
        bucket->revoked = true;
    } else {
        bucket_free(bucket);
    }
}

/* Drops it if it is idle. One that is pinned stays unless room is needed, but what its meter remembers in vain goes. */
static void sweep_bucket(struct limit_bucket_table *bucket_table, struct table *stripe, struct limit_bucket *bucket,
                         int64_t now_us, bool revoke)
{
    bool idle = bucket->queued == 0 && bucket->keep_until_us <= now_us &&
                limit_meter_is_idle(&bucket_table->meter, &bucket->state, now_us);

    if (idle) {
        limit_meter_clear(&bucket_table->meter, &bucket->state);
    }
    if (idle && (revoke || bucket->pins == 0)) {
        untrack(bucket_table, stripe, bucket);
    }
}

static void sweep_stripe(struct limit_share *share, struct limit_bucket_table *bucket_table, size_t number,
                         int64_t now_us, bool revoke)
{
    struct table *stripe = &bucket_table->stripes[number];
    struct table_node *next;

    limit_share_lock(share, UINT64_C(1) << number);
    for (struct table_node *node = table_walk(stripe, NULL); node != NULL; node = next) {
        next = table_walk(stripe, node);
        sweep_bucket(bucket_table, stripe, bucket_at(node), now_us, revoke);
    }
    table_shrink(stripe);
    limit_share_unlock(share, UINT64_C(1) << number);
}

void limit_share_sweep(struct limit_share *share, int64_t now_us)
{
    if (pthread_mutex_trylock(&share->registry) != 0) {
        return;
    }
    for (struct limit_bucket_table *bucket_table = LIST_FIRST(&share->bucket_tables); bucket_table != NULL;
         bucket_table = LIST_NEXT(bucket_table, of_share)) {
        sweep_stripe(share, bucket_table, bucket_table->sweep_stripe, now_us, false);
        bucket_table->sweep_stripe = (bucket_table->sweep_stripe + 1) % LIMIT_STRIPES;
    }
    pthread_mutex_unlock(&share->registry);
}

size_t limit_share_tracked(struct limit_share *share)
{
    size_t count = 0;

    pthread_mutex_lock(&share->registry);
    for (const struct limit_bucket_table *bucket_table = LIST_FIRST(&share->bucket_tables); bucket_table != NULL;
         bucket_table = LIST_NEXT(bucket_table, of_share)) {
        count += atomic_load_explicit(&bucket_table->bucket_count, memory_order_relaxed);
    }
    pthread_mutex_unlock(&share->registry);
    return count;
}

/* ---- pinning ---- */

/* Finds or tracks it, and pins it; NULL as track() says. */
static struct limit_bucket *try_to_pin(struct limit_share *share, struct limit_bucket_table *bucket_table,
                                       struct slice name, uint64_t hash, bool may_be_transient)
{
    limit_locks locks = UINT64_C(1) << stripe_of(hash);

    limit_share_lock(share, locks);
    struct limit_bucket *bucket = stripe_find(&bucket_table->stripes[stripe_of(hash)], name, hash);
    if (bucket == NULL) {
        bucket = track(bucket_table, name, hash, may_be_transient);
    }
    if (bucket != NULL) {
        bucket->pins++;
    }
    limit_share_unlock(share, locks);
    return bucket;
}

/* Makes room in a bucket table that is full, unless that was tried a moment ago: going through all of them takes a
 * while. */
static bool reclaim(struct limit_share *share, struct limit_bucket_table *bucket_table, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&bucket_table->reclaimed_us, memory_order_relaxed);

    if (now_us - last_us < RECLAIM_US ||
        !atomic_compare_exchange_strong_explicit(&bucket_table->reclaimed_us, &last_us, now_us, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return false;
    }
    for (size_t number = 0; number < LIMIT_STRIPES; number++) {
        sweep_stripe(share, bucket_table, number, now_us, true);
    }
    return true;
}

struct limit_bucket *limit_bucket_pin(struct limit_share *share, struct limit_bucket_table *bucket_table,
                                      struct slice name, int64_t now_us)
{
    assert(name.length <= LIMIT_BUCKET_MAX);
    uint64_t hash = siphash(&share->key, name.data, name.length);
    struct limit_bucket *bucket = try_to_pin(share, bucket_table, name, hash, false);

    if (bucket == NULL && (reclaim(share, bucket_table, now_us) || bucket_table->is_cache)) {
        bucket = try_to_pin(share, bucket_table, name, hash, bucket_table->is_cache);
    }
    if (bucket == NULL && !bucket_table->is_cache) {
        bucket = bucket_table->overflow;
        limit_share_lock(share, limit_bucket_locks(bucket));
        bucket->pins++;
        limit_share_unlock(share, limit_bucket_locks(bucket));
    }
    return bucket;
}

bool limit_bucket_is_tracked(const struct limit_bucket *bucket)
{
    return bucket != bucket->bucket_table->overflow && !bucket->transient;
}

void limit_bucket_unpin(struct limit_share *share, struct limit_bucket *bucket)
{
    limit_locks locks = limit_bucket_locks(bucket);

    limit_share_lock(share, locks);
    assert(bucket->pins > 0);
    bucket->pins--;
    if (bucket->pins == 0 && bucket->revoked) {
        bucket_free(bucket);
    } else if (bucket->pins == 0 && bucket->transient) {
        untrack(bucket->bucket_table, &bucket->bucket_table->stripes[stripe_of(bucket->node.hash)], bucket);
    }
    limit_share_unlock(share, locks);
}

/* ---- bucket tables ---- */

static void bucket_table_free(struct limit_bucket_table *bucket_table)
{
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        struct table_node *next;
        for (struct table_node *node = table_walk(&bucket_table->stripes[i], NULL); node != NULL; node = next) {
            next = table_walk(&bucket_table->stripes[i], node);
            bucket_free(bucket_at(node));
        }
        table_close(&bucket_table->stripes[i]);
    }
    if (bucket_table->overflow != NULL) {
        bucket_free(bucket_table->overflow);
    }
    free(bucket_table->rule);
    free(bucket_table->identity);
    free(bucket_table);
}

static struct limit_bucket_table *bucket_table_new(const struct limit_terms *terms)
{
    static const char others[] = "others";
    struct limit_bucket_table *bucket_table = calloc(1, sizeof *bucket_table);

    if (bucket_table == NULL) {
        return NULL;
    }
    bucket_table->rule = strdup(terms->rule);
    bucket_table->identity = strdup(terms->identity);
    bucket_table->meter = terms->meter;
    bucket_table->is_cache = terms->is_cache;
    bucket_table->overflow = bucket_new(bucket_table, (struct slice){others, sizeof others - 1}, 0);
    if (bucket_table->rule == NULL || bucket_table->identity == NULL || bucket_table->overflow == NULL) {
        bucket_table_free(bucket_table);
        return NULL;
    }
    return bucket_table;
}

static struct limit_bucket_table *find_bucket_table(const struct limit_share *share, const char *identity)
{
    struct limit_bucket_table *bucket_table = LIST_FIRST(&share->bucket_tables);

    while (bucket_table != NULL && strcmp(bucket_table->identity, identity) != 0) {
        bucket_table = LIST_NEXT(bucket_table, of_share);
    }
    return bucket_table;
}

bool limit_bucket_table_join(struct limit_share *share, struct limit_member *member, const struct limit_terms *terms)
{
    pthread_mutex_lock(&share->registry);
    struct limit_bucket_table *bucket_table = find_bucket_table(share, terms->identity);
    if (bucket_table == NULL) {
        bucket_table = bucket_table_new(terms);
        if (bucket_table != NULL) {
            LIST_INSERT_HEAD(&share->bucket_tables, bucket_table, of_share);
        }
    }
    if (bucket_table != NULL) {
        bucket_table->buckets_max = terms->buckets_max;
        member->bucket_table = bucket_table;
        LIST_INSERT_HEAD(&bucket_table->members, member, of_bucket_table);
    }
    pthread_mutex_unlock(&share->registry);
    return bucket_table != NULL;
}

void limit_bucket_table_leave(struct limit_share *share, struct limit_member *member)
{
    struct limit_bucket_table *bucket_table = member->bucket_table;

    pthread_mutex_lock(&share->registry);
    LIST_REMOVE(member, of_bucket_table);
    for (size_t i = 0; i < LIMIT_COUNTS; i++) {
        bucket_table->counts_of_those_who_left[i] += atomic_load_explicit(&member->counts[i], memory_order_relaxed);
    }
    if (LIST_EMPTY(&bucket_table->members)) {
        LIST_REMOVE(bucket_table, of_share);
        bucket_table_free(bucket_table);
    }
    pthread_mutex_unlock(&share->registry);
}

bool limit_bucket_table_may_warn(struct limit_bucket_table *bucket_table, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&bucket_table->warned_us, memory_order_relaxed);

    return (last_us == 0 || now_us - last_us >= WARN_US) &&
           atomic_compare_exchange_strong_explicit(&bucket_table->warned_us, &last_us, now_us, memory_order_relaxed,
                                                   memory_order_relaxed);
}

bool limit_bucket_table_is_first_untold(struct limit_bucket_table *bucket_table, bool has_user)
{
    _Atomic bool *said = &bucket_table->said_untold[has_user];

    return !atomic_load_explicit(said, memory_order_relaxed) &&
           !atomic_exchange_explicit(said, true, memory_order_relaxed);
}

void limit_bucket_table_visit_stripe(struct limit_share *share, struct limit_bucket_table *bucket_table, size_t number,
                                     limit_bucket_visitor *visit, void *context)
{
    const struct table *stripe = &bucket_table->stripes[number];

    limit_share_lock(share, UINT64_C(1) << number);
    for (struct table_node *node = table_walk(stripe, NULL); node != NULL; node = table_walk(stripe, node)) {
        visit(context, bucket_at(node));
    }
    if (number == stripe_of(bucket_table->overflow->node.hash)) {
        visit(context, bucket_table->overflow);
    }
    limit_share_unlock(share, UINT64_C(1) << number);
}

void limit_bucket_table_visit(struct limit_share *share, struct limit_bucket_table *bucket_table,
                              limit_bucket_visitor *visit, void *context)
{
    for (size_t number = 0; number < LIMIT_STRIPES; number++) {
        limit_bucket_table_visit_stripe(share, bucket_table, number, visit, context);
    }
}
