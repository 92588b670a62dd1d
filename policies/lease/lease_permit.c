/*
 * Which attempts at a semaphore have got a permit.
 *
 * Who wants a permit adds itself to the sorted set, asks for its rank, and takes itself out again if that is not below
 * the limit: so ZADD alone says nothing yet. The limit is the clients' own, and what the rule says. Where it does not,
 * the lowest rank is a permit, and so is what was kept for as long as no refused client needs to take itself out.
 */
#include "lease/lease_private.h"

void lease_permit_try(struct lease *lease)
{
    lease->ranked = true;
    if (!lease->confirmed) {
        lease->trial = true;
        lease->rank_asked = false;
    }
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
    if (said == 0) {
        warn_once(worker, lease);
    }
    if (rank >= (said != 0 ? said : 1)) {
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
    }
}

void lease_permit_settle(struct lease_worker *worker, struct lease *lease)
{
    admit(worker, lease);
}

void lease_permit_end(struct lease_worker *worker, struct lease *lease)
{
    if (lease->trial && !lease->rank_asked) {
        admit(worker, lease);
    }
}
