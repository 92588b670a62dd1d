/*
 * Handshakes with TLS on a thread of their own, one for each thread that has connections with TLS: they take some
 * hundred µs each, and connections that are there already are not to wait for them. The thread has a lower priority
 * than its owner if it gives way, for machines with few cores.
 *
 * While a handshake is under way, its connection and socket are the thread's alone. Then they are the owner's again:
 *
 *   handshaker_begin() ─► the thread ─► ended()
 *                      └► handshaker_drop(): both are closed
 *
 * All functions are the owner's to call.
 */
#ifndef HEADGATE_HANDSHAKER_H
#define HEADGATE_HANDSHAKER_H

#include "event/reactor.h"
#include "tls/tls.h"

struct handshaker;
/* One that is under way. */
struct handshake;

struct handshake_order {
    struct tls *tls;    /* not begun yet */
    int fd;             /* its socket */
    bool begins;        /* we speak first */
    int64_t timeout_ms; /* 0: none */
    uint32_t most;      /* steps of those with such a limit in one loop iteration of the thread; 0: no limit */
    void (*ended)(void *context);
    void *context;
};

/* Starts the thread; gives_way: others are served first. The owner's reactor must have a wire, and outlive it. NULL
 * when the system refuses. Best called at the start, when descriptors are not short yet. */
struct handshaker *handshaker_new(struct reactor *owner, bool gives_way);
/* None may be under way but those that were dropped. */
void handshaker_free(struct handshaker *handshaker);

/* ended is called once, from the owner's event loop, when the connection is TLS_OPEN or TLS_FAILED. NULL when memory is
 * short: the connection is the caller's still. */
struct handshake *handshaker_begin(struct handshaker *handshaker, const struct handshake_order *order);
/* Nobody wants it any more: connection and socket are closed, soon, and ended is not called. */
void handshaker_drop(struct handshake *handshake);

#endif
