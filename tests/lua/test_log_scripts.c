/*
 * The scripts of counters and events, on a real Redis, against models that keep everything.
 *
 * Most tests bring a clock of their own, so that days pass in a moment. The tests called …_in_real_time bring none.
 */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* 2023-11-14, 22:13:20. */
#define NOW INT64_C(1700000000)
#define HOUR 3600

TestSuite(counter, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(event, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* ---- asking Redis ---- */

/* -1 if there is nothing. */
static int64_t number_of(redisReply *reply)
{
    cr_assert(reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL, "%s", reply->str);
    int64_t number = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : -1;
    freeReplyObject(reply);
    return number;
}

static void assert_text(redisReply *reply, const char *expected)
{
    cr_assert_eq(reply->type, REDIS_REPLY_STRING);
    cr_assert_str_eq(reply->str, expected);
    freeReplyObject(reply);
}

/* Goes before a script whose last argument is the time. */
static const char own_clock[] = "local own_time, real = table.remove(ARGV), redis\n"
                                "local redis = setmetatable({call = function(name, ...)\n"
                                "    if name == 'TIME' then\n"
                                "        return {own_time, '0'}\n"
                                "    end\n"
                                "    return real.call(name, ...)\n"
                                "end}, {__index = real})\n";

/* The digest of the script with a clock of the test's own. */
static const char *with_own_clock(const char *name)
{
    static struct runner runner;

    runner = with_clock(own_clock, name);
    return runner.digest;
}

/* ---- counters ---- */

#define PRECISIONS 7
#define SAMPLES 120
#define ALL_PRECISIONS "1 5 60 300 3600 18000 86400"
#define HASHES                                                                                                         \
    "count:1:hits count:5:hits count:60:hits count:300:hits count:3600:hits count:18000:hits count:86400:hits"

static const int64_t precisions[PRECISIONS] = {1, 5, 60, 300, 3600, 18000, 86400};

static redisReply *count_raw(const char *digest, int64_t number, const char *ages, int64_t now)
{
    /* Blanks in a format part arguments, so what has blanks within goes in by %s. */
    return ask("EVALSHA %s 9 known: count:hits:by:5f3a " HASHES " %lld 3600 hits %s 120 %s %lld", digest,
               (long long)number, ALL_PRECISIONS, ages, (long long)now);
}

static int64_t count(const char *digest, int64_t number, const char *ages, int64_t now)
{
    return integer_of(count_raw(digest, number, ages, now));
}

static int64_t field_of(const char *hash, int64_t slice)
{
    return number_of(ask("HGET %s %lld", hash, (long long)slice));
}

Test(counter, fills_a_slice_of_every_precision)
{
    const char *digest = with_own_clock("counter_add");

    cr_assert_eq(count(digest, 1, "0 5", NOW), 1);
    cr_assert_eq(field_of("count:1:hits", 1700000000), 5);
    cr_assert_eq(field_of("count:5:hits", 1700000000), 5);
    cr_assert_eq(field_of("count:60:hits", 1699999980), 5);
    cr_assert_eq(field_of("count:300:hits", 1699999800), 5);
    cr_assert_eq(field_of("count:3600:hits", 1699999200), 5);
    cr_assert_eq(field_of("count:18000:hits", 1699992000), 5);
    cr_assert_eq(field_of("count:86400:hits", 1699920000), 5);
    cr_assert_eq(count(digest, 2, "0 1 1 20 2 300", NOW + 1), 1);
    cr_assert_eq(field_of("count:1:hits", 1700000001), 1);
    cr_assert_eq(field_of("count:1:hits", 1700000000), 25);
    cr_assert_eq(field_of("count:1:hits", 1699999999), 300);
    cr_assert_eq(field_of("count:5:hits", 1700000000), 26);
    cr_assert_eq(field_of("count:5:hits", 1699999995), 300);
    cr_assert_eq(field_of("count:86400:hits", 1699920000), 326);

    /* known: lists them, as who cleans up or reads them all expects. */
    cr_assert_eq(integer_of(ask("ZCARD known:")), PRECISIONS);
    for (int i = 0; i < PRECISIONS; i++) {
        cr_assert_eq(number_of(ask("ZSCORE known: %lld:hits", (long long)precisions[i])), 0);
    }
}

Test(counter, a_repeat_counts_once)
{
    const char *digest = with_own_clock("counter_add");

    cr_assert_eq(count(digest, 7, "0 5", NOW), 1);
    cr_assert_eq(count(digest, 7, "3 5", NOW + 3), 0);
    cr_assert_eq(count(digest, 6, "0 5", NOW), 0);
    cr_assert_eq(field_of("count:86400:hits", 1699920000), 5);
    cr_assert_eq(integer_of(ask("HLEN count:1:hits")), 1);
    cr_assert_eq(count(digest, 8, "0 1", NOW), 1);
    cr_assert_eq(field_of("count:86400:hits", 1699920000), 6);
    cr_assert_leq(integer_of(ask("TTL count:hits:by:5f3a")), 3600);
    cr_assert_geq(integer_of(ask("TTL count:hits:by:5f3a")), 3500);
}

struct sample {
    int64_t slice;
    int64_t n;
};

/* The newest slices, oldest first. */
struct model {
    struct sample samples[SAMPLES];
    size_t count;
};

static void model_add(struct model *model, int64_t slice, int64_t n)
{
    size_t at = model->count;

    while (at > 0 && model->samples[at - 1].slice > slice) {
        at--;
    }
    if (at > 0 && model->samples[at - 1].slice == slice) {
        model->samples[at - 1].n += n;
        return;
    }
    if (model->count == SAMPLES && at == 0) {
        return;
    }
    if (model->count == SAMPLES) {
        memmove(model->samples, model->samples + 1, (at - 1) * sizeof model->samples[0]);
        at--;
    } else {
        memmove(model->samples + at + 1, model->samples + at, (model->count - at) * sizeof model->samples[0]);
        model->count++;
    }
    model->samples[at] = (struct sample){slice, n};
}

static void assert_reads(const char *hash, const struct model *model, int64_t now)
{
    struct runner runner = with_clock(own_clock, "counter_read");
    redisReply *reply = ask("EVALSHA_RO %s 1 %s 1000 %lld", runner.digest, hash, (long long)now);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", reply->str);
    cr_assert_eq(reply->elements, model->count * 2, "%s", hash);
    for (size_t i = 0; i < model->count; i++) {
        cr_assert_eq(reply->element[2 * i]->integer, model->samples[i].slice, "%s", hash);
        cr_assert_eq(reply->element[2 * i + 1]->integer, model->samples[i].n, "%s", hash);
    }
    freeReplyObject(reply);
}

/* Time goes on by steps of all sizes, and some things are told late: the newest samples are there, each with its sum.
 */
Test(counter, keeps_the_newest_samples_of_every_precision)
{
    static struct model models[PRECISIONS];
    const char *digest = with_own_clock("counter_add");
    int64_t now = NOW;
    char hash[64], ages[128];

    for (int64_t call = 1; call <= 1500; call++) {
        now += chance(3) == 0 ? chance(200000) : chance(40);
        size_t length = 0, said = (size_t)chance(4);
        ages[0] = '\0';
        for (size_t i = 0; i < said; i++) {
            int64_t age = chance(2) == 0 ? chance(5) : chance(4000), n = 1 + chance(9);
            length += (size_t)snprintf(ages + length, sizeof ages - length, "%s%" PRId64 " %" PRId64, i > 0 ? " " : "",
                                       age, n);
            for (int p = 0; p < PRECISIONS; p++) {
                int64_t slice = (now - age) / precisions[p] * precisions[p];
                if (slice > now / precisions[p] * precisions[p] - SAMPLES * precisions[p]) {
                    model_add(&models[p], slice, n);
                }
            }
        }
        cr_assert_eq(count(digest, call, ages, now), 1);
        if (call % 50 == 0) {
            for (int p = 0; p < PRECISIONS; p++) {
                snprintf(hash, sizeof hash, "count:%" PRId64 ":hits", precisions[p]);
                assert_reads(hash, &models[p], now);
            }
        }
    }
    cr_assert_eq(models[0].count, SAMPLES);
    cr_assert_eq(models[PRECISIONS - 1].count, SAMPLES);
}

Test(counter, a_clock_that_was_set_back_does_not_hide_what_comes)
{
    const char *digest = with_own_clock("counter_add");
    int64_t number = 1;

    for (int64_t i = 0; i < SAMPLES; i++) {
        cr_assert_eq(count(digest, number++, "0 1", NOW + i), 1);
    }
    cr_assert_eq(integer_of(ask("HLEN count:1:hits")), SAMPLES);
    cr_assert_eq(count(digest, number++, "0 9", NOW - HOUR), 1);
    cr_assert_eq(field_of("count:1:hits", NOW - HOUR), 9);
    cr_assert_leq(integer_of(ask("HLEN count:1:hits")), SAMPLES);
    assert_reads("count:3600:hits", &(struct model){{{(NOW - HOUR) / HOUR * HOUR, 9}}, 1}, NOW - HOUR);
}

Test(counter, what_is_not_added_to_any_more_expires_and_leaves_the_list)
{
    const char *digest = with_own_clock("counter_add");
    char hash[64];

    cr_assert_eq(count(digest, 1, "0 1", NOW), 1);
    for (int i = 0; i < PRECISIONS; i++) {
        snprintf(hash, sizeof hash, "count:%" PRId64 ":hits", precisions[i]);
        int64_t life = integer_of(ask("TTL %s", hash));
        cr_assert_leq(life, precisions[i] * (SAMPLES + 1), "%s", hash);
        cr_assert_geq(life, precisions[i] * (SAMPLES + 1) - 90, "%s", hash);
    }
    /* As if it had expired. A call that adds nothing cleans up, and keeps no hash alive. */
    tell(ask("DEL count:1:hits"));
    tell(ask("EXPIRE count:5:hits 100"));
    cr_assert_eq(count(digest, 2, "", NOW), 1);
    cr_assert_eq(number_of(ask("ZSCORE known: 1:hits")), -1);
    cr_assert_eq(number_of(ask("ZSCORE known: 5:hits")), 0);
    cr_assert_leq(integer_of(ask("TTL count:5:hits")), 100);
    cr_assert_eq(integer_of(ask("ZCARD known:")), PRECISIONS - 1);
    /* What is older than all samples is not added at all. */
    cr_assert_eq(count(digest, 3, "120 1", NOW), 1);
    cr_assert_eq(integer_of(ask("EXISTS count:1:hits")), 0);
    cr_assert_eq(count(digest, 4, "119 1", NOW), 1);
    cr_assert_eq(field_of("count:1:hits", NOW - 119), 1);
}

/* With a number that lets it through whenever it can be. */
static void assert_count_refused(const char *digest, const char *error)
{
    int64_t keys = integer_of(ask("DBSIZE"));

    assert_error_begins(count_raw(digest, 1, "0 1", NOW), error);
    cr_assert_eq(integer_of(ask("DBSIZE")), keys, "%s, and something was written", error);
}

Test(counter, what_is_in_the_way_stops_it_before_it_begins)
{
    static const char *const keys[] = {"known:", "count:hits:by:5f3a", "count:1:hits", "count:86400:hits"};
    const char *digest = with_own_clock("counter_add");
    char error[128];

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        tell(ask("RPUSH %s somebody's", keys[i]));
        snprintf(error, sizeof error, "HEADGATE key %s holds a list, nothing was written", keys[i]);
        assert_count_refused(digest, error);
        tell(ask("DEL %s", keys[i]));
    }
    tell(ask("CONFIG SET maxmemory 1"));
    assert_count_refused(digest, "OOM");
    tell(ask("CONFIG SET maxmemory 0"));
    tell(ask("REPLICAOF 127.0.0.1 1"));
    assert_count_refused(digest, "READONLY");
    tell(ask("REPLICAOF NO ONE"));
    cr_assert_eq(count(digest, 1, "0 1", NOW), 1, "the same number is let through when it can be");
    /* Fields of others are left alone. */
    tell(ask("HSET count:1:hits 1700000000 theirs mine 1"));
    cr_assert_eq(count(digest, 2, "0 1", NOW), 1);
    assert_text(ask("HGET count:1:hits 1700000000"), "theirs");
    cr_assert_eq(field_of("count:5:hits", NOW), 2);
}

/* Of all rights that one of these needs, each is taken away in turn. */
static void assert_needs(const char *const *rights, size_t count, const char *digest,
                         void (*assert_refused)(const char *digest, const char *error))
{
    for (size_t i = 0; i < count; i++) {
        tell(ask("ACL SETUSER sidecar reset on nopass ~* +@all -%s", rights[i]));
        tell(ask("AUTH sidecar x"));
        assert_refused(digest, "NOPERM");
    }
    tell(ask("AUTH default x"));
}

Test(counter, what_its_user_may_not_do_stops_it_before_it_begins)
{
    static const char *const rights[] = {"set",  "time",   "hincrby", "hlen", "hkeys",
                                         "hdel", "exists", "expire",  "zadd", "zrem"};
    const char *digest = with_own_clock("counter_add");

    assert_needs(rights, LENGTH(rights), digest, assert_count_refused);
    cr_assert_eq(count(digest, 1, "0 1", NOW), 1, "the same number is let through when it can be");
}

Test(counter, unsound_arguments_are_refused)
{
    static const char *const calls[][6] = {
        {"0", "1", "hits", "1", "120", "0 1"},  {"1", "0", "hits", "1", "120", "0 1"},
        {"1", "1", "hits", "0", "120", "0 1"},  {"1", "1", "hits", "1 5", "120", "0 1"},
        {"1", "1", "hits", "", "120", "0 1"},   {"1", "1", "hits", "1", "0", "0 1"},
        {"1", "1", "hits", "1", "120", "0"},    {"1", "1", "hits", "1", "120", "0 0"},
        {"1", "1", "hits", "1", "120", "-1 1"}, {"1", "1", "hits", "1", "120", "0 1.5"},
        {"x", "1", "hits", "1", "120", "0 1"},  {"1", "1", "hits", "1", "120", "0 99999999999999999"},
    };

    load_script(script_find("counter_add"));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_error_begins(ask("EVALSHA %s 3 known: number hash %s %s %s %s %s %s", script_find("counter_add")->sha1,
                                calls[i][0], calls[i][1], calls[i][2], calls[i][3], calls[i][4], calls[i][5]),
                            "HEADGATE the arguments of a counter are not sound");
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

Test(counter, reads_no_more_than_it_is_asked_for)
{
    const char *sha1 = script_find("counter_read")->sha1;

    load_script(script_find("counter_read"));
    tell(ask("HSET hash 10 many 9 2 8 -3 -5 3 text 4 99999999999 5"));
    redisReply *reply = ask("EVALSHA_RO %s 1 hash 3", sha1);
    cr_assert_eq(reply->elements, 6);
    cr_assert_eq(reply->element[1]->integer, -1);
    cr_assert_eq(reply->element[2]->integer, 9);
    cr_assert_eq(reply->element[3]->integer, 2);
    cr_assert_eq(reply->element[4]->integer, 10);
    cr_assert_eq(reply->element[5]->integer, -1, "no number is no count");
    freeReplyObject(reply);
    reply = ask("EVALSHA_RO %s 1 nothing 2", sha1);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, 0);
    freeReplyObject(reply);
    tell(ask("SET text text"));
    assert_error_begins(ask("EVALSHA_RO %s 1 text 2", sha1), "WRONGTYPE");
    assert_error_begins(ask("EVALSHA_RO %s 1 hash 0", sha1), "HEADGATE no key");
    assert_error_begins(ask("EVALSHA_RO %s 1 hash 1001", sha1), "HEADGATE no key");
    assert_error_begins(ask("EVALSHA_RO %s 0", sha1), "HEADGATE no key");
}

Test(counter, counts_by_the_clock_of_redis_in_real_time)
{
    load_script(script_find("counter_add"));
    redisReply *clock = ask("TIME");
    int64_t before = strtoll(clock->element[0]->str, NULL, 10);
    freeReplyObject(clock);
    cr_assert_eq(integer_of(ask("EVALSHA %s 3 known: number count:86400:hits 1 60 hits 86400 120 %s",
                                script_find("counter_add")->sha1, "0 3")),
                 1);
    redisReply *all = ask("HGETALL count:86400:hits");
    cr_assert_eq(all->elements, 2);
    int64_t slice = strtoll(all->element[0]->str, NULL, 10);
    cr_assert_eq(slice % 86400, 0);
    cr_assert(slice == before / 86400 * 86400 || slice == (before / 86400 + 1) * 86400);
    freeReplyObject(all);
}

/* ---- events ---- */

#define EVENT_KEYS                                                                                                     \
    "seen recent:slow:warning common:slow:warning common:slow:warning:start common:slow:warning:last "                 \
    "common:slow:warning:pstart"

static int64_t old_event(const char *digest, int64_t number, const char *message, int64_t times, int64_t age,
                         int64_t now)
{
    return integer_of(ask("EVALSHA %s 6 " EVENT_KEYS " %lld 3600 100 50 7200 %s %lld %lld %lld", digest,
                          (long long)number, message, (long long)times, (long long)age, (long long)now));
}

static int64_t event(const char *digest, int64_t number, const char *message, int64_t times, int64_t now)
{
    return old_event(digest, number, message, times, 0, now);
}

static int64_t frequency_of(const char *key, const char *message)
{
    return number_of(ask("ZSCORE %s %s", key, message));
}

Test(event, is_listed_and_counted)
{
    const char *digest = with_own_clock("event_log");

    cr_assert_eq(event(digest, 1, "GET took 20 ms", 1, NOW), 1);
    cr_assert_eq(event(digest, 2, "two\r\nlines", 1, NOW + 1), 1);
    cr_assert_eq(event(digest, 3, "GET took 20 ms", 3, NOW + 2), 1);
    cr_assert_eq(integer_of(ask("LLEN recent:slow:warning")), 3);
    assert_text(ask("LINDEX recent:slow:warning 0"), "Tue Nov 14 22:13:22 2023 GET took 20 ms (3 times)");
    assert_text(ask("LINDEX recent:slow:warning 1"), "Tue Nov 14 22:13:21 2023 two\r\nlines");
    assert_text(ask("LINDEX recent:slow:warning 2"), "Tue Nov 14 22:13:20 2023 GET took 20 ms");
    cr_assert_eq(frequency_of("common:slow:warning", "GET took 20 ms"), 4);
    cr_assert_eq(frequency_of("common:slow:warning", "two\r\nlines"), 1);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-14T22:00:00");
    cr_assert_eq(integer_of(ask("EXISTS common:slow:warning:last common:slow:warning:pstart")), 0);
}

Test(event, a_repeat_is_logged_once)
{
    const char *digest = with_own_clock("event_log");

    cr_assert_eq(event(digest, 5, "a", 1, NOW), 1);
    cr_assert_eq(event(digest, 5, "a", 1, NOW + HOUR), 0);
    cr_assert_eq(event(digest, 4, "a", 1, NOW), 0);
    cr_assert_eq(integer_of(ask("LLEN recent:slow:warning")), 1);
    cr_assert_eq(frequency_of("common:slow:warning", "a"), 1);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-14T22:00:00");
}

Test(event, the_hour_changes)
{
    const char *digest = with_own_clock("event_log");
    const int64_t hour = NOW - NOW % HOUR;

    cr_assert_eq(event(digest, 1, "first", 2, hour), 1);
    cr_assert_eq(event(digest, 2, "first", 1, hour + HOUR - 1), 1);
    cr_assert_eq(frequency_of("common:slow:warning", "first"), 3);
    cr_assert_eq(event(digest, 3, "second", 1, hour + HOUR), 1);
    cr_assert_eq(frequency_of("common:slow:warning", "first"), -1);
    cr_assert_eq(frequency_of("common:slow:warning", "second"), 1);
    cr_assert_eq(frequency_of("common:slow:warning:last", "first"), 3);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-14T23:00:00");
    assert_text(ask("GET common:slow:warning:pstart"), "2023-11-14T22:00:00");

    /* The next day, after hours in which nothing happened. */
    cr_assert_eq(event(digest, 4, "third", 1, hour + 5 * HOUR), 1);
    cr_assert_eq(integer_of(ask("ZCARD common:slow:warning:last")), 1);
    cr_assert_eq(frequency_of("common:slow:warning:last", "second"), 1);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-15T03:00:00");
    assert_text(ask("GET common:slow:warning:pstart"), "2023-11-14T23:00:00");

    /* A clock that is set back: what it had been was before; and that hour goes on when it comes. */
    cr_assert_eq(event(digest, 5, "fourth", 1, hour + 4 * HOUR), 1);
    cr_assert_eq(frequency_of("common:slow:warning", "fourth"), 1);
    cr_assert_eq(frequency_of("common:slow:warning", "third"), -1);
    cr_assert_eq(frequency_of("common:slow:warning:last", "third"), 1);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-15T02:00:00");
    assert_text(ask("GET common:slow:warning:pstart"), "2023-11-15T03:00:00");
    cr_assert_eq(event(digest, 6, "third", 1, hour + 5 * HOUR), 1);
    cr_assert_eq(event(digest, 6, "third", 1, hour + 5 * HOUR), 0, "a repeat counts once");
    cr_assert_eq(frequency_of("common:slow:warning", "third"), 2);
    cr_assert_eq(frequency_of("common:slow:warning:last", "fourth"), 1);
    assert_text(ask("GET common:slow:warning:pstart"), "2023-11-15T02:00:00");

    /* Somebody has deleted what was common: the hour before had nothing, then. */
    tell(ask("DEL common:slow:warning"));
    cr_assert_eq(event(digest, 7, "fifth", 1, hour + 6 * HOUR), 1);
    cr_assert_eq(integer_of(ask("EXISTS common:slow:warning:last")), 0);
    cr_assert_eq(frequency_of("common:slow:warning", "fifth"), 1);
}

/* Against the C library, over thousands of years' ends, leap days and ordinary ones, from 1970 to 2370. */
Test(event, times_are_written_as_the_calendar_has_them)
{
    const char *digest = with_own_clock("event_log");
    char expected[64];

    for (int64_t call = 1; call <= 3000; call++) {
        time_t now = (time_t)chance(INT64_C(12622780800));
        if (call % 3 == 0) {
            /* The first and last seconds of March, around leap days, and of years. */
            struct tm edge = {.tm_year = 70 + (int)chance(400), .tm_mon = call % 2 == 0 ? 2 : 0, .tm_mday = 1};
            now = timegm(&edge) - chance(2);
            now = now < 0 ? 0 : now;
        }
        struct tm broken_down;
        gmtime_r(&now, &broken_down);
        tell(ask("DEL common:slow:warning:start"));
        cr_assert_eq(event(digest, call, "x", 1, now), 1);
        strftime(expected, sizeof expected, "%a %b %e %H:%M:%S %Y x", &broken_down);
        assert_text(ask("LINDEX recent:slow:warning 0"), expected);
        strftime(expected, sizeof expected, "%Y-%m-%dT%H:00:00", &broken_down);
        assert_text(ask("GET common:slow:warning:start"), expected);
    }
}

/* Redis was away, or Headgate gathered: the line has the time at which it happened. */
Test(event, is_listed_under_its_time_and_counted_in_the_hour_of_the_call)
{
    const char *digest = with_own_clock("event_log");

    cr_assert_eq(old_event(digest, 1, "lost", 4, 800, NOW), 1);
    assert_text(ask("LINDEX recent:slow:warning 0"), "Tue Nov 14 22:00:00 2023 lost (4 times)");
    cr_assert_eq(old_event(digest, 2, "lost", 1, 801, NOW), 1);
    assert_text(ask("LINDEX recent:slow:warning 0"), "Tue Nov 14 21:59:59 2023 lost");
    cr_assert_eq(frequency_of("common:slow:warning", "lost"), 5);
    assert_text(ask("GET common:slow:warning:start"), "2023-11-14T22:00:00");
    cr_assert_eq(old_event(digest, 3, "long ago", 1, NOW + 1, NOW), 1);
    assert_text(ask("LINDEX recent:slow:warning 0"), "Thu Jan  1 00:00:00 1970 long ago");
}

Test(event, list_and_sorted_sets_are_cut)
{
    const char *digest = with_own_clock("event_log");
    char message[32];

    for (int i = 1; i <= 300; i++) {
        snprintf(message, sizeof message, "message %d", i);
        cr_assert_eq(event(digest, i, message, i, NOW), 1);
    }
    cr_assert_eq(integer_of(ask("LLEN recent:slow:warning")), 100);
    assert_text(ask("LINDEX recent:slow:warning 99"), "Tue Nov 14 22:13:20 2023 message 201 (201 times)");
    cr_assert_eq(integer_of(ask("ZCARD common:slow:warning")), 50);
    cr_assert_eq(frequency_of("common:slow:warning", "message 251"), 251);
    cr_assert_eq(frequency_of("common:slow:warning", "message 250"), -1);
}

Test(event, takes_several_in_one_call)
{
    const char *digest = with_own_clock("event_log");

    cr_assert_eq(
        integer_of(ask("EVALSHA %s 6 " EVENT_KEYS " 1 3600 2 50 0 a 1 0 b 2 7 c 1 1 %lld", digest, (long long)NOW)), 1);
    cr_assert_eq(integer_of(ask("LLEN recent:slow:warning")), 2);
    assert_text(ask("LINDEX recent:slow:warning 0"), "Tue Nov 14 22:13:19 2023 c");
    assert_text(ask("LINDEX recent:slow:warning 1"), "Tue Nov 14 22:13:13 2023 b (2 times)");
    cr_assert_eq(integer_of(ask("ZCARD common:slow:warning")), 3);
    cr_assert_eq(integer_of(ask("TTL common:slow:warning")), -1, "kept for ever");
    cr_assert_eq(integer_of(ask("TTL recent:slow:warning")), -1);
}

Test(event, everything_expires)
{
    static const char *const keys[] = {"recent:slow:warning", "common:slow:warning", "common:slow:warning:start",
                                       "common:slow:warning:last", "common:slow:warning:pstart"};
    const char *digest = with_own_clock("event_log");

    cr_assert_eq(event(digest, 1, "a", 1, NOW), 1);
    cr_assert_eq(event(digest, 2, "a", 1, NOW + HOUR), 1);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int64_t life = integer_of(ask("TTL %s", keys[i]));
        cr_assert(life <= 7200 && life >= 7100, "%s", keys[i]);
    }
    cr_assert_leq(integer_of(ask("TTL seen")), 3600);
    cr_assert_geq(integer_of(ask("TTL seen")), 3500);
}

