/*
 * What the files on redirects share:
 *
 *   client_redirect.c       what nodes say, and what is held therefore
 *   client_redirect_list.c  which requests are held, and in which order
 *   client_redirect_send.c  sending them again
 */
#ifndef HEADGATE_CLIENT_REDIRECT_PRIVATE_H
#define HEADGATE_CLIENT_REDIRECT_PRIVATE_H

#include "client/client_cluster_private.h"

/* Why a client is closed that has asked for no replies: nothing would tell it. */
#define CLIENT_NOT_EXECUTED "no node has executed what it has sent for no answer"

/* One request. */
struct held {
    TAILQ_ENTRY(held) of_client;
    struct run *run; /* of this request alone; it is in the client's queue, and knows this one (redirected) */
    struct slice request;
    struct client_keys keys;
    char *error;       /* that it was answered by last, with CR LF */
    bool is_held;      /* it is on no lane */
    bool is_overtaken; /* another one with one of its keys was executed before it, or it has waited too long */
    bool asks;         /* with ASKING, at `there` */
    bool pauses;       /* before it is sent */
    bool awaits_map;   /* that says where it goes: the one that there is does not have `there` */
    bool is_doubtful;  /* the error may be a script's: `asked` is to be asked … */
    bool is_refuted;   /* … and has not said so; or no other node can do it: the error is the reply */
    bool was_asked;    /* with ASKING, as the request was */
    const struct cluster_way *asked;
    const struct cluster_way
        *owner;           /* of the slot of `there`, while the map is awaited: as it was then; compared only */
    struct run *question; /* under way; NULL: none is */
    uint32_t redirects;
    int64_t since_us; /* when it was redirected first */
    struct cluster_redirect there;
    char bytes[]; /* the request */
};

/* Those of a client, in the order of the requests. */
struct client_redirects {
    struct client *client;
    TAILQ_HEAD(held_list, held) requests;
    struct held *recent; /* the last that was redirected: nodes answer in order, so the next is close behind */
    uint32_t held;       /* of them are held */
    bool paused;         /* the timer is set */
    struct reactor_task task;
    struct event timer;
};

/* ---- client_redirect_list.c ---- */

/* A copy of what is to be sent again; it is in no list yet. NULL when memory is short. */
struct held *client_redirect_new(const struct client *client, struct slice request);
/* The same is in no list any more. */
void client_redirect_free(struct held *held);
/* Whether it was sent on, or has waited, for long enough: the error is its reply. NULL is new. */
bool client_redirect_is_over(const struct client *client, const struct held *held);
/* Keeps the list, which is there, in the order of the client's requests. */
void client_redirect_insert(struct client *client, struct held *held);
/* Takes it out of the list, which goes with the last one, and frees it. */
void client_redirect_drop(struct client *client, struct held *held);

/* ---- client_redirect_send.c ---- */

/* Makes the client's list, unless it is there. False when memory is short. */
bool client_redirect_open(struct client *client);

#endif
