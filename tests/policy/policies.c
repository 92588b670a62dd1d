/* The policies of headgate-probe: a watcher that passes everything, behind it the probe, which decides, the meter,
 * which measures, and the respondent, which has verbs only. */
#include "meter.h"
#include "probe.h"

const struct policy *const policies[] = {
    &probe_watcher, &probe_policy, &meter_policy, &probe_respondent, NULL,
};