static void assert_event_refused(const char *digest, const char *error)
{
    int64_t keys = integer_of(ask("DBSIZE"));

    assert_error_begins(
        ask("EVALSHA %s 6 " EVENT_KEYS " 9 3600 100 50 7200 a 1 0 %lld", digest, (long long)NOW + 2 * HOUR), error);
    cr_assert_eq(integer_of(ask("DBSIZE")), keys, "%s, and something was written", error);
}

Test(event, what_is_in_the_way_stops_it_before_it_begins)
{
    static const char *const keys[] = {"seen",
                                       "recent:slow:warning",
                                       "common:slow:warning",
                                       "common:slow:warning:start",
                                       "common:slow:warning:last",
                                       "common:slow:warning:pstart"};
    const char *digest = with_own_clock("event_log");
    char error[128];

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        tell(ask("HSET %s somebody's 1", keys[i]));
        snprintf(error, sizeof error, "HEADGATE key %s holds a hash, nothing was written", keys[i]);
        assert_event_refused(digest, error);
        tell(ask("DEL %s", keys[i]));
    }
    cr_assert_eq(event(digest, 1, "a", 1, NOW), 1);
    tell(ask("CONFIG SET maxmemory 1"));
    assert_event_refused(digest, "OOM");
    tell(ask("CONFIG SET maxmemory 0"));
    tell(ask("REPLICAOF 127.0.0.1 1"));
    assert_event_refused(digest, "READONLY");
    tell(ask("REPLICAOF NO ONE"));
    assert_text(ask("GET common:slow:warning:start"), "2023-11-14T22:00:00");
    cr_assert_eq(event(digest, 9, "a", 1, NOW + 2 * HOUR), 1, "the same number is let through when it can be");
}

