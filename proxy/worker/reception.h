/*
 * Connections on listeners where the PROXY protocol is required, until their header is there. It is taken off the
 * socket to its last byte and no further: what the client sends itself, TLS among it, is left for whoever gets the
 * connection then. Main thread only.
 */
#ifndef HEADGATE_RECEPTION_H
#define HEADGATE_RECEPTION_H

#include "client/client.h"
#include "event/reactor.h"

struct reception;

struct reception_host {
    /* The header is there: the socket is the callee's. */
    void (*arrived)(void *context, int fd, const struct client_origin *origin);
    /* It is not sound, or did not come in time: the socket was closed. Not called for who sent nothing and left. peer:
     * of the proxy; why: a constant text. */
    void (*refused)(void *context, const struct client_origin *peer, const char *why);
    void *context;
};

/* NULL when memory is short. */
struct reception *reception_new(struct reactor *reactor, const struct reception_host *host);
/* Closes those that wait. NULL does nothing. */
void reception_free(struct reception *reception);

/* Takes over an accepted, non-blocking socket; origin: with the address of who connected it, the proxy. Its end is told
 * by at most one call of host, possibly before this returns. */
void reception_take(struct reception *reception, int fd, const struct client_origin *origin);
/* Those who wait have half a second from now on. */
void reception_hasten(struct reception *reception);
/* How many wait. */
size_t reception_count(const struct reception *reception);

#endif
