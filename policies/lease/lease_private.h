/*
 * What the files of the lease policy share:
 *
 *   lease.c            the hooks, and the rules of this configuration
 *   lease_verbs.c      LEASES and LEASE on the admin port
 *   lease_request.c    what a request is about to do to leases: written down before it is forwarded
 *   lease_effect.c     what the reply has made of them: taking, extending, and …
 *   lease_change.c     … releasing, removing, expiring
 *   lease_outcome.c    what has become of a request, by its reply
 *   lease_client.c     connections that come and go
 *   lease_guard.c      keys that are WATCHed
 *   lease_process.c    which processes live, and which connections they have
 *   lease_watch.c      what is done for the leases that are due
 *   lease_call.c       the scripts for it, and what their replies say
 *   lease_twin.c       what becomes of leases when another process takes over
 *   lease_owner.c      whose connections show that a holder lives
 *   lease_end.c        how a lease ends
 *   lease_permit.c     which attempts at a semaphore have got a permit
 *   lease_count.c      from when on a lock counts, and for which rule
 *   lease_schedule.c   when a lease is to be looked at
 *   lease_text.c       what is said of leases: names, keys and owners as they are shown, warnings, events
 *
 * Calls go down this list.
 */
#ifndef HEADGATE_LEASE_PRIVATE_H
#define HEADGATE_LEASE_PRIVATE_H

#include "lease/lease_registry.h"
#include "lease/lease_tally.h"

enum lease_counter {
    LEASE_COUNTER_ACQUIRED,
    LEASE_COUNTER_HELD,
    LEASE_COUNTER_RENEWALS,
    LEASE_COUNTER_DEFERRED,
    LEASE_COUNTER_FAILURES,
    LEASE_COUNTER_HEALED,
    LEASE_COUNTER_RELEASED,
    LEASE_COUNTER_UNSEEN,
    LEASE_COUNTER_LOST_GONE,
    LEASE_COUNTER_LOST_TAKEN,
    LEASE_COUNTER_LOST_PERSISTED,
    LEASE_COUNTER_LOST_SHORTENED,
    LEASE_COUNTER_LOST_TYPE,
    LEASE_COUNTER_LOST_UNREACHABLE,
    LEASE_COUNTER_OWNER_GONE,
    LEASE_COUNTER_MAX_HOLD,
    LEASE_COUNTER_DROPPED,
    LEASE_COUNTER_UNWATCHED,
    LEASE_COUNTER_WEIGHT,
    LEASE_COUNTERS
};

/* The bound of the last ZREMRANGEBYSCORE of a client, which tells the lease of the ZADD behind it. */
struct lease_reap {
    uint64_t key_hash;
    double bound;
    bool known;
};

/* The keys of a WATCH that are named by rules. */
struct lease_guard {
    LIST_ENTRY(lease_guard) of_client;
    uint64_t sequence;
    size_t weight, count;
    uint64_t keys[]; /* as lease_registry_guard() has given them */
};

/* Hangs from a client. */
struct lease_client {
    LIST_ENTRY(lease_client) of_worker;
    uint64_t id;
    void *connection;            /* as the host knows it */
    struct lease_owner *named;   /* all connections of its address, user and name; NULL: it has no name, … */
    struct lease_owner *process; /* … its process is not known, … */
    struct lease_owner *alone;   /* … it has not taken a lock under such a rule, … */
    struct lease_owner *fellows; /* … or it was not found to keep what others of its address and user have taken */
    bool was_found;              /* a process of it was */
    bool untold;                 /* its process cannot be told */
    bool is_relay;               /* its process is a Headgate, … */
    bool is_shared;              /* … or it is a connection that clients of one share: none can be told from others */
    bool searching;              /* it is still looked for */
    uint64_t tested[2];          /* the last search that it was looked at for: of a process, of a user */
    char *text;        /* "address/user/name", and what tells it from others that read so; NULL when memory was short */
    size_t shown;      /* of that: without the latter, … */
    size_t shown_user; /* … and without the name */
    uint64_t user;     /* hashed, with the address */
    struct lease_request *queued; /* by MULTI, the last one first */
    uint32_t queued_place;        /* of the next command of the transaction that is looked at, from 0 on */
    bool queued_selects;          /* SELECT is among them, … */
    uint32_t select_place;        /* … the last one here, … */
    int64_t queued_database;      /* … of this one */
    size_t queued_bytes, queued_weight;
    size_t weight; /* of its requests under way, of those, and of its guards */
    LIST_HEAD(, lease_guard) guards;
    struct lease_reap reap;
    uint64_t granted;   /* the first of the requests by which it was told last that it had taken a lock, … */
    int64_t granted_us; /* … at this time */
    uint64_t unheard;   /* of what it has taken from that request on nothing shows that it has heard */
};

