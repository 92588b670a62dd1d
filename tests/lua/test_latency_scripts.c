/*
 * The scripts that put latency on record, on a real Redis: what they write is what was recorded, a reader of the
 * pattern finds it, a repeated flush counts once, and whatever is in the way, it is all or nothing.
 */
#include "../unit/latency/latency_recorder.h"
#include "latency/latency_private.h"
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE 28333333

TestSuite(latency_flush, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(latency_report, .init = start_redis, .fini = stop_redis, .timeout = 100);

static const struct latency_layout layout = {
    .prefix = "statistics", .process = "5f3a-0", .retention_s = 86400, .remember_s = 3600};
static const struct latency_layout other_process = {
    .prefix = "statistics", .process = "77c1-0", .retention_s = 86400, .remember_s = 3600};

/* ---- asking Redis ---- */

/* NaN if there is none. */
static double number_of(redisReply *reply)
{
    cr_assert(reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL, "%s", reply->str);
    double number = reply->type == REDIS_REPLY_STRING ? strtod(reply->str, NULL) : NAN;
    freeReplyObject(reply);
    return number;
}

static double score_of(const char *key, const char *member)
{
    return number_of(ask("ZSCORE %s %s", key, member));
}

static int compare(const void *left, const void *right)
{
    return strcmp((*(redisReply *const *)left)->str, (*(redisReply *const *)right)->str);
}

/* A hash of all keys and values. */
static uint64_t all_of_redis(void)
{
    redisReply *keys = ask("KEYS *");
    uint64_t hash = 0;

    cr_assert_eq(keys->type, REDIS_REPLY_ARRAY);
    if (keys->elements > 0) {
        qsort(keys->element, keys->elements, sizeof keys->element[0], compare);
    }
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *dump = ask("DUMP %s", keys->element[i]->str);
        cr_assert_eq(dump->type, REDIS_REPLY_STRING);
        for (size_t at = 0; at < dump->len; at++) {
            hash = (hash ^ (unsigned char)dump->str[at]) * UINT64_C(0x100000001b3);
        }
        freeReplyObject(dump);
        hash += keys->elements;
    }
    freeReplyObject(keys);
    return hash;
}

