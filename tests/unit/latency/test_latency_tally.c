#include "latency/latency_tally.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char text[LATENCY_TALLY_TEXT_MAX];

Test(latency_tally, counts_by_the_second)
{
    struct latency_tally tally = {0};

    cr_assert_eq(latency_tally_take(&tally, 100, text), 0);
    latency_tally_add(&tally, 100, 0);
    cr_assert_eq(latency_tally_take(&tally, 100, text), 0, "nothing is nothing");
    latency_tally_add(&tally, 100, 2);
    latency_tally_add(&tally, 100, 3);
    latency_tally_add(&tally, 103, 1);
    cr_assert_eq(latency_tally_take(&tally, 104, text), 1);
    cr_assert_str_eq(text, "4 5 1 1");
}

Test(latency_tally, repeats_a_snapshot_with_ages_that_count_from_then)
{
    struct latency_tally tally = {0};

    latency_tally_add(&tally, 100, 5);
    cr_assert_eq(latency_tally_take(&tally, 101, text), 1);
    latency_tally_add(&tally, 102, 7);
    cr_assert_eq(latency_tally_take(&tally, 110, text), 1);
    cr_assert_str_eq(text, "10 5");
    latency_tally_acknowledge(&tally);
    cr_assert_eq(latency_tally_take(&tally, 110, text), 2);
    cr_assert_str_eq(text, "8 7");
    latency_tally_acknowledge(&tally);
    cr_assert_eq(latency_tally_take(&tally, 110, text), 0);
}

/* Each worker goes by the time of its own turn. */
Test(latency_tally, knows_no_second_to_come)
{
    struct latency_tally tally = {0};

    latency_tally_add(&tally, 100, 5);
    latency_tally_add(&tally, 101, 7);
    latency_tally_add(&tally, 100, 1);
    cr_assert_eq(latency_tally_take(&tally, 100, text), 1);
    cr_assert_str_eq(text, "0 5 0 7 0 1");
}

Test(latency_tally, loses_seconds_but_no_counts)
{
    struct latency_tally tally = {0};
    unsigned long long sum = 0, seconds = 0;

    for (int second = 0; second < 1000; second++) {
        latency_tally_add(&tally, second, UINT64_C(1) << 40);
    }
    cr_assert_eq(latency_tally_take(&tally, INT64_C(1) << 40, text), 1);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        sum += strtoull(strtok(NULL, " "), NULL, 10);
        seconds++;
    }
    cr_assert_eq(sum, 1000 * (1ULL << 40));
    cr_assert_eq(seconds, LATENCY_TALLY_SECONDS);
}
