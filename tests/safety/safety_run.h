#ifndef SAFETY_RUN_H
#define SAFETY_RUN_H

#include "safety_shared.h"

/*
 * Does a whole run. 0: no violation; 1: there were some; 2: it could not be done, or showed too little. breaches (NULL:
 * not wanted) counts the violations by what they are of.
 */
int run_execute(const struct options *options, unsigned breaches[BREACH_COUNT]);

#endif
