/*
 * Which keys are asked for most, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation
 * of Frequent and Top-k Elements in Data Streams). So many keys are counted; one that is not among them takes the place
 * of the one counted least, with its count, which may be too much for the new one and is therefore its error.
 *
 *   - A key occurred count times at most and count - error times at least.
 *   - Every key that makes up more than 1/most of all is in the sketch, and no error is more than that.
 *   - latency_sketch_least(): what is not in the sketch occurred no more often.
 *
 * To see the top 20 well, count some hundreds. O(log most) for each key, without allocation: 50 ns for a key of 12
 * bytes that is in a sketch of 512, 160 ns for one that takes another's place. 180 bytes for each key that is counted.
 *
 * Keys are kept up to LATENCY_SKETCH_KEY_MAX bytes. Longer ones are told apart by their beginning, their length and a
 * hash with 64 bits of the whole.
 */
#ifndef HEADGATE_LATENCY_SKETCH_H
#define HEADGATE_LATENCY_SKETCH_H

#include "policy/policy.h"

#define LATENCY_SKETCH_KEY_MAX 128
#define LATENCY_SKETCH_MAX 65536

struct latency_sketch;

struct latency_hot_key {
    struct slice key; /* its beginning; valid until the sketch changes */
    uint64_t length;  /* of the whole key */
    uint64_t count;
    uint64_t error;
};

/* Counts so many keys: 1 to LATENCY_SKETCH_MAX. NULL when memory is short. */
struct latency_sketch *latency_sketch_new(uint32_t most);
void latency_sketch_free(struct latency_sketch *sketch);

/* The key occurred weight times (1 or more), as when one of so many requests is looked at. */
void latency_sketch_add(struct latency_sketch *sketch, struct slice key, uint64_t weight);
/* Adds what another one of as many keys has counted, as that of another worker. What is said above still holds. */
void latency_sketch_merge(struct latency_sketch *into, const struct latency_sketch *from);
/* Forgets all. */
void latency_sketch_clear(struct latency_sketch *sketch);

/* Those with the highest counts, highest first, up to most of them; returns how many. O(keys counted × most). */
size_t latency_sketch_top(const struct latency_sketch *sketch, struct latency_hot_key *top, size_t most);
/* All that was added. */
uint64_t latency_sketch_total(const struct latency_sketch *sketch);
/* The least count, or 0 while there is room for more keys. */
uint64_t latency_sketch_least(const struct latency_sketch *sketch);

#endif
