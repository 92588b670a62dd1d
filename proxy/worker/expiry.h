/*
 * Certificates that expire: how many days are left, as gauges; and once a day a warning, when that is not long. On the
 * main thread.
 */
#ifndef HEADGATE_EXPIRY_H
#define HEADGATE_EXPIRY_H

#include "conf/conf.h"
#include "event/reactor.h"

#include <event2/event_struct.h>

struct expiry {
    struct stats *stats;
    const struct conf *conf;
    struct event timer;
    int64_t warned; /* when it was warned last: seconds since 1970 */
};

/* False when memory is short. stats: where the days are shown. conf: that in force of a server, or of the process, see
 * expiry_follow(); what a server has from the process is warned of there. Those that load now were warned of then. */
bool expiry_open(struct expiry *expiry, struct reactor *reactor, struct stats *stats, const struct conf *conf);
/* Another configuration is in force, whose loading has warned. */
void expiry_follow(struct expiry *expiry, const struct conf *conf);
void expiry_close(struct expiry *expiry);

#endif
