/* Whether what the Headgates have counted is what their clients did. */
#ifndef SAFETY_COUNTS_H
#define SAFETY_COUNTS_H

#include "safety_servers.h"

/* Asks all Headgates, when the last client has gone, and tells what does not agree. */
void counts_judge(struct shared *shared, const struct servers *servers);

#endif
