#include "latency/latency_tally.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char text[LATENCY_TALLY_TEXT_MAX];

static const char *written(const struct latency_tally_list *list, int64_t second)
{
    latency_tally_write(list, second, text);
    return text;
}

/* Each worker goes by the time of its own turn. */
Test(latency_tally, knows_no_second_to_come)
{
    struct latency_tally_list list = {0};

    latency_tally_add(&list, 100, 5);
    latency_tally_add(&list, 101, 7);
    latency_tally_add(&list, 100, 1);
    cr_assert_str_eq(written(&list, 100), "0 5 0 7 0 1");
}

Test(latency_tally, loses_seconds_but_no_counts)
{
    struct latency_tally_list list = {0};
    unsigned long long sum = 0, seconds = 0;

    for (int second = 0; second < 1000; second++) {
        latency_tally_add(&list, second, UINT64_C(1) << 40);
    }
    latency_tally_write(&list, INT64_C(1) << 40, text);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        sum += strtoull(strtok(NULL, " "), NULL, 10);
        seconds++;
    }
    cr_assert_eq(sum, 1000 * (1ULL << 40));
    cr_assert_eq(seconds, LATENCY_TALLY_SECONDS);
}
