/*
 * What a request means for locks and semaphores, told from its bytes alone and before any reply is seen: who takes what
 * for how long, who extends, who gives back, and which reply says that it came about.
 *
 * Pure: no I/O and no state. Any bytes may be given; what is not sound, or what Redis would refuse anyway, means
 * nothing. The slices and runs of a shape point into the frame.
 *
 *   SET … NX, SETNX, MSETNX, MSETEX … NX, scripts ACQUIRE       the reply decides (lease_shape_answer)
 *   scripts, SET … IFEQ with the same value      EXTEND         the client renews for itself
 *   SET … XX with a time to live                 EXTEND         compares nothing: the token may be another's than held
 *   scripts, DELIFEQ, DELEX … IFEQ, ZREM         RELEASE        of one owner's lease: compares the token
 *   DEL, UNLINK, GETDEL, SET, RENAME, scripts …  FORCE_RELEASE  of whoever holds the keys
 *   EXPIRE and its like                          EXPIRE         heals a SETNX, or shortens a lease
 *   APPEND, GETEX, SET … KEEPTTL and the like    WRITE          Redis is asked what there is now
 *   ZADD, ZRANK, ZREMRANGEBYSCORE                SCORE, RANK, REAP: what a semaphore in one MULTI is made of
 *   scripts that are not known, FCALL, ZREMRANGEBYRANK UNSEEN         may have ended any lock of the keys, which are
 * all of a script's arguments
 */
#ifndef HEADGATE_LEASE_SHAPE_H
#define HEADGATE_LEASE_SHAPE_H

#include "lease/lease_script.h"
#include "lease/lease_words.h"
#include "policy/policy.h"

enum lease_answer {
    LEASE_ANSWER_UNCLEAR, /* an error of a script, QUEUED, or something unexpected: Redis has to be asked */
    LEASE_ANSWER_YES,
    LEASE_ANSWER_NO,
    LEASE_ANSWER_HELD /* the release succeeded, but the owner holds the lock still */
};

/* Arguments behind the keys of a script that is not known that are looked at, as each may be a key. */
#define LEASE_VALUES_MAX 1000

struct lease_shape {
    enum lease_action action;
    enum lease_kind kind;
    enum lease_reply reply;
    enum lease_renews renews;
    struct slice key; /* the first of keys */
    struct resp_walk keys;
    uint32_t key_step; /* each of so many arguments is a key */
    uint32_t key_count;
    bool every_key;     /* FORCE_RELEASE of all the keys there are: FLUSHALL, FLUSHDB, SWAPDB */
    bool one_database;  /* … of its own database: FLUSHDB */
    bool undeclared;    /* UNSEEN: it may have ended any lock of the database beside those of the keys */
    struct slice token; /* the first of tokens */
    struct resp_walk tokens;
    uint32_t token_count; /* several: permits of one key, or one token for each key */
    int64_t lease_ms;     /* 0: none is given, or expires_at says it */
    int64_t expires_at;   /* 0, or when the lease ends, in expires_unit */
    enum lease_unit expires_unit;
    bool adds;                         /* EXTEND: lease_ms comes on top of what is left */
    bool replaces;                     /* EXTEND by SET XX: whatever token was there has made way for this one */
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

/* The lease in ms as seen at that time of the wall clock; 0 for none or one that is over. */
int64_t lease_shape_ms(const struct lease_shape *shape, int64_t wall_ms);

/* What the beginning of a reply, with its whole first line or more, says about the request. */
enum lease_answer lease_shape_answer(const struct lease_shape *shape, struct slice head);

/* The reply to one command of a transaction, from the head of EXEC's: the one at that place (from 0 on) of so many.
 * False if EXEC's reply has another number, or that one does not lie within the head. */
bool lease_answer_of_exec(struct slice head, uint32_t place, uint32_t count, struct slice *reply);
/* The integer that a reply is; false if it is none. */
bool lease_answer_integer(struct slice head, int64_t *value);

/* Begins with the arguments behind the command's name; false if the frame's beginning is not sound. */
bool lease_shape_begin(struct resp_walk *arguments, struct slice frame);
/* The next of a shape's keys, which are so many arguments apart; false after the last, or where the frame is not sound.
 */
bool lease_shape_next_key(struct resp_walk *keys, uint32_t step, struct slice *key);

/* The text that an EVAL or a SCRIPT LOAD brings, of which a digest may be learned. */
bool lease_shape_text(const struct command *command, struct slice frame, struct slice *text);

#endif
