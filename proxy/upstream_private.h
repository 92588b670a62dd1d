/*
 * What the files of the upstream share:
 *
 *   upstream.c            the lanes of a worker: which there are, what they tell, when they go
 *   upstream_profile.c    profiles, and what a connection is told to stand in for their clients
 *   upstream_exclusive.c  exclusive lanes, the pool of clean ones, and commands of Headgate's own
 */
#ifndef HEADGATE_UPSTREAM_PRIVATE_H
#define HEADGATE_UPSTREAM_PRIVATE_H

#include "upstream.h"

struct upstream {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream_settings settings;
    upstream_ready_callback *ready;
    void *context;
    upstream_lost_callback *lost; /* NULL: nobody is told */
    void *lost_context;
    struct profile *profiles;
    struct profile *base; /* the default profile */
    struct lane *lanes;   /* all of them */
    struct lane *closed;  /* to be freed at the end of the turn, linked by pool_next */
    struct reactor_task free_closed;
    uint64_t last_lane_id;
    uint32_t generation; /* of the default profile */
    bool reachable;      /* what was logged last */
    bool told;           /* whether anything was logged yet */
};

/* How many places for shared lanes a profile has: one is for scripts. */
static inline size_t upstream_shared_places(const struct upstream *upstream)
{
    return upstream->settings.shared_lanes + 1;
}

/* ---- upstream.c ---- */

/* A new lane for the profile, on the worker's list; it is not started yet. NULL when memory is short. */
struct lane *upstream_open_lane(struct profile *profile, enum lane_use use);
/* Has the lane connect, and say what its profile and its use need. */
void upstream_start_lane(struct lane *lane);
/* A shared lane is none any more: its place is free for another. */
void upstream_forget_place(struct lane *lane);

/* ---- upstream_profile.c ---- */

/* The profile that says what wanted does (whose texts are copied), made if there is none; referenced for the caller.
 * NULL when memory is short. */
struct profile *profile_get(struct upstream *upstream, const struct profile *wanted);
bool profile_same_credentials(const struct profile *a, const struct profile *b);
/* What a new lane says first, in the profile's memory. An exclusive lane shows its client whatever Redis says, so it
 * needs no PING to find out. */
struct lane_greeting profile_greeting(const struct profile *profile, bool shared);

/* ---- upstream_exclusive.c ---- */

/* Takes a pooled lane out of its profile's pool. */
void upstream_forget_pooled(struct lane *lane);

#endif
