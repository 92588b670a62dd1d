/*
 * The scripts of lua/ that limit, on a real Redis, against models that keep everything and reckon in whole numbers.
 *
 * Most tests bring a clock of their own: hours pass in a moment, and arrivals hit the very microsecond that they aim
 * at. No key expires then, as that would be by Redis' clock. The tests called …_in_real_time bring none.
 */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define EPOCH INT64_C(1700000000123456)

TestSuite(limit_log, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_slots, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_windows, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_funnel, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_return, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_forget, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(throttle, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(delifeq, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* ---- asking Redis ---- */

static int64_t time_of(const redisReply *clock)
{
    return strtoll(clock->element[0]->str, NULL, 10) * SECOND + strtoll(clock->element[1]->str, NULL, 10);
}

static int64_t redis_time(void)
{
    redisReply *reply = checked(ask("TIME"), REDIS_REPLY_ARRAY);
    int64_t now = time_of(reply);

    freeReplyObject(reply);
    return now;
}

static void assert_error(redisReply *reply, const char *text)
{
    cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "no error, where there ought to be: %s", text);
    cr_assert_str_eq(reply->str, text);
    freeReplyObject(reply);
}

#define WRONG_TYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define OVERWRITTEN "HEADGATE the state of this limit was overwritten"

/* Goes before a script whose last argument is the time. */
static const char own_clock[] = "local own_time, real = ARGV[#ARGV], redis\n"
                                "local redis = setmetatable({call = function(name, ...)\n"
                                "    if name == 'TIME' then\n"
                                "        return {string.sub(own_time, 1, -7), string.sub(own_time, -6)}\n"
                                "    end\n"
                                "    local reply = real.call(name, ...)\n"
                                "    real.call('PERSIST', KEYS[1])\n"
                                "    return reply\n"
                                "end}, {__index = real})\n";

static struct runner with_own_clock(const char *name)
{
    return with_clock(own_clock, name);
}

struct answer {
    int64_t granted;
    int64_t wait_us;
};

static struct answer answer_of(const redisReply *reply)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, 2);
    cr_assert_eq(reply->element[0]->type, REDIS_REPLY_INTEGER);
    cr_assert_eq(reply->element[1]->type, REDIS_REPLY_INTEGER);
    struct answer answer = {reply->element[0]->integer, reply->element[1]->integer};
    if (answer.granted > 0) {
        cr_assert_eq(answer.wait_us, 0);
    } else {
        cr_assert_eq(answer.granted, 0);
        cr_assert(answer.wait_us > 0 || answer.wait_us == -1, "refused, to wait %" PRId64 " µs", answer.wait_us);
    }
    return answer;
}

/* What comes between these two leaves a key that says something for so long, and is kept a second longer. */
static void watch_life(void)
{
    tell(ask("MULTI"));
    tell(ask("TIME"));
}

static void assert_life(const char *key, int64_t says_ms)
{
    tell(ask("PTTL %s", key));
    tell(ask("TIME"));
    redisReply *reply = checked(ask("EXEC"), REDIS_REPLY_ARRAY);
    cr_assert_geq(reply->elements, 4);
    for (size_t i = 1; i < reply->elements - 2; i++) {
        cr_assert_neq(reply->element[i]->type, REDIS_REPLY_ERROR, "%s", reply->element[i]->str);
    }
    int64_t life_ms = reply->element[reply->elements - 2]->integer;
    int64_t took_ms = (time_of(reply->element[reply->elements - 1]) - time_of(reply->element[0])) / 1000 + 2;
    cr_assert_leq(life_ms, says_ms + 1000 + 1);
    cr_assert_geq(life_ms, says_ms + 1000 - took_ms);
    freeReplyObject(reply);
}

/* ---- windows ---- */

struct window {
    int64_t limit;
    int64_t length_us;
};

struct demand {
    int64_t cost;
    int64_t least;
    int64_t hold_us;
};

/* Frees the reply. */
static struct answer answer_to(struct demand demand, redisReply *reply)
{
    struct answer answer = answer_of(reply);

    freeReplyObject(reply);
    cr_assert(answer.granted == 0 || answer.granted >= demand.least);
    cr_assert_leq(answer.granted, demand.cost);
    return answer;
}

/* The number of the next call, which makes each one's id its own. */
static int64_t calls;

static redisReply *ask_window_raw(const struct runner *runner, const char *key, struct window window,
                                  struct demand demand, int64_t now_us)
{
    return ask("EVALSHA %s 1 %s %lld %lld %lld %lld %lld call-%lld %lld", runner->digest, key, (long long)window.limit,
               (long long)window.length_us, (long long)demand.cost, (long long)demand.least, (long long)demand.hold_us,
               (long long)calls++, (long long)now_us);
}

static struct answer ask_window(const struct runner *runner, const char *key, struct window window,
                                struct demand demand, int64_t now_us)
{
    return answer_to(demand, ask_window_raw(runner, key, window, demand, now_us));
}

/* All that was granted and still matters, each with when it may be spent: what a window is judged by. */
struct grant {
    int64_t first_us;
    int64_t last_us;
    int64_t count;
};

#define HISTORY_MAX 20000

struct history {
    size_t count;
    struct grant grants[HISTORY_MAX];
};

static struct history history;

static void remember(int64_t first_us, int64_t last_us, int64_t count)
{
    cr_assert_lt(history.count, HISTORY_MAX);
    history.grants[history.count++] = (struct grant){first_us, last_us, count};
}

static void forget_until(int64_t until_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < history.count; i++) {
        if (history.grants[i].last_us > until_us) {
            history.grants[kept++] = history.grants[i];
        }
    }
    history.count = kept;
}

static int64_t spent_after(int64_t after_us)
{
    int64_t sum = 0;

    for (size_t i = 0; i < history.count; i++) {
        sum += history.grants[i].last_us > after_us ? history.grants[i].count : 0;
    }
    return sum;
}

/* What the whole history says of a demand, in a window that may be longer than the limit's own. */
static int64_t model_grant(struct window window, struct demand demand, int64_t now_us)
{
    int64_t room = window.limit - spent_after(now_us - window.length_us);
    int64_t granted = demand.cost < room ? demand.cost : room;

    return granted < demand.least ? 0 : granted;
}

static int64_t model_wait(struct window window, struct demand demand, int64_t now_us)
{
    int64_t best = INT64_MAX;

    for (size_t i = 0; i < history.count; i++) {
        int64_t leaves_us = history.grants[i].last_us + window.length_us;
        if (leaves_us > now_us && leaves_us - now_us < best &&
            spent_after(leaves_us - window.length_us) + demand.least <= window.limit) {
            best = leaves_us - now_us;
        }
    }
    return best;
}

/* Time until the next arrival: bursts, and whatever lies at the edges of windows and of their shares. */
static int64_t pause_us(int64_t length_us)
{
    switch (chance(12)) {
    case 0:
        return length_us + chance(3) - 1;
    case 1:
        return length_us / 64 + chance(3) - 1;
    case 2:
        return chance(length_us / 2);
    case 3:
    case 4:
        return chance(length_us / 20);
    case 5:
    case 6:
        return chance(length_us / 500);
    case 7:
        return 1;
    case 8:
        return length_us * (1 + chance(3)) / 4;
    default:
        return 0;
    }
}

static struct demand random_demand(int64_t limit, int64_t hold_us)
{
    struct demand demand = {.hold_us = hold_us};

    demand.cost = chance(3) > 0 ? 1 : 1 + chance(limit > 12 ? limit / 6 : limit);
    demand.least = chance(2) > 0 ? demand.cost : 1 + chance(demand.cost);
    return demand;
}

/* The whole limit is never free: it is asked for to be told how long it takes. */
static struct demand steady_demand(int64_t limit, int64_t hold_us)
{
    return chance(8) == 0 ? (struct demand){limit, limit, hold_us} : random_demand(limit / 24, hold_us);
}

/* After a refusal, sometimes comes when it was told to, or a microsecond too early. */
static int64_t next_arrival_us(int64_t now_us, int64_t length_us, struct answer answer)
{
    int64_t choice = chance(6);

    if (answer.wait_us > 0 && choice < 2) {
        return now_us + answer.wait_us - choice;
    }
    return now_us + pause_us(length_us);
}

struct trial {
    struct window window;
    int64_t hold_us;
    bool hold_varies; /* from 0 to hold_us */
    int64_t late_us;  /* how much later than it could a permit may come back */
    bool steady;      /* many small costs, less than the limit, and the whole limit now and then */
    int calls;
};

/*
 * The script must grant no more than the history of its own grants allows, and no less than if the window were late_us
 * longer; with 0 it must do exactly as the model.
 */
static void assert_like_model(const char *name, struct trial trial, int64_t now_us)
{
    struct runner runner = with_own_clock(name);
    struct window window = trial.window, longer = {window.limit, window.length_us + trial.late_us};
    int64_t granted = 0, promised_us = 0, promised_least = 0;

    history.count = 0;
    for (int i = 0; i < trial.calls; i++) {
        int64_t hold_us = trial.hold_varies ? chance(trial.hold_us + 1) : trial.hold_us;
        struct demand demand =
            trial.steady ? steady_demand(window.limit, hold_us) : random_demand(window.limit, hold_us);
        bool promised = promised_least > 0 && promised_us == now_us;
        if (promised) {
            demand = (struct demand){promised_least, promised_least, hold_us};
        }
        forget_until(now_us - longer.length_us);
        struct answer answer = ask_window(&runner, name, window, demand, now_us);
        cr_assert_leq(answer.granted, model_grant(window, demand, now_us), "%s: more than the limit", name);
        cr_assert_geq(answer.granted, model_grant(longer, demand, now_us), "%s: permits came back late", name);
        cr_assert(!promised || answer.granted == promised_least, "%s: it was not enough to wait as told", name);
        promised_least = 0;
        if (answer.granted > 0) {
            remember(now_us, now_us + hold_us, answer.granted);
            granted += answer.granted;
        } else {
            cr_assert_geq(answer.wait_us, model_wait(window, demand, now_us), "%s: too short a wait", name);
            cr_assert_leq(answer.wait_us, model_wait(longer, demand, now_us), "%s: too long a wait", name);
            promised_us = now_us + answer.wait_us;
            promised_least = demand.least;
        }
        now_us =
            trial.steady ? now_us + chance(window.length_us / 150) : next_arrival_us(now_us, window.length_us, answer);
    }
    cr_assert_gt(granted, window.limit * 2, "%s: hardly anything was granted", name);
}

