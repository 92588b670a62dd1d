/* limit_slots.lua, on a real Redis, against models that keep everything and reckon in whole numbers. */
#include "limit_history.h"

#include <criterion/criterion.h>

TestSuite(limit_slots, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* ---- windows ---- */

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
        }
        if (answer.granted < demand.cost) {
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

Test(limit_slots, grant_what_there_is_down_to_the_least)
{
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {10, HOUR};

    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){7, 1, 0}, EPOCH).granted, 7);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){7, 4, 0}, EPOCH).wait_us, HOUR);
    struct answer rest = ask_window(&runner, "a", window, (struct demand){7, 3, 0}, EPOCH);
    cr_assert(rest.granted == 3 && rest.wait_us == HOUR, "and when as much comes back");
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + 10).wait_us, HOUR - 10);
    /* More than the limit: some of it may do. */
    cr_assert_eq(ask_window(&runner, "b", window, (struct demand){11, 11, 0}, EPOCH).wait_us, -1);
    cr_assert_eq(ask_window(&runner, "b", window, (struct demand){11, 10, 0}, EPOCH).granted, 10);
    /* A limit that was lowered. */
    cr_assert_eq(ask_window(&runner, "b", (struct window){4, HOUR}, (struct demand){2, 1, 0}, EPOCH + 1).wait_us,
                 HOUR - 1);
}

Test(limit_slots, takes_large_costs)
{
    const int64_t limit = INT64_C(1000000000000000);
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {limit, HOUR};

    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){limit - 1, limit - 1, 0}, EPOCH).granted, limit - 1);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){limit, 1, 0}, EPOCH + 1).granted, 1);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){limit, limit, 0}, EPOCH + 2).wait_us, HOUR - 1);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){1, 1, 0}, EPOCH + HOUR + HOUR / 64).granted, 1);
}

static void assert_leases_keep_the_limit(struct window window)
{
    struct runner runner = with_own_clock("limit_slots");
    int64_t now_us = EPOCH, granted = 0;

    history.count = 0;
    for (int i = 0; i < 1500; i++) {
        /* Leases of several lengths, and permits for at once among them. */
        struct demand demand = random_demand(window.limit, chance(3) * window.length_us / (2 + chance(20)));
        struct answer answer = ask_window(&runner, "a", window, demand, now_us);
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

Test(limit_slots, hold_the_limit_however_late_a_lease_is_spent)
{
    assert_leases_keep_the_limit((struct window){12, HOUR});
    tell(ask("FLUSHALL"));
    assert_leases_keep_the_limit((struct window){400, HOUR});
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

Test(limit_slots, limits_in_real_time)
{
    assert_limits_in_real_time("limit_slots", (struct window){7, 20000});
    assert_limits_in_real_time("limit_slots", (struct window){300, 20000});
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

Test(limit_slots, survives_a_clock_set_back)
{
    assert_survives_a_clock_set_back("limit_slots", (struct window){3, HOUR}, 0);
    tell(ask("FLUSHALL"));
    assert_survives_a_clock_set_back("limit_slots", (struct window){3000, HOUR}, HOUR / 64);
}

/* Many slots, of which the clock's jump puts only some beyond doubt. */
Test(limit_slots, stay_in_order_when_the_clock_is_set_back)
{
    struct runner runner = with_own_clock("limit_slots");
    struct window window = {100, HOUR};
    int64_t now_us = EPOCH - HOUR - HOUR / 2;

    for (int64_t i = 0; i < 32; i++) {
        ask_window(&runner, "a", window, (struct demand){3, 3, 0}, EPOCH + i * HOUR / 32);
    }
    struct answer answer = ask_window(&runner, "a", window, (struct demand){50, 50, 0}, now_us);
    cr_assert_eq(answer.granted, 0);
    cr_assert_eq(answer.wait_us, HOUR);
    cr_assert_eq(ask_window(&runner, "a", window, (struct demand){100, 100, 0}, now_us + HOUR).granted, 100);
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

Test(limit_slots, survive_a_clock_set_back_in_real_time)
{
    struct runner runner = with_own_clock("limit_slots"), real = with_redis_clock("limit_slots");
    struct window window = {1, 30000};
    struct demand one = {1, 1, 0};

    /* What Redis finds after its own clock was set back by a day. */
    cr_assert_eq(ask_window(&runner, "a", window, one, redis_time() + DAY).granted, 1);
    struct answer answer = ask_window(&real, "a", window, one, 0);
    cr_assert_eq(answer.wait_us, window.length_us, "%" PRId64, answer.wait_us);
    wait_until(redis_time() + answer.wait_us);
    cr_assert_eq(ask_window(&real, "a", window, one, 0).granted, 1);
}

Test(limit_slots, say_that_their_state_was_overwritten)
{
    struct runner slots = with_own_clock("limit_slots");
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
    assert_error(ask_window_raw(&slots, "list", window, one, EPOCH), WRONG_TYPE);
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        tell(ask("SET text %s", foreign[i]));
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

Test(limit_slots, expire_when_they_say_nothing_any_more)
{
    struct runner runner = with_redis_clock("limit_slots");
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
