#include "latency/latency_tally.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char text[LATENCY_TALLY_TEXT_MAX];

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
