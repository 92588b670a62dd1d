#include "lease/lease_wheel.h"

void lease_wheel_cancel(struct lease_wheel_entry *entry)
{
    if (entry->is_set) {
        LIST_REMOVE(entry, of_list);
        entry->is_set = false;
    }
}

static int64_t step_of(int64_t time_us)
{
    return time_us / LEASE_WHEEL_STEP_US;
}

void lease_wheel_set(struct lease_wheel *wheel, struct lease_wheel_entry *entry, int64_t due_us)
{
    int64_t step = step_of(due_us);

    lease_wheel_cancel(entry);
    entry->due_us = due_us;
    entry->is_set = true;
    struct lease_wheel_list *slot = step < wheel->step ? &wheel->ready : &wheel->slots[step % LEASE_WHEEL_SLOTS];
    LIST_INSERT_HEAD(slot, entry, of_list);
}

/* Those of a slot that are due in this step or were before become ready; the others are due in a later round. */
static void turn(struct lease_wheel *wheel, struct lease_wheel_list *slot, int64_t step)
{
    struct lease_wheel_entry *next;

    for (struct lease_wheel_entry *entry = LIST_FIRST(slot); entry != NULL; entry = next) {
        next = LIST_NEXT(entry, of_list);
        if (step_of(entry->due_us) <= step) {
            LIST_REMOVE(entry, of_list);
            LIST_INSERT_HEAD(&wheel->ready, entry, of_list);
        }
    }
}

struct lease_wheel_entry *lease_wheel_take(struct lease_wheel *wheel, int64_t now_us)
{
    int64_t last = step_of(now_us);

    /* After a pause longer than a round, each slot is looked at once. */
    if (last - wheel->step >= LEASE_WHEEL_SLOTS) {
        wheel->step = last - LEASE_WHEEL_SLOTS + 1;
    }
    for (; wheel->step <= last; wheel->step++) {
        turn(wheel, &wheel->slots[wheel->step % LEASE_WHEEL_SLOTS], last);
    }
    struct lease_wheel_entry *entry = LIST_FIRST(&wheel->ready);
    if (entry != NULL) {
        lease_wheel_cancel(entry);
    }
    return entry;
}

void lease_wheel_rush(struct lease_wheel *wheel)
{
    for (size_t i = 0; i < LEASE_WHEEL_SLOTS; i++) {
        turn(wheel, &wheel->slots[i], INT64_MAX);
    }
}
