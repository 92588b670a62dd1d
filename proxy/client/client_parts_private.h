/* What a client consists of, what all clients of a worker share, and a request on its way. */
#ifndef HEADGATE_CLIENT_PARTS_PRIVATE_H
#define HEADGATE_CLIENT_PARTS_PRIVATE_H

#include "client/client.h"

#include "base/log.h"
#include "client/client_state.h"
#include "client/spans.h"
#include "topology/cluster_command.h"

enum client_state {
    CLIENT_OPEN,
    CLIENT_ENDING, /* takes no more requests; closed once what is due was written */
    CLIENT_CLOSED  /* to be freed at the end of the loop iteration */
};

/* Why the next request is not taken yet. */
enum client_wait {
    CLIENT_WAIT_NOTHING,
    CLIENT_WAIT_QUIET, /* until the requests under way are answered: the next one goes another way */
    CLIENT_WAIT_LANE,  /* until the lane takes bytes (again) */
    CLIENT_WAIT_ROOM,  /* until less is kept of those under way */
    CLIENT_WAIT_NAME,  /* until Redis has told which command it is … */
    CLIENT_WAIT_KEYS,  /* … or where its keys are */
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

/* What Redis has told of the keys of the request at hand, which only it finds. */
enum client_asked {
    CLIENT_ASKED_NOT,
    CLIENT_ASKED_UNDER_WAY,
    CLIENT_ASKED_NO_KEY,
    CLIENT_ASKED_PLACE, /* all of them are of asked_place */
    CLIENT_ASKED_SPLIT, /* they are of several places */
    CLIENT_ASKED_UNSAID
};

/* Whether a client wants to be told when it is to go elsewhere. */
enum client_moving {
    CLIENT_MOVING_UNASKED,
    CLIENT_MOVING_BACK,   /* it asked, and goes back to where it came from */
    CLIENT_MOVING_ADDRESS /* … and goes where it is told to */
};

struct client_service {
    struct reactor *reactor;
    struct run_pool *runs;
    struct spans_pool spans;
    struct upstream *upstream;
    struct cluster_ways *cluster;        /* to the nodes; NULL: there is one Redis, at the upstream */
    struct replica_ways *replicas;       /* of the master at the upstream; NULL: none can be known */
    uint8_t *readings;                   /* of each command: enum client_reading; NULL: there are no replicas */
    bool reads;                          /* replicas are read from */
    bool looks_further;                  /* requests of one client may be for different nodes */
    size_t much_held;                    /* memory is short, and this is much for a client; 0: it is not … */
    int64_t short_since_us;              /* … since when; see client_memory.c … */
    int64_t relieved_us;                 /* … and when that was looked at last */
    const struct run_receiver *receiver; /* of the clients' runs */
    bool *short_ways;                    /* see client_cluster_short_ways(); NULL: there is no cluster */
    struct control *control;
    struct server_info *server_info;
    struct client_settings settings;
    struct chain *chain;
    const struct chain_interest *interests; /* of commands, in the order of their table; see client_interest() */
    struct policy_host host;
    char host_name[CONF_HOST_NAME_MAX + 1];
    char server_name[CONF_RULE_NAME_MAX + 1];
    struct peer_finder *peer_finder;        /* NULL until a policy asks for a process */
    LIST_HEAD(, admin_query) admin_queries; /* those that policies have not answered yet */
    LIST_HEAD(, policy_server) servers;     /* that policies have for themselves, or have left lately */
    struct stats server_stats;              /* where the lanes to them are counted */
    struct admission *admission;            /* whom the configuration knows and lets in */
    struct profile **arrivals;              /* by identity: its credentials' profile, or NULL */
    struct log_limiter denials;             /* of clients that are not let in */
    bool has_moves;                         /* clients may have to move to other credentials */
    bool ends_scripts;                      /* on those servers: the process ends */
    struct expected_reply *free_expected_replies;
    LIST_HEAD(, client) clients; /* the newest first */
    LIST_HEAD(, client) closed;  /* to be freed at the end of the loop iteration */
    struct reactor_task free_closed;
    struct buffer inline_command; /* the multibulk form of the inline command at hand */
    size_t count;
    int64_t paused_until_us; /* a client of this worker has asked Redis to pause: a request may block its connection */
    const struct policy_attention *attention;
    uint32_t until_spot;                           /* requests until the next that is shown to who measures … */
    uint32_t spot_chance;                          /* … and what that was drawn from */
    struct log_limiter tls_failures[TLS_FAILURES]; /* by enum tls_failure */
    struct log_limiter tls_unexpected;
    struct log_limiter proxies_unexpected;
    bool draining;
    int64_t draining_since_us;
    uint64_t move;        /* see client_service_drain() and client_service_offer_move(); 0: there is none … */
    uint32_t offers_left; /* … and so many may be told of it at this tick */
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

/* Bytes that are kept of requests under way. */
struct client_kept {
    size_t records; /* runs, and what belongs to them */
    size_t texts;   /* answers, or parts of such, that wait for their turn */
};

/* Texts, buffers, the runs in its queue, its lane and what else it has made are its own, until it is CLOSED; of its
 * profile it is one client. Not its own, and only as long as said: lane_in_use, which is not followed without requests
 * under way; ways, which stay as long as a lane leads there; who, until the service has another admission. */
struct client {
    struct client_service *service;
    LIST_ENTRY(client) of_service;
    uint64_t id;
    enum client_state state;
    enum client_wait wait;
    bool is_secure; /* it speaks TLS, and its handshake is done */
    struct connection connection;
    struct reactor_task flush;
    struct buffer input;  /* bytes from the start of the first request that was not taken yet */
    struct buffer output; /* bytes that the client's socket did not take yet */
    const char *borrowed; /* replies in a lane's scratch memory, behind the output; see client_reply.c */
    size_t borrowed_length;
    struct run *first, *last;       /* requests under way, in order */
    uint32_t in_flight;             /* requests in them */
    uint32_t sent_runs;             /* runs of them that are in a lane's queue */
    struct client_kept kept;        /* of those under way */
    struct lane *lane_in_use;       /* the lane of those; requests under way are never on two lanes */
    uint64_t last_lane_id;          /* where the last request went; WAIT wants to know */
    uint64_t told_lane_id;          /* the lane whose id in Redis it was told last; 0: none */
    struct lane_waiter lane_waiter; /* while it waits for a lane */
    struct lane *exclusive;         /* NULL while the client uses shared lanes */
    struct profile *profile;        /* at the home upstream; see client_profile_at() */
    /* In a cluster: */
    const struct cluster_way *exclusive_way; /* where the exclusive lane is; NULL: home */
    size_t last_way;                         /* where the last request went: the number of the way + 1; 0: home */
    uint64_t routed_changes;                 /* of the ways, when those under way were routed */
    uint64_t written;                        /* to which nodes it has written, for WAIT: see client_written.c … */
    uint64_t written_freed;                  /* … and how many ways had gone by then */
    bool waits_for_nodes : 1;                /* all that is under way is a WAIT of several: see client_spread.c */
    struct client_channels *channels;        /* the names that it has subscribed to; NULL: none */
    struct client_subscriber *subscriber;    /* its subscriptions, where they have lanes of their own; NULL: none */
    struct client_deferred *deferred;        /* what was said in MULTI before its first key; NULL: nothing */
    enum client_asked asked;                 /* see client_asked.c */
    uint16_t asked_place;                    /* a slot; where there is no cluster, the number of a server's way + 1 */
    struct client_question *question;        /* under way; NULL: none is */
    struct client_redirects *redirects;      /* those that nodes have sent elsewhere; NULL: none */
    /* Where replicas may be read from: */
    size_t reads_at;          /* the number of the way that it reads from; 0: none yet */
    enum conf_reads reads_by; /* who may answer what is under way, if that is at replicas */
    bool at_replicas;         /* in a cluster: all that is under way is at replicas, else at masters */
    bool wrote;               /* what may write is under way, or was lately … */
    int64_t wrote_us;         /* … and was answered then; 0: never */
    int64_t late_us;          /* since when what there is for it is late: see client_late.c; 0: it is not */
    struct resp_command command;
    enum client_lookup lookup;
    bool command_whole;   /* `command` is a whole one at the head of the input, which has to wait */
    bool streaming;       /* `command` is a long one that goes out as it comes in */
    bool discarding;      /* … that was refused: it is thrown away instead */
    bool gathering;       /* … that is kept instead: policies do not know enough of it yet */
    bool stream_measured; /* the long one that goes out is measured: it is the last of the last run */
    uint64_t foreseen;    /* the bytes by which they did not; 0: other ones, they are to be asked */
    bool lost;            /* the lane broke with requests under way: they are all lost */
    bool input_ended;     /* the client has closed its writing half */
    bool output_congested;
    bool deaf;             /* its connection was reset: what had come of its requests is carried out, for nobody */
    bool owes_identity;    /* the exclusive lane has yet to be told the client's name */
    bool fenced;           /* a fence was set ahead of the AUTH at hand */
    int64_t login_wait_us; /* since when the AUTH at hand waits for its lane; 0: it does not */
    bool gave_up;          /* the AUTH at hand has waited for a lane in vain */
    uint8_t heavy;  /* it did not keep up with its replies: keep it off the shared lanes for so many runs, or ticks of
                       rest */
    uint8_t logins; /* changes of its credentials since … */
    int64_t logins_since_us;
    struct session session;
    struct chain_record *held; /* the policies' record of the request at hand, while it waits */
    bool admitted;             /* the policies have passed it: they are not asked again */
    uint32_t ask_each;         /* so many of the next requests are put to the policies one by one */
    struct event hold_timer;   /* set while a policy holds a request */
    bool hold_timer_set;
    bool dropped_if_gone;            /* what a policy holds is not done when it has gone (drops_who_leaves) */
    bool is_proxied;                 /* somebody has passed it on, whose socket ours is connected to */
    bool gave_user;                  /* it has authenticated by itself, and not said RESET since */
    uint32_t listener;               /* where it came: conf_listener_at() */
    void *attachments[POLICIES_MAX]; /* what policies left with the client */
    uint32_t identity;               /* counts the changes of its user and its name */
    char *name;                      /* of CLIENT SETNAME, or NULL */
    char *library_name;              /* of CLIENT SETINFO, or NULL */
    char *library_version;
    struct sockaddr_storage address;
    char address_text[64];
    struct client_peer *peer; /* what is known of who is at the other end; NULL until a policy asks */
    /* What each read and each measured request look at lies together: with many clients that costs time. */
    int64_t read_us;             /* the loop iteration in which something was read from it last */
    int64_t framed_us;           /* when the last byte of the request at hand was, as far as it has come */
    int64_t active_us;           /* last byte from or to the client */
    struct spans *waiting_spans; /* measured requests that are sent next; NULL: none */
    size_t measured;             /* bytes that the spans of requests under way take beside their runs */
    struct buffer arrivals;      /* when what is in the input was read; see client_arrival.c */
    uint64_t input_passed;       /* so many bytes were in the input before the first of those that are in it */
    struct client_note note;     /* the request at hand, if requests are measured */
    size_t arrival;              /* which of the arrivals the last one was that was asked for */
    struct client_unwritten_list unwritten; /* measured requests whose replies are written next, in order */
    size_t unwritten_bytes;                 /* that these take, and those whose replies are behind others */
    int64_t connected_us;                   /* the loop iteration in which it came */
    int64_t accepted_us;                    /* it was connected by then, exactly */
    int64_t deaf_us;                        /* since when it is deaf */
    int64_t wait_since_us;
    enum client_moving moving;       /* see client_moving.c … */
    int64_t told_us;                 /* … when it was told, … */
    uint64_t told_move;              /* … and of which move; 0: it was not */
    const struct identity *who;      /* of the admission; NULL: none */
    struct identity_peer *unix_peer; /* NULL: not asked for, or there is none */
};

/* Output above this leaves the replies to Redis; see client_reply.c. Bytes. */
#define CLIENT_OUTPUT_MARK ((size_t)256 * 1024)
/* More than this, kept of requests under way, stops taking further ones, if replies are read. Bytes. */
#define CLIENT_QUEUE_MARK ((size_t)1024 * 1024)
/* Input above this stops reading from it. Bytes. */
#define CLIENT_INPUT_MARK ((size_t)64 * 1024)
/* The same behind a request that Redis may keep for ever, or that a policy drops with its client. */
#define CLIENT_AHEAD_MARK ((size_t)1024 * 1024)
/* A longer name is left to Redis, and its client keeps the lane that has it. */
#define CLIENT_NAME_MAX ((size_t)200)

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

#endif
