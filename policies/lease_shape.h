/*
 * What a request means for locks and semaphores, told from its bytes alone and before any reply is seen: who takes what
 * for how long, who extends, who gives back, and which reply says that it came about.
 *
 * Pure: no I/O, no allocation, no state. Any bytes may be given; what is not sound, or what Redis would refuse anyway,
 * means nothing. The slices and runs of a shape point into the frame.
 *
 *   SET … NX, SETNX, MSETEX … NX, scripts        ACQUIRE        the reply decides (lease_shape_answer)
 *   scripts, SET … IFEQ with the same value      EXTEND         the client renews for itself
 *   SET … XX with a time to live                 EXTEND         compares nothing: the token may be another's than held
 *   scripts, DELIFEQ, DELEX … IFEQ, ZREM         RELEASE        of one owner's lease: compares the token
 *   DEL, UNLINK, GETDEL, SET, RENAME, scripts …  FORCE_RELEASE  of whoever holds the keys
 *   EXPIRE and its like                          EXPIRE         heals a SETNX, or shortens a lease
 *   ZADD, ZRANK, ZREMRANGEBYSCORE                SCORE, RANK, REAP: what a semaphore in one MULTI is made of
 *
 * Scripts are known by their digest (lease_scripts.inc), which EVALSHA says and which is computed from EVAL's text, or
 * by the idiom "if GET equals ARGV[1], then DEL, UNLINK, PEXPIRE or EXPIRE". An acquisition is never inferred from a
 * script that is in no table.
 */
#ifndef HEADGATE_LEASE_SHAPE_H
#define HEADGATE_LEASE_SHAPE_H

#include "policy.h"

enum lease_action {
    LEASE_NOTHING,
    LEASE_ACQUIRE, /* also of a lock that the token has already: again, or for longer */
    LEASE_EXTEND,
    LEASE_RELEASE,
    LEASE_FORCE_RELEASE, /* the keys are removed, replaced, or lose their time to live */
    LEASE_EXPIRE,        /* the key gets a time to live; one that is over is a FORCE_RELEASE */
    LEASE_SCORE,         /* ZADD of one member without options: token and score */
    LEASE_RANK,          /* ZRANK: token */
    LEASE_REAP           /* ZREMRANGEBYSCORE from the lowest score on: score is the upper bound */
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

enum lease_answer {
    LEASE_ANSWER_UNCLEAR, /* an error, QUEUED, or something unexpected: Redis has to be asked */
    LEASE_ANSWER_YES,
    LEASE_ANSWER_NO,
    LEASE_ANSWER_HELD /* the release succeeded, but the owner holds the lock still */
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

/* Longer leases are none: some libraries write a date far away for "never". A thousand years. */
#define LEASE_MS_MAX INT64_C(31557600000000)
#define LEASE_DIGEST_LENGTH 40

/* Arguments of a frame, one after the other or every second one. */
struct lease_run {
    const char *next;
    const char *end;
    uint32_t left; /* arguments, with those that are passed over */
    uint32_t step;
};

/* A script that is known: what it does, and at which place its arguments are. Places begin at 1, 0 is none. */
struct lease_script {
    const char *library; /* as lease_script_library names it; NULL for an idiom */
    const char *name;
    const char *digest; /* SHA-1 of the text in lower-case hex; NULL for an idiom */
    uint16_t bytes;     /* of the text */
    enum lease_action action;
    enum lease_kind kind;
    enum lease_reply reply;
    enum lease_renews renews;
    uint8_t key; /* of KEYS; 0: all of them are locked */
    uint8_t token;
    bool tokens; /* all arguments from the token on are tokens */
    uint8_t lease;
    enum lease_unit unit;
    uint8_t now;   /* the client's time, from which a lease with LEASE_UNIT_AT_MS counts */
    uint8_t score; /* of the sorted set */
    uint8_t adds;  /* a "0" there adds the lease to what is left of the old one */
};

struct lease_shape {
    enum lease_action action;
    enum lease_kind kind;
    enum lease_reply reply;
    enum lease_renews renews;
    struct slice key; /* the first of keys */
    struct lease_run keys;
    uint32_t key_count;
    bool every_key;     /* FORCE_RELEASE of all the keys there are: FLUSHALL, FLUSHDB, SWAPDB */
    struct slice token; /* the first of tokens */
    struct lease_run tokens;
    uint32_t token_count; /* several: permits of one key, or one token for each key */
    int64_t lease_ms;     /* 0: none is given, or expires_at says it */
    int64_t expires_at;   /* 0, or when the lease ends, in expires_unit */
    enum lease_unit expires_unit;
    bool adds;                         /* EXTEND: lease_ms comes on top of what is left */
    struct slice score;                /* as the client wrote it; empty if there is none */
    const struct lease_script *script; /* NULL unless it is one */
};

/* Tells what the caller has learned of a digest (40 characters in lower case) that is in no table: a row, or NULL. */
typedef const struct lease_script *lease_shape_lookup(void *context, struct slice digest);

/* Whether requests of this command (NULL: one that Headgate does not know) may mean something. */
bool lease_shape_wants(const struct command *command);
/* What the request means. lookup may be NULL. */
void lease_shape_read(struct lease_shape *shape, const struct command *command, struct slice frame,
                      lease_shape_lookup *lookup, void *context);

/* The next argument of the run; false after the last, or where the frame is not sound. */
bool lease_run_next(struct lease_run *run, struct slice *argument);

/* The lease in ms as seen at that time of the wall clock; 0 for none or one that is over. */
int64_t lease_shape_ms(const struct lease_shape *shape, int64_t wall_ms);

/* What the beginning of a reply, with its whole first line or more, says about the request. */
enum lease_answer lease_shape_answer(const struct lease_shape *shape, struct slice head);

/* The text that an EVAL or a SCRIPT LOAD brings, of which a digest may be learned. */
bool lease_shape_text(const struct command *command, struct slice frame, struct slice *text);
/* The row of a script with that text, or NULL. */
const struct lease_script *lease_shape_learn(struct slice text);
/* The digest by which Redis knows the text, in lower-case hex. */
void lease_shape_digest(struct slice text, char digest[LEASE_DIGEST_LENGTH + 1]);

/* The rows of the table, for tests; NULL behind the last. */
const struct lease_script *lease_shape_script(size_t index);

/* The libraries whose scripts are known, in lower case, each once; NULL behind the last. */
const char *lease_script_library(size_t index);
/* Whether the script is one of the library with that name, in any case. */
bool lease_script_is_of(const struct lease_script *script, struct slice library);

#endif
