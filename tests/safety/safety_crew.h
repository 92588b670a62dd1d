/* The worker processes: started, paused, killed and replaced. Run by the main process. */
#ifndef SAFETY_CREW_H
#define SAFETY_CREW_H

#include "safety_shared.h"

struct crew {
    struct shared *shared;
    pid_t workers[WORKERS_MAX]; /* 0: ended */
    unsigned generations[WORKERS_MAX];
    int64_t paused_since_us[WORKERS_MAX];
    int64_t paused_until_us[WORKERS_MAX]; /* 0: it runs */
};

bool crew_start(struct crew *crew, struct shared *shared);
/* Stops a worker until that time. */
void crew_pause(struct crew *crew, unsigned number, int64_t until_us);
/* Lets those go on whose time has come, or all. */
void crew_resume(struct crew *crew, bool all);
/* Kills a worker, puts on record what it held, and starts another in its place; false if that fails. */
bool crew_replace(struct crew *crew, unsigned number);
/* True as long as none has ended by itself, unless in PHASE_DRAIN and well. */
bool crew_is_well(struct crew *crew);
bool crew_has_ended(const struct crew *crew);
void crew_free(struct crew *crew);

#endif
