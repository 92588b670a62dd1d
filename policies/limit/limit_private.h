/*
 * What the files of the limit policy share:
 *
 *   limit.c          the hooks, and the rules of a configuration
 *   limit_charge.c   what a request is charged with: rules, buckets, costs
 *   limit_judge.c    what is to become of a request: it is judged by all rules, then charged, refused or put on hold
 *   limit_hold.c     requests on hold: their places in the queues of buckets, and what was decided on them
 *   limit_global.c   rules that are decided in Redis: judging by what it has said
 *   limit_call.c     calls to Redis: who waits for which, and what becomes of their answers
 *   limit_script.c   what is said to Redis
 *   limit_verbs.c    LIMITS and LIMIT on the admin port; what is told another process, which limit_twin.c knows
 */
#ifndef HEADGATE_LIMIT_PRIVATE_H
#define HEADGATE_LIMIT_PRIVATE_H

#include "limit/limit_name.h"
#include "limit/limit_rule.h"

#include <sys/queue.h>

enum limit_counter {
    LIMIT_COUNTER_ADMITTED,
    LIMIT_COUNTER_REFUSED,
    LIMIT_COUNTER_DELAYED,
    LIMIT_COUNTER_OBSERVED,
    LIMIT_COUNTER_UNDECIDED,
    LIMIT_COUNTER_SCRIPT_CALLS,
    LIMIT_COUNTER_UNTRACKED,
    LIMIT_COUNTER_TRACKED
};

/* What a rule knows of a client. */
struct limit_seat {
    struct limit_bucket *bucket; /* pinned; NULL: not asked for yet, or it depends on the request */
    bool excepted;
};

/* Hangs from a client. */
struct limit_client {
    LIST_ENTRY(limit_client) of_limit;
    uint32_t identity;        /* for which the seats were made */
    struct limit_seat *seats; /* by rule; NULL at first, and after a reload */
};

/* Whether Redis is to be asked though nobody waits for it: to count, by the answer, what is observed, or to fetch
 * permits for requests to come. */
enum limit_aside { LIMIT_ASIDE_NONE, LIMIT_ASIDE_COUNTED, LIMIT_ASIDE_FETCH };

/* What a request is charged with by one rule. */
struct limit_charge {
    struct limit_rule *rule;
    struct limit_bucket *bucket;
    int64_t cost;
    int64_t wait_us;   /* when judged: how long until the rule admits it */
    bool is_cost_open; /* the request may come to cost more: not all of it is known */
    bool pinned;       /* for this request alone */
    bool is_not_asked; /* the request has too many keys: on_error decides */
    bool passed_over;  /* its rule observes and would refuse: it is not charged */
    bool undecided;    /* Redis did not say: wait_us is what on_error makes of it */
    bool needs_answer; /* Redis is to be asked before anything is decided */
    enum limit_aside aside;
    struct limit_place *place; /* of a request that was on hold; NULL: it was not */
};

enum limit_place_state {
    LIMIT_PLACE_EMPTY,
    LIMIT_PLACE_QUEUED,  /* behind those who wait for the bucket already */
    LIMIT_PLACE_ASKED,   /* Redis is asked */
    LIMIT_PLACE_GRANTED, /* Redis has admitted it */
    LIMIT_PLACE_REFUSED, /* Redis has refused it */
    LIMIT_PLACE_FAILED   /* Redis did not say */
};

STAILQ_HEAD(limit_places, limit_place);

/* What a request on hold has of one of its buckets. */
struct limit_place {
    struct limit_bucket *bucket; /* pinned */
    struct limit_rule *rule;
    int64_t cost;
    enum limit_place_state state;
    bool moved;      /* QUEUED: the turn comes earlier than the request knows, … */
    int64_t turn_us; /* … then */
    LIST_ENTRY(limit_place) of_bucket;
    int64_t refused_until_us; /* REFUSED */
    int64_t mark;             /* GRANTED: by which it can be given back */
    uint64_t resets;          /* limit_remote.resets then, or when it was held for its turn */
    struct limit_held *held;
    struct limit_call *call; /* ASKED; NULL: none yet */
    STAILQ_ENTRY(limit_place) of_call;
};

/* A request on hold; its ticket points here. It has a place for each of its charges, in the same order. */
struct limit_held {
    TAILQ_ENTRY(limit_held) of_limit;
    void *holder;
    size_t asked; /* places whose call has not ended */
    size_t count; /* 0 after a reload: it will be judged anew */
    bool counted; /* as delayed */
    struct limit_place places[];
};

struct limit {
    struct limit_share *share;
    const struct policy_host *host;
    _Atomic uint64_t *counters;
    struct limit_rule *rules;
    size_t rule_count;
    /* For each command, by index, the numbers of the rules that may apply: those from starts[i] to starts[i + 1]. The
     * last is for commands that Headgate does not know. */
    uint32_t *starts;
    uint32_t *numbers;
    /* For each command, by index: equal for those of which no rule looks at more than the client; 0: some rule does. */
    uint32_t *groups;
    LIST_HEAD(, limit_client) clients;
    TAILQ_HEAD(, limit_held) held; /* in the order in which they were put on hold */
    /* The charges of the request at hand. */
    struct limit_charge *charges;
    size_t charge_count;
    size_t charge_room;
    bool was_delayed;              /* and counted so, before a reload */
    bool awaits_keys;              /* it may have more of them: not all of it has come */
    LIST_HEAD(, limit_call) calls; /* scripts under way, and those that will be sent behind them */
    struct table gathering;        /* those of the calls that gather, by bucket */
    bool is_known[3];              /* Redis was sent these scripts whole: questions by algorithm, and returning */
    bool is_resetting;             /* LIMIT RESET */
};

