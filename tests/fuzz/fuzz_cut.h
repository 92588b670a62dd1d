/* What the targets that cut their input share. */
#ifndef HEADGATE_TESTS_FUZZ_CUT_H
#define HEADGATE_TESTS_FUZZ_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Ends the process, which is a finding, unless it holds. */
static inline void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* A number that depends on nothing but the input, so that a crash can be repeated. */
static inline uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

static inline uint32_t seed_of(const char *data, size_t size)
{
    uint32_t seed = (uint32_t)size;

    for (size_t i = 0; i < size; i++) {
        seed = seed * 31 + (uint8_t)data[i];
    }
    return seed;
}

#endif
