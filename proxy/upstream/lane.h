/*
 * A lane: one connection to Redis with the queue of runs whose replies are to come.
 *
 *   lane_send ──► output ──(turn end)──► Redis ──► lane_readable ──► first run of the queue ──► its receiver
 *
 * A shared lane carries whole requests of many clients; bytes that answer no request mean that somebody could get
 * another's reply, and close it at once; pushes alone say by themselves that they are nobody's, and are dropped. An
 * exclusive lane has one owner, who also gets what answers no request (pushes). States are changed by lane_move() only:
 *
 *   CONNECTING ─► HANDSHAKE ─► READY
 *       ▲ └───────────┴──────────┴──► BACKOFF (runs of which nothing was sent wait here) or CLOSED
 *       └──────────────────────────────┘
 */
#ifndef HEADGATE_LANE_H
#define HEADGATE_LANE_H

#include "net/connection.h"
#include "upstream/run.h"

enum lane_state { LANE_CONNECTING, LANE_HANDSHAKE, LANE_READY, LANE_BACKOFF, LANE_CLOSED };

enum lane_use {
    LANE_SHARED,    /* many clients of one profile */
    LANE_EXCLUSIVE, /* of its owner */
    LANE_POOLED     /* exclusive, clean, without owner */
};

/* Of what was gathered: it may be held, is held for one turn, or is written in this one. */
enum lane_hold { LANE_FREE, LANE_HELD, LANE_DUE };

/* The id of a node of a cluster, and a '\0'. */
#define LANE_NODE_ID_MAX 41

/* What every lane of a worker has in common; must outlive them. Times in ms. */
struct lane_settings {
    const struct connection_targets *targets; /* where Redis is; may change, see lane_follow_targets() */
    const char *target_text;                  /* for logs and errors */
    struct connection_tuning tuning;
    struct tls_context *tls; /* NULL: without TLS */
    const char *host;        /* of the server in its address, for TLS */
    bool wants_master;       /* who says of itself that it is a replica is refused; READONLY errors are told of */
    /* Of a node of a cluster: each new connection is asked for the node's id, and is not used unless this says that the
     * node at target_text may have it; empty: it is no node of any cluster, as it says. NULL: nobody is asked. */
    bool (*may_have_id)(void *context, const char *target_text, struct slice id);
    void *id_context;
    int64_t connect_timeout; /* for all targets together */
    int64_t reconnect_min;
    int64_t reconnect_max;
    int64_t reply_timeout; /* 0: none */
    bool follows;          /* errors may be redirects: what was sent is kept until it is answered */
    bool gives_back;       /* of those that follow: what is not answered when the lane ends goes back to who sent it */
    struct stats *stats;   /* where lanes are counted */
};

/* What is expected back to the greeting: the bytes that are said first, so that a connection stands in for a client. */
struct lane_greeting {
    uint32_t replies;
    bool has_tail;        /* the last reply is to a HELLO, which shows that Redis takes the connection, and may fail */
    bool has_credentials; /* its first command says them */
    bool password_known;  /* NOAUTH is a failure, not a finding */
    bool resp3;           /* it begins with HELLO 3 */
    bool asks_id;         /* the last reply, or the one before that of the tail, is the id of the node */
};

struct lane;

/* What the one above wants to know. All calls come from within the event loop; a lane must not be freed in them. */
struct lane_events {
    /* What a connection that was just made is told: asked for whenever there is one, as it may be another by then. The
     * text may be anybody's: it is written at once, and not kept. */
    struct lane_greeting (*greeting)(const struct lane *lane, struct slice *text);
    /* The connection is made (ready) or this attempt failed (why). */
    void (*ready)(struct lane *lane);
    void (*failed)(struct lane *lane, const char *why);
    /* A ready lane breaks, with requests that were under way on it. Nothing of what follows from that has been done. */
    void (*broken)(struct lane *lane, const char *why, uint64_t requests);
    /* Redis answered NOAUTH to the greeting. True: the owner is to hear that himself, as the lane is ready; false: it
     * was closed, or parked. */
    bool (*needs_password)(struct lane *lane);
    /* What has come holds a READONLY error, or looks like it; with wants_master only. */
    void (*readonly)(struct lane *lane);
    /* The lane is CLOSED and its queue empty; why is one line for a person. The last call for this lane. */
    void (*closed)(struct lane *lane, const char *why);
};

