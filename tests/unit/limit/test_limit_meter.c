/*
 * Meters: that both algorithms, from one an hour to a million a second, admit what they say when they say it; and that
 * a queue served in order at the times that wait_behind() promised finds its turn come.
 */
#include "../../rig/rig_random.h"
#include "limit/limit_meter.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
/* What a clock that has run for a year shows. */
#define NOW (INT64_C(365) * 24 * HOUR + 123457)

static struct limit_meter window_of(int64_t limit, int64_t length_us)
{
    return (struct limit_meter){
        .algorithm = LIMIT_SLIDING_WINDOW, .most = limit, .window = {.limit = limit, .length_us = length_us}};
}

static struct limit_meter funnel_of(int64_t capacity, int64_t leak, int64_t period_us)
{
    struct limit_meter meter = {.algorithm = LIMIT_FUNNEL, .most = capacity};

    cr_assert(limit_funnel_make(&meter.funnel, capacity, leak, period_us * 1000));
    return meter;
}

/* Rounded up. */
static int64_t drop_ns(const struct limit_meter *meter)
{
    return (int64_t)((meter->funnel.drop + LIMIT_FUNNEL_NS - 1) / LIMIT_FUNNEL_NS);
}

/* Admits if it may; the wait otherwise. */
static int64_t try(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us, int64_t cost)
{
    int64_t wait = limit_meter_wait(meter, state, now_us, cost);

    if (wait == 0) {
        cr_assert(limit_meter_charge(meter, state, now_us, cost));
    }
    return wait;
}

/* From one an hour to a million a second; waits of the funnels are whole µs. */
static size_t all_meters(struct limit_meter *meters)
{
    const struct limit_meter list[] = {
        window_of(1, HOUR),
        window_of(5, 60 * SECOND),
        window_of(64, SECOND),
        window_of(65, SECOND),
        window_of(1000, SECOND),
        window_of(1000000, SECOND),
        window_of(1, 1),
        funnel_of(1, 1, HOUR),
        funnel_of(20, 5, SECOND),
        funnel_of(10, 100, 250000),
        funnel_of(1, 1000, SECOND),
        funnel_of(1000, 1000, SECOND),
        funnel_of(1000000, 1000000, SECOND),
        funnel_of(1, 1000000, SECOND),
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        meters[i] = list[i];
    }
    return sizeof list / sizeof list[0];
}

#define METERS_MAX 20

static const char *name_of(const struct limit_meter *meter)
{
    static char name[80];

    snprintf(name, sizeof name,
             meter->algorithm == LIMIT_FUNNEL ? "funnel of %lld, %lld ns" : "window of %lld, %lld us",
             (long long)meter->most,
             (long long)(meter->algorithm == LIMIT_FUNNEL ? drop_ns(meter) : meter->window.length_us));
    return name;
}

Test(limit_meter, admits_its_most_at_once_and_tells_to_the_microsecond_when_there_is_more)
{
    struct limit_meter meters[METERS_MAX];
    size_t count = all_meters(meters);

    for (size_t i = 0; i < count; i++) {
        const struct limit_meter *meter = &meters[i];
        union limit_meter_state state = {0};
        cr_assert_eq(try(meter, &state, NOW, meter->most + 1), LIMIT_NEVER, "%s", name_of(meter));
        cr_assert_eq(limit_meter_wait_behind(meter, &state, NOW, 0, meter->most + 1), LIMIT_NEVER);
        cr_assert_eq(limit_meter_wait_behind(meter, &state, NOW, 7, meter->most + 1), LIMIT_NEVER);
        cr_assert_eq(try(meter, &state, NOW, meter->most), 0, "%s", name_of(meter));
        int64_t wait = limit_meter_wait(meter, &state, NOW, 1);
        cr_assert_eq(wait, meter->algorithm == LIMIT_FUNNEL ? drop_ns(meter) / 1000 : meter->window.length_us);
        cr_assert(wait == 1 || try(meter, &state, NOW + 1, 1) == wait - 1);
        cr_assert_eq(limit_meter_wait(meter, &state, NOW + wait - 1, 1), 1);
        cr_assert_eq(try(meter, &state, NOW + wait, 1), 0, "%s", name_of(meter));
        limit_meter_clear(meter, &state);
        /* It is idle when its state says nothing any more, and then as good as new. */
        cr_assert(limit_meter_is_idle(meter, &state, NOW));
        cr_assert_eq(try(meter, &state, NOW, 1), 0);
        cr_assert(!limit_meter_is_idle(meter, &state, NOW) && !limit_meter_is_idle(meter, &state, NOW + wait - 1));
        cr_assert(limit_meter_is_idle(meter, &state, NOW + wait), "%s", name_of(meter));
        cr_assert_eq(try(meter, &state, NOW + wait, meter->most), 0, "%s", name_of(meter));
        limit_meter_clear(meter, &state);
    }
}

/* ---- queues ---- */

#define QUEUE_MAX 400

struct queued {
    int64_t cost;
    int64_t promised_us;
};

/* Some admissions of the last while, as they come; returns the time at which the last of them came. */
static int64_t use(const struct limit_meter *meter, union limit_meter_state *state, uint64_t *seed)
{
    int64_t span = meter->algorithm == LIMIT_FUNNEL ? meter->funnel.full_ns / 1000 + 1 : meter->window.length_us;
    int64_t now = NOW;

    for (uint64_t i = next_random(seed) % 50; i > 0; i--) {
        now += (int64_t)(next_random(seed) % 16) * span / 100;
        (void)try(meter, state, now, 1 + (int64_t)(next_random(seed) % (uint64_t)meter->most));
    }
    return now;
}

