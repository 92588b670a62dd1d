/*
 * The funnel (leaky bucket): it holds so many drops and leaks at a steady rate; a request that would make it run over
 * is refused. Kept as the generic cell rate algorithm does (ITU-T I.371, annex A): all there is to remember is the time
 * at which the funnel will be empty.
 *
 * Times are nanoseconds of a clock that does not go back, and within it parts of them: a byte of a gigabyte a second
 * takes little more than one. Arithmetic only: no allocation, no clock of its own.
 */
#ifndef HEADGATE_LIMIT_FUNNEL_H
#define HEADGATE_LIMIT_FUNNEL_H

#include <stdbool.h>
#include <stdint.h>

/* What can never be admitted, however long it waits. */
#define LIMIT_NEVER INT64_MAX

/* So many to a nanosecond. */
__extension__ typedef __int128 limit_funnel_time __attribute__((aligned(8)));
#define LIMIT_FUNNEL_NS ((limit_funnel_time)1 << 32)

struct limit_funnel {
    limit_funnel_time drop; /* in which one drop leaks out, rounded up: never faster than it was told */
    int64_t full_ns;        /* in which a full funnel becomes empty, rounded up */
    int64_t capacity;
};

/* The time at which it will be empty; 0: it is. */
typedef limit_funnel_time limit_funnel_state;

/*
 * capacity drops fit, leak drops leave in each period_ns; all are at least 1. False if that is beyond what can be
 * reckoned with: a full funnel that takes longer than a hundred years to become empty.
 */
bool limit_funnel_make(struct limit_funnel *funnel, int64_t capacity, int64_t leak, int64_t period_ns);

/* How long from now until cost drops (at least 1) fit behind others that come before them, in ns: 0 if they do now. */
int64_t limit_funnel_wait(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns, int64_t cost,
                          int64_t queued);

/* How many drops fit now. */
int64_t limit_funnel_left(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns);

/* Adds the drops. They must fit now. */
void limit_funnel_charge(const struct limit_funnel *funnel, limit_funnel_state *state, int64_t now_ns, int64_t cost);

/* Whether the state says nothing any more and can be dropped. */
static inline bool limit_funnel_is_idle(limit_funnel_state state, int64_t now_ns)
{
    return state <= now_ns * LIMIT_FUNNEL_NS;
}

#endif
