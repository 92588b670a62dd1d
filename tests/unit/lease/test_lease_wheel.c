/* The wheel: who is due is found in time and once, whatever was set, taken back, rushed or slept through. */
#include "lease/lease_wheel.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define STEP LEASE_WHEEL_STEP_US
#define ROUND (STEP * LEASE_WHEEL_SLOTS)
#define NOW (INT64_C(1234567) * STEP)

static struct lease_wheel *wheel_at(int64_t now_us)
{
    struct lease_wheel *wheel = calloc(1, sizeof *wheel);

    cr_assert_null(lease_wheel_take(wheel, now_us));
    return wheel;
}

static size_t take_all(struct lease_wheel *wheel, int64_t now_us)
{
    size_t count = 0;

    for (; lease_wheel_take(wheel, now_us) != NULL; count++) {
    }
    return count;
}

Test(lease_wheel, finds_in_the_step_that_was_set)
{
    static const int64_t times[] = {0, 1, STEP - 1, STEP, 5 * STEP + 7, ROUND - 1, ROUND, ROUND + 1, 10 * ROUND + 3};

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct lease_wheel *wheel = wheel_at(NOW - STEP);
        struct lease_wheel_entry entry = {0};
        lease_wheel_set(wheel, &entry, NOW + times[i]);
        int64_t step = (NOW + times[i]) / STEP;
        for (int64_t now = NOW / STEP; now < step; now++) {
            cr_assert_null(lease_wheel_take(wheel, now * STEP + STEP - 1));
        }
        cr_assert_eq(lease_wheel_take(wheel, step * STEP), &entry);
        cr_assert_not(entry.is_set);
        cr_assert_null(lease_wheel_take(wheel, step * STEP + 20 * ROUND));
        free(wheel);
    }
}

Test(lease_wheel, finds_at_once_what_was_set_in_the_past)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[3] = {0};

    lease_wheel_set(wheel, &entries[0], 0);
    lease_wheel_set(wheel, &entries[1], -5 * STEP);
    lease_wheel_set(wheel, &entries[2], NOW - ROUND);
    cr_assert_eq(take_all(wheel, NOW), (size_t)3);
    free(wheel);
}

Test(lease_wheel, finds_all_after_a_pause_longer_than_a_round)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[3000] = {0};

    for (int i = 0; i < 3000; i++) {
        lease_wheel_set(wheel, &entries[i], NOW + STEP + i * STEP);
    }
    cr_assert_eq(take_all(wheel, NOW + 2000 * STEP), (size_t)2000);
    cr_assert_eq(take_all(wheel, NOW + 2999 * STEP), (size_t)999);
    cr_assert_eq(take_all(wheel, NOW + 3000 * STEP), (size_t)1);
    free(wheel);
}

Test(lease_wheel, takes_the_last_time_that_was_set)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entry = {0};

    lease_wheel_set(wheel, &entry, NOW + 10 * STEP);
    lease_wheel_set(wheel, &entry, NOW + 20 * STEP);
    cr_assert_null(lease_wheel_take(wheel, NOW + 19 * STEP));
    lease_wheel_set(wheel, &entry, NOW + 5 * STEP);
    cr_assert_eq(lease_wheel_take(wheel, NOW + 19 * STEP), &entry);
    cr_assert_eq(take_all(wheel, NOW + ROUND), (size_t)0);
    free(wheel);
}

Test(lease_wheel, cancels_wherever_it_stands)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[3] = {0};

    /* In one slot: the first, the middle and the last of it; and again when they are ready. */
    for (size_t cancelled = 0; cancelled < 3; cancelled++) {
        for (int ready = 0; ready < 2; ready++) {
            for (size_t i = 0; i < 3; i++) {
                lease_wheel_set(wheel, &entries[i], ready ? 0 : NOW + STEP);
            }
            lease_wheel_cancel(&entries[cancelled]);
            lease_wheel_cancel(&entries[cancelled]);
            for (int n = 0; n < 2; n++) {
                const struct lease_wheel_entry *taken = lease_wheel_take(wheel, NOW + STEP);
                cr_assert(taken != NULL && taken != &entries[cancelled]);
            }
            cr_assert_null(lease_wheel_take(wheel, NOW + STEP));
        }
    }
    free(wheel);
}

Test(lease_wheel, cancels_among_those_that_became_ready)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[5] = {0};

    for (size_t i = 0; i < 5; i++) {
        lease_wheel_set(wheel, &entries[i], NOW + STEP);
    }
    struct lease_wheel_entry *first = lease_wheel_take(wheel, NOW + STEP);
    for (size_t i = 0; i < 5; i++) {
        if (&entries[i] != first) {
            cr_assert(entries[i].is_set);
            lease_wheel_cancel(&entries[i]);
        }
    }
    cr_assert_null(lease_wheel_take(wheel, NOW + STEP));
    free(wheel);
}

Test(lease_wheel, rushes_all_and_forgets_none)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[100] = {0};

    for (int i = 0; i < 100; i++) {
        lease_wheel_set(wheel, &entries[i], NOW + i * i * 13 * STEP);
    }
    lease_wheel_rush(wheel);
    cr_assert_eq(take_all(wheel, NOW), (size_t)100);
    cr_assert_eq(take_all(wheel, NOW + 10 * ROUND), (size_t)0);
    free(wheel);
}

/* Against a list that is gone through each time. */
Test(lease_wheel, finds_whatever_is_due_and_nothing_else)
{
    struct lease_wheel *wheel = wheel_at(NOW);
    struct lease_wheel_entry entries[50] = {0};
    uint32_t random = 7;
    int64_t now = NOW;

    for (int round = 0; round < 20000; round++) {
        struct lease_wheel_entry *entry = &entries[next_random(&random) % 50];
        uint32_t what = next_random(&random) % 4;
        if (what == 0) {
            lease_wheel_cancel(entry);
        } else if (what < 3) {
            lease_wheel_set(wheel, entry, now - 3 * STEP + (int64_t)(next_random(&random) % 3000) * STEP / 2);
        } else {
            now += (int64_t)(next_random(&random) % 50) * STEP * (next_random(&random) % 100 == 0 ? 100 : 1) / 3;
            for (struct lease_wheel_entry *taken = NULL; (taken = lease_wheel_take(wheel, now)) != NULL;) {
                cr_assert_leq(taken->due_us / STEP, now / STEP);
            }
            for (size_t i = 0; i < 50; i++) {
                cr_assert(!entries[i].is_set || entries[i].due_us / STEP > now / STEP);
            }
        }
    }
    free(wheel);
}
