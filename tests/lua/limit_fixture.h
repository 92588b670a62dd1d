/*
 * What the tests of the scripts that limit share: a clock, demands, and what is answered.
 *
 * Most tests bring a clock of their own: hours pass in a moment, and arrivals hit the very microsecond that they aim
 * at. No key expires then, as that would be by Redis' clock. The tests called …_in_real_time bring none.
 */
#ifndef HEADGATE_TESTS_LIMIT_FIXTURE_H
#define HEADGATE_TESTS_LIMIT_FIXTURE_H

#include "redis_fixture.h"

#include <inttypes.h>
#include <stdbool.h>

/* In µs. */
#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define EPOCH INT64_C(1700000000123456)

#define WRONG_TYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define OVERWRITTEN "HEADGATE the state of this limit was overwritten"

/* ---- time ---- */

/* Of a reply of TIME, in µs. */
int64_t time_of(const redisReply *clock);
int64_t redis_time(void);
/* Waits until it is that late by Redis' clock. */
void wait_until(int64_t until_us);
/* A script whose last argument is the time. */
struct runner with_own_clock(const char *name);
/* What comes between these two leaves a key that says something for so long, and is kept a second longer. */
void watch_life(void);
void assert_life(const char *key, int64_t says_ms);

/* ---- limits ---- */

struct answer {
    int64_t granted;
    int64_t wait_us;
};

/* What the reply says, which the caller frees: permits, and how long to wait for more. */
struct answer answer_of(const redisReply *reply);

struct window {
    int64_t limit;
    int64_t length_us;
};

struct demand {
    int64_t cost;
    int64_t least;
    int64_t hold_us;
};

redisReply *ask_window_raw(const struct runner *runner, const char *key, struct window window, struct demand demand,
                           int64_t now_us);
struct answer ask_window(const struct runner *runner, const char *key, struct window window, struct demand demand,
                         int64_t now_us);
void assert_slots_stay_small(const char *key);

struct funnel {
    int64_t capacity;
    int64_t leak;
    int64_t period_us;
};

redisReply *ask_funnel_raw(const struct runner *runner, const char *key, struct funnel funnel, struct demand demand,
                           int64_t now_us);
struct answer ask_funnel(const struct runner *runner, const char *key, struct funnel funnel, struct demand demand,
                         int64_t now_us);
/* Of the funnel that is kept there. */
double level_of(const char *key);

/* ---- by chance ---- */

/* Time until the next arrival: bursts, and whatever lies at the edges of windows and of their shares. */
int64_t pause_us(int64_t length_us);
struct demand random_demand(int64_t limit, int64_t hold_us);

#endif
