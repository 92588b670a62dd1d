/*
 * The slot of a key in Redis Cluster: CRC16 of it, or of its hash tag, modulo the number of slots.
 *
 * Specification: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/ (key distribution model).
 */
#ifndef HEADGATE_CLUSTER_SLOT_H
#define HEADGATE_CLUSTER_SLOT_H

#include "base/slice.h"

#include <stdint.h>

#define CLUSTER_SLOTS 16384

/* 0 … CLUSTER_SLOTS - 1. Any bytes are a key, also none. */
uint16_t cluster_slot_of(struct slice key);

/* What of the key decides about its slot: what is between the first '{' and the next '}' behind it, if that is there
 * and not empty; else the whole key. */
struct slice cluster_slot_tag(struct slice key);

#endif
