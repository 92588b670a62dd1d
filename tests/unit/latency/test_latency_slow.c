/* The logs of slow and large requests: the newest are kept, with copies of everything, in bounded memory. */
#include "latency/latency_slow.h"

#include <criterion/criterion.h>
#include <string.h>

static void add(struct latency_slow_log *log, int64_t redis_us)
{
    char excerpt[LATENCY_EXCERPT_MAX], name[32];
    size_t length = latency_excerpt_make(slice_of("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), true, excerpt);
    snprintf(name, sizeof name, "client-%d", (int)redis_us);
    const struct latency_slow_entry entry = {
        .id = 77,
        .unix_us = 1700000000000123,
        .queued_us = 12,
        .redis_us = redis_us,
        .writing_us = 8,
        .bytes_in = 20,
        .bytes_out = 5,
        .address = slice_of("10.0.0.1:4711"),
        .name = slice_of(name),
        .user = slice_of("default"),
        .excerpt = {excerpt, length},
    };
    cr_assert(latency_slow_log_add(log, &entry));
    memset(excerpt, 'x', sizeof excerpt);
}

/* Valid until the next call. */
static const char *printed(const struct latency_slow_log *log, size_t most)
{
    static char shown[16384];
    FILE *out = fmemopen(shown, sizeof shown, "w");

    uint64_t before = UINT64_MAX;
    (void)latency_slow_log_print(log, &before, most, out);
    fputc('\0', out);
    cr_assert_eq(fclose(out), 0);
    return shown;
}

Test(latency_slow, is_printed_in_parts)
{
    struct latency_slow_log *log = latency_slow_log_new(5);
    FILE *out = fopen("/dev/null", "w");
    uint64_t before = UINT64_MAX;

    cr_assert_eq(latency_slow_log_print(log, &before, 3, out), 0);
    for (int64_t i = 0; i < 8; i++) {
        add(log, i);
    }
    cr_assert_eq(latency_slow_log_print(log, &before, 3, out), 3);
    cr_assert_eq(before, 5, "7, 6 and 5");
    add(log, 8);
    cr_assert_eq(latency_slow_log_print(log, &before, 3, out), 1, "3 was overwritten");
    cr_assert_eq(before, 4);
    cr_assert_eq(latency_slow_log_print(log, &before, 3, out), 0);
    before = 9;
    cr_assert_eq(latency_slow_log_print(log, &before, 1, out), 1);
    cr_assert_eq(before, 8);
    fclose(out);
    latency_slow_log_free(log);
}

Test(latency_slow, what_clients_say_of_themselves_is_cut_and_quoted)
{
    static char name[10000];
    struct latency_slow_log *log = latency_slow_log_new(1);

    memset(name, '\n', sizeof name);
    const struct latency_slow_entry entry = {.name = {name, sizeof name}, .writing_us = -1};
    cr_assert(latency_slow_log_add(log, &entry));
    const char *shown = printed(log, 1);
    cr_assert_eq(strstr(shown, " user=") - strstr(shown, " name="), 8 + 2 * LATENCY_SLOW_TEXT_MAX, "as \\n");
    cr_assert_eq(strchr(shown, '\n')[1], '\0', "one line");
    cr_assert_not_null(strstr(shown, " name=\"\\n\\n"));
    latency_slow_log_free(log);
}
