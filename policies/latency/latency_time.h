/* Times that are asked for on the admin port, and those that are answered: by the calendar, in UTC. */
#ifndef HEADGATE_LATENCY_TIME_H
#define HEADGATE_LATENCY_TIME_H

#include "policy/policy.h"

/* "2026-11-21T20:15" and a NUL. */
#define LATENCY_TIME_SIZE 32

/*
 * Reads a time: "1795291200" in Unix seconds, "-15m" (or s, h, d) for so long before now, "now", or
 * "2026-11-21T20:15" in UTC, with ":30" and "Z" behind if wanted. Unix seconds, from 0 to the year 9999. False if it is
 * none of these.
 */
bool latency_time_read(struct slice text, int64_t now_s, int64_t *time_s);

/* Writes the minute of a time as "2026-11-21T20:15". */
void latency_time_write(int64_t time_s, char out[LATENCY_TIME_SIZE]);

#endif
