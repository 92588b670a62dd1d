/* What the files of the control share: control.c and control_keys.c. */
#ifndef HEADGATE_CONTROL_PRIVATE_H
#define HEADGATE_CONTROL_PRIVATE_H

#include "base/log.h"
#include "upstream/control.h"

struct control {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *upstream;
    struct control_router router; /* its functions are NULL where there is no cluster */
    STAILQ_HEAD(, call) waiting;  /* until it is known where their keys are */
    size_t under_way;
    int64_t answered_since_us; /* see control_answered_since() */
    size_t asked_bytes;        /* of the questions for keys that are under way */
    struct log_limiter refusals;
};

#endif
