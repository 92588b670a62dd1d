/*
 * What two processes tell each other while one takes over from the other: what policies have to say to their like, but
 * not what was counted, which begins anew as after any restart. Policies are asked on the first worker of each server,
 * one after the other, by messages. Main thread only.
 *
 *   POLICY server, policy, lines            both
 *   CLIENTS number                          the old one: how many it has yet, with those of processes before it
 */
#ifndef HEADGATE_HANDOVER_SHARE_H
#define HEADGATE_HANDOVER_SHARE_H

#include "process/handover_line.h"
#include "worker/servers.h"

struct handover_errand;

struct handover_share {
    struct reactor *reactor;
    struct servers *servers;
    struct mailbox mailbox; /* for what workers send back */
    bool is_open;
    struct handover_line *predecessor; /* closed: there is none */
    struct handover_line *successor;   /* the same; to be told of only if … */
    bool has_successor;                /* … this is set: it serves */
    bool is_told;                      /* … or this: it was told all, and does not serve yet */
    bool is_asking;                    /* a policy */
    size_t hearing;                    /* texts that policies have not heard to the end */
    int64_t begun_us;                  /* when the round began, … */
    int64_t rested_us;                 /* … and when the next one may */
    void (*told_all)(void *context);   /* of handover_share_tell_all(), while that is under way; else NULL */
    void (*awaited)(void *context);    /* the same, while another round has to end first */
    void *context;
    struct event timer;
    struct event rest;               /* of … */
    struct handover_errand *resting; /* this; NULL: none */
    uint32_t rounds;
    uint64_t before; /* clients of the predecessor */
    bool has_warned; /* that it says what is not understood */
};

/* False when memory is short. The lines, and the servers, which must have been started, outlive it. */
bool handover_share_open(struct handover_share *share, struct reactor *reactor, struct servers *servers,
                         struct handover_line *predecessor, struct handover_line *successor);
/* The workers must have been stopped. Harmless if it was not opened. */
void handover_share_close(struct handover_share *share);

/* Tells the successor all that policies say to one that begins; then calls told_all, unless handover_share_forget() was
 * called before. False when memory is short. */
bool handover_share_tell_all(struct handover_share *share, void (*told_all)(void *context), void *context);
/* Tells the other process what is new from now on, again and again, as long as there is one. */
void handover_share_begin(struct handover_share *share);
/* The same for the successor, which serves now. */
void handover_share_begin_successor(struct handover_share *share);

/* Whether something is about to be told, or waits to be sent. */
bool handover_share_is_busy(const struct handover_share *share);
/* Nothing more is told to the successor. */
void handover_share_lose_successor(struct handover_share *share);
/* The successor is gone: the next one is to be told everything. */
void handover_share_forget(struct handover_share *share);

/* Tells the successor what is new for the last time: waits until all is sent, twice so many ms at most. */
void handover_share_say_all(struct handover_share *share, int patience_ms);

/* Takes what another process says. is_predecessor: that one says it. */
void handover_share_hear(struct handover_share *share, const struct handover_message *message, bool is_predecessor);
/* Waits until policies have heard what was said to them, for some seconds at most. For who has nothing else to do. */
void handover_share_settle(struct handover_share *share);

#endif
