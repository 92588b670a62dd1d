/*
 * What the files that make up a client share:
 *
 *   client.c           life: accepting, closing, time-outs
 *   client_hangup.c    clients that go away while they wait
 *   client_input.c     bytes in: reading, framing
 *   client_request.c   a request's way: looked up, admitted by the policies, then …
 *   client_route.c     … where it goes, and …
 *   client_send.c      … sent there, with its neighbours
 *   client_stream.c    requests that are too long to be held
 *   client_answer.c    answers of Headgate's own
 *   client_lookup.c    which command a name stands for
 *   client_name.c      names that Redis might understand otherwise than Headgate
 *   client_policy.c    what policies may ask for, and are told
 *   client_peer.c      … who is at the other end of a connection
 *   client_script.c    … scripts
 *   client_server.c    … servers of their own, for scripts
 *   client_question.c  what the admin port asks of policies
 *   client_plan.c      what each command needs of the connection to Redis
 *   client_subcommands.c   … and each subcommand of CLIENT
 *   client_login.c     the lane of AUTH, or HELLO with it
 *   client_channels.c   subscriptions, and what comes of them
 *   client_session.c   the state of that connection: what requests and replies make of it (client_state.h)
 *   client_lane.c      … and of an exclusive lane: when it is taken, and left
 *   client_measure.c   how long requests take
 *   client_reply.c     bytes out: replies in request order, writing, back pressure
 */
#ifndef HEADGATE_CLIENT_PRIVATE_H
#define HEADGATE_CLIENT_PRIVATE_H

#include "client/client.h"
#include "client/client_state.h"

enum client_state {
    CLIENT_OPEN,
    CLIENT_ENDING, /* takes no more requests; closed once what is due was written */
    CLIENT_CLOSED  /* to be freed at the end of the turn */
};

/* Why the next request is not taken yet. */
enum client_wait {
    CLIENT_WAIT_NOTHING,
    CLIENT_WAIT_QUIET, /* until the requests under way are answered: the next one goes another way */
    CLIENT_WAIT_LANE,  /* until the lane takes bytes (again) */
    CLIENT_WAIT_ROOM,  /* until less is kept of those under way */
    CLIENT_WAIT_NAME,  /* until Redis has told which command it is */
    CLIENT_WAIT_POLICY /* held */
};

/* What Redis has told of the name of the request at hand, which Headgate did not know. */
enum client_lookup {
    CLIENT_LOOKUP_NONE, /* it was not asked */
    CLIENT_LOOKUP_UNDER_WAY,
    CLIENT_LOOKUP_FOUND,
    CLIENT_LOOKUP_ABSENT, /* it has no such command */
    CLIENT_LOOKUP_UNSAID
};

struct client_service {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *upstream;
    struct control *control;
    struct learn *learn;
    struct client_settings settings;
    struct chain *chain;
    const struct chain_interest *interests; /* of commands, in the order of their table; see client_interest() */
    struct policy_host host;
    char host_name[CONF_HOST_NAME_MAX + 1];
    struct peer_finder *peer_finder;        /* NULL until a policy asks for a process */
    LIST_HEAD(, policy_question) questions; /* those that policies have not answered yet */
    LIST_HEAD(, policy_server) servers;     /* that policies have for themselves, or have left lately */
    struct stats server_stats;              /* where the lanes to them are counted */
    bool ends_scripts;                      /* on those servers: the process ends */
    struct observation *free_observations;
    LIST_HEAD(, client) clients; /* the newest first */
    LIST_HEAD(, client) closed;  /* to be freed at the end of the turn */
    struct reactor_task free_closed;
    struct buffer inline_command; /* the multibulk form of the inline command at hand */
    size_t count;
    size_t next_place;
    int64_t paused_until_us; /* a client of this worker has asked Redis to pause: a request may block its connection */
    const struct policy_attention *attention;
    uint32_t until_spot;  /* requests until the next that is shown to who measures … */
    uint32_t spot_chance; /* … and what that was drawn from */
    bool draining;
    int64_t draining_since_us;
    _Atomic bool server_unreached; /* a server of a policy was never reached */
    _Atomic bool settled;          /* drained: no clients, and the policies have done what they had to */
};