Test(event, what_its_user_may_not_do_stops_it_before_it_begins)
{
    static const char *const rights[] = {"set",   "time",    "exists", "rename",          "del",
                                         "lpush", "zincrby", "ltrim",  "zremrangebyrank", "expire"};
    const char *digest = with_own_clock("event_log");

    assert_needs(rights, LENGTH(rights), digest, assert_event_refused);
    cr_assert_eq(event(digest, 9, "a", 1, NOW), 1, "the same number is let through when it can be");
}

Test(event, unsound_arguments_are_refused)
{
    static const char *const calls[] = {"0 1 100 50 0 a 1 0",   "1 0 100 50 0 a 1 0",   "1 1 0 50 0 a 1 0",
                                        "1 1 100 0 0 a 1 0",    "1 1 100 50 -1 a 1 0",  "1 1 100 50 0 a 0 0",
                                        "1 1 100 50 0 a 1 -1",  "1 1 100 50 0 a 1",     "1 1 100 50 0 a",
                                        "1 1 100 50 0",         "1 1 100 50 0 a 1 0 b", "1 1 100 50 0 a 1 0 b 1",
                                        "1 1 100 50 0 a 1.5 0", "1 1 100 50 0 a 1 0.5", "1 1 100 50 0 a 1 0 b x 0"};
    char command[512];

    load_script(script_find("event_log"));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        snprintf(command, sizeof command, "EVALSHA %s 6 " EVENT_KEYS " %s", script_find("event_log")->sha1, calls[i]);
        assert_error_begins(ask(command), "HEADGATE the arguments of an event are not sound");
    }
    snprintf(command, sizeof command, "EVALSHA %s 5 a b c d e 1 1 100 50 0 a 1 0", script_find("event_log")->sha1);
    assert_error_begins(ask(command), "HEADGATE the arguments of an event are not sound");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

