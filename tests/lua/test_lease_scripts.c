/* The scripts that heal and release leases, and what holds for all scripts of leases, on a real Redis. */
#include "lease_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lease_heal, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_release, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_scripts, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* ---- locks without a time to live ---- */

Test(lease_heal, gives_a_time_to_live_to_the_owners_lock_only)
{
    struct runner runner = with_own_clock("lease_heal");

    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), GONE, NO_KEY, "none");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0, "it was made");
    tell(ask("SETNX lock other"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), NOT_OWNER, NO_EXPIRY, "another's");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
    set_lock("lock", "other", 10);
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), NOT_OWNER, 10, "another's that expires");
    tell(ask("SET lock me"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), RENEWED, 5000, "healed");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 5000);
    assert_answer(heal(&runner, owner("me"), 9000, EPOCH + 1), DEFERRED, 4999, "has one");
    assert_answer(heal(&runner, owner("me"), 1, EPOCH + 1), DEFERRED, 4999, "has a longer one");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 5000);
    tell(ask("DEL lock"));
    tell(ask("HSET lock me 1"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), ANOTHER_TYPE, NO_EXPIRY, "hash");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
}

Test(lease_heal, takes_any_bytes_for_a_token)
{
    struct runner runner = with_own_clock("lease_heal");
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    fill(bytes, MEGABYTE);
    tell(ask("SET lock %b", bytes, (size_t)MEGABYTE));
    bytes[MEGABYTE - 1] ^= 1;
    assert_answer(heal(&runner, (struct owner){bytes, MEGABYTE}, 5000, EPOCH), NOT_OWNER, NO_EXPIRY, "differs");
    bytes[MEGABYTE - 1] ^= 1;
    assert_answer(heal(&runner, (struct owner){bytes, MEGABYTE}, 5000, EPOCH), RENEWED, 5000, "the same");
    free(bytes);
}

Test(lease_heal, heals_in_real_time)
{
    struct runner runner = with_redis_clock("lease_heal");
    int64_t began_ms = wall_ms();

    tell(ask("SETNX lock me"));
    assert_answer(heal(&runner, owner("me"), 20000, 0), RENEWED, 20000, "healed");
    assert_life_since("lock", 20000, began_ms);
    /* From then on it can be renewed. */
    struct runner renewal = with_redis_clock("lease_renew_string");
    assert_answer(renew(&renewal, &only_lock, owner("me"), (struct terms){30000, 20000, 10000}, 0), RENEWED, 30000,
                  "renewed");
}

Test(lease_heal, heals_each_key_that_the_token_owns)
{
    struct runner runner = with_redis_clock("lease_heal");

    tell(ask("MSET {a}1 me {a}2 me {a}3 other"));
    tell(ask("EVALSHA %s 3 {a}1 {a}2 {a}3 me 60000", runner.digest));
    cr_assert(integer_of(ask("PTTL {a}1")) > 0 && integer_of(ask("PTTL {a}2")) > 0);
    cr_assert_eq(integer_of(ask("PTTL {a}3")), -1);
}

/* ---- releases ---- */

Test(lease_release, deletes_only_what_holds_the_token)
{
    struct runner runner = with_redis_clock("lease_release");
    struct keys four = {4, {"{a}1", "{a}2", "{a}3", "{a}4"}};

    cr_assert_eq(release(&runner, &four, owner("me")), 0);
    tell(ask("SET {a}1 me PX 60000"));
    tell(ask("SET {a}2 other"));
    tell(ask("RPUSH {a}3 me"));
    tell(ask("SET {a}4 me"));
    cr_assert_eq(release(&runner, &four, owner("m")), 0);
    cr_assert_eq(release(&runner, &four, owner("")), 0);
    cr_assert_eq(integer_of(ask("DBSIZE")), 4);
    cr_assert_eq(release(&runner, &four, owner("me")), 2);
    cr_assert_eq(integer_of(ask("EXISTS {a}2 {a}3")), 2);
    cr_assert_eq(integer_of(ask("DBSIZE")), 2);
    cr_assert_eq(release(&runner, &four, owner("me")), 0);
    tell(ask("SET {a}1 me"));
    cr_assert_eq(release(&runner, &(struct keys){2, {"{a}1", "{a}1"}}, owner("me")), 1, "named twice");
}

