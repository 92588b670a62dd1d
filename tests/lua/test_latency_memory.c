/*
 * What the record takes of Redis' memory: docs/latency.md says it, as operators choose retention by it. Run with
 * --verbose=1 (or read the log of ctest), this tells what it is here.
 */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTES 512
#define MINUTE 28333333
#define KEY "statistics_orders_%d_for_"

TestSuite(latency_memory, .init = start_redis, .fini = stop_redis, .timeout = 100);

static double memory_used(void)
{
    static const char word[] = "used_memory:";
    redisReply *info = checked(ask("INFO memory"), REDIS_REPLY_STRING);
    const char *found = strstr(info->str, word);

    cr_assert_not_null(found);
    double used = strtod(found + strlen(word), NULL);
    freeReplyObject(info);
    return used;
}

static void flush(int number, int buckets)
{
    char figures[8192];
    int minute = MINUTE + number;
    size_t length = (size_t)snprintf(figures, sizeof figures, "41250 71 14865822 81234 3 4224168 9260676");

    for (int i = 0; i < buckets; i++) {
        length += (size_t)snprintf(figures + length, sizeof figures - length, " %d %d", 1 + i * 7919 % 3000, 90 + i);
    }
    cr_assert_eq(integer_of(ask("EVALSHA %s 6 statistics_orders_flushed_by_5f3a " KEY "max " KEY "min " KEY
                                "sum_count " KEY "hist " KEY "errors_bytes %d 3600 604800 %s",
                                script_find("latency_flush")->sha1, minute, minute, minute, minute, minute, number + 1,
                                figures)),
                 1);
}

/* The mean of so many minutes. */
static double minute_takes(int buckets)
{
    tell(ask("FLUSHALL"));
    double before = memory_used();
    for (int i = 0; i < MINUTES; i++) {
        flush(i, buckets);
    }
    double each = (memory_used() - before) / MINUTES;
    cr_log_info("%d buckets: %.0f bytes in Redis for each minute", buckets, each);
    return each;
}

Test(latency_memory, of_a_minute)
{
    load_script(script_find("latency_flush"));
    /* What Redis takes only once is there then. */
    (void)minute_takes(10);
    cr_assert_leq(minute_takes(10), 1700);
    cr_assert_leq(minute_takes(50), 1700);
    cr_assert_leq(minute_takes(100), 1700);
    /* Above zset-max-listpack-entries Redis keeps a sorted set in another way. */
    cr_assert_geq(minute_takes(130), 10000);
}