static redisReply *run(const char *command, const char *script, const struct latency_call *call)
{
    const char *arguments[3 + POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t lengths[3 + POLICY_SCRIPT_ARGUMENTS_MAX];
    char key_count[8];

    load_script(script_find(script));
    snprintf(key_count, sizeof key_count, "%zu", call->key_count);
    arguments[0] = command;
    arguments[1] = script_find(script)->sha1;
    arguments[2] = key_count;
    for (size_t i = 0; i < 3; i++) {
        lengths[i] = strlen(arguments[i]);
    }
    for (size_t i = 0; i < call->argument_count; i++) {
        arguments[3 + i] = call->arguments[i].data;
        lengths[3 + i] = call->arguments[i].length;
    }
    redisReply *reply = redisCommandArgv(redis, (int)(3 + call->argument_count), arguments, lengths);
    cr_assert_not_null(reply, "%s", redis->errstr);
    return reply;
}

/* ---- flushing ---- */

static redisReply *flush_raw(const struct latency_layout *by, const char *interface, const struct flush *taken)
{
    struct latency_call call = {0};

    cr_assert(latency_call_flush(&call, by, interface, taken->number, &taken->frozen));
    redisReply *reply = run("EVALSHA", "latency_flush", &call);
    latency_call_clear(&call);
    return reply;
}

static int64_t flush(const struct latency_layout *by, const char *interface, const struct flush *taken)
{
    return integer_of(flush_raw(by, interface, taken));
}

/* Flushes all that waits, as a sidecar does whose Redis answers. */
static void flush_all(struct recorder *recorder, const struct latency_layout *by, const char *interface)
{
    const struct flush *taken;

    while ((taken = recorder_take(recorder)) != NULL) {
        cr_assert_eq(flush(by, interface, taken), 1);
        recorder_forget(recorder, false);
    }
}

static void record(struct recorder *recorder, int64_t minute, uint64_t us, uint64_t count, uint64_t errors)
{
    const struct latency_sample sample = {
        .us = us, .count = count, .errors = errors, .bytes_in = 30 * count, .bytes_out = 500 * count};

    recorder_record(recorder, minute, &sample);
}

/* Two minutes, as every refused flush here carries them. */
static struct recorder *recorder_of_two_minutes(void)
{
    struct recorder *recorder = recorder_new(60);

    record(recorder, MINUTE, 1500, 2, 1);
    record(recorder, MINUTE, 250, 1, 0);
    record(recorder, MINUTE + 1, 99, 1, 0);
    return recorder;
}

#define KEY(suffix) "statistics_get_28333333_for_" suffix
#define NEXT_KEY(suffix) "statistics_get_28333334_for_" suffix

Test(latency_flush, writes_the_sorted_sets_of_each_minute)
{
    struct recorder *recorder = recorder_of_two_minutes();

    flush_all(recorder, &layout, "get");
    cr_assert_eq(integer_of(ask("DBSIZE")), 11);
    cr_assert_eq(score_of(KEY("max"), "max"), 1.5);
    cr_assert_eq(score_of(KEY("min"), "min"), 0.25);
    cr_assert_eq(score_of(KEY("sum_count"), "sum"), 3.25);
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 3);
    cr_assert_eq(score_of(KEY("errors_bytes"), "errors"), 1);
    cr_assert_eq(score_of(KEY("errors_bytes"), "bytes_in"), 90);
    cr_assert_eq(score_of(KEY("errors_bytes"), "bytes_out"), 1500);
    cr_assert_eq(score_of(KEY("hist"), "168"), 2);
    cr_assert_eq(score_of(KEY("hist"), "127"), 1);
    cr_assert_eq(integer_of(ask("ZCARD %s", KEY("hist"))), 2);
    cr_assert_eq(score_of(NEXT_KEY("max"), "max"), 0.099);
    cr_assert_eq(score_of(NEXT_KEY("sum_count"), "sum"), 0.099);
    cr_assert_eq(score_of(NEXT_KEY("sum_count"), "count"), 1);
    cr_assert_eq(number_of(ask("GET statistics_get_flushed_by_5f3a-0")), 1);
    recorder_free(recorder);
}

static void assert_life(const char *key, int64_t most_s)
{
    int64_t life_s = integer_of(ask("TTL %s", key));

    cr_assert_leq(life_s, most_s, "%s", key);
    cr_assert_geq(life_s, most_s - 90, "%s", key);
}

Test(latency_flush, every_key_expires)
{
    static const char *const keys[] = {KEY("max"), KEY("min"), KEY("sum_count"), KEY("hist"), KEY("errors_bytes")};
    struct recorder *recorder = recorder_of_two_minutes();

    flush_all(recorder, &layout, "get");
    tell(ask("PERSIST %s", KEY("hist")));
    record(recorder, MINUTE, 1500, 1, 0);
    flush_all(recorder, &layout, "get");
    for (size_t i = 0; i < 5; i++) {
        assert_life(keys[i], 86400);
    }
    assert_life(NEXT_KEY("hist"), 86400);
    assert_life("statistics_get_flushed_by_5f3a-0", 3600);
    recorder_free(recorder);
}

Test(latency_flush, later_flushes_add_to_the_minute)
{
    struct recorder *recorder = recorder_new(60);
    static const uint64_t values[] = {500, 700, 20, 600, 9000, 8999};
    double sum = 0, max = 0, min = INFINITY;

    for (size_t i = 0; i < 6; i++) {
        record(recorder, MINUTE, values[i], 1, 1);
        flush_all(recorder, i % 2 == 0 ? &layout : &other_process, "get");
        double ms = (double)values[i] / 1000;
        sum += ms;
        max = fmax(max, ms);
        min = fmin(min, ms);
        cr_assert_eq(score_of(KEY("max"), "max"), max);
        cr_assert_eq(score_of(KEY("min"), "min"), min);
        cr_assert_float_eq(score_of(KEY("sum_count"), "sum"), sum, 1e-9);
        cr_assert_eq(score_of(KEY("sum_count"), "count"), (double)i + 1);
        cr_assert_eq(score_of(KEY("errors_bytes"), "errors"), (double)i + 1);
    }
    recorder_free(recorder);
}

