/*
 * Keeps up to date where a server is: looks its name up at intervals, and when somebody has reason to ask. The answer
 * is the system's, by getaddrinfo() on a thread of its own: so /etc/hosts, search domains and whatever else
 * nsswitch.conf names hold for Headgate as for every other program of the machine, and the event loop never waits.
 *
 * What was found stays until something else is found: a resolver that fails takes nothing away.
 */
#ifndef HEADGATE_LOOKUP_H
#define HEADGATE_LOOKUP_H

#include "net/resolver.h"

/* A name, and what is known of it. All calls are from the thread of the reactor. */
struct lookup;

/* The addresses are others than before; or there were none yet, and targets says why. */
typedef void lookup_callback(void *context, const struct connection_targets *targets);

/* Why nobody is to connect there, as a constant text; NULL: all is well. */
typedef const char *lookup_refusal(void *context, const struct sockaddr *address);

/* Times in ms. text and the address are copied. */
struct lookup_settings {
    const struct conf_address *address;
    int64_t interval; /* 0: only when somebody asks */
    lookup_callback *changed;
    lookup_refusal *refuses; /* NULL: every address will do */
    void *context;
    struct stats *stats; /* where lookups are counted; whoever reads them may be another thread */
};

/* Begins to look the name up; what is no name is known at once, and never again looked up. NULL when memory is short.
 */
struct lookup *lookup_new(struct reactor *reactor, const struct lookup_settings *settings);
void lookup_free(struct lookup *lookup);

/* What is known now. Valid as long as nothing else is found. */
const struct connection_targets *lookup_targets(const struct lookup *lookup);
/* Whether it is a name. */
bool lookup_is_needed(const struct lookup *lookup);

/* The interval may be another one from now on. */
void lookup_set_interval(struct lookup *lookup, int64_t interval_ms);
/* Somebody has reason to think that something has changed: looked up now, or a moment later if that was done just now.
 */
void lookup_soon(struct lookup *lookup);

#endif
