/*
 * What waits to be flushed: minutes by an injected clock that also jumps back, snapshots that keep their number until
 * they are acknowledged, bounds; and that whatever happens, what was flushed and what was lost is what was recorded.
 */
#include "latency/latency_interface.h"
#include "latency/latency_pending.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER 1
#include <sanitizer/allocator_interface.h>
#endif
#endif

#define KEEP 5

static struct latency_sample sample_of(uint64_t us)
{
    return (struct latency_sample){.us = us, .count = 1, .bytes_in = us + 1, .bytes_out = us + 2};
}

static void record(struct latency_pending *pending, uint32_t interface, int64_t minute, uint64_t us)
{
    const struct latency_sample sample = sample_of(us);

    latency_pending_record(pending, interface, minute, &sample);
}

static void assert_same(const struct latency_figures *left, const struct latency_figures *right)
{
    cr_assert_eq(memcmp(left, right, sizeof *left), 0);
}

/* ---- snapshots ---- */

Test(latency_pending, nothing_recorded_is_nothing_to_flush)
{
    struct latency_pending *pending = latency_pending_new(3, KEEP);

    cr_assert_null(latency_pending_take(pending, 2));
    cr_assert(latency_pending_is_empty(pending));
    cr_assert_not(latency_pending_acknowledge(pending, 2, 0));
    cr_assert_not(latency_pending_acknowledge(pending, 2, 1));
    cr_assert_not(latency_pending_give_up(pending, 2, 0));
    latency_pending_free(pending);
    latency_pending_free(NULL);
}

Test(latency_pending, a_snapshot_stays_as_it_is_until_it_is_acknowledged)
{
    struct latency_pending *pending = latency_pending_new(2, KEEP);

    record(pending, 1, 100, 10);
    record(pending, 1, 100, 30);
    const struct latency_snapshot *snapshot = latency_pending_take(pending, 1);
    cr_assert_eq(snapshot->number, 1);
    cr_assert_eq(snapshot->count, 1);
    cr_assert_eq(snapshot->minutes[0]->minute, 100);
    cr_assert_eq(snapshot->minutes[0]->count, 2);
    cr_assert_eq(snapshot->minutes[0]->sum_us, 40);
    cr_assert_eq(snapshot->minutes[0]->bytes_in, 42);
    cr_assert_eq(snapshot->minutes[0]->bytes_out, 44);
    record(pending, 1, 100, 50);
    cr_assert_eq(latency_pending_take(pending, 1), snapshot);
    cr_assert_eq(snapshot->number, 1);
    cr_assert_eq(snapshot->minutes[0]->count, 2);
    cr_assert_null(latency_pending_take(pending, 0));

    cr_assert_not(latency_pending_acknowledge(pending, 1, 2), "of another number");
    cr_assert_not(latency_pending_acknowledge(pending, 0, 1), "of another interface");
    cr_assert(latency_pending_acknowledge(pending, 1, 1));
    cr_assert_not(latency_pending_acknowledge(pending, 1, 1), "only once");
    snapshot = latency_pending_take(pending, 1);
    cr_assert_eq(snapshot->number, 2);
    cr_assert_eq(snapshot->minutes[0]->minute, 100, "the minute goes on");
    cr_assert_eq(snapshot->minutes[0]->count, 1);
    cr_assert_eq(snapshot->minutes[0]->max_us, 50);
    cr_assert(latency_pending_acknowledge(pending, 1, 2));
    cr_assert(latency_pending_is_empty(pending));
    latency_pending_free(pending);
}

Test(latency_pending, a_request_belongs_to_the_minute_that_it_is_recorded_under)
{
    struct latency_pending *pending = latency_pending_new(1, KEEP);

    record(pending, 0, latency_minute_of(INT64_C(60000000) * 100 - 1), 1);
    record(pending, 0, latency_minute_of(INT64_C(60000000) * 100), 2);
    const struct latency_snapshot *snapshot = latency_pending_take(pending, 0);
    cr_assert_eq(snapshot->count, 2);
    cr_assert_eq(snapshot->minutes[0]->minute, 99);
    cr_assert_eq(snapshot->minutes[0]->sum_us, 1);
    cr_assert_eq(snapshot->minutes[1]->minute, 100);
    cr_assert_eq(snapshot->minutes[1]->sum_us, 2);
    latency_pending_free(pending);
}