/* One lease that a request may change: on one key, or on several at once. */
struct lease_target {
    struct lease_touch touch;
    struct slice key; /* the request's own memory, as the touch's token is */
};

/* A request under way that may change leases; its ticket points here. */
struct lease_request {
    struct lease_request *next; /* in the transaction, the one before it */
    struct lease_client *client;
    struct lease_terms terms;
    enum lease_care care;
    struct lease_shape shape; /* its slices are void */
    int64_t database;
    int64_t sent_us;
    uint64_t sequence;
    int64_t lease_us;         /* that it sets; 0: none */
    struct lease_score score; /* that it sets */
    bool in_transaction;
    uint32_t place;        /* in the transaction, among the commands that were looked at, … */
    uint32_t of;           /* … of which there were so many */
    bool selects;          /* it meets the database of a SELECT in the transaction, … */
    uint32_t select_place; /* … which is that one */
    bool flushes;
    bool suspects_all; /* it may have ended any lease of the database */
    size_t weight;     /* what is kept of it, in whole KiB */
    size_t target_count;
    struct lease_target targets[]; /* for locks of several keys, one for each */
};

/* Lines of one kind that are logged. */
struct lease_lines {
    int64_t since_us; /* the beginning of the second in which … */
    uint32_t said;    /* … so many were logged, and … */
    uint32_t unsaid;  /* … so many before were not */
};

/* The policy on one worker. */
struct lease_worker {
    struct lease_registry *registry;
    const struct policy_host *host;
    _Atomic uint64_t *counters;
    struct lease_rule *rules;
    size_t rule_count;
    LIST_HEAD(, lease_client) clients;
    size_t searching;          /* clients whose process is still looked for */
    uint64_t endings;          /* processes that had ended when this worker last looked for clients of such */
    uint64_t searched;         /* the last search that this worker has gone through */
    size_t calls;              /* scripts under way, … */
    size_t fresh_calls;        /* … of those that were sent since the last tick, … */
    uint64_t ticks;            /* … of which this is the number */
    bool watching;             /* lease_watch() is at work */
    bool last_round;           /* the process ends: all leases are renewed once more */
    struct lease_lines losses; /* that were logged */
    struct lease_lines ends;   /* of owners */
    struct lease_lines beyond; /* what max_leases has no room for */
    int64_t failure_warned_us; /* when a failure was logged last */
};

static inline void lease_count(struct lease_worker *worker, enum lease_counter counter)
{
    policy_count(&worker->counters[counter], 1);
}

static inline int64_t lease_now(const struct lease_worker *worker)
{
    return worker->host->now_us(worker->host->context);
}

/* The first rule that names the key, or NULL. */
static inline const struct lease_rule *lease_rule_of(const struct lease_worker *worker, struct slice key)
{
    return lease_rule_find(worker->rules, worker->rule_count, key);
}

/* By how much of a lease its end may be another than expected without anybody having touched it: one part of so many.
 */
#define LEASE_SLACK_PART 8
/* Shorter leases are not kept. */
#define LEASE_LEAST_US INT64_C(300000)

/* Whether its locks are members of a sorted set, each with a score, and not keys with a time to live. */
static inline bool lease_kind_is_semaphore(enum lease_kind kind)
{
    return kind == LEASE_SEMAPHORE_BY_START || kind == LEASE_SEMAPHORE_BY_EXPIRY;
}

