/* delifeq.lua, on a real Redis. */
#include "limit_fixture.h"

#include <criterion/criterion.h>

TestSuite(delifeq, .init = start_redis, .fini = stop_redis, .timeout = 100);

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
