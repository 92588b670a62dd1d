#include "limit/limit_funnel.h"

#include <assert.h>

/* A hundred years; with a clock that has run for as long, sums of both are far from overflowing. */
#define FULL_MAX_NS (INT64_C(100) * 366 * 86400 * 1000000000)

static limit_funnel_time round_up(limit_funnel_time dividend, limit_funnel_time divisor)
{
    return (dividend + divisor - 1) / divisor;
}

bool limit_funnel_make(struct limit_funnel *funnel, int64_t capacity, int64_t leak, int64_t period_ns)
{
    assert(capacity > 0 && leak > 0 && period_ns > 0);
    limit_funnel_time drop = round_up(period_ns * LIMIT_FUNNEL_NS, leak);

    if (drop > FULL_MAX_NS * LIMIT_FUNNEL_NS / capacity) {
        return false;
    }
    *funnel = (struct limit_funnel){
        .drop = drop, .full_ns = (int64_t)round_up(drop * capacity, LIMIT_FUNNEL_NS), .capacity = capacity};
    return true;
}

static limit_funnel_time level_of(limit_funnel_state state, int64_t now_ns)
{
    return state > now_ns * LIMIT_FUNNEL_NS ? state - now_ns * LIMIT_FUNNEL_NS : 0;
}

int64_t limit_funnel_wait(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns, int64_t cost,
                          int64_t queued)
{
    assert(cost > 0);
    if (cost > funnel->capacity) {
        return LIMIT_NEVER;
    }
    limit_funnel_time over =
        level_of(state, now_ns) + ((limit_funnel_time)queued + cost - funnel->capacity) * funnel->drop;
    return over > 0 ? (int64_t)round_up(over, LIMIT_FUNNEL_NS) : 0;
}

int64_t limit_funnel_left(const struct limit_funnel *funnel, limit_funnel_state state, int64_t now_ns)
{
    limit_funnel_time left = funnel->capacity * funnel->drop - level_of(state, now_ns);

    return left > 0 ? (int64_t)(left / funnel->drop) : 0;
}

void limit_funnel_charge(const struct limit_funnel *funnel, limit_funnel_state *state, int64_t now_ns, int64_t cost)
{
    *state = now_ns * LIMIT_FUNNEL_NS + level_of(*state, now_ns) + cost * funnel->drop;
    assert(level_of(*state, now_ns) <= funnel->capacity * funnel->drop);
}
