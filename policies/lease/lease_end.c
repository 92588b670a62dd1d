/* How a lease ends, and what is known of its end when it comes. */
#include "lease/lease_private.h"

#include <stdio.h>

/* What comes of a lease that ends for that reason. */
static const struct {
    bool is_loss;
    enum lease_counter counter; /* 0, which none is: nothing counts */
} outcomes[] = {
    [LEASE_REASON_RELEASED] = {false, LEASE_COUNTER_RELEASED},
    [LEASE_REASON_UNSEEN] = {false, LEASE_COUNTER_UNSEEN},
    [LEASE_REASON_GONE] = {true, LEASE_COUNTER_LOST_GONE},
    [LEASE_REASON_TAKEN] = {true, LEASE_COUNTER_LOST_TAKEN},
    [LEASE_REASON_PERSISTED] = {true, LEASE_COUNTER_LOST_PERSISTED},
    [LEASE_REASON_SHORTENED] = {true, LEASE_COUNTER_LOST_SHORTENED},
    [LEASE_REASON_OTHER_TYPE] = {true, LEASE_COUNTER_LOST_TYPE},
    [LEASE_REASON_UNREACHABLE] = {true, LEASE_COUNTER_LOST_UNREACHABLE},
    [LEASE_REASON_OWNER_GONE] = {false, LEASE_COUNTER_OWNER_GONE},
    [LEASE_REASON_DROPPED] = {false, LEASE_COUNTER_DROPPED},
    [LEASE_REASON_BEYOND] = {false, 0}, /* lease_warn_of_bound() does, also of what was not confirmed */
};

void lease_suspect(struct lease_worker *worker, struct lease *lease)
{
    lease->suspected = lease_registry_sequence(worker->registry);
    lease_schedule(worker, lease);
}

bool lease_is_suspect(const struct lease_worker *worker, const struct lease *lease)
{
    return lease->suspected != 0 ||
           lease_registry_unseen(worker->registry, lease->members[0].key->database) > lease->shown;
}

enum lease_reason lease_reason_without_owner(const struct lease_worker *worker, const struct lease *lease)
{
    return lease->after_release              ? LEASE_REASON_RELEASED
           : lease_is_suspect(worker, lease) ? LEASE_REASON_UNSEEN
                                             : LEASE_REASON_OWNER_GONE;
}

/* With another process beside this one, its owner may have released it by way of that one. */
static enum lease_reason reason_here(const struct lease_worker *worker, enum lease_reason reason)
{
    bool may_be_release = reason == LEASE_REASON_GONE || reason == LEASE_REASON_TAKEN;

    return may_be_release && lease_registry_is_beside(worker->registry, lease_now(worker)) ? LEASE_REASON_UNSEEN
                                                                                           : reason;
}

void lease_end(struct lease_worker *worker, struct lease *lease, enum lease_reason why)
{
    enum lease_reason reason = reason_here(worker, why);

    if (outcomes[reason].counter != 0 && reason != LEASE_REASON_DROPPED) {
        lease_permit_end(worker, lease);
    }
    /* What Redis has never confirmed was no lock. */
    if (lease->confirmed && outcomes[reason].is_loss && lease->state != LEASE_EXHAUSTED) {
        char what[64];
        snprintf(what, sizeof what, "lock lost (%s)", lease_reason_name(reason));
        lease_warn_of_loss(worker, lease, what);
        lease_tell(worker, lease, POLICY_LEASE_LOST, 1, lease_reason_name(reason));
    }
    if (lease->confirmed && reason == LEASE_REASON_OWNER_GONE) {
        lease_inform_of_end(worker, lease);
    }
    if (reason == LEASE_REASON_BEYOND) {
        const struct lease_key *key = lease->members[0].key;
        lease_warn_of_bound(worker, lease->terms.rule, (struct slice){key->name, key->length},
                            lease_shown_owner(lease));
    }
    bool counts = lease->confirmed && outcomes[reason].counter != 0;
    if (counts && (lease->state != LEASE_EXHAUSTED || reason == LEASE_REASON_RELEASED)) {
        lease_count(worker, outcomes[reason].counter);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_LOST, outcomes[reason].is_loss);
    }
    lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, lease->confirmed ? UINT64_MAX : 0);
    lease_registry_remove(worker->registry, lease, reason);
}
