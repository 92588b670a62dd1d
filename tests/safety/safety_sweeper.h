/*
 * Locks that are left behind. A token whose owner has died must be gone from its lock within a lease, the grace and
 * SLACK_US, reckoned from the death or from the end of what then kept its Headgate or Redis from working; a SETNX gets
 * its time to live within another second. The slack is for Headgate to see that a connection was closed.
 *
 * Excused, counted and removed by the sweeper: a lock without any time to live whose SETNX was not answered to the
 * client, or whose Headgate was killed or had lost Redis: nobody is left who knows of it.
 */
#ifndef SAFETY_SWEEPER_H
#define SAFETY_SWEEPER_H

#include "safety_shared.h"

struct redisContext;

struct sweeper {
    struct shared *shared;
    struct redisContext *redis; /* NULL: not connected */
    unsigned first;             /* of what is not done */
    int64_t *checked_us;        /* for each leftover: not to be looked at again before */
};

/* Ends the program when there is no memory. */
void sweeper_init(struct sweeper *sweeper, struct shared *shared);
void sweeper_free(struct sweeper *sweeper);
/* Looks at what is due. */
void sweeper_step(struct sweeper *sweeper);
/* When all clients are gone: looks at all until it is done, and then that there are no locks at all. */
void sweeper_finish(struct sweeper *sweeper);
/* Waits until the observer has read all that Redis has executed; false if that takes too long. */
bool sweeper_sync_observer(struct sweeper *sweeper);
/* Sends the scripts of clients to Redis. */
bool sweeper_load_scripts(struct sweeper *sweeper);

#endif
