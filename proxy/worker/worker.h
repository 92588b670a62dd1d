/*
 * A worker: one thread with one event loop that owns its clients, its lanes and its policies' state. Workers share
 * nothing; the main thread reaches them by messages, and so do they each other.
 */
#ifndef HEADGATE_WORKER_H
#define HEADGATE_WORKER_H

#include "client/client.h"
#include "conf/conf.h"
#include "event/mailbox.h"
#include "net/lookup.h"
#include "topology/sentinel.h"
#include "worker/workgroup.h"

struct worker;
struct worker_cluster;

/* What a worker tells about itself to the admin port. */
struct worker_facts {
    uint32_t redis_version;
    int64_t clock_offset_us;
};

/* What all workers have in common; must outlive them. */
struct worker_parts {
    struct lookup *lookup;            /* where Redis is; the main thread's …; NULL: … */
    struct sentinel_watch *sentinels; /* … these know */
    struct mailbox *mailbox;          /* … and where to ask for it to be looked up anew */
    const struct chain_roster *policies;
    struct workgroup *group;     /* the other workers; each is one of them until it stops */
    struct admission *admission; /* whom the configuration knows, until worker_reconfigure(); needed at start only */
    struct memory *memory;       /* the account of all workers of the process */
    /* From a worker's thread: the map of the cluster may be old. NULL: there is no cluster. */
    void (*want_map)(void *pool);
    void *pool;
};

/* Builds a worker and starts its thread. conf must outlive it (but see worker_reconfigure). NULL with errno set when
 * the system refuses. */
struct worker *worker_start(size_t index, const struct conf *conf, const struct worker_parts *parts);

/* Hands over an accepted socket. False when memory is short: it is closed. */
bool worker_give_client(struct worker *worker, int fd, const struct client_origin *origin, uint64_t id);

/* Takes over the options that can be reloaded, and whom they know (needed within the call only); calls done on the
 * worker's thread when the old ones are no longer used.
 */
void worker_reconfigure(struct worker *worker, const struct conf *conf, struct admission *admission,
                        void (*done)(void *context), void *context);

/* Redis is somewhere else. */
void worker_set_targets(struct worker *worker, const struct connection_targets *targets);

/* The master is somewhere else, by that name, or nowhere: upstream_move(). */
void worker_move(struct worker *worker, const struct connection_targets *targets, const char *host);

/* Its ways to nodes and replicas, for the messages that are for these (worker_cluster.h). */
struct worker_cluster *worker_nodes(struct worker *worker);

/* Closes each client as soon as nothing of it is under way. */
void worker_drain(struct worker *worker, uint64_t move);
/* client_service_offer_move() */
void worker_offer_move(struct worker *worker, uint64_t move);
/* Whether the drain is done, and the policies have done what they had to do first. */
bool worker_is_settled(const struct worker *worker);
/* Whether it is not, for a policy whose server was never reached. */
bool worker_waits_in_vain(const struct worker *worker);
/* Closes the clients that are left. */
void worker_close_clients(struct worker *worker);

/* Ends the thread, closing what is still open, and frees the worker. Waits for it. */
void worker_stop(struct worker *worker);

/* From any thread. */
const struct stats *worker_stats(const struct worker *worker);
uint64_t worker_policy_counter(const struct worker *worker, size_t policy, size_t counter);
size_t worker_index(const struct worker *worker);

/* Runs a message on the worker's thread. */
void worker_post(struct worker *worker, struct message *message);

/* On the worker's thread only. */
struct client_service *worker_clients(struct worker *worker);
/* Those to all nodes. */
void worker_visit_lanes(struct worker *worker, void (*visit)(void *context, struct lane *lane), void *context);
struct worker_facts worker_tell(const struct worker *worker);

#endif
