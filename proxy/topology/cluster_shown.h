/*
 * What a client is shown of a Redis Cluster: Headgate as the one node, which has all slots, at the address by which the
 * client came. Clients that know of Cluster then send everything here, and are never told to go elsewhere.
 */
#ifndef HEADGATE_CLUSTER_SHOWN_H
#define HEADGATE_CLUSTER_SHOWN_H

#include "command/command.h"
#include "topology/cluster_map.h"

/* Of Headgate as a node: forty hexadecimal digits, as those of Redis. */
struct cluster_identity {
    char id[CLUSTER_ID_MAX];
    char shard[CLUSTER_ID_MAX];
};

/* The same for the same text, in every process: whoever asks twice, or asks another worker, sees one node. */
struct cluster_identity cluster_shown_identity(const char *text);

struct cluster_shown {
    const struct cluster_identity *identity;
    const char *host; /* where the client has come to; "": it knows best (Unix sockets) */
    uint16_t port;
    bool tls;
    int resp;                      /* 2 or 3 */
    const struct cluster_map *map; /* NULL: nothing is known yet; then the cluster is shown as one that is down */
};

/* Writes the reply to a whole multibulk command whose plan is CLUSTER_HERE: CLUSTER …, ASKING, READONLY, READWRITE.
 * Wrong numbers of arguments are answered as Redis does. */
void cluster_shown_write(const struct cluster_shown *shown, const struct command *command, struct slice frame,
                         FILE *out);

#endif
