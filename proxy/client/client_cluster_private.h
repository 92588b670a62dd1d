/*
 * What clients do where there is a Redis Cluster:
 *
 *   client_cluster.c      to which node a request goes
 *   client_keys.c         … by which keys
 *   client_asked.c        … that only Redis finds
 *   client_redirect*.c    what nodes send elsewhere (client_redirect_private.h)
 *   client_spread.c       what several nodes have to be asked
 *   client_written.c      which nodes WAIT is about
 *   client_subscriber*.c  subscriptions on lanes of their own (client_subscriber_private.h)
 *   client_resubscribe.c, client_shard.c  … on the client's lane, that go to another node (client_moves_private.h)
 *   client_deferred.c     what is said in a transaction before its first key
 *   client_taken.c        runs that are taken out of others
 *   client_cluster_receiver.c  who hears of the replies to all these
 */
#ifndef HEADGATE_CLIENT_CLUSTER_PRIVATE_H
#define HEADGATE_CLIENT_CLUSTER_PRIVATE_H

#include "client/client_private.h"

/* ---- client_subscriber*.c: where there is a cluster, of clients that speak RESP3 ---- */

/* Whether it has subscriptions, on lanes of their own. */
bool client_is_subscriber(const struct client *client);
/* Whether all that it has under way is about them. Its other requests wait for that. */
bool client_is_subscribing(const struct client *client);
/* Whether the route's request is about subscriptions, and is to go over such a lane. */
bool client_subscriber_takes(const struct client *client, const struct session_route *route);
/* Says in the route over which, or that the client has to wait, or what is answered. */
void client_subscriber_route(struct client *client, const struct command *command, const struct request *request,
                             struct session_route *route);
/* That lane in *lane. False: the client has to wait, or is closed. */
bool client_subscriber_lane(struct client *client, const struct session_route *route, struct lane **lane);
/* The request was sent over it, as the client's last run. */
void client_subscriber_sent(struct client *client, struct lane *lane);
/* The lane to another node, for one that was sent there. NULL: memory was short, and the client was closed. */
struct lane *client_subscriber_lane_to(struct client *client, const struct cluster_way *way);
/* With client->subscriber: has pushes that wait go out, if nothing of a reply has gone out of which the rest is to come
 * …
 */
void client_subscriber_deliver(struct client *client);
/* … and the lanes read, or not. */
void client_subscriber_hold_back(struct client *client);
/* The same: the lanes are told the client's credentials, or its name. False when memory is short. */
bool client_subscriber_speak_for(struct client *client);
bool client_subscriber_name(struct client *client);
/* Bytes of messages that have not gone out. */
size_t client_subscriber_kept(const struct client *client);
/* Lets go of all of it. Harmless if there is nothing. */
void client_subscriber_end(struct client *client);
/* The client is freed. */
void client_subscriber_free(struct client *client);

/* ---- client_cluster.c: all of it but client_profile_at() only where there is a cluster ---- */

/* What stands for the client at a node (NULL: home). NULL when memory is short. */
static inline struct profile *client_profile_at(const struct client *client, const struct cluster_way *way)
{
    return way != NULL ? cluster_way_profile(way, client->profile) : client->profile;
}

/* The short way of most requests: to the node of its only key, with its neighbours for the same node. False: there is
 * more to be looked at. */
bool client_cluster_take(struct client *client, const struct request *request);
/* Which commands may take it, by their places in the table. NULL when memory is short. */
bool *client_cluster_short_ways(void);
/* Says in the route where the request goes, by the slot of its keys, or that it goes nowhere. */
void client_cluster_route(struct client *client, const struct command *command, const struct request *request,
                          struct session_route *route);
/* The same for the first request that has one, of what waits on a lane that is not READY. */
bool client_cluster_find_waiting(const struct client *client, const struct lane *lane, const struct cluster_way **way);
/* The shared lane for the route in *lane. False: the client has to wait, or is closed. */
bool client_cluster_lane(struct client *client, const struct session_route *route, struct lane **lane);
/* Where the last request of the client went; NULL: home. */
static inline const struct cluster_way *client_last_way(const struct client *client)
{
    const struct cluster_ways *ways = client->service->cluster;

    return client->last_way > 0 && client->last_way <= ways->count ? ways->ways[client->last_way - 1] : NULL;
}

/* Whether the client's next request has to wait for those under way, were it to go over that lane (NULL: any). */
static inline bool client_cluster_has_to_wait(const struct client *client, const struct lane *lane)
{
    const struct client_service *service = client->service;
    /* What was sent to masters and what was sent to their replicas would not keep their order. */
    bool is_other_kind = client->at_replicas != (lane != NULL && lane->settings->gives_back);

    return client->redirects != NULL || (client->subscriber != NULL && client_is_subscribing(client)) ||
           (client->sent_runs > 0 && (is_other_kind || client->routed_changes != *service->cluster->changes));
}

/* ---- client_keys.c ---- */

struct client_keys {
    bool has_key;
    bool is_split; /* they are of several slots */
    uint16_t slot; /* of the first */
};

/* Which command it is, and where its keys are. Whole, in multibulk form. command may be NULL: then it has none. */
struct client_keys client_keys_of(const struct command *command, struct slice frame);
/* The command of a frame that was sent; NULL: it is not known. */
const struct command *client_command_of(const struct client_service *service, struct slice frame);

