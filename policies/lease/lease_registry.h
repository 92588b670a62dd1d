/*
 * Which leases there are: one registry for all workers of the process. A lease is found by database, key and token, by
 * key alone, or by its owner. What is under way at Redis and may change a lease is counted by the keys and tokens that
 * it touches.
 *
 *   keys ──► members ──► lease ◄── owner (connections of one client)
 *
 * All functions but those of opening, closing and locking are for who has locked the registry. There is one lock:
 * locks are taken and released tens of thousands of times a second, not millions, and each time takes less than a
 * microsecond under it.
 */
#ifndef HEADGATE_LEASE_REGISTRY_H
#define HEADGATE_LEASE_REGISTRY_H

#include "base/table.h"
#include "lease/lease_rule.h"
#include "lease/lease_score.h"
#include "lease/lease_wheel.h"

#include <sys/queue.h>

/* Longer keys and tokens are none of a lock that is watched. */
#define LEASE_TEXT_MAX ((size_t)64 * 1024)
/* Keys of one lock that are watched: more than a script of a policy takes are none. */
#define LEASE_KEYS_MAX ((size_t)POLICY_SCRIPT_ARGUMENTS_MAX - 4)

enum lease_state {
    LEASE_UNHEALED,  /* it has no time to live: it is to be given one */
    LEASE_DOUBTFUL,  /* Redis is to be asked what has come of it */
    LEASE_HELD,      /* it is renewed */
    LEASE_SELF,      /* the library renews it */
    LEASE_EXHAUSTED, /* max_hold was reached: it is not renewed any more */
    LEASE_ENDED      /* it is on file no more, and freed when no script for it is under way */
};

/* What was last heard of a lease, or how it ended. */
enum lease_reason {
    LEASE_REASON_NONE,
    LEASE_REASON_RENEWED,
    LEASE_REASON_DEFERRED,
    LEASE_REASON_FAILED,
    LEASE_REASON_RELEASED,
    LEASE_REASON_UNSEEN,
    LEASE_REASON_GONE,
    LEASE_REASON_TAKEN,
    LEASE_REASON_PERSISTED,
    LEASE_REASON_SHORTENED,
    LEASE_REASON_OTHER_TYPE,
    LEASE_REASON_UNREACHABLE,
    LEASE_REASON_OWNER_GONE,
    LEASE_REASON_MAX_HOLD,
    LEASE_REASON_DROPPED,
    LEASE_REASON_BEYOND
};

struct lease;

/* A key of leases. */
struct lease_key {
    struct table_node node;
    int64_t database;
    LIST_HEAD(, lease_member) members;
    size_t member_count;
    size_t length;
    char name[];
};

/* One of the keys of a lease. */
struct lease_member {
    struct table_node node; /* by key and token */
    LIST_ENTRY(lease_member) of_key;
    struct lease *lease;
    struct lease_key *key;
};

/* What a request under way touches: a lease, or all of a key. Nothing points to it. */
struct lease_touch {
    struct slice token;      /* whose lease; data NULL: any */
    uint64_t sequence;       /* of the request: later ones are greater */
    uint64_t key_hash, hash; /* by which it is counted: with its key, and with its token */
    bool releases;           /* it may release the lease */
    bool is_counted;
    /* Once it has ended: */
    bool overtaken; /* a release that was sent behind it has ended before it, … */
    bool is_over;   /* … and one by the same token, sent before or behind, came about while it was under way */
};

/* Whose connections show that the holder lives. */
struct lease_owner {
    struct table_node node;
    size_t connections;
    size_t weight;   /* of what it has taken */
    int64_t gone_us; /* when the last connection went; 0: there are some, or may be */
    LIST_HEAD(, lease_share) shares;
    /* Of a process; pid 0: it is none. */
    struct policy_peer process;
    uint64_t user; /* whose connections of one address it is all of, hashed with that; 0: it is none such */
    LIST_ENTRY(lease_owner) of_processes;
    int64_t checked_us;   /* when it was last looked at whether it lives */
    bool is_alone;        /* it is one connection, and so of this process only */
    bool ended;           /* it does not: those who have its connections now are to be found */
    uint64_t search;      /* the number of the search for further connections of it; 0: there is none */
    size_t searchers;     /* workers that have not looked through their clients yet */
    size_t length, shown; /* of the name, which no other has, and of what is shown of it */
    char name[];
};

