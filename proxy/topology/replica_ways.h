/*
 * A worker's ways to the replicas of its master: one upstream for each that is known, and one to nowhere, where
 * requests wait that only a replica may answer while none is fit.
 *
 * What is known comes in lists (replica_list.h). A way is left when the replica is on none any more, or does not
 * answer: what was sent there is given back to the clients, who send it elsewhere, as it only reads.
 */
#ifndef HEADGATE_REPLICA_WAYS_H
#define HEADGATE_REPLICA_WAYS_H

#include "topology/replica_list.h"
#include "upstream/upstream.h"

/* A replica, as one worker knows it. */
struct replica_way {
    size_t number; /* among the ways: 1 and above; 0 is nowhere */
    char host[REPLICA_HOST_MAX];
    uint16_t port;
    char text[REPLICA_HOST_MAX + 8]; /* "host:port", for logs and errors */
    struct upstream *upstream;
    struct replica_tally *tally; /* NULL: nowhere */
    uint64_t reads;              /* that were not told to the tally yet */
    bool is_listed;
    bool is_fit;
    int64_t failed_us; /* when it was lost, or could not serve, last; 0: never */
};

struct replica_ways {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *home; /* of the master: its profiles have counterparts at the ways */
    struct upstream_settings settings;
    struct replica_way *ways[REPLICAS_MAX + 1]; /* by number; NULL: a free one */
    uint32_t made;                              /* in all */
};

/* settings: of the home upstream; copied, its texts are not. NULL when memory is short. */
struct replica_ways *replica_ways_new(struct reactor *reactor, struct run_pool *runs, struct upstream *home,
                                      const struct upstream_settings *settings);
/* Closes all lanes; before the home upstream. */
void replica_ways_free(struct replica_ways *ways);
void replica_ways_reconfigure(struct replica_ways *ways, const struct upstream_settings *settings);
/* Goes by that list, which is needed within the call only. */
void replica_ways_follow(struct replica_ways *ways, const struct replica_list *list);
/* Several times a second. */
void replica_ways_tick(struct replica_ways *ways);
/* The way of that upstream; NULL: it is none's. */
struct replica_way *replica_way_by_upstream(const struct replica_ways *ways, const struct upstream *upstream);
/* The counterpart of a profile of the home upstream; NULL when memory is short. */
static inline struct profile *replica_way_profile(const struct replica_way *way, struct profile *profile)
{
    return profile_at(profile, way->upstream, way->number);
}

/* Where such a client reads: at that way, by its number, as long as it can; else at another, which its id chooses.
 * NULL: nobody serves it. */
struct replica_way *replica_way_choose(const struct replica_ways *ways, size_t number, struct profile *profile,
                                       uint64_t id);

#endif
