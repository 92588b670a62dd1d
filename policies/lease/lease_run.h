/* The arguments of a request's frame, and what is read from them. Runs and slices point into the frame. */
#ifndef HEADGATE_LEASE_RUN_H
#define HEADGATE_LEASE_RUN_H

#include "policy/policy.h"

/* Arguments of a frame, one after the other or every second one. */
struct lease_run {
    const char *next;
    const char *end;
    uint32_t left; /* arguments, with those that are passed over */
    uint32_t step;
};

/* Begins with the arguments behind the command's name; false if the frame's beginning is not sound. */
bool lease_run_begin(struct lease_run *run, struct slice frame);
/* The next argument, whatever the step; false after the last, or where the frame is not sound, and then none is left.
 */
bool lease_run_take(struct lease_run *run, struct slice *argument);
/* The next argument of the run, by its step; false as above. */
bool lease_run_next(struct lease_run *run, struct slice *argument);
/* Passes over as many arguments; false if there are not so many. */
bool lease_run_skip(struct lease_run *run, uint64_t count);
/* The argument at a place of the run, from 1 on. */
bool lease_run_at(struct lease_run run, uint32_t place, struct slice *argument);

#endif
