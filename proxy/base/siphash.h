/*
 * SipHash-2-4 (https://www.aumasson.jp/siphash/siphash.pdf): with a key that nobody knows, no client can choose keys
 * that fall into one bucket.
 */
#ifndef HEADGATE_SIPHASH_H
#define HEADGATE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t words[2];
};

/* One that was not used before. */
struct siphash_key siphash_random_key(void);
uint64_t siphash(const struct siphash_key *key, const char *data, size_t length);

#endif