Test(latency_pending, the_oldest_minutes_are_flushed_first_and_dropped_first)
{
    struct latency_pending *pending = latency_pending_new(1, KEEP);

    for (int64_t minute = 0; minute < 3; minute++) {
        record(pending, 0, minute, 7);
    }
    const struct latency_snapshot *snapshot = latency_pending_take(pending, 0);
    for (int64_t minute = 3; minute < 20; minute++) {
        record(pending, 0, minute, 7);
        record(pending, 0, minute, 8);
    }
    /* Out: 0 and 1. Lost: 2 to 13, in which 2 had one request. Waiting: 14 to 18. Open: 19. */
    cr_assert_eq(latency_pending_minutes(pending), 2 + KEEP + 1);
    cr_assert_eq(latency_pending_lost(pending).minutes, 12);
    cr_assert_eq(latency_pending_lost(pending).requests, 23);
    for (int64_t minute = 0; minute < 20; minute = minute == 0 ? 14 : minute + 2) {
        snapshot = latency_pending_take(pending, 0);
        cr_assert_eq(snapshot->count, 2);
        cr_assert_eq(snapshot->minutes[0]->minute, minute);
        cr_assert_eq(snapshot->minutes[1]->minute, minute + 1);
        cr_assert(latency_pending_acknowledge(pending, 0, snapshot->number));
    }
    cr_assert_null(latency_pending_take(pending, 0));
    cr_assert_eq(latency_pending_lost(pending).minutes, 12);
    latency_pending_free(pending);
}

/* With one minute kept, the open one must not push out the one that take() is about to give. */
Test(latency_pending, takes_what_waits_before_it_seals_what_is_open)
{
    struct latency_pending *pending = latency_pending_new(1, 1);

    record(pending, 0, 1, 7);
    record(pending, 0, 2, 7);
    cr_assert_eq(latency_pending_take(pending, 0)->count, 2);
    cr_assert_eq(latency_pending_lost(pending).minutes, 0);
    latency_pending_free(pending);
}

Test(latency_pending, a_clock_that_is_set_back_opens_the_minute_again)
{
    struct latency_pending *pending = latency_pending_new(1, KEEP);

    for (int round = 0; round < 1000; round++) {
        record(pending, 0, 100, 5);
        record(pending, 0, 40, 9);
        record(pending, 0, 101, 5);
    }
    cr_assert_eq(latency_pending_minutes(pending), 3 + 1, "and not one for each time that it was opened");
    cr_assert_eq(latency_pending_lost(pending).minutes, 0);
    const struct latency_snapshot *snapshot = latency_pending_take(pending, 0);
    cr_assert_eq(snapshot->minutes[0]->minute, 100);
    cr_assert_eq(snapshot->minutes[0]->count, 1000);
    cr_assert_eq(snapshot->minutes[1]->minute, 40);
    cr_assert_eq(snapshot->minutes[1]->sum_us, 9000);
    cr_assert(latency_pending_acknowledge(pending, 0, snapshot->number));
    snapshot = latency_pending_take(pending, 0);
    cr_assert_eq(snapshot->count, 1);
    cr_assert_eq(snapshot->minutes[0]->minute, 101);
    cr_assert_eq(snapshot->minutes[0]->count, 1000);
    latency_pending_free(pending);
}

Test(latency_pending, what_is_given_up_is_lost)
{
    struct latency_pending *pending = latency_pending_new(1, KEEP);

    record(pending, 0, 1, 7);
    record(pending, 0, 1, 7);
    record(pending, 0, 2, 7);
    cr_assert_not(latency_pending_give_up(pending, 0, 1), "nothing is out yet");
    (void)latency_pending_take(pending, 0);
    record(pending, 0, 2, 7);
    cr_assert(latency_pending_give_up(pending, 0, 1));
    cr_assert_eq(latency_pending_lost(pending).minutes, 2);
    cr_assert_eq(latency_pending_lost(pending).requests, 3);
    const struct latency_snapshot *snapshot = latency_pending_take(pending, 0);
    cr_assert_eq(snapshot->number, 2, "a number is not used again");
    cr_assert_eq(snapshot->minutes[0]->count, 1);
    latency_pending_free(pending);
}

Test(latency_pending, totals_are_of_all_that_was_moved_here)
{
    struct latency_pending *pending = latency_pending_new(2, 1), *worker = latency_pending_new(2, 1);
    static struct latency_figures total, expected;

    for (uint64_t i = 0; i < 100; i++) {
        struct latency_sample sample = {.us = i, .count = 2, .errors = i % 2, .bytes_in = 3, .bytes_out = 4};
        latency_pending_record(worker, 0, (int64_t)i / 10, &sample);
        latency_pending_move(pending, worker, 0);
        latency_histogram_record(&expected.histogram, i, 2);
        expected.errors += i % 2;
        expected.bytes_in += 3;
        expected.bytes_out += 4;
        memset(&total, 0, sizeof total);
        latency_pending_total(pending, 0, &total);
        assert_same(&total, &expected);
    }
    memset(&total, 0, sizeof total);
    latency_pending_total(pending, 1, &total);
    cr_assert_eq(total.histogram.count, 0);
    latency_pending_total(worker, 0, &total);
    cr_assert_eq(total.histogram.count, 0, "it is told of once");
    latency_pending_free(pending);
    latency_pending_free(worker);
}