/* What is known of a request before it is sent or answered. */
struct client_note {
    bool taken; /* there is one */
    uint32_t tag;
    int64_t received_us;
    uint64_t request_bytes;
    struct slice frame; /* what of it was there when it was looked at last, while that is being done */
};

/* What is kept in its client, without a block of memory: one ordinary request without a pipeline. */
#define CLIENT_SPAN_SLOT 192

/*
 * Requests under way, in spans (client_measure.c): first the one in the slot, then those behind it. The slot is taken
 * when there are no others, so that a client without a pipeline needs no block, which would seldom be in the cache.
 */
struct client_spans {
    uint32_t slot_used; /* bytes of the slot; 0: its span is not there */
    uint32_t last_size; /* bytes of the last span: others may join its requests */
    _Alignas(int64_t) char slot[CLIENT_SPAN_SLOT];
    struct buffer more;
};

struct client {
    struct client_service *service;
    LIST_ENTRY(client) of_service;
    uint64_t id;
    enum client_state state;
    enum client_wait wait;
    struct connection connection;
    struct reactor_task flush;
    struct buffer input;  /* bytes from the start of the first request that was not taken yet */
    struct buffer output; /* bytes that the client's socket did not take yet */
    const char *borrowed; /* replies in a lane's scratch memory, behind the output; see client_reply.c */
    size_t borrowed_length;
    struct run *first, *last;       /* requests under way, in order */
    uint32_t in_flight;             /* requests in them */
    uint32_t sent_runs;             /* runs of them that are in a lane's queue */
    size_t kept;                    /* bytes that the runs and the answers in them take */
    struct lane *lane_in_use;       /* the lane of those; requests under way are never on two lanes */
    uint64_t last_lane_id;          /* where the last request went; WAIT wants to know */
    uint64_t told_lane_id;          /* the lane whose id in Redis it was told last; 0: none */
    struct lane_waiter lane_waiter; /* while it waits for a shared lane */
    struct lane *exclusive;         /* NULL while the client uses shared lanes */
    struct profile *profile;
    size_t place; /* which of the profile's shared lanes is home */
    struct resp_command command;
    enum client_lookup lookup;
    bool command_whole;   /* `command` is a whole one at the head of the input, which has to wait */
    bool streaming;       /* `command` is a long one that goes out as it comes in */
    bool discarding;      /* … that was refused: it is thrown away instead */
    bool gathering;       /* … that is kept instead: policies do not know enough of it yet */
    bool stream_measured; /* the long one that goes out is the last of those that are measured */
    uint64_t foreseen;    /* the bytes by which they did not; 0: other ones, they are to be asked */
    bool lost;            /* the lane broke with requests under way: they are all lost */
    bool input_ended;     /* the client has closed its writing half */
    bool output_congested;
    bool deaf;             /* its connection was reset: what had come of its requests is carried out, for nobody */
    bool owes_identity;    /* the exclusive lane has yet to be told the client's name */
    bool fenced;           /* a fence was set ahead of the AUTH at hand */
    int64_t login_wait_us; /* since when the AUTH at hand waits for its lane; 0: it does not */
    bool gave_up;          /* the AUTH at hand has waited for a lane in vain */
    uint8_t heavy;         /* it did not keep up with its replies: keep it off the shared lanes for so many runs */
    uint8_t logins;        /* changes of its credentials since … */
    int64_t logins_since_us;
    struct session session;
    struct chain_record *held; /* the policies' record of the request at hand, while it waits */
    bool admitted;             /* the policies have passed it: they are not asked again */
    uint32_t ask_each;         /* so many of the next requests are put to the policies one by one */
    struct event hold_timer;   /* set while a policy holds a request */
    bool hold_timer_set;
    void *attachments[POLICIES_MAX]; /* what policies left with the client */
    uint32_t identity;               /* counts the changes of its user and its name */
    char *name;                      /* of CLIENT SETNAME, or NULL */
    char *library_name;              /* of CLIENT SETINFO, or NULL */
    char *library_version;
    struct sockaddr_storage address;
    char address_text[64];
    struct client_peer *peer; /* what is known of who is at the other end; NULL until a policy asks */
    /* What each read and each measured request look at lies together: with many clients that costs time. */
    int64_t read_us;           /* the turn in which something was read from it last */
    int64_t framed_us;         /* when the last byte of the request at hand was, as far as it has come */
    int64_t active_us;         /* last byte from or to the client */
    struct client_spans spans; /* requests that Redis has yet to answer, if they are measured */
    struct buffer arrivals;    /* when what is in the input was read; see client_arrival.c */
    uint64_t input_passed;     /* so many bytes were in the input before the first of those that are in it */
    struct client_note note;   /* the request at hand, if requests are measured */
    size_t arrival;            /* which of the arrivals the last one was that was asked for */
    STAILQ_HEAD(, client_unwritten) unwritten; /* measured requests whose replies were not written yet, in order */
    size_t unwritten_bytes;                    /* that these take */
    int64_t connected_us;                      /* the turn in which it came */
    int64_t accepted_us;                       /* it was connected by then, exactly */
    int64_t deaf_us;                           /* since when it is deaf */
    int64_t wait_since_us;
};

