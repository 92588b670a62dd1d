/* throttle.lua, on a real Redis: CL.THROTTLE against a model of the module that it is known from. */
#include "limit_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(throttle, .init = start_redis, .fini = stop_redis, .timeout = 100);

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
