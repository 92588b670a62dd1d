/* All sections that may stand in the ini file beside [headgate]. */
#ifndef HEADGATE_SECTIONS_H
#define HEADGATE_SECTIONS_H

#include "policy/policy.h"

/* Of Headgate's own. */
#define SECTIONS_OWN 3
#define SECTIONS_MAX (SECTIONS_OWN + POLICY_SECTIONS_MAX)

/* Headgate's own, then those of the policies of the list, which ends with NULL; up to a NULL. */
void sections_list(const struct policy *const *policies, const struct conf_section *sections[SECTIONS_MAX + 1]);

#endif