static void assert_all_like_model(const char *name, const struct trial trials[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_like_model(name, trials[i], EPOCH);
        cr_assert_eq(integer_of(ask("DBSIZE")), 1, "another key than its own was written");
        tell(ask("FLUSHALL"));
    }
}

Test(limit_log, does_as_the_model)
{
    static const struct trial trials[] = {
        {{1, HOUR}, .calls = 2000},  {{2, HOUR}, .calls = 2000},   {{7, HOUR}, .calls = 2000},
        {{64, HOUR}, .calls = 2000}, {{100, HOUR}, .calls = 2000},
    };

    assert_all_like_model("limit_log", trials, LENGTH(trials));
}

Test(limit_log, does_as_the_model_with_holds)
{
    static const struct trial trials[] = {
        {{20, HOUR}, .hold_us = HOUR / 10, .calls = 2000},
        {{5, HOUR}, .hold_us = HOUR, .calls = 2000},
        {{20, HOUR}, .hold_us = HOUR, .hold_varies = true, .calls = 2000},
    };

    assert_all_like_model("limit_log", trials, LENGTH(trials));
}

Test(limit_slots, does_as_the_model_up_to_64)
{
    static const struct trial trials[] = {
        {{1, HOUR}, .calls = 2000},  {{2, HOUR}, .calls = 2000},
        {{7, HOUR}, .calls = 2000},  {{20, HOUR}, .hold_us = HOUR / 10, .calls = 2000},
        {{64, HOUR}, .calls = 2000}, {{64, HOUR}, .hold_us = HOUR, .calls = 2000},
    };

    assert_all_like_model("limit_slots", trials, LENGTH(trials));
}

Test(limit_slots, is_late_by_a_64th_of_a_large_limit)
{
    static const struct trial trials[] = {
        {{65, HOUR}, .late_us = HOUR / 64, .calls = 3000},
        {{1000, HOUR}, .late_us = HOUR / 64, .calls = 3000},
        {{1000000, HOUR}, .late_us = HOUR / 64, .calls = 3000},
        /* Not a multiple of 64 microseconds. */
        {{500, HOUR + 63}, .late_us = HOUR / 64 + 1, .calls = 3000},
        {{500, HOUR}, .hold_us = HOUR / 10, .late_us = (HOUR + HOUR / 10) / 64, .calls = 3000},
        {{500, HOUR}, .late_us = HOUR / 64, .steady = true, .calls = 4000},
        {{3000, HOUR}, .hold_us = HOUR, .late_us = 2 * HOUR / 64, .steady = true, .calls = 4000},
    };

    assert_all_like_model("limit_slots", trials, LENGTH(trials));
}

/* Slots stay in order, so that a permit for at once comes back no sooner than a lease that was granted before it. */
Test(limit_slots, is_late_by_the_hold_where_holds_vary)
{
    static const struct trial trials[] = {
        {{20, HOUR}, .hold_us = HOUR / 10, .hold_varies = true, .late_us = HOUR / 10, .calls = 3000},
        {{500, HOUR}, .hold_us = HOUR / 10, .hold_varies = true, .late_us = HOUR / 10 + HOUR / 50, .calls = 3000},
    };

    assert_all_like_model("limit_slots", trials, LENGTH(trials));
}

static void assert_partly_granted(const char *name)
{
    struct runner runner = with_own_clock(name);
    struct window window = {10, HOUR};

    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){7, 1, 0}, EPOCH).granted, 7);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){7, 4, 0}, EPOCH).wait_us, HOUR, "%s", name);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){7, 3, 0}, EPOCH).granted, 3);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + 10).wait_us, HOUR - 10);
    /* More than the limit: some of it may do. */
    cr_assert_eq(ask_window(&runner, "b", window, (struct demand){11, 11, 0}, EPOCH).wait_us, -1);
    cr_assert_eq(ask_window(&runner, "b", window, (struct demand){11, 10, 0}, EPOCH).granted, 10);
    /* A limit that was lowered. */
    cr_assert_eq(ask_window(&runner, "b", (struct window){4, HOUR}, (struct demand){2, 1, 0}, EPOCH + 1).wait_us,
                 HOUR - 1);
}

Test(limit_windows, grant_what_there_is_down_to_the_least)
{
    assert_partly_granted("limit_log");
    tell(ask("FLUSHALL"));
    assert_partly_granted("limit_slots");
}

static void assert_large_costs_are_right(const char *name, int64_t limit)
{
    struct runner runner = with_own_clock(name);
    struct window window = {limit, HOUR};

    cr_assert_eq(ask_window(&runner, name, window, (struct demand){limit - 1, limit - 1, 0}, EPOCH).granted, limit - 1);
    cr_assert_eq(ask_window(&runner, name, window, (struct demand){limit, 1, 0}, EPOCH + 1).granted, 1);
    cr_assert_eq(ask_window(&runner, name, window, (struct demand){limit, limit, 0}, EPOCH + 2).wait_us, HOUR - 1);
    cr_assert_eq(ask_window(&runner, name, window, (struct demand){1, 1, 0}, EPOCH + HOUR + HOUR / 64).granted, 1);
}

Test(limit_windows, take_costs_beyond_what_lua_passes_on_at_once)
{
    assert_large_costs_are_right("limit_log", 25000);
    assert_large_costs_are_right("limit_slots", INT64_C(1000000000000000));
}

/*
 * Each permit of a lease is spent when it suits who wants to break the limit. For the window that begins at a lease's
 * last moment that is any moment they have in common; no other window can hold more.
 */
static void assert_no_window_holds_more(struct window window)
{
    for (size_t i = 0; i < history.count; i++) {
        int64_t begins_us = history.grants[i].last_us, sum = 0;
        for (size_t j = 0; j < history.count; j++) {
            const struct grant *grant = &history.grants[j];
            sum += grant->last_us >= begins_us && grant->first_us < begins_us + window.length_us ? grant->count : 0;
        }
        cr_assert_leq(sum, window.limit, "%" PRId64 " in a window", sum);
    }
}

static void assert_leases_keep_the_limit(const char *name, struct window window)
{
    struct runner runner = with_own_clock(name);
    int64_t now_us = EPOCH, granted = 0;

    history.count = 0;
    for (int i = 0; i < 1500; i++) {
        /* Leases of several lengths, and permits for at once among them. */
        struct demand demand = random_demand(window.limit, chance(3) * window.length_us / (2 + chance(20)));
        struct answer answer = ask_window(&runner, name, window, demand, now_us);
        if (answer.granted > 0) {
            remember(now_us, now_us + demand.hold_us, answer.granted);
            granted += answer.granted;
        } else {
            cr_assert_leq(answer.wait_us, 2 * window.length_us);
        }
        now_us = next_arrival_us(now_us, window.length_us, answer);
    }
    assert_no_window_holds_more(window);
    cr_assert_gt(granted, window.limit * 10);
}

Test(limit_windows, hold_the_limit_however_late_a_lease_is_spent)
{
    static const char *const names[] = {"limit_log", "limit_slots"};

    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_leases_keep_the_limit(names[i], (struct window){12, HOUR});
        tell(ask("FLUSHALL"));
        assert_leases_keep_the_limit(names[i], (struct window){400, HOUR});
        tell(ask("FLUSHALL"));
    }
}

/* Between two readings of Redis' clock that nothing else comes between. */
static struct answer ask_window_between(const struct runner *runner, const char *key, struct window window,
                                        struct demand demand, int64_t *before_us, int64_t *after_us)
{
    tell(ask("MULTI"));
    tell(ask("TIME"));
    tell(ask_window_raw(runner, key, window, demand, 0));
    tell(ask("TIME"));
    redisReply *reply = checked(ask("EXEC"), REDIS_REPLY_ARRAY);
    *before_us = time_of(reply->element[0]);
    *after_us = time_of(reply->element[2]);
    struct answer answer = answer_of(reply->element[1]);
    freeReplyObject(reply);
    return answer;
}

static void wait_until(int64_t until_us)
{
    for (int64_t now_us = redis_time(); now_us < until_us; now_us = redis_time()) {
        usleep((useconds_t)(until_us - now_us));
    }
}

/* Grants that together are more than the limit took at least a window, whatever the moments between the readings. */
static void assert_bursts_are_apart(struct window window)
{
    for (size_t i = 0; i < history.count; i++) {
        int64_t sum = 0;
        for (size_t j = i; j < history.count; j++) {
            sum += history.grants[j].count;
            if (sum > window.limit) {
                cr_assert_geq(history.grants[j].last_us - history.grants[i].first_us, window.length_us);
                break;
            }
        }
    }
}

static void assert_limits_in_real_time(const char *name, struct window window)
{
    struct runner runner = with_redis_clock(name);
    int64_t before_us, after_us, granted = 0;

    history.count = 0;
    for (int i = 0; i < 150; i++) {
        struct demand demand = random_demand(window.limit, 0);
        struct answer answer = ask_window_between(&runner, name, window, demand, &before_us, &after_us);
        if (answer.granted == 0) {
            cr_assert_leq(answer.wait_us, window.length_us + window.length_us / 64 + 1);
            wait_until(after_us + answer.wait_us);
            demand.cost = demand.least;
            answer = ask_window_between(&runner, name, window, demand, &before_us, &after_us);
            cr_assert_eq(answer.granted, demand.least, "%s: it was not enough to wait as told", name);
        }
        remember(before_us, after_us, answer.granted);
        granted += answer.granted;
    }
    assert_bursts_are_apart(window);
    cr_assert_geq(granted, 150);
}

