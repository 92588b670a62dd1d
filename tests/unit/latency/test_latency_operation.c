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

/* ---- minutes that wait ---- */

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
