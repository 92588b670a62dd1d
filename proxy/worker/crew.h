/*
 * The crew: all workers of the process, and how accepted clients are spread over them. Main thread only.
 */
#ifndef HEADGATE_CREW_H
#define HEADGATE_CREW_H

#include "net/lookup.h"
#include "worker/worker.h"

struct crew {
    struct worker **workers;
    size_t count;
    struct workgroup group;       /* the workers, as they reach each other */
    struct chain_roster policies; /* those that each worker has an instance of */
    struct lookup *lookup;        /* where Redis is, for all workers */
    struct mailbox mailbox;       /* what workers want of it */
    const struct conf *conf;      /* that is in force */
    const struct stats *stats;    /* where lookups are counted */
    uint64_t clients_given;       /* sockets handed over since the start */
    uint64_t clients_refused;
};

/* Starts conf->threads workers; false, with errno set and none left running, if one cannot be started. reactor: of the
 * main thread. */
bool crew_start(struct crew *crew, struct reactor *reactor, const struct conf *conf,
                const struct policy *const *policies);
void crew_stop(struct crew *crew);
/* Has Redis' name looked up anew, at the intervals of conf from now on, which stays as long as it is in force. Workers
 * are told of conf by worker_reconfigure(). */
void crew_reconfigure(struct crew *crew, const struct conf *conf);
void crew_drain(struct crew *crew);
/* Whether all workers have been drained: no clients, and the policies have done what they had to do first. */
bool crew_is_settled(const struct crew *crew);
/* Whether all workers that are not wait for a policy whose server was never reached. */
bool crew_waits_in_vain(const struct crew *crew);
/* Closes the clients that a drain has left. */
void crew_close_clients(struct crew *crew);

/* Clients that are open, those on their way to a worker included. */
size_t crew_clients(const struct crew *crew);
/* Hands the socket to the worker with the fewest clients. */
void crew_give_client(struct crew *crew, int fd, const struct sockaddr_storage *address);
/* The sum over all workers. */
uint64_t crew_stat(const struct crew *crew, enum stats_id id);
/* The same for a counter of the policy at this place of the list. */
uint64_t crew_policy_counter(const struct crew *crew, size_t policy, size_t counter);

#endif
