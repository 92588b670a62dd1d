/*
 * How many lines of a kind there may be: so many at once, then one a second. So whatever a client does again and again,
 * the log grows by some ten megabytes a day at most for each kind of line that it can cause, and what is logged for
 * once, as all changes of a reload, is logged whole.
 *
 * A kind is a place of a table, which is found by the addresses of the texts and never given up. Each has one number:
 * the time up to which its lines have used up what they may. All of it is atomic, as any thread logs.
 */
#include "base/log_private.h"

#include <stdatomic.h>

#define KINDS 1024 /* a power of two, several times what there are */
#define INTERVAL_US ((int64_t)1000000)
#define AT_ONCE 1000

struct kind {
    atomic_uintptr_t key; /* 0: free */
    _Atomic int64_t used_up_us;
    atomic_ullong suppressed;
};

static struct kind kinds[KINDS];

static uintptr_t key_of(const char *module, const char *format)
{
    uintptr_t key = (uintptr_t)format * 31 + (uintptr_t)module;

    return key != 0 ? key : 1;
}

/* Were all places taken, kinds would share one: fewer lines, but never more. */
static struct kind *find(uintptr_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) % KINDS;

    for (size_t i = 0; i < KINDS; i++) {
        struct kind *kind = &kinds[(at + i) % KINDS];
        uintptr_t there = 0;
        if (atomic_compare_exchange_strong(&kind->key, &there, key) || there == key) {
            return kind;
        }
    }
    return &kinds[at];
}

bool log_bound_take(const char *module, const char *format, int64_t now_us, uint64_t *suppressed)
{
    struct kind *kind = find(key_of(module, format));
    int64_t before = atomic_load(&kind->used_up_us), after;

    do {
        after = (before > now_us ? before : now_us) + INTERVAL_US;
        if (after - now_us > AT_ONCE * INTERVAL_US) {
            atomic_fetch_add(&kind->suppressed, 1);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&kind->used_up_us, &before, after));
    *suppressed = atomic_exchange(&kind->suppressed, 0);
    return true;
}
