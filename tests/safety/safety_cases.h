/* Cases of known outcome for the judge and for the model, without any server. */
#ifndef SAFETY_CASES_H
#define SAFETY_CASES_H

#include <stdbool.h>

/* Tells each case that comes out otherwise on standard output; true if there was none. */
bool cases_run(void);

#endif
