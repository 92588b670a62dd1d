#include "limit/limit_ledger_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_LEAST 4
/* How often room is looked for in a full ledger. */
#define RECLAIM_US 100000
#define WARN_US INT64_C(60000000)

/* ---- locks ---- */

static size_t stripe_of(uint64_t hash)
{
    return hash % LIMIT_STRIPES;
}

limit_locks limit_subject_locks(const struct limit_subject *subject)
{
    return UINT64_C(1) << stripe_of(subject->hash);
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
    assert(LIST_EMPTY(&share->ledgers));
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        pthread_mutex_destroy(&share->stripes[i]);
    }
    pthread_mutex_destroy(&share->registry);
    free(share);
}

/* ---- subjects ---- */

static struct limit_subject *subject_new(struct limit_ledger *ledger, struct slice name, uint64_t hash)
{
    struct limit_subject *subject = malloc(sizeof *subject + name.length);

    if (subject != NULL) {
        *subject = (struct limit_subject){.ledger = ledger, .hash = hash, .length = (uint16_t)name.length};
        memcpy(subject->name, name.data, name.length);
    }
    return subject;
}

static void subject_free(struct limit_subject *subject)
{
    limit_meter_clear(&subject->ledger->meter, &subject->state);
    free(subject->remote);
    free(subject);
}

/* The bits below choose the stripe. */
static size_t bucket_of(const struct limit_stripe *stripe, uint64_t hash)
{
    return (size_t)(hash / LIMIT_STRIPES) & (stripe->bucket_count - 1);
}

static struct limit_subject *stripe_find(const struct limit_stripe *stripe, struct slice name, uint64_t hash)
{
    struct limit_subject *subject = stripe->bucket_count > 0 ? stripe->buckets[bucket_of(stripe, hash)] : NULL;

    while (subject != NULL && (subject->hash != hash || subject->length != name.length ||
                               memcmp(subject->name, name.data, name.length) != 0)) {
        subject = subject->next;
    }
    return subject;
}

/* What points to a subject in its bucket. */
static struct limit_subject **stripe_link(const struct limit_stripe *stripe, const struct limit_subject *subject)
{
    struct limit_subject **link = &stripe->buckets[bucket_of(stripe, subject->hash)];

    while (*link != subject) {
        link = &(*link)->next;
    }
    return link;
}

/* False when memory is short: the stripe is as it was. */
static bool stripe_resize(struct limit_stripe *stripe, size_t bucket_count)
{
    struct limit_subject **old = stripe->buckets;
    size_t old_count = stripe->bucket_count;
    struct limit_subject **buckets = calloc(bucket_count, sizeof(struct limit_subject *));

    if (buckets == NULL) {
        return false;
    }
    stripe->buckets = buckets;
    stripe->bucket_count = bucket_count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            struct limit_subject *subject = old[i];
            struct limit_subject **bucket = &buckets[bucket_of(stripe, subject->hash)];
            old[i] = subject->next;
            subject->next = *bucket;
            *bucket = subject;
        }
    }
    free(old);
    return true;
}

static bool stripe_add(struct limit_stripe *stripe, struct limit_subject *subject)
{
    bool full = stripe->count >= stripe->bucket_count;

    /* Without memory for more buckets, those that are there grow longer. */
    if (full && !stripe_resize(stripe, stripe->bucket_count > 0 ? stripe->bucket_count * 2 : BUCKETS_LEAST) &&
        stripe->bucket_count == 0) {
        return false;
    }
    struct limit_subject **bucket = &stripe->buckets[bucket_of(stripe, subject->hash)];
    subject->next = *bucket;
    *bucket = subject;
    stripe->count++;
    return true;
}

/* NULL if there is no room, unless it may be a transient one; or if memory is short. */
static struct limit_subject *track(struct limit_ledger *ledger, struct slice name, uint64_t hash, bool may_be_transient)
{
    bool has_room = atomic_fetch_add_explicit(&ledger->subject_count, 1, memory_order_relaxed) < ledger->subjects_max;
    struct limit_subject *subject = has_room || may_be_transient ? subject_new(ledger, name, hash) : NULL;

    if (subject != NULL && !stripe_add(&ledger->stripes[stripe_of(hash)], subject)) {
        free(subject);
        subject = NULL;
    }
    if (subject != NULL) {
        subject->transient = !has_room;
    }
    if (subject == NULL || !has_room) {
        atomic_fetch_sub_explicit(&ledger->subject_count, 1, memory_order_relaxed);
    }
    return subject;
}

/* ---- sweeping ---- */

/* Takes a subject off its bucket. */
static void untrack(struct limit_ledger *ledger, struct limit_stripe *stripe, struct limit_subject **link)
{
    struct limit_subject *subject = *link;

    *link = subject->next;
    stripe->count--;
    if (!subject->transient) {
        atomic_fetch_sub_explicit(&ledger->subject_count, 1, memory_order_relaxed);
    }
    if (subject->pins > 0) {
        subject->revoked = true;
    } else {
        subject_free(subject);
    }
}