/* Output above this leaves the replies to Redis; see client_reply.c. Bytes. */
#define CLIENT_OUTPUT_MARK ((size_t)256 * 1024)
/* More than this, kept of requests under way, stops taking further ones, if replies are read. Bytes. */
#define CLIENT_QUEUE_MARK ((size_t)1024 * 1024)
/* Input above this stops reading from it. Bytes. */
#define CLIENT_INPUT_MARK ((size_t)64 * 1024)
/* The same behind a request that Redis may keep for ever. */
#define CLIENT_AHEAD_MARK ((size_t)1024 * 1024)
/* A longer name is left to Redis, and its client keeps the lane that has it. */
#define CLIENT_NAME_MAX ((size_t)200)

/* ---- client.c ---- */

/* Stops taking requests; closes when those under way are answered and the answers written. */
void client_finish(struct client *client);
/* Stops taking requests; forgets what is under way; closes when the output is written. why is logged at debug level. */
void client_end(struct client *client, const char *why);
/* Ends a client that Redis would not have any more: its credentials are refused, and no connection is left to it. */
void client_close_refused(struct client *client);
/* Closes now. */
void client_close(struct client *client, const char *why);
struct policy_client client_policy_view(struct client *client);
/* The client's user or name is (or may be) another one: the policies are told. */
void client_tell_identity(struct client *client);
/* Gives the client another name (empty: none). False when memory is short. */
bool client_rename(struct client *client, struct slice name);
/* Lets the request that a policy holds be asked about again. */
void client_end_hold(struct client *client);
/* Replaces *place by a copy of the text; an empty text means none. False when memory is short. */
bool client_keep_text(char **place, struct slice text);
struct observation *observation_take(struct client_service *service, enum observation_kind kind);
void observation_give(struct client_service *service, struct observation *observation);

/* ---- client_hangup.c ---- */

/* Whether Redis may wait for ever with a request that is observed so. */
bool session_kind_may_block(enum observation_kind kind);
/* Whether Redis may wait for ever with a request that is under way. */
static inline bool session_may_block(const struct client *client)
{
    return client->session.blocking > 0 || client->session.blocking_unseen;
}

/* The request is sent, and nothing will tell of its reply. */
void session_request_unseen(struct client *client, const struct observation *observation);
/* The request was not sent after all. observation may be NULL. */
void session_request_unsent(struct client *client, const struct observation *observation);

/*
 * The client has closed its writing half, or all, and requests wait that cannot be sent yet. If Redis may never answer
 * those that are under way, it is told of the end as it would be without Headgate. Harmless if there is nothing to do.
 */
void client_hung_up(struct client *client);
/*
 * The client's connection was reset. What it had sent before is carried out, as the end of its own side may have come
 * just before: the client stays without a connection, for a short while. If Redis may never be done with it, or if
 * there is nothing, it is closed now. why is logged then.
 */
void client_was_reset(struct client *client, const char *why);
/* Clients that are not read at the moment: in which of them to look for an end. count is 0 at first. */
struct client_unread {
    struct connection *connections[CONNECTION_ENDS_MAX];
    size_t count;
};
/* Looks for the client's end, if it is not read; at the latest with client_find_hangups(). */
void client_watch_unread(struct client_unread *unread, struct client *client);
void client_find_hangups(struct client_unread *unread);