Test(latency_flush, a_repeat_counts_once)
{
    struct recorder *recorder = recorder_of_two_minutes();
    const struct flush *taken = recorder_take(recorder);

    cr_assert_eq(flush(&layout, "get", taken), 1);
    uint64_t once = all_of_redis();
    record(recorder, MINUTE, 7, 1, 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(recorder_take(recorder), taken);
        cr_assert_eq(flush(&layout, "get", taken), 0);
        cr_assert_eq(all_of_redis(), once);
    }
    /* The same number of another interface, or of another process, is another flush. */
    cr_assert_eq(flush(&layout, "set", taken), 1);
    cr_assert_eq(flush(&other_process, "get", taken), 1);
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 6);

    recorder_forget(recorder, false);
    flush_all(recorder, &layout, "get");
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 7);
    cr_assert_eq(score_of(KEY("min"), "min"), 0.007);
    recorder_free(recorder);
}

/* Evicted, say: what comes later alone would look whole. */
Test(latency_flush, what_was_lost_of_a_minute_stays_so)
{
    static const char *const keys[] = {KEY("max"), KEY("min"), KEY("sum_count"), KEY("hist"), KEY("errors_bytes")};
    struct recorder *recorder = recorder_of_two_minutes();

    for (int64_t i = 0; i < 4; i++) {
        flush_all(recorder, &layout, "get");
        tell(ask("DEL %s", keys[i]));
        record(recorder, MINUTE, 1500, 1, 0);
        flush_all(recorder, &layout, "get");
        cr_assert_eq(integer_of(ask("EXISTS %s", keys[i])), 0);
    }
    cr_assert_eq(score_of(keys[4], "bytes_in"), 210);
    recorder_free(recorder);
}

/* An older one that comes late, as from a connection thought dead. */
Test(latency_flush, a_number_below_the_last_is_not_counted)
{
    struct recorder *recorder = recorder_of_two_minutes();
    struct flush copy = *recorder_take(recorder);

    copy.number = 10;
    cr_assert_eq(flush(&layout, "get", &copy), 1);
    copy.number = 9;
    cr_assert_eq(flush(&layout, "get", &copy), 0);
    copy.number = 11;
    cr_assert_eq(flush(&layout, "get", &copy), 1);
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 6);
    recorder_free(recorder);
}

Test(latency_flush, takes_one_minute_twice_in_one_call)
{
    struct recorder *recorder = recorder_of_two_minutes();
    struct flush copy = *recorder_take(recorder);

    copy.frozen.minutes[1] = copy.frozen.minutes[0];
    cr_assert_eq(flush(&layout, "get", &copy), 1);
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 6);
    cr_assert_eq(score_of(KEY("hist"), "168"), 4);
    cr_assert_eq(score_of(KEY("max"), "max"), 1.5);
    recorder_free(recorder);
}

/* ---- the pattern ---- */

/* A reader that knows nothing of Headgate: it merges the minutes of an interface by ZUNIONSTORE. */
static void read_pattern(const char *interface, int first, int count, double figures[4])
{
    static const char *const names[] = {"max", "min", "sum_count"};
    static const char *const aggregates[] = {"MAX", "MIN", "SUM"};

    for (int set = 0; set < 3; set++) {
        char command[4096];
        size_t length = (size_t)snprintf(command, sizeof command, "ZUNIONSTORE merged_%s %d", names[set], count);
        for (int i = 0; i < count; i++) {
            length += (size_t)snprintf(command + length, sizeof command - length, " statistics_%s_%d_for_%s", interface,
                                       first + i, names[set]);
        }
        snprintf(command + length, sizeof command - length, " AGGREGATE %s", aggregates[set]);
        tell(ask(command));
    }
    figures[0] = score_of("merged_max", "max");
    figures[1] = score_of("merged_min", "min");
    figures[2] = score_of("merged_sum_count", "sum");
    figures[3] = score_of("merged_sum_count", "count");
}

