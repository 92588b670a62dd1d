/* The policies of this build, in the order in which they are asked. */
#include "policy/policy.h"

extern const struct policy added_commands_policy;
extern const struct policy deny_policy;
extern const struct policy latency_policy;
extern const struct policy lease_policy;
extern const struct policy limit_policy;

const struct policy *const policies[] = {
    &deny_policy,  &limit_policy, &added_commands_policy, &latency_policy,
    &lease_policy, /* what it has seen is forwarded: the last one */
    NULL,
};