/* That one of its owners has the lease. */
struct lease_share {
    LIST_ENTRY(lease_share) of_owner;
    LIST_ENTRY(lease_share) of_lease;
    struct lease *lease;
    struct lease_owner *owner; /* NULL: it is not in use */
    uint64_t client;           /* the connection by which he has it; 0: one of another process */
};

struct lease {
    struct lease_wheel_entry watch; /* first, so that it is found from there */
    LIST_ENTRY(lease) of_all;
    /* Of the taker, who is the first, and of those who have extended it by the token. It ends when all are gone. */
    LIST_HEAD(, lease_share) shares;
    struct lease_share taken;
    struct lease_terms terms;
    enum lease_kind kind;
    enum lease_state state;
    enum lease_reason reason;
    bool calling;       /* a script for it is under way */
    bool is_beyond;     /* it has become too heavy: the watch over it is to end */
    bool is_of_many;    /* one request may be about many such */
    bool confirmed;     /* Redis has said that it was taken */
    bool after_release; /* a release may have come about */
    bool ranked;        /* a permit that newcomers' scores are compared with: the lower its score, the safer it is */
    bool trial;         /* of those: an attempt that may have been refused */
    bool rank_asked;    /* of a trial: its owner has asked for its rank */
    bool abandoned;     /* a release of it may not have reached Redis: it is to be healed, and left alone then */
    bool was_endless;   /* it was taken without a time to live, and may have none again behind a failover */
    size_t weight;      /* what it counts of max_leases */
    size_t worker;      /* which of them watches it */
    uint64_t client;    /* the connection that took it; 0: nobody knows which of two */
    uint64_t sequence;  /* of the request that took it */
    uint64_t granted;   /* the last number when its reply came: those up to it were under way together with it */
    uint64_t suspected; /* since that number a script that nobody knows may have ended it; 0: none has */
    uint64_t shown;     /* by that number Redis had it: what such scripts have done to any lease before is over */
    uint64_t proved;    /* of the last request whose reply said that it is held: what was asked before is out of date */
    uint32_t holds;     /* of a read lock: how many its owner had at most */
    int64_t lease_us;
    int64_t acquired_us;
    int64_t expires_us;     /* not before this, if nobody has touched it, … */
    int64_t vague_us;       /* … but so much later perhaps */
    int64_t proved_us;      /* when Redis has told that, … */
    int64_t proved_over_us; /* … over the connection that was there since then; 0: over the owner's, or there is none */
    int64_t missed_us;      /* when Redis was first found not to have it; 0: it has */
    int64_t retry_us;       /* after a failure: when to try again; else 0 */
    int64_t called_us;      /* when a script for it was sent last; 0: never */
    struct lease_score score; /* of a semaphore: as it is now … */
    int64_t scored_us;        /* … which was right at this time */
    const char *companion;    /* a member that shares the score, if it is there; or NULL */
    uint64_t renewals;
    uint64_t deferrals;
    uint64_t failures;
    struct slice token; /* the lease's own memory */
    size_t key_count;
    struct lease_member members[];
};

struct lease_registry;

/* What is said once: of which owners nobody can tell, … */
enum lease_once {
    LEASE_ONCE_PROCESS,
    LEASE_ONCE_CLIENT,
    LEASE_ONCE_RELAYED, /* … that a lock came by way of another Headgate, … */
    LEASE_ONCE_VALUE,   /* … that two owners have used one value, … */
    LEASE_ONCE_RANK,    /* … and that a rule does not say how many permits there are */
    LEASE_ONCES
};

/* threads: how many workers there are. NULL when memory is short. */
struct lease_registry *lease_registry_new(size_t threads);
/* What rules have counted: for any thread, without the registry's lock. */
struct lease_tallies *lease_registry_tallies(struct lease_registry *registry);
/* Nothing of it may be in use any more. */
void lease_registry_free(struct lease_registry *registry);
void lease_registry_lock(struct lease_registry *registry);
void lease_registry_unlock(struct lease_registry *registry);

