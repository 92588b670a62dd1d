/*
 * The connection to Redis: what requests need of it, what they and their replies make of it, and which one it is.
 *
 *   client_commands.c     what each command needs of it
 *   client_subcommands.c  … and each subcommand of CLIENT
 *   client_login.c        the lane of AUTH, or HELLO with it
 *   client_session.c      its state: what requests and replies make of it (client_state.h)
 *   client_channels.c     … subscriptions, and what comes of them
 *   client_lane.c         … of an exclusive lane: when it is taken, and left
 *   client_lane_owner.c   … and what a client hears of it, beside replies
 */
#ifndef HEADGATE_CLIENT_SESSION_PRIVATE_H
#define HEADGATE_CLIENT_SESSION_PRIVATE_H

#include "client/client_parts_private.h"

/* ---- client_commands.c ---- */

enum session_answer {
    SESSION_FORWARD,     /* to the lane in *route */
    SESSION_ANSWER_HERE, /* route->text is the reply (empty: none) */
    SESSION_LATER,       /* to be planned again when the client's requests are answered … */
    SESSION_ASKS,        /* … or when Redis has told where its keys are */
    SESSION_REFUSE,      /* the same, in place of what Redis would do: it spoils a transaction */
    SESSION_CLOSE        /* close the client without a word; route->text says why */
};

/* How a request is to be handled. */
struct session_route {
    enum session_answer answer;
    bool exclusive;           /* needs an exclusive lane */
    bool reads;               /* it only reads, and may be answered by a replica … */
    bool harmless;            /* … or not, and writes nothing */
    enum conf_reads reads_by; /* by whom, if it reads */
    bool own_writes;          /* WAIT: the lane of the client's last request, or a lane that saw a command after it */
    bool ends_script;         /* SCRIPT KILL, FUNCTION KILL */
    bool last;                /* the client is closed after the answer (QUIT) */
    bool identity;            /* the lane should carry all that the client said of itself */
    bool passthrough;         /* from this request on, which has no reply that could be told from others … */
    bool silences;            /* … as it is CLIENT REPLY */
    bool sync;                /* what comes behind it may be no RESP */
    bool pinned;              /* from this request on */
    bool dirty;               /* the lane is for nobody else after this request */
    bool unsure;              /* from this request on */
    bool names_client;        /* it makes the client somebody else */
    bool barrier;             /* nothing may follow until it is answered */
    bool logs_in;             /* AUTH, and HELLO with it: see client_login.c */
    bool begins_transaction;
    bool ends_transaction;
    const struct cluster_way *way; /* in a cluster: where it goes; NULL: home */
    /* … and what is done otherwise; NULL: nothing is */
    const struct cluster_plan *plan;
    bool splits;     /* it has keys in several slots, and is taken apart */
    bool subscribes; /* it is about subscriptions that have lanes of their own, and goes over that one … */
    struct subscriber_lane *subscriber_lane; /* … NULL: one is opened at `way` */
    struct expected_reply *expected;
    char text[256];
};

/* What a whole multibulk command needs. arguments: the first RESP_ARGUMENTS_KEPT at most. False when memory is short.
 */
bool session_route_request(struct client *client, const struct command *command, const struct resp_command *framed,
                           const char *frame, struct session_route *route);
/* The same for CLIENT. */
bool session_route_client(struct client *client, const struct resp_command *framed, const char *frame,
                          struct session_route *route);
/* Whether the debugger of scripts may be begun. */
bool session_may_debug(const struct client *client);

static inline struct slice session_kept_argument(const struct resp_command *framed, const char *frame, size_t index)
{
    const struct resp_argument *argument = &framed->arguments[index];

    return (struct slice){frame + argument->offset, (size_t)argument->length};
}

/* ---- client_login.c ---- */