/* A writer of the pattern, one request at a time. */
static void write_pattern(const char *interface, int minute, double ms)
{
    static const char *const members[] = {"max", "min"};
    static const char *const aggregates[] = {"MAX", "MIN"};

    for (int i = 0; i < 2; i++) {
        tell(ask("ZADD mine %f %s", ms, members[i]));
        tell(ask("ZUNIONSTORE statistics_%s_%d_for_%s 2 statistics_%s_%d_for_%s mine AGGREGATE %s", interface, minute,
                 members[i], interface, minute, members[i], aggregates[i]));
        tell(ask("DEL mine"));
    }
    tell(ask("ZINCRBY statistics_%s_%d_for_sum_count 1 count", interface, minute));
    tell(ask("ZINCRBY statistics_%s_%d_for_sum_count %f sum", interface, minute, ms));
}

Test(latency_flush, readers_and_writers_of_the_pattern_need_not_know)
{
    struct recorder *recorder = recorder_new(60);
    double figures[4];

    for (int i = 0; i < 10; i++) {
        record(recorder, MINUTE + i, 1000 + (uint64_t)i, 3, 0);
    }
    record(recorder, MINUTE + 4, 42, 1, 0);
    record(recorder, MINUTE + 7, 70077, 1, 0);
    flush_all(recorder, &layout, "orders");
    read_pattern("orders", MINUTE - 3, 15, figures);
    cr_assert_eq(figures[0], 70.077);
    cr_assert_eq(figures[1], 0.042);
    cr_assert_float_eq(figures[2], 30.135 + 70.077 + 0.042, 1e-9);
    cr_assert_eq(figures[3], 32);
    read_pattern("orders", MINUTE, 2, figures);
    cr_assert_eq(figures[0], 1.001);
    cr_assert_eq(figures[1], 1);
    cr_assert_eq(figures[3], 6);

    write_pattern("orders", MINUTE, 99.5);
    write_pattern("orders", MINUTE, 0.125);
    record(recorder, MINUTE, 50000, 1, 0);
    record(recorder, MINUTE, 1000, 1, 0);
    flush_all(recorder, &layout, "orders");
    read_pattern("orders", MINUTE, 1, figures);
    cr_assert_eq(figures[0], 99.5);
    cr_assert_eq(figures[1], 0.125);
    cr_assert_float_eq(figures[2], 3 + 99.5 + 0.125 + 51, 1e-9);
    cr_assert_eq(figures[3], 7);
    recorder_free(recorder);
}

/* ---- what is in the way ---- */

static void assert_refused(struct recorder *recorder, const char *error)
{
    const struct flush *taken = recorder_take(recorder);
    uint64_t before = all_of_redis();

    assert_error_begins(flush_raw(&layout, "get", taken), error);
    cr_assert_eq(all_of_redis(), before, "%s, and something was written", error);
}

/* The same flush, later, counts, and only once. */
static void assert_taken_now(struct recorder *recorder)
{
    const struct flush *taken = recorder_take(recorder);

    cr_assert_eq(flush(&layout, "get", taken), 1);
    cr_assert_eq(flush(&layout, "get", taken), 0);
    cr_assert_eq(score_of(KEY("sum_count"), "count"), 3);
    cr_assert_eq(score_of(NEXT_KEY("sum_count"), "count"), 1);
    recorder_free(recorder);
}

