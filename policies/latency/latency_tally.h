/*
 * A count of what happened, by the second, until Redis has it: the argument of lua/counter_add.lua.
 *
 *   add ─► seconds ─► take: a snapshot, with a number ─► acknowledge: forgotten
 *                        ▲               └─► take again (no answer): the same number
 *
 * What has to wait for long loses its seconds, never its count: of LATENCY_TALLY_SECONDS the two oldest become one.
 * Times are the caller's, monotonic. Pure; nothing is locked.
 */
#ifndef HEADGATE_LATENCY_TALLY_H
#define HEADGATE_LATENCY_TALLY_H

#include <stddef.h>
#include <stdint.h>

#define LATENCY_TALLY_SECONDS 64
/* "age n age n …" and a NUL, at most. */
#define LATENCY_TALLY_TEXT_MAX (LATENCY_TALLY_SECONDS * 42 + 1)

struct latency_tally_second {
    int64_t second;
    uint64_t count;
};

struct latency_tally_list {
    size_t length;
    struct latency_tally_second seconds[LATENCY_TALLY_SECONDS]; /* oldest first */
};

/* All zero at first. */
struct latency_tally {
    struct latency_tally_list waiting;
    struct latency_tally_list snapshot;
    uint64_t number; /* of the snapshot, or the last one; they begin at 1 */
};

/* So many more in that second. Workers go by the times of their turns, which may be a second apart. */
void latency_tally_add(struct latency_tally *tally, int64_t second, uint64_t count);
/* How long ago a second was. Another worker's may be still to come here: that is now, as Redis is told no other. */
int64_t latency_age_s(int64_t now, int64_t second);
/* Writes the snapshot that is out, or a new one of all that waits, as ages in that second. The number; 0 if there is
 * nothing. */
uint64_t latency_tally_take(struct latency_tally *tally, int64_t second, char text[LATENCY_TALLY_TEXT_MAX]);
/* Redis has the snapshot, or never will. */
void latency_tally_acknowledge(struct latency_tally *tally);

#endif
