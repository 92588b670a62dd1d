/* The wheel: who is due is found in time and once, whatever was set, taken back, rushed or slept through. */
#include "lease/lease_wheel.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define STEP LEASE_WHEEL_STEP_US
#define NOW (INT64_C(1234567) * STEP)

static struct lease_wheel *wheel_at(int64_t now_us)
{
    struct lease_wheel *wheel = calloc(1, sizeof *wheel);

    cr_assert_null(lease_wheel_take(wheel, now_us));
    return wheel;
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
                cr_assert(taken->due_us / STEP <= now / STEP && !taken->is_set);
                if (next_random(&random) % 3 == 0) {
                    lease_wheel_cancel(&entries[next_random(&random) % 50]);
                }
            }
            for (size_t i = 0; i < 50; i++) {
                cr_assert(!entries[i].is_set || entries[i].due_us / STEP > now / STEP);
            }
        }
    }
    free(wheel);
}