Test(latency_flush, keys_of_another_type_stop_it_before_it_begins)
{
    static const char *const keys[] = {"statistics_get_flushed_by_5f3a-0",
                                       KEY("max"),
                                       KEY("min"),
                                       KEY("sum_count"),
                                       KEY("hist"),
                                       KEY("errors_bytes"),
                                       NEXT_KEY("max"),
                                       NEXT_KEY("errors_bytes")};
    struct recorder *recorder = recorder_of_two_minutes();
    char error[128];

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        tell(ask("RPUSH %s somebody's", keys[i]));
        snprintf(error, sizeof error, "HEADGATE key %s holds a list, nothing was written", keys[i]);
        assert_refused(recorder, error);
        tell(ask("DEL %s", keys[i]));
    }
    tell(ask("SET %s text", KEY("hist")));
    assert_refused(recorder, "HEADGATE key " KEY("hist") " holds a string");
    tell(ask("DEL %s", KEY("hist")));
    assert_taken_now(recorder);
}

Test(latency_flush, redis_without_memory_takes_all_or_nothing)
{
    struct recorder *recorder = recorder_of_two_minutes();

    tell(ask("CONFIG SET maxmemory 1"));
    assert_refused(recorder, "OOM");
    tell(ask("CONFIG SET maxmemory 0"));
    assert_taken_now(recorder);
}

Test(latency_flush, a_replica_takes_all_or_nothing)
{
    struct recorder *recorder = recorder_of_two_minutes();

    tell(ask("REPLICAOF 127.0.0.1 1"));
    assert_refused(recorder, "READONLY");
    tell(ask("REPLICAOF NO ONE"));
    assert_taken_now(recorder);
}

Test(latency_flush, redis_that_wants_replicas_takes_all_or_nothing)
{
    struct recorder *recorder = recorder_of_two_minutes();

    tell(ask("CONFIG SET min-replicas-to-write 1"));
    assert_refused(recorder, "NOREPLICAS");
    tell(ask("CONFIG SET min-replicas-to-write 0"));
    assert_taken_now(recorder);
}

Test(latency_flush, too_few_rights_stop_it_before_it_begins)
{
    static const char *const rights[] = {"set", "zscore", "zadd", "zincrby", "zunionstore", "del", "expire"};
    struct recorder *recorder = recorder_of_two_minutes();

    for (size_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        tell(ask("ACL SETUSER sidecar on nopass ~* +@all -%s", rights[i]));
        tell(ask("AUTH sidecar x"));
        assert_refused(recorder, "NOPERM");
        tell(ask("AUTH default x"));
    }
    tell(ask("ACL SETUSER sidecar reset on nopass ~statistics_* +evalsha +script|load +type +get +set +zscore +zadd "
             "+zincrby +zunionstore +del +expire"));
    tell(ask("AUTH sidecar x"));
    cr_assert_eq(flush(&layout, "get", recorder_take(recorder)), 1, "these rights are enough");
    tell(ask("AUTH default x"));
    recorder_free(recorder);
}

Test(latency_flush, unsound_arguments_are_refused)
{
    static const struct {
        const char *keys; /* how many, with the first */
        const char *arguments[4];
    } calls[] = {
        {"6", {"1", "2", "3", ""}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 8"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 x"}},
        {"6", {"1", "2", "3", "1 2 3 0 5 6 7"}},
        {"6", {"1", "2", "3", "1 2 3 -4 5 6 7"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 0 8"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 -1 8"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 1 1.5"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 nan 8"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 1 -"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 1 1-1"}},
        {"6", {"1", "2", "3", "1 2 3 4 5 6 7 8 1e3"}},
        {"6", {"1", "2", "3", "99999999999999999 2 3 4 5 6 7"}},
        {"6", {"0", "2", "3", "1 2 3 4 5 6 7"}},
        {"6", {"1", "0", "3", "1 2 3 4 5 6 7"}},
        {"6", {"1", "2", "-1", "1 2 3 4 5 6 7"}},
        {"6", {"1", "2", "", "1 2 3 4 5 6 7"}},
        {"5", {"1", "2", "3", "1 2 3 4 5 6 7"}},
        {"7", {"1", "2", "3", "1 2 3 4 5 6 7"}},
        {"0", {"1", "2", "3", "1 2 3 4 5 6 7"}},
    };
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g"};

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct latency_call call = {.key_count = strtoul(calls[i].keys, NULL, 10)};
        for (size_t at = 0; at < call.key_count + 4; at++) {
            const char *text = at < call.key_count ? keys[at] : calls[i].arguments[at - call.key_count];
            call.arguments[call.argument_count++] = (struct slice){text, strlen(text)};
        }
        assert_error_begins(run("EVALSHA", "latency_flush", &call), "HEADGATE the arguments of a flush are not sound");
        cr_assert_eq(integer_of(ask("DBSIZE")), 0, "call %zu", i);
    }
}

