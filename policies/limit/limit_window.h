/*
 * The sliding window: in any window of a given length at most so many are admitted. Never more.
 *
 * What was admitted is kept in slots, each with the time of its last admission and how many there were; a slot leaves
 * the window with its last. Up to LIMIT_WINDOW_SLOTS, each admission has a slot of its own and the window is exact.
 * Larger limits share slots of a LIMIT_WINDOW_SLOTS-th of the window: memory is bounded, and permits come back at most
 * that much later than they could.
 *
 * Times are microseconds of a clock that does not go back.
 */
#ifndef HEADGATE_LIMIT_WINDOW_H
#define HEADGATE_LIMIT_WINDOW_H

#include "limit/limit_funnel.h" /* LIMIT_NEVER */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMIT_WINDOW_SLOTS 64

struct limit_window {
    int64_t limit;     /* 1 to 10^15 */
    int64_t length_us; /* 1 to 100 years */
};

struct limit_window_slot {
    int64_t last_us;
    int64_t count;
};

/* All zero: nothing was admitted. */
struct limit_window_state {
    struct limit_window_slot *slots; /* a ring */
    uint32_t room;
    uint32_t first;
    uint32_t used;
    int64_t count;        /* over all slots */
    int64_t newest_began; /* when the newest slot had its first */
};

/* How long from now until cost (at least 1) may be admitted, in µs: 0 if it may now. Forgets what has left the window.
 */
int64_t limit_window_wait(const struct limit_window *window, struct limit_window_state *state, int64_t now_us,
                          int64_t cost);

/* The most that may be admitted now. Forgets what has left the window. */
int64_t limit_window_left(const struct limit_window *window, struct limit_window_state *state, int64_t now_us);

/* Admits it; it must be admissible now. False, and nothing is counted, when memory is short. */
bool limit_window_charge(const struct limit_window *window, struct limit_window_state *state, int64_t now_us,
                         int64_t cost);

/* Notes what was admitted elsewhere, up to the limit, at a time that is not before any that was noted, nor after now.
 * False when memory is short. */
bool limit_window_note(const struct limit_window *window, struct limit_window_state *state, int64_t at_us,
                       int64_t count);

/* Calls told for what the window remembers, in the order of time. */
void limit_window_tell(const struct limit_window_state *state,
                       void (*told)(void *context, int64_t at_us, int64_t count), void *context);

/* Whether the state says nothing any more. Forgets what has left the window. */
bool limit_window_is_idle(const struct limit_window *window, struct limit_window_state *state, int64_t now_us);

/* Gives back the state's memory. */
void limit_window_clear(struct limit_window_state *state);

#endif
