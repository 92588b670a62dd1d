/*
 * A worker's ways to the nodes of a Redis Cluster: one upstream for each, and which of them a slot is at.
 *
 * What is known comes from maps (cluster_map.h), and between two of them from what nodes answer (MOVED). A way is made
 * when a map names a master, or a node one of the map's, and goes when it is no master any more and nothing is under
 * way. Credentials and what clients have said of themselves are those of the home upstream's profiles, which have a
 * counterpart at each way (profile_at()).
 */
#ifndef HEADGATE_CLUSTER_WAY_H
#define HEADGATE_CLUSTER_WAY_H

#include "topology/cluster_map.h"
#include "topology/replica_ways.h"
#include "upstream/upstream.h"

/* A node, as one worker knows it. */
struct cluster_way {
    size_t number; /* among the ways; low, and another's after this one has gone */
    char host[CLUSTER_HOST_MAX];
    uint16_t port;
    char text[CLUSTER_HOST_MAX + 8]; /* "host:port", for logs and errors */
    struct upstream *upstream;
    struct connection_targets targets; /* where it is, or was */
    struct replica_ways *replicas;     /* of the master there; NULL: none were told of */
    bool is_known;                     /* the map has it as a master */
    bool is_left;                      /* its lanes are being closed */
    bool has_lost;                     /* a slot, to another: what waits for it may have to go elsewhere */
    int64_t used_us;                   /* when it was known last, or a node has told of it */
};

struct cluster_ways {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *home;             /* whose profiles have counterparts at the ways */
    struct upstream_settings settings; /* but for where a node is, and its text */
    struct cluster_map *map;           /* the newest; NULL: there was none yet */
    struct cluster_way **ways;         /* by number; NULL: a free one */
    size_t count;
    uint32_t made;                /* in all */
    uint64_t freed;               /* the same: those that have gone */
    int16_t owner[CLUSTER_SLOTS]; /* the number of the slot's way, or CLUSTER_NOBODY */
    /* Counts up whenever requests to come may go elsewhere than those under way of the same slot; the worker's. */
    uint64_t *changes;
    int64_t made_us;     /* when the first map began to be waited for */
    bool gave_up;        /* that was for too long: the home upstream's node is asked where things are */
    int64_t wanted_us;   /* when a newer map was asked for last */
    int64_t stranger_us; /* when it was said last that another node answers than should; 0: never */
    void (*want_map)(void *context);
    void (*map_came)(void *context);
    void (*lost)(void *context, const char *why, uint64_t requests);
    bool (*is_own)(void *context, const struct sockaddr *address);
    bool (*find_seed)(void *context, const char *host, uint16_t port, struct connection_targets *targets);
    void *context;
};

/* What its worker lends to the ways. */
struct cluster_ways_parts {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *home;
    uint64_t *changes; /* the same as in the settings of the home upstream */
    /* Somebody has reason to think that the map is old. */
    void (*want_map)(void *context);
    /* Who waits because cluster_ways_wait() may go on. */
    void (*map_came)(void *context);
    upstream_lost_callback *lost; /* as upstream_tell_losses() */
    /* Whether that is Headgate's own address. */
    bool (*is_own)(void *context, const struct sockaddr *address);
    /* Whether that is a seed, which is no name; where it is. */
    bool (*find_seed)(void *context, const char *host, uint16_t port, struct connection_targets *targets);
    void *context;
};

/* settings is copied, its texts are not. NULL when memory is short. */
struct cluster_ways *cluster_ways_new(const struct cluster_ways_parts *parts, const struct upstream_settings *settings);
/* Closes all lanes; before the home upstream. */
void cluster_ways_free(struct cluster_ways *ways);
void cluster_ways_reconfigure(struct cluster_ways *ways, const struct upstream_settings *settings);
/* Goes by that map, of which it takes a reference. What waits for a node that has lost slots is given back. */
void cluster_ways_follow(struct cluster_ways *ways, struct cluster_map *map);
/* The master at that place has those replicas. */
void cluster_ways_follow_replicas(struct cluster_ways *ways, const char *host, uint16_t port,
                                  const struct replica_list *list);
/* Several times a second. */
void cluster_ways_tick(struct cluster_ways *ways);
/* A newer map is asked for, but not again and again. */
void cluster_ways_want_map(struct cluster_ways *ways);

/* Whether requests have to wait, as nothing is known yet. */
static inline bool cluster_ways_wait(const struct cluster_ways *ways)
{
    return ways->map == NULL && !ways->gave_up;
}

/* The way to the slot's owner; NULL: nobody has it, as far as is known. */
static inline struct cluster_way *cluster_way_of(const struct cluster_ways *ways, uint16_t slot)
{
    int16_t number = ways->owner[slot];

    return number != CLUSTER_NOBODY ? ways->ways[number] : NULL;
}

/* The lowest slot that is there, or CLUSTER_NOBODY. */
int32_t cluster_way_slot(const struct cluster_ways *ways, const struct cluster_way *way);

/* Whether a node is a master, as far as is known: the map says so, or it has a slot. */
bool cluster_way_is_master(const struct cluster_ways *ways, const struct cluster_way *way);

/* Where the node at the end of `from` sends a request; made if need be. With MOVED the slot is there from now on. What
 * says no host gets that of `from`. NULL: it does not say where, or the map does not have that: a newer one is asked
 * for. */
struct cluster_way *cluster_way_redirect(struct cluster_ways *ways, const struct cluster_way *from,
                                         struct cluster_redirect *redirect);

/* The counterpart of a profile of the home upstream; NULL when memory is short. */
static inline struct profile *cluster_way_profile(const struct cluster_way *way, struct profile *profile)
{
    return profile_at(profile, way->upstream, way->number);
}

/* Whether a node of that id is in the cluster, as far as is known. If not, a newer map is asked for, and the log says
 * it of what answers at text. */
bool cluster_ways_have_id(struct cluster_ways *ways, const char *text, struct slice id);

/* The way to the node with that address; NULL: there is none. */
struct cluster_way *cluster_way_at(const struct cluster_ways *ways, const char *host, uint16_t port);

/* The way of that upstream; NULL: it is none's. */
struct cluster_way *cluster_way_by_upstream(const struct cluster_ways *ways, const struct upstream *upstream);

#endif
