/*
 * What attackers must not bring about, looked at about once a second by the main thread: what is forbidden was done
 * (canaries), Headgate's memory or its connections to Redis grow past a bound. Redis is asked directly.
 */
#ifndef CROSSTALK_WATCH_H
#define CROSSTALK_WATCH_H

#include "crosstalk_run.h"
#include "crosstalk_servers.h"

struct watch {
    struct run *run;
    const struct servers *servers;
    unsigned epoch; /* of the run, in which the canaries were put */
    int64_t next_us;
    int64_t heard_us;    /* when Redis answered last */
    uint64_t memory_max; /* bytes */
    uint64_t connections_max;
    uint64_t looks;
};

/* Puts the canaries; false if Redis does not take them. */
bool watch_start(struct watch *watch, struct run *run, const struct servers *servers);

/* Looks, if it is due. What is wrong is a violation. */
void watch_step(struct watch *watch);
/* Looks at once: when a run ends, what was done since the last time is seen, too. */
void watch_look(struct watch *watch);

void watch_print(const struct watch *watch);

#endif