/* Whether the route's request is one that Redis answers, and that is to have its lane to itself until then. */
bool client_login_is_watched(const struct client *client, const struct session_route *route);
/* The lane for such a request in *lane. False: the client has to wait, or is closed. */
bool client_login_lane(struct client *client, const struct session_route *route, struct lane **lane);
/* Whether such a request has waited in vain for a lane: it is to be answered by an error. */
bool client_login_was_given_up(const struct client *client);
/* Forgets its lane, and that it waited. */
void client_login_end(struct client *client);
/* Ten times a second: clients whose login is not answered in time, or waits for a lane in vain. */
void client_login_tick(struct client *client, int64_t now);
/* Of a client that has closed its writing half it is waited so long for the answer before Redis is told of the end. */
#define CLIENT_LOGIN_PATIENCE_US ((int64_t)1000000)
/* Whether Redis has owed the answer for so long. */
static inline bool client_login_is_slow(const struct client *client)
{
    int64_t since = client->session.login_us;

    return since != 0 && reactor_now(client->service->reactor) - since >= CLIENT_LOGIN_PATIENCE_US;
}

/* ---- client_session.c ---- */

/* Has the route ask for an exclusive lane, on which the reply is watched. False when memory is short. */
bool session_expect(struct client *client, struct session_route *route, enum expected_reply_kind kind);
/* Has it answered so, or whatever else is to be done with that text. Always true. */
bool session_say(struct session_route *route, enum session_answer how, const char *text);
/* The request of the route is not sent: gives back what the route has. */
void session_drop_route(struct client *client, struct session_route *route);
/* Whether Redis' answer to this request cannot be waited for. */
bool client_has_no_answer(const struct client *client, const struct session_route *route);
/* Whether Redis may wait for ever with a request that is observed so. */
bool session_kind_may_block(enum expected_reply_kind kind);
/* Whether Redis may wait for ever with a request that is under way. */
static inline bool session_may_block(const struct client *client)
{
    return client->session.blocking > 0 || client->session.blocking_unseen || client->waits_for_nodes;
}

/* While Redis is paused a write blocks its connection, and on a shared lane it would block the reads of others. 0: it
 * is no more. */
void session_paused(struct client_service *service, int64_t pause_ms);
/* The client is that profile's from now on; the reference is taken over. False: memory was short, and the client is
 * closed, with its lane and what was observed. */
bool session_change_profile(struct client *client, struct profile *profile);
/*
 * Whether requests behind this one mean something else where it is not done: they would run outside of MULTI, in
 * another database, as another user. Who has sent them ahead of its answer cannot take them back. expected may be NULL.
 */
bool session_is_presumed(const struct expected_reply *expected);
/* The request was not sent after all. expected may be NULL. */
void session_request_unsent(struct client *client, const struct expected_reply *expected);
/* The request was sent (or answered here): brings the view of what was sent up to date. */
void session_request_sent(struct client *client, const struct session_route *route);
/* A reply to an observed request, or a push, has ended: true if it answers the request. */
bool session_reply(struct client *client, struct expected_reply *expected, const struct resp_reply *reply);

/* ---- client_channels.c ---- */

/* Whether it says that a shard channel is subscribed no more. */
bool session_is_dropped(const struct resp_reply *reply);
/* Whether it confirms a subscription. */
bool session_is_subscribed(const struct resp_reply *reply);
/* The count that ends one; what no Redis has is none. */
static inline int64_t session_confirmed_count(const struct resp_reply *reply)
{
    return reply->integer >= 0 && reply->integer <= INT32_MAX ? reply->integer : 0;
}
/* Takes note of any confirmation of a subscription or of its end, whatever asked for it. True if it is one. */
bool session_note_confirmation(struct client *client, const struct resp_reply *reply);
/* Whether the frame answers no request: a push, a message, or a confirmation among them. */
bool session_is_push(struct client *client, const struct resp_reply *reply);
/* True when the last confirmation that this request is owed has come, or anything that is none. */
bool session_replied_subscription(struct client *client, struct expected_reply *expected,
                                  const struct resp_reply *reply);

