/*
 * FNV-1a (https://datatracker.ietf.org/doc/draft-eastlake-fnv/) with 64 bits, for names that have to be the same
 * everywhere, and for tables that are small and bounded: who chooses names that fall into one place makes them a little
 * slower, no more.
 */
#ifndef HEADGATE_FNV_H
#define HEADGATE_FNV_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t fnv(const char *data, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)data[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

#endif
