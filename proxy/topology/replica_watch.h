/*
 * Whether the replicas of a master are fit to be read from: each is asked itself, by ROLE, as Headgate's own user.
 *
 * Fit is who has its master ("connected") and is not further behind than max_lag. How far it is behind is told in time:
 * the master's offset in the stream of replication is noted with the time of the question; a replica that has come to
 * an offset has all that the master had when it was asked about that. So what is said is a bound: a replica is never
 * further behind than that. A replica that does not answer, or may not be asked, is not fit.
 *
 * On the main thread.
 */
#ifndef HEADGATE_REPLICA_WATCH_H
#define HEADGATE_REPLICA_WATCH_H

#include "net/lookup.h"
#include "topology/node.h"
#include "topology/replica_list.h"

#include <hiredis/hiredis.h>

struct replica_watch;

/* There are others, or others are fit. The list is the watch's; it may be kept by a reference. */
typedef void replica_changed(void *context, struct replica_list *list);

struct replica_watch_settings {
    const struct conf *conf; /* in force until replica_watch_reconfigure() */
    replica_changed *changed;
    lookup_refusal *refuses; /* which addresses a replica cannot have */
    void *context;
};

/* NULL when memory is short. */
struct replica_watch *replica_watch_new(struct reactor *reactor, const struct replica_watch_settings *settings);
void replica_watch_free(struct replica_watch *watch);
void replica_watch_reconfigure(struct replica_watch *watch, const struct conf *conf);

/* The master was asked then, and has answered ROLE: [master, offset, [[address, port, offset], ...]]. */
void replica_watch_hear(struct replica_watch *watch, int64_t asked_us, const redisReply *role);
/* There is no master, or another one: what was said of offsets does not count, and there is no replica until that one
 * has named them. */
void replica_watch_forget(struct replica_watch *watch);
/* Several times a second. */
void replica_watch_tick(struct replica_watch *watch);

/* How often a master has to be asked, at least: milliseconds. */
int64_t replica_watch_interval(const struct conf *conf);
/* Those that are known, for the admin port. */
void replica_watch_visit(const struct replica_watch *watch, node_visit *visit, void *context);

#endif
