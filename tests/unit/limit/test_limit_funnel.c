/* The funnel: what fits, when more fits, and that it never leaks faster than it was told. */
#include "limit/limit_funnel.h"

#include <criterion/criterion.h>

#define SECOND INT64_C(1000000000)
#define HOUR (3600 * SECOND)

static struct limit_funnel make(int64_t capacity, int64_t leak, int64_t period_ns)
{
    struct limit_funnel funnel;

    cr_assert(limit_funnel_make(&funnel, capacity, leak, period_ns));
    return funnel;
}

/* Admits if it fits; the wait otherwise. */
static int64_t try(const struct limit_funnel *funnel, limit_funnel_state *state, int64_t now_ns, int64_t cost)
{
    int64_t wait = limit_funnel_wait(funnel, *state, now_ns, cost, 0);

    if (wait == 0) {
        limit_funnel_charge(funnel, state, now_ns, cost);
    }
    return wait;
}

Test(limit_funnel, refuses_what_it_cannot_reckon_with)
{
    struct limit_funnel funnel;

    cr_assert_not(limit_funnel_make(&funnel, 1000000, 1, HOUR));
    cr_assert_not(limit_funnel_make(&funnel, INT64_MAX, 1, INT64_MAX));
    cr_assert(limit_funnel_make(&funnel, INT64_C(1000000000), 1000000, SECOND));
    limit_funnel_state state = 0;
    int64_t late = INT64_C(100) * 366 * 86400 * SECOND;
    cr_assert_eq(try(&funnel, &state, late, INT64_C(1000000000)), 0);
    cr_assert_eq(try(&funnel, &state, late, INT64_MAX), LIMIT_NEVER);
    cr_assert_eq(try(&funnel, &state, late, 1), 1000);
}

/* From kilobytes to a terabyte a second, in requests of any size, and not faster either. */
Test(limit_funnel, keeps_any_rate_to_a_thousandth)
{
    static const int64_t leaks[] = {
        1000, 3333, 10 << 20, 300 << 20, 900 << 20, INT64_C(2) << 30, INT64_C(1000000000000)};
    static const int64_t costs[] = {1, 20, 4096, 1 << 20};

    for (size_t i = 0; i < sizeof leaks / sizeof leaks[0]; i++) {
        for (size_t j = 0; j < sizeof costs / sizeof costs[0]; j++) {
            struct limit_funnel funnel = make(10000 * costs[j], leaks[i], SECOND);
            limit_funnel_state state = 0;
            for (int n = 0; n < 10000; n++) {
                cr_assert_eq(try(&funnel, &state, HOUR, costs[j]), 0);
            }
            double takes_ns = (double)(state - HOUR * LIMIT_FUNNEL_NS) / (double)LIMIT_FUNNEL_NS;
            double rate = 1e4 * (double)costs[j] * 1e9 / takes_ns;
            cr_assert(rate <= (double)leaks[i] && rate >= (double)leaks[i] * 0.999, "%g for %g", rate,
                      (double)leaks[i]);
        }
    }
}

/* Against a bucket that is reckoned with in steps of a drop: level and time as they are. */
Test(limit_funnel, agrees_with_a_bucket_on_random_arrivals)
{
    uint64_t seed = 12345;

    for (int round = 0; round < 200; round++) {
        int64_t capacity = 1 + (int64_t)(seed >> 33) % 20, drop = 1 + (int64_t)(seed >> 40) % 1000;
        struct limit_funnel funnel = make(capacity, 1, drop);
        limit_funnel_state state = 0;
        int64_t level_ns = 0, last = 0, now = 0;
        for (int i = 0; i < 500; i++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            now += (int64_t)(seed >> 33) % (2 * drop);
            int64_t cost = 1 + (int64_t)(seed >> 50) % 3;
            level_ns = level_ns > now - last ? level_ns - (now - last) : 0;
            last = now;
            bool fits = level_ns + cost * drop <= capacity * drop;
            cr_assert_eq(try(&funnel, &state, now, cost) == 0, fits);
            level_ns += fits ? cost * drop : 0;
        }
    }
}
