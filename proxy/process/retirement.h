/*
 * The rest of the life of a process that another one has taken over from: it goes on for the clients that it has, until
 * they are gone or upgrade_clients_timeout is over. Main thread only.
 */
#ifndef HEADGATE_RETIREMENT_H
#define HEADGATE_RETIREMENT_H

#include "process/handover.h"

struct retirement {
    struct servers *servers;
    const struct handover *handover;
    void (*drain)(void *context);
    void *context;
    struct event timer;
    int64_t until_us;  /* 0: for ever */
    int64_t proven_us; /* until then it stays in any case, in place of a new process that may crash */
    bool has_offered;  /* clients were told where they can go */
    int64_t quiet_us;  /* since when there are no clients; 0: there are some */
};

/* drain is called once, when it is time. patience_ms: 0 for ever. False when memory is short. */
bool retirement_begin(struct retirement *retirement, struct reactor *reactor, struct servers *servers,
                      const struct handover *handover, int64_t patience_ms, void (*drain)(void *context),
                      void *context);
/* The other one has gone, and this one serves again. */
void retirement_end(struct retirement *retirement);

#endif
