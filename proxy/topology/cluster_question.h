/*
 * Asks one node of a Redis Cluster what it knows of it, on a connection of its own: CLUSTER SLOTS, INFO and
 * NODES. Not by a lane: those belong to nodes that are known, this one may be a seed, and is asked when others do not
 * answer.
 */
#ifndef HEADGATE_CLUSTER_QUESTION_H
#define HEADGATE_CLUSTER_QUESTION_H

#include "topology/cluster_map.h"

struct cluster_question;

/* How nodes are spoken to. What it points to must outlive the question. */
struct cluster_access {
    struct tls_context *tls; /* NULL: plain */
    const char *user;        /* "": the default one */
    const char *password;    /* "": none */
    int64_t timeout_ms;      /* for all of it, from the host's name to the answer */
    const char *(*refuses)(void *context, const struct sockaddr *address); /* see lookup.h; NULL: all will do */
    void *context;
};

struct cluster_answer {
    const char *host; /* who was asked */
    uint16_t port;
    struct cluster_map *map; /* what it says; the receiver may take a reference. NULL: nothing of use … */
    const char *why;         /* … and why not, in one line */
};

typedef void cluster_question_callback(void *context, const struct cluster_answer *answer);

/* done is called once, from within the event loop, unless cluster_question_cancel() comes first; the question is gone
 * then. NULL when memory is short. */
struct cluster_question *cluster_question_ask(struct reactor *reactor, const struct cluster_access *access,
                                              const char *host, uint16_t port, cluster_question_callback *done,
                                              void *context);
void cluster_question_cancel(struct cluster_question *question);

#endif