/* ---- client_drain.c ---- */

/* While the process drains: closes the client if it is time to. Now and then, as long as it is OPEN. */
void client_drain(struct client *client, int64_t now_us);

/* ---- client_policy.c ---- */

/* What the policies of this worker may ask of it. */
struct policy_host client_policy_host(struct client_service *service, size_t worker);

/* ---- client_peer.c: as in struct policy_host ---- */

enum policy_peer_search client_find_peer(void *context, void *connection, bool process, struct policy_peer *peer);
bool client_peer_lives(void *context, const struct policy_peer *peer);
void client_forget_peer(void *context, void *connection);
bool client_look_at_peer(void *context, const struct policy_peer *peer);
enum policy_peer_search client_peer_has(void *context, void *connection, bool *has);
/* The name of this sidecar; NULL or empty: the machine's. */
void client_name_host(struct client_service *service, const char *name);

/* ---- client_script.c ---- */

/* Runs a script for a policy, see struct policy_host. */
void client_script_run(struct client_service *service, const struct policy_script *script);

/* ---- client_server.c ---- */

/* See struct policy_host. */
struct policy_server *client_server_change(struct client_service *service, struct policy_server *server,
                                           const struct policy_server_settings *settings);
/* For scripts on that server; NULL, and *why says why not, if it cannot be. */
struct control *client_server_control(struct policy_server *server, const char **why);
/* Ten times a second. */
void client_servers_tick(struct client_service *service, int64_t now_us);
/* STATS was asked for. */
void client_servers_update_counters(struct client_service *service);
/* The service has got other settings. */
void client_servers_reconfigure(struct client_service *service);
/* All of them, when the policies are gone. */
void client_servers_free(struct client_service *service);

/* ---- client_question.c ---- */

/* A policy answers: the question is void afterwards. */
void client_question_answer(struct policy_question *question, enum policy_answer kind, struct slice text);
/* Ten times a second: who has waited for too long is told so. */
void client_questions_tick(struct client_service *service, int64_t now_us);
/* The policies are gone: ends the questions that they have not answered. */
void client_questions_end(struct client_service *service);

/* ---- requests ---- */

struct client_batch;

/*
 * A request on its way: framed ─► looked up ─► admitted ─► routed ─► sent. It lies on the stack while it is taken; what
 * has to be known of one that waits is in its client.
 */
struct request {
    struct client_batch *batch;        /* its neighbours: those before it that were not sent yet */
    const struct resp_command *framed; /* how far it has come, and where its first arguments lie */
    struct slice frame;                /* in multibulk form: all of it, or what has come of a long one */
    struct slice sent;                 /* the bytes that Redis is to get in its place */
    const struct command *command;     /* NULL: it is not known */
    const struct chain_interest *interest;
    bool is_plain;   /* nothing has to be changed of it: it goes with its neighbours if nobody wants to see the reply */
    bool is_batched; /* it is in the batch, or in the group behind it */
};

/* How far a request was taken. */
enum client_outcome {
    CLIENT_TAKEN,
    CLIENT_WAITS,
    CLIENT_TAKEN_IN_PART /* what lies behind the end of the batch is to be taken anew */
};

/* So many requests are put to the policies together, at most. */
#define CLIENT_GROUP_MAX 64

/* One of them, or one between them that no policy wants. */
struct client_member {
    const struct command *command;
    size_t length; /* of its frame */
    int64_t received_us;
    uint32_t tag;
    bool is_asked; /* the policies are asked about it */
};

/* Requests that can be put to the policies together. */
struct client_group {
    uint32_t count; /* members; 0: there is no group */
    uint32_t asked; /* those that the policies are asked about; the first is one */
    struct request first;
    struct resp_command framed; /* … as it was framed */
    struct client_member members[CLIENT_GROUP_MAX];
};

/* A part that has so many bytes gets no more. */
#define CLIENT_PART_MAX ((size_t)64 * 1024)

/* Requests that are measured together: one behind the other in a batch, under one tag. */
struct client_part {
    const char *data;
    size_t length;
    size_t longest; /* a longer request is measured by itself */
    int64_t received_us;
    uint32_t count; /* 0: there is none, or it was closed */
    uint32_t tag;
};

