/*
 * Which server is the master, by the word of sentinels: all of them are asked, and listened to. An address that more
 * than half of those that answer name is believed once that server says itself that it is a master (ROLE). What is
 * known stays until another master is found; only a server that says that it is no master any more is left at once.
 *
 *   sentinel_source.c  one sentinel: what it says
 *   sentinel_check.c   the server that they name: what it says of itself
 *   sentinel.c         what is made of both
 *
 * On the main thread, as lookup.h is for names.
 */
#ifndef HEADGATE_SENTINEL_H
#define HEADGATE_SENTINEL_H

#include "net/lookup.h"
#include "topology/replica_watch.h"

/* The sentinels of one master. */
struct sentinel_watch;

/* Where the master is. */
struct sentinel_master {
    struct connection_targets targets; /* one, or none and why */
    const char *host;                  /* as the sentinels name it, for its certificate; "": there is none */
};

/* The master is another one, or was lost; or there is none yet, and the reason has changed. */
typedef void sentinel_moved(void *context, const struct sentinel_master *master);

struct sentinel_settings {
    const struct conf *conf; /* in force until sentinel_reconfigure(); its upstream names sentinels */
    sentinel_moved *moved;
    replica_changed *replicas; /* its replicas, and which of them are fit to be read from */
    lookup_refusal *refuses;   /* which addresses the master cannot have */
    void *context;
    struct stats *stats;
};

/* Begins at once. NULL when memory is short. */
struct sentinel_watch *sentinel_new(struct reactor *reactor, const struct sentinel_settings *settings);
void sentinel_free(struct sentinel_watch *watch);
void sentinel_reconfigure(struct sentinel_watch *watch, const struct conf *conf);

/* What is known now. Valid as long as nothing else is found. */
const struct sentinel_master *sentinel_master(const struct sentinel_watch *watch);
/* Somebody has reason to think that something has changed: all are asked now. */
void sentinel_suspect(struct sentinel_watch *watch);

/* What is known of the master, its replicas and the sentinels, for the admin port. lanes: to the master. */
void sentinel_visit_nodes(const struct sentinel_watch *watch, int64_t lanes, node_visit *visit, void *context);

#endif