/* ---- client_lane.c ---- */

/* Where what a client says of itself, or asks, is answered. */
enum session_place {
    SESSION_PLACE_HERE,  /* by Headgate: the client is on no lane of its own that would have to hear it */
    SESSION_PLACE_LATER, /* the same, if the client leaves its lane when that has answered */
    SESSION_PLACE_LANE   /* by Redis */
};

/* The place of the request at hand, which takes that right: Headgate answers for Redis only where Redis has shown
 * lately that the user may ask. HERE: the lane was left. */
enum session_place session_place_for(struct client *client, enum profile_right right);
/* The same if Redis has shown it. */
enum session_place session_place_here(struct client *client);

/* Whether the exclusive lane can be given back. Only meaningful when nothing is under way. */
bool session_is_clean(const struct client *client);
/* Whether rules could be asked about somebody else than who the client is to Redis: there are rules, and that can no
 * longer be told. Such a client is closed. */
bool session_is_doubtful(const struct client *client);
#define SESSION_DOUBTFUL "who it is to Redis cannot be told, and there are rules"
/* Whether the lane has nothing that another one, of the client's profile and name, would lack. Only meaningful when
 * nothing is under way. */
bool session_is_portable(const struct client *client);
/* The same before a cluster, where another node is wanted, and of a lane that has come to its end: an id that was told,
 * or WAIT, does not hold the client. */
bool session_may_leave_node(const struct client *client);
/* The client was told the id of its lane, which it keeps for client_id_timeout; a second lane for life. */
void session_id_was_told(struct client *client);
/* Somebody may count on the id by now (CLIENT UNBLOCK, REDIRECT): if the client was told it, it keeps the lane for
 * life. */
void session_id_is_used(struct client *client);
/* Gives the lane back if the time of its id is over and nothing else keeps it. Now and then. */
void session_review_id(struct client *client, int64_t now_us);
/* A client that did not keep up with its replies and rests now is nearer to the shared lanes again, and gives the lane
 * back in the end. Each tick. */
void session_review_weight(struct client *client);
/* Why the client has an exclusive lane, for CLIENTS. */
const char *session_reason(const struct client *client);
/* Gives the exclusive lane back or closes it. */
void session_leave_lane(struct client *client);
/* The same, as another one is taken at another node: with what is known of requests that were not sent there. */
void session_leave_node(struct client *client);
/* Takes one, giving it the client's name. With requests under way: only if it may take the home lane, which it takes
 * then. False when memory is short. */
bool session_take_lane(struct client *client, const struct session_route *route);
/* The same for AUTH: one that was told nothing yet, as Redis refuses the client's credentials to those who come. */
bool session_take_bare_lane(struct client *client);
/* Tells a lane the client's name, and its library if whole. False when memory is short. */
bool session_tell_identity(const struct client *client, struct lane *lane, bool whole);
/* The same of its exclusive lane. */
bool session_give_identity(struct client *client, bool whole);
/* Says something on a lane that changes nothing, so that WAIT behind it speaks of all that was done before. False when
 * memory is short. */
bool session_write_nothing(const struct client *client, struct lane *lane);
/* Whether the shared lane of the client's last request can be its own, as nobody else waits on it. */
bool session_may_take_home_lane(const struct client *client);
/* Makes sure that the client has an exclusive lane. False: it has to wait, or is closed. */
bool client_enter_exclusive(struct client *client, const struct session_route *route);
/* Redis has taken other credentials on a lane that knew none: it is told what else it lacks. False when memory is
 * short: the client was closed. */
bool session_complete_lane(struct client *client, const struct expected_reply *expected);

/* ---- client_lane_owner.c ---- */

extern const struct lane_owner session_lane_owner;
/* Gives the exclusive lane back if it leads to a server that is no master any more, and has nothing that another would
 * lack: before a request is sent. */
void session_leave_old_server(struct client *client);

#endif