Test(limit_log, limits_in_real_time)
{
    assert_limits_in_real_time("limit_log", (struct window){7, 20000});
    assert_limits_in_real_time("limit_log", (struct window){30, 10000});
}

Test(limit_slots, limits_in_real_time)
{
    assert_limits_in_real_time("limit_slots", (struct window){7, 20000});
    assert_limits_in_real_time("limit_slots", (struct window){300, 20000});
}

static void assert_slots_stay_small(const char *key)
{
    cr_assert_leq(integer_of(ask("STRLEN %s", key)), 6 + 16 + 66 * 16);
    cr_assert_leq(integer_of(ask("MEMORY USAGE %s", key)), 2048);
}

Test(limit_slots, stays_small)
{
    static const int64_t holds_us[] = {0, HOUR / 10, HOUR};
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {1000000, HOUR};
    int64_t now_us = EPOCH;

    for (int i = 0; i < 6000; i++) {
        struct demand demand = {1 + chance(9000), 1, holds_us[chance(3)]};
        ask_window(&runner, "million", window, demand, now_us);
        now_us += chance(HOUR / 500);
        if (i % 50 == 0) {
            assert_slots_stay_small("million");
        }
    }
    assert_slots_stay_small("million");
}

Test(limit_slots, stays_small_with_a_steady_rate)
{
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {1000000, HOUR};

    /* As many slots as there can be: each share begins with a permit, and ends with one. */
    for (int64_t share = 0; share < 200; share++) {
        cr_assert_eq(ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + share * HOUR / 64).granted, 1);
        ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + (share + 1) * HOUR / 64 - 1);
        assert_slots_stay_small("a");
    }
}

Test(limit_slots, stays_small_when_its_window_is_made_longer)
{
    struct runner runner = with_own_clock("limit_slots");
    struct window brief = {1000, 6400}, window = {1000, HOUR};

    for (int64_t i = 0; i < 66; i++) {
        ask_window(&runner, "a", brief, (struct demand){1, 1, 0}, EPOCH + i * 100);
    }
    for (int64_t i = 1; i < 66; i++) {
        cr_assert_eq(ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + i * HOUR / 64).granted, 1);
        assert_slots_stay_small("a");
    }
}

/* ---- windows whose clock jumps, whose state is lost or is not theirs ---- */

static void assert_survives_a_clock_set_back(const char *name, struct window window, int64_t late_us)
{
    struct runner runner = with_own_clock(name);
    struct demand all = {window.limit, window.limit, 0}, one = {1, 1, 0};

    cr_assert_eq(ask_window(&runner, name, window, all, EPOCH).granted, window.limit);
    int64_t now_us = EPOCH - 10 * DAY;
    /* What was granted is taken for granted now: it neither floods nor locks. */
    cr_assert_eq(ask_window(&runner, name, window, one, now_us).wait_us, window.length_us, "%s", name);
    cr_assert_eq(ask_window(&runner, name, window, one, now_us + window.length_us - 1).wait_us, 1, "%s", name);
    cr_assert_eq(ask_window(&runner, name, window, all, now_us + window.length_us).granted, window.limit);
    /* A jump that may be within the window of the others. */
    now_us += window.length_us / 2;
    struct answer answer = ask_window(&runner, name, window, one, now_us);
    cr_assert_eq(answer.granted, 0);
    cr_assert_leq(answer.wait_us, 2 * window.length_us);
    cr_assert_eq(ask_window(&runner, name, window, all, now_us + answer.wait_us).granted, window.limit);
    /* From there on it is as if nothing had happened. */
    struct trial trial = {window, .late_us = late_us, .calls = 300};
    assert_like_model(name, trial, now_us + answer.wait_us + 2 * window.length_us);
}

Test(limit_log, survives_a_clock_set_back)
{
    assert_survives_a_clock_set_back("limit_log", (struct window){3, HOUR}, 0);
    tell(ask("FLUSHALL"));
    assert_survives_a_clock_set_back("limit_log", (struct window){3000, HOUR}, 0);
}

Test(limit_slots, survives_a_clock_set_back)
{
    assert_survives_a_clock_set_back("limit_slots", (struct window){3, HOUR}, 0);
    tell(ask("FLUSHALL"));
    assert_survives_a_clock_set_back("limit_slots", (struct window){3000, HOUR}, HOUR / 64);
}

/* Many slots, of which the clock's jump puts only some beyond doubt. */
static void assert_stays_in_order(const char *name)
{
    struct runner runner = with_own_clock(name);
    struct window window = {100, HOUR};
    int64_t now_us = EPOCH - HOUR - HOUR / 2;

    for (int64_t i = 0; i < 32; i++) {
        ask_window(&runner, name, window, (struct demand){3, 3, 0}, EPOCH + i * HOUR / 32);
    }
    struct answer answer = ask_window(&runner, name, window, (struct demand){50, 50, 0}, now_us);
    cr_assert_eq(answer.granted, 0);
    cr_assert_eq(answer.wait_us, HOUR);
    cr_assert_eq(ask_window(&runner, name, window, (struct demand){100, 100, 0}, now_us + HOUR).granted, 100);
}

Test(limit_windows, stay_in_order_when_the_clock_is_set_back)
{
    assert_stays_in_order("limit_log");
    assert_stays_in_order("limit_slots");
}

/* Newest slots that began in the future must not take all in until then. */
Test(limit_slots, keeps_slots_apart_when_the_clock_is_set_back)
{
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {1000, HOUR};
    struct demand one = {1, 1, 0}, all = {1000, 1, 0};
    int64_t now_us = EPOCH - 10 * DAY;

    for (int64_t i = 0; i < 200; i++) {
        cr_assert_eq(ask_window(&runner, "a", window, one, EPOCH + i * HOUR / 200).granted, 1);
    }
    for (int64_t i = 0; i < 600; i++) {
        cr_assert_eq(ask_window(&runner, "a", window, one, now_us + i * HOUR / 200).granted, 1);
    }
    cr_assert_geq(ask_window(&runner, "a", window, all, now_us + 3 * HOUR).granted, 1000 - 200 - 200 / 64 - 1);
}

static void assert_survives_in_real_time(const char *name)
{
    struct runner runner = with_own_clock(name), real = with_redis_clock(name);
    struct window window = {1, 30000};
    struct demand one = {1, 1, 0};

    /* What Redis finds after its own clock was set back by a day. */
    cr_assert_eq(ask_window(&runner, name, window, one, redis_time() + DAY).granted, 1);
    struct answer answer = ask_window(&real, name, window, one, 0);
    cr_assert_eq(answer.wait_us, window.length_us, "%s: %" PRId64, name, answer.wait_us);
    wait_until(redis_time() + answer.wait_us);
    cr_assert_eq(ask_window(&real, name, window, one, 0).granted, 1);
}

Test(limit_windows, survive_a_clock_set_back_in_real_time)
{
    assert_survives_in_real_time("limit_log");
    tell(ask("FLUSHALL"));
    assert_survives_in_real_time("limit_slots");
}

Test(limit_windows, say_that_their_state_was_overwritten)
{
    struct runner log = with_own_clock("limit_log"), slots = with_own_clock("limit_slots");
    struct window window = {1000, HOUR};
    struct demand one = {1, 1, 0};
    static const char *const foreign[] = {"",
                                          "hello",
                                          "12",
                                          "slots:",
                                          "slots:1234567812345678",
                                          "slots:12345678123456781234567812345678x",
                                          "as long a text as a state of one slot."};

    tell(ask("RPUSH list a"));
    assert_error(ask_window_raw(&log, "list", window, one, EPOCH), WRONG_TYPE);
    assert_error(ask_window_raw(&slots, "list", window, one, EPOCH), WRONG_TYPE);
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        tell(ask("SET text %s", foreign[i]));
        assert_error(ask_window_raw(&log, "text", window, one, EPOCH), WRONG_TYPE);
        assert_error(ask_window_raw(&slots, "text", window, one, EPOCH), OVERWRITTEN);
        redisReply *reply = checked(ask("GET text"), REDIS_REPLY_STRING);
        cr_assert_str_eq(reply->str, foreign[i], "it was overwritten in turn");
        freeReplyObject(reply);
    }
    cr_assert_eq(ask_window(&slots, "own", window, one, EPOCH).granted, 1);
    tell(ask("APPEND own x"));
    assert_error(ask_window_raw(&slots, "own", window, one, EPOCH), OVERWRITTEN);
    cr_assert_eq(integer_of(ask("LLEN list")), 1);
}

static void assert_window_expires(const char *name)
{
    struct runner runner = with_redis_clock(name);
    static const struct {
        struct window window;
        int64_t hold_us;
        int64_t life_ms;
    } cases[] = {
        {{1, HOUR}, 0, 3600000},
        {{1, 500}, 0, 1},
        {{1, HOUR + 1}, HOUR / 4, 3600001 + 900000},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        watch_life();
        tell(ask_window_raw(&runner, "life", cases[i].window, (struct demand){1, 1, cases[i].hold_us}, 0));
        assert_life("life", cases[i].life_ms);
        tell(ask("DEL life"));
    }
    /* A permit for at once does not cut short what is remembered of a lease. */
    struct window two = {2, 24 * DAY};
    ask_window(&runner, "life", two, (struct demand){1, 1, 24 * DAY}, 0);
    ask_window(&runner, "life", two, (struct demand){1, 1, 0}, 0);
    cr_assert_gt(integer_of(ask("PTTL life")), 40 * DAY / 1000);
    tell(ask("DEL life"));
}