/* Whole ordinary requests that lie one behind the other and were not sent yet. */
struct client_batch {
    const char *data;
    size_t length;
    uint32_t requests;
    struct lane *lane;
    struct slice name;             /* of the last request that was looked at … */
    const struct command *command; /* … and its command */
    struct client_group group;     /* those behind it that the policies have yet to admit */
    struct client_part part;       /* those at its end that are measured together */
};

/* The requests of the batch, with those that are still to be admitted. */
static inline uint32_t client_batch_count(const struct client_batch *batch)
{
    return batch->requests + batch->group.count;
}

/* What the policies want of a command (NULL: an unknown one). */
static inline const struct chain_interest *client_interest(const struct client_service *service,
                                                           const struct command *command)
{
    return &service->interests[command != NULL ? command_index(command) : command_count()];
}

/* ---- client_input.c ---- */

/* The callback of a client's connection. */
void client_readable(evutil_socket_t fd, short what, void *context);
/* Whether the socket should be read; to be called after whatever may have changed it. */
void client_update_reading(struct client *client);
/* Whether requests are taken now: what is in the input then is the beginning of one. */
bool client_may_take(const struct client *client);
/* Takes the requests of the client's input; to be called when what they waited for has come. */
void client_resume(struct client *client);

/* ---- client_request.c ---- */

/* Takes the whole request at data, which was framed. */
enum client_outcome client_take_whole(struct client *client, struct client_batch *batch, const char *data);
/* The same for the beginning of one, or for one that has a fault. TAKEN: all that has come of it was. */
enum client_outcome client_take_beginning(struct client *client, struct client_batch *batch, const char *data,
                                          enum resp_status status);
/* Puts the group behind the batch to the policies: those that they admit belong to the batch, the others are refused.
 * Harmless without one. WAITS is never given. */
enum client_outcome client_end_group(struct client *client, struct client_batch *batch);
/* Puts a request to the policies, unless they have passed it already or do not care. True: go on with it; *outcome is
 * set otherwise. */
bool client_admit(struct client *client, struct request *request, enum client_outcome *outcome);
/* What policies are told of a request. */
struct policy_request client_describe(struct client *client, const struct policy_client *view,
                                      const struct request *asked);

/* ---- client_plan.c ---- */

enum session_answer {
    SESSION_FORWARD,     /* to the lane in *plan */
    SESSION_ANSWER_HERE, /* plan->text is the reply (empty: none) */
    SESSION_LATER,       /* to be planned again when the client's requests are answered */
    SESSION_REFUSE,      /* the same, in place of what Redis would do: it spoils a transaction */
    SESSION_CLOSE        /* close the client without a word; plan->text says why */
};

/* How a request is to be handled. */
struct session_plan {
    enum session_answer answer;
    bool exclusive;     /* needs an exclusive lane */
    bool own_writes;    /* WAIT: the lane of the client's last request, or a lane that saw a command after it */
    bool last;          /* the client is closed after the answer (QUIT) */
    bool silent;        /* Redis will not answer this request */
    bool silences;      /* nor those behind it (CLIENT REPLY OFF) */
    bool silences_next; /* nor the one behind it (CLIENT REPLY SKIP) */
    bool identity;      /* the lane should carry all that the client said of itself */
    bool tunnel;        /* from this request on */
    bool sync;          /* if Redis accepts it, what comes from there is no longer RESP */
    bool sticky;        /* from this request on */
    bool dirty;         /* the lane is for nobody else after this request */
    bool unsure;        /* from this request on */
    bool names_client;  /* it makes the client somebody else */
    bool barrier;       /* nothing may follow until it is answered */
    bool logs_in;       /* AUTH, and HELLO with it: see client_login.c */
    bool begins_transaction;
    bool ends_transaction;
    struct observation *observation;
    char text[256];
};

/* What a whole multibulk command needs. arguments: the first RESP_ARGUMENTS_KEPT at most. False when memory is short.
 */
bool session_plan_request(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan);
/* The same for CLIENT. */
bool session_plan_client(struct client *client, const struct resp_command *framed, const char *frame,
                         struct session_plan *plan);
/* Has the plan ask for an exclusive lane, on which the reply is watched. False when memory is short. */
bool session_observe(struct client *client, struct session_plan *plan, enum observation_kind kind);