/* The next number for a request. */
uint64_t lease_registry_sequence(struct lease_registry *registry);
/* The last one that was given. */
uint64_t lease_registry_last(const struct lease_registry *registry);
/* How many leases there are. */
size_t lease_registry_count(const struct lease_registry *registry);
/* What all leases may weigh together, and so may all requests under way; those on file stay if it is less. */
void lease_registry_bound(struct lease_registry *registry, size_t most);
/* What the leases weigh. */
size_t lease_registry_weight(const struct lease_registry *registry);
struct lease_wheel *lease_registry_wheel(struct lease_registry *registry, size_t worker);
/* Whether the process is about to end: clients that leave now come back elsewhere. */
bool lease_registry_is_draining(const struct lease_registry *registry);
void lease_registry_drain(struct lease_registry *registry);
/* Until then there is another process, which takes over from this one, if gives_away, or has had it take over. */
void lease_registry_set_beside(struct lease_registry *registry, int64_t until_us, bool gives_away);
bool lease_registry_is_beside(const struct lease_registry *registry, int64_t now_us);
bool lease_registry_gives_away(const struct lease_registry *registry, int64_t now_us);

/* ---- keys ---- */

/* The key, if there are leases on it, or NULL. */
struct lease_key *lease_registry_find_key(struct lease_registry *registry, int64_t database, struct slice name);
/* Whether there are, or a request under way concerns it. */
bool lease_registry_expects(struct lease_registry *registry, int64_t database, struct slice name);
/* Counts that a request with the touch's sequence is under way. Without memory it is not counted. */
void lease_registry_touch(struct lease_registry *registry, struct lease_touch *touch, int64_t database,
                          struct slice name);
/* The request has ended. Harmless for a touch that is not counted. */
void lease_registry_untouch(struct lease_registry *registry, struct lease_touch *touch);
/* The request has ended, and may have released what it touches; came_about: it has. */
void lease_registry_note_release(struct lease_registry *registry, const struct lease_touch *touch, bool came_about);
/* Somebody WATCHes a key from now on; what ends that is returned, 0 when memory is short. */
uint64_t lease_registry_guard(struct lease_registry *registry, int64_t database, struct slice name);
void lease_registry_unguard(struct lease_registry *registry, uint64_t guard);
/* Scripts under way that nobody knows and that did not say which keys they touch: any lease of the database may be
 * ended by them, or by those of some other one. executed: it may have been. */
void lease_registry_begin_unseen(struct lease_registry *registry, int64_t database);
void lease_registry_end_unseen(struct lease_registry *registry, int64_t database, bool executed);
/* The same of something that has ended, and may have been executed, of all databases (FLUSHALL). */
void lease_registry_unsee(struct lease_registry *registry);
/* The number of when one of them ended last; UINT64_MAX: some are under way; 0: there was none. */
uint64_t lease_registry_unseen(const struct lease_registry *registry, int64_t database);
/* Whether there is neither a lease nor a request under way that concerns a key. */
bool lease_registry_is_empty(const struct lease_registry *registry);

/* ---- leases ---- */

struct lease *lease_registry_find(struct lease_registry *registry, int64_t database, struct slice name,
                                  struct slice token);
/* A new lease on those keys (1 to LEASE_KEYS_MAX, each once, however often it is named), in no wheel and without owner;
 * the texts are copied. NULL when memory is short. */
struct lease *lease_registry_add(struct lease_registry *registry, int64_t database, const struct slice *keys,
                                 size_t key_count, struct slice token);
/* The one that moves a lease from state to state. */
void lease_move(struct lease *lease, enum lease_state state);
/* The lease weighs so much from now on. False: there is no room for it, as no owner's leases may weigh more than a
 * third of what is left beside them, and it weighs what it did. What becomes no heavier always may; nor is what is on
 * file given up for less than four times what it weighs: its rule may say otherwise now, or its readers be more. */
