/* What a worker does where there are several servers: its ways to the nodes of a Redis Cluster, or to the replicas of a
 * master that sentinels know, and who hears of what. */
#ifndef HEADGATE_WORKER_CLUSTER_H
#define HEADGATE_WORKER_CLUSTER_H

#include "client/client.h"
#include "event/mailbox.h"
#include "upstream/control.h"

struct worker_cluster {
    struct cluster_ways *ways;      /* NULL: there is no cluster */
    struct replica_ways *replicas;  /* behind sentinels; NULL: there are none */
    uint64_t changes;               /* counted by the ways and by the home upstream */
    const struct conf *conf;        /* in force */
    struct client_service *clients; /* NULL: not made yet */
    struct control *control;
    /* From the worker's thread: the map may be old. */
    void (*want_map)(void *pool);
    void *pool;
};

/* What its worker lends to it. */
struct worker_cluster_parts {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *home;
    struct control *control;
    void (*want_map)(void *pool);
    void *pool;
};

bool worker_cluster_is_wanted(const struct conf *conf);
/* The lanes of the home upstream, whose settings these are, ask nodes who they are, if there is a cluster. */
void worker_cluster_ask_ids(struct worker_cluster *cluster, const struct conf *conf, struct lane_settings *settings);
/* Several times a second. */
void worker_cluster_tick(struct worker_cluster *cluster);
/* settings: of the home upstream. Where there is one server it is nothing. clients are set by the caller, before the
 * loop runs. False when memory is short. */
bool worker_cluster_open(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                         const struct conf *conf, const struct upstream_settings *settings);
/* Another configuration is in force; before the clients go by it. */
void worker_cluster_reconfigure(struct worker_cluster *cluster, const struct conf *conf,
                                const struct upstream_settings *settings);
/* Calls visit for each lane to a node. */
void worker_cluster_visit_lanes(struct worker_cluster *cluster, void (*visit)(void *context, struct lane *lane),
                                void *context);
/* Before the home upstream is freed. */
void worker_cluster_close(struct worker_cluster *cluster);

/* For its worker: the cluster is like that now. A reference is taken; the message frees itself. */
struct message *worker_cluster_message(struct worker_cluster *cluster, struct cluster_map *map);
/* The same of the replicas; host and port: of their master in a cluster, else "" and 0. */
struct message *worker_replicas_message(struct worker_cluster *cluster, const char *host, uint16_t port,
                                        struct replica_list *list);

#endif
