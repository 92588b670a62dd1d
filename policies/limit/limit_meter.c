#include "limit/limit_meter.h"

#define NS_PER_US 1000

static int64_t round_up_to_us(int64_t ns)
{
    return ns == LIMIT_NEVER ? LIMIT_NEVER : ns / NS_PER_US + (ns % NS_PER_US != 0);
}

int64_t limit_meter_wait(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us, int64_t cost)
{
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        return limit_window_wait(&meter->window, &state->window, now_us, cost);
    }
    return round_up_to_us(limit_funnel_wait(&meter->funnel, state->funnel, now_us * NS_PER_US, cost, 0));
}

int64_t limit_meter_left(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us)
{
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        return limit_window_left(&meter->window, &state->window, now_us);
    }
    return limit_funnel_left(&meter->funnel, state->funnel, now_us * NS_PER_US);
}

int64_t limit_meter_wait_behind(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us,
                                int64_t queued, int64_t cost)
{
    if (meter->algorithm == LIMIT_FUNNEL) {
        return round_up_to_us(limit_funnel_wait(&meter->funnel, state->funnel, now_us * NS_PER_US, cost, queued));
    }
    if (cost > meter->most) {
        return LIMIT_NEVER;
    }
    /* What is more than a window admits comes one window after what came before it. */
    int64_t whole_windows = (queued + cost - 1) / meter->most;
    int64_t rest = queued + cost - whole_windows * meter->most;
    return limit_window_wait(&meter->window, &state->window, now_us, rest) + whole_windows * meter->window.length_us;
}

bool limit_meter_charge(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us, int64_t cost)
{
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        return limit_window_charge(&meter->window, &state->window, now_us, cost);
    }
    limit_funnel_charge(&meter->funnel, &state->funnel, now_us * NS_PER_US, cost);
    return true;
}

bool limit_meter_is_idle(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us)
{
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        return limit_window_is_idle(&meter->window, &state->window, now_us);
    }
    return limit_funnel_is_idle(state->funnel, now_us * NS_PER_US);
}

void limit_meter_clear(const struct limit_meter *meter, union limit_meter_state *state)
{
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        limit_window_clear(&state->window);
    } else {
        state->funnel = 0;
    }
}
