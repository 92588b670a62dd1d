/*
 * What the tests of the scripts of leases share: calls, what they reply, and what is then there.
 *
 * Most tests bring a clock of their own, so that times to live are exact to the millisecond and hours pass in a moment.
 * It is so far ahead of Redis' that nothing expires by that one. The tests called …_in_real_time bring none.
 */
#ifndef HEADGATE_TESTS_LEASE_FIXTURE_H
#define HEADGATE_TESTS_LEASE_FIXTURE_H

#include "redis_fixture.h"

#include <inttypes.h>
#include <stdbool.h>

/* 2100-01-01, in ms. */
#define EPOCH INT64_C(4102444800000)

#define NO_KEY (-2)
#define NO_EXPIRY (-1)

#define MEGABYTE (1024 * 1024)

/* The keys of the holds of Redisson's reader "me", but for the number behind. */
#define HOLD "{lock}:me:rwlock_timeout:"

/* The codes that all scripts have in common. */
enum code {
    ANOTHER_TYPE = -4,
    SHORTENED = -3,
    PERSISTENT = -2,
    NOT_OWNER = -1,
    GONE = 0,
    RENEWED = 1,
    DEFERRED = 2,
};

struct keys {
    size_t count;
    const char *names[4];
};

/* The key "lock", alone or with those of a reader of Redisson who holds it three times. */
extern const struct keys only_lock;
extern const struct keys reader;

/* A token, a field or a member; any bytes. */
struct owner {
    const char *bytes;
    size_t length;
};

struct answer {
    int64_t code;
    int64_t life_ms;
    double score; /* of a permit that is deferred to; NaN if none was told */
};

struct terms {
    int64_t lease_ms;
    int64_t expected_ms;
    int64_t slack_ms;
};

struct seen {
    char type[8];
    char digest[41]; /* of the value */
    int64_t at_ms;   /* when it ends; NO_KEY, NO_EXPIRY */
    bool owned;      /* by the owner that was asked for */
};

/* ---- calls ---- */

/* A script with a clock of the test's own, which is the last argument of each call. */
struct runner with_own_clock(const char *name);
struct owner owner(const char *text);

/* Of the scripts for strings and hashes, which take the same. */
struct answer renew(const struct runner *runner, const struct keys *keys, struct owner owner, struct terms terms,
                    int64_t now_ms);
struct answer renew_permit(const struct runner *runner, struct owner member, double score, double expected,
                           int64_t lease_ms, int64_t now_ms);
struct answer heal(const struct runner *runner, struct owner token, int64_t ttl_ms, int64_t now_ms);
int64_t release(const struct runner *runner, const struct keys *keys, struct owner owner);

/* These free the reply. Only a permit's may tell a score. */
struct answer answer_of(redisReply *reply);
struct answer permit_answer_of(redisReply *reply);
void assert_answer(struct answer answer, int64_t code, int64_t life_ms, const char *what);

/* ---- what there is ---- */

/* A string that ends so long after EPOCH. */
void set_lock(const char *key, const char *token, int64_t life_ms);
/* NaN if there is none. */
double score_of(const char *key, const char *member);
/* -0 is another number than 0 here. */
bool same_number(double a, double b);

struct seen look_for(const char *key, struct owner owner);
/* The same for each of the keys. */
void look(const struct keys *keys, struct owner owner, struct seen *seen);
bool is_same(const struct seen *one, const struct seen *other);
/* The PTTL at that time. */
int64_t life_at(const struct seen *seen, int64_t now_ms);
/*
 * What a renewal may never do, whatever it answers: make, end or change a value, shorten a time to live or give one,
 * and lengthen by more than the lease. Only with RENEWED is anything lengthened. What ownership is, is up to the
 * caller.
 */
void assert_only_lengthened(const struct seen *before, const struct seen *after, int64_t code, int64_t until_ms);

/* ---- at random, the same in each run ---- */

/* Any bytes. */
void fill(char *bytes, size_t length);
/* Near to what is there, often at the very edge of the slack, sometimes far off. */
struct terms random_terms(int64_t life_ms);
int64_t random_step_ms(void);
/* Has those expire by the test's own clock whose time has come. */
void expire(const struct keys *keys, int64_t now_ms);
/* How often each code was answered. */
void count_code(int64_t code);
void assert_counted(enum code code, int64_t least);

typedef struct answer renewal_model(const struct seen *seen, size_t count, struct terms terms, int64_t now_ms);

/* A renewal, with what was there before and after it. */
struct renewal {
    struct seen before[4], after[4];
    int64_t code;
    int64_t until_ms; /* when its lease ends */
};

/* Renews on terms by chance: it has to answer as the model does, and do nothing that no renewal may do. Counts its
 * code. */
struct renewal renew_like_model(const struct runner *runner, const struct keys *keys, struct owner owner,
                                renewal_model *model, int64_t now_ms);

/* ---- in real time ---- */

/* Monotonic. */
int64_t wall_ms(void);
/* It was set to live so long since began_ms. */
void assert_life_since(const char *key, int64_t life_ms, int64_t began_ms);

#endif