static inline void limit_count(struct limit *limit, struct limit_rule *rule, enum limit_count count,
                               enum limit_counter counter, uint32_t requests)
{
    policy_count(&rule->member.counts[count], requests);
    policy_count(&limit->counters[counter], requests);
}

/* ---- limit_charge.c ---- */

/* Finds what the request is to be charged with, and locks its buckets. False, and nothing is locked, when memory is
 * short; limit_drop_charges() is due either way. */
bool limit_lock_charges(struct limit *limit, const struct policy_request *request, limit_locks *locks);
void limit_drop_charges(struct limit *limit);
/* Whether it is still looked for the process whose limit the request is to be counted for. */
bool limit_awaits_peer(struct limit *limit, const struct policy_request *request);
/* Unpins what hangs from the client, before the rules go. */
void limit_give_up_seats(struct limit *limit, struct limit_client *client);
void limit_remove_client(struct limit *limit, struct limit_client *client);

/* ---- limit_judge.c ---- */

/* Judges the request by its charges, which are locked, and charges it, writes the refusal or puts it on hold. *held:
 * what the request has if it was on hold, and what it has if it is to be. WHOLE: more of it has to come first. HOLD:
 * limit_call_ask() is due when nothing is locked any more. CLOSE: memory is short. */
enum policy_verdict limit_judge_request(struct limit *limit, const struct policy_request *request,
                                        struct limit_held **held, struct policy_decision *decision);
/* The same for count requests that differ in nothing, with the charges, which are locked, of one of them. Says how many
 * of them are admitted now and charged, from the first on; 0 also when memory is short. If the others are all refused
 * alike, the refusal is written; else *decision is left alone. */
uint32_t limit_judge_batch(struct limit *limit, int64_t now_us, uint32_t count, struct policy_decision *decision);

/* ---- limit_hold.c ---- */

/* Matches the charges with the places of a request that was on hold (or NULL); the buckets are locked. False: they are
 * others by now. */
bool limit_find_places(struct limit *limit, struct limit_held *held);
/* The same, or a new one for the charges; the buckets are locked. NULL when memory is short. */
struct limit_held *limit_hold(struct limit *limit, struct limit_held *held, void *holder);
/* Stands behind those who wait for the bucket, unless it does already; it is locked. */
void limit_queue(struct limit_place *place, int64_t turn_us);
/* Has those asked about again whose turn comes earlier, as others have left the queue; nothing is locked. */
void limit_move_up(struct limit *limit, int64_t now_us);
/* What those cost who stand before it in the queue, and whose turn has come; the bucket is locked. */
int64_t limit_due_ahead(const struct limit_place *place, int64_t now_us);
/* Gives up its places: nothing is locked. */
void limit_leave_places(struct limit *limit, struct limit_held *held);
void limit_end_hold(struct limit *limit, struct limit_held *held);

/* ---- limit_global.c ---- */

/* Judges a charge of a global rule by what is known; its bucket is locked. */
void limit_global_judge(struct limit *limit, struct limit_charge *charge, int64_t now_us);
/* Charges what was judged to be admissible; its bucket is locked. */
void limit_global_charge(struct limit_charge *charge, int64_t now_us);

/* ---- limit_call.c ---- */

/* Asks Redis for the places that are ASKED and have no call yet; nothing is locked. When to look again at the latest;
 * 0: there is no such place. */
int64_t limit_call_ask(struct limit *limit, struct limit_held *held, int64_t now_us);
/* Asks Redis for what the charges want that nobody waits for; nothing is locked. */
void limit_call_ask_aside(struct limit *limit);
/* The place does not wait for its call any more, and gives back what it was granted. Nothing is locked. */
void limit_call_leave(struct limit *limit, struct limit_place *place);
/* Gives back what Redis has granted to a request that has to wait for another rule: it would be spent too late. Nothing
 * is locked. */
void limit_call_return_grants(struct limit *limit, struct limit_held *held);
/* Calls go on with these rules, which take the place of others; those about buckets that go touch them no more. */
void limit_call_move(struct limit *limit, struct limit_rule *rules, size_t count);

/* ---- limit_verbs.c ---- */

/* LIMITS */
enum policy_answer limit_verb_limits(void *instance, size_t count, const struct slice *arguments, FILE *answer);
/* LIMIT RESET rule [offender] */
void limit_verb_limit(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);
/* TELL and HEAR of struct policy_twin */
enum policy_answer limit_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer);
enum policy_answer limit_verb_hear(void *instance, size_t count, const struct slice *arguments, FILE *answer);

#endif