/* ---- lease_client.c ---- */

/* Says who the client is, from which on its connections count; *attachment is NULL at first. */
void lease_client_join(struct lease_worker *worker, const struct policy_client *client, void **attachment);
void lease_client_leave(struct lease_worker *worker, struct lease_client *client, const struct policy_client *from);
/* Looks on for processes, and for further connections of those whose known ones have gone. Nothing is locked. */
void lease_client_tick(struct lease_worker *worker);

/* ---- lease_owner.c; all but lease_owner_identify() for who has locked the registry ---- */

/* How the client is shown. */
struct slice lease_owner_shown(const struct lease_client *client);
/* Whether the client is known to be one of the lease's owners. */
bool lease_owner_is(const struct lease *lease, const struct lease_client *client);
/* The client may have taken a lock: finds out who it is, as far as the terms want it. Nothing is locked. */
void lease_owner_identify(struct lease_worker *worker, struct lease_client *client, const struct lease_terms *terms);
/* It was about to take a lock, which is not kept as the client is a relay: says so in the log, once. */
void lease_owner_decline(struct lease_worker *worker, const struct lease_terms *terms);
/* The client has the lease, too, from now on, or whom it stands for under the lease's terms. */
void lease_owner_take(struct lease_worker *worker, struct lease_client *client, struct lease *lease);
/* Whether another has taken a lock by its value, too: says so in the log, once. */
bool lease_owner_is_ambiguous(struct lease_worker *worker, const struct lease *lease);
/* Sets anew when all leases of the owner are to be looked at. */
void lease_owner_schedule(struct lease_worker *worker, struct lease_owner *owner);
/* The owner has one connection more: it may have come back in time. Returns it; NULL is harmless. */
struct lease_owner *lease_owner_welcome(struct lease_worker *worker, struct lease_owner *owner);
/* It has one connection less, or one that there never was has gone. */
void lease_owner_leave(struct lease_worker *worker, struct lease_owner *owner);
/* What the client has taken goes to whom it belongs to by now. from: an owner that it had until now, or NULL. */
void lease_owner_settle(struct lease_worker *worker, struct lease_client *client, struct lease_owner *from);
/* Whether the client's process is still looked for. Locked or not. */
void lease_owner_set_searching(struct lease_worker *worker, struct lease_client *client, bool searching);
/* The client is of that process, which it was counted with; NULL is harmless. */
void lease_owner_adopt(struct lease_worker *worker, struct lease_client *client, struct lease_owner *process);
/* The client's process has ended, and its connection is there: somebody else has that, and what was taken by it. Who it
 * is is looked for, and until then the connection stands for him. */
void lease_owner_forsake(struct lease_worker *worker, struct lease_client *client);
/* What the client has taken is kept by the connections of its user, of which this is one, as its process was not found.
 */
void lease_owner_entrust(struct lease_worker *worker, struct lease_client *client);
/* Whether the process that it is lives; who is none does. Locked or not. */
bool lease_owner_lives(const struct lease_worker *worker, const struct lease_owner *owner);

/* ---- lease_process.c ---- */

/* Looks for further connections of processes, and whether processes live. Nothing is locked. */
void lease_process_tick(struct lease_worker *worker);

/* ---- lease_guard.c ---- */

/* WATCH is about to be forwarded: ADMIT, or HOLD as long as a renewal of one of the keys is under way. */
enum policy_verdict lease_guard_begin(struct lease_worker *worker, struct lease_client *client,
                                      const struct policy_request *request, struct policy_decision *decision);
/* The client WATCHes nothing any more of what it did before that number. Nothing is locked. */
void lease_guard_end(struct lease_worker *worker, struct lease_client *client, uint64_t sequence);

/* ---- lease_request.c ---- */

enum policy_verdict lease_request_begin(struct lease_worker *worker, const struct policy_request *request,
                                        struct policy_decision *decision);
/* Whether it may have to do with a lock that is watched, or ends what MULTI has queued. */
bool lease_request_concerns(const struct lease_worker *worker, const struct policy_glance *glance);
/* Frees those that MULTI has queued. */
void lease_request_forget(struct lease_worker *worker, struct lease_client *client);

