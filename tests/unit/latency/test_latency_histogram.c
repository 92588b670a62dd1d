/*
 * Histograms: the bounds of every bucket against arithmetic that is exact, quantiles against the sorted values over
 * many distributions, and that the histograms of parts, merged, are that of the whole.
 */
#include "../../rig/rig_random.h"
#include "latency/latency_histogram.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 2^(1/32) - 1, and what doubles lose. */
#define ERROR_MAX (0.0218971486541166 + 1e-9)

/* Always the same ones in a test. */
static uint64_t chance(void)
{
    static uint64_t seed = 1;

    return next_random(&seed);
}

/* From 0 to below 1. */
static double chance_part(void)
{
    return (double)chance() / 2147483648.0;
}

/* ---- buckets ---- */

/* Whether value (up to 2^38) > 2^(exponent/16), with whole numbers of any size: value^16 > 2^exponent. */
static bool is_above(uint64_t value, int exponent)
{
    enum { WORDS = 64, BITS = 16 };
    uint64_t power[WORDS] = {1};

    for (int factor = 0; factor < 16; factor++) {
        uint64_t carry = 0;
        for (int i = 0; i < WORDS; i++) {
            carry += power[i] * value;
            power[i] = carry % (1 << BITS);
            carry >>= BITS;
        }
    }
    bool has_bit = false, has_more = false;
    for (int bit = WORDS * BITS - 1; bit >= 0; bit--) {
        if ((power[bit / BITS] >> bit % BITS & 1) == 0) {
            continue;
        }
        if (bit > exponent) {
            return true;
        }
        has_more = has_more || (has_bit && bit < exponent);
        has_bit = has_bit || bit == exponent;
    }
    return has_bit && has_more;
}

Test(latency_histogram, each_bucket_begins_and_ends_where_it_says)
{
    for (int index = LATENCY_INDEX_MIN; index <= LATENCY_INDEX_MAX; index++) {
        uint64_t least = latency_index_least(index), greatest = latency_index_greatest(index);
        if (index > LATENCY_INDEX_MIN) {
            cr_assert_eq(least, latency_index_greatest(index - 1) + 1, "bucket %d", index);
            cr_assert(is_above(least, index), "bucket %d", index);
            cr_assert_not(is_above(least - 1, index), "bucket %d", index);
        }
        if (least > greatest) {
            cr_assert_lt(index, 16 * 5, "only small numbers are further apart than bounds");
            continue;
        }
        cr_assert_eq(latency_index(least), index);
        cr_assert_eq(latency_index(greatest), index);
    }
    cr_assert_eq(latency_index_least(LATENCY_INDEX_MIN), 0);
    cr_assert_eq(latency_index_greatest(LATENCY_INDEX_MIN), 1);
    cr_assert_eq(latency_index_greatest(LATENCY_INDEX_MAX), UINT64_MAX);
}

/* ---- figures ---- */

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

#define VALUES 20000

/* Latencies as they come: even, log-normal, with a long tail, of two humps, few and small, all alike. */
static uint64_t value_of(int distribution, double scale)
{
    double normal = sqrt(-2 * log(1 - chance_part())) * cos(2 * 3.141592653589793 * chance_part());

    switch (distribution) {
    case 0:
        return (uint64_t)(scale * chance_part());
    case 1:
        return (uint64_t)(scale * exp(normal));
    case 2:
        return (uint64_t)(scale * pow(1 - chance_part(), -1.2));
    case 3:
        return (uint64_t)(scale * (chance() % 10 == 0 ? 900 + 50 * normal : 2));
    case 4:
        return chance() % 12;
    default:
        return (uint64_t)scale;
    }
}

static void check_quantiles(int distribution, double scale, size_t count)
{
    static const double parts[] = {0.0001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1};
    static uint64_t values[VALUES];
    struct latency_histogram histogram = {0};

    for (size_t i = 0; i < count; i++) {
        uint64_t value = value_of(distribution, scale);
        values[i] = value < LATENCY_US_MAX ? value : LATENCY_US_MAX;
        latency_histogram_record(&histogram, values[i], 1);
    }
    qsort(values, count, sizeof values[0], compare);
    cr_assert_eq(histogram.min_us, values[0]);
    cr_assert_eq(histogram.max_us, values[count - 1]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double exact = (double)values[(size_t)ceil(parts[i] * (double)count) - 1];
        double told = latency_histogram_quantile(&histogram, parts[i]);
        /* Of 0, which has no relative error, it says at most 1. */
        cr_assert_leq(fabs(told - exact), exact == 0 ? 1 : exact * ERROR_MAX,
                      "distribution %d, scale %g: %g of %zu is %g, told as %g", distribution, scale, parts[i], count,
                      exact, told);
    }
}

Test(latency_histogram, quantiles_are_within_their_error)
{
    for (int distribution = 0; distribution < 6; distribution++) {
        for (double scale = 3; scale < 1e9; scale *= 17) {
            check_quantiles(distribution, scale, 1);
            check_quantiles(distribution, scale, 7);
            check_quantiles(distribution, scale, 1000);
            check_quantiles(distribution, scale, VALUES);
        }
    }
}

Test(latency_histogram, parts_merged_are_the_whole)
{
    for (int round = 0; round < 200; round++) {
        enum { PARTS = 7 };
        static struct latency_histogram parts[PARTS], whole, merged;
        memset(parts, 0, sizeof parts);
        memset(&whole, 0, sizeof whole);
        memset(&merged, 0, sizeof merged);
        uint64_t values = chance() % 3000;
        for (uint64_t i = 0; i < values; i++) {
            uint64_t us = value_of((int)(chance() % 6), 1000), count = 1 + chance() % 3;
            latency_histogram_record(&whole, us, count);
            latency_histogram_record(&parts[chance() % (uint64_t)(round % PARTS + 1)], us, count);
        }
        for (int first = (int)(chance() % PARTS), i = 0; i < PARTS; i++) {
            const struct latency_histogram *part = &parts[(first + i) % PARTS];
            latency_histogram_add(&merged, part->count, part->sum_us, part->min_us, part->max_us);
            for (int index = LATENCY_INDEX_MIN; index <= LATENCY_INDEX_MAX; index++) {
                latency_histogram_add_bucket(&merged, index, part->buckets[index - LATENCY_INDEX_MIN]);
            }
        }
        cr_assert_eq(memcmp(&merged, &whole, sizeof whole), 0, "round %d", round);
    }
}

Test(latency_histogram, takes_buckets_of_others_even_out_of_range)
{
    struct latency_histogram histogram = {.count = 6, .min_us = 1, .max_us = 1000, .sum_us = 2000};

    latency_histogram_add_bucket(&histogram, INT64_MIN, 2);
    latency_histogram_add_bucket(&histogram, latency_index(100), 3);
    latency_histogram_add_bucket(&histogram, INT64_MAX, 1);
    cr_assert_eq(latency_histogram_quantile(&histogram, 0.3), 1);
    cr_assert_float_eq(latency_histogram_quantile(&histogram, 0.5), 100, 2.2);
    cr_assert_eq(latency_histogram_quantile(&histogram, 0.9), 1000, "never above max");
    histogram.count = 1000;
    cr_assert_eq(latency_histogram_quantile(&histogram, 0.9), 1000, "buckets that are missing count as the slowest");
}
