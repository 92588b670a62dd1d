/*
 * A policy that only tests use: with a section [meter:NAME] it measures all requests and writes down what it is told,
 * for METER on the admin port. SET is measured as "asked" if its key begins with "meter:". Aborts when a sample is not
 * sound. For headgate-probe with one worker: the verb asks the first.
 */
#ifndef HEADGATE_METER_H
#define HEADGATE_METER_H

#include "policy/policy.h"

extern const struct policy meter_policy;

#endif
