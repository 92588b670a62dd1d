/*
 * The replicas of a master, as the main thread knows them, for its workers: which there are, and which of them are fit
 * to be read from. A list is built whole and never changed afterwards; whoever uses it holds a reference, on whatever
 * thread.
 */
#ifndef HEADGATE_REPLICA_LIST_H
#define HEADGATE_REPLICA_LIST_H

#include "net/connection.h"

#include <stdatomic.h>

/* Of one master: more are not read from. */
#define REPLICAS_MAX 16
/* Of a host with its NUL, in bytes. */
#define REPLICA_HOST_MAX 254

/* How often a replica was read from, by all workers. */
struct replica_tally {
    atomic_uint references;
    _Atomic uint64_t reads;
};

struct replica_entry {
    char host[REPLICA_HOST_MAX]; /* as its master names it, for its certificate */
    uint16_t port;
    struct connection_target target;
    bool is_fit; /* else it is in vain, or behind: nothing new is read from it … */
    bool is_up;  /* … and if it does not answer, nothing is waited for either */
    struct replica_tally *tally;
};

struct replica_list {
    atomic_uint references;
    size_t count;
    struct replica_entry entries[REPLICAS_MAX];
};

/* An empty one, with one reference. NULL when memory is short. */
struct replica_list *replica_list_new(void);
/* One reference more; returns list. */
struct replica_list *replica_list_reference(struct replica_list *list);
/* One less: the last one takes the list along. NULL is harmless. */
void replica_list_release(struct replica_list *list);

/* With one reference. NULL when memory is short. */
struct replica_tally *replica_tally_new(void);
struct replica_tally *replica_tally_reference(struct replica_tally *tally);
/* NULL is harmless. */
void replica_tally_release(struct replica_tally *tally);

#endif
