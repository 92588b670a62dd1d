#include "limit/limit_funnel.h"

#include <assert.h>

/* A hundred years; with a clock that has run for as long, sums of both are far from overflowing. */
#define FULL_MAX_NS (INT64_C(100) * 366 * 86400 * 1000000000)

bool limit_funnel_make(struct limit_funnel *funnel, int64_t capacity, int64_t leak, int64_t period_ns)
{
    assert(capacity > 0 && leak > 0 && period_ns > 0);
    int64_t drop_ns = period_ns / leak + (period_ns % leak != 0);

    if (drop_ns > FULL_MAX_NS / capacity) {
        return false;
    }
    *funnel = (struct limit_funnel){.drop_ns = drop_ns, .full_ns = drop_ns * capacity, .capacity = capacity};
    return true;
}

int64_t limit_funnel_wait(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns, int64_t cost)
{
    assert(cost > 0);
    int64_t level_ns = state > now_ns ? state - now_ns : 0;

    if (cost > funnel->capacity) {
        return LIMIT_NEVER;
    }
    int64_t over_ns = level_ns + cost * funnel->drop_ns - funnel->full_ns;
    return over_ns > 0 ? over_ns : 0;
}

int64_t limit_funnel_left(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns)
{
    int64_t level_ns = state > now_ns ? state - now_ns : 0;

    return level_ns < funnel->full_ns ? (funnel->full_ns - level_ns) / funnel->drop_ns : 0;
}

void limit_funnel_charge(const struct limit_funnel *funnel, limit_funnel_state *state, int64_t now_ns, int64_t cost)
{
    *state = (*state > now_ns ? *state : now_ns) + cost * funnel->drop_ns;
    assert(*state - now_ns <= funnel->full_ns);
}

void limit_funnel_note(const struct limit_funnel *funnel, limit_funnel_state *state, int64_t now_ns, int64_t cost)
{
    int64_t level_ns = *state > now_ns ? *state - now_ns : 0;
    int64_t drops = cost < 2 * funnel->capacity ? cost : 2 * funnel->capacity;

    level_ns = drops * funnel->drop_ns < 2 * funnel->full_ns - level_ns ? level_ns + drops * funnel->drop_ns
                                                                        : 2 * funnel->full_ns;
    *state = now_ns + level_ns;
}
