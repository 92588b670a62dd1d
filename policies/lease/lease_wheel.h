/*
 * A timing wheel: who is to be looked at when. Setting a time and taking it back cost the same for one as for a hundred
 * thousand. It is as fine as LEASE_WHEEL_STEP_US: who is due is found in the step in which it is due, or before.
 */
#ifndef HEADGATE_LEASE_WHEEL_H
#define HEADGATE_LEASE_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* Policies are called ten times a second. */
#define LEASE_WHEEL_STEP_US INT64_C(100000)
#define LEASE_WHEEL_SLOTS 1024

/* Embedded in who waits; zero at first. */
struct lease_wheel_entry {
    LIST_ENTRY(lease_wheel_entry) of_list;
    bool is_set; /* it is in a wheel */
    int64_t due_us;
};

LIST_HEAD(lease_wheel_list, lease_wheel_entry);

struct lease_wheel {
    int64_t step;                  /* the slots of all steps before this one hold nobody who is due */
    struct lease_wheel_list ready; /* due, and not taken yet */
    struct lease_wheel_list slots[LEASE_WHEEL_SLOTS];
};

/* Sets when the entry is due, in place of what was set before. */
void lease_wheel_set(struct lease_wheel *wheel, struct lease_wheel_entry *entry, int64_t due_us);
/* Harmless if nothing was set. */
void lease_wheel_cancel(struct lease_wheel_entry *entry);
/* Takes out one of those that are due by the end of the step of now_us; NULL if there is none. */
struct lease_wheel_entry *lease_wheel_take(struct lease_wheel *wheel, int64_t now_us);
/* Makes all of them due. */
void lease_wheel_rush(struct lease_wheel *wheel);

#endif
