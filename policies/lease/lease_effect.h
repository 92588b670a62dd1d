/*
 * What the two files on the effects of replies share: lease_effect.c (taking, extending, ranks) and lease_change.c
 * (what releases, deletes or expires).
 */
#ifndef HEADGATE_LEASE_EFFECT_H
#define HEADGATE_LEASE_EFFECT_H

#include "lease/lease_private.h"

struct effect {
    struct lease_worker *worker;
    const struct lease_request *request;
    const struct lease_request *first; /* of its transaction */
    struct slice head;                 /* of its reply; empty if that is not to be seen */
    enum lease_outcome outcome;
    int64_t now_us;
};

/* ---- lease_change.c ---- */

/* Whether Redis may have executed the request before the one that took the lock, even if it was forwarded later: they
 * were under way together, over two connections. */
bool lease_may_be_older(const struct effect *effect, const struct lease *lease);
/* Redis is to be asked what has come of it. after_release: a release of it may have come about. */
void lease_doubt(struct effect *effect, struct lease *lease, bool after_release);
/* Redis has said that the lease which the request sets was set. */
void lease_expect(const struct effect *effect, struct lease *lease);

/* The request may have released, removed or expired the locks of its targets. */
void lease_change(struct effect *effect);
/* It has removed all, and whatever is left is asked for at once, as nobody says which keys there were; or it may have,
 * which explains what is found to be gone. */
void lease_change_all_flushed(struct effect *effect);

#endif
