#include "latency/latency_minute.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int64_t latency_minute_of(int64_t unix_us)
{
    return unix_us / LATENCY_US_PER_MINUTE - (unix_us % LATENCY_US_PER_MINUTE < 0);
}

/* ---- numbers of any size, seven bits a byte, the lowest first ---- */

static unsigned char *put_number(unsigned char *at, uint64_t number)
{
    for (; number > 0x7f; number >>= 7) {
        *at++ = (unsigned char)(number | 0x80);
    }
    *at++ = (unsigned char)number;
    return at;
}

static uint64_t take_number(const struct latency_minute *minute, uint32_t *at)
{
    uint64_t number = 0;
    unsigned char byte;
    unsigned int shift = 0;

    do {
        assert(*at < minute->length);
        byte = minute->packed[(*at)++];
        number |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte > 0x7f);
    return number;
}

/* ---- sealing ---- */

struct latency_minute *latency_minute_seal(int64_t minute, const struct latency_figures *figures)
{
    const struct latency_histogram *histogram = &figures->histogram;
    unsigned char packed[LATENCY_BUCKETS * 12];
    unsigned char *end = packed;
    uint32_t bucket_count = 0;

    for (size_t i = 0, last = 0; i < LATENCY_BUCKETS; i++) {
        if (histogram->buckets[i] > 0) {
            end = put_number(end, i - last);
            end = put_number(end, histogram->buckets[i]);
            last = i;
            bucket_count++;
        }
    }
    size_t length = (size_t)(end - packed);
    struct latency_minute *sealed = malloc(sizeof *sealed + length);
    if (sealed == NULL) {
        return NULL;
    }
    *sealed = (struct latency_minute){
        .minute = minute,
        .count = histogram->count,
        .sum_us = histogram->sum_us,
        .min_us = histogram->min_us,
        .max_us = histogram->max_us,
        .errors = figures->errors,
        .bytes_in = figures->bytes_in,
        .bytes_out = figures->bytes_out,
        .bucket_count = bucket_count,
        .length = (uint32_t)length,
    };
    memcpy(sealed->packed, packed, length);
    return sealed;
}

bool latency_minute_next(const struct latency_minute *minute, struct latency_minute_walk *walk, int *index,
                         uint64_t *count)
{
    if (walk->at == minute->length) {
        return false;
    }
    walk->passed += (int)take_number(minute, &walk->at);
    *index = walk->passed + LATENCY_INDEX_MIN;
    *count = take_number(minute, &walk->at);
    return true;
}

void latency_minute_add_to(const struct latency_minute *minute, struct latency_figures *figures)
{
    struct latency_histogram *histogram = &figures->histogram;
    struct latency_minute_walk walk = {0};
    uint64_t count;
    int index;

    latency_histogram_add(histogram, minute->count, minute->sum_us, minute->min_us, minute->max_us);
    while (latency_minute_next(minute, &walk, &index, &count)) {
        latency_histogram_add_bucket(histogram, index, count);
    }
    figures->errors += minute->errors;
    figures->bytes_in += minute->bytes_in;
    figures->bytes_out += minute->bytes_out;
}

void latency_figures_record(struct latency_figures *figures, const struct latency_sample *sample)
{
    latency_histogram_record(&figures->histogram, sample->us, sample->count);
    figures->errors += sample->errors;
    figures->bytes_in += sample->bytes_in;
    figures->bytes_out += sample->bytes_out;
}