Test(lease_release, takes_any_bytes_for_an_owner)
{
    static const char *const names[] = {"lease_release", "lease_release_hash", "lease_release_zset"};
    static const char *const takes[] = {"SET lock %b", "HSET lock %b 1", "ZADD lock 1 %b"};
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < LENGTH(names); i++) {
        struct runner runner = with_redis_clock(names[i]);
        fill(bytes, MEGABYTE);
        tell(ask(takes[i], bytes, (size_t)MEGABYTE));
        bytes[MEGABYTE - 1] ^= 1;
        cr_assert_eq(release(&runner, &only_lock, (struct owner){bytes, MEGABYTE}), 0, "%s", names[i]);
        bytes[MEGABYTE - 1] ^= 1;
        cr_assert_eq(release(&runner, &only_lock, (struct owner){bytes, MEGABYTE}), 1, "%s", names[i]);
        cr_assert_eq(integer_of(ask("DBSIZE")), 0, "%s", names[i]);
    }
    free(bytes);
}

Test(lease_release, removes_the_field_of_the_owner)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("HSET lock me 3 other 1"));
    tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH)));
    cr_assert_eq(release(&runner, &only_lock, owner("m")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    cr_assert_eq(integer_of(ask("HEXISTS lock me")), 0);
    cr_assert_eq(integer_of(ask("HEXISTS lock other")), 1);
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("other")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0);
    tell(ask("SET lock me"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0, "a string");
    cr_assert_eq(integer_of(ask("EXISTS lock")), 1);
}

static void assert_mode(const char *mode)
{
    redisReply *reply = checked(ask("HGET lock mode"), REDIS_REPLY_STRING);

    cr_assert_str_eq(reply->str, mode);
    freeReplyObject(reply);
}

Test(lease_release, leaves_a_read_write_lock_to_the_others)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    tell(ask("HSET lock mode read me 2 other 1"));
    tell(ask("MSET " HOLD "1 1 " HOLD "2 1 {lock}:other:rwlock_timeout:1 1"));
    cr_assert_eq(release(&runner, &reader, owner("nobody")), 0);
    cr_assert_eq(integer_of(ask("DBSIZE")), 4, "holds without a field");
    cr_assert_eq(release(&runner, &reader, owner("me")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock {lock}:other:rwlock_timeout:1")), 2);
    cr_assert_eq(integer_of(ask("DBSIZE")), 2);
    assert_mode("read");
    cr_assert_eq(release(&runner, &only_lock, owner("other")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0, "its mode alone is left");

    tell(ask("HSET lock mode write me:write 1 me 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me:write")), 1);
    assert_mode("read");
    tell(ask("HSET lock mode write me:write 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    assert_mode("write");
    cr_assert_eq(release(&runner, &only_lock, owner("me:write")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0);
}

Test(lease_release, publishes_nothing)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    tell(ask("CONFIG RESETSTAT"));
    tell(ask("HSET lock me 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    redisReply *stats = checked(ask("INFO commandstats"), REDIS_REPLY_STRING);
    cr_assert_not_null(strstr(stats->str, "cmdstat_hdel:"));
    cr_assert_null(strstr(stats->str, "publish"));
    freeReplyObject(stats);
}

Test(lease_release, removes_the_permit_of_the_owner)
{
    struct runner runner = with_redis_clock("lease_release_zset");

    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("ZADD lock 1 me 2 other"));
    cr_assert_eq(release(&runner, &only_lock, owner("m")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    cr_assert_eq(score_of("lock", "other"), 2);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("DEL lock"));
    tell(ask("SADD lock me"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0, "a set");
    cr_assert_eq(integer_of(ask("SCARD lock")), 1);
}

Test(lease_release, removes_companions_that_have_the_score_of_the_permit)
{
    struct runner runner = with_redis_clock("lease_release_zset");

    tell(ask("ZADD lock 7 me 7 with-me 8 newer 7 bystander"));
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 lock other 7 with-me", runner.digest)), 0);
    cr_assert_eq(integer_of(ask("ZCARD lock")), 4);
    cr_assert_eq(integer_of(ask("EVALSHA %s 1 lock me 7 with-me newer missing", runner.digest)), 1);
    cr_assert_eq(integer_of(ask("ZCARD lock")), 2);
    cr_assert_eq(score_of("lock", "newer"), 8);
    cr_assert_eq(score_of("lock", "bystander"), 7);
}

/* What the owner, who has come back, has done to it meanwhile. */
Test(lease_release, leaves_what_was_extended_meanwhile)
{
    static const struct {
        const char *name, *takes, *extends, *most;
    } cases[] = {
        {"lease_release", "SET lock me PX 60000", "PEXPIRE lock 90000", "60000"},
        {"lease_release", "SET lock me PX 60000", "PERSIST lock", "60000"},
        {"lease_release_hash", "HSET lock me 1", "PEXPIRE lock 90000", "60000"},
        {"lease_release_zset", "ZADD lock 1 me", "ZADD lock 2 me", "1"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct runner runner = with_redis_clock(cases[i].name);
        tell(ask("FLUSHALL"));
        tell(ask(cases[i].takes));
        tell(ask(cases[i].extends));
        cr_assert_eq(integer_of(ask("EVALSHA %s 1 lock me %s", runner.digest, cases[i].most)), 0, "%zu", i);
        cr_assert_eq(integer_of(ask("EXISTS lock")), 1, "%zu", i);
        tell(ask("DEL lock"));
        tell(ask(cases[i].takes));
        tell(ask(i == 2 ? "PEXPIRE lock 60000" : "PING"));
        cr_assert_eq(integer_of(ask("EVALSHA %s 1 lock me %s", runner.digest, cases[i].most)), 1, "%zu", i);
    }
}

/* ---- all of them ---- */

static const char *const lease_scripts[] = {"lease_renew_string", "lease_renew_hash", "lease_renew_zset",
                                            "lease_heal",         "lease_release",    "lease_release_hash",
                                            "lease_release_zset"};

/* What takes the lock, and a call that then renews or releases it. */
static const struct {
    const char *name;
    const char *take;
    const char *arguments;
} uses[] = {
    {"lease_renew_string", "SET lock me PX 60000", "1 lock me 90000 60000 60000"},
    {"lease_renew_hash", "HSET lock me 1", "1 lock me 90000 60000 60000"},
    {"lease_renew_zset", "ZADD lock 1 me", "1 lock me 2 1 90000"},
    {"lease_heal", "SET lock me", "1 lock me 90000"},
    {"lease_release", "SET lock me", "1 lock me"},
    {"lease_release_hash", "HSET lock me 1", "1 lock me"},
    {"lease_release_zset", "ZADD lock 1 me", "1 lock me"},
};

static redisReply *use(const char *name, const char *arguments)
{
    char command[192];

    snprintf(command, sizeof command, "EVALSHA %s %s", script_find(name)->sha1, arguments);
    return ask(command);
}

/* PEXPIRE with nothing or less would delete the lock. */
Test(lease_scripts, guard_against_what_they_cannot_reckon_with)
{
    static const struct {
        const char *name;
        const char *arguments; /* with the place of a number that is to be 1 or more, and a time */
    } leases[] = {
        {"lease_renew_string", "1 lock me %s 60000 60000"},
        {"lease_renew_hash", "1 lock me %s 60000 60000"},
        {"lease_renew_zset", "1 lock me 2 1 %s"},
        {"lease_heal", "1 lock me %s"},
    };
    static const char *const bad[] = {"0",   "-1", "-60000", "0.5",  "1.5",  "nan", "-nan",
                                      "inf", "x",  "1x",     "1e17", "-inf", ""};

    for (size_t i = 0; i < LENGTH(leases); i++) {
        load_script(script_find(leases[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        struct seen before = look_for("lock", owner("me"));
        for (size_t j = 0; j < LENGTH(bad); j++) {
            char arguments[96];
            snprintf(arguments, sizeof arguments, leases[i].arguments, bad[j]);
            assert_error_begins(use(leases[i].name, arguments), "HEADGATE no key, or ");
            struct seen after = look_for("lock", owner("me"));
            cr_assert(is_same(&before, &after), "%s with %s", leases[i].name, bad[j]);
        }
    }
}

Test(lease_scripts, guard_against_other_arguments)
{
    static const struct {
        const char *name;
        const char *arguments;
    } calls[] = {
        {"lease_renew_string", "0 me 1000 1000 0"},
        {"lease_renew_string", "1 lock me 1000 1000"},
        {"lease_renew_string", "1 lock me 1000 x 0"},
        {"lease_renew_string", "1 lock me 1000 1.5 0"},
        {"lease_renew_string", "1 lock me 1000 nan 0"},
        {"lease_renew_string", "1 lock me 1000 1000 -1"},
        {"lease_renew_hash", "0 me 1000 1000 0"},
        {"lease_renew_hash", "1 lock me 1000 1000"},
        {"lease_renew_hash", "1 lock me 1000 -inf 0"},
        {"lease_renew_hash", "1 lock me 1000 1000 nan"},
        {"lease_renew_zset", "0 me 2 1 1000"},
        {"lease_renew_zset", "1 lock me nan 1 1000"},
        {"lease_renew_zset", "1 lock me inf 1 1000"},
        {"lease_renew_zset", "1 lock me 2 nan 1000"},
        {"lease_renew_zset", "1 lock me 2 -inf 1000"},
        {"lease_renew_zset", "1 lock me 2 1"},
        {"lease_renew_zset", "1 lock me x 1 1000"},
        {"lease_heal", "0 me 1000"},
        {"lease_heal", "1 lock me"},
    };

    for (size_t i = 0; i < LENGTH(calls); i++) {
        load_script(script_find(calls[i].name));
        assert_error_begins(use(calls[i].name, calls[i].arguments), "HEADGATE no key, or ");
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

/* The largest lease there is neither wraps around nor deletes. */
Test(lease_scripts, take_leases_for_ages)
{
    static const char ages[] = "9007199254740992";

    for (size_t i = 0; i < 4; i++) {
        char arguments[96];
        load_script(script_find(uses[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        if (i < 3) {
            tell(ask("PEXPIRE lock 60000"));
        }
        snprintf(arguments, sizeof arguments,
                 i < 2    ? "1 lock me %s 60000 60000"
                 : i == 2 ? "1 lock me 2 1 %s"
                          : "1 lock me %s",
                 ages);
        assert_answer(answer_of(use(uses[i].name, arguments)), RENEWED, INT64_C(9007199254740992), uses[i].name);
        cr_assert_gt(integer_of(ask("PTTL lock")), INT64_C(9007199254740000), "%s", uses[i].name);
    }
}

/* A Redis that refuses what a script does is not a lock that is gone. */
Test(lease_scripts, say_when_redis_refuses)
{
    tell(ask("ACL SETUSER default -get -hexists -zscore -hdel -zrem"));
    for (size_t i = 0; i < LENGTH(uses); i++) {
        load_script(script_find(uses[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        redisReply *reply = use(uses[i].name, uses[i].arguments);
        cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "%s", uses[i].name);
        freeReplyObject(reply);
        cr_assert_eq(integer_of(ask("EXISTS lock")), 1, "%s", uses[i].name);
    }
}

/* But for a user who may not use the command by which a permit is raised even so. */
Test(lease_scripts, renew_where_memory_is_out)
{
    load_script(script_find("lease_renew_zset"));
    tell(ask("ZADD lock 1 me"));
    tell(ask("PEXPIREAT lock %lld", (long long)EPOCH));
    tell(ask("CONFIG SET maxmemory 1"));
    tell(ask("ACL SETUSER default -zrem"));
    struct seen before = look_for("lock", owner("me"));
    assert_error_begins(use("lease_renew_zset", "1 lock me 2 1 9000000000000"), "OOM ");
    struct seen after = look_for("lock", owner("me"));
    cr_assert(is_same(&before, &after));
    tell(ask("ACL SETUSER default +zrem"));
    tell(use("lease_renew_zset", "1 lock me 2 1 9000000000000"));
    cr_assert_eq(score_of("lock", "me"), 2);
    tell(ask("CONFIG SET maxmemory 0"));
    tell(ask("SET lock me PX 60000"));
    tell(ask("CONFIG SET maxmemory 1"));
    load_script(script_find("lease_renew_string"));
    assert_answer(answer_of(use("lease_renew_string", "1 lock me 90000 60000 60000")), RENEWED, 90000, "string");
}

/* In the text, as calls that no test leads to count, too. */
Test(lease_scripts, touch_no_key_that_is_not_declared)
{
    for (size_t i = 0; i < LENGTH(lease_scripts); i++) {
        const char *text = script_find(lease_scripts[i])->text;
        for (const char *at = strstr(text, "call('"); at != NULL; at = strstr(at + 1, "call('")) {
            const char *key = strchr(at, ',') + 2;
            cr_assert(strncmp(key, "key", 3) == 0 || strncmp(key, "KEYS[", 5) == 0 || strncmp(key, "name", 4) == 0,
                      "%s: %.40s", lease_scripts[i], at);
        }
    }
}
