/*
 * What the service manager (systemd) hears of the process: that it serves, reads its configuration again, ends; how
 * many clients there are and whether Redis can be reached; and, as often as it wants to, that all threads are alive: a
 * worker that does not turn any more is told by silence, and the manager starts the process anew. On the main thread.
 * Does nothing where no manager listens.
 */
#ifndef HEADGATE_SUPERVISOR_H
#define HEADGATE_SUPERVISOR_H

#include "process/notify.h"
#include "worker/worker_pool.h"

#include <event2/event_struct.h>
#include <sys/types.h>

struct supervisor_group; /* the workers of one pool */

struct supervisor {
    struct notify notify;
    struct mailbox *mailbox; /* of the main thread */
    struct supervisor_group *groups;
    struct event timer;
    struct event retry; /* for what the manager does not take now */
    bool is_timed;
    void (*said)(void *context); /* … that another process is the service's; NULL: that was told, or is none */
    void *context;
    struct timeval interval;
    size_t awaited; /* workers that have not answered yet */
    char status[128];
};

/* Takes what the environment says of a manager. Before anything else of it. */
void supervisor_open(struct supervisor *supervisor);
/* Has these workers asked whether they are alive, too. reactor and mailbox: of the main thread. False when memory is
 * short. */
bool supervisor_watch(struct supervisor *supervisor, struct reactor *reactor, struct mailbox *mailbox,
                      const struct worker_pool *worker_pool);
/* All is in place, at first or again. */
void supervisor_ready(struct supervisor *supervisor);
/* The configuration is read again: supervisor_ready() follows in any case. */
void supervisor_reloading(struct supervisor *supervisor);
/* The end has begun, and may take that long, µs. */
void supervisor_stopping(struct supervisor *supervisor, int64_t patience_us);
/* Another process is the service's from now on; the manager is told nothing more of this one. said is called when it
 * has taken that: what the other one says before, it may not listen to. */
void supervisor_hand_over(struct supervisor *supervisor, pid_t process, void (*said)(void *context), void *context);
/* That one has gone: this one is the service's again. */
void supervisor_take_back(struct supervisor *supervisor);
/* The workers must have been stopped. */
void supervisor_close(struct supervisor *supervisor);

#endif
