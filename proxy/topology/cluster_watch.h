/*
 * Keeps up to date which node of a Redis Cluster has which slots: asks nodes, at intervals and when somebody has reason
 * to, and hands out a map whenever it is another one. On one thread; maps may go to others.
 *
 * Whom it asks: some of the nodes that are known, further ones if these do not answer or do not agree, and in the end
 * the seeds. What it believes: of what nodes say, that of the highest epoch, then what most of them say. Nodes that
 * speak of another cluster (none of whose nodes is known) are not believed, unless for ten seconds nobody speaks of
 * this one any more, and a seed is among them: then the cluster was replaced. What was found stays until something else
 * is found.
 */
#ifndef HEADGATE_CLUSTER_WATCH_H
#define HEADGATE_CLUSTER_WATCH_H

#include "topology/cluster_map.h"
#include "topology/node.h"

struct cluster_watch;

/* The map is another one than before. The receiver may take references. */
typedef void cluster_watch_callback(void *context, struct cluster_map *map);

/* What it points to must outlive the watch, or the next cluster_watch_reconfigure(). */
struct cluster_watch_settings {
    const struct conf *conf; /* upstream with its seeds, credentials, TLS, times */
    cluster_watch_callback *changed;
    const char *(*refuses)(void *context, const struct sockaddr *address); /* see lookup.h; NULL: all will do */
    void *context;
};

/* What it has seen. The log tells operators; this is for who waits for it, as tests do. */
struct cluster_watch_facts {
    uint64_t rounds;
    uint64_t failed;           /* of them: nobody had anything of use to say */
    uint64_t changes;          /* maps handed out */
    uint64_t strangers;        /* answers of another cluster */
    char why[CLUSTER_WHY_MAX]; /* the last round has failed; "": it has not */
};

/* Asks at once, and on. NULL when memory is short. */
struct cluster_watch *cluster_watch_new(struct reactor *reactor, const struct cluster_watch_settings *settings);
void cluster_watch_free(struct cluster_watch *watch);

/* Another configuration of the same seeds is in force. */
void cluster_watch_reconfigure(struct cluster_watch *watch, const struct conf *conf);
/* Somebody has reason to think that something has changed: asked now, or a moment later if that was done just now. */
void cluster_watch_soon(struct cluster_watch *watch);

const struct cluster_watch_facts *cluster_watch_tell(const struct cluster_watch *watch);
/* Each node that is known, for the admin port: "listed" is what the cluster says of it; who reaches it the workers
 * know. A replica says who its master is. */
void cluster_watch_visit_nodes(const struct cluster_watch *watch, node_visit *visit, void *context);

#endif
