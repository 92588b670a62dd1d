/*
 * How much memory the process has for what its clients have sent and are to get: one account of all buffer pools.
 */
#ifndef HEADGATE_MEMORY_H
#define HEADGATE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pool tells of its memory when it has changed by more than this. Bytes. */
#define MEMORY_STEP ((uint64_t)64 * 1024)

/* Zeroed, there is no limit. From any thread. Bytes. */
struct memory {
    _Atomic uint64_t used;
    _Atomic uint64_t limit; /* 0: none */
    _Atomic uint64_t most;  /* that is held for one client, as far as workers have told; 0 while there is enough */
};

/* Half of what the process may have by its control groups, or of what the machine has. root: of the file system, ""
 * but for tests. */
uint64_t memory_default_limit(const char *root);

/* 0: there is none, or no account (memory: NULL). */
static inline uint64_t memory_limit_of(struct memory *memory)
{
    return memory != NULL ? atomic_load_explicit(&memory->limit, memory_order_relaxed) : 0;
}

/* More than so many quarters of the limit are used. */
static inline bool memory_is_beyond(struct memory *memory, uint64_t quarters)
{
    uint64_t limit = memory_limit_of(memory);

    return limit > 0 && atomic_load_explicit(&memory->used, memory_order_relaxed) > limit / 4 * quarters;
}

static inline bool memory_is_over(struct memory *memory)
{
    return memory_is_beyond(memory, 4);
}

#endif
