/* Minutes: which one a time lies in, and that a sealed one has all that was recorded, of any size. */
#include "latency/latency_minute.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void assert_same(const struct latency_figures *left, const struct latency_figures *right)
{
    cr_assert_eq(memcmp(left, right, sizeof *left), 0);
}

static void assert_sealed_is(const struct latency_figures *figures)
{
    struct latency_minute *minute = latency_minute_seal(-7, figures);
    struct latency_figures unsealed = {0};

    cr_assert_eq(minute->minute, -7);
    cr_assert_leq(sizeof *minute + minute->length, LATENCY_MINUTE_BYTES_MAX);
    latency_minute_add_to(minute, &unsealed);
    assert_same(&unsealed, figures);
    free(minute);
}

Test(latency_minute, sealed_has_all_that_was_open)
{
    static struct latency_figures figures;
    uint64_t state = 88172645463325252;

    cr_assert_eq(sizeof figures, 4808, "the header says so");
    assert_sealed_is(&figures);
    for (int round = 0; round < 500; round++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        uint64_t us = (state >> 20) >> (state >> 58), count = 1 + (state >> 33) % 3000;
        latency_histogram_record(&figures.histogram, us, count);
        figures.errors += count / 2;
        figures.bytes_in += us;
        figures.bytes_out += state >> 40;
        assert_sealed_is(&figures);
    }
    /* Every bucket, with counts of all sizes. */
    for (int index = LATENCY_INDEX_MIN; index <= LATENCY_INDEX_MAX; index++) {
        figures.histogram.buckets[index - LATENCY_INDEX_MIN] = UINT64_MAX >> (index + 1) % 64;
    }
    assert_sealed_is(&figures);
}