Test(limit_windows, expire_when_they_say_nothing_any_more)
{
    assert_window_expires("limit_log");
    assert_window_expires("limit_slots");
}

/* ---- the funnel ---- */

struct funnel {
    int64_t capacity;
    int64_t leak;
    int64_t period_us;
};

static redisReply *ask_funnel_raw(const struct runner *runner, const char *key, struct funnel funnel,
                                  struct demand demand, int64_t now_us)
{
    return ask("EVALSHA %s 1 %s %lld %lld %lld %lld %lld %lld %lld", runner->digest, key, (long long)funnel.capacity,
               (long long)funnel.leak, (long long)funnel.period_us, (long long)demand.cost, (long long)demand.least,
               (long long)demand.hold_us, (long long)now_us);
}

static struct answer ask_funnel(const struct runner *runner, const char *key, struct funnel funnel,
                                struct demand demand, int64_t now_us)
{
    return answer_to(demand, ask_funnel_raw(runner, key, funnel, demand, now_us));
}

/* A drop is period_us parts, of which leak leave in each microsecond: whole numbers only. */
struct funnel_model {
    int64_t parts;
    int64_t time_us;
};

static void leak_until(struct funnel_model *model, struct funnel funnel, int64_t now_us)
{
    int64_t leaked = (now_us - model->time_us) * funnel.leak;

    model->parts = leaked > model->parts ? 0 : model->parts - leaked;
    model->time_us = now_us;
}

/* A millionth of a drop is more than what a fraction of a double loses. */
static bool is_at_edge(struct funnel funnel, int64_t parts)
{
    int64_t past = parts % funnel.period_us, edge = funnel.period_us / 1000000 + 1;

    return past < edge || past > funnel.period_us - edge;
}

static void assert_like_funnel(const char *key, struct funnel funnel, int calls_wanted)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel_model model = {.time_us = EPOCH};
    int64_t now_us = EPOCH, granted = 0, full_us = funnel.capacity * funnel.period_us / funnel.leak;

    for (int i = 0; i < calls_wanted; i++) {
        struct demand demand = random_demand(funnel.capacity, 0);
        struct answer answer = ask_funnel(&runner, key, funnel, demand, now_us);
        leak_until(&model, funnel, now_us);
        int64_t room = funnel.capacity * funnel.period_us - model.parts;
        int64_t fits = room / funnel.period_us < demand.cost ? room / funnel.period_us : demand.cost;
        if (!is_at_edge(funnel, room)) {
            cr_assert_eq(answer.granted, fits < demand.least ? 0 : fits, "%s", key);
        } else {
            cr_assert(answer.granted == 0 || llabs(answer.granted - fits) <= 1, "%s", key);
        }
        if (answer.granted == 0) {
            int64_t over = demand.least * funnel.period_us - room;
            int64_t wait_us = (over + funnel.leak - 1) / funnel.leak;
            cr_assert_geq(answer.wait_us, wait_us, "%s", key);
            cr_assert_leq(answer.wait_us, wait_us + 1, "%s", key);
            /* What it told is enough. */
            if (chance(3) == 0) {
                now_us += answer.wait_us;
                demand.cost = demand.least;
                answer = ask_funnel(&runner, key, funnel, demand, now_us);
                cr_assert_eq(answer.granted, demand.least);
                leak_until(&model, funnel, now_us);
            }
        }
        model.parts += answer.granted * funnel.period_us;
        granted += answer.granted;
        now_us += chance(8) == 0 ? chance(full_us * 3 / 2) : chance(full_us / funnel.capacity + 2);
    }
    cr_assert_gt(granted, funnel.capacity);
}

static const struct funnel funnels[] = {
    {1, 1, HOUR}, {5, 1, HOUR}, {1000, 7, 3 * SECOND}, {1000, 3, SECOND}, {300, 1, SECOND}, {3000000, 10000, SECOND},
};

Test(limit_funnel, does_as_the_model)
{
    for (size_t i = 0; i < LENGTH(funnels); i++) {
        char key[32];
        snprintf(key, sizeof key, "funnel-%zu", i);
        assert_like_funnel(key, funnels[i], 2000);
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), LENGTH(funnels), "another key than its own was written");
}

/* Always thirsty, never empty: in the long run exactly what leaks. */
static void assert_rate_is_exact(const char *key, struct funnel funnel, int64_t pause_max_us, int calls_wanted)
{
    struct runner runner = with_own_clock("limit_funnel");
    int64_t now_us = EPOCH, granted = 0;

    for (int i = 0; i < calls_wanted; i++) {
        granted += ask_funnel(&runner, key, funnel, (struct demand){funnel.capacity, 1, 0}, now_us).granted;
        int64_t leaked_parts = (now_us - EPOCH) * funnel.leak;
        if (!is_at_edge(funnel, leaked_parts)) {
            cr_assert_eq(granted, funnel.capacity + leaked_parts / funnel.period_us, "%s, call %d", key, i);
        }
        now_us += chance(pause_max_us);
    }
    int64_t leaked = (now_us - EPOCH) * funnel.leak / funnel.period_us;
    cr_assert_leq(llabs(granted - funnel.capacity - leaked), 1 + pause_max_us * funnel.leak / funnel.period_us);
}

Test(limit_funnel, leaks_a_million_a_second_without_rounding)
{
    assert_rate_is_exact("million", (struct funnel){3000, 1000000, SECOND}, 1000, 4000);
    assert_rate_is_exact("nearly", (struct funnel){3000, 999999, SECOND}, 1000, 4000);
}

Test(limit_funnel, leaks_one_an_hour_without_rounding)
{
    assert_rate_is_exact("hour", (struct funnel){3, 1, HOUR}, HOUR / 3, 4000);
    assert_rate_is_exact("seldom", (struct funnel){1000000, 1, HOUR}, HOUR / 3, 4000);
}

static double level_of(const char *key)
{
    redisReply *reply = checked(ask("GET %s", key), REDIS_REPLY_STRING);
    double level = strtod(reply->str, NULL);

    freeReplyObject(reply);
    return level;
}

Test(limit_funnel, keeps_every_digit_of_its_level)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel funnel = {1000000, 7, 3 * SECOND};
    double level = 123456;

    ask_funnel(&runner, "a", funnel, (struct demand){123456, 1, 0}, EPOCH);
    for (int64_t i = 1; i < 100; i++) {
        ask_funnel(&runner, "a", funnel, (struct demand){1, 1, 0}, EPOCH + i);
        level = level - 7 / 3e6 + 1;
        cr_assert_eq(level_of("a"), level);
    }
}

Test(limit_funnel, grants_what_fits_down_to_the_least)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel funnel = {10, 1, HOUR};

    cr_assert_eq(ask_funnel(&runner, "a", funnel, (struct demand){7, 1, 0}, EPOCH).granted, 7);
    cr_assert_leq(ask_funnel(&runner, "a", funnel, (struct demand){7, 4, 0}, EPOCH).wait_us, HOUR + 1);
    cr_assert_eq(ask_funnel(&runner, "a", funnel, (struct demand){7, 3, 0}, EPOCH).granted, 3);
    cr_assert_eq(ask_funnel(&runner, "b", funnel, (struct demand){11, 11, 0}, EPOCH).wait_us, -1);
    cr_assert_eq(ask_funnel(&runner, "b", funnel, (struct demand){11, 10, 0}, EPOCH).granted, 10);
}

static int by_first(const void *left, const void *right)
{
    const struct grant *a = left, *b = right;

    return (a->first_us > b->first_us) - (a->first_us < b->first_us);
}

/* Fills a funnel with what was granted, in the order in which it is spent: it must never run over. */
static void assert_never_runs_over(struct funnel funnel, int spender)
{
    static struct history spent;
    double level = 0;
    int64_t time_us = EPOCH;

    spent = history;
    for (size_t i = 0; i < spent.count; i++) {
        struct grant *grant = &spent.grants[i];
        int64_t hold_us = grant->last_us - grant->first_us;
        grant->first_us += spender == 0 ? 0 : spender == 1 ? hold_us : chance(hold_us + 1);
    }
    qsort(spent.grants, spent.count, sizeof spent.grants[0], by_first);
    for (size_t i = 0; i < spent.count; i++) {
        const struct grant *grant = &spent.grants[i];
        level -= (double)(grant->first_us - time_us) * (double)funnel.leak / (double)funnel.period_us;
        level = (level < 0 ? 0 : level) + (double)grant->count;
        time_us = grant->first_us;
        cr_assert_leq(level, (double)funnel.capacity + 1e-6);
    }
}

Test(limit_funnel, never_runs_over_however_late_a_lease_is_spent)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel funnel = {200, 1, 60 * SECOND};
    int64_t now_us = EPOCH;

    history.count = 0;
    for (int i = 0; i < 1500; i++) {
        struct demand demand = random_demand(funnel.capacity, chance(2) * chance(HOUR));
        struct answer answer = ask_funnel(&runner, "a", funnel, demand, now_us);
        if (answer.granted > 0) {
            remember(now_us, now_us + demand.hold_us, answer.granted);
        }
        now_us += chance(5) == 0 ? chance(HOUR) : chance(2 * 60 * SECOND);
    }
    cr_assert_gt(history.count, 300);
    for (int spender = 0; spender < 5; spender++) {
        assert_never_runs_over(funnel, spender);
    }
}

Test(limit_funnel, survives_a_clock_set_back)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel funnel = {3, 1, HOUR};
    struct demand all = {3, 1, 0}, one = {1, 1, 0};
    int64_t now_us = EPOCH - 10 * DAY;

    cr_assert_eq(ask_funnel(&runner, "a", funnel, all, EPOCH).granted, 3);
    cr_assert_leq(ask_funnel(&runner, "a", funnel, one, now_us).wait_us, HOUR + 1);
    /* Though that was refused, it leaks by the new time from then on. */
    cr_assert_leq(ask_funnel(&runner, "a", funnel, one, now_us + HOUR / 2).wait_us, HOUR / 2 + 1);
    cr_assert_eq(ask_funnel(&runner, "a", funnel, all, now_us + 2 * HOUR).granted, 2);
}

