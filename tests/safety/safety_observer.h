/* A process that reads Redis' MONITOR stream from the first command of each Redis on and gives it to the model. */
#ifndef SAFETY_OBSERVER_H
#define SAFETY_OBSERVER_H

#include "safety_shared.h"

/* Ends at PHASE_STOP. Returns its id, or -1. */
pid_t observer_start(struct shared *shared);

#endif
