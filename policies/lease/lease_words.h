/* The terms in which requests, scripts and replies are told: what is done with which kind of lock, and how it is seen.
 */
#ifndef HEADGATE_LEASE_WORDS_H
#define HEADGATE_LEASE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

enum lease_action {
    LEASE_NOTHING,
    LEASE_ACQUIRE, /* also of a lock that the token has already: again, or for longer */
    LEASE_EXTEND,
    LEASE_RELEASE,
    LEASE_FORCE_RELEASE, /* the keys are removed, replaced, or lose their time to live */
    LEASE_EXPIRE,        /* the key gets a time to live; one that is over is a FORCE_RELEASE */
    LEASE_WRITE,         /* of what the key holds, or of its time to live, something may be another */
    LEASE_SCORE,         /* ZADD of one member without options: token and score */
    LEASE_RANK,          /* ZRANK: token */
    LEASE_REAP,          /* ZREMRANGEBYSCORE from the lowest score on: score is the upper bound */
    LEASE_UNSEEN         /* nobody knows what it does to the keys: a script that is in no table */
};

enum lease_kind {
    LEASE_KIND_ANY, /* the request does not say */
    LEASE_STRING,
    LEASE_STRINGS,            /* one value over several keys */
    LEASE_HASH,               /* the token is a field, its value counts how often it is held */
    LEASE_READ_LOCK,          /* the same, with a key for each hold */
    LEASE_SEMAPHORE_BY_START, /* sorted set of tokens; the score is when it was acquired */
    LEASE_SEMAPHORE_BY_EXPIRY /* the same; the score is when it expires */
};

/* Which reply says that what was asked for came about. */
enum lease_reply {
    LEASE_REPLY_NONE, /* no reply tells */
    LEASE_REPLY_OK,
    LEASE_REPLY_NIL,      /* SET NX GET, Redisson: anything else is a refusal */
    LEASE_REPLY_ONE,      /* the integer 1 */
    LEASE_REPLY_ZERO,     /* the integer 0 */
    LEASE_REPLY_COUNT,    /* an integer above 0 */
    LEASE_REPLY_ALL_KEYS, /* the number of the keys */
    LEASE_REPLY_TRUTH,    /* OK, true or an integer above 0 */
    LEASE_REPLY_VALUE,    /* GETDEL, SET XX GET: what was there; nil if nothing was */
    LEASE_REPLY_NO_ERROR,
    LEASE_REPLY_HOLDS, /* 1: released; 0: held less often; nil: not the owner */
    LEASE_REPLY_MAYBE, /* 1: released; nil: not the owner; 0: one of both, or held less often */
    LEASE_REPLY_FENCE  /* an array of -1 and the fencing token */
};

/* Whether the library that sent it renews by itself. */
enum lease_renews { LEASE_RENEWS_NO, LEASE_RENEWS_MAYBE, LEASE_RENEWS_YES };

enum lease_unit {
    LEASE_UNIT_NONE,
    LEASE_UNIT_MS,
    LEASE_UNIT_S,
    LEASE_UNIT_AT_MS, /* since 1970, on the wall clock of Redis or, in a script, of the client */
    LEASE_UNIT_AT_S
};

/* Whether it gives locks back, by a token or by force. */
static inline bool lease_action_releases(enum lease_action action)
{
    return action == LEASE_RELEASE || action == LEASE_FORCE_RELEASE;
}

/* Longer leases are none: some libraries write a date far away for "never". A thousand years. */
#define LEASE_MS_MAX INT64_C(31557600000000)

#endif
