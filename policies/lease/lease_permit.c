/*
 * Which attempts at a semaphore have got a permit.
 *
 * Who wants a permit adds itself to the sorted set, asks for its rank, and takes itself out again if that is not below
 * the limit: so ZADD alone says nothing yet. The limit is the clients' own. It is what the rule says, or is learned:
 * the lowest rank is always a permit, and so is one that was kept for as long as no refused client needs to take itself
 * out. Attempts that end sooner, with a rank of which that is not known, are noted, and counted once it is.
 */
#include "lease/lease_private.h"

void lease_permit_try(struct lease *lease)
{
    lease->ranked = true;
    if (!lease->confirmed) {
        lease->trial = true;
        lease->rank_asked = false;
        lease->rank = 0;
    }
}

static struct lease_semaphore *semaphore_of(const struct lease_worker *worker, const struct lease *lease)
{
    return lease_registry_semaphore(worker->registry, lease->members[0].key);
}

static void admit(struct lease_worker *worker, struct lease *lease)
{
    lease->trial = false;
    lease_count_taken(worker, lease);
}

static void warn_once(struct lease_worker *worker, const struct lease *lease)
{
    if (lease_registry_is_first(worker->registry, LEASE_ONCE_RANK)) {
        worker->host->warn(worker->host->context, lease->terms.rule,
                           "permits are given by rank (ZADD, ZRANK), and how many there are is not said: those with a "
                           "rank above the lowest are counted later or not at all; say limit = N");
    }
}

bool lease_permit_rank(struct lease_worker *worker, struct lease *lease, int64_t rank)
{
    uint32_t said = lease->terms.limit;

    if (!lease->trial || rank < 0) {
        return true;
    }
    lease->rank_asked = true;
    lease->rank = rank < UINT32_MAX ? (uint32_t)rank : UINT32_MAX;
    if (said == 0) {
        warn_once(worker, lease);
    }
    if (lease->rank >= (said != 0 ? said : semaphore_of(worker, lease)->limit)) {
        return said == 0;
    }
    admit(worker, lease);
    lease_schedule(worker, lease);
    return true;
}

void lease_permit_hide_rank(struct lease *lease)
{
    if (lease->trial) {
        lease->rank_asked = true;
        lease->rank = UINT32_MAX;
    }
}

/* Those that were given back soon were permits as well. */
static void count_briefs(struct lease_worker *worker, const struct lease *lease, uint32_t limit)
{
    struct lease_semaphore *semaphore = semaphore_of(worker, lease);

    for (uint32_t rank = semaphore->limit; rank < limit && rank < LEASE_RANKS; rank++) {
        lease_count_briefs(worker, lease, semaphore->briefs[rank]);
        semaphore->briefs[rank] = 0;
    }
    semaphore->limit = limit;
}

void lease_permit_settle(struct lease_worker *worker, struct lease *lease)
{
    bool is_known = lease->rank_asked && lease->rank < UINT32_MAX && lease->terms.limit == 0;

    if (is_known && lease->rank >= semaphore_of(worker, lease)->limit) {
        count_briefs(worker, lease, lease->rank + 1);
    }
    admit(worker, lease);
}

void lease_permit_end(struct lease_worker *worker, struct lease *lease, enum lease_reason reason)
{
    if (!lease->trial) {
        return;
    }
    if (!lease->rank_asked) {
        admit(worker, lease);
    } else if (reason == LEASE_REASON_RELEASED && lease->rank < LEASE_RANKS) {
        semaphore_of(worker, lease)->briefs[lease->rank]++;
    }
}
