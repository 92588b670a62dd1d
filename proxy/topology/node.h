/* What is known of one server of a topology, for the admin port. */
#ifndef HEADGATE_NODE_H
#define HEADGATE_NODE_H

#include <stdint.h>

/* Texts are valid within the call; "" for what is not known. */
struct node {
    const char *role;    /* "master", "replica" or "sentinel"; "server" where there is no topology */
    const char *address; /* as who knows it says it */
    const char *state;   /* "up", "down", "listed" (by a cluster), or what else is the matter, in one word */
    const char
        *says;     /* of a sentinel: the address of the master by its word; of a replica in a cluster: its master's */
    int64_t lanes; /* ready ones; -1: none go there */
    int64_t since_us; /* how long it has been the master; -1: not known, or it is none */
    int64_t offset;   /* of replication; -1: not known */
    int64_t lag_us;   /* so far a replica is behind at most; -1: not known, or it is none */
    int64_t reads;    /* requests that were read from a replica; -1: none are */
    int64_t slots;    /* that a master of a cluster has; -1: it has none by its nature */
};

/* One of which nothing else is known. */
static inline struct node node_of(const char *role, const char *address, const char *state)
{
    return (struct node){.role = role,
                         .address = address,
                         .state = state,
                         .says = "",
                         .lanes = -1,
                         .since_us = -1,
                         .offset = -1,
                         .lag_us = -1,
                         .reads = -1,
                         .slots = -1};
}

typedef void node_visit(void *context, const struct node *node);

#endif
