/*
 * Calls to Redis, which decides on global rules: what limit_script.c, limit_call.c and limit_global.c share.
 */
#ifndef HEADGATE_LIMIT_CALL_H
#define HEADGATE_LIMIT_CALL_H

#include "limit/limit_private.h"

/* What Redis keeps of a bucket: a member for each permit, counts by time, or how full the funnel is. */
enum limit_state_kind { LIMIT_STATE_LOG, LIMIT_STATE_SLOTS, LIMIT_STATE_FUNNEL };

/* Room for a prefix, "hist:slots:", a rule, ":" and a bucket. */
#define LIMIT_STATE_KEY_MAX (16 + LIMIT_PREFIX_MAX + CONF_RULE_NAME_MAX + LIMIT_BUCKET_MAX)

/* The state of a bucket in Redis. It is known without the rule, which may go while a call is under way. */
struct limit_state {
    enum limit_state_kind kind;
    int64_t window_us;
    struct conf_rate leak;
    size_t key_length;
    char key[LIMIT_STATE_KEY_MAX];
};

/* Permits that a call was granted. */
struct limit_grant {
    uint64_t call;
    int64_t asked_us; /* when the call was sent */
    int64_t first;    /* its number among the permits of the call, from 1 on */
    int64_t count;
};

/* A script under way. */
struct limit_call {
    LIST_ENTRY(limit_call) of_limit;
    struct limit *limit;
    struct limit_rule *rule;      /* NULL once it was detached, and then so is the bucket */
    struct limit_bucket *bucket;  /* pinned */
    struct limit_places places;   /* who waits for it, in the order in which they came … */
    struct limit_call *successor; /* … and for those who came since it was sent; NULL: nobody did */
    struct limit_state state;
    uint64_t number;
    int64_t least;
    int64_t wanted;
    int64_t spent; /* of what it will be granted: by requests that on_error admitted meanwhile */
    int64_t sent_us;
    uint64_t resets; /* of the bucket, when it was sent */
    bool leased;
    bool asked_aside; /* by a rule that observes: its answer is counted */
};

/* ---- limit_script.c ---- */

/* What the rule has of a bucket of that name in Redis. */
struct limit_state limit_script_state(const struct limit_rule *rule, struct slice bucket);
/* Asks for what the call wants. done gets the call, and as the reply how much is granted, and how long to wait (µs). */
void limit_script_ask(struct limit *limit, struct limit_call *call, policy_script_done *done);
/* Gives back permits that nobody will spend. */
void limit_script_give_back(struct limit *limit, const struct limit_state *state, struct limit_grant grant);

/* ---- limit_call.c ---- */

/* How many permits are leased at once at most. */
int64_t limit_call_batch_most(const struct limit_rule *rule);
/* Logs a trouble that the rule has with Redis, now and then. */
void limit_call_warn(struct limit *limit, const struct limit_rule *rule, const char *error, int64_t now_us);

#endif