static size_t make_queue(const struct limit_meter *meter, union limit_meter_state *state, int64_t now, int64_t cost_max,
                         uint64_t *seed, struct queued *queue)
{
    size_t count = 1 + next_random(seed) % QUEUE_MAX;
    int64_t before = 0;

    for (size_t i = 0; i < count; i++) {
        queue[i].cost = 1 + (int64_t)(next_random(seed) % (uint64_t)cost_max);
        int64_t wait = limit_meter_wait_behind(meter, state, now, before, queue[i].cost);
        cr_assert_geq(wait, 0);
        cr_assert(i > 0 || wait == limit_meter_wait(meter, state, now, queue[0].cost), "behind nobody");
        queue[i].promised_us = now + wait;
        cr_assert(i == 0 || queue[i - 1].promised_us <= queue[i].promised_us, "in order");
        before += queue[i].cost;
    }
    return count;
}

/* All are admissible when promised, and no one a µs before. */
static void serve_queue(const struct limit_meter *meter, union limit_meter_state *state, int64_t now,
                        const struct queued *queue, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t at = queue[i].promised_us;
        /* Asked at an earlier time than that of the one before, a state might have forgotten too much already. */
        bool can_ask_earlier = at - 1 >= now && (i == 0 || at - 1 >= queue[i - 1].promised_us);
        if (can_ask_earlier) {
            cr_assert_eq(limit_meter_wait(meter, state, at - 1, queue[i].cost), 1, "%s: %zu could come earlier",
                         name_of(meter), i);
        }
        cr_assert_eq(limit_meter_wait(meter, state, at, queue[i].cost), 0, "%s: %zu of %zu", name_of(meter), i, count);
        cr_assert(limit_meter_charge(meter, state, at, queue[i].cost));
    }
}

static void run_queues(const struct limit_meter *meter, int64_t cost_max)
{
    struct queued queue[QUEUE_MAX];
    uint64_t seed = (uint64_t)meter->most;

    for (int round = 0; round < 300; round++) {
        union limit_meter_state state = {0};
        int64_t now = use(meter, &state, &seed);
        size_t count = make_queue(meter, &state, now, cost_max, &seed, queue);
        serve_queue(meter, &state, now, queue, count);
        limit_meter_clear(meter, &state);
    }
}

/* Up to LIMIT_WINDOW_SLOTS, windows are exact, and so is what they promise to requests of cost 1. */
Test(limit_meter, keeps_its_promises_to_a_queue_at_a_window)
{
    static const int64_t limits[] = {1, 2, 5, 63, 64};
    static const int64_t lengths[] = {1, 1000, SECOND, HOUR};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            struct limit_meter meter = window_of(limits[i], lengths[j]);
            run_queues(&meter, 1);
        }
    }
}

/* Those that leak in whole µs, with requests of any cost. */
Test(limit_meter, keeps_its_promises_to_a_queue_at_a_funnel)
{
    struct limit_meter meters[METERS_MAX];
    size_t count = all_meters(meters);

    for (size_t i = 0; i < count; i++) {
        if (meters[i].algorithm == LIMIT_FUNNEL) {
            run_queues(&meters[i], 1);
            run_queues(&meters[i], meters[i].most);
        }
    }
}

/* How much later than promised the last one of a queue is served, who asks again when it is told to. */
static int64_t lateness(const struct limit_meter *meter, union limit_meter_state *state, const struct queued *queue,
                        size_t count)
{
    int64_t now = 0, late = 0;

    for (size_t i = 0; i < count; i++) {
        now = now > queue[i].promised_us ? now : queue[i].promised_us;
        for (int64_t wait; (wait = try(meter, state, now, queue[i].cost)) > 0;) {
            now += wait;
        }
        late = now - queue[i].promised_us;
    }
    return late;
}

/* Windows whose slots are shared give back a permit up to a slot late, in each window that passes. */
Test(limit_meter, promises_about_what_it_keeps_at_a_large_window)
{
    static const int64_t limits[] = {65, 100, 128, 200};
    struct queued queue[QUEUE_MAX];
    uint64_t seed = 3;

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct limit_meter meter = window_of(limits[i], SECOND);
        for (int round = 0; round < 300; round++) {
            union limit_meter_state state = {0};
            int64_t now = use(&meter, &state, &seed);
            size_t count = make_queue(&meter, &state, now, 1, &seed, queue);
            int64_t windows = (queue[count - 1].promised_us - now) / SECOND + 1;
            int64_t late = lateness(&meter, &state, queue, count);
            cr_assert_leq(late, windows * (SECOND / LIMIT_WINDOW_SLOTS + 1), "%s: %lld us late after %lld windows",
                          name_of(&meter), (long long)late, (long long)windows);
            limit_meter_clear(&meter, &state);
        }
    }
}

Test(limit_meter, what_is_left_is_the_most_that_needs_no_wait)
{
    struct limit_meter meters[32];
    size_t count = all_meters(meters);

    for (size_t i = 0; i < count; i++) {
        union limit_meter_state state = {0};
        int64_t now = NOW;
        for (int round = 0; round < 200; round++) {
            int64_t left = limit_meter_left(&meters[i], &state, now);
            cr_assert(left >= 0 && left <= meters[i].most);
            cr_assert(left == 0 || limit_meter_wait(&meters[i], &state, now, left) == 0);
            cr_assert_gt(limit_meter_wait(&meters[i], &state, now, left + 1), 0);
            if (left > 0) {
                cr_assert(limit_meter_charge(&meters[i], &state, now, (left + 1) / 2));
            }
            now += 1 + (round * INT64_C(7919)) % 300000;
        }
        limit_meter_clear(&meters[i], &state);
    }
}
