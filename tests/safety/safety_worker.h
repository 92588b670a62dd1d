/* A process that drives its share of the clients with epoll, and can be stopped or killed at any moment. */
#ifndef SAFETY_WORKER_H
#define SAFETY_WORKER_H

#include "safety_client.h"
#include "safety_section.h"

#define WORKER_CLIENTS_MAX 48u

struct worker {
    struct shared *shared;
    unsigned number;
    unsigned generation;
    int epoll;
    uint64_t random;
    unsigned slots_used;
    struct client clients[WORKER_CLIENTS_MAX];
    struct slot slots[SLOTS_PER_WORKER];
};

/* Starts the process; it ends by itself once its sections are over after PHASE_DRAIN. Returns its id, or -1. */
pid_t worker_start(struct shared *shared, unsigned number, unsigned generation);

uint64_t worker_random(struct worker *worker);
static inline bool worker_one_in(struct worker *worker, unsigned chances)
{
    return worker_random(worker) % chances == 0;
}

#endif
