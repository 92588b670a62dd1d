/* Threads that charge one bucket together never pass its limit. */
#include "../../rig/rig_random.h"
#include "bucket_table_fixture.h"
#include "limit/limit_bucket_table_private.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define THREADS 4
#define LIMIT 500
#define HOT_BUCKETS 8

/* All at one time of the clock: so what is admitted is the limit exactly, whoever comes first. */
struct crowd {
    struct limit_share *share;
    struct limit_meter meter;
    struct limit_member members[THREADS];
    _Atomic int64_t admitted[HOT_BUCKETS];
    int64_t counts[HOT_BUCKETS]; /* guarded by locks of the test */
    pthread_barrier_t start;     /* so that all run at one time */
};

struct crowd_thread {
    struct crowd *crowd;
    size_t number;
    int64_t rounds;
    void (*act)(struct crowd_thread *thread, int64_t round);
    uint64_t seed;
};

static struct crowd *crowd_new(size_t buckets_max)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);

    cr_assert_not_null(crowd);
    crowd->share = share_of(THREADS);
    crowd->meter = window_of(LIMIT, 3600 * SECOND);
    cr_assert_eq(pthread_barrier_init(&crowd->start, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        crowd->members[i].description = "";
        join(crowd->share, &crowd->members[i], "hot", "hot", crowd->meter, buckets_max);
    }
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    for (size_t i = 0; i < THREADS; i++) {
        limit_bucket_table_leave(crowd->share, &crowd->members[i]);
    }
    pthread_barrier_destroy(&crowd->start);
    limit_share_free(crowd->share);
    free(crowd);
}

static void *run_thread(void *context)
{
    struct crowd_thread *thread = context;

    pthread_barrier_wait(&thread->crowd->start);
    for (int64_t round = 0; round < thread->rounds; round++) {
        thread->act(thread, round);
    }
    return NULL;
}

/* Each thread acts for so many rounds. */
static void run_crowd(struct crowd *crowd, int64_t rounds, void (*act)(struct crowd_thread *thread, int64_t round))
{
    struct crowd_thread threads[THREADS];
    pthread_t ids[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = (struct crowd_thread){.crowd = crowd, .number = i, .rounds = rounds, .act = act, .seed = i};
        cr_assert_eq(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_join(ids[i], NULL), 0);
    }
}

/* Lets the others run where it hurts most: in the midst of what a lock guards. */
static void dawdle(int64_t round)
{
    if (round % 16 == 0) {
        sched_yield();
    }
}

static struct limit_bucket *pin_hot(struct crowd *crowd, size_t number, uint64_t which)
{
    char name[16];

    snprintf(name, sizeof name, "user:%u", (unsigned int)which);
    return limit_bucket_pin(crowd->share, crowd->members[number].bucket_table, slice_of(name), NOW);
}

/* Charges two buckets, both or none, as a request does that two rules apply to. */
static void charge_pair(struct crowd *crowd, size_t number, uint64_t first, uint64_t second, int64_t round)
{
    struct limit_bucket *a = pin_hot(crowd, number, first), *b = pin_hot(crowd, number, second);
    limit_locks locks = limit_bucket_locks(a) | limit_bucket_locks(b);

    limit_share_lock(crowd->share, locks);
    bool admitted = limit_meter_wait(&crowd->meter, &a->state, NOW, 1) == 0 &&
                    limit_meter_wait(&crowd->meter, &b->state, NOW, 1) == 0;
    dawdle(round);
    if (admitted) {
        (void)limit_meter_charge(&crowd->meter, &a->state, NOW, 1);
        (void)limit_meter_charge(&crowd->meter, &b->state, NOW, 1);
    } else {
        a->refused++;
        b->refused++;
    }
    limit_share_unlock(crowd->share, locks);
    atomic_fetch_add(&crowd->admitted[first], admitted);
    atomic_fetch_add(&crowd->admitted[second], admitted);
    atomic_fetch_add(&crowd->members[number].counts[LIMIT_ADMITTED], admitted);
    limit_bucket_unpin(crowd->share, a);
    limit_bucket_unpin(crowd->share, b);
}

/* A reload, and an operator who looks. */
static void disturb(struct crowd *crowd, const char *name)
{
    struct limit_member passing = {.description = ""};

    join(crowd->share, &passing, "hot", "hot", crowd->meter, 1000);
    (void)limit_share_reset(crowd->share, slice_of("hot"), slice_of(name), NULL, NULL);
    free(printed(crowd->share, NOW));
    (void)limit_share_tracked(crowd->share);
    limit_bucket_table_leave(crowd->share, &passing);
}

static void crowd_pairs(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    uint64_t first = next_random(&thread->seed) % HOT_BUCKETS;
    uint64_t second = (first + 1 + next_random(&thread->seed) % (HOT_BUCKETS - 1)) % HOT_BUCKETS;

    charge_pair(crowd, thread->number, first, second, round);
    if (round % 8 == 0) {
        /* Others come and go, for tables that grow and shrink. */
        char name[32];
        snprintf(name, sizeof name, "passing:%lld", (long long)round);
        limit_bucket_unpin(crowd->share, limit_bucket_pin(crowd->share, crowd->members[thread->number].bucket_table,
                                                          slice_of(name), NOW));
        limit_share_sweep(crowd->share, NOW);
        if (round % 64 == 0) {
            disturb(crowd, name);
        }
    }
}

