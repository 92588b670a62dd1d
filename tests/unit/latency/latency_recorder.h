/* One operation with a worker's open minute and the number of what is frozen, as the policy puts them together. */
#ifndef HEADGATE_TESTS_LATENCY_RECORDER_H
#define HEADGATE_TESTS_LATENCY_RECORDER_H

#include "latency/latency_operation.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* What a flush is made of. */
struct flush {
    uint64_t number;
    struct latency_frozen frozen;
};

struct recorder {
    struct latency_operation operation;
    struct latency_lost lost;
    uint32_t keep;
    int64_t minute; /* the open one */
    struct latency_figures open;
    bool is_frozen;
    struct flush flush;
};

static inline struct recorder *recorder_new(uint32_t keep)
{
    struct recorder *recorder = calloc(1, sizeof *recorder);

    cr_assert_not_null(recorder);
    recorder->keep = keep;
    return recorder;
}

static inline void recorder_free(struct recorder *recorder)
{
    latency_operation_clear(&recorder->operation);
    free(recorder);
}

/* The open minute waits, in that operation. */
static inline void recorder_move(struct recorder *into, struct recorder *from)
{
    if (from->open.histogram.count > 0) {
        struct latency_minute *sealed = latency_minute_seal(from->minute, &from->open);
        cr_assert_not_null(sealed);
        latency_operation_add(&into->operation, sealed, into->keep, &into->lost);
        from->open = (struct latency_figures){0};
    }
}

static inline void recorder_record(struct recorder *recorder, int64_t minute, const struct latency_sample *sample)
{
    if (recorder->minute != minute) {
        recorder_move(recorder, recorder);
        recorder->minute = minute;
    }
    latency_figures_record(&recorder->open, sample);
}

/* What is frozen, or is frozen now; NULL if there is nothing. */
static inline const struct flush *recorder_take(struct recorder *recorder)
{
    if (!recorder->is_frozen) {
        recorder_move(recorder, recorder);
        recorder->is_frozen = latency_operation_freeze(&recorder->operation);
        recorder->flush.number += recorder->is_frozen;
        recorder->flush.frozen = recorder->operation.frozen;
    }
    return recorder->is_frozen ? &recorder->flush : NULL;
}

static inline void recorder_forget(struct recorder *recorder, bool is_lost)
{
    cr_assert(recorder->is_frozen);
    recorder->is_frozen = false;
    latency_operation_forget(&recorder->operation, is_lost ? &recorder->lost : NULL);
}

/* Minutes that wait, frozen and open ones among them. */
static inline uint64_t recorder_minutes(const struct recorder *recorder)
{
    return recorder->operation.waiting + recorder->operation.frozen.count + (recorder->open.histogram.count > 0);
}

#endif
