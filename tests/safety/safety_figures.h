#ifndef SAFETY_FIGURES_H
#define SAFETY_FIGURES_H

#include "safety_judge.h"

void figures_print(const struct shared *shared, const uint64_t verdicts[VERDICT_COUNT], double seconds);

#endif
