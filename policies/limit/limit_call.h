/*
 * Calls to Redis, which decides on global rules: what limit_script.c, limit_call.c and limit_global.c share.
 */
#ifndef HEADGATE_LIMIT_CALL_H
#define HEADGATE_LIMIT_CALL_H

#include "limit/limit_private.h"

/* Room for a prefix, "hist:slots:", a rule, ":" and a bucket. */
#define LIMIT_STATE_KEY_MAX (16 + LIMIT_PREFIX_MAX + CONF_RULE_NAME_MAX + LIMIT_BUCKET_MAX)

/* The state of a bucket in Redis. It is known without the rule, which may go while a call is under way. */
struct limit_state {
    enum limit_algorithm algorithm;
    int64_t window_us;
    struct conf_rate leak;
    size_t key_length;
    char key[LIMIT_STATE_KEY_MAX];
};

/* A reset that was asked for on the admin port: it is answered when Redis has forgotten all of it. */
struct limit_reset {
    struct admin_query *admin_query;
    struct limit_call *unsent; /* linked by their successors: with each that ends the next is sent */
    size_t under_way;
    bool is_sending;
    const char *why; /* it failed; NULL: it did not */
};

/*
 * A script under way: a question, or a change (permits that are given back, a state that is forgotten). Of the
 * questions about a bucket one is under way for each worker, and those who come meanwhile gather behind it.
 */
struct limit_call {
    struct table_node node; /* if it gathers: by bucket */
    LIST_ENTRY(limit_call) of_limit;
    struct limit *limit;
    struct limit_rule *rule;      /* NULL once it was detached, and then so is the bucket */
    struct limit_bucket *bucket;  /* pinned; NULL: a change of one that is not tracked */
    struct limit_places places;   /* who waits for it, in the order in which they came … */
    struct limit_call *successor; /* … and for those who came since it was sent; NULL: nobody did */
    struct limit_reset *reset;    /* of a change that was asked for; NULL: none */
    bool is_noted;                /* by limit_remote.resetting */
    bool gathers;                 /* others may come to stand behind it */
    int64_t cost;                 /* of each of its places */
    int64_t wanted;
    int64_t spent;      /* of what it will be granted: by requests that on_error admitted meanwhile */
    uint32_t asides;    /* requests of a rule that observes, which are counted by its answer … */
    int64_t aside_cost; /* … and what they cost in all */
    int64_t since_us;   /* when it was sent, or while it was not yet, the one before it */
    int64_t mark;       /* by which what was granted can be given back */
    uint64_t changes;   /* of struct limit_remote, when it was sent */
    uint64_t resets;    /* … */
    bool fetches;       /* a batch for those to come */
    struct limit_state state;
};

/* ---- limit_script.c ---- */

/* What the rule has of a bucket of that name in Redis. */
struct limit_state limit_script_state(const struct limit_rule *rule, struct slice bucket);
/* Asks for what the call wants. done gets the call, and as the reply how much is granted, how long to wait (µs) for
 * more of what one of its places costs, and the grant's mark. */
void limit_script_ask(struct limit_call *call, policy_script_done *done);
/* Gives back permits that nobody will spend: so many, of the grant that has this mark. */
void limit_script_give_back(struct limit_call *call, int64_t count, int64_t mark, policy_script_done *done);
/* Deletes the state. */
void limit_script_forget(struct limit_call *call, policy_script_done *done);

/* ---- limit_call.c ---- */

/* Until when the place, which waits for a call, waits for Redis. */
int64_t limit_call_deadline(const struct limit_place *place);
/* Adds what is to be forgotten to the reset; the bucket, if it is tracked, is locked. */
void limit_call_forget(struct limit *limit, struct limit_rule *rule, struct limit_bucket *bucket, struct slice name,
                       struct limit_reset *reset);
/* Sends some of what is to be forgotten; when all has ended, the reset is answered, and freed. Nothing is locked. */
void limit_call_go_on(struct limit *limit, struct limit_reset *reset);
/* How many permits are leased at once at most. */
int64_t limit_call_batch_most(const struct limit_rule *rule);
/* Logs a trouble that the rule has with Redis, now and then. */
void limit_call_warn(struct limit *limit, const struct limit_rule *rule, const char *error, int64_t now_us);

#endif
