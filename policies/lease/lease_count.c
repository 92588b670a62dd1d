/* From when on a lock counts, and for which rule. */
#include "lease/lease_private.h"

void lease_count_taken(struct lease_worker *worker, struct lease *lease)
{
    if (!lease->confirmed) {
        lease->confirmed = true;
        lease_count(worker, LEASE_COUNTER_ACQUIRED);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_ACQUIRED, 1);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, 1);
        lease_tell(worker, lease, POLICY_LEASE_TAKEN, 1, lease_kind_name(lease->kind));
    }
}

void lease_count_brief(struct lease_worker *worker, const struct lease *lease)
{
    lease_count(worker, LEASE_COUNTER_ACQUIRED);
    lease_count(worker, LEASE_COUNTER_RELEASED);
    lease_tally_add(lease->terms.tally, LEASE_TALLY_ACQUIRED, 1);
    lease_tell(worker, lease, POLICY_LEASE_TAKEN, 1, lease_kind_name(lease->kind));
}

void lease_count_under(struct lease *lease, const struct lease_terms *terms)
{
    if (lease->confirmed && lease->terms.tally != terms->tally) {
        lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, UINT64_MAX);
        lease_tally_add(terms->tally, LEASE_TALLY_HELD, 1);
    }
    lease->terms = *terms;
}