/* The owner of an exclusive lane. */
struct lane_owner {
    bool listens; /* it waits for pushes, whatever the lane knows of that */
    /* Bytes that arrived while no run was waiting, or that belong to a push. */
    void (*bytes)(void *owner, const char *data, size_t length);
    /* The end of a frame that answers no run, or of one that might be a push though runs wait: true if it is one. */
    bool (*frame)(void *owner, const struct resp_reply *reply);
    /* The lane broke. Its runs have been told before; the owner must let go of the lane. */
    void (*broken)(void *owner, const char *why);
    /* The server is to be left, and the lane has nothing under way. True: there is nothing that only this connection
     * has, and the owner has let go of it; the lane was released. May be NULL: it never has. */
    bool (*leave)(void *owner);
    /* What it leads to is not to be waited for any more by all who do; it is not READY. What waits on it may go along
     * to where it belongs by now: upstream_carry_exclusive(). May be NULL: it goes on waiting. */
    void (*reroute)(void *owner);
};

/* For an exclusive lane on which nothing but replies is waited for. The owner is where its address is (struct lane **);
 * what answers nothing makes it dirty. A lane that has broken was told of to its runs alone. */
extern const struct lane_owner lane_unheard_owner;
/* What it consists of, for those who do the same, and some more: their owner begins with that address. */
void lane_unheard_bytes(void *owner, const char *data, size_t length);
bool lane_unheard_frame(void *owner, const struct resp_reply *reply);
void lane_unheard_broken(void *owner, const char *why);

/* Somebody who waits for a lane to take bytes (again), for one lane at a time; embedded in who waits. */
struct lane_waiter {
    LIST_ENTRY(lane_waiter) of_lane;
    struct lane *lane; /* that it waits for; NULL: none */
    void (*wake)(struct lane_waiter *waiter);
};

/* What belongs to the connection that there is, or was last: a new one begins with nothing of it but its target, and
 * whoever takes a connection over has all of it. What the owner has made of the lane is the lane's own, as that may be
 * said before there is a connection. */
struct lane_link {
    struct connection_target target;
    int64_t retired_us; /* since when the target is none of those any more: see upstream_set_targets(); 0: it is one */
    struct lane_greeting greeting;
    uint32_t greetings_left;
    uint8_t role_matched;           /* of the words in the greeting that a replica says of itself */
    bool is_replica;                /* the server says so of itself, where a master is wanted */
    bool asked_again;               /* HELLO was not understood: PING was asked in its place */
    bool refused;                   /* Redis did not take the credentials */
    bool may_not_ask_id;            /* the user may not ask for the node's id, as Redis has said to the greeting */
    bool has_node_id;               /* may_have_id was asked, and node_id is … */
    char node_id[LANE_NODE_ID_MAX]; /* … what the node has told; "": it is no node of any cluster */
    bool resp3;                     /* it speaks RESP3: pushes may come that nobody here has asked for */
    bool swallows;                  /* the frame that is coming in is such a push, which nobody gets */
    bool outdated;                  /* it has said a password that its profile has no more */
    bool is_left;                   /* retired at once: see upstream_move() */
    bool taken_over;                /* it was another lane's */
    bool is_proven;                 /* Redis has let it in, and keeps it in should it want a password later */
    bool is_near;                   /* an answer has come at once */
    bool takes_nothing;             /* it cannot be written any more: what Redis had said before is read, and it ends */
};

/* Reactor, runs, settings and events outlive it. It references its profile (context) until it is CLOSED. Its owner lets
 * go of it, or is told that it broke, and the lane points to nobody then. Its buffers alone are its own. */
