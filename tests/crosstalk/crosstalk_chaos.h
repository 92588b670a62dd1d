/*
 * Faults on purpose, now and then: connections of Redis killed, Redis stopped for a moment, Redis killed and restarted.
 * Run by the main thread. While a fault lasts, and for a while after, the run excuses what follows from it.
 */
#ifndef CROSSTALK_CHAOS_H
#define CROSSTALK_CHAOS_H

#include "crosstalk_run.h"
#include "crosstalk_servers.h"

struct chaos {
    struct run *run;
    struct servers *servers;
    uint64_t random;
    int64_t next_us;
    unsigned turn;
};

void chaos_init(struct chaos *chaos, struct run *run, struct servers *servers);

/* Does the next fault if it is due; blocks for as long as that takes. False if Redis does not come back. */
bool chaos_step(struct chaos *chaos);

#endif
