/*
 * The scripts that put latency on record, on a real Redis, with the code that calls them and reads what they reply:
 * what is reported is what was recorded. What each script does by itself is tested in tests/lua/test_lua_latency.py.
 */
#include "../command/server_fixture.h"
#include "latency/latency_private.h"
#include "latency_recorder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE 28333333

TestSuite(latency_report, .init = server_start, .fini = server_stop, .timeout = 100);

/* ---- asking Redis ---- */

#define ask server_command
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* These free the reply, and fail if it is an error. */
static void tell(redisReply *reply)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    freeReplyObject(reply);
}

static int64_t integer_of(redisReply *reply)
{
    int64_t integer = reply->integer;

    cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str);
    freeReplyObject(reply);
    return integer;
}

static redisReply *run(const char *command, const char *script, const struct latency_call *call)
{
    const char *arguments[3 + POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t lengths[3 + POLICY_SCRIPT_ARGUMENTS_MAX];
    char key_count[8];

    tell(ask("SCRIPT LOAD %s", script_find(script)->text));
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
    return server_ask_bytes((int)(3 + call->argument_count), arguments, lengths);
}

/* ---- flushing ---- */

static int64_t flush(const struct latency_layout *by, const struct flush *taken)
{
    struct latency_call call = {0};

    cr_assert(latency_call_flush(&call, by, "get", taken->number, &taken->frozen));
    redisReply *reply = run("EVALSHA", "latency_flush", &call);
    latency_call_clear(&call);
    return integer_of(reply);
}

/* Flushes all that waits, each time as if the first reply had been lost. */
static void flush_all(struct recorder *recorder, const char *process)
{
    const struct latency_layout by = {
        .prefix = "statistics", .process = process, .retention_s = 600, .remember_s = 600};
    const struct flush *taken;

    while ((taken = recorder_take(recorder)) != NULL) {
        cr_assert_eq(flush(&by, taken), 1);
        cr_assert_eq(recorder_take(recorder), taken);
        cr_assert_eq(flush(&by, taken), 0);
        recorder_forget(recorder, false);
    }
}

static void record(struct recorder *recorder, int64_t minute, uint64_t us, uint64_t count, uint64_t errors)
{
    const struct latency_sample sample = {
        .us = us, .count = count, .errors = errors, .bytes_in = 30 * count, .bytes_out = 500 * count};

    recorder_record(recorder, minute, &sample);
}

#define KEY(suffix) "statistics_get_28333333_for_" suffix

/* ---- reports ---- */

static void report(int64_t first, size_t minutes, struct latency_figures *figures)
{
    static const struct latency_layout by = {.prefix = "statistics", .process = "a-0"};
    static int64_t integers[LATENCY_REPORT_INTEGERS_MAX];
    struct latency_call call = {0};

    cr_assert(latency_call_report(&call, &by, "get", first, minutes));
    /* It reads only: Redis would refuse a script that writes. */
    redisReply *reply = run("EVALSHA_RO", "latency_report", &call);
    latency_call_clear(&call);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", reply->str);
    cr_assert_leq(reply->elements, LATENCY_REPORT_INTEGERS_MAX);
    for (size_t i = 0; i < reply->elements; i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
        integers[i] = reply->element[i]->integer;
    }
    cr_assert(latency_report_read(integers, reply->elements, figures));
    freeReplyObject(reply);
}

enum { SIDECARS = 3, MINUTES = 12 };

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
    flush_all(recorder, "a-0");
    report(MINUTE - 1, 3, &told);
    cr_assert_eq(memcmp(&told, &expected, sizeof told), 0);
    recorder_free(recorder);
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
        flush_all(recorder, "a-0");
        tell(ask(damages[i][0]));
        report(MINUTE, 1 + i % 2, &figures);
        report(MINUTE + 1 + (int)i % 2, 1, &figures);
        latency_print_figures(&figures, 0, out);
        fclose(out);
        cr_assert(strstr(told, damages[i][1]) != NULL, "%s:%s", damages[i][0], told);
        tell(ask("FLUSHALL"));
        recorder_free(recorder);
    }
}
