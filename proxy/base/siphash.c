#include "base/siphash.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define COMPRESSION_ROUNDS 2
#define FINAL_ROUNDS 4

struct hash_state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate_left(uint64_t word, unsigned int bits)
{
    return word << bits | word >> (64 - bits);
}

static void rounds(struct hash_state *state, int count)
{
    while (count-- > 0) {
        state->v0 += state->v1;
        state->v1 = rotate_left(state->v1, 13) ^ state->v0;
        state->v0 = rotate_left(state->v0, 32);
        state->v2 += state->v3;
        state->v3 = rotate_left(state->v3, 16) ^ state->v2;
        state->v0 += state->v3;
        state->v3 = rotate_left(state->v3, 21) ^ state->v0;
        state->v2 += state->v1;
        state->v1 = rotate_left(state->v1, 17) ^ state->v2;
        state->v2 = rotate_left(state->v2, 32);
    }
}

static void take_word(struct hash_state *state, uint64_t word)
{
    state->v3 ^= word;
    rounds(state, COMPRESSION_ROUNDS);
    state->v0 ^= word;
}

uint64_t siphash(const struct siphash_key *key, const char *data, size_t length)
{
    struct hash_state state = {
        key->words[0] ^ UINT64_C(0x736f6d6570736575),
        key->words[1] ^ UINT64_C(0x646f72616e646f6d),
        key->words[0] ^ UINT64_C(0x6c7967656e657261),
        key->words[1] ^ UINT64_C(0x7465646279746573),
    };
    uint64_t last = (uint64_t)length << 56;
    uint64_t word;
    size_t done = 0;

    for (; length - done >= sizeof word; done += sizeof word) {
        memcpy(&word, data + done, sizeof word);
        take_word(&state, le64toh(word));
    }
    for (size_t i = done; i < length; i++) {
        last |= (uint64_t)(unsigned char)data[i] << 8 * (i - done);
    }
    take_word(&state, last);
    state.v2 ^= 0xff;
    rounds(&state, FINAL_ROUNDS);
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

struct siphash_key siphash_random_key(void)
{
    struct siphash_key key;

    /* So few bytes come whole, and only a kernel older than any that Debian 12 runs on has none. */
    if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key) {
        abort();
    }
    return key;
}