/* ---- client_asked.c ---- */

/* Asks for the keys of a whole request of a COMMAND_KEYS_ASKED; client->asked says what was told. False: the route says
 * for what the client has to wait, and the request is to be planned again then. */
bool client_asked_keys(struct client *client, const struct request *request, struct session_route *route);
/* The client is closed. */
void client_asked_forget(struct client *client);

/* ---- client_spread.c: only where there is a cluster ---- */

/* Sends a request that is for several nodes, or that is said otherwise to the one that it is for, as the plan in the
 * route says. */
enum client_outcome client_spread(struct client *client, const struct request *request, struct session_route *route);
/* The run is the client's first: its part of the reply is taken, or, if it is the last, the whole reply goes out.
 * False: it is not there yet, or the client was closed. */
bool client_spread_advance(struct client *client, struct run *run);
/* The client has ended its stream. If all that it has under way is a WAIT of several nodes, they hear of it: each has
 * answered by then, or closes its lane, and the client ends with that. False: it is something else. */
bool client_spread_hang_up(struct client *client);
/* The part is answered: a lane of its own is given back. */
void client_spread_release(struct run *run);
/* The part is lost: a lane of its own is let go of. Before the client hears of it. */
void client_spread_lost(struct run *run);
/* The run has no part in it any more. Harmless if it had none. */
void client_spread_free(void *spread, uint32_t part);
static inline void client_spread_leave(struct run *run)
{
    if (run->spread != NULL) {
        client_spread_free(run->spread, run->part);
        run->spread = NULL;
    }
}

/* ---- client_written.c: where there is a cluster ---- */

/* The request (NULL: nobody knows which) goes that way. */
void client_note_written(struct client *client, const struct command *command, const struct cluster_way *way);
/* What was on its way to a node goes that way instead. */
void client_written_goes(struct client *client, const struct cluster_way *way);
/* Whether the client may have written at that way. */
bool client_wrote_at(const struct client *client, const struct cluster_way *way);
/* Whether WAIT is about other nodes than the one at that way. */
bool client_wrote_elsewhere(const struct client *client, const struct cluster_way *way);
/* Whether a node that it may have written to is no master any more: what became of that, nobody knows. */
bool client_written_is_gone(const struct client *client);
/* It has been told so: from here on it counts as having written to all that are. */
void client_written_begin_anew(struct client *client);

/* ---- client_redirect*.c: the same ---- */

/* Of struct run_receiver. */
bool client_redirected(struct run *run, struct slice error, struct slice request);
void client_passed(struct run *run, struct slice request);
void client_returned(struct run *run, struct slice requests);
/* The run has left its lane for good. */
void client_redirect_ended(struct client *client, const struct run *run);
/* Something of the client's was answered, or lost: those that were redirected may be sent. */
void client_redirect_check(struct client *client);
/* Whether all that the client has under way is held, and on no lane. */
bool client_redirect_holds(const struct client *client);
/* Forgets them: the client lets go of its runs. */
void client_redirect_forget(struct client *client);

/* ---- client_resubscribe.c ---- */

/* The client asks for subscriptions, or for their end, by that frame. */
void client_note_channels(struct client *client, const struct expected_reply *expected, struct slice frame);
/* The client is just being subscribed at another node, or will be: what it asks for has to wait. */
bool client_is_moving(const struct client *client);
/* The client is closed. */
void client_forget_channels(struct client *client);
/* The exclusive lane is closed: if it had nothing but subscriptions that any node has, the client is subscribed at
 * another one. False: it has to be closed. */
bool client_move_subscriptions(struct client *client);

/* ---- client_deferred.c ---- */

/* A request without keys, in a transaction whose node is not known. True: it was taken, and is to be answered by
 * QUEUED. False: it goes to the home node. */
bool client_defer_request(struct client *client, const struct command *command, const struct request *request,
                          const struct session_route *route);
/* MULTI was just said on the exclusive lane: these follow it. False when memory is short. */
bool client_send_deferred(struct client *client);
/* Harmless if there are none. */
void client_forget_deferred(struct client *client);

/* ---- client_shard.c ---- */

/* The owner of an exclusive lane with shard channels, as session_lane_owner; with client->channels. */
extern const struct lane_owner client_shard_owner;

/* ---- client_cluster_receiver.c ---- */

/* As client_run_receiver, where redirects are followed. */
extern const struct run_receiver client_cluster_receiver;
/* The same for a part of a request for several nodes. */
extern const struct run_receiver client_spread_receiver;

/* ---- client_taken.c ---- */

/*
 * Takes the next request of a run, which is on a lane, out of it, as a run of its own between the replies before it and
 * those behind; it counts as sent. The run's expected reply and record go with it. NULL when memory is short: the
 * client was closed. near: one that is in the client's queue, most likely not far ahead of it; NULL: none is known.
 */
struct run *client_take_out(struct client *client, struct run *run, struct run *near);
/* Answers such a run, which is on no lane, with an error of Redis or of Headgate's own: a line with CR LF. */
void client_answer_taken(struct client *client, struct run *run, struct slice error);
/* The run is on no lane any more, and has no request left. */
void client_end_taken(struct client *client);

#endif
