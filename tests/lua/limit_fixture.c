/* What the tests of the scripts that limit share. */
#include "limit_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- time ---- */

int64_t time_of(const redisReply *clock)
{
    return strtoll(clock->element[0]->str, NULL, 10) * SECOND + strtoll(clock->element[1]->str, NULL, 10);
}

int64_t redis_time(void)
{
    redisReply *reply = checked(ask("TIME"), REDIS_REPLY_ARRAY);
    int64_t now = time_of(reply);

    freeReplyObject(reply);
    return now;
}

void wait_until(int64_t until_us)
{
    for (int64_t now_us = redis_time(); now_us < until_us; now_us = redis_time()) {
        usleep((useconds_t)(until_us - now_us));
    }
}

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

struct runner with_own_clock(const char *name)
{
    return with_clock(own_clock, name);
}

void watch_life(void)
{
    tell(ask("MULTI"));
    tell(ask("TIME"));
}

void assert_life(const char *key, int64_t says_ms)
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

/* ---- limits ---- */

struct answer answer_of(const redisReply *reply)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, 2);
    cr_assert_eq(reply->element[0]->type, REDIS_REPLY_INTEGER);
    cr_assert_eq(reply->element[1]->type, REDIS_REPLY_INTEGER);
    struct answer answer = {reply->element[0]->integer, reply->element[1]->integer};
    cr_assert_geq(answer.granted, 0);
    cr_assert(answer.granted > 0 || answer.wait_us > 0 || answer.wait_us == -1, "refused, to wait %" PRId64 " µs",
              answer.wait_us);
    return answer;
}

/* Frees the reply. */
static struct answer answer_to(struct demand demand, redisReply *reply)
{
    struct answer answer = answer_of(reply);

    freeReplyObject(reply);
    cr_assert(answer.granted == 0 || answer.granted >= demand.least);
    cr_assert_leq(answer.granted, demand.cost);
    cr_assert(answer.granted == 0 || (answer.granted < demand.cost) == (answer.wait_us > 0));
    return answer;
}

redisReply *ask_window_raw(const struct runner *runner, const char *key, struct window window, struct demand demand,
                           int64_t now_us)
{
    return ask("EVALSHA %s 1 %s %lld %lld %lld %lld %lld %lld", runner->digest, key, (long long)window.limit,
               (long long)window.length_us, (long long)demand.cost, (long long)demand.least, (long long)demand.hold_us,
               (long long)now_us);
}

struct answer ask_window(const struct runner *runner, const char *key, struct window window, struct demand demand,
                         int64_t now_us)
{
    return answer_to(demand, ask_window_raw(runner, key, window, demand, now_us));
}

void assert_slots_stay_small(const char *key)
{
    cr_assert_leq(integer_of(ask("STRLEN %s", key)), 6 + 16 + 66 * 16);
    cr_assert_leq(integer_of(ask("MEMORY USAGE %s", key)), 2048);
}

redisReply *ask_funnel_raw(const struct runner *runner, const char *key, struct funnel funnel, struct demand demand,
                           int64_t now_us)
{
    return ask("EVALSHA %s 1 %s %lld %lld %lld %lld %lld %lld %lld", runner->digest, key, (long long)funnel.capacity,
               (long long)funnel.leak, (long long)funnel.period_us, (long long)demand.cost, (long long)demand.least,
               (long long)demand.hold_us, (long long)now_us);
}

struct answer ask_funnel(const struct runner *runner, const char *key, struct funnel funnel, struct demand demand,
                         int64_t now_us)
{
    return answer_to(demand, ask_funnel_raw(runner, key, funnel, demand, now_us));
}

double level_of(const char *key)
{
    redisReply *reply = checked(ask("GET %s", key), REDIS_REPLY_STRING);
    double level = strtod(reply->str, NULL);

    freeReplyObject(reply);
    return level;
}

/* ---- by chance ---- */

int64_t pause_us(int64_t length_us)
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

struct demand random_demand(int64_t limit, int64_t hold_us)
{
    struct demand demand = {.hold_us = hold_us};

    demand.cost = chance(3) > 0 ? 1 : 1 + chance(limit > 12 ? limit / 6 : limit);
    demand.least = chance(2) > 0 ? demand.cost : 1 + chance(demand.cost);
    return demand;
}
