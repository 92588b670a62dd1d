/*
 * The worker pool: all workers of a server, and how accepted clients are spread over them. Main thread only.
 */
#ifndef HEADGATE_WORKER_POOL_H
#define HEADGATE_WORKER_POOL_H

#include "net/lookup.h"
#include "topology/cluster_replicas.h"
#include "topology/cluster_watch.h"
#include "topology/sentinel.h"
#include "worker/worker.h"

/* What a pool works with; it must outlive it. */
struct worker_pool_parts {
    struct reactor *reactor; /* of the main thread */
    const struct policy *const *policies;
    struct stats *stats;     /* where lookups are counted */
    uint64_t *clients_given; /* by all pools of the process: the number of the last client */
    struct memory *memory;   /* … and their account of it */
};

struct worker_pool {
    struct worker **workers;
    size_t count;
    struct workgroup group;            /* the workers, as they reach each other */
    struct chain_roster policies;      /* those that each worker has an instance of */
    struct lookup *lookup;             /* where Redis is, for all workers; NULL: … */
    struct sentinel_watch *sentinels;  /* … these know; NULL: there are none */
    struct cluster_watch *watch;       /* which node has which slots, for all workers; NULL: there is no cluster */
    struct cluster_replicas *replicas; /* of the masters of that; NULL with it */
    struct mailbox mailbox;            /* what workers want of it */
    const struct conf *conf;           /* that is in force */
    struct admission *admission;       /* … and whom it knows and lets in */
    const struct stats *stats;         /* where lookups are counted */
    uint64_t *last_client;             /* the number of the process's last one */
    uint64_t clients_given;            /* sockets handed over since the start */
    uint64_t clients_refused;
    uint64_t clients_proxied; /* of the sockets: passed on by a proxy that said by whom they were opened */
    uint64_t proxies_refused; /* connections that should have said so, and did not */
    uint64_t clients_denied;  /* by allow and refuse, before they were handed over */
};

/* Starts conf->threads workers; false, with errno set and none left running, if one cannot be started. */
bool worker_pool_start(struct worker_pool *worker_pool, const struct worker_pool_parts *parts, const struct conf *conf);
void worker_pool_stop(struct worker_pool *worker_pool);
/* Has Redis' name looked up anew, at the intervals of conf from now on, which stays as long as it is in force. Workers
 * are told of conf by worker_reconfigure(). */
void worker_pool_reconfigure(struct worker_pool *worker_pool, const struct conf *conf);
void worker_pool_drain(struct worker_pool *worker_pool, uint64_t move);
void worker_pool_offer_move(struct worker_pool *worker_pool, uint64_t move);
/* Whether all workers have been drained: no clients, and the policies have done what they had to do first. */
bool worker_pool_is_settled(const struct worker_pool *worker_pool);
/* Whether all workers that are not wait for a policy whose server was never reached. */
bool worker_pool_waits_in_vain(const struct worker_pool *worker_pool);
/* Closes the clients that a drain has left. */
void worker_pool_close_clients(struct worker_pool *worker_pool);

/* Clients that are open, those on their way to a worker included. */
size_t worker_pool_clients(const struct worker_pool *worker_pool);
/* Hands the socket to the worker with the fewest clients. */
void worker_pool_give_client(struct worker_pool *worker_pool, int fd, const struct client_origin *origin);
/* The sum over all workers. */
uint64_t worker_pool_stat(const struct worker_pool *worker_pool, enum stats_id id);
/* The same for a counter of the policy at this place of the list. */
uint64_t worker_pool_policy_counter(const struct worker_pool *worker_pool, size_t policy, size_t counter);

#endif
