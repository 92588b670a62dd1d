#include "limit/limit_window.h"

#include <assert.h>
#include <stdlib.h>

/*
 * Slots of a large limit begin at least a share of the window apart, and the oldest ended within the window: so there
 * are at most two more of them than shares. Those of a small limit hold one admission at least.
 */
#define ROOM_MAX (LIMIT_WINDOW_SLOTS + 2)
#define ROOM_FIRST 4

static struct limit_window_slot *slot_at(const struct limit_window_state *state, uint32_t index)
{
    uint32_t place = state->first + index;

    return &state->slots[place < state->room ? place : place - state->room];
}

static void forget_old(const struct limit_window *window, struct limit_window_state *state, int64_t now_us)
{
    while (state->used > 0 && slot_at(state, 0)->last_us <= now_us - window->length_us) {
        state->count -= slot_at(state, 0)->count;
        state->first = state->first + 1 < state->room ? state->first + 1 : 0;
        state->used--;
    }
}

int64_t limit_window_wait(const struct limit_window *window, struct limit_window_state *state, int64_t now_us,
                          int64_t cost)
{
    assert(cost > 0);
    if (cost > window->limit) {
        return LIMIT_NEVER;
    }
    forget_old(window, state, now_us);
    int64_t over = state->count + cost - window->limit;
    int64_t wait_us = 0;
    for (uint32_t i = 0; over > 0; i++) {
        const struct limit_window_slot *slot = slot_at(state, i);
        over -= slot->count;
        wait_us = slot->last_us + window->length_us - now_us;
    }
    return wait_us;
}

int64_t limit_window_left(const struct limit_window *window, struct limit_window_state *state, int64_t now_us)
{
    forget_old(window, state, now_us);
    return state->count < window->limit ? window->limit - state->count : 0;
}

static bool make_room(struct limit_window_state *state)
{
    if (state->used < state->room) {
        return true;
    }
    assert(state->room < ROOM_MAX);
    uint32_t room = state->room == 0 ? ROOM_FIRST : state->room * 2;
    room = room > ROOM_MAX ? ROOM_MAX : room;
    struct limit_window_slot *slots = malloc(room * sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < state->used; i++) {
        slots[i] = *slot_at(state, i);
    }
    free(state->slots);
    state->slots = slots;
    state->room = room;
    state->first = 0;
    return true;
}

/* Whether an admission now belongs into the newest slot. */
static bool shares_slot(const struct limit_window *window, const struct limit_window_state *state, int64_t now_us)
{
    /* Rounded up, so that there are not more of them than told. */
    int64_t share_us =
        window->limit > LIMIT_WINDOW_SLOTS ? (window->length_us + LIMIT_WINDOW_SLOTS - 1) / LIMIT_WINDOW_SLOTS : 0;

    return state->used > 0 &&
           (now_us - state->newest_began < share_us || slot_at(state, state->used - 1)->last_us == now_us);
}

static bool note(const struct limit_window *window, struct limit_window_state *state, int64_t now_us, int64_t count)
{
    if (!shares_slot(window, state, now_us)) {
        if (!make_room(state)) {
            return false;
        }
        state->used++;
        *slot_at(state, state->used - 1) = (struct limit_window_slot){0};
        state->newest_began = now_us;
    }
    struct limit_window_slot *newest = slot_at(state, state->used - 1);
    /* The loop iteration of another worker may have begun later than this one's. */
    newest->last_us = now_us > newest->last_us ? now_us : newest->last_us;
    newest->count += count;
    state->count += count;
    return true;
}

bool limit_window_charge(const struct limit_window *window, struct limit_window_state *state, int64_t now_us,
                         int64_t cost)
{
    assert(state->count + cost <= window->limit);
    return note(window, state, now_us, cost);
}

bool limit_window_note(const struct limit_window *window, struct limit_window_state *state, int64_t at_us,
                       int64_t count)
{
    forget_old(window, state, at_us);
    int64_t room = window->limit - state->count;
    return room <= 0 || note(window, state, at_us, count < room ? count : room);
}

void limit_window_tell(const struct limit_window_state *state,
                       void (*told)(void *context, int64_t at_us, int64_t count), void *context)
{
    for (uint32_t i = 0; i < state->used; i++) {
        const struct limit_window_slot *slot = slot_at(state, i);
        told(context, slot->last_us, slot->count);
    }
}

bool limit_window_is_idle(const struct limit_window *window, struct limit_window_state *state, int64_t now_us)
{
    forget_old(window, state, now_us);
    return state->used == 0;
}

void limit_window_clear(struct limit_window_state *state)
{
    free(state->slots);
    *state = (struct limit_window_state){0};
}
