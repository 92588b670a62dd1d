/*
 * The outbox: what waits for Redis until Redis has it. Minutes of operations, counters and logs of events all go the
 * same way, an entry each:
 *
 *   what waits ─► freeze: a part of it, under the next number ─► write, send ─► DONE: Redis has it; forgotten
 *                                                                  ▲   │   ─► NEVER: Redis refuses it; lost
 *                                                                  └───┴──── AGAIN: no answer, or nothing was written
 *
 * What is frozen stays as it is, with its number, until Redis has it or refuses it. So a call that is repeated after a
 * lost reply carries the number that Redis may know already, and counts once. It is written anew each time: ages have
 * grown, and settings may be others. What is added meanwhile waits for the next number. Numbers begin at 1 and grow; an
 * entry has one call under way at most, so Redis sees them in order.
 *
 * How much may wait, and what becomes of more, is the kind's. An entry is the sending worker's; what waits, and what is
 * frozen, is everybody's under the lock of the share, which is held while the kind is called.
 */
#ifndef HEADGATE_LATENCY_OUTBOX_H
#define HEADGATE_LATENCY_OUTBOX_H

#include "latency/latency_call.h"

struct latency;
struct latency_entry;

struct latency_entry_kind {
    const char *script;
    const char *trouble; /* the warning if Redis did not take it … */
    const char *lost;    /* … or never will */
    /* Freezes of what waits as much as a call takes. False if nothing waits. */
    bool (*freeze)(struct latency_entry *entry);
    /* Writes the call for what is frozen. False when memory is short. */
    bool (*write)(struct latency *latency, const struct latency_entry *entry, struct latency_call *call);
    /* Redis has what is frozen, or it is lost. NULL: there is nothing to do, as the next freeze takes its place. */
    void (*forget)(struct latency *latency, struct latency_entry *entry, bool is_lost);
};

/* All zero at first. */
struct latency_entry {
    const struct latency_entry_kind *kind;
    struct latency *latency; /* on the worker that sends */
    uint64_t number;         /* of what is frozen, or was last */
    bool is_frozen;          /* something is … */
    bool is_under_way;       /* … and was sent, and not answered */
};

/* Sends what waits, or what is frozen, unless a call is under way. True if nothing waits, and none is. */
bool latency_outbox_send(struct latency *latency, struct latency_entry *entry, const struct latency_entry_kind *kind);

#endif
