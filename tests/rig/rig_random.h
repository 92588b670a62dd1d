/* Numbers as good as random, the same ones again from the same seed. */
#ifndef RIG_RANDOM_H
#define RIG_RANDOM_H

#include <stdint.h>

/* The next one, of 31 bits: Knuth's linear congruential generator, whose lower bits are not random enough. */
static inline uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

#endif
