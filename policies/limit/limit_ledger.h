/*
 * What limits remember: a ledger for each rule, in it a subject for each client, user or key that the rule counts. It
 * is shared by all workers. A request that concerns several subjects locks them together, so that all are charged or
 * none; with one worker nothing is locked.
 *
 * Memory is bounded: a ledger tracks only so many subjects. When it is full and another is asked for, a subject that
 * stands for all of those is given instead: they share what one of them would have had.
 */
#ifndef HEADGATE_LIMIT_LEDGER_H
#define HEADGATE_LIMIT_LEDGER_H

#include "base/table.h"
#include "limit/limit_meter.h"
#include "policy/policy.h"

#include <stdio.h>
#include <sys/queue.h>

/* The longest name of a subject, in bytes. */
#define LIMIT_SUBJECT_MAX 512

struct limit_share;
struct limit_ledger;

struct limit_call;

/* Permits that were fetched from Redis and may be spent here until then. */
struct limit_lot {
    int64_t permits;
    int64_t until_us;
};

/* What is known here of a subject whose state is in Redis. */
struct limit_remote {
    int64_t refused_until_us; /* Redis has said so of requests that cost as much as … */
    int64_t refused_cost;
    struct limit_lot lots[2]; /* the first is spent first */
    int64_t batch;            /* how many permits to fetch next */
    struct limit_call *fetch; /* on its way, or NULL */
    size_t fetch_worker;      /* whose it is */
    uint64_t resets;          /* LIMIT RESET: what Redis said before is void */
};

struct limit_subject {
    struct table_node node; /* by name */
    struct limit_ledger *ledger;
    union limit_meter_state state;
    uint64_t refused;
    int64_t queued;              /* what requests on hold wait for */
    int64_t keep_until_us;       /* it is not idle before */
    struct limit_remote *remote; /* of global rules, made when it is needed first */
    uint32_t pins;               /* who keeps a pointer to it: it is not freed meanwhile */
    bool transient;              /* there was no room for it: it is gone when it is not pinned any more */
    bool revoked;                /* it was idle, and its room was needed: who has it pinned must look for another one */
    uint16_t length;
    char name[]; /* "user:alice", not terminated */
};

/* A rule's counters of one worker, and its hold on the ledger. */
enum limit_count { LIMIT_ADMITTED, LIMIT_REFUSED, LIMIT_DELAYED, LIMIT_OBSERVED, LIMIT_COUNTS };

struct limit_member {
    LIST_ENTRY(limit_member) of_ledger;
    struct limit_ledger *ledger;
    const char *description; /* for LIMITS, the member's */
    _Atomic uint64_t counts[LIMIT_COUNTS];
};

/* What a ledger is made for. */
struct limit_terms {
    const char *rule;
    const char *identity; /* ledgers of equal identity are one: a rule that a reload left as it was keeps its own */
    struct limit_meter meter;
    size_t subjects_max;
    /* What is remembered here is but a copy: a subject without room is kept while it is pinned, instead of sharing one.
     */
    bool is_cache;
};

/* ---- the share ---- */

/* NULL when memory is short. */
struct limit_share *limit_share_new(size_t threads);
/* All members must have left. */
void limit_share_free(struct limit_share *share);
/* Drops subjects that are idle, a part of them at each call, if no other worker is at it. */
void limit_share_sweep(struct limit_share *share, int64_t now_us);
/* How many subjects are tracked. */
size_t limit_share_tracked(struct limit_share *share);

/* ---- members ---- */

/* Joins the ledger of that identity, which is made if there is none. member is the caller's, its description set, and
 * must stay where it is. False when memory is short. */
bool limit_ledger_join(struct limit_share *share, struct limit_member *member, const struct limit_terms *terms);
/* The last one takes the ledger with it: nothing may be pinned then that others still look at. */
void limit_ledger_leave(struct limit_share *share, struct limit_member *member);

/* Whether a trouble of the rule is to be logged: once a minute, whichever worker has it. */
bool limit_ledger_may_warn(struct limit_ledger *ledger, int64_t now_us);

/* True once for each of the two: a process whose user alone can be told, and one of which nothing can. */
bool limit_ledger_is_first_untold(struct limit_ledger *ledger, bool has_user);

/* ---- subjects ---- */

/*
 * The subject of that name, pinned. If so many are tracked that there is no room, those that are idle give up theirs,
 * even if they are pinned: they are revoked. Without any, it is the subject that stands for those without room, or a
 * transient one. NULL when memory is short.
 */
struct limit_subject *limit_subject_pin(struct limit_share *share, struct limit_ledger *ledger, struct slice name,
                                        int64_t now_us);
bool limit_subject_is_tracked(const struct limit_subject *subject);
void limit_subject_unpin(struct limit_share *share, struct limit_subject *subject);

/* The locks that guard a subject, as a set; sets are joined by |. */
typedef uint64_t limit_locks;
limit_locks limit_subject_locks(const struct limit_subject *subject);
/* Only what is locked may be looked at, but for ledger and name. */
void limit_share_lock(struct limit_share *share, limit_locks locks);
void limit_share_unlock(struct limit_share *share, limit_locks locks);

/* ---- for the admin port ---- */

/* Writes one line for each rule, and under it those who were refused most. */
void limit_share_print(struct limit_share *share, FILE *out, int64_t now_us);
/* The name of the subject that is shown so: its length, or 0 if none is. */
size_t limit_ledger_name(struct slice shown, char name[LIMIT_SUBJECT_MAX]);
/* Forgets what was admitted: of all subjects of the rule, or (name, as it is shown, not empty) of one. forgotten may be
 * NULL; it is called for each of them while it is locked. False: there is none. */
typedef void limit_forgotten_callback(void *context, const struct limit_subject *subject);
bool limit_share_reset(struct limit_share *share, struct slice rule, struct slice name,
                       limit_forgotten_callback *forgotten, void *context);

#endif