static inline struct slice session_kept_argument(const struct resp_command *framed, const char *frame, size_t index)
{
    const struct resp_argument *argument = &framed->arguments[index];

    return (struct slice){frame + argument->offset, (size_t)argument->length};
}

/* The request of the plan is not sent: gives back what the plan has. */
void session_drop_plan(struct client *client, struct session_plan *plan);

/* ---- client_stream.c ---- */

/* Whether the command that is under way is one of those. */
bool client_is_long(const struct client *client);
/* Whether Redis would not read this whole command, in multibulk form, as the client has not authenticated. */
bool client_is_beyond_strangers(const struct client *client, const struct resp_command *framed, struct slice frame);
/*
 * Begins to send it: on an exclusive lane, as it comes. Some commands are held whole all the same. frame: all that came
 * of it. True: that was taken; false: not now, or not at all.
 */
bool client_begin_stream(struct client *client, struct client_batch *batch, const char *frame);
/* Refuses a request whose beginning was kept before it was known that Redis wants a password of the client. */
void client_review_beginning(struct client *client);
/* Sends on what has come of it, or throws it away. Returns the bytes taken. */
size_t client_continue_stream(struct client *client, const char *data, size_t length);

/* ---- client_lookup.c ---- */

/* The command of a whole name in *command, NULL if it is not known (client->lookup says more then). False: Redis is
 * asked, and the client waits. */
bool client_find_command(struct client *client, struct slice name, const struct command **command);

/* ---- client_name.c: frame is the whole command in multibulk form, or what has come of it ---- */

/* Whether enough of the name has come to judge it. */
bool client_name_is_there(const struct resp_command *framed, struct slice frame);
/* Whether the name, or that of a subcommand, has a NUL in it: it must not reach Redis. command: NULL if unknown. */
bool client_name_is_hidden(const struct command *command, const struct resp_command *framed, struct slice frame);
/* Answers as Redis does when it does not find the name. */
void client_refuse_name(struct client *client, const struct command *command, const struct resp_command *framed,
                        struct slice frame);

/* ---- client_answer.c ---- */

/* Answers the request at hand with a policy's text. */
void client_refuse(struct client *client, const struct policy_decision *decision);
/* Tells the policies what became of the request at hand, if they want to know. */
void client_end_record(struct client *client, enum policy_outcome outcome);
/* Answers it with the plan's text. */
void client_answer_plan(struct client *client, const struct session_plan *plan);
/* Answers it with the error that Redis is away. */
void client_answer_unreachable(struct client *client, const struct lane *lane);
/* Answers with the fault that was found in the command, and takes no more requests. */
void client_protocol_error(struct client *client);

/* ---- client_route.c ---- */

/* Whether it cannot use shared lanes now, whatever its requests are. */
bool client_needs_exclusive(const struct client *client);
/* The lane for requests that need nothing special, or NULL if that cannot be said without a closer look. */
struct lane *client_plain_lane(struct client *client);
/* The lane for this request in *lane. False: the client has to wait, or is closed. */
bool client_choose_lane(struct client *client, const struct session_plan *plan, struct lane **lane);
/* Makes sure that the client has an exclusive lane. False: it has to wait, or is closed. */
bool client_enter_exclusive(struct client *client, const struct session_plan *plan);
/* A whole request that the policies have admitted: has it sent, or answered. */
enum client_outcome client_route(struct client *client, const struct request *request);

/* ---- client_send.c ---- */

/* Closes the client; always false. */
bool client_out_of_memory(struct client *client);
/* Puts the next request off; always false. */
bool client_wait_for(struct client *client, enum client_wait what);
/* Whether Redis' answer to this request cannot be waited for. */
bool client_has_no_answer(const struct client *client, const struct session_plan *plan);
/* Sends the request at hand, or its beginning. False when memory is short. */
bool client_forward(struct client *client, struct lane *lane, const struct request *request, struct session_plan *plan);
/* There are none: all that matters of such a batch is set, as most of it is large and seldom used. */
void client_batch_empty(struct client_batch *batch);
/* Whether the request at data can go with the batch, or begin one: there is a lane for it. */
bool client_batch_begin(struct client *client, struct client_batch *batch, const char *data);
/* Adds the next request. False when memory is short: the client was closed. */
bool client_batch_add(struct client *client, struct client_batch *batch, struct slice frame);
/* Sends the batch and empties it; the group behind it is left as it is. False when memory is short: the client was
 * closed. */
