/*
 * What SLOWLOG and BIGLOG show: the newest entries of requests that were slow, or large, up to a number; the oldest is
 * dropped. An entry has copies of all its texts. Its memory is bounded: some 300 bytes for an ordinary command, 6 kB at
 * most (32 arguments of 128 bytes).
 */
#ifndef HEADGATE_LATENCY_SLOW_H
#define HEADGATE_LATENCY_SLOW_H

#include "latency/latency_excerpt.h"

/* What is kept of an address, a name or a user, in bytes. */
#define LATENCY_SLOW_TEXT_MAX 128

struct latency_slow_log;

struct latency_slow_entry {
    uint64_t id;        /* given by the log: 0, 1, 2, … */
    int64_t unix_us;    /* when the reply had come */
    int64_t queued_us;  /* from the request's last byte in until it was written to Redis, on hold or in a queue */
    int64_t redis_us;   /* from then until the reply's last byte in: the network, and Redis */
    int64_t writing_us; /* until the reply's last byte was given to the client's socket; -1: not known */
    uint64_t bytes_in;  /* of the request */
    uint64_t bytes_out; /* of the reply */
    struct slice address;
    struct slice name; /* of CLIENT SETNAME */
    struct slice user;
    struct slice excerpt; /* of the command */
};

/* For so many entries, 1 or more. NULL when memory is short. */
struct latency_slow_log *latency_slow_log_new(size_t most);
void latency_slow_log_free(struct latency_slow_log *log);

/* Keeps a copy of the entry, whose id counts for nothing. False, and nothing is changed, when memory is short. */
bool latency_slow_log_add(struct latency_slow_log *log, const struct latency_slow_entry *entry);
/* Forgets all entries; ids go on. */
void latency_slow_log_reset(struct latency_slow_log *log);

/*
 * Writes one line for each of the newest entries with ids below *before, up to most, and sets *before to the least id
 * that was written. Returns how many there were:
 * id=7 time=1700000000.000123 queued_us=12 redis_us=15003 writing_us=8 bytes_in=31 bytes_out=5 address="10.0.0.1:4711"
 * name="" user="default" command="GET" "k"
 */
size_t latency_slow_log_print(const struct latency_slow_log *log, uint64_t *before, size_t most, FILE *out);

#endif
