/*
 * Which node of a Redis Cluster has which slots, and which masters have none: what one node has said of it, as CLUSTER
 * SLOTS and CLUSTER NODES.
 *
 * A map is built whole and never changed afterwards; whoever uses it holds a reference, on whatever thread. A node is
 * the same one in another map if its host and port are the same (cluster_map_find()); its place may be another one.
 */
#ifndef HEADGATE_CLUSTER_MAP_H
#define HEADGATE_CLUSTER_MAP_H

#include "net/connection.h"
#include "topology/cluster_redirect.h"

#include <stdatomic.h>

/* A cluster of more nodes is not believed: Redis' own advice is at most 1000. */
#define CLUSTER_NODES_MAX 1024
/* Of a node's id with its NUL, in bytes. */
#define CLUSTER_ID_MAX 41
/* Of a slot's owner: nobody. */
#define CLUSTER_NOBODY (-1)

struct cluster_node {
    char id[CLUSTER_ID_MAX];     /* as the cluster knows it; "" before Redis 4.0 */
    char host[CLUSTER_HOST_MAX]; /* where clients are to connect, as the cluster says: an address or a name */
    uint16_t port;
    bool is_master;
    int16_t master;      /* the place of its master in nodes; its own if it is one */
    uint16_t slot_count; /* that a master has; 0 for replicas */
    int64_t since_us;    /* when it was first heard to be what it is, of clock_now_us(); 0: that was not noted */
    struct connection_targets targets; /* of the host; none, and why, if it is a name that could not be looked up */
};

struct cluster_map {
    atomic_uint references;
    uint64_t version;    /* ascends with every map that is handed out; 0: it was not yet */
    uint64_t epoch;      /* cluster_current_epoch of the node that has told; 0: not known */
    size_t node_count;   /* at most CLUSTER_NODES_MAX */
    size_t master_count; /* of them, those that have slots */
    size_t uncovered;    /* slots that nobody has */
    struct cluster_node *nodes;
    int16_t owner[CLUSTER_SLOTS]; /* the place of the slot's master in nodes, or CLUSTER_NOBODY */
    /* When the slot was first heard to have that owner, of clock_now_us(); 0: it was the first that was heard of. */
    int64_t changed_us[CLUSTER_SLOTS];
};

/* Of a text that says why a map cannot be, with its NUL, in bytes. */
#define CLUSTER_WHY_MAX 160

/*
 * Builds the map of a whole reply to CLUSTER SLOTS. asked_host: of the node that has answered, which is meant where the
 * reply has no host. The map has one reference, the caller's; its targets are those of hosts that are addresses. NULL,
 * with one line in why: it is an error, no such reply, contradicts itself, or memory is short.
 */
struct cluster_map *cluster_map_parse(struct slice reply, const char *asked_host, char why[CLUSTER_WHY_MAX]);

/* Adds what a whole reply to CLUSTER NODES has beside them: masters without slots, which ASK may name. To a map that
 * nobody else has yet; what is no such reply, or contradicts the map, adds nothing. */
void cluster_map_add_masters(struct cluster_map *map, struct slice reply);

/* One reference more; returns map. */
struct cluster_map *cluster_map_reference(struct cluster_map *map);
/* One less: the last one takes the map along. NULL is harmless. */
void cluster_map_release(struct cluster_map *map);

/* The place of the node with that address (host in any case of letters); CLUSTER_NOBODY: there is none. */
int16_t cluster_map_find(const struct cluster_map *map, const char *host, uint16_t port);

/* Notes since when slots have their owners: as long as in the map before, or since now_us. NULL: there was none. */
void cluster_map_note_changes(struct cluster_map *map, const struct cluster_map *before, int64_t now_us);

/* Whether both say the same of nodes, roles and slots. Versions, epochs, times and targets do not count. */
bool cluster_map_equal(const struct cluster_map *a, const struct cluster_map *b);
/* Whether any node is in both, by its id, or by its address where one has none: else they are different clusters. */
bool cluster_map_related(const struct cluster_map *a, const struct cluster_map *b);

/* Of an address as text with its NUL, in bytes. */
#define CLUSTER_TEXT_MAX (CLUSTER_HOST_MAX + 8)

/* Writes "host:port", or "[host]:port" if the host is an IPv6 address. */
void cluster_map_address_text(const char *host, uint16_t port, char text[CLUSTER_TEXT_MAX]);

#endif
