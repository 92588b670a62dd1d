/* limit_return.lua and limit_forget.lua, on a real Redis: giving back, and forgetting. */
#include "limit_history.h"

#include <criterion/criterion.h>

TestSuite(limit_return, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(limit_forget, .init = start_redis, .fini = stop_redis, .timeout = 100);

static int64_t return_to_slots(const struct runner *runner, const char *key, int64_t count, int64_t age_us,
                               struct window window, int64_t now_us)
{
    return integer_of(ask("EVALSHA %s 1 %s slots %lld %lld %lld %lld", runner->digest, key, (long long)count,
                          (long long)age_us, (long long)window.length_us, (long long)now_us));
}

static int64_t return_to_funnel(const struct runner *runner, const char *key, int64_t count, int64_t age_us,
                                struct funnel funnel, int64_t now_us)
{
    return integer_of(ask("EVALSHA %s 1 %s funnel %lld %lld %lld %lld %lld", runner->digest, key, (long long)count,
                          (long long)age_us, (long long)funnel.leak, (long long)funnel.period_us, (long long)now_us));
}

static void assert_slots_take_back(int64_t limit)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {limit, HOUR};
    struct demand half = {limit / 2, limit / 2, 0};

    cr_assert_eq(ask_window(&grant, "a", window, half, EPOCH).granted, limit / 2);
    cr_assert_eq(ask_window(&grant, "a", window, half, EPOCH + HOUR / 2).granted, limit / 2);
    int64_t now_us = EPOCH + HOUR / 2 + 50;
    cr_assert_eq(return_to_slots(&give, "a", 1, 100, window, now_us), 1);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){limit, 1, 0}, now_us).granted, 1);
    cr_assert_eq(return_to_slots(&give, "a", limit / 2, 100, window, now_us), limit / 2);
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
        assert_slots_take_back(limits[i]);
    }
}

Test(limit_return, takes_from_the_oldest_slots_and_no_more_than_there_is)
{
    struct runner grant = with_own_clock("limit_slots"), give = with_own_clock("limit_return");
    struct window window = {10, HOUR};

    for (int64_t i = 0; i < 4; i++) {
        ask_window(&grant, "a", window, (struct demand){2, 2, 0}, EPOCH + i);
    }
    cr_assert_eq(return_to_slots(&give, "a", 3, 4, window, EPOCH + 4), 3);
    cr_assert_eq(ask_window(&grant, "a", window, (struct demand){10, 10, 0}, EPOCH + 4).wait_us, HOUR - 1);
    cr_assert_eq(return_to_slots(&give, "a", 100, 4, window, EPOCH + 4), 5);
    cr_assert_eq(integer_of(ask("EXISTS a")), 0, "an empty state says nothing");
    cr_assert_eq(return_to_slots(&give, "a", 1, 4, window, EPOCH + 4), 0);
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
            cr_assert_eq(return_to_slots(&give, "a", 1, 0, window, now_us + turn), 1);
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
    int64_t asked_us;
    struct grant grant;
};

#define PENDING 8

static void assert_returns_keep_the_limit(const char *name, struct window window)
{
    struct runner grant = with_own_clock(name), give = with_own_clock("limit_return");
    struct pending pending[PENDING] = {0};
    int64_t now_us = EPOCH, given = 0, granted = 0;

    history.count = 0;
    for (int i = 0; i < 4000; i++) {
        struct pending *one = &pending[chance(PENDING)];
        int64_t count = one->grant.count;
        if (count > 0 && chance(3) > 0) {
            remember(one->grant.first_us, one->grant.last_us, count);
        } else if (count > 0) {
            int64_t back = return_to_slots(&give, name, count, now_us - one->asked_us, window, now_us);
            cr_assert_leq(back, count);
            given += back;
        }
        int64_t hold_us = chance(3) == 0 ? window.length_us / 20 : 0;
        *one = (struct pending){.asked_us = now_us - chance(window.length_us / 100)};
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
    cr_assert_eq(return_to_funnel(&give, "a", 3, 0, funnel, EPOCH + 100), 3);
    cr_assert_eq(level_of("a"), 4);
    cr_assert_eq(return_to_funnel(&give, "a", 2, 100, funnel, EPOCH + 100), 2);
    cr_assert_eq(ask_funnel(&grant, "a", funnel, (struct demand){10, 1, 0}, EPOCH + 100).granted, 8);
    cr_assert_eq(return_to_funnel(&give, "a", 100, 0, funnel, EPOCH + 100), 10);
    cr_assert_eq(integer_of(ask("EXISTS a")), 0, "an empty state says nothing");
    cr_assert_eq(return_to_funnel(&give, "a", 1, 0, funnel, EPOCH + 100), 0);
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

    for (size_t i = 0; i < LENGTH(foreign); i++) {
        tell(ask("SET text %s", foreign[i]));
        cr_assert_eq(return_to_slots(&give, "text", 1, 0, window, EPOCH), 0);
        cr_assert_eq(return_to_funnel(&give, "text", 1, 0, funnel, EPOCH), 0);
        redisReply *reply = checked(ask("GET text"), REDIS_REPLY_STRING);
        cr_assert_str_eq(reply->str, foreign[i], "it was overwritten in turn");
        freeReplyObject(reply);
    }
    tell(ask("RPUSH list a"));
    cr_assert_eq(return_to_slots(&give, "list", 1, 0, window, EPOCH), 0);
    cr_assert_eq(return_to_funnel(&give, "list", 1, 0, funnel, EPOCH), 0);
    cr_assert_eq(return_to_slots(&give, "none", 1, 0, window, EPOCH), 0);
    cr_assert_eq(return_to_funnel(&give, "none", 1, 0, funnel, EPOCH), 0);
    cr_assert_eq(integer_of(ask("DBSIZE")), 2, "a key was made");
    cr_assert_eq(integer_of(ask("LLEN list")), 1);
}

Test(limit_return, lets_state_expire_when_it_would_have)
{
    struct runner slots = with_redis_clock("limit_slots");
    struct runner funnels_own = with_redis_clock("limit_funnel"), give = with_redis_clock("limit_return");
    struct window window = {5, HOUR};
    struct funnel funnel = {5, 1, HOUR};
    struct demand two = {2, 2, 0};

    watch_life();
    tell(ask_window_raw(&slots, "slots", window, two, 0));
    tell(ask("EVALSHA %s 1 slots slots 1 1000000 3600000000", give.digest));
    assert_life("slots", 3600000);
    watch_life();
    tell(ask_funnel_raw(&funnels_own, "funnel", funnel, two, 0));
    tell(ask("EVALSHA %s 1 funnel funnel 1 0 1 3600000000", give.digest));
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
