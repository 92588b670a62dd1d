/*
 * SipHash-2-4 (https://www.aumasson.jp/siphash/siphash.pdf): with a key that nobody knows, no client can choose keys
 * that fall into one bucket.
 */
#ifndef HEADGATE_LIMIT_HASH_H
#define HEADGATE_LIMIT_HASH_H

#include <stddef.h>
#include <stdint.h>

struct limit_hash_key {
    uint64_t words[2];
};

/* One that was not used before. */
struct limit_hash_key limit_hash_random_key(void);
uint64_t limit_hash(const struct limit_hash_key *key, const char *data, size_t length);

#endif
