/*
 * A count of what happened, by the second, until Redis has it: the argument of lua/counter_add.lua.
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

/* All zero at first. */
struct latency_tally_list {
    size_t length;
    struct latency_tally_second seconds[LATENCY_TALLY_SECONDS]; /* oldest first */
};

/* So many more in that second. Workers go by the times of their turns, which may be a second apart. */
void latency_tally_add(struct latency_tally_list *list, int64_t second, uint64_t count);
/* How long ago a second was. Another worker's may be still to come here: that is now, as Redis is told no other. */
int64_t latency_age_s(int64_t now, int64_t second);
/* Writes the list as ages in that second. */
void latency_tally_write(const struct latency_tally_list *list, int64_t second, char text[LATENCY_TALLY_TEXT_MAX]);

#endif
