/* What lines look like as JSON and for the system's log, and how many of a kind there are. */
#include "base/log_private.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)

static const struct log_shape json = {.format = LOG_FORMAT_JSON};
static const struct log_shape text = {.format = LOG_FORMAT_TEXT};

__attribute__((format(printf, 4, 5))) static char *composed(struct log_shape shape, const char *module,
                                                            uint64_t suppressed, const char *format, ...)
{
    struct log_line line;
    va_list arguments;

    va_start(arguments, format);
    log_line_compose(&line, shape, LOG_LEVEL_WARNING, module, suppressed, format, arguments);
    va_end(arguments);
    cr_assert_leq(line.length, LOG_LINE_BYTES);
    return strndup(line.bytes, line.length);
}

static void assert_ends(char *line, const char *end)
{
    size_t length = strlen(line), wanted = strlen(end);

    cr_assert(length >= wanted && strcmp(line + length - wanted, end) == 0, "%s does not end with %s", line, end);
    free(line);
}

/* ---- JSON ---- */

/* Whatever clients call themselves: the line stays an object, and has its message. */
Test(log_line, nobody_forges_a_field)
{
    char hostile[512];
    struct log_subject about = {
        .client = "\"}\r\n{", .name = "a\",\"level\":\"error", .user = "\xff\xc3\x1b[m", .lane = 1};
    struct log_shape shape = json;

    shape.about = &about;
    assert_ends(composed(shape, "m", 0, "x"),
                "\"client\":\"\\\"}\\u000d\\u000a{\",\"name\":\"a\\\",\\\"level\\\":\\\"error\","
                "\"user\":\"\\ufffd\\ufffd\\u001b[m\",\"lane\":1,\"message\":\"x\"}\n");
    memset(hostile, 0xff, sizeof hostile - 1);
    hostile[sizeof hostile - 1] = '\0';
    about = (struct log_subject){.client = "c", .name = hostile, .user = hostile, .identity = "i", .rule = "r"};
    assert_ends(composed(shape, "m", 0, "the message"),
                "\\ufffd\",\"identity\":\"i\",\"rule\":\"r\",\"message\":\"the message\"}\n");
}

Test(log_line, json_has_characters_of_utf8)
{
    assert_ends(composed(json, "m", 0, "%s", "\x01\x7f\x1b[m é € 𝄞"),
                "\"\\u0001\\u007f\\u001b[m \\u00e9 \\u20ac \\ud834\\udd1e\"}\n");
}

Test(log_line, what_is_no_utf8_is_replaced)
{
    /* Alone, cut, too long for what it says, a surrogate, beyond the last character. */
    assert_ends(composed(json, "m", 0, "%s", "a\x80z\xffz\xc3z\xc0\xafz"),
                "\"a\\ufffdz\\ufffdz\\ufffdz\\ufffd\\ufffdz\"}\n");
    assert_ends(composed(json, "m", 0, "%s", "\xe0\x80\x80z"), "\"\\ufffd\\ufffd\\ufffdz\"}\n");
    assert_ends(composed(json, "m", 0, "%s", "\xed\xa0\x80z"), "\"\\ufffd\\ufffd\\ufffdz\"}\n");
    assert_ends(composed(json, "m", 0, "%s", "\xf4\x90\x80\x80z"), "\"\\ufffd\\ufffd\\ufffd\\ufffdz\"}\n");
    assert_ends(composed(json, "m", 0, "%s", "z\xf0\x9d\x84"), "\"z\\ufffd\\ufffd\\ufffd\"}\n");
}

Test(log_line, long_json_is_cut_between_characters_and_closed)
{
    static const char *const fillers[] = {"a", "\x01", "\"", "é", "𝄞"};
    static const size_t escaped[] = {1, 6, 2, 6, 12};

    for (size_t i = 0; i < sizeof fillers / sizeof fillers[0]; i++) {
        for (size_t pad = 0; pad < 13; pad++) {
            char message[8192] = "";
            memset(message, 'x', pad);
            while (strlen(message) < 4000) {
                strcat(message, fillers[i]);
            }
            char *line = composed(json, "m", 0, "%s", message);
            const char *body = strstr(line, "\"message\":\"") + 11;
            const char *end = strstr(body, "...\"}\n");
            cr_assert_not_null(end, "%s", line);
            cr_assert_eq(end[6], '\0');
            cr_assert_eq(((size_t)(end - body) - pad) % escaped[i], 0, "%s", line);
            cr_assert_gt(strlen(line), LOG_LINE_BYTES - 32);
            free(line);
        }
    }
}

Test(log_line, suppressed_lines_are_told)
{
    assert_ends(composed(text, "m", 12, "x"), "warning m: x (12 more of this kind not logged)\n");
    assert_ends(composed(json, "m", UINT64_MAX, "x"), "\"message\":\"x\",\"suppressed\":18446744073709551615}\n");
    char *long_message = calloc(1, 9000);
    memset(long_message, '"', 8999);
    assert_ends(composed(json, "m", UINT64_MAX, "%s", long_message),
                "\\\"...\",\"suppressed\":18446744073709551615}\n");
    assert_ends(composed(text, "m", UINT64_MAX, "%s", long_message),
                "\"... (18446744073709551615 more of this kind not logged)\n");
    free(long_message);
}

/* ---- how many ---- */

static int count_at(const char *format, int lines, int64_t now_us)
{
    uint64_t suppressed;
    int count = 0;

    for (int i = 0; i < lines; i++) {
        count += log_bound_take("m", format, now_us, &suppressed);
    }
    return count;
}

Test(log_bound, a_thousand_at_once_and_then_one_a_second)
{
    uint64_t suppressed;

    cr_assert_eq(count_at("one", 5000, 100 * SECOND), 1000);
    cr_assert_eq(count_at("two", 10, 100 * SECOND), 10, "another kind");
    cr_assert_eq(count_at("one", 10, 100 * SECOND + SECOND - 1), 0);
    cr_assert(log_bound_take("m", "one", 101 * SECOND, &suppressed));
    cr_assert_eq(suppressed, 4010);
    cr_assert_eq(count_at("one", 10, 101 * SECOND), 0);
    cr_assert_eq(count_at("one", 5000, 104 * SECOND), 3);
    cr_assert_eq(count_at("one", 5000, 1000000 * SECOND), 1000, "after a long rest");
}

#define THREADS 4

static void *log_many(void *argument)
{
    atomic_int *taken = argument;

    for (int i = 0; i < 20000; i++) {
        uint64_t suppressed;
        atomic_fetch_add(taken, log_bound_take("m", "threads", 7 * SECOND, &suppressed));
    }
    return NULL;
}

Test(log_bound, threads_share_a_kind)
{
    static atomic_int taken;
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, log_many, &taken), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(atomic_load(&taken), 1000);
}

/* More kinds than there are places: they share, and nothing is written without a bound. */
Test(log_bound, a_full_table)
{
    static char names[2048];

    for (size_t i = 0; i < sizeof names; i++) {
        cr_assert_leq(count_at(names + i, 1, 9 * SECOND), 1);
    }
    int count = count_at("one more", 3000, 9 * SECOND);
    cr_assert(count > 0 && count <= 1000, "%d", count);
}
