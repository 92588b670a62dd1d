/* The policies of headgate-probe: a watcher that passes everything, and behind it the probe, which decides. */
#include "probe.h"

const struct policy *const policies[] = {
    &probe_watcher,
    &probe_policy,
    NULL,
};