Test(limit_funnel, takes_redis_time_and_survives_a_clock_set_back_in_real_time)
{
    struct runner own = with_own_clock("limit_funnel"), real = with_redis_clock("limit_funnel");
    struct funnel funnel = {1, 1, 30000};
    struct demand one = {1, 1, 0};

    cr_assert_eq(ask_funnel(&own, "a", funnel, one, redis_time() + DAY).granted, 1);
    int64_t wait_us = ask_funnel(&real, "a", funnel, one, 0).wait_us;
    cr_assert_geq(wait_us, 30000);
    cr_assert_leq(wait_us, 30001);
    int64_t before_us = redis_time();
    wait_until(before_us + wait_us);
    cr_assert_eq(ask_funnel(&real, "a", funnel, one, 0).granted, 1);
    redisReply *reply = ask("GET a");
    if (reply->type == REDIS_REPLY_STRING) {
        int64_t time_us = strtoll(strchr(reply->str, ' '), NULL, 10);
        cr_assert_geq(time_us, before_us + wait_us);
        cr_assert_leq(time_us, redis_time());
    }
    freeReplyObject(reply);
}

Test(limit_funnel, says_that_its_state_was_overwritten)
{
    struct runner runner = with_own_clock("limit_funnel");
    struct funnel funnel = {3, 1, HOUR};
    struct demand one = {1, 1, 0};
    static const char *const foreign[] = {"",        "hello",        "1",        "1 2 3", " 1 2",
                                          "-1 1000", "nan 17000000", "0x10 100", "1 1e9", "1e999 1700000000000000"};

    tell(ask("RPUSH list a"));
    assert_error(ask_funnel_raw(&runner, "list", funnel, one, EPOCH), WRONG_TYPE);
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        tell(ask("SET text %s", foreign[i]));
        assert_error(ask_funnel_raw(&runner, "text", funnel, one, EPOCH), OVERWRITTEN);
    }
}

Test(limit_funnel, expires_when_empty)
{
    struct runner runner = with_redis_clock("limit_funnel");
    static const struct {
        struct funnel funnel;
        struct demand demand;
        int64_t empty_ms;
    } cases[] = {
        {{5, 1, HOUR}, {3, 3, 0}, 3 * 3600000},
        {{5, 1000000, SECOND}, {1, 1, 0}, 1},
        {{5, 1, HOUR}, {1, 1, HOUR}, 2 * 3600000},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        watch_life();
        tell(ask_funnel_raw(&runner, "life", cases[i].funnel, cases[i].demand, 0));
        assert_life("life", cases[i].empty_ms);
        tell(ask("DEL life"));
    }
}

/* ---- giving back, and forgetting ---- */

/* That nobody else was granted any since: the time of asking is not needed. */
#define JUST_NOW INT64_C(-1)

static int64_t return_part_to_log(const struct runner *runner, const char *key, int64_t first, int64_t count,
                                  int64_t call, int64_t now_us)
{
    return integer_of(ask("EVALSHA %s 1 %s log %lld call-%lld %lld %lld", runner->digest, key, (long long)count,
                          (long long)call, (long long)first, (long long)now_us));
}

static int64_t return_to_log(const struct runner *runner, const char *key, int64_t count, int64_t call, int64_t now_us)
{
    return return_part_to_log(runner, key, 1, count, call, now_us);
}

static int64_t return_to_slots(const struct runner *runner, const char *key, int64_t count, int64_t age_us,
                               struct window window, int64_t now_us)
{
    char age[32] = "";

    if (age_us != JUST_NOW) {
        snprintf(age, sizeof age, "%" PRId64, age_us);
    }
    return integer_of(ask("EVALSHA %s 1 %s slots %lld %s %lld %lld", runner->digest, key, (long long)count, age,
                          (long long)window.length_us, (long long)now_us));
}

static int64_t return_to_funnel(const struct runner *runner, const char *key, int64_t count, int64_t age_us,
                                struct funnel funnel, int64_t now_us)
{
    char age[32] = "";

    if (age_us != JUST_NOW) {
        snprintf(age, sizeof age, "%" PRId64, age_us);
    }
    return integer_of(ask("EVALSHA %s 1 %s funnel %lld %s %lld %lld %lld", runner->digest, key, (long long)count, age,
                          (long long)funnel.leak, (long long)funnel.period_us, (long long)now_us));
}

Test(limit_return, makes_a_log_as_if_nothing_had_been_granted)
{
    struct runner grant = with_own_clock("limit_log"), give = with_own_clock("limit_return");
    struct window window = {10, HOUR};

    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){3, 3, 0}, EPOCH).granted, 3);
    int64_t call = calls;
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){4, 4, 0}, EPOCH + 1).granted, 4);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){3, 3, 0}, EPOCH + 2).granted, 3);
    cr_assert_eq(return_to_log(&give, "a", 4, calls, EPOCH + 3), 0, "an id that nothing was granted under");
    cr_assert_eq(return_to_log(&give, "a", 4, call, EPOCH + 3), 4);
    cr_assert_eq(return_to_log(&give, "a", 4, call, EPOCH + 3), 0, "given back twice");
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){10, 1, 0}, EPOCH + 4).granted, 4);
    /* The first three are still where they were. */
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){3, 3, 0}, EPOCH + 5).wait_us, HOUR - 5);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){4, 4, 0}, EPOCH + 5).wait_us, HOUR - 3);
}

Test(limit_return, takes_parts_of_what_was_granted_to_a_log)
{
    struct runner grant = with_own_clock("limit_log"), give = with_own_clock("limit_return");
    struct window window = {10, HOUR};
    int64_t call = calls;

    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){6, 6, 0}, EPOCH).granted, 6);
    cr_assert_eq(return_part_to_log(&give, "a", 5, 2, call, EPOCH + 1), 2);
    cr_assert_eq(return_part_to_log(&give, "a", 2, 1, call, EPOCH + 1), 1);
    cr_assert_eq(return_part_to_log(&give, "a", 5, 2, call, EPOCH + 1), 0, "given back twice");
    cr_assert_eq(return_part_to_log(&give, "a", 1, 6, call, EPOCH + 1), 3, "the rest");
    cr_assert_eq(integer_of(ask("EXISTS a")), 0);
}

Test(limit_return, takes_many_from_a_log)
{
    struct runner grant = with_own_clock("limit_log"), give = with_own_clock("limit_return");
    struct window window = {25000, HOUR};

    ask_window(&grant, "a", window, (struct demand){25000, 25000, 0}, EPOCH);
    cr_assert_eq(return_to_log(&give, "a", 24999, calls - 1, EPOCH), 24999);
    cr_assert_eq(integer_of(ask("ZCARD a")), 1);
    cr_assert_eq(return_to_log(&give, "a", 25000, calls - 1, EPOCH), 1);
    cr_assert_eq(integer_of(ask("EXISTS a")), 0);
}

static void assert_slots_take_back(int64_t limit, int64_t age_us)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {limit, HOUR};
    struct demand half = {limit / 2, limit / 2, 0};

    cr_assert_eq(ask_window(&grant, "a", window, half, EPOCH).granted, limit / 2);
    cr_assert_eq(ask_window(&grant, "a", window, half, EPOCH + HOUR / 2).granted, limit / 2);
    int64_t now_us = EPOCH + HOUR / 2 + 50;
    cr_assert_eq(return_to_slots(&give, "a", 1, age_us, window, now_us), 1);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){limit, 1, 0}, now_us).granted, 1);
    cr_assert_eq(return_to_slots(&give, "a", limit / 2, age_us, window, now_us), limit / 2);
    /* The first half was granted long before, and comes back when it would have. */
    struct answer answer = ask_window(&grant, "a", window, (struct demand){limit, limit, 0}, now_us);
    cr_assert_eq(answer.wait_us, HOUR / 2 - 50);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){limit, 1, 0}, now_us).granted, limit / 2);
    tell(ask("FLUSHALL"));
}

Test(limit_return, makes_slots_as_if_nothing_had_been_granted)
{
    static const int64_t limits[] = {2, 20, 64, 1000, INT64_C(1000000000000)};

    for (size_t i = 0; i < LENGTH(limits); i++) {
        assert_slots_take_back(limits[i], JUST_NOW);
        assert_slots_take_back(limits[i], 100);
    }
}

Test(limit_return, takes_from_the_newest_slots_and_no_more_than_there_is)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {10, HOUR};

    for (int64_t i = 0; i < 4; i++) {
        ask_window(&grant, "a", window, (struct demand){2, 2, 0}, EPOCH + i);
    }
    cr_assert_eq(return_to_slots(&give, "a", 3, JUST_NOW, window, EPOCH + 4), 3);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){10, 10, 0}, EPOCH + 4).wait_us, HOUR - 2);
    cr_assert_eq(return_to_slots(&give, "a", 100, JUST_NOW, window, EPOCH + 4), 5);
    cr_assert_eq(integer_of(ask("EXISTS a")), 0, "an empty state says nothing");
    cr_assert_eq(return_to_slots(&give, "a", 1, JUST_NOW, window, EPOCH + 4), 0);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){11, 1, 0}, EPOCH + 5).granted, 10);
}

Test(limit_return, takes_nothing_that_was_granted_before_or_has_left_the_window)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {10, HOUR};

    ask_window(&grant, "a", window, (struct demand){4, 4, 0}, EPOCH);
    ask_window(&grant, "a", window, (struct demand){4, 4, 0}, EPOCH + 100);
    cr_assert_eq(return_to_slots(&give, "a", 5, 50, window, EPOCH + 120), 4);
    cr_assert_eq(return_to_slots(&give, "a", 5, 50, window, EPOCH + 120), 0);
    /* It holds those that others have been granted since. */
    cr_assert_eq(return_to_slots(&give, "a", 4, HOUR, window, EPOCH + HOUR), 0);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){10, 1, 0}, EPOCH + 120).granted, 6);
}