/* ---- lease_outcome.c ---- */

/* What became of a request. */
enum lease_outcome {
    LEASE_OUTCOME_YES,
    LEASE_OUTCOME_NO,
    LEASE_OUTCOME_HELD,    /* released once, and held still */
    LEASE_OUTCOME_REFUSED, /* it was not executed */
    LEASE_OUTCOME_UNCLEAR, /* Redis has to be asked */
    LEASE_OUTCOME_UNKNOWN  /* and may execute it yet */
};

/* What can be seen of the reply to the request itself; empty if nothing, as of many a reply behind others in EXEC's. */
struct slice lease_outcome_head(const struct lease_request *request, const struct policy_reply *reply);
/* head: what can be seen of it. */
enum lease_outcome lease_outcome_of(const struct lease_request *request, const struct policy_reply *reply,
                                    struct slice head);

/* ---- lease_effect.c ---- */

/* What has come of the request, and all of its transaction; frees them. */
void lease_request_end(struct lease_worker *worker, struct lease_request *request, const struct policy_reply *reply);

/* ---- lease_permit.c; for who has locked the registry ---- */

/* A ZADD has put the permit into its set: an attempt, of which a ZRANK may say that it was none. */
void lease_permit_try(struct lease *lease);
/* Its rank was asked for: less than the limit is a permit. False: it is none, and is to end. */
bool lease_permit_rank(struct lease_worker *worker, struct lease *lease, int64_t rank);
/* The same, but its rank is not known. */
void lease_permit_hide_rank(struct lease *lease);
/* It has lasted so long. */
void lease_permit_settle(struct lease_worker *worker, struct lease *lease);
/* It ends, and is on file yet: an attempt whose rank nobody asked for was a permit. */
void lease_permit_end(struct lease_worker *worker, struct lease *lease);

/* ---- lease_schedule.c; for who has locked the registry ---- */

/* Sets when the lease is to be looked at next, after whatever may have changed that. */
void lease_schedule(struct lease_worker *worker, struct lease *lease);
/* What it counts of max_leases: a renewal of one key in ten seconds is one. */
size_t lease_weight(const struct lease *lease);
static inline int64_t lease_latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* From when on it may be asked about before its time. If its key has many leases, or if there are many, each request
 * that concerns all of them would make as many scripts: then half the time between renewals after it was asked last. */
int64_t lease_early_us(const struct lease_registry *registry, const struct lease *lease);
/* When it is to be looked at, if nothing stands in the way, … */
int64_t lease_due_us(const struct lease_registry *registry, const struct lease *lease);
/* … when a lock that is held is to be renewed, … */
int64_t lease_renewal_due_us(const struct lease_registry *registry, const struct lease *lease);
/* … when one without a time to live is to be given one, … */
int64_t lease_healing_due_us(const struct lease *lease);
/* … and when an attempt at a semaphore that lasts so long is none any more, but a permit. */
int64_t lease_permit_settles_us(const struct lease *lease);
/* Whether a lease until then is shorter than what is on file by more than its slack. */
bool lease_is_shorter(const struct lease *lease, int64_t expires_us);
/* When it will have been held for so long as it may be. */
int64_t lease_deadline_us(const struct lease *lease);
/* Whether there is nothing to gain any more; leases are given in whole ms. */
bool lease_reaches_deadline(const struct lease *lease);
/* Whether it may have no time to live: to give it one comes before all else. */
bool lease_may_be_endless(const struct lease *lease);
/* Whether all connections of all its owners are gone. */
bool lease_is_ownerless(const struct lease *lease);
/* Whether they are, and what there is to be done for it is no more than to let go of it. */
bool lease_is_orphan(const struct lease *lease);
/* How far the score of a permit, whose rank counts, is kept from those that are swept up, and from those of newcomers:
 * each as much. */
int64_t lease_margin_us(const struct lease *lease);

/* ---- lease_count.c; for who has locked the registry ---- */