/* ---- reports ---- */

static redisReply *report_raw(const struct latency_layout *by, const char *interface, int64_t first, size_t minutes)
{
    struct latency_call call = {0};

    cr_assert(latency_call_report(&call, by, interface, first, minutes));
    /* It reads only: Redis would refuse a script that writes. */
    redisReply *reply = run("EVALSHA_RO", "latency_report", &call);
    latency_call_clear(&call);
    return reply;
}

static void report(const char *interface, int64_t first, size_t minutes, struct latency_figures *figures)
{
    redisReply *reply = report_raw(&layout, interface, first, minutes);
    static int64_t integers[LATENCY_REPORT_INTEGERS_MAX];

    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", reply->str);
    cr_assert_leq(reply->elements, LATENCY_REPORT_INTEGERS_MAX);
    for (size_t i = 0; i < reply->elements; i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
        integers[i] = reply->element[i]->integer;
    }
    cr_assert(latency_report_read(integers, reply->elements, figures));
    freeReplyObject(reply);
}

Test(latency_report, of_nothing_is_nothing)
{
    static struct latency_figures figures, none;

    report("get", MINUTE, 3, &figures);
    cr_assert_eq(memcmp(&figures, &none, sizeof none), 0);
}

enum { SIDECARS = 3, MINUTES = 12 };

/* Flushes all that waits, each time as if the first reply had been lost. */
static void flush_twice(struct recorder *recorder, const char *process)
{
    const struct latency_layout by = {
        .prefix = "statistics", .process = process, .retention_s = 600, .remember_s = 600};
    const struct flush *taken;

    while ((taken = recorder_take(recorder)) != NULL) {
        cr_assert_eq(flush(&by, "get", taken), 1);
        cr_assert_eq(recorder_take(recorder), taken);
        cr_assert_eq(flush(&by, "get", taken), 0);
        recorder_forget(recorder, false);
    }
}

/* ZUNIONSTORE of the histograms of all minutes, as anybody may do it, is the histogram of the whole. */
static void assert_united(const struct latency_histogram *whole)
{
    char command[4096];
    size_t length = (size_t)snprintf(command, sizeof command, "ZUNIONSTORE united %d", MINUTES);
    int64_t buckets = 0;

    for (int minute = 0; minute < MINUTES; minute++) {
        length +=
            (size_t)snprintf(command + length, sizeof command - length, " statistics_get_%d_for_hist", MINUTE + minute);
    }
    tell(ask(command));
    for (int index = LATENCY_INDEX_MIN; index <= LATENCY_INDEX_MAX; index++) {
        uint64_t count = whole->buckets[index - LATENCY_INDEX_MIN];
        redisReply *score = ask("ZSCORE united %d", index);
        cr_assert_eq(score->type, count > 0 ? REDIS_REPLY_STRING : REDIS_REPLY_NIL, "bucket %d", index);
        cr_assert(count == 0 || strtod(score->str, NULL) == (double)count, "bucket %d", index);
        freeReplyObject(score);
        buckets += count > 0;
    }
    cr_assert_eq(integer_of(ask("ZCARD united")), buckets);
}