/* What is taken and given back again and again neither fills the slots up nor makes them coarse. */
Test(limit_return, keeps_small_limits_exact)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {64, HOUR};
    struct demand one = {1, 1, 0};
    int64_t now_us = EPOCH;

    for (int64_t i = 0; i < 63; i++) {
        for (int64_t turn = 0; turn < 5; turn++) {
            cr_assert_eq(ask_window(&grant, "a", window, one, now_us + turn).granted, 1);
            cr_assert_eq(return_to_slots(&give, "a", 1, turn % 2 ? 0 : JUST_NOW, window, now_us + turn), 1);
        }
        cr_assert_eq(ask_window(&grant, "a", window, one, now_us + 5).granted, 1);
        now_us += HOUR / 64;
    }
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){64, 64, 0}, now_us).wait_us,
                 62 * (HOUR / 64) + 5 + HOUR - (now_us - EPOCH));
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){2, 2, 0}, EPOCH + 4 + HOUR).wait_us, 1);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){2, 2, 0}, EPOCH + 5 + HOUR).granted, 2);
}

/* Of several askers at once some give back, in any order: what is left and spent never breaks the limit. */
struct pending {
    int64_t call;
    int64_t asked_us;
    struct grant grant;
};

#define PENDING 8

static void assert_returns_keep_the_limit(const char *name, struct window window)
{
    struct runner grant = with_own_clock(name), give = with_own_clock("limit_return");
    bool log = strcmp(name, "limit_log") == 0;
    struct pending pending[PENDING] = {0};
    int64_t now_us = EPOCH, given = 0, granted = 0;

    history.count = 0;
    for (int i = 0; i < 4000; i++) {
        struct pending *one = &pending[chance(PENDING)];
        int64_t count = one->grant.count;
        if (count > 0 && chance(3) > 0) {
            remember(one->grant.first_us, one->grant.last_us, count);
        } else if (count > 0) {
            int64_t back = log ? return_to_log(&give, name, count, one->call, now_us)
                               : return_to_slots(&give, name, count, now_us - one->asked_us, window, now_us);
            cr_assert_leq(back, count);
            given += back;
        }
        int64_t hold_us = chance(3) == 0 ? window.length_us / 20 : 0;
        *one = (struct pending){.call = calls, .asked_us = now_us - chance(window.length_us / 100)};
        one->grant = (struct grant){now_us, now_us + hold_us, 0};
        one->grant.count = ask_window(&grant, name, window, random_demand(window.limit, hold_us), now_us).granted;
        granted += one->grant.count;
        now_us += chance(3) > 0 ? chance(3) : pause_us(window.length_us);
    }
    assert_no_window_holds_more(window);
    cr_assert_gt(granted, window.limit * 10);
    cr_assert_gt(given, granted / 20, "%s: hardly anything was given back", name);
}

Test(limit_return, never_gives_away_what_others_were_granted)
{
    assert_returns_keep_the_limit("limit_log", (struct window){12, HOUR});
    assert_returns_keep_the_limit("limit_slots", (struct window){12, HOUR});
    tell(ask("FLUSHALL"));
    assert_returns_keep_the_limit("limit_slots", (struct window){64, 2000});
    tell(ask("FLUSHALL"));
    assert_returns_keep_the_limit("limit_slots", (struct window){400, HOUR});
    assert_slots_stay_small("limit_slots");
}

Test(limit_return, empties_a_funnel_by_as_much)
{
    struct runner grant = with_own_clock("limit_funnel"), give = with_own_clock("limit_return");
    struct funnel funnel = {10, 1, HOUR};

    cr_assert_eq(ask_funnel(&grant, "a", funnel, (struct demand){7, 7, 0}, EPOCH).granted, 7);
    cr_assert_eq(return_to_funnel(&give, "a", 3, JUST_NOW, funnel, EPOCH + 100), 3);
    cr_assert_eq(level_of("a"), 4);
    cr_assert_eq(return_to_funnel(&give, "a", 2, 100, funnel, EPOCH + 100), 2);
    cr_assert_eq(ask_funnel(&grant, "a", funnel, (struct demand){10, 1, 0}, EPOCH + 100).granted, 8);
    cr_assert_eq(return_to_funnel(&give, "a", 100, JUST_NOW, funnel, EPOCH + 100), 10);
    cr_assert_eq(integer_of(ask("EXISTS a")), 0, "an empty state says nothing");
    cr_assert_eq(return_to_funnel(&give, "a", 1, JUST_NOW, funnel, EPOCH + 100), 0);
}

Test(limit_return, gives_back_what_has_not_leaked)
{
    struct runner grant = with_own_clock("limit_funnel"), give = with_own_clock("limit_return");
    struct funnel funnel = {10, 1, SECOND};

    /* Five are taken, all leak, others take three: of the five nothing is there. */
    ask_funnel(&grant, "a", funnel, (struct demand){5, 5, 0}, EPOCH);
    ask_funnel(&grant, "a", funnel, (struct demand){3, 3, 0}, EPOCH + 5 * SECOND);
    cr_assert_eq(return_to_funnel(&give, "a", 5, 5 * SECOND, funnel, EPOCH + 5 * SECOND), 0);
    cr_assert_eq(level_of("a"), 3);
    cr_assert_eq(return_to_funnel(&give, "a", 3, SECOND / 2, funnel, EPOCH + 5 * SECOND), 3, "rounded up");
    cr_assert_eq(level_of("a"), 0.5);
}

Test(limit_return, never_has_a_funnel_run_over)
{
    struct runner grant = with_own_clock("limit_funnel"), give = with_own_clock("limit_return");
    struct funnel funnel = {50, 1, SECOND};
    struct pending pending[PENDING] = {0};
    int64_t now_us = EPOCH, given = 0;

    history.count = 0;
    for (int i = 0; i < 4000; i++) {
        struct pending *one = &pending[chance(PENDING)];
        if (one->grant.count > 0 && chance(3) > 0) {
            remember(one->grant.first_us, one->grant.last_us, one->grant.count);
        } else if (one->grant.count > 0) {
            given += return_to_funnel(&give, "a", one->grant.count, now_us - one->asked_us, funnel, now_us);
        }
        *one = (struct pending){.asked_us = now_us - chance(SECOND / 10)};
        one->grant = (struct grant){now_us, now_us, 0};
        one->grant.count = ask_funnel(&grant, "a", funnel, random_demand(50, 0), now_us).granted;
        now_us += chance(20) == 0 ? chance(60 * SECOND) : chance(SECOND / 5);
    }
    cr_assert_gt(history.count, 300);
    cr_assert_gt(given, 300, "%" PRId64, given);
    assert_never_runs_over(funnel, 0);
}

Test(limit_return, leaves_alone_what_is_no_state)
{
    struct runner give = with_own_clock("limit_return");
    struct window window = {1000, HOUR};
    struct funnel funnel = {3, 1, HOUR};
    static const char *const foreign[] = {"",
                                          "hello",
                                          "12",
                                          "slots:",
                                          "slots:1234567812345678",
                                          "slots:12345678123456781234567812345678x",
                                          "nan 1700000000000000",
                                          "1e999 1700000000000000",
                                          "-1 1700000000000000"};

    for (int64_t age_us = JUST_NOW; age_us < 1; age_us++) {
        for (size_t i = 0; i < LENGTH(foreign); i++) {
            tell(ask("SET text %s", foreign[i]));
            cr_assert_eq(return_to_log(&give, "text", 1, 0, EPOCH), 0);
            cr_assert_eq(return_to_slots(&give, "text", 1, age_us, window, EPOCH), 0);
            cr_assert_eq(return_to_funnel(&give, "text", 1, age_us, funnel, EPOCH), 0);
            redisReply *reply = checked(ask("GET text"), REDIS_REPLY_STRING);
            cr_assert_str_eq(reply->str, foreign[i], "it was overwritten in turn");
            freeReplyObject(reply);
        }
        tell(ask("RPUSH list a"));
        cr_assert_eq(return_to_log(&give, "list", 1, 0, EPOCH), 0);
        cr_assert_eq(return_to_slots(&give, "list", 1, age_us, window, EPOCH), 0);
        cr_assert_eq(return_to_funnel(&give, "list", 1, age_us, funnel, EPOCH), 0);
        cr_assert_eq(return_to_log(&give, "none", 1, 0, EPOCH), 0);
        cr_assert_eq(return_to_slots(&give, "none", 1, age_us, window, EPOCH), 0);
        cr_assert_eq(return_to_funnel(&give, "none", 1, age_us, funnel, EPOCH), 0);
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), 2, "a key was made");
    cr_assert_eq(integer_of(ask("LLEN list")), 2);
}

Test(limit_return, lets_state_expire_when_it_would_have)
{
    struct runner log = with_redis_clock("limit_log"), slots = with_redis_clock("limit_slots");
    struct runner funnels_own = with_redis_clock("limit_funnel"), give = with_redis_clock("limit_return");
    struct window window = {5, HOUR};
    struct funnel funnel = {5, 1, HOUR};
    struct demand two = {2, 2, 0};

    watch_life();
    tell(ask_window_raw(&log, "log", window, two, 0));
    tell(ask("EVALSHA %s 1 log log 1 call-%lld", give.digest, (long long)calls - 1));
    assert_life("log", 3600000);
    watch_life();
    tell(ask_window_raw(&slots, "slots", window, two, 0));
    tell(ask("EVALSHA %s 1 slots slots 1", give.digest));
    assert_life("slots", 3600000);
    watch_life();
    tell(ask_funnel_raw(&funnels_own, "funnel", funnel, two, 0));
    tell(ask("EVALSHA %s 1 funnel funnel 1", give.digest));
    assert_life("funnel", 2 * 3600000);
}