bool client_batch_send(struct client *client, struct client_batch *batch);

/* ---- client_login.c ---- */

/* Whether the plan's request is one that Redis answers, and that is to have its lane to itself until then. */
bool client_login_is_watched(const struct client *client, const struct session_plan *plan);
/* The lane for such a request in *lane. False: the client has to wait, or is closed. */
bool client_login_lane(struct client *client, const struct session_plan *plan, struct lane **lane);
/* Whether such a request has waited in vain for a lane: it is to be answered by an error. */
bool client_login_was_given_up(const struct client *client);
/* Forgets its lane, and that it waited. */
void client_login_end(struct client *client);
/* Redis has taken other credentials on a lane that knew none: it is told what else it lacks. False when memory is
 * short: the client was closed. */
bool client_login_done(struct client *client, const struct observation *observation);
/* Ten times a second: clients whose login is not answered in time, or waits for a lane in vain. */
void client_login_tick(struct client *client, int64_t now);
/* Whether Redis has owed the answer for so long that an end of the client is not waited with any more. */
bool client_login_is_slow(const struct client *client);

/* ---- client_session.c ---- */

/* The request was sent (or answered here): brings the view of what was sent up to date. */
void session_request_sent(struct client *client, const struct session_plan *plan);
/* A reply to an observed request, or a push, has ended: true if it answers the request. */
bool session_reply(struct client *client, struct observation *observation, const struct resp_reply *reply);

/* ---- client_lane.c ---- */

/* Whether the exclusive lane can be given back. Only meaningful when nothing is under way. */
bool session_is_clean(const struct client *client);
/* Whether rules could be asked about somebody else than who the client is to Redis: there are rules, and that can no
 * longer be told. Such a client is closed. */
bool session_is_doubtful(const struct client *client);
#define SESSION_DOUBTFUL "who it is to Redis cannot be told, and there are rules"
/* Whether the lane has nothing that another one, of the client's profile and name, would lack. Only meaningful when
 * nothing is under way. */
bool session_is_portable(const struct client *client);
/* The client was told the id of its lane, which it keeps for client_id_timeout; a second lane for life. */
void session_id_was_told(struct client *client);
/* Somebody may count on the id by now (CLIENT UNBLOCK, REDIRECT): if the client was told it, it keeps the lane for
 * life. */
void session_id_is_used(struct client *client);
/* Gives the lane back if the time of its id is over and nothing else keeps it. Now and then. */
void session_review_id(struct client *client, int64_t now_us);
/* Why the client has an exclusive lane, for CLIENTS. */
const char *session_reason(const struct client *client);
/* Gives the exclusive lane back or closes it. */
void session_leave_lane(struct client *client);
/* Whether the lane of the client's last request can become its exclusive one (for WAIT). */
bool session_may_take_home_lane(const struct client *client);
/* Takes one, giving it the client's name. With requests under way: only if it may take the home lane, which it takes
 * then. False when memory is short. */
bool session_take_lane(struct client *client, const struct session_plan *plan);
/* The same for AUTH: one that was told nothing yet, as Redis refuses the client's credentials to those who come. */
bool session_take_bare_lane(struct client *client);
/* Tells the exclusive lane the client's name, and its library if whole. False when memory is short. */
bool session_give_identity(struct client *client, bool whole);
extern const struct lane_owner session_lane_owner;

/* ---- client_channels.c ---- */

/* Takes note of any confirmation of a subscription or of its end, whatever asked for it. True if it is one. */
bool session_note_confirmation(struct client *client, const struct resp_reply *reply);
/* Whether the frame answers no request: a push, a message, or a confirmation among them. */
bool session_is_push(struct client *client, const struct resp_reply *reply);
/* True when the last confirmation that this request is owed has come, or anything that is none. */
bool session_replied_subscription(struct client *client, struct observation *observation,
                                  const struct resp_reply *reply);

/* ---- client_arrival.c ---- */

