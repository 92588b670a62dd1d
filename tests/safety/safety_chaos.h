/*
 * Faults on purpose, one after the other, a few hundred ms apart. Run by the main process. Those that can make a lease
 * end under a live holder are put on record with their times.
 */
#ifndef SAFETY_CHAOS_H
#define SAFETY_CHAOS_H

#include "safety_crew.h"
#include "safety_servers.h"

struct chaos {
    struct shared *shared;
    struct crew *crew;
    struct servers *servers;
    uint64_t random;
    int64_t next_us;
    unsigned turn;
    unsigned stopped;     /* the Headgate that is stopped */
    struct trouble *stop; /* NULL: none is */
    int64_t stop_until_us;
};

void chaos_init(struct chaos *chaos, struct shared *shared, struct crew *crew, struct servers *servers);
/* Does the next fault if it is due, and ends what has lasted long enough. False if something does not come back. */
bool chaos_step(struct chaos *chaos);
/* Lets everything go on. */
void chaos_end(struct chaos *chaos);

#endif