Test(limit_return, takes_redis_time_in_real_time)
{
    struct runner slots = with_redis_clock("limit_slots"), give = with_redis_clock("limit_return");
    struct window window = {5, HOUR};

    int64_t before_us = redis_time();
    ask_window(&slots, "a", window, (struct demand){2, 2, 0}, 0);
    wait_until(redis_time() + 1000);
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 a slots 2 500 %lld", give.digest, (long long)window.length_us)), 0);
    int64_t age_us = redis_time() - before_us + SECOND;
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 a slots 2 %lld %lld", give.digest, (long long)age_us,
                                (long long)window.length_us)),
                 2);
}

Test(limit_forget, makes_all_available_again)
{
    struct runner grant = with_redis_clock("limit_slots"), forget = with_redis_clock("limit_forget");
    struct window window = {5, HOUR};

    cr_assert_eq(integer_of(ask("EVALSHA %s 1 a", forget.digest)), 0);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){5, 5, 0}, 0).granted, 5);
    cr_assert_eq(ask_window(&grant, "b", window, (struct demand){5, 5, 0}, 0).granted, 5);
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 a", forget.digest)), 1);
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 a", forget.digest)), 0);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){5, 5, 0}, 0).granted, 5);
    cr_assert_eq(ask_window(&grant, "b", window, (struct demand){5, 5, 0}, 0).granted, 0);
}

