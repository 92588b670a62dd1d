/* Calls of the scripts of latency: the names of the keys, the arguments to the byte, and replies that are read. */
#include "latency_recorder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct latency_layout layout = {
    .prefix = "statistics", .process = "5f3a-0", .retention_s = 86400, .remember_s = 3600};

static bool flush(struct latency_call *call, const struct latency_layout *by, const char *operation,
                  const struct flush *taken)
{
    return latency_call_flush(call, by, operation, taken->number, &taken->frozen);
}

static void assert_argument(const struct latency_call *call, size_t index, const char *expected)
{
    cr_assert_lt(index, call->argument_count);
    cr_assert_eq(call->arguments[index].length, strlen(expected), "%zu: %.*s", index,
                 (int)call->arguments[index].length, call->arguments[index].data);
    cr_assert_eq(memcmp(call->arguments[index].data, expected, strlen(expected)), 0, "%zu: %.*s", index,
                 (int)call->arguments[index].length, call->arguments[index].data);
}

/* The pattern as its readers write it: 'statistics_%s_%d_for_max'. */
Test(latency_call, names_keys_as_the_pattern_does)
{
    static const char *const expected[] = {"statistics_get_28333333_for_max", "statistics_get_28333333_for_min",
                                           "statistics_get_28333333_for_sum_count", "statistics_get_28333333_for_hist",
                                           "statistics_get_28333333_for_errors_bytes"};
    struct latency_call call = {0};

    cr_assert(latency_call_report(&call, &layout, "get", 28333333, 1));
    cr_assert_eq(call.key_count, LATENCY_KEYS);
    for (size_t i = 0; i < LATENCY_KEYS; i++) {
        assert_argument(&call, i, expected[i]);
    }
    const struct latency_layout other = {.prefix = "{a}b", .braces = true, .process = "p"};
    cr_assert(latency_call_report(&call, &other, "config|set", -1, 1));
    assert_argument(&call, 0, "{a}b_{config|set}_-1_for_max");
    latency_call_clear(&call);
}

Test(latency_call, has_room_for_the_longest_keys)
{
    char prefix[LATENCY_PREFIX_MAX + 1] = {0}, process[LATENCY_PROCESS_MAX + 1] = {0};
    char operation[LATENCY_NAME_MAX + 1] = {0};

    memset(prefix, 'p', LATENCY_PREFIX_MAX);
    memset(process, 'q', LATENCY_PROCESS_MAX);
    memset(operation, 'i', LATENCY_NAME_MAX);
    const struct latency_layout longest = {
        .prefix = prefix, .braces = true, .process = process, .retention_s = INT64_MAX, .remember_s = INT64_MAX};
    struct recorder *recorder = recorder_new(2);
    const struct latency_sample sample = {
        .us = UINT64_MAX, .count = 1, .errors = UINT64_MAX, .bytes_in = UINT64_MAX, .bytes_out = UINT64_MAX};
    struct latency_call call = {0};
    recorder_record(recorder, INT64_MIN, &sample);
    recorder_record(recorder, INT64_MAX, &sample);
    cr_assert(flush(&call, &longest, operation, recorder_take(recorder)));
    cr_assert_eq(call.argument_count, 16);
    for (size_t i = 0; i < call.key_count; i++) {
        cr_assert_lt(call.arguments[i].length, LATENCY_KEY_SIZE);
    }
    cr_assert_eq(memcmp(call.end - strlen("1 591"), "1 591", strlen("1 591")), 0);
    assert_argument(&call, 15,
                    "18446744073709551615 18446744073709551615 18446744073709551615 1 18446744073709551615 "
                    "18446744073709551615 18446744073709551615 1 591");
    latency_call_clear(&call);
    recorder_free(recorder);
}