/* Drops those that are idle. One that is pinned stays unless room is needed, but what its meter remembers in vain goes.
 */
static void sweep_bucket(struct limit_ledger *ledger, struct limit_stripe *stripe, struct limit_subject **link,
                         int64_t now_us, bool revoke)
{
    while (*link != NULL) {
        struct limit_subject *subject = *link;
        bool idle = subject->queued == 0 && subject->keep_until_us <= now_us &&
                    limit_meter_is_idle(&ledger->meter, &subject->state, now_us);
        if (idle) {
            limit_meter_clear(&ledger->meter, &subject->state);
        }
        if (idle && (revoke || subject->pins == 0)) {
            untrack(ledger, stripe, link);
        } else {
            link = &subject->next;
        }
    }
}

static void sweep_stripe(struct limit_share *share, struct limit_ledger *ledger, size_t number, int64_t now_us,
                         bool revoke)
{
    struct limit_stripe *stripe = &ledger->stripes[number];

    limit_share_lock(share, UINT64_C(1) << number);
    for (size_t i = 0; i < stripe->bucket_count; i++) {
        sweep_bucket(ledger, stripe, &stripe->buckets[i], now_us, revoke);
    }
    if (stripe->bucket_count > BUCKETS_LEAST && stripe->count < stripe->bucket_count / 8) {
        (void)stripe_resize(stripe, stripe->bucket_count / 4);
    }
    limit_share_unlock(share, UINT64_C(1) << number);
}

void limit_share_sweep(struct limit_share *share, int64_t now_us)
{
    if (pthread_mutex_trylock(&share->registry) != 0) {
        return;
    }
    for (struct limit_ledger *ledger = LIST_FIRST(&share->ledgers); ledger != NULL;
         ledger = LIST_NEXT(ledger, of_share)) {
        sweep_stripe(share, ledger, ledger->sweep_stripe, now_us, false);
        ledger->sweep_stripe = (ledger->sweep_stripe + 1) % LIMIT_STRIPES;
    }
    pthread_mutex_unlock(&share->registry);
}

size_t limit_share_tracked(struct limit_share *share)
{
    size_t count = 0;

    pthread_mutex_lock(&share->registry);
    for (const struct limit_ledger *ledger = LIST_FIRST(&share->ledgers); ledger != NULL;
         ledger = LIST_NEXT(ledger, of_share)) {
        count += atomic_load_explicit(&ledger->subject_count, memory_order_relaxed);
    }
    pthread_mutex_unlock(&share->registry);
    return count;
}

/* ---- pinning ---- */

/* Finds or tracks it, and pins it; NULL as track() says. */
static struct limit_subject *try_to_pin(struct limit_share *share, struct limit_ledger *ledger, struct slice name,
                                        uint64_t hash, bool may_be_transient)
{
    limit_locks locks = UINT64_C(1) << stripe_of(hash);

    limit_share_lock(share, locks);
    struct limit_subject *subject = stripe_find(&ledger->stripes[stripe_of(hash)], name, hash);
    if (subject == NULL) {
        subject = track(ledger, name, hash, may_be_transient);
    }
    if (subject != NULL) {
        subject->pins++;
    }
    limit_share_unlock(share, locks);
    return subject;
}

/* Makes room in a ledger that is full, unless that was tried a moment ago: going through all of them takes a while. */
static bool reclaim(struct limit_share *share, struct limit_ledger *ledger, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&ledger->reclaimed_us, memory_order_relaxed);

    if (now_us - last_us < RECLAIM_US ||
        !atomic_compare_exchange_strong_explicit(&ledger->reclaimed_us, &last_us, now_us, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return false;
    }
    for (size_t number = 0; number < LIMIT_STRIPES; number++) {
        sweep_stripe(share, ledger, number, now_us, true);
    }
    return true;
}

struct limit_subject *limit_subject_pin(struct limit_share *share, struct limit_ledger *ledger, struct slice name,
                                        int64_t now_us)
{
    assert(name.length <= LIMIT_SUBJECT_MAX);
    uint64_t hash = siphash(&share->key, name.data, name.length);
    struct limit_subject *subject = try_to_pin(share, ledger, name, hash, false);

    if (subject == NULL && (reclaim(share, ledger, now_us) || ledger->is_cache)) {
        subject = try_to_pin(share, ledger, name, hash, ledger->is_cache);
    }
    if (subject == NULL && !ledger->is_cache) {
        subject = ledger->overflow;
        limit_share_lock(share, limit_subject_locks(subject));
        subject->pins++;
        limit_share_unlock(share, limit_subject_locks(subject));
    }
    return subject;
}

bool limit_subject_is_tracked(const struct limit_subject *subject)
{
    return subject != subject->ledger->overflow && !subject->transient;
}