Test(limit_forget, deletes_whatever_took_its_place)
{
    struct runner forget = with_redis_clock("limit_forget");

    tell(ask("RPUSH list a b"));
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 list", forget.digest)), 1);
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

/* ---- CL.THROTTLE ---- */

struct rate {
    int64_t max_burst;
    int64_t count;
    int64_t period_s;
};

struct verdict {
    int64_t refused, limit, remaining, retry_after_s, reset_after_s;
};

static redisReply *ask_throttle_raw(const struct runner *runner, const char *key, struct rate rate, int64_t quantity,
                                    int64_t now_us)
{
    return ask("EVALSHA %s 1 %s %lld %lld %lld %lld %lld", runner->digest, key, (long long)rate.max_burst,
               (long long)rate.count, (long long)rate.period_s, (long long)quantity, (long long)now_us);
}

static struct verdict ask_throttle(const struct runner *runner, const char *key, struct rate rate, int64_t quantity,
                                   int64_t now_us)
{
    redisReply *reply = checked(ask_throttle_raw(runner, key, rate, quantity, now_us), REDIS_REPLY_ARRAY);
    int64_t numbers[5];

    cr_assert_eq(reply->elements, LENGTH(numbers));
    for (size_t i = 0; i < LENGTH(numbers); i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
        numbers[i] = reply->element[i]->integer;
    }
    freeReplyObject(reply);
    return (struct verdict){numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

static void assert_verdict(struct verdict verdict, struct verdict expected, const char *what)
{
    cr_assert(memcmp(&verdict, &expected, sizeof verdict) == 0,
              "%s: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 ", expected %" PRId64 " %" PRId64
              " %" PRId64 " %" PRId64 " %" PRId64,
              what, verdict.refused, verdict.limit, verdict.remaining, verdict.retry_after_s, verdict.reset_after_s,
              expected.refused, expected.limit, expected.remaining, expected.retry_after_s, expected.reset_after_s);
}

Test(throttle, answers_as_the_module_does)
{
    struct runner runner = with_own_clock("throttle");
    struct rate five = {4, 1, 1};

    static const struct {
        int64_t at_ms;
        int64_t quantity;
        struct verdict expected;
    } cases[] = {
        {0, 6, {1, 5, 5, -1, 0}},    {0, 1, {0, 5, 4, -1, 1}},    {0, 1, {0, 5, 3, -1, 2}},
        {0, 1, {0, 5, 2, -1, 3}},    {0, 1, {0, 5, 1, -1, 4}},    {0, 1, {0, 5, 0, -1, 5}},
        {0, 1, {1, 5, 0, 1, 5}},     {0, 5, {1, 5, 0, 5, 5}},     {0, 6, {1, 5, 0, -1, 5}},
        {3000, 1, {0, 5, 2, -1, 3}}, {3100, 1, {0, 5, 1, -1, 4}}, {4000, 1, {0, 5, 1, -1, 4}},
        {8000, 1, {0, 5, 4, -1, 1}}, {9500, 1, {0, 5, 4, -1, 1}}, {9500, 0, {0, 5, 4, -1, 1}},
        {9500, 2, {0, 5, 2, -1, 3}}, {9500, 5, {1, 5, 2, 3, 3}},  {9600, 0, {0, 5, 2, -1, 3}},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        assert_verdict(ask_throttle(&runner, "a", five, cases[i].quantity, EPOCH + cases[i].at_ms * 1000),
                       cases[i].expected, what);
    }
    /* What its manual begins with. */
    assert_verdict(ask_throttle(&runner, "user123", (struct rate){15, 30, 60}, 1, EPOCH),
                   (struct verdict){0, 16, 15, -1, 2}, "manual");
}

Test(throttle, rounds_no_exact_second_up)
{
    struct runner runner = with_own_clock("throttle");

    for (int64_t count = 1; count <= 100; count++) {
        char key[32];
        snprintf(key, sizeof key, "count-%" PRId64, count);
        struct rate rate = {2 * count - 1, count, 1};
        for (int64_t used = 1; used <= 2 * count; used++) {
            assert_verdict(ask_throttle(&runner, key, rate, 1, EPOCH),
                           (struct verdict){0, 2 * count, 2 * count - used, -1, (used + count - 1) / count}, key);
        }
        assert_verdict(ask_throttle(&runner, key, rate, count, EPOCH), (struct verdict){1, 2 * count, 0, 1, 2}, key);
    }
}

/* The module's own arithmetic, in nanoseconds, of which an interval is a whole number here. */
struct cell {
    int64_t now_ns;
    int64_t tat_ns; /* at most now: unknown */
};

#define NANOSECONDS INT64_C(1000000000)

/* Near to where the answer changes a nanosecond that the script does not see may decide. */
static bool is_close(int64_t ns, int64_t step_ns)
{
    int64_t past = llabs(ns) % step_ns, edge = 20;

    return step_ns > 4 * edge && (past < edge || past > step_ns - edge);
}

static int64_t seconds_up(int64_t ns)
{
    return (ns + NANOSECONDS - 1) / NANOSECONDS;
}

static struct verdict cell_verdict(struct cell *cell, struct rate rate, int64_t quantity, bool *close)
{
    int64_t interval = rate.period_s * NANOSECONDS / rate.count;
    int64_t tolerance = interval * (rate.max_burst + 1);
    int64_t tat = cell->tat_ns > cell->now_ns ? cell->tat_ns : cell->now_ns;
    int64_t early = tat + interval * quantity - tolerance - cell->now_ns;
    struct verdict verdict = {.refused = early > 0, .limit = rate.max_burst + 1, .retry_after_s = -1};

    *close = is_close(tat - cell->now_ns, interval) || is_close(early, NANOSECONDS) ||
             is_close(tat - cell->now_ns, NANOSECONDS) ||
             is_close(tat - cell->now_ns + interval * quantity, NANOSECONDS);
    if (verdict.refused == 0) {
        tat += interval * quantity;
        cell->tat_ns = tat;
    } else if (interval * quantity <= tolerance) {
        verdict.retry_after_s = seconds_up(early);
    }
    int64_t left = tolerance - (tat - cell->now_ns);
    verdict.remaining = left > -interval ? left / interval : 0;
    verdict.reset_after_s = seconds_up(tat - cell->now_ns);
    return verdict;
}

/* The state that the script would have written for that time of the module's. */
static void inject(const char *key, struct rate rate, struct cell cell)
{
    double interval_us = (double)rate.period_s * 1e6 / (double)rate.count;
    double level = (double)(cell.tat_ns - cell.now_ns) / 1000 / interval_us;

    tell(ask("SET %s %s", key, "")); /* whatever was there, and its expiry */
    char state[128];
    snprintf(state, sizeof state, "%.17g %" PRId64 " %.17g", level, cell.now_ns / 1000, interval_us);
    tell(ask("SET %s %s", key, state));
}

static const struct rate rates[] = {
    {0, 1, 1},        {15, 30, 60},    {4, 5, 1},        {100, 1000, 1},        {999, 10000, 1},
    {50, 10000, 1},   {0, 1000000, 1}, {20, 1000000, 1}, {5000000, 1000000, 1}, {10, 1, 3600},
    {1000, 1, 86400}, {3, 400000, 2},  {59, 60, 60},     {0, 1000000, 60},      {1000000, 1000000, 86400},
};

Test(throttle, does_as_the_model_from_any_state)
{
    struct runner runner = with_own_clock("throttle");
    int compared = 0;

    for (int i = 0; i < 8000; i++) {
        struct rate rate = rates[chance(LENGTH(rates))], before = rates[chance(LENGTH(rates))];
        int64_t interval = rate.period_s * NANOSECONDS / rate.count;
        int64_t full = interval * (rate.max_burst + 1);
        struct cell cell = {.now_ns = (EPOCH + chance(DAY)) * 1000};
        /* From nearly empty to over the brim, as an asker with another rate may have left it. */
        cell.tat_ns = cell.now_ns + chance(chance(2) == 0 ? 2 * interval + 2 : full + full / 5 + 2);
        inject("a", chance(2) == 0 ? before : rate, cell);
        cell.now_ns += chance(2) * 1000 * chance(full / 500 + 2);
        int64_t quantity = chance(2) == 0 ? chance(4) : chance(rate.max_burst + 4);
        bool close;
        struct verdict expected = cell_verdict(&cell, rate, quantity, &close);
        struct verdict verdict = ask_throttle(&runner, "a", rate, quantity, cell.now_ns / 1000);
        if (!close) {
            assert_verdict(verdict, expected, "throttle");
            compared++;
        }
    }
    cr_assert_gt(compared, 4000, "%d", compared);
}

Test(throttle, does_as_the_model_step_by_step)
{
    struct runner runner = with_own_clock("throttle");

    for (size_t i = 0; i < LENGTH(rates); i++) {
        struct cell cell = {.now_ns = EPOCH * 1000};
        int64_t interval = rates[i].period_s * NANOSECONDS / rates[i].count;
        char key[32];
        snprintf(key, sizeof key, "rate-%zu", i);
        for (int step = 0; step < 500; step++) {
            int64_t quantity = chance(5) > 0 ? 1 : chance(rates[i].max_burst + 3);
            bool close;
            struct cell before = cell;
            struct verdict expected = cell_verdict(&cell, rates[i], quantity, &close);
            struct verdict verdict = ask_throttle(&runner, key, rates[i], quantity, cell.now_ns / 1000);
            if (!close) {
                assert_verdict(verdict, expected, key);
            } else if (verdict.refused != expected.refused) {
                cell.tat_ns = verdict.refused ? before.tat_ns : cell.tat_ns + interval * quantity;
            }
            cell.now_ns += 1000 * chance(2 * interval / 1000 + 2);
            /* Redis' clock stands still meanwhile as far as keys are concerned. */
        }
    }
}

/* Always one too many: in the long run exactly count in each period, at any rate. */
static void assert_throttle_rate(struct rate rate, int64_t pause_max_us)
{
    struct runner runner = with_own_clock("throttle");
    int64_t now_us = EPOCH, admitted = 0;
    char key[32];

    snprintf(key, sizeof key, "rate-%" PRId64, rate.count);
    for (int i = 0; i < 1500; i++) {
        while (ask_throttle(&runner, key, rate, 1, now_us).refused == 0) {
            admitted++;
        }
        int64_t parts = (now_us - EPOCH) * rate.count, second = rate.period_s * SECOND;
        int64_t past = parts % second;
        if (past > 10 && past < second - 10) {
            cr_assert_eq(admitted, rate.max_burst + 1 + parts / second, "%s, step %d", key, i);
        } else {
            cr_assert_leq(llabs(admitted - rate.max_burst - 1 - parts / second), 1, "%s, step %d", key, i);
        }
        now_us += 1 + chance(pause_max_us);
    }
}

Test(throttle, keeps_every_digit_of_its_level)
{
    struct runner runner = with_own_clock("throttle");
    double level = 123456;

    ask_throttle(&runner, "a", (struct rate){999999, 7, 3}, 123456, EPOCH);
    for (int64_t i = 1; i < 100; i++) {
        ask_throttle(&runner, "a", (struct rate){999999, 7, 3}, 1, EPOCH + i);
        level = level - 7 / 3e6 + 1;
        cr_assert_eq(level_of("a"), level);
    }
}

Test(throttle, keeps_high_rates_exactly)
{
    assert_throttle_rate((struct rate){9, 10000, 1}, 300);
    assert_throttle_rate((struct rate){9, 1000000, 1}, 4);
    assert_throttle_rate((struct rate){9, 700001, 1}, 5);
    assert_throttle_rate((struct rate){2, 3, 3600}, HOUR / 3);
}

Test(throttle, keeps_its_state_as_long_as_it_says_anything)
{
    struct runner runner = with_redis_clock("throttle");
    static const struct {
        struct rate rate;
        int64_t life_ms;
    } cases[] = {
        {{9, 1, 3600}, 3600000},
        {{9, 1000000, 1}, 1},
        {{0, 1, 9000000000}, INT64_C(9000000000000)},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        watch_life();
        tell(ask_throttle_raw(&runner, "life", cases[i].rate, 1, 0));
        assert_life("life", cases[i].life_ms);
        tell(ask("DEL life"));
    }
}

Test(throttle, peeks_with_a_quantity_of_0)
{
    struct runner runner = with_own_clock("throttle");
    struct rate rate = {4, 1, 3600};

    assert_verdict(ask_throttle(&runner, "a", rate, 0, EPOCH), (struct verdict){0, 5, 5, -1, 0}, "unknown");
    cr_assert_eq(integer_of(ask("EXISTS a")), 0);
    assert_verdict(ask_throttle(&runner, "a", rate, 5, EPOCH), (struct verdict){0, 5, 0, -1, 18000}, "all");
    redisReply *before = checked(ask("GET a"), REDIS_REPLY_STRING);
    assert_verdict(ask_throttle(&runner, "a", rate, 0, EPOCH + 1), (struct verdict){0, 5, 0, -1, 18000}, "full");
    assert_verdict(ask_throttle(&runner, "a", rate, 1, EPOCH + 1), (struct verdict){1, 5, 0, 3600, 18000}, "refused");
    redisReply *after = checked(ask("GET a"), REDIS_REPLY_STRING);
    cr_assert_str_eq(before->str, after->str);
    freeReplyObject(before);
    freeReplyObject(after);
    /* With a smaller burst it is over the brim. */
    assert_verdict(ask_throttle(&runner, "a", (struct rate){1, 1, 3600}, 0, EPOCH),
                   (struct verdict){1, 2, 0, 10800, 18000}, "over");
    cr_assert_eq(integer_of(ask("DBSIZE")), 1);
}

Test(throttle, survives_a_clock_set_back)
{
    struct runner runner = with_own_clock("throttle");
    struct rate rate = {1, 1, 3600};
    int64_t now_us = EPOCH - 10 * DAY;

    ask_throttle(&runner, "a", rate, 2, EPOCH);
    assert_verdict(ask_throttle(&runner, "a", rate, 1, now_us), (struct verdict){1, 2, 0, 3600, 7200}, "at once");
    assert_verdict(ask_throttle(&runner, "a", rate, 1, now_us + HOUR), (struct verdict){0, 2, 0, -1, 7200}, "later");
}

Test(throttle, takes_redis_time_in_real_time)
{
    struct runner runner = with_redis_clock("throttle");
    int64_t before_us = redis_time();

    assert_verdict(ask_throttle(&runner, "a", (struct rate){4, 1, 3600}, 1, 0), (struct verdict){0, 5, 4, -1, 3600},
                   "real");
    redisReply *reply = checked(ask("GET a"), REDIS_REPLY_STRING);
    int64_t time_us = strtoll(strchr(reply->str, ' '), NULL, 10);
    cr_assert_geq(time_us, before_us);
    cr_assert_leq(time_us, redis_time());
    freeReplyObject(reply);
}

Test(throttle, guards_against_what_it_cannot_reckon_with)
{
    struct runner runner = with_own_clock("throttle");
    static const char *const bad[] = {"-1 1 1 1", "1 0 1 1",   "1 1 0 1",   "1 1 1 -1", "1.5 1 1 1",
                                      "x 1 1 1",  "1 nan 1 1", "1 1 inf 1", "1 1 1",    "9007199254740992 1 9 1"};

    for (size_t i = 0; i < LENGTH(bad); i++) {
        char call[160];
        snprintf(call, sizeof call, "EVALSHA %s 1 a %s", runner.digest, bad[i]);
        assert_error(ask(call), "ERR max_burst, count, period or quantity out of range");
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

Test(throttle, says_that_its_state_was_overwritten)
{
    struct runner runner = with_own_clock("throttle");
    struct rate rate = {1, 1, 1};
    /* The second is what the module itself would have written. */
    static const char *const foreign[] = {
        "",
        "1700000000123456789",
        "hello",
        "1 2",
        "1 2 3 4",
        "nan 1 1",
        "-1 1700000000000000 1",
        "1e999 1700000000000000 1",
        "1e300 1700000000000000 1",
    };

    tell(ask("RPUSH list a"));
    assert_error(ask_throttle_raw(&runner, "list", rate, 1, EPOCH), WRONG_TYPE);
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        tell(ask("SET text %s", foreign[i]));
        assert_error(ask_throttle_raw(&runner, "text", rate, 1, EPOCH), OVERWRITTEN);
    }
}

/* ---- DELIFEQ ---- */

static redisReply *ask_delifeq(const struct runner *runner, const char *key, const char *value, size_t length)
{
    return ask("EVALSHA %s 1 %s %b", runner->digest, key, value, length);
}

Test(delifeq, deletes_only_what_equals)
{
    struct runner runner = with_redis_clock("delifeq");

    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "", 0)), 0, "there is none");
    tell(ask("SET lock mine"));
    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "theirs", 6)), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "min", 3)), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "MINE", 4)), 0);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 1);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "mine", 4)), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "lock", "mine", 4)), 0);
}

Test(delifeq, compares_bytes_and_numbers_as_they_are_written)
{
    struct runner runner = with_redis_clock("delifeq");

    tell(ask("SET bytes %b", "a\0b", (size_t)3));
    cr_assert_eq(integer_of(ask_delifeq(&runner, "bytes", "a\0c", 3)), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "bytes", "a", 1)), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "bytes", "a\0b", 3)), 1);
    tell(ask("SET number 10"));
    cr_assert_eq(integer_of(ask_delifeq(&runner, "number", "1e1", 3)), 0);
    cr_assert_eq(integer_of(ask_delifeq(&runner, "number", "10", 2)), 1);
    tell(ask("SET empty %b", "", (size_t)0));
    cr_assert_eq(integer_of(ask_delifeq(&runner, "empty", "", 0)), 1);
}

Test(delifeq, knows_strings_only)
{
    struct runner runner = with_redis_clock("delifeq");

    tell(ask("SADD set a"));
    assert_error(ask_delifeq(&runner, "set", "a", 1), WRONG_TYPE);
    cr_assert_eq(integer_of(ask("SCARD set")), 1);
}