Test(latency_pending, what_workers_have_is_moved_into_one)
{
    struct latency_pending *all = latency_pending_new(2, KEEP);
    struct latency_pending *workers[3];
    static struct latency_figures expected[4], whole, told;

    for (int i = 0; i < 3; i++) {
        workers[i] = latency_pending_new(2, KEEP);
    }
    for (int step = 0; step < 300; step++) {
        struct latency_pending *worker = step % 4 == 3 ? all : workers[step % 3];
        int64_t minute = step % 7 == 0 ? 0 : step / 75;
        const struct latency_sample sample = sample_of((uint64_t)(step * step));
        latency_pending_record(worker, 1, minute, &sample);
        latency_histogram_record(&expected[minute].histogram, sample.us, 1);
        expected[minute].bytes_in += sample.bytes_in;
        expected[minute].bytes_out += sample.bytes_out;
        if (worker == all) {
            latency_histogram_record(&told.histogram, sample.us, 1);
            told.bytes_in += sample.bytes_in;
            told.bytes_out += sample.bytes_out;
        }
        if (step % 10 == 9 || step >= 297) {
            latency_pending_move(all, workers[step / 10 % 3], 1);
            latency_pending_move(all, workers[step % 3], 1);
        }
    }
    for (int i = 0; i < 3; i++) {
        latency_pending_move(all, workers[i], 0);
        latency_pending_move(all, workers[i], 1);
        cr_assert(latency_pending_is_empty(workers[i]));
        cr_assert_eq(latency_pending_lost(workers[i]).minutes, 0);
        latency_pending_free(workers[i]);
    }
    for (int i = 0; i < 4; i++) {
        latency_figures_add(&whole, &expected[i]);
    }
    /* What was recorded there, and what was moved there. */
    latency_pending_total(all, 1, &told);
    assert_same(&told, &whole);

    static struct latency_figures flushed[4];
    const struct latency_snapshot *snapshot;
    size_t minutes = 0;
    while ((snapshot = latency_pending_take(all, 1)) != NULL) {
        for (size_t i = 0; i < snapshot->count; i++) {
            latency_minute_add_to(snapshot->minutes[i], &flushed[snapshot->minutes[i]->minute]);
        }
        minutes += snapshot->count;
        cr_assert(latency_pending_acknowledge(all, 1, snapshot->number));
    }
    cr_assert_eq(minutes, 4, "one for each minute, whoever had it");
    cr_assert_eq(memcmp(flushed, expected, sizeof expected), 0);
    latency_pending_free(all);
}

Test(latency_pending, what_is_moved_is_bounded_and_a_snapshot_stays)
{
    struct latency_pending *all = latency_pending_new(1, 2), *worker = latency_pending_new(1, 9);

    record(worker, 0, 100, 7);
    const struct latency_snapshot *snapshot = latency_pending_take(worker, 0);
    for (int64_t minute = 0; minute < 6; minute++) {
        record(worker, 0, minute, 7);
    }
    latency_pending_move(all, worker, 0);
    cr_assert_eq(latency_pending_minutes(all), 2);
    cr_assert_eq(latency_pending_lost(all).minutes, 4);
    cr_assert_eq(latency_pending_lost(worker).minutes, 0);
    cr_assert_eq(latency_pending_take(worker, 0), snapshot);
    cr_assert_eq(snapshot->minutes[0]->minute, 100);
    cr_assert_eq(latency_pending_take(all, 0)->minutes[0]->minute, 4);
    latency_pending_free(all);
    latency_pending_free(worker);
}

/* ---- memory ---- */

/* Bytes that are on the heap now. */
static size_t allocated(void)
{
#ifdef HAS_ADDRESS_SANITIZER
    return __sanitizer_get_current_allocated_bytes();
#else
    return mallinfo2().uordblks;
#endif
}

/* For each interface, when so many minutes could not be flushed, and the latencies of each lie in so many buckets. */
static size_t memory_for_each(int minutes, int buckets)
{
    enum { USED = 50 };
    struct latency_pending *pending = latency_pending_new(LATENCY_INTERFACES_MAX, 60);
    size_t before = allocated();

    for (int minute = 0; minute < minutes; minute++) {
        for (int i = 0; i < USED * buckets; i++) {
            const struct latency_sample sample = {.us = latency_index_greatest(80 + i / USED), .count = 300};
            latency_pending_record(pending, (uint32_t)(i % USED), minute, &sample);
        }
        for (uint32_t i = 0; i < USED; i++) {
            (void)latency_pending_take(pending, i);
        }
    }
    size_t each = (allocated() - before) / USED;
    latency_pending_free(pending);
    return each;
}

