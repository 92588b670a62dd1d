/*
 * The replicas of all masters of a cluster, as far as they are read from: each master is asked by ROLE who follows it
 * and where it is in the stream of replication, and a replica_watch does the rest. Without reads nobody is asked.
 *
 * On the main thread.
 */
#ifndef HEADGATE_CLUSTER_REPLICAS_H
#define HEADGATE_CLUSTER_REPLICAS_H

#include "topology/cluster_map.h"
#include "topology/replica_watch.h"

struct cluster_replicas;

/* The master at that place has other replicas, or others are fit. The list may be kept by a reference. */
typedef void cluster_replicas_changed(void *context, const char *host, uint16_t port, struct replica_list *list);

struct cluster_replicas_settings {
    const struct conf *conf; /* in force until cluster_replicas_reconfigure() */
    cluster_replicas_changed *changed;
    lookup_refusal *refuses; /* which addresses a node cannot have */
    void *context;
};

/* NULL when memory is short. */
struct cluster_replicas *cluster_replicas_new(struct reactor *reactor,
                                              const struct cluster_replicas_settings *settings);
/* NULL is harmless. */
void cluster_replicas_free(struct cluster_replicas *replicas);
void cluster_replicas_reconfigure(struct cluster_replicas *replicas, const struct conf *conf);
/* The cluster is like that now; needed within the call only. */
void cluster_replicas_follow(struct cluster_replicas *replicas, const struct cluster_map *map);
/* Those that are known, for the admin port. */
void cluster_replicas_visit(const struct cluster_replicas *replicas, node_visit *visit, void *context);

#endif
