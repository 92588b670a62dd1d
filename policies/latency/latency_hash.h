/*
 * FNV-1a (https://datatracker.ietf.org/doc/draft-eastlake-fnv/) with 64 bits, for tables that are small and bounded:
 * who chooses names that fall into one place makes them a little slower, no more.
 */
#ifndef HEADGATE_LATENCY_HASH_H
#define HEADGATE_LATENCY_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t latency_hash(const char *data, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)data[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

#endif