Test(event, lists_and_sorted_sets_are_read)
{
    struct runner recent = with_redis_clock("event_recent"), common = with_redis_clock("event_common");

    tell(ask("RPUSH recent:slow:warning c b a"));
    tell(ask("ZADD common:slow:warning 1 once inf often 2 twice"));
    redisReply *reply = checked(ask("EVALSHA_RO %s 1 recent:slow:warning 2", recent.digest), REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, 2);
    cr_assert_str_eq(reply->element[0]->str, "c");
    freeReplyObject(reply);
    reply = checked(ask("EVALSHA_RO %s 1 common:slow:warning 2", common.digest), REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, 4);
    cr_assert_str_eq(reply->element[0]->str, "often");
    cr_assert_str_eq(reply->element[1]->str, "unknown");
    cr_assert_str_eq(reply->element[2]->str, "twice");
    freeReplyObject(reply);
    assert_error_begins(ask("EVALSHA %s 1 common:slow:warning 2", recent.digest), "WRONGTYPE");
    assert_error_begins(ask("EVALSHA %s 1 recent:slow:warning 2", common.digest), "WRONGTYPE");
    assert_error_begins(ask("EVALSHA %s 1 recent:slow:warning 0", recent.digest), "HEADGATE no key");
    assert_error_begins(ask("EVALSHA %s 0 1", common.digest), "HEADGATE no key");
}
