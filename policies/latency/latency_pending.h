/*
 * What was recorded and is not yet in Redis: for each interface the minute that is open, and the minutes before it that
 * could not be flushed.
 *
 *   record ─► open minute ─► sealed, when another minute begins ─► waits, `keep` minutes at most; the oldest is dropped
 *                 │                                                  │
 *                 └──────────────────┬───────────────────────────────┘
 *                                    ▼ take
 *                        snapshot, with a number ─► acknowledge: forgotten
 *                           ▲              │    ─► give_up: dropped
 *                           └── take ◄─────┘ (no answer, or one that says that nothing was written)
 *
 * A snapshot stays as it is, with its number, until it is acknowledged or given up: each take() until then gives it
 * again. So a flush that is repeated after a lost reply carries the number that Redis may know already. What is
 * recorded meanwhile goes to the next one. Numbers begin at 1, are never used twice and grow; with a text that no other
 * process has (and no other object of this one) they are the flush's id.
 *
 * Time is the caller's: each sample is recorded under the minute that it is given. A clock that is set back opens an
 * earlier minute again; minutes of one number that wait are made one. So there are never more than `keep`, and nothing
 * is recorded under a time at which it did not happen.
 *
 * Nothing is locked. Workers record into objects of their own and move() what they have, under the caller's lock, into
 * one that all share and that is flushed. Memory, for each interface that something was recorded for, or moved: 4,808
 * bytes, and keep + 2 minutes (latency_minute.h) at most.
 */
#ifndef HEADGATE_LATENCY_PENDING_H
#define HEADGATE_LATENCY_PENDING_H

#include "latency/latency_minute.h"

/* Minutes in a snapshot, so that what has piled up is flushed sooner than it came. */
#define LATENCY_SNAPSHOT_MINUTES 2

struct latency_pending;

/* One request, or several that took equally long. */
struct latency_sample {
    uint64_t us;
    uint64_t count;  /* 1 or more */
    uint64_t errors; /* among them */
    uint64_t bytes_in;
    uint64_t bytes_out;
};

struct latency_snapshot {
    uint64_t number;
    size_t count; /* of minutes, oldest first: 1 to LATENCY_SNAPSHOT_MINUTES */
    struct latency_minute *minutes[LATENCY_SNAPSHOT_MINUTES];
};

/* What was dropped: because it had waited for too long, was given up, or memory was short. */
struct latency_lost {
    uint64_t minutes;
    uint64_t requests;
};

/* For interfaces numbered from 0 to interfaces - 1 (1 to 65536), of which those that are never used take no memory;
 * keep: 1 or more minutes. NULL when memory is short. */
struct latency_pending *latency_pending_new(uint32_t interfaces, uint32_t keep);
void latency_pending_free(struct latency_pending *pending);
/* Keeps so many minutes from now on (1 or more); the oldest beyond that are dropped. */
void latency_pending_keep(struct latency_pending *pending, uint32_t keep);

/* Records under that minute (latency_minute_of(), looked up once a turn). When memory is short it is lost. */
void latency_pending_record(struct latency_pending *pending, uint32_t interface, int64_t minute,
                            const struct latency_sample *sample);

/* What waits in from, and is open there, waits in into instead, and counts for its total, too. The snapshot that is out
 * stays where it is; so does what was lost. Both have the same interfaces. */
void latency_pending_move(struct latency_pending *into, struct latency_pending *from, uint32_t interface);

/* What is to be flushed next: the snapshot that is out, or a new one of the oldest minutes, the open one last. NULL if
 * there is nothing, or memory is short. It is valid until acknowledged or given up. */
const struct latency_snapshot *latency_pending_take(struct latency_pending *pending, uint32_t interface);
/* Redis has it. False, and nothing happens, if the snapshot that is out has another number. */
bool latency_pending_acknowledge(struct latency_pending *pending, uint32_t interface, uint64_t number);
/* Redis will never take it (a key of another type is in the way): it is lost. False as above. */
bool latency_pending_give_up(struct latency_pending *pending, uint32_t interface, uint64_t number);

/* Whether minutes of it wait that are not in a snapshot, beside the open one. */
bool latency_pending_has_more(const struct latency_pending *pending, uint32_t interface);
/* Whether all that was recorded is acknowledged or lost. */
bool latency_pending_is_empty(const struct latency_pending *pending);
/* Minutes that wait, those of snapshots and open ones among them. */
uint64_t latency_pending_minutes(const struct latency_pending *pending);
struct latency_lost latency_pending_lost(const struct latency_pending *pending);

/* Adds to figures all that was ever moved here of the interface: flushed, lost or still waiting. */
void latency_pending_total(const struct latency_pending *pending, uint32_t interface, struct latency_figures *figures);

#endif
