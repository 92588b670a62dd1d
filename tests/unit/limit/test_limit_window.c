/*
 * The sliding window. The property that matters is checked against a plain list of all admissions: in no window were
 * more than the limit, whatever the arrivals; and small limits admit all that may be admitted.
 */
#include "../../rig/rig_random.h"
#include "limit/limit_window.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define ADMISSIONS_MAX 200000

struct history {
    int64_t at[ADMISSIONS_MAX]; /* one entry for each unit of cost */
    size_t count;
    size_t oldest; /* the first that may still be within the window */
};

/* Admits if it may; the wait otherwise. */
static int64_t try(const struct limit_window *window, struct limit_window_state *state, int64_t now_us, int64_t cost)
{
    int64_t wait = limit_window_wait(window, state, now_us, cost);

    if (wait == 0) {
        cr_assert(limit_window_charge(window, state, now_us, cost));
    }
    return wait;
}

/* How many were admitted in the window that ends now. */
static int64_t within(struct history *history, const struct limit_window *window, int64_t now_us)
{
    while (history->oldest < history->count && history->at[history->oldest] <= now_us - window->length_us) {
        history->oldest++;
    }
    return (int64_t)(history->count - history->oldest);
}

static void run_random(uint64_t seed, int64_t limit, int64_t length_us, int64_t pause_us, int64_t cost_max)
{
    static struct history history;
    const struct limit_window window = {.limit = limit, .length_us = length_us};
    bool exact = limit <= LIMIT_WINDOW_SLOTS;
    struct limit_window_state state = {0};
    int64_t now = 0;

    history.count = history.oldest = 0;
    for (int i = 0; i < 20000; i++) {
        /* Bursts and pauses: one in eight is as long as the window. */
        now += next_random(&seed) % 8 == 0 ? (int64_t)(next_random(&seed) % (uint64_t)(length_us + 1))
                                           : (int64_t)(next_random(&seed) % (uint64_t)(pause_us + 1));
        int64_t cost = 1 + (int64_t)(next_random(&seed) % (uint64_t)cost_max);
        int64_t before = within(&history, &window, now);
        int64_t wait = try(&window, &state, now, cost);
        if (exact) {
            cr_assert_eq(wait == 0, before + cost <= limit, "limit %lld, at %lld", (long long)limit, (long long)now);
        }
        for (int64_t unit = 0; wait == 0 && unit < cost && history.count < ADMISSIONS_MAX; unit++) {
            history.at[history.count++] = now;
        }
        cr_assert_leq(within(&history, &window, now), limit);
        cr_assert(wait == LIMIT_NEVER ? cost > limit : wait >= 0 && wait <= length_us);
    }
    limit_window_clear(&state);
}

Test(limit_window, never_admits_more_on_random_arrivals)
{
    static const int64_t limits[] = {1, 2, 7, 64, 65, 100, 1000};
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 127, 129, 1000, 1000000};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            run_random(i * 100 + j, limits[i], lengths[j], lengths[j] / limits[i] + 1, 1);
            run_random(i * 100 + j, limits[i], lengths[j], 0, 3);
            run_random(i * 100 + j, limits[i], lengths[j], lengths[j] / 50, limits[i] > 3 ? 3 : limits[i]);
        }
    }
}

/* Asks again exactly when it was told to, which is when most would slip through. */
Test(limit_window, never_admits_more_to_who_always_comes_as_soon_as_told)
{
    static struct history history;
    static const int64_t limits[] = {1, 5, 64, 65, 500, 5000};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const struct limit_window window = {.limit = limits[i], .length_us = 100000};
        struct limit_window_state state = {0};
        uint64_t seed = i;
        int64_t now = 0, windows = 0;
        history.count = history.oldest = 0;
        for (windows = 0; history.count < 20000; windows++) {
            int64_t wait = try(&window, &state, now, 1);
            if (wait == 0) {
                history.at[history.count++] = now;
                cr_assert_leq(within(&history, &window, now), limits[i]);
                now += (int64_t)(next_random(&seed) % 3);
            }
            now += wait;
        }
        /* Hardly fewer than may be: a share of the window is lost at most each time round. */
        int64_t possible = (now / window.length_us + 1) * limits[i];
        cr_assert_geq((int64_t)history.count * 100, possible * 95, "limit %lld: %zu of %lld", (long long)limits[i],
                      history.count, (long long)possible);
        limit_window_clear(&state);
    }
}

Test(limit_window, is_bounded_in_memory)
{
    const struct limit_window window = {.limit = INT64_C(1000000000000000), .length_us = INT64_C(3600000000)};
    struct limit_window_state state = {0};

    for (int64_t now = 0; now < window.length_us * 3; now += window.length_us / 1000 + 1) {
        cr_assert_eq(try(&window, &state, now, 1000), 0);
        cr_assert_leq(state.room, LIMIT_WINDOW_SLOTS + 2);
    }
    cr_assert_geq(state.used, LIMIT_WINDOW_SLOTS - 4);
    limit_window_clear(&state);
    cr_assert(limit_window_is_idle(&window, &state, 0));
}
