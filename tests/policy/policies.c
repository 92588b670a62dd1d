/* The policies of headgate-probe: a watcher that passes everything, behind it the probe, which decides, the meter,
 * which measures, the policy of the tutorial in CONTRIBUTING.md, and the respondent, which has verbs only. */
#include "meter.h"
#include "probe.h"

extern const struct policy databases_policy;

const struct policy *const policies[] = {
    &probe_watcher, &probe_policy, &meter_policy, &databases_policy, &probe_respondent, NULL,
};
