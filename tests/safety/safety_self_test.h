/* The test put to the test: judges and model on cases of known outcome, and whole runs with a deliberate fault. */
#ifndef SAFETY_SELF_TEST_H
#define SAFETY_SELF_TEST_H

#include "safety_shared.h"

/* 0 if everything is as it must be, else 1. */
int self_test_run(struct options options);

#endif