struct lane {
    struct reactor *reactor;
    struct run_pool *runs;
    const struct lane_settings *settings;
    const struct lane_events *events;
    LIST_ENTRY(lane) of_upstream; /* the upstream's … */
    void *context;                /* the upstream's: the profile this lane speaks for */
    LIST_ENTRY(lane) of_pool;     /* … of those that are pooled, or closed */
    uint64_t id;
    enum lane_state state;
    enum lane_use use;
    const struct lane_owner *owner_events;
    void *owner;
    struct connection connection;
    struct lane_link link;
    size_t next_target;       /* the place of the one to try next */
    size_t targets_left;      /* so many more are tried in this attempt … */
    int64_t attempt_until_us; /* … which ends then */
    struct event timer;       /* of the connection attempt, or until the next one */
    struct reactor_task flush;
    struct reactor_task take;
    struct buffer output;      /* position `written` of the stream is its head */
    uint64_t appended;         /* bytes ever given to lane_send */
    uint64_t written;          /* bytes of them that the kernel took */
    uint64_t owned_from;       /* … and of an exclusive one, that were not its owner's yet */
    struct run *first, *last;  /* runs without all their replies; those with first_byte >= written are unsent */
    uint64_t requests_waiting; /* written or not */
    uint64_t gathered;         /* of these, of a READY one: so many came after the last write … */
    uint64_t batch;            /* … which was of so many */
    enum lane_hold hold;
    uint64_t crowd;          /* so many waited at once of late */
    bool follows;            /* as its settings say, when it was made */
    bool giving_back;        /* what was not answered is just being given back: nothing may be sent on it */
    uint32_t longest_run;    /* so many requests of one client at most are made one run */
    struct buffer sent;      /* of one that follows: what was written, as far as it was not answered … */
    uint64_t sent_from;      /* … from that position of the stream on */
    struct buffer unread;    /* … and the beginning of an error, which is read again with the rest of it */
    struct resp_reply reply; /* the frame that is coming in; after the end of the connection: how far it came */
    bool expects_pushes;     /* the owner is subscribed in RESP2: replies must be looked at one by one */
    bool raw;                /* no longer RESP (replication): bytes go to the owner as they come */
    bool dirty;              /* not to be used again by anybody else */
    bool needs_fence;        /* what came last may have been more replies than it seemed: see upstream_send_fence() */
    bool named;              /* was given the name of a client, perhaps of one that has left it */
    bool parked;             /* in BACKOFF until it can take over a connection, as another attempt would be in vain */
    bool spare;              /* the upstream's: it is being opened for the pool */
    bool ending;             /* the output is followed by the end of our stream */
    bool awaits_quiet;       /* who waits for it is to be told whenever nothing is owed any more */
    bool bare;               /* nothing was said on it: it speaks for its profile only after an AUTH */
    bool paused;             /* replies are not read (once it is ready) */
    bool was_congested;
    LIST_HEAD(, lane_waiter) waiters; /* the last come first */
    uint32_t failures;                /* attempts to connect in a row that came to nothing, or to nonsense */
    bool desynced;                    /* Redis sent nonsense to it, not long ago */
    int64_t ready_us;                 /* when it was ready last */
    uint64_t jitter;                  /* state of a small generator */
    int64_t read_us;                  /* when replies were read last */
    int64_t progress_us;              /* last time a reply came, or the queue ceased to be empty */
    int64_t used_us;                  /* last time something was sent */
    char why[160];                    /* the last failure */
};

/* Output above this makes a lane congested; its owner, or the clients of a shared one, should wait. Bytes. */
#define LANE_OUTPUT_MARK ((size_t)256 * 1024)
/* The same of what was sent and is kept until it is answered: Redis takes far more behind what it does not answer. */
#define LANE_SENT_MARK ((size_t)16 * 1024 * 1024)
#define LANE_SHARED_OUTPUT_MARK ((size_t)4 * 1024 * 1024)

/* Begins to connect. The lane is freed by lane_free() after events->closed. NULL when memory is short. */
struct lane *lane_new(struct reactor *reactor, struct run_pool *runs, const struct lane_settings *settings,
                      const struct lane_events *events, enum lane_use use, void *context, uint64_t id);
void lane_start(struct lane *lane);
/* Makes no attempt (any more). Not for a lane that is READY. */
void lane_park(struct lane *lane);
/* A parked lane tries to connect. */
void lane_unpark(struct lane *lane);
/* A parked lane has the connection of another one, which must be idle and is CLOSED afterwards. */
void lane_take_over(struct lane *lane, struct lane *from);
void lane_free(struct lane *lane);

