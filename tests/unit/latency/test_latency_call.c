/* Calls of the scripts of latency: the names of the keys, the arguments to the byte, and replies that are read. */
#include "latency_recorder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_argument(const struct latency_call *call, size_t index, const char *expected)
{
    cr_assert_lt(index, call->argument_count);
    cr_assert_eq(call->arguments[index].length, strlen(expected), "%zu: %.*s", index,
                 (int)call->arguments[index].length, call->arguments[index].data);
    cr_assert_eq(memcmp(call->arguments[index].data, expected, strlen(expected)), 0, "%zu: %.*s", index,
                 (int)call->arguments[index].length, call->arguments[index].data);
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
    const struct flush *taken = recorder_take(recorder);
    cr_assert(latency_call_flush(&call, &longest, operation, taken->number, &taken->frozen));
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