bool lease_registry_weigh(struct lease_registry *registry, struct lease *lease, size_t weight);
/* The same of what another process has watched: there is room for it. */
void lease_registry_take_over(struct lease_registry *registry, struct lease *lease, size_t weight);
/* The same of a request under way that weighs *weight, among those of a client, which weigh *of_client. */
bool lease_registry_weigh_request(struct lease_registry *registry, size_t *of_client, size_t *weight, size_t wanted);
/* Takes the lease off file, as ENDED: it is void unless a script for it is under way. */
void lease_registry_remove(struct lease_registry *registry, struct lease *lease, enum lease_reason reason);
/* Frees one that has ended, once no script for it is under way. */
void lease_free_ended(struct lease *lease);
/* The first of all leases; the next is LIST_NEXT(lease, of_all). */
struct lease *lease_registry_first(const struct lease_registry *registry);
/* Whether a request that may release the lease is under way. */
bool lease_registry_is_releasing(const struct lease_registry *registry, const struct lease *lease);
/* Whether somebody WATCHes a key of it. */
bool lease_registry_is_guarded(const struct lease_registry *registry, const struct lease *lease);
/* Whether any request that concerns it is: what a script says in the meantime may be out of date. */
bool lease_registry_is_touched(const struct lease_registry *registry, const struct lease *lease);

/* ---- owners ---- */

/* The owner of that name, of which so much is shown, with one more connection; NULL when memory is short. */
struct lease_owner *lease_registry_join(struct lease_registry *registry, struct slice name, size_t shown);
/* The same for a process, whose name this is, or for all connections of a user, if the process has no pid. */
struct lease_owner *lease_registry_join_process(struct lease_registry *registry, struct slice name, size_t shown,
                                                const struct policy_peer *process, uint64_t user);
/* The first of both; the next is LIST_NEXT(owner, of_processes). */
struct lease_owner *lease_registry_first_process(const struct lease_registry *registry);
/* All workers are to look for further connections of one of both, until it is joined; searches are numbered in their
 * order. */
void lease_registry_search(struct lease_registry *registry, struct lease_owner *process);
/* The search with the next number; NULL if there is none. */
struct lease_owner *lease_registry_next_search(const struct lease_registry *registry, uint64_t number);
/* The process has ended, and has connections yet: all workers are to look whose theirs are now. */
void lease_registry_end_process(struct lease_registry *registry, struct lease_owner *process);
/* How often that was so. */
uint64_t lease_registry_endings(const struct lease_registry *registry);
/* Whether this is the first time that it is asked so. */
bool lease_registry_is_first(struct lease_registry *registry, enum lease_once what);
/* A connection of the owner has gone. The owner is void if it has neither connections nor leases. */
void lease_registry_leave(struct lease_registry *registry, struct lease_owner *owner, int64_t now_us);
/* The owner has the lease, too, from now on. NULL when memory is short, which it never is of the first one. */
struct lease_share *lease_own(struct lease *lease, struct lease_owner *owner);
/* What was one owner's is the other one's from now on. The share is void if that has the lease already. */
void lease_registry_hand_over(struct lease_registry *registry, struct lease_share *share, struct lease_owner *owner);
/* The owner has the lease no more. */
void lease_registry_disown(struct lease_registry *registry, struct lease_share *share);
/* Who took the lease; NULL: nobody knows. */
struct lease_owner *lease_taker(const struct lease *lease);
/* The owner has taken a lock by that token. Whether another had, too, as far as that is remembered. */
bool lease_registry_use_token(struct lease_registry *registry, struct slice token, const struct lease_owner *owner);

/* ---- scripts that were seen ---- */

/* Remembers what a script does that is in no table, of as many as there may be of a user's. */
void lease_registry_learn(struct lease_registry *registry, const char digest[LEASE_DIGEST_LENGTH],
                          const struct lease_script *script, uint64_t user);
/* NULL if nothing was learned of it. Locks the registry, if it has to look. */
const struct lease_script *lease_registry_script(struct lease_registry *registry, struct slice digest);

#endif