/* Appends the whole requests in data as (part of) a run. The run's owner, receiver and requests must be set. */
bool lane_send(struct lane *lane, struct run *run, const char *data, size_t length);
/* Appends further whole requests to the lane's last run. */
bool lane_extend(struct lane *lane, const char *data, size_t length, uint32_t requests);
/* Sends bytes that belong to no run: more of a long request, or what will have no answer (CLIENT REPLY OFF). Exclusive
 * lanes only. */
bool lane_send_silent(struct lane *lane, const char *data, size_t length);
/* Of a lane that follows redirects: the bytes of the run's next request to be answered; none, if they were not written
 * whole. */
struct slice lane_request_at_hand(const struct lane *lane, const struct run *run);
/* Gives all back of which nothing was sent, on a lane that is not READY: what a receiver does not take is lost. */
void lane_give_back(struct lane *lane, const char *why);
/* The same with bytes that come from a connection, moved inside the kernel. The bytes taken, an enum connection_result,
 * or 0 if the lane would rather be given bytes. */
ssize_t lane_pull_silent(struct lane *lane, struct connection *from, size_t most);
/* Ends our side of the stream once the output is written: Redis sees what the client did. Exclusive lanes only. */
void lane_end_output(struct lane *lane);

static inline bool lane_is_congested(const struct lane *lane)
{
    return buffer_length(&lane->output) > (lane->use == LANE_SHARED ? LANE_SHARED_OUTPUT_MARK : LANE_OUTPUT_MARK) ||
           buffer_length(&lane->sent) > LANE_SENT_MARK;
}

/* Wakes the waiter, once, when the lane becomes ready, is not congested any more, or is not to be used any more: that
 * lane, and no other that it has waited for before. */
void lane_await(struct lane *lane, struct lane_waiter *waiter);
/* Harmless if it does not wait. */
void lane_waiter_cancel(struct lane_waiter *waiter);
/* In the order in which they came, so that nobody waits longer than others. */
void lane_wake_waiters(struct lane *lane);

/* Exclusive lanes: stops or resumes reading replies (back pressure). */
void lane_pause(struct lane *lane, bool paused);

void lane_set_owner(struct lane *lane, const struct lane_owner *events, void *owner);
/* Makes a shared lane the owner's exclusive one. */
void lane_make_exclusive(struct lane *lane, const struct lane_owner *events, void *owner);

/* Whether anybody but this owner of runs waits for a reply on it. */
bool lane_serves_others(const struct lane *lane, const void *owner);

/* Closes for good: runs are lost or unsent, the owner is not told (whoever closes knows). */
void lane_close(struct lane *lane, const char *why);

/* The same, and the owner is told that it broke. */
void lane_end(struct lane *lane, const char *why);

/* Treats the lane as broken: as if Redis had closed it now. */
void lane_fail(struct lane *lane, const char *why);

/* The targets have changed: a lane that is not READY begins anew with them, unless it is just about to reach one. */
void lane_follow_targets(struct lane *lane);

/* A lane that is not READY is to go by those settings; the caller starts it again. Of what waits on it nothing was
 * sent, and it goes along. */
void lane_carry(struct lane *lane, const struct lane_settings *settings);
/* Whether the server is away, as far as that lane knows. */
static inline bool lane_is_unreachable(const struct lane *lane)
{
    return lane->state != LANE_READY && lane->failures > 0;
}
/* Whether a part of a reply, or of a push that somebody gets, has come, and was handed on. */
static inline bool lane_is_within_frame(const struct lane *lane)
{
    return !resp_reply_idle(&lane->reply) && !lane->link.swallows;
}
/* The first of what waits to be sent on a lane that is not READY: requests, one behind the other. */
static inline struct slice lane_waiting(const struct lane *lane)
{
    return (struct slice){buffer_head(&lane->output), buffer_length(&lane->output)};
}

/* Fails what has waited longer than wait_ms to be sent, and closes a lane that has not answered for reply_timeout. */
void lane_tick(struct lane *lane, int64_t wait_ms);

const char *lane_state_name(enum lane_state state);
const char *lane_use_name(enum lane_use use);

#endif
