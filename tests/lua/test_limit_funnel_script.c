/* limit_funnel.lua, on a real Redis, against a model that reckons in whole numbers. */
#include "limit_history.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(limit_funnel, .init = start_redis, .fini = stop_redis, .timeout = 100);

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
