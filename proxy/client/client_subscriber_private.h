/*
 * A client of RESP3 before a cluster whose subscriptions have lanes of their own:
 *
 *   client_subscriber_lane.c    the lanes: which there are, and how they are let go of
 *   client_subscriber_open.c    … and how one is got
 *   client_subscriber_push.c    what goes out to the client between its replies
 *   client_subscriber_mark.c    where the answer to SUNSUBSCRIBE ends
 *   client_subscriber_move.c    what no lane has any more is asked for at another node
 *   client_subscriber.c         requests about subscriptions: over which lane
 *   client_subscriber_reply.c   what the lanes say
 *
 * Calls go up this list. All else that the client asks for goes the ordinary way, over other lanes.
 */
#ifndef HEADGATE_CLIENT_SUBSCRIBER_PRIVATE_H
#define HEADGATE_CLIENT_SUBSCRIBER_PRIVATE_H

#include "client/client_moves_private.h"

/* Pushes are kept whole until the client can have them between two replies. More than this of them, and the lanes are
 * not read. Bytes. */
#define CLIENT_PUSHES_MARK ((size_t)256 * 1024)

/* Of no lane. */
#define CLIENT_CHANNEL_NOWHERE UINT16_MAX

/* An exclusive lane with nothing but subscriptions: channels and patterns are on one of them, shard channels on that of
 * their node. */
struct subscriber_lane {
    LIST_ENTRY(subscriber_lane) of_subscriber;
    struct client_subscriber *subscriber;
    struct lane *lane;             /* NULL: it was let go of, and is freed at the end of the turn */
    const struct cluster_way *way; /* where it is; NULL: home */
    uint16_t number;               /* among the client's: low, and another's after this one has gone */
    bool is_marked;                /* more of what SUNSUBSCRIBE is answered by may come */
    struct buffer frame;           /* what has come of a push */
    int64_t channels;              /* as Redis counts them there … */
    int64_t patterns;
    int64_t shards;
};

struct client_subscriber {
    struct client *client;
    LIST_HEAD(subscriber_lanes, subscriber_lane) lanes; /* the last opened first */
    struct subscriber_lanes gone;                       /* those that were let go of */
    struct client_channel_list names;
    struct buffer waiting; /* whole pushes, behind a part of a reply */
    uint32_t lost;         /* names that no lane has, or that are asked for again … */
    uint32_t lost_shards;  /* … shard channels among them */
    uint32_t asked;        /* requests under way for them */
    int64_t until_us;      /* as long that is tried; 0: nothing is lost */
    struct reactor_task task;
    struct event timer;
};

/* ---- client_subscriber_lane.c ---- */

/* The lane of the client's subscriptions that is that one; NULL: it is another. */
struct subscriber_lane *client_subscriber_find(const struct client_subscriber *subscriber, const struct lane *lane);
/* The one of that number; NULL: there is none. */
struct subscriber_lane *client_subscriber_numbered(const struct client_subscriber *subscriber, uint16_t number);
/* The one at that node (NULL: home); NULL: there is none. */
struct subscriber_lane *client_subscriber_at(const struct client_subscriber *subscriber, const struct cluster_way *way);
/* The one of channels and patterns, or that is to be; NULL: none is open. */
struct subscriber_lane *client_subscriber_general(const struct client_subscriber *subscriber);
/* Lets go of it. clean: nothing is left on it. */
void client_subscriber_drop(struct subscriber_lane *at, bool clean);
/* So many shard channels on other lanes than this one, or on none at the moment. */
int64_t client_subscriber_other_shards(const struct client_subscriber *subscriber, const struct subscriber_lane *at);
/* Lets go of lanes that are not needed. */
void client_subscriber_tidy(struct client_subscriber *subscriber);
/* The same, and what is lost asked for, at the end of this turn. */
void client_subscriber_tend_soon(struct client_subscriber *subscriber);

/* ---- client_subscriber_open.c ---- */

/* The client's, made if need be. NULL when memory is short. */
struct client_subscriber *client_subscriber_of(struct client *client);
/* The lane at that node (NULL: home), opened if need be. NULL when memory is short. */
struct subscriber_lane *client_subscriber_open(struct client_subscriber *subscriber, const struct cluster_way *way);

/* ---- client_subscriber_push.c ---- */

/* A part of a push has come: it is kept. The client may be closed by that. */
void client_subscriber_gather(struct subscriber_lane *at, const char *data, size_t length);
/* A whole push for the client: between its replies. The same. */
void client_subscriber_push(struct client_subscriber *subscriber, struct slice push);

/* ---- client_subscriber_mark.c ---- */

/* SUNSUBSCRIBE was sent on it: `is_marked` until all is there that Redis says to it. False when memory is short. */
bool client_subscriber_mark(struct subscriber_lane *at);

/* ---- client_subscriber_move.c ---- */

/* The task, and the timer. */
void client_subscriber_tend_task(struct reactor_task *task);
void client_subscriber_on_timer(evutil_socket_t fd, short what, void *context);
/* The node has dropped a shard channel that is at that place of the names. */
void client_subscriber_lose(struct client_subscriber *subscriber, size_t at);
/* The client has just asked for that itself, or for its end: it is not lost. Harmless if it was not. */
void client_subscriber_found(struct client_subscriber *subscriber, char kind, struct slice name);
/* A lane has gone: what it had is lost. */
void client_subscriber_lose_all(struct subscriber_lane *at);
/* Which of the names the next reply to what was asked for on that lane is about; names.used: none. */
size_t client_subscriber_asked(const struct subscriber_lane *at);
/* The lane has it again. */
void client_subscriber_regain(struct subscriber_lane *at, size_t place);
/* It was refused, by that error. */
void client_subscriber_not_regained(struct subscriber_lane *at, struct slice error);
/* That was the answer. */
void client_subscriber_answered(struct subscriber_lane *at);
/* No answer will come. */
void client_subscriber_unasked(struct subscriber_lane *at);

/* ---- client_subscriber_reply.c ---- */

/* The owner of these lanes: struct subscriber_lane. */
extern const struct lane_owner client_subscriber_owner;
/* Of requests of the client about subscriptions, and of those that ask again for what was lost (owner: the lane). */
extern const struct run_receiver client_subscriber_receiver;
extern const struct run_receiver client_subscriber_restore_receiver;

#endif
