#include "lease/lease_wheel.h"

static void push(struct lease_wheel_entry **list, struct lease_wheel_entry *entry)
{
    entry->next = *list;
    entry->link = list;
    if (entry->next != NULL) {
        entry->next->link = &entry->next;
    }
    *list = entry;
}

void lease_wheel_cancel(struct lease_wheel_entry *entry)
{
    if (entry->link == NULL) {
        return;
    }
    *entry->link = entry->next;
    if (entry->next != NULL) {
        entry->next->link = entry->link;
    }
    entry->link = NULL;
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
    push(step < wheel->step ? &wheel->ready : &wheel->slots[step % LEASE_WHEEL_SLOTS], entry);
}

/* Those of a slot that are due in this step or were before become ready; the others are due in a later round. */
static void turn(struct lease_wheel *wheel, struct lease_wheel_entry **slot, int64_t step)
{
    struct lease_wheel_entry *entry = *slot;

    while (entry != NULL) {
        struct lease_wheel_entry *next = entry->next;
        if (step_of(entry->due_us) <= step) {
            lease_wheel_cancel(entry);
            push(&wheel->ready, entry);
        }
        entry = next;
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
    struct lease_wheel_entry *entry = wheel->ready;
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
