/*
 * The policies of this build, in the order in which their gates are asked. A new one, struct policy NAME_policy, is a
 * line here. trace is first: it sees what becomes of all. pause is second: nobody else has seen what it holds, but who
 * has held it before. lease is last: what it has seen is forwarded.
 */
#include "policy/policy.h"

#define POLICIES                                                                                                       \
    POLICY(trace)                                                                                                      \
    POLICY(pause)                                                                                                      \
    POLICY(deny)                                                                                                       \
    POLICY(limit)                                                                                                      \
    POLICY(added_commands)                                                                                             \
    POLICY(latency)                                                                                                    \
    POLICY(route)                                                                                                      \
    POLICY(lease)

#define POLICY(name) extern const struct policy name##_policy;
POLICIES
#undef POLICY

#define POLICY(name) &name##_policy,
const struct policy *const policies[] = {POLICIES NULL};
#undef POLICY