/* What was read just now is in the input, at its end. */
void client_arrived(struct client *client);
/* So many bytes are about to leave the head of the input. */
void client_input_passed(struct client *client, size_t length);
/* When the byte before that place in the input came, if there are arrivals: within a ms, or 3 % of the time since the
 * first of them. */
int64_t client_arrival_of(struct client *client, const char *end);

/* ---- client_measure.c: all of it only where requests are measured ---- */

/* Notes the request at hand, unless it was noted already, as long as it is now: when it came, and under which tag. */
void client_note(struct client *client, const struct request *request);

/* It has neither been sent nor answered so that it counts. */
static inline void client_note_end(struct client *client)
{
    client->note.taken = false;
}

/* It waits, and where it lay may be used otherwise. */
static inline void client_note_aside(struct client *client)
{
    client->note.frame = (struct slice){0};
}

/* It is sent by itself, as that frame, and its reply will come. False when memory is short. */
bool client_measure_sent(struct client *client, struct slice frame);
/* The same as one of a batch that will be sent: it joins the part, or begins another. False when memory is short. */
bool client_measure_batched(struct client *client, struct client_part *part, struct slice frame);
/* The same without being noted, if no policy is asked about it or shown it. False: it is to be noted. */
bool client_measure_plain(struct client *client, struct client_part *part, const struct chain_interest *interest,
                          struct slice frame);

/* Whether such a request is of the part, to which it is added then. */
static inline bool client_part_takes(struct client_part *part, int64_t received_us, uint32_t tag, size_t length)
{
    if (part->count == 0 || part->tag != tag || part->received_us != received_us || length > part->longest ||
        part->length > CLIENT_PART_MAX) {
        return false;
    }
    part->length += length;
    part->count++;
    return true;
}

/* The same as client_measure_plain(), if the part goes on: all but the first requests of a pipeline come here. */
static inline bool client_measure_joins(struct client *client, struct client_part *part,
                                        const struct chain_interest *interest, size_t length)
{
    struct client_service *service = client->service;

    if (client->note.taken || interest->wanted != 0 || service->until_spot == 1 ||
        !client_part_takes(part, client->framed_us, interest->tag, length)) {
        return false;
    }
    service->until_spot--;
    return true;
}

/* Closes a part: what it says is kept. False when memory is short. */
bool client_measure_part(struct client *client, struct client_part *part);
/* All that is kept of those that were not answered or not written yet. Bytes. */
size_t client_measure_kept(const struct client *client);
/* The size of what is kept of those under way. */
size_t client_measured(const struct client *client);
/* The rest of the last one has come by now: it has so many bytes. */
void client_measure_grown(struct client *client, uint64_t bytes);
/* How many replies to the first of them may be told of together if they have ended by then, and what they were. */
struct run_tally client_measure_tally(struct client *client, int64_t answered_us);
void client_measure_replies(struct client *client, const struct run_tally *tally, int64_t answered_us);
/* So many of them, from the first on, will have none. */
void client_measure_lost(struct client *client, uint32_t requests);
/* The request at hand was answered by Headgate. */
void client_measure_local(struct client *client, bool is_error, size_t length);
/* All replies up to now were written to the client, or never will be. */
void client_measure_written(struct client *client, bool is_written);
/* Nobody waits for replies any more. */
void client_measure_end(struct client *client);

/* ---- client_reply.c ---- */

extern const struct run_receiver client_run_receiver;

/* Bytes for the client right now, behind everything given before. Borrowed bytes must stay valid until the client was
 * written in this stage of the turn. */
void client_output(struct client *client, const char *data, size_t length, bool borrowed);
/* An answer of Headgate's own, in its place behind the requests under way. False when memory is short. */
bool client_answer(struct client *client, const char *text, size_t length, struct chain_record *record);
/* Appends a run to the requests under way. */
void client_queue_run(struct client *client, struct run *run);
/* A push has gone out as a whole: answers that came meanwhile may follow. */
void client_push_ended(struct client *client);
/* To be called when more, or less, is kept of the requests under way, or when that matters more, or less. */
void client_check_room(struct client *client);
/* Takes all runs off the client: those on a lane stay there ownerless. */
void client_drop_runs(struct client *client);
void client_want_flush(struct client *client);
void client_flush_task(struct reactor_task *task);

#endif
