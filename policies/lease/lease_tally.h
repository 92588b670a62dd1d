/*
 * What each rule of leases has counted, for all workers together, by its name: it goes on over reloads, also for a rule
 * that is gone, as leases may still be held under it.
 */
#ifndef HEADGATE_LEASE_TALLY_H
#define HEADGATE_LEASE_TALLY_H

#include "policy/policy.h"

enum lease_tally_count {
    LEASE_TALLY_ACQUIRED,
    LEASE_TALLY_HELD,
    LEASE_TALLY_RENEWALS,
    LEASE_TALLY_LOST,
    LEASE_TALLY_MAX_HOLD,
    LEASE_TALLIES
};

extern const struct policy_counter lease_tally_table[LEASE_TALLIES];

struct lease_tally {
    struct lease_tally *next;
    _Atomic uint64_t counts[LEASE_TALLIES];
    char rule[CONF_RULE_NAME_MAX + 1];
};

/* Those of a registry, from any thread. */
struct lease_tallies;

/* NULL when memory is short. */
struct lease_tallies *lease_tallies_new(void);
/* Harmless for NULL. */
void lease_tallies_free(struct lease_tallies *tallies);
/* That of the rule, made if there is none. NULL when memory is short: nothing is counted then. */
struct lease_tally *lease_tallies_find(struct lease_tallies *tallies, const char *rule);
void lease_tallies_tell(struct lease_tallies *tallies, policy_rule_told *told, void *context);

/* tally: may be NULL. */
static inline void lease_tally_add(struct lease_tally *tally, enum lease_tally_count count, uint64_t amount)
{
    if (tally != NULL) {
        atomic_fetch_add_explicit(&tally->counts[count], amount, memory_order_relaxed);
    }
}

#endif
