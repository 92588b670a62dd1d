/*
 * The figures of one operation: open, as they are recorded, and sealed, as a minute of them that waits to be flushed.
 * Sealed they are small: two to four bytes for each bucket that is not empty, which makes some 150 to 500 bytes for the
 * minute of an ordinary operation and at most LATENCY_MINUTE_BYTES_MAX.
 */
#ifndef HEADGATE_LATENCY_MINUTE_H
#define HEADGATE_LATENCY_MINUTE_H

#include "latency/latency_histogram.h"

#define LATENCY_US_PER_MINUTE INT64_C(60000000)

/* The figures of a minute ahead of its buckets, in the order of a report. */
enum { LATENCY_COUNT, LATENCY_SUM, LATENCY_MIN, LATENCY_MAX, LATENCY_ERRORS, LATENCY_IN, LATENCY_OUT, LATENCY_FIGURES };

/* All zero: nothing was recorded. 4,808 bytes. */
struct latency_figures {
    struct latency_histogram histogram;
    uint64_t errors;
    uint64_t bytes_in;
    uint64_t bytes_out;
    bool unknown[LATENCY_FIGURES]; /* of a report: what Redis does not hold, or not whole */
};

/* One request, or several that took equally long. */
struct latency_sample {
    uint64_t us;
    uint64_t count;  /* 1 or more */
    uint64_t errors; /* among them */
    uint64_t bytes_in;
    uint64_t bytes_out;
};

struct latency_minute {
    struct latency_minute *next; /* the holder's */
    int64_t minute;              /* Unix time / 60 */
    uint64_t count;
    uint64_t sum_us;
    uint64_t min_us;
    uint64_t max_us;
    uint64_t errors;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint32_t bucket_count; /* that are not empty */
    uint32_t length;
    unsigned char packed[]; /* for each of them: how far it is from the one before, and its count */
};

/* The head, and two bytes of distance and ten of count for each bucket: no minute is longer. */
#define LATENCY_MINUTE_BYTES_MAX (sizeof(struct latency_minute) + LATENCY_BUCKETS * 12)

/* The minute in which a Unix time in µs lies, also one before 1970. */
int64_t latency_minute_of(int64_t unix_us);

/* A sealed copy of the figures, to be given back to free(). NULL when memory is short. */
struct latency_minute *latency_minute_seal(int64_t minute, const struct latency_figures *figures);
void latency_figures_record(struct latency_figures *figures, const struct latency_sample *sample);
/* Adds what is sealed to open figures. */
void latency_minute_add_to(const struct latency_minute *minute, struct latency_figures *figures);

/* Minutes of a flush, so that what has piled up is flushed sooner than it came. */
#define LATENCY_FLUSH_MINUTES 2

/* What a flush is made of: some minutes, oldest first. */
struct latency_frozen {
    size_t count;
    struct latency_minute *minutes[LATENCY_FLUSH_MINUTES];
};

/* Walks the buckets that are not empty, lowest first. All zero: at the beginning. */
struct latency_minute_walk {
    uint32_t at;
    int passed; /* how far the last one was from the first of all */
};

bool latency_minute_next(const struct latency_minute *minute, struct latency_minute_walk *walk, int *index,
                         uint64_t *count);

#endif
