/*
 * Looks up a name on a thread of its own, as the system's resolver may take its time, and tells the event loop.
 */
#ifndef HEADGATE_RESOLVER_H
#define HEADGATE_RESOLVER_H

#include "net/connection.h"

/* A name that is being looked up. */
struct resolver;

/* targets: at least one, or none and why. The resolver is gone. */
typedef void resolver_callback(void *context, const struct connection_targets *targets);

/* callback is called once, from within the event loop, unless resolver_cancel() comes first. The address is copied.
 * NULL with errno set when the system refuses. */
struct resolver *resolver_start(struct reactor *reactor, const struct conf_address *address,
                                resolver_callback *callback, void *context);
/* Nobody wants to know any more. Does not wait for the thread. */
void resolver_cancel(struct resolver *resolver);

#endif
