/* Space-Saving against exact counts: what it promises holds over even, skewed and hostile streams, and after merging.
 */
#include "../../rig/rig_random.h"
#include "latency/latency_sketch.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 3000

static uint64_t chance(uint64_t bound)
{
    static uint64_t seed = 1;

    return next_random(&seed) % bound;
}

static struct slice key_of(uint64_t number)
{
    static char key[32];

    return (struct slice){key, (size_t)snprintf(key, sizeof key, "key:%" PRIu64, number)};
}

static void add(struct latency_sketch *sketch, uint64_t exact[KEYS], uint64_t number, uint64_t weight)
{
    latency_sketch_add(sketch, key_of(number), weight);
    exact[number] += weight;
}

/* 0: all alike; 1: few make up most; 2: one after the other, over and over; 3: hot ones among many that come once. */
static uint64_t draw(int stream, uint64_t step)
{
    switch (stream) {
    case 0:
        return chance(KEYS);
    case 1:
        return chance(1 + chance(1 + chance(1 + chance(KEYS))));
    case 2:
        return step % KEYS;
    default:
        return chance(3) == 0 ? chance(5) : 5 + step % (KEYS - 5);
    }
}

/* What the header says. */
static void assert_promises(const struct latency_sketch *sketch, const uint64_t exact[KEYS], uint32_t most)
{
    static struct latency_hot_key top[KEYS];
    static bool seen[KEYS];
    size_t count = latency_sketch_top(sketch, top, KEYS);
    uint64_t total = 0, least = latency_sketch_least(sketch);

    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < KEYS; i++) {
        total += exact[i];
    }
    cr_assert_eq(latency_sketch_total(sketch), total);
    cr_assert_leq(count, most);
    cr_assert_eq(least, count < most ? 0 : top[count - 1].count);
    cr_assert_leq(least, total / most);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%.*s", (int)top[i].key.length, top[i].key.data);
        uint64_t number = strtoull(key + 4, NULL, 10);
        cr_assert_lt(number, KEYS);
        cr_assert_not(seen[number], "key %" PRIu64 " is there twice", number);
        seen[number] = true;
        cr_assert(i == 0 || top[i].count <= top[i - 1].count);
        cr_assert_geq(top[i].count, exact[number]);
        cr_assert_leq(top[i].count - top[i].error, exact[number]);
        cr_assert_leq(top[i].error, total / most);
    }
    for (size_t i = 0; i < KEYS; i++) {
        cr_assert(seen[i] || exact[i] <= least, "key %zu occurred %" PRIu64 " times and is missing", i, exact[i]);
        cr_assert(seen[i] || exact[i] <= total / most);
    }
}

static const uint32_t sizes[] = {1, 2, 3, 20, 100, 1000, KEYS};

Test(latency_sketch, keeps_its_promises_when_merged)
{
    for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        for (int round = 0; round < 8; round++) {
            static uint64_t exact[KEYS];
            struct latency_sketch *workers[3];
            memset(exact, 0, sizeof exact);
            for (int worker = 0; worker < 3; worker++) {
                workers[worker] = latency_sketch_new(sizes[size]);
                /* Some have nothing, or are not full; some have the same hot keys, some each its own. */
                for (uint64_t step = 0, steps = chance(3) * chance(4000); step < steps; step++) {
                    uint64_t shift = round % 2 == 0 ? 0 : (uint64_t)worker * (KEYS / 3);
                    add(workers[worker], exact, (draw((round / 2 + worker) % 4, step) + shift) % KEYS, 1);
                }
            }
            latency_sketch_merge(workers[0], workers[1]);
            latency_sketch_merge(workers[0], workers[2]);
            assert_promises(workers[0], exact, sizes[size]);
            /* It goes on counting. */
            for (uint64_t step = 0; step < 2000; step++) {
                add(workers[0], exact, draw(round % 4, step), 1);
            }
            assert_promises(workers[0], exact, sizes[size]);
            for (int worker = 0; worker < 3; worker++) {
                latency_sketch_free(workers[worker]);
            }
        }
    }
}

Test(latency_sketch, tells_keys_apart_whatever_their_length)
{
    static char key[1000];
    struct latency_sketch *sketch = latency_sketch_new(1000);
    struct latency_hot_key top[8];

    memset(key, 'k', sizeof key);
    latency_sketch_add(sketch, (struct slice){key, 0}, 1);
    latency_sketch_add(sketch, (struct slice){"\0", 1}, 2);
    latency_sketch_add(sketch, (struct slice){"\0\0", 2}, 3);
    latency_sketch_add(sketch, (struct slice){key, LATENCY_SKETCH_KEY_MAX}, 4);
    latency_sketch_add(sketch, (struct slice){key, LATENCY_SKETCH_KEY_MAX + 1}, 5);
    latency_sketch_add(sketch, (struct slice){key, sizeof key}, 6);
    key[999] = 'x';
    latency_sketch_add(sketch, (struct slice){key, sizeof key}, 7);
    cr_assert_eq(latency_sketch_top(sketch, top, 8), 7);
    for (uint64_t i = 0; i < 7; i++) {
        cr_assert_eq(top[i].count, 7 - i);
        cr_assert_leq(top[i].key.length, LATENCY_SKETCH_KEY_MAX);
    }
    cr_assert_eq(top[0].length, 1000);
    cr_assert_eq(top[0].key.length, LATENCY_SKETCH_KEY_MAX);
    cr_assert_eq(top[6].length, 0);
    latency_sketch_free(sketch);
}