Test(limit_bucket_table, never_admits_more_to_threads_that_come_together, .timeout = 100)
{
    struct crowd *crowd = crowd_new(1000);
    int64_t admitted = 0, total = 0;
    size_t full = 0;

    run_crowd(crowd, 5000, crowd_pairs);
    for (size_t i = 0; i < HOT_BUCKETS; i++) {
        struct limit_bucket *bucket = pin_hot(crowd, 0, i);
        cr_assert_eq(bucket->pins, 1, "all were given back");
        cr_assert_leq(crowd->admitted[i], LIMIT);
        cr_assert_eq(bucket->state.window.count, crowd->admitted[i]);
        full += crowd->admitted[i] == LIMIT;
        admitted += crowd->admitted[i];
        limit_bucket_unpin(crowd->share, bucket);
    }
    for (size_t i = 0; i < THREADS; i++) {
        total += (int64_t)crowd->members[i].counts[LIMIT_ADMITTED];
    }
    cr_assert_eq(admitted, 2 * total, "both or none");
    cr_assert_geq(full, HOT_BUCKETS - 1, "of two with room, a pair is found in time");
    sweep_all(crowd->share, NOW + 3600 * SECOND);
    cr_assert_eq(limit_share_tracked(crowd->share), 0);
    crowd_free(crowd);
}

/* Pins and locks it, as a policy has to: one that was revoked meanwhile is looked for anew. */
static struct limit_bucket *lock_named(struct crowd *crowd, size_t number, const char *name, int64_t now_us)
{
    for (;;) {
        struct limit_bucket *bucket =
            limit_bucket_pin(crowd->share, crowd->members[number].bucket_table, slice_of(name), now_us);
        limit_share_lock(crowd->share, limit_bucket_locks(bucket));
        if (!bucket->revoked) {
            return bucket;
        }
        limit_share_unlock(crowd->share, limit_bucket_locks(bucket));
        limit_bucket_unpin(crowd->share, bucket);
    }
}

/* With hardly any room, and buckets that lose theirs as long as they are idle. */
static void crowd_without_room(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    char name[32];

    /* Time goes on fast enough to look for room each time, and slowly enough for the window. */
    snprintf(name, sizeof name, "user:%lld", (long long)(round % 50));
    struct limit_bucket *bucket = lock_named(crowd, thread->number, name, NOW + round * 100000);
    bool admitted = limit_meter_wait(&crowd->meter, &bucket->state, NOW, 1) == 0;
    dawdle(round);
    if (admitted) {
        (void)limit_meter_charge(&crowd->meter, &bucket->state, NOW, 1);
    }
    limit_share_unlock(crowd->share, limit_bucket_locks(bucket));
    atomic_fetch_add(&crowd->admitted[limit_bucket_is_tracked(bucket)], admitted);
    limit_bucket_unpin(crowd->share, bucket);
    limit_share_sweep(crowd->share, NOW);
}

Test(limit_bucket_table, never_tracks_more_than_told_with_threads_that_come_together, .timeout = 100)
{
    enum { ROOM = 10 };
    struct crowd *crowd = crowd_new(ROOM);

    run_crowd(crowd, 20000, crowd_without_room);
    cr_assert_eq(limit_share_tracked(crowd->share), ROOM);
    cr_assert_eq(crowd->admitted[false], LIMIT, "all others share it");
    cr_assert_eq(crowd->admitted[true], ROOM * LIMIT);
    crowd_free(crowd);
}

/* Two names at a time, so that others meet what is pinned, and leave it behind. */
static void crowd_in_cache(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    char name[32];

    snprintf(name, sizeof name, "user:%d", (int)(next_random(&thread->seed) % 8));
    struct limit_bucket *bucket = lock_named(crowd, thread->number, name, NOW + round * 100000);
    cr_assert(bucket->length == strlen(name) && memcmp(bucket->name, name, bucket->length) == 0);
    int64_t queued = ++bucket->queued;
    dawdle(round);
    limit_share_unlock(crowd->share, limit_bucket_locks(bucket));
    struct limit_bucket *same = lock_named(crowd, thread->number, name, NOW);
    cr_assert_eq(same, bucket, "it is found as long as it is pinned");
    cr_assert_geq(queued, 1);
    same->queued--;
    limit_share_unlock(crowd->share, limit_bucket_locks(bucket));
    limit_bucket_unpin(crowd->share, bucket);
    limit_bucket_unpin(crowd->share, same);
    limit_share_sweep(crowd->share, NOW);
}

Test(limit_bucket_table, as_a_cache_gives_all_threads_the_same_bucket_without_room, .timeout = 100)
{
    enum { ROOM = 2 };
    struct crowd *crowd = crowd_new(ROOM);

    crowd->members[0].bucket_table->is_cache = true;
    run_crowd(crowd, 20000, crowd_in_cache);
    cr_assert_leq(limit_share_tracked(crowd->share), ROOM);
    sweep_all(crowd->share, NOW + 3600 * SECOND);
    cr_assert_eq(limit_share_tracked(crowd->share), 0);
    crowd_free(crowd);
}
