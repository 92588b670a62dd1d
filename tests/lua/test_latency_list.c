/* The scripts that list which interfaces there are, on a real Redis. */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(latency_list, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* What the reading script replies: names with blanks between them. The caller frees it. */
static char *listed(int most)
{
    redisReply *reply = checked(ask("EVALSHA %s 1 s_interfaces %d", with_redis_clock("latency_listed").digest, most),
                                REDIS_REPLY_ARRAY);
    char *text = calloc(1, reply->elements * 80 + 1);

    for (size_t i = 0; i < reply->elements; i++) {
        strcat(strcat(text, i > 0 ? " " : ""), reply->element[i]->str);
    }
    freeReplyObject(reply);
    return text;
}

static void assert_listed(int most, const char *expected)
{
    char *text = listed(most);

    cr_assert_str_eq(text, expected);
    free(text);
}

static const char *adding(void)
{
    static struct runner runner;

    runner = with_redis_clock("latency_list");
    return runner.digest;
}

Test(latency_list, has_the_names_that_were_given)
{
    assert_listed(10, "");
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 s_interfaces 100 set orders|blocking", adding())), 2);
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 s_interfaces 100 get set", adding())), 3);
    assert_listed(10, "get orders|blocking set");
    int64_t left = integer_of(ask("TTL s_interfaces"));
    cr_assert(left > 80 && left <= 100);
}

Test(latency_list, forgets_names_that_nobody_gives_any_more)
{
    tell(ask("ZADD s_interfaces 1000 old"));
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 s_interfaces 100 get", adding())), 1);
    assert_listed(10, "get");
}

Test(latency_list, gives_those_that_were_named_last)
{
    tell(ask("ZADD s_interfaces 1 a 3 c 2 b"));
    assert_listed(2, "b c");
    /* Before the clock was set back; that is no time to come. */
    tell(ask("ZADD s_interfaces 99999999999 d inf e"));
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 s_interfaces 100 get", adding())), 3);
    cr_assert_eq(integer_of(ask("ZCOUNT s_interfaces 99999999999 +inf")), 0);
    assert_listed(3, "d e get");
}

Test(latency_list, harms_nothing_that_is_in_the_way)
{
    tell(ask("SET s_interfaces mine"));
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces 100 get", adding()), "HEADGATE key s_interfaces holds a string");
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces 10", with_redis_clock("latency_listed").digest),
                        "HEADGATE key s_interfaces cannot be read");
    redisReply *reply = checked(ask("GET s_interfaces"), REDIS_REPLY_STRING);
    cr_assert_str_eq(reply->str, "mine");
    freeReplyObject(reply);
}

Test(latency_list, refuses_unsound_arguments)
{
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces 0 get", adding()), "HEADGATE the arguments");
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces x get", adding()), "HEADGATE the arguments");
    assert_error_begins(ask("EVALSHA %s 0 100 get", adding()), "HEADGATE the arguments");
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces 0", with_redis_clock("latency_listed").digest),
                        "HEADGATE no key");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

Test(latency_list, says_that_redis_has_no_memory)
{
    tell(ask("CONFIG SET maxmemory 1"));
    assert_error_begins(ask("EVALSHA %s 1 s_interfaces 100 get", adding()), "OOM");
}
