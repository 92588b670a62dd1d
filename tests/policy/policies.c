/* The policies of headgate-probe: a watcher that passes everything, and behind it the probe, which decides; the
 * respondent has verbs only. */
#include "probe.h"

const struct policy *const policies[] = {
    &probe_watcher,
    &probe_policy,
    &probe_respondent,
    NULL,
};
