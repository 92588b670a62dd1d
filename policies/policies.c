/* The policies of this build, in the order in which they are asked. */
#include "policy.h"

const struct policy *const policies[] = {
    NULL,
};
