#include "limit/limit_ledger_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How often room is looked for in a full ledger. */
#define RECLAIM_US 100000
#define WARN_US INT64_C(60000000)

/* ---- locks ---- */

/* By the highest bits: the lowest are the table's. */
static size_t stripe_of(uint64_t hash)
{
    return hash / (UINT64_MAX / LIMIT_STRIPES + 1);
}

limit_locks limit_subject_locks(const struct limit_subject *subject)
{
    return UINT64_C(1) << stripe_of(subject->node.hash);
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
        *subject = (struct limit_subject){.node.hash = hash, .ledger = ledger, .length = (uint16_t)name.length};
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

static struct limit_subject *subject_at(struct table_node *node)
{
    return (struct limit_subject *)(void *)node;
}

static struct limit_subject *stripe_find(const struct table *stripe, struct slice name, uint64_t hash)
{
    struct table_node *node = table_first(stripe, hash);

    while (node != NULL && !slice_equal(name, (struct slice){subject_at(node)->name, subject_at(node)->length})) {
        node = table_next(node);
    }
    return subject_at(node);
}

/* NULL if there is no room, unless it may be a transient one; or if memory is short. */
static struct limit_subject *track(struct limit_ledger *ledger, struct slice name, uint64_t hash, bool may_be_transient)
{
    bool has_room = atomic_fetch_add_explicit(&ledger->subject_count, 1, memory_order_relaxed) < ledger->subjects_max;
    struct limit_subject *subject = has_room || may_be_transient ? subject_new(ledger, name, hash) : NULL;

    if (subject != NULL && !table_add(&ledger->stripes[stripe_of(hash)], &subject->node, hash)) {
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

static void untrack(struct limit_ledger *ledger, struct table *stripe, struct limit_subject *subject)
{
    table_remove(stripe, &subject->node);
    if (!subject->transient) {
        atomic_fetch_sub_explicit(&ledger->subject_count, 1, memory_order_relaxed);
    }
    if (subject->pins > 0) {
        subject->revoked = true;
    } else {
        subject_free(subject);
    }
}

/* Drops it if it is idle. One that is pinned stays unless room is needed, but what its meter remembers in vain goes. */
static void sweep_subject(struct limit_ledger *ledger, struct table *stripe, struct limit_subject *subject,
                          int64_t now_us, bool revoke)
{
    bool idle = subject->queued == 0 && subject->keep_until_us <= now_us &&
                limit_meter_is_idle(&ledger->meter, &subject->state, now_us);

    if (idle) {
        limit_meter_clear(&ledger->meter, &subject->state);
    }
    if (idle && (revoke || subject->pins == 0)) {
        untrack(ledger, stripe, subject);
    }
}

static void sweep_stripe(struct limit_share *share, struct limit_ledger *ledger, size_t number, int64_t now_us,
                         bool revoke)
{
    struct table *stripe = &ledger->stripes[number];
    struct table_node *next;

    limit_share_lock(share, UINT64_C(1) << number);
    for (struct table_node *node = table_walk(stripe, NULL); node != NULL; node = next) {
        next = table_walk(stripe, node);
        sweep_subject(ledger, stripe, subject_at(node), now_us, revoke);
    }
    table_shrink(stripe);
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

    limit_share_lock(share, locks);
    assert(subject->pins > 0);
    subject->pins--;
    if (subject->pins == 0 && subject->revoked) {
        subject_free(subject);
    } else if (subject->pins == 0 && subject->transient) {
        untrack(subject->ledger, &subject->ledger->stripes[stripe_of(subject->node.hash)], subject);
    }
    limit_share_unlock(share, locks);
}

/* ---- ledgers ---- */

static void ledger_free(struct limit_ledger *ledger)
{
    for (size_t i = 0; i < LIMIT_STRIPES; i++) {
        struct table_node *next;
        for (struct table_node *node = table_walk(&ledger->stripes[i], NULL); node != NULL; node = next) {
            next = table_walk(&ledger->stripes[i], node);
            subject_free(subject_at(node));
        }
        table_close(&ledger->stripes[i]);
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
        const struct table *stripe = &ledger->stripes[number];
        limit_share_lock(share, UINT64_C(1) << number);
        for (struct table_node *node = table_walk(stripe, NULL); node != NULL; node = table_walk(stripe, node)) {
            visit(context, subject_at(node));
        }
        if (number == stripe_of(ledger->overflow->node.hash)) {
            visit(context, ledger->overflow);
        }
        limit_share_unlock(share, UINT64_C(1) << number);
    }
}
