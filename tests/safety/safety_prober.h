/*
 * A process that asks Redis for something through each Headgate again and again, over several connections, and notes
 * when an answer takes long. Headgate renews on time only if it gets to run and reaches Redis: what the prober waits
 * for, renewals wait for, too.
 */
#ifndef SAFETY_PROBER_H
#define SAFETY_PROBER_H

#include "safety_shared.h"

/* Ends at PHASE_STOP. Returns its id, or -1. */
pid_t prober_start(struct shared *shared);

#endif