/* Redis has said that the lock was taken: it counts from now on. */
void lease_count_taken(struct lease_worker *worker, struct lease *lease);
/* It is kept by those terms from now on, of its rule as it is now or of another one. */
void lease_count_under(struct lease *lease, const struct lease_terms *terms);
/* One like that was taken, and released before this one was. */
void lease_count_brief(struct lease_worker *worker, const struct lease *lease);

/* ---- lease_end.c; for who has locked the registry ---- */

/* A script that nobody knows may have ended the lock: Redis is asked soon, and what it says of a script's answer that
 * was asked for before does not count. */
void lease_suspect(struct lease_worker *worker, struct lease *lease);
/* Whether such a script may have, or one that did not say which keys it touches. */
bool lease_is_suspect(const struct lease_worker *worker, const struct lease *lease);
/* What became of a lock that was gone when its owner was: that may have released it just before. */
enum lease_reason lease_reason_without_owner(const struct lease_worker *worker, const struct lease *lease);
/* Takes the lease off file, counts why, and logs it if somebody has lost a lock. */
void lease_end(struct lease_worker *worker, struct lease *lease, enum lease_reason why);

/* ---- lease_watch.c; nothing is locked ---- */

/* Looks after the leases of this worker that are due. */
void lease_watch(struct lease_worker *worker);
/* Whether it has nothing to wait for. */
bool lease_watch_is_done(struct lease_worker *worker);

/* ---- lease_twin.c ---- */

/* TELL and HEAR of struct policy_twin. */
enum policy_answer lease_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer);
enum policy_answer lease_verb_hear(void *instance, size_t count, const struct slice *arguments, FILE *answer);

/* ---- lease_text.c ---- */

const char *lease_reason_name(enum lease_reason reason);
const char *lease_kind_name(enum lease_kind kind);
/* How its owner is shown. */
struct slice lease_shown_owner(const struct lease *lease);
/* Tells those who listen what has happened, so many times, to such a lock. */
void lease_tell(const struct lease_worker *worker, const struct lease *lease, enum policy_event_kind kind,
                uint32_t count, const char *what);
/* Logs, not too often, what became of a lock that somebody has lost or is about to lose. The registry is locked. */
void lease_warn_of_loss(struct lease_worker *worker, const struct lease *lease, const char *what);
/* Logs, not too often, that a lock is let go as its owner is gone. The registry is locked. */
void lease_inform_of_end(struct lease_worker *worker, const struct lease *lease);
/* Counts that something of that owner is not watched for want of room, and logs it, not too often. */
void lease_warn_of_bound(struct lease_worker *worker, const char *rule, struct slice key, struct slice owner);
/* Logs, not too often, that a script has failed. Nothing is locked. */
void lease_warn_of_failure(struct lease_worker *worker, const char *error);

/* Bytes of a quoted text. */
#define LEASE_QUOTED_MAX 200
/* Writes the text as it is if it is plain, else in quotes with \xHH for what is not printable; long ones are cut. */
void lease_quote(char quoted[LEASE_QUOTED_MAX], struct slice text);

/* ---- lease_call.c ---- */

/* What a script is called for. */
enum lease_script_operation {
    LEASE_OPERATION_RENEW,
    LEASE_OPERATION_CHECK,
    LEASE_OPERATION_HEAL,
    LEASE_OPERATION_RELEASE
};

/* A call that is made up, with all its bytes. */
struct lease_call;

/* Makes up the call and notes that it is under way; the registry is locked. NULL when memory is short. */
struct lease_call *lease_call_prepare(struct lease_worker *worker, struct lease *lease,
                                      enum lease_script_operation operation);
/* Sends it; nothing is locked, neither when its answer was taken and done is called. */
typedef void lease_call_done(struct lease_worker *worker);
void lease_call_send(struct lease_call *call, lease_call_done *done);

/* ---- lease_verbs.c ---- */

enum policy_answer lease_verb_leases(void *instance, size_t count, const struct slice *arguments, FILE *answer);
enum policy_answer lease_verb_lease(void *instance, size_t count, const struct slice *arguments, FILE *answer);

#endif
