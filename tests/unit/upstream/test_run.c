/* Recycled runs: always blank, never two at once, and given back when there are too many. */
#include "upstream/run.h"

#include <criterion/criterion.h>
#include <string.h>

static struct run_pool runs;

static void empty_pool(void)
{
    runs = (struct run_pool){0};
}

static void check_pool(void)
{
    run_pool_trim(&runs, 0);
    cr_assert_eq(runs.count, 0);
    cr_assert_null(runs.free);
}

TestSuite(run, .init = empty_pool, .fini = check_pool);

static void assert_blank(const struct run *run)
{
    static const struct run blank;

    cr_assert_not_null(run);
    cr_assert_eq(memcmp(run, &blank, sizeof blank), 0, "a run is handed out with something left in it");
}

Test(run, a_run_that_was_used_is_blank_again)
{
    struct run *run = run_take(&runs);

    assert_blank(run);
    run->requests = 7;
    run->answered = 7;
    run->owner = run;
    run->first_byte = 12345;
    run->reply_bytes = 99;
    run->client_next = run;
    run_give(&runs, run);
    cr_assert_eq(runs.count, 1);
    struct run *again = run_take(&runs);
    cr_assert_eq(again, run, "it is recycled");
    assert_blank(again);
    cr_assert_eq(runs.count, 0);
    run_give(&runs, again);
}

Test(run, trimming_frees_what_is_too_much)
{
    struct run *taken[10];

    for (size_t i = 0; i < 10; i++) {
        taken[i] = run_take(&runs);
    }
    for (size_t i = 0; i < 10; i++) {
        run_give(&runs, taken[i]);
    }
    run_pool_trim(&runs, 20);
    cr_assert_eq(runs.count, 10);
    run_pool_trim(&runs, 4);
    cr_assert_eq(runs.count, 4);
    size_t found = 0;
    for (struct run *run = runs.free; run != NULL; run = run->lane_next) {
        found++;
    }
    cr_assert_eq(found, 4);
}