/* Three sidecars that record at random and flush in turn: what is reported is what was recorded. */
Test(latency_report, all_sidecars_add_up_to_what_was_recorded)
{
    static struct latency_figures expected[MINUTES], told, whole, told_whole;
    static const char *const processes[SIDECARS] = {"a-0", "b-0", "b-1"};
    struct recorder *sidecars[SIDECARS];
    uint64_t state = 88172645463325252;

    for (int i = 0; i < SIDECARS; i++) {
        sidecars[i] = recorder_new(MINUTES);
    }
    for (int step = 0; step < 6000; step++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        int who = (int)(state >> 60) % SIDECARS, minute = (int)(state >> 33) % 3 + step / 600;
        struct latency_sample sample = {.us = (state >> 12) >> (26 + state % 26), .count = 1 + (state >> 40) % 2};
        sample.errors = state >> 45 & 1;
        sample.bytes_in = state >> 50;
        sample.bytes_out = state >> 48;
        recorder_record(sidecars[who], MINUTE + minute, &sample);
        latency_histogram_record(&expected[minute].histogram, sample.us, sample.count);
        latency_figures_record(&whole, &sample);
        expected[minute].errors += sample.errors;
        expected[minute].bytes_in += sample.bytes_in;
        expected[minute].bytes_out += sample.bytes_out;
        if (step % 20 == 0) {
            flush_twice(sidecars[step / 20 % SIDECARS], processes[step / 20 % SIDECARS]);
        }
    }
    for (int i = 0; i < SIDECARS; i++) {
        flush_twice(sidecars[i], processes[i]);
    }
    for (int minute = 0; minute < MINUTES; minute++) {
        memset(&told, 0, sizeof told);
        report("get", MINUTE + minute, 1, &told);
        cr_assert_eq(memcmp(&told, &expected[minute], sizeof told), 0, "minute %d", minute);
    }
    for (int minute = 0; minute < MINUTES; minute += LATENCY_REPORT_MINUTES) {
        report("get", MINUTE + minute, LATENCY_REPORT_MINUTES, &told_whole);
    }
    cr_assert_eq(memcmp(&told_whole, &whole, sizeof whole), 0);
    assert_united(&whole.histogram);
    cr_assert_gt(whole.histogram.count, 8000);
    for (int i = 0; i < SIDECARS; i++) {
        cr_assert_eq(recorder_minutes(sidecars[i]), 0);
        recorder_free(sidecars[i]);
    }
}

Test(latency_report, has_room_for_every_bucket)
{
    static struct latency_figures expected, told;
    struct recorder *recorder = recorder_new(60);

    for (int index = LATENCY_INDEX_MIN; index <= LATENCY_INDEX_MAX; index++) {
        uint64_t us = index == LATENCY_INDEX_MAX ? LATENCY_US_MAX : latency_index_greatest(index);
        uint64_t count = UINT64_C(1) << (index + 1) % 11;
        if (latency_index(us) == index) {
            record(recorder, MINUTE + index % 2, us, count, 0);
            latency_histogram_record(&expected.histogram, us, count);
            expected.bytes_in += 30 * count;
            expected.bytes_out += 500 * count;
        }
    }
    flush_all(recorder, &layout, "get");
    report("get", MINUTE - 1, 3, &told);
    cr_assert_eq(memcmp(&told, &expected, sizeof told), 0);
    recorder_free(recorder);
}

Test(latency_report, reads_what_other_writers_of_the_pattern_left)
{
    static struct latency_figures figures;

    write_pattern("orders", MINUTE, 99.5);
    write_pattern("orders", MINUTE + 1, 0.125);
    report("orders", MINUTE, 3, &figures);
    cr_assert_eq(figures.histogram.count, 2);
    cr_assert_eq(figures.histogram.sum_us, 99625);
    cr_assert_eq(figures.histogram.min_us, 125);
    cr_assert_eq(figures.histogram.max_us, 99500);
}

