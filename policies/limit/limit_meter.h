/*
 * A meter: how much a rule admits, by either algorithm, with times in µs throughout.
 */
#ifndef HEADGATE_LIMIT_METER_H
#define HEADGATE_LIMIT_METER_H

#include "limit/limit_window.h"

enum limit_algorithm { LIMIT_SLIDING_WINDOW, LIMIT_FUNNEL };

struct limit_meter {
    enum limit_algorithm algorithm;
    int64_t most; /* what is ever admitted at once */
    struct limit_window window;
    struct limit_funnel funnel;
};

/* All zero: nothing was admitted. */
union limit_meter_state {
    struct limit_window_state window;
    limit_funnel_state funnel;
};

/* How long from now until cost (at least 1) may be admitted: 0 if it may now, LIMIT_NEVER if it is more than most. */
int64_t limit_meter_wait(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us, int64_t cost);

/* The most that may be admitted now. */
int64_t limit_meter_left(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us);

/* As limit_meter_wait(), behind others who wait for so much already: about when its turn comes. */
int64_t limit_meter_wait_behind(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us,
                                int64_t queued, int64_t cost);

/* Admits it; it must be admissible now. False, and nothing is counted, when memory is short. */
bool limit_meter_charge(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us, int64_t cost);

/* Whether the state says nothing any more. */
bool limit_meter_is_idle(const struct limit_meter *meter, union limit_meter_state *state, int64_t now_us);

/* As if nothing had been admitted; gives back the state's memory. */
void limit_meter_clear(const struct limit_meter *meter, union limit_meter_state *state);

#endif