void limit_subject_unpin(struct limit_share *share, struct limit_subject *subject)
{
    limit_locks locks = limit_subject_locks(subject);
    struct limit_stripe *stripe = &subject->ledger->stripes[stripe_of(subject->hash)];

    limit_share_lock(share, locks);
    assert(subject->pins > 0);
    subject->pins--;
    if (subject->pins == 0 && subject->revoked) {
        subject_free(subject);
    } else if (subject->pins == 0 && subject->transient) {
        untrack(subject->ledger, stripe, stripe_link(stripe, subject));
    }
    limit_share_unlock(share, locks);
}

/* ---- ledgers ---- */

static void ledger_free(struct limit_ledger *ledger)
{
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        for (size_t bucket = 0; bucket < ledger->stripes[i].bucket_count; bucket++) {
            while (ledger->stripes[i].buckets[bucket] != NULL) {
                struct limit_subject *subject = ledger->stripes[i].buckets[bucket];
                ledger->stripes[i].buckets[bucket] = subject->next;
                subject_free(subject);
            }
        }
        free(ledger->stripes[i].buckets);
    }
    if (ledger->overflow != NULL) {
        subject_free(ledger->overflow);
    }
    free(ledger->rule);
    free(ledger->identity);
    free(ledger);
}

static struct limit_ledger *ledger_new(const struct limit_terms *terms)
{
    static const char others[] = "others";
    struct limit_ledger *ledger = calloc(1, sizeof *ledger);

    if (ledger == NULL) {
        return NULL;
    }
    ledger->rule = strdup(terms->rule);
    ledger->identity = strdup(terms->identity);
    ledger->meter = terms->meter;
    ledger->is_cache = terms->is_cache;
    ledger->overflow = subject_new(ledger, (struct slice){others, sizeof others - 1}, 0);
    if (ledger->rule == NULL || ledger->identity == NULL || ledger->overflow == NULL) {
        ledger_free(ledger);
        return NULL;
    }
    return ledger;
}

static struct limit_ledger *find_ledger(const struct limit_share *share, const char *identity)
{
    struct limit_ledger *ledger = LIST_FIRST(&share->ledgers);

    while (ledger != NULL && strcmp(ledger->identity, identity) != 0) {
        ledger = LIST_NEXT(ledger, of_share);
    }
    return ledger;
}

bool limit_ledger_join(struct limit_share *share, struct limit_member *member, const struct limit_terms *terms)
{
    pthread_mutex_lock(&share->registry);
    struct limit_ledger *ledger = find_ledger(share, terms->identity);
    if (ledger == NULL) {
        ledger = ledger_new(terms);
        if (ledger != NULL) {
            LIST_INSERT_HEAD(&share->ledgers, ledger, of_share);
        }
    }
    if (ledger != NULL) {
        ledger->subjects_max = terms->subjects_max;
        member->ledger = ledger;
        LIST_INSERT_HEAD(&ledger->members, member, of_ledger);
    }
    pthread_mutex_unlock(&share->registry);
    return ledger != NULL;
}

void limit_ledger_leave(struct limit_share *share, struct limit_member *member)
{
    struct limit_ledger *ledger = member->ledger;

    pthread_mutex_lock(&share->registry);
    LIST_REMOVE(member, of_ledger);
    for (size_t i = 0; i < LIMIT_COUNTS; i++) {
        ledger->counts_of_those_who_left[i] += atomic_load_explicit(&member->counts[i], memory_order_relaxed);
    }
    if (LIST_EMPTY(&ledger->members)) {
        LIST_REMOVE(ledger, of_share);
        ledger_free(ledger);
    }
    pthread_mutex_unlock(&share->registry);
}

bool limit_ledger_may_warn(struct limit_ledger *ledger, int64_t now_us)
{
    int64_t last_us = atomic_load_explicit(&ledger->warned_us, memory_order_relaxed);

    return (last_us == 0 || now_us - last_us >= WARN_US) &&
           atomic_compare_exchange_strong_explicit(&ledger->warned_us, &last_us, now_us, memory_order_relaxed,
                                                   memory_order_relaxed);
}

bool limit_ledger_is_first_untold(struct limit_ledger *ledger, bool has_user)
{
    _Atomic bool *said = &ledger->said_untold[has_user];

    return !atomic_load_explicit(said, memory_order_relaxed) &&
           !atomic_exchange_explicit(said, true, memory_order_relaxed);
}

void limit_ledger_visit(struct limit_share *share, struct limit_ledger *ledger, limit_subject_visitor *visit,
                        void *context)
{
    for (size_t number = 0; number < LIMIT_STRIPES; number++) {
        const struct limit_stripe *stripe = &ledger->stripes[number];
        limit_share_lock(share, UINT64_C(1) << number);
        for (size_t i = 0; i < stripe->bucket_count; i++) {
            for (struct limit_subject *subject = stripe->buckets[i]; subject != NULL; subject = subject->next) {
                visit(context, subject);
            }
        }
        if (number == stripe_of(ledger->overflow->hash)) {
            visit(context, ledger->overflow);
        }
        limit_share_unlock(share, UINT64_C(1) << number);
    }
}