Test(latency_pending, takes_as_much_memory_as_the_page_says)
{
    enum { OPEN = 4808, HEAD = 16, MINUTES_KEPT = 60 + LATENCY_SNAPSHOT_MINUTES };

    /* Each block has a head of malloc's. */
    cr_assert_leq(memory_for_each(1, 40), OPEN + 500 + 2 * HEAD);
    cr_assert_leq(memory_for_each(200, 40), OPEN + HEAD + MINUTES_KEPT * (500 + HEAD));
    cr_assert_leq(memory_for_each(200, 512), OPEN + HEAD + MINUTES_KEPT * (LATENCY_MINUTE_BYTES_MAX + HEAD));
    cr_assert_geq(memory_for_each(200, 40), OPEN + MINUTES_KEPT * 150, "they are kept");
    cr_assert_leq(LATENCY_MINUTE_BYTES_MAX, 7200u);
}

/* ---- whatever happens ---- */

enum { INTERFACES = 4, MINUTES = 40 };

struct model {
    struct latency_figures recorded[INTERFACES][MINUTES];
    struct latency_figures flushed[INTERFACES][MINUTES];
    uint64_t recorded_requests;
    uint64_t flushed_requests;
};

/* As Redis would: a number that it knows is not counted again. */
static void flush(struct model *model, uint64_t known[INTERFACES], uint32_t interface,
                  const struct latency_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count && snapshot->number > known[interface]; i++) {
        latency_minute_add_to(snapshot->minutes[i], &model->flushed[interface][snapshot->minutes[i]->minute]);
        model->flushed_requests += snapshot->minutes[i]->count;
    }
    known[interface] = snapshot->number;
}

static void run_at_random(struct model *model, uint32_t keep, bool may_lose)
{
    struct latency_pending *pending = latency_pending_new(INTERFACES, keep);
    uint64_t state = keep * 77 + 1, known[INTERFACES] = {0};
    int64_t minute = 0;

    for (int step = 0; step < 60000; step++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        uint32_t what = (uint32_t)(state >> 33) % 100, interface = (uint32_t)(state >> 50) % INTERFACES;
        if (what < 80) {
            struct latency_sample sample = sample_of((state >> 20) % 5000);
            sample.errors = state >> 40 & 1;
            latency_pending_record(pending, interface, minute, &sample);
            struct latency_figures *figures = &model->recorded[interface][minute];
            latency_histogram_record(&figures->histogram, sample.us, 1);
            figures->errors += sample.errors;
            figures->bytes_in += sample.bytes_in;
            figures->bytes_out += sample.bytes_out;
            model->recorded_requests++;
        } else if (what < 85) {
            minute = what < 83 ? (minute + 1) % MINUTES : (int64_t)((state >> 45) % MINUTES);
        } else {
            const struct latency_snapshot *snapshot = latency_pending_take(pending, interface);
            if (snapshot != NULL && what < 95) {
                flush(model, known, interface, snapshot);
            }
            if (snapshot != NULL && what < 90) {
                cr_assert(latency_pending_acknowledge(pending, interface, snapshot->number));
            }
        }
        cr_assert_leq(latency_pending_minutes(pending), INTERFACES * (keep + 1 + LATENCY_SNAPSHOT_MINUTES));
    }
    for (uint32_t i = 0; i < INTERFACES; i++) {
        const struct latency_snapshot *snapshot;
        while ((snapshot = latency_pending_take(pending, i)) != NULL) {
            flush(model, known, i, snapshot);
            latency_pending_acknowledge(pending, i, snapshot->number);
        }
    }
    cr_assert(latency_pending_is_empty(pending));
    cr_assert_eq(latency_pending_lost(pending).requests > 0, may_lose);
    cr_assert_eq(model->flushed_requests + latency_pending_lost(pending).requests, model->recorded_requests);
    latency_pending_free(pending);
}

Test(latency_pending, all_that_was_recorded_is_flushed_once_under_its_minute)
{
    static struct model model;

    run_at_random(&model, MINUTES, false);
    cr_assert_gt(model.recorded_requests, 40000);
    cr_assert_eq(memcmp(model.recorded, model.flushed, sizeof model.recorded), 0);
}

Test(latency_pending, what_has_no_room_is_lost_and_counted)
{
    static struct model model;

    run_at_random(&model, 1, true);
    cr_assert_gt(model.flushed_requests, 0);
}