Test(latency_call, flushes_what_is_frozen)
{
    struct recorder *recorder = recorder_new(3);
    struct latency_call call = {0};

    recorder_record(recorder, 100, &(struct latency_sample){.us = 1, .count = 2, .bytes_in = 30});
    recorder_record(recorder, 100, &(struct latency_sample){.us = 2048, .count = 1, .errors = 1});
    recorder_record(recorder, 101, &(struct latency_sample){.us = 0, .count = 1, .bytes_out = 5});
    cr_assert(flush(&call, &layout, "get", recorder_take(recorder)));
    cr_assert_eq(call.key_count, 11);
    cr_assert_eq(call.argument_count, 16, "two minutes is as much as a call takes");
    assert_argument(&call, 0, "statistics_get_flushed_by_5f3a-0");
    assert_argument(&call, 1, "statistics_get_100_for_max");
    assert_argument(&call, 5, "statistics_get_100_for_errors_bytes");
    assert_argument(&call, 6, "statistics_get_101_for_max");
    assert_argument(&call, 10, "statistics_get_101_for_errors_bytes");
    assert_argument(&call, 11, "1");
    assert_argument(&call, 12, "3600");
    assert_argument(&call, 13, "86400");
    assert_argument(&call, 14, "2048 1 2050 3 1 30 0 2 -1 1 175");
    assert_argument(&call, 15, "0 0 0 1 0 0 5 1 -1");

    /* The same memory, for one minute. */
    recorder_forget(recorder, false);
    recorder_record(recorder, 101, &(struct latency_sample){.us = 7, .count = 1});
    const char *text = call.text;
    cr_assert(flush(&call, &layout, "get", recorder_take(recorder)));
    cr_assert_eq(call.text, text);
    cr_assert_eq(call.key_count, 6);
    cr_assert_eq(call.argument_count, 10);
    assert_argument(&call, 5, "statistics_get_101_for_errors_bytes");
    assert_argument(&call, 6, "2");
    assert_argument(&call, 9, "7 7 7 1 0 0 0 1 44");
    latency_call_clear(&call);
    recorder_free(recorder);
}

Test(latency_call, tells_what_becomes_of_a_flush)
{
    static const char *const later[] = {"OOM command not allowed when used memory > 'maxmemory'.",
                                        "READONLY You can't write against a read only replica.",
                                        "NOPERM the user of the sidecar may not use SET, nothing was written",
                                        "the connection to Redis was lost", "HEADGATEWAY"};

    cr_assert_eq(latency_flush_ended(&(struct policy_script_reply){.count = 1}), LATENCY_FLUSH_DONE);
    cr_assert_eq(latency_flush_ended(&(struct policy_script_reply){.count = 2}), LATENCY_FLUSH_AGAIN);
    cr_assert_eq(latency_flush_ended(&(struct policy_script_reply){
                     .count = 1, .texts = &(struct slice){"OK", 2}, .integers = &(int64_t){0}}),
                 LATENCY_FLUSH_AGAIN);
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        cr_assert_eq(latency_flush_ended(&(struct policy_script_reply){.error = later[i]}), LATENCY_FLUSH_AGAIN);
    }
    cr_assert_eq(latency_flush_ended(&(struct policy_script_reply){
                     .error = "HEADGATE key statistics_get_1_for_max holds a list, nothing was written"}),
                 LATENCY_FLUSH_NEVER);
}

Test(latency_call, reads_a_report)
{
    static struct latency_figures figures;
    const int64_t reply[] = {3, 1530, 10, 1500, 1, 100, 200, 53, 2, 168, 1};
    const int64_t later[] = {1, 5, 5, 5, 0, 1, 2, 37, 1};
    const int64_t empty[] = {0, 0, 0, 0, 0, 0, 0};

    cr_assert(latency_report_read(reply, 11, &figures));
    cr_assert(latency_report_read(empty, 7, &figures));
    cr_assert_eq(figures.histogram.min_us, 10, "nothing has no least");
    cr_assert(latency_report_read(later, 9, &figures));
    cr_assert_eq(figures.histogram.count, 4);
    cr_assert_eq(figures.histogram.sum_us, 1535);
    cr_assert_eq(figures.histogram.min_us, 5);
    cr_assert_eq(figures.histogram.max_us, 1500);
    cr_assert_eq(figures.errors, 1);
    cr_assert_eq(figures.bytes_in, 101);
    cr_assert_eq(figures.bytes_out, 202);
    cr_assert_float_eq(latency_histogram_quantile(&figures.histogram, 0.75), 10, 0.25);
}

Test(latency_call, refuses_what_is_no_report)
{
    static struct latency_figures figures, none, unknown;
    static int64_t integers[LATENCY_REPORT_INTEGERS_MAX + 2];

    cr_assert_not(latency_report_read(integers, 0, &figures));
    cr_assert_not(latency_report_read(integers, 6, &figures));
    cr_assert_not(latency_report_read(integers, 8, &figures));
    cr_assert(latency_report_read(integers, LATENCY_REPORT_INTEGERS_MAX, &figures));
    cr_assert_not(latency_report_read(integers, LATENCY_REPORT_INTEGERS_MAX + 2, &figures));
    for (size_t i = 0; i < 9; i++) {
        const int64_t was = integers[i];
        integers[i] = -1;
        cr_assert_eq(latency_report_read(integers, 9, &unknown), i <= 7, "%zu: what is not known is -1", i);
        integers[i] = i < 7 ? -2 : -1;
        cr_assert_eq(latency_report_read(integers, 9, &figures), i == 7, "%zu", i);
        integers[i] = was;
    }
    cr_assert_eq(memcmp(&figures, &none, sizeof none), 0);
}
