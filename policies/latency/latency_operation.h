/*
 * What is measured together, as all workers share it: an operation, as the keys in Redis have it. It has a name, the
 * minutes that are not in Redis yet, and all that was ever measured.
 *
 *   add ─► waits, `keep` minutes at most; the oldest is dropped ─► freeze: the oldest ─► forget: Redis has it, or never
 *
 * Minutes of one number that wait are made one. So there are never more than `keep`, also when a clock is set back, and
 * nothing is on record under a time at which it did not happen. Pure; nothing is locked. Memory, beside the name: 4,920
 * bytes, and keep + 2 minutes (latency_minute.h) at most.
 */
#ifndef HEADGATE_LATENCY_OPERATION_H
#define HEADGATE_LATENCY_OPERATION_H

#include "latency/latency_outbox.h"

#include <sys/queue.h>

/* What was dropped: because it had waited for too long, was refused, or memory was short. */
struct latency_lost {
    uint64_t minutes;
    uint64_t requests;
};

/* All zero at first, but for the name. */
struct latency_operation {
    struct latency_operation_name named;
    struct latency_entry entry;    /* of the outbox */
    struct latency_minute *first;  /* of those that wait, in the order in which they came */
    uint32_t waiting;              /* how many */
    struct latency_frozen frozen;  /* those that the outbox has */
    struct latency_figures *total; /* of all that was added; NULL: nothing, or memory is short */
    /* Of the worker that sends. */
    int64_t listed_us; /* when Redis was told the name last; 0: never */
    bool is_to_list;   /* it is to be told now … */
    bool is_behind;    /* there was more to flush than a call takes … */
    STAILQ_ENTRY(latency_operation) to_list;
    TAILQ_ENTRY(latency_operation) behind; /* … and it waits there for that */
};

void latency_lose(struct latency_lost *lost, uint64_t requests);
/* Has the minute wait; takes it. */
void latency_operation_add(struct latency_operation *operation, struct latency_minute *minute, uint32_t keep,
                           struct latency_lost *lost);
/* Keeps so many minutes (1 or more); the oldest beyond that are dropped. */
void latency_operation_keep(struct latency_operation *operation, uint32_t keep, struct latency_lost *lost);
/* Freezes the oldest minutes, when nothing is frozen. False if there are none. */
bool latency_operation_freeze(struct latency_operation *operation);
/* Forgets what is frozen. lost: where it is counted as that; NULL: Redis has it. */
void latency_operation_forget(struct latency_operation *operation, struct latency_lost *lost);
/* Frees what it has. */
void latency_operation_clear(struct latency_operation *operation);

#endif
