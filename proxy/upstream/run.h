/*
 * A run: consecutive requests of one client that share a fate (the same lane, or an answer of Headgate's own).
 *
 * Requests are handled in runs rather than one by one, so that a pipeline costs little more than its bytes. A run is in
 * two queues at once: its client's, which keeps replies in request order, and its lane's, which tells whose the next
 * reply is. Its client may go first; the run then stays in the lane's queue, ownerless, until its replies have been
 * swallowed. Whoever takes a run out of its last queue gives it back to the pool.
 */
#ifndef HEADGATE_RUN_H
#define HEADGATE_RUN_H

#include "base/buffer.h"
#include "resp/resp.h"

#include <stdint.h>

struct lane;
struct run;

enum run_loss {
    RUN_LOST,  /* sent, at least in part, and the lane broke: nobody knows whether it was executed */
    RUN_UNSENT /* not a byte of it was sent: it was certainly not executed */
};

/* Replies of a run that are told of together. */
struct run_tally {
    uint32_t most;  /* so many at most; 1 or more */
    uint64_t large; /* one of so many bytes is told of by itself */
    uint32_t count;
    uint32_t errors; /* among them */
    uint64_t bytes;  /* of all of them */
};

/* Who is told of a run's replies. Implemented by client.c, and by control.c for Headgate's own commands. */
struct run_receiver {
    /* Bytes of the run's replies, whole or in parts, in order. They stay valid until the clients were written. */
    void (*bytes)(struct run *run, const char *data, size_t length);
    /* Observed runs only: a reply (or something that may be a push) has ended. True: it answers one request. */
    bool (*reply)(struct run *run, const struct resp_reply *reply);
    /* Measured runs only: up to which point the next replies, of what was read at that time, are told of together … */
    struct run_tally (*tally)(const struct run *run, int64_t read_us);
    /* … and the next ones that answer requests have ended. */
    void (*measured)(struct run *run, const struct run_tally *tally, int64_t read_us);
    /* The last reply has come; the run has left its lane. */
    void (*answered)(struct run *run);
    /* No reply will come; the run has left its lane. why: one line for a person. */
    void (*lost)(struct run *run, enum run_loss loss, const char *why);
    /* The three that follow: on lanes that follow redirects only (lane_settings), and NULL for who does not.
     * Redis has answered the next request of the run, which has these bytes, with that error; neither outlives the
     * call. True: the request is the receiver's now, nobody gets the error, and the run goes on behind the request. The
     * receiver has let go of the replies before it. */
    bool (*redirected)(struct run *run, struct slice error, struct slice request);
    /* That request of a watched run was answered otherwise. */
    void (*passed)(struct run *run, struct slice request);
    /* Nothing of the run was sent, and its lane is not to be waited for any more; or it was, on a lane that gives back
     * what was not answered (lane_settings). The run has left it. These are its requests that were not answered, within
     * the call. */
    void (*returned)(struct run *run, struct slice requests);
};

struct run {
    struct run *lane_next;
    struct run *client_next;
    struct lane *lane;                   /* NULL: answered by Headgate itself, or answered or lost already */
    const struct run_receiver *receiver; /* NULL: ownerless, replies are swallowed */
    void *owner;                         /* the receiver's */
    void *expected;                      /* the receiver's; not NULL: replies are reported one by one */
    void *spread;                        /* the receiver's; not NULL: a part of a request for several nodes */
    void *redirected;                    /* the receiver's; not NULL: it was sent elsewhere */
    void *spans;                         /* the receiver's; not NULL: it is measured how long its requests take */
    void *policy_record;                 /* the policy chain's; NULL when no policy asked for this request */
    uint64_t first_byte;                 /* position in the lane's stream */
    uint64_t length;                     /* bytes sent or to be sent */
    uint64_t reply_bytes;                /* bytes of replies so far */
    int64_t queued_us;
    uint32_t requests;
    uint32_t answered;
    bool watched : 1;   /* each request that is answered is told of: see passed */
    bool may_block : 1; /* Redis may keep its answer for as long as it likes */
    bool gone : 1;      /* its client has left it behind */
    uint16_t part;      /* the receiver's: which of the spread it is */
    uint32_t kept;      /* the receiver's: bytes that it counts for the run, without the text */
    struct buffer text; /* replies that wait for their turn; those of local runs */
};

/* Recycled runs; one pool for each worker. */
struct run_pool {
    struct run *free;
    size_t count;
};

/* A run with all fields zero, or NULL when memory is short. */
struct run *run_take(struct run_pool *pool);
/* text must have been cleared, and spans be NULL. */
void run_give(struct run_pool *pool, struct run *run);
/* Frees what is more than keep. */
void run_pool_trim(struct run_pool *pool, size_t keep);

#endif
