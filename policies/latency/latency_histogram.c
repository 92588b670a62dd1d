#include "latency/latency_histogram.h"

#include <assert.h>

#define PER_OCTAVE (1 << LATENCY_SCALE)
#define SEGMENT_BITS 5

/* floor(2^63 * 2^(i/16)). All but the first are irrational, so that no whole number lies on one of them. */
static const uint64_t bounds[PER_OCTAVE] = {
    0x8000000000000000, 0x85aac367cc487b14, 0x8b95c1e3ea8bd6e6, 0x91c3d373ab11c336,
    0x9837f0518db8a96f, 0x9ef5326091a111ad, 0xa5fed6a9b15138ea, 0xad583eea42a14ac6,
    0xb504f333f9de6484, 0xbd08a39f580c36be, 0xc5672a115506dadd, 0xce248c151f8480e3,
    0xd744fccad69d6af4, 0xe0ccdeec2a94e111, 0xeac0c6e7dd24392e, 0xf5257d152486cc2c,
};

/* An octave in 32 segments of equal width: which bound may lie in the segment, or comes next behind it. There is never
 * more than one in a segment. The last segment has none, and is compared with the last bound, which lies before it. */
static const uint8_t next_bound[1 << SEGMENT_BITS] = {
    0, 1, 2, 3, 3, 4, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 13, 14, 14, 15, 15, 15, 15, 15,
};

/* 2^((i+0.5)/16) */
static const double midpoints[PER_OCTAVE] = {
    1.0218971486541166, 1.0671404006768237, 1.1143867425958924, 1.1637248587775775,
    1.215247359980469,  1.2690509571917332, 1.3252366431597413, 1.383909881963832,
    1.4451808069770467, 1.5091644275934228, 1.5759808451078865, 1.6457554781539649,
    1.7186192981224779, 1.7947090750031072, 1.8741676341103,    1.9571441241754002,
};

/* Whole numbers up to this lie below or on the bound 2^(exponent/16). */
static uint64_t floor_of_bound(int exponent)
{
    unsigned int octave = (unsigned int)exponent >> LATENCY_SCALE;

    return bounds[exponent & (PER_OCTAVE - 1)] >> (63 - octave);
}

int latency_index(uint64_t us)
{
    if (us <= 1) {
        return LATENCY_INDEX_MIN;
    }
    if (us >= LATENCY_US_MAX) {
        return LATENCY_INDEX_MAX;
    }
    int zeros = __builtin_clzll(us);
    uint64_t mantissa = us << zeros;
    int next = next_bound[(mantissa >> (63 - SEGMENT_BITS)) & ((1 << SEGMENT_BITS) - 1)];
    int passed = next + (mantissa > bounds[next]);
    return (63 - zeros) * PER_OCTAVE + passed - 1;
}

uint64_t latency_index_least(int index)
{
    assert(index >= LATENCY_INDEX_MIN && index <= LATENCY_INDEX_MAX);
    return index == LATENCY_INDEX_MIN ? 0 : floor_of_bound(index) + 1;
}

uint64_t latency_index_greatest(int index)
{
    assert(index >= LATENCY_INDEX_MIN && index <= LATENCY_INDEX_MAX);
    return index == LATENCY_INDEX_MAX ? UINT64_MAX : floor_of_bound(index + 1);
}

double latency_index_midpoint(int index)
{
    if (index == LATENCY_INDEX_MIN) {
        return 1;
    }
    double least = (double)latency_index_least(index);
    double greatest = (double)floor_of_bound(index + 1);
    double midpoint = midpoints[index & (PER_OCTAVE - 1)] * (double)(UINT64_C(1) << (index >> LATENCY_SCALE));
    midpoint = midpoint < least ? least : midpoint;
    return midpoint > greatest ? greatest : midpoint;
}

void latency_histogram_add(struct latency_histogram *histogram, uint64_t count, uint64_t sum_us, uint64_t min_us,
                           uint64_t max_us)
{
    if (count > 0 && (min_us < histogram->min_us || histogram->count == 0)) {
        histogram->min_us = min_us;
    }
    if (max_us > histogram->max_us) {
        histogram->max_us = max_us;
    }
    histogram->count += count;
    histogram->sum_us += sum_us;
}

void latency_histogram_record(struct latency_histogram *histogram, uint64_t us, uint64_t count)
{
    assert(count > 0);
    latency_histogram_add(histogram, count, us * count, us, us);
    histogram->buckets[latency_index(us) - LATENCY_INDEX_MIN] += count;
}

void latency_histogram_add_bucket(struct latency_histogram *histogram, int64_t index, uint64_t count)
{
    index = index < LATENCY_INDEX_MIN ? LATENCY_INDEX_MIN : index;
    index = index > LATENCY_INDEX_MAX ? LATENCY_INDEX_MAX : index;
    histogram->buckets[index - LATENCY_INDEX_MIN] += count;
}

double latency_histogram_mean(const struct latency_histogram *histogram)
{
    return histogram->count == 0 ? 0 : (double)histogram->sum_us / (double)histogram->count;
}

/* How many of so many values are that part, rounded up and at least one. */
static uint64_t rank_of(double part, uint64_t count)
{
    double exact = part * (double)count;
    uint64_t rank = (uint64_t)exact;

    rank += (double)rank < exact;
    return rank > 0 ? rank : 1;
}

double latency_histogram_quantile(const struct latency_histogram *histogram, double part)
{
    double least = (double)histogram->min_us, greatest = (double)histogram->max_us;

    if (histogram->count == 0) {
        return 0;
    }
    if (part <= 0) {
        return least;
    }
    if (part >= 1) {
        return greatest;
    }
    uint64_t rank = rank_of(part, histogram->count), passed = 0;
    int index = LATENCY_INDEX_MIN;
    for (; index < LATENCY_INDEX_MAX; index++) {
        passed += histogram->buckets[index - LATENCY_INDEX_MIN];
        if (passed >= rank) {
            break;
        }
    }
    double value = latency_index_midpoint(index);
    value = value < least ? least : value;
    return value > greatest ? greatest : value;
}
