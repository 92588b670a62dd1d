/*
 * Minutes of an operation that wait: what is frozen stays, bounds, clocks that jump back, memory; and that whatever
 * happens, what was flushed and what was lost is what was recorded.
 */
#include "latency_recorder.h"

#include <inttypes.h>
#include <malloc.h>
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

static void assert_same(const struct latency_figures *left, const struct latency_figures *right)
{
    cr_assert_eq(memcmp(left, right, sizeof *left), 0);
}

/* ---- minutes that wait ---- */

Test(latency_operation, what_workers_have_is_moved_into_one)
{
    enum { WORKERS = 3, MINUTES = 4 };
    struct recorder *all = recorder_new(KEEP), *workers[WORKERS];
    static struct latency_figures expected[MINUTES], flushed[MINUTES], whole;
    const struct flush *taken;
    size_t minutes = 0;

    for (int i = 0; i < WORKERS; i++) {
        workers[i] = recorder_new(KEEP);
    }
    for (int step = 0; step < 300; step++) {
        struct recorder *worker = workers[step % WORKERS];
        int64_t minute = step % 7 == 0 ? 0 : step / 75;
        const struct latency_sample sample = sample_of((uint64_t)(step * step));
        if (worker->minute != minute) {
            recorder_move(all, worker);
        }
        recorder_record(worker, minute, &sample);
        latency_figures_record(&expected[minute], &sample);
        latency_figures_record(&whole, &sample);
    }
    for (int i = 0; i < WORKERS; i++) {
        recorder_move(all, workers[i]);
        recorder_free(workers[i]);
    }
    assert_same(all->operation.total, &whole);
    while ((taken = recorder_take(all)) != NULL) {
        for (size_t i = 0; i < taken->frozen.count; i++) {
            latency_minute_add_to(taken->frozen.minutes[i], &flushed[taken->frozen.minutes[i]->minute]);
        }
        minutes += taken->frozen.count;
        recorder_forget(all, false);
    }
    cr_assert_eq(minutes, MINUTES, "one for each minute, whoever had it");
    cr_assert_eq(memcmp(flushed, expected, sizeof expected), 0);
    recorder_free(all);
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

/* Of an operation of which so many minutes could not be flushed, and the latencies of each lie in so many buckets. */
static size_t memory_of(int minutes, int buckets)
{
    size_t before = allocated();
    struct recorder *recorder = recorder_new(60);

    for (int minute = 0; minute < minutes; minute++) {
        for (int i = 0; i < buckets; i++) {
            const struct latency_sample sample = {.us = latency_index_greatest(80 + i), .count = 300};
            recorder_record(recorder, minute, &sample);
        }
        (void)recorder_take(recorder);
    }
    /* The open minute is a worker's. */
    size_t used = allocated() - before - sizeof(struct recorder) + sizeof(struct latency_operation);
    recorder_free(recorder);
    return used;
}

Test(latency_operation, takes_as_much_memory_as_the_page_says)
{
    enum { ONCE = 4808 + sizeof(struct latency_operation), HEAD = 16, MINUTES_KEPT = 60 + LATENCY_FLUSH_MINUTES };

    /* Each block has a head of malloc's. */
    cr_assert_leq(memory_of(1, 40), ONCE + 500 + 3 * HEAD);
    cr_assert_leq(memory_of(200, 40), ONCE + 2 * HEAD + MINUTES_KEPT * (500 + HEAD));
    cr_assert_leq(memory_of(200, 512), ONCE + 2 * HEAD + MINUTES_KEPT * (LATENCY_MINUTE_BYTES_MAX + HEAD));
    cr_assert_geq(memory_of(200, 40), ONCE + MINUTES_KEPT * 150, "they are kept");
    cr_assert_leq(LATENCY_MINUTE_BYTES_MAX, 7200u);
    cr_assert_leq(sizeof(struct latency_operation), 300);
}