/* What was done to the worse of two minutes, and what is said of both. */
#define EXACT " min=0.099 mean=0.812 max=1.450 p50=0.251 p90=1.450 p99=1.450"
#define NO_MAX " mean=0.812 max=unknown p50=0.251 p90=1.480 p99=1.480"
#define NO_MIN " min=unknown mean=0.812 max=1.450 p50=0.251"
#define NO_SUM " count=4 errors=1 min=0.099 mean=unknown max=1.450 p50=0.251"
#define NO_COUNT " count=unknown errors=1 min=0.099 mean=unknown max=1.450 p50=unknown p90=unknown p99=unknown"
#define NO_HIST " count=4 errors=1 min=0.099 mean=0.812 max=1.450 p50=unknown p90=unknown p99=unknown"

static const char *const damages[][2] = {
    {"ECHO nothing", EXACT},
    {"DEL " KEY("max"), NO_MAX},
    {"ZADD " KEY("max") " inf max 1.45 most", NO_MAX},
    {"ZADD " KEY("max") " 1.2 max", NO_MAX},
    {"ZADD " KEY("max") " 1.6 max", NO_MAX},
    {"DEL " KEY("min"), NO_MIN},
    {"ZADD " KEY("min") " -5 min", NO_MIN},
    {"ZADD " KEY("min") " 0.3 min", NO_MIN},
    {"ZADD " KEY("sum_count") " 9e15 sum", NO_SUM},
    {"ZADD " KEY("sum_count") " 0.5 sum", NO_SUM},
    {"ZREM " KEY("sum_count") " sum", NO_SUM},
    {"ZREM " KEY("sum_count") " count", NO_COUNT},
    {"ZADD " KEY("sum_count") " 2 count", NO_COUNT},
    {"DEL " KEY("sum_count"), NO_COUNT},
    {"DEL " KEY("hist"), NO_HIST},
    {"ZADD " KEY("hist") " 1.5 127", NO_HIST},
    {"ZADD " KEY("hist") " 1 here 2 592 3 -2 4 1.5 -7 16 inf 17", EXACT},
    {"ZADD " KEY("errors_bytes") " 1e300 errors", " errors=unknown" EXACT},
    {"ZADD " KEY("errors_bytes") " -1 bytes_in 7 bytes_out", " bytes_in=unknown bytes_out=507\n"},
};

Test(latency_report, tells_what_it_does_not_know)
{
    for (size_t i = 0; i < LENGTH(damages); i++) {
        struct recorder *recorder = recorder_new(60);
        struct latency_figures figures = {0};
        char told[512] = {0};
        FILE *out = fmemopen(told, sizeof told, "w");
        record(recorder, MINUTE, 1450, 2, 1);
        record(recorder, MINUTE, 250, 1, 0);
        record(recorder, MINUTE + 1, 99, 1, 0);
        flush_all(recorder, &layout, "get");
        tell(ask(damages[i][0]));
        report("get", MINUTE, 1 + i % 2, &figures);
        report("get", MINUTE + 1 + (int)i % 2, 1, &figures);
        latency_print_figures(&figures, 0, out);
        fclose(out);
        cr_assert(strstr(told, damages[i][1]) != NULL, "%s:%s", damages[i][0], told);
        tell(ask("FLUSHALL"));
        recorder_free(recorder);
    }
}

Test(latency_report, names_the_key_of_another_type)
{
    static const char *const keys[] = {KEY("max"), KEY("min"), KEY("sum_count"), KEY("hist"), KEY("errors_bytes")};
    char error[128];

    for (size_t i = 0; i < 5; i++) {
        tell(ask("SET %s text", keys[i]));
        snprintf(error, sizeof error, "HEADGATE key %s cannot be read as a sorted set", keys[i]);
        assert_error_begins(report_raw(&layout, "get", MINUTE - 1, 2), error);
        tell(ask("DEL %s", keys[i]));
    }
    assert_error_begins(ask("EVALSHA_RO %s 4 a b c d", script_find("latency_report")->sha1), "HEADGATE a report takes");
    assert_error_begins(ask("EVALSHA_RO %s 0", script_find("latency_report")->sha1), "HEADGATE a report takes");
}
