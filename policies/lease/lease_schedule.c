/* When a lease is to be looked at next. */
#include "lease/lease_private.h"

/* How long a lock that was taken by SETNX may be without a time to live: EXPIRE ought to follow at once. */
#define HEAL_US INT64_C(1000000)
#define SHORT_LEASE_US INT64_C(1000000)
/* Leases of one key that are asked about at once, whenever something happens to it. */
#define CROWD 64
/* … and of all keys: one request may name as many. */
#define LEASES_MANY 1024
/* In which renewals are counted for the weight of a lease. */
#define WEIGHED_US INT64_C(10000000)
/* Of a key that somebody WATCHes, or is about to release, it is better not to touch it as long as there is time. */
#define URGENT_PART 3
#define PUT_OFF_US INT64_C(1000000)

bool lease_is_shorter(const struct lease *lease, int64_t expires_us)
{
    return lease->expires_us - expires_us > lease->lease_us / LEASE_SLACK_PART;
}

int64_t lease_deadline_us(const struct lease *lease)
{
    return lease->acquired_us + lease->terms.max_hold_us;
}

/* Since when all connections of all its owners are gone; 0: they are not. */
static int64_t gone_us(const struct lease *lease)
{
    const struct lease_share *share;
    int64_t gone_us = 0;

    LIST_FOREACH(share, &lease->shares, of_lease)
    {
        if (share->owner->gone_us == 0) {
            return 0;
        }
        gone_us = lease_latest(gone_us, share->owner->gone_us);
    }
    return gone_us;
}

bool lease_is_ownerless(const struct lease *lease)
{
    return gone_us(lease) != 0;
}

bool lease_may_be_endless(const struct lease *lease)
{
    return lease->state == LEASE_UNHEALED || (lease->state == LEASE_DOUBTFUL && lease->lease_us == 0);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t part_of(const struct lease *lease, int64_t lease_us)
{
    return lease_us / lease->terms.renew_of * lease->terms.renew;
}

/* So that locks that were taken together are not renewed together: up to an eighth earlier. */
static int64_t spread(const struct lease *lease, int64_t part)
{
    return part / 8192 * (int64_t)(lease->sequence * UINT64_C(0x9e3779b97f4a7c15) >> 54);
}

bool lease_reaches_deadline(const struct lease *lease)
{
    return lease->expires_us + 1000 >= lease_deadline_us(lease);
}

int64_t lease_margin_us(const struct lease *lease)
{
    return (lease->lease_us - earlier(part_of(lease, lease->lease_us), lease->lease_us / 3)) / 2;
}

/* Between two renewals. */
static int64_t pause_us(const struct lease *lease)
{
    int64_t part = part_of(lease, lease->lease_us > 0 ? lease->lease_us : lease->terms.ttl_us);

    return part > LEASE_WHEEL_STEP_US ? part : LEASE_WHEEL_STEP_US;
}

int64_t lease_early_us(const struct lease_registry *registry, const struct lease *lease)
{
    bool is_one_of_few = !lease->is_of_many || lease->called_us == 0;

    return is_one_of_few ? 0 : earlier(lease->called_us + pause_us(lease) / 2, lease_renewal_due_us(registry, lease));
}

size_t lease_weight(const struct lease *lease)
{
    size_t renewals = (size_t)((WEIGHED_US + pause_us(lease) - 1) / pause_us(lease));
    size_t keys = lease->key_count + (lease->kind == LEASE_READ_LOCK ? lease->holds : 0);
    size_t bytes = lease->token.length;

    for (size_t i = 0; i < lease->key_count; i++) {
        bytes += lease->members[i].key->length;
    }
    return keys * renewals + bytes / 1024;
}

int64_t lease_permit_settles_us(const struct lease *lease)
{
    return lease->acquired_us + lease->lease_us / 3;
}

/* Of a permit that newcomers' scores are compared with: before its score has come as near to those that are swept up as
 * lease_call.c keeps it away from them. Who is due is looked at up to a step later, and that margin is for clocks. */
static int64_t ranked_due_us(const struct lease *lease)
{
    return lease->expires_us - lease_margin_us(lease) - LEASE_WHEEL_STEP_US;
}

/* Who is due is looked at up to a step later: of a short lease that is much. */
static int64_t lateness_us(const struct lease *lease)
{
    return lease->lease_us < SHORT_LEASE_US ? LEASE_WHEEL_STEP_US : 0;
}

int64_t lease_renewal_due_us(const struct lease_registry *registry, const struct lease *lease)
{
    int64_t part = part_of(lease, lease->lease_us);
    int64_t due = lease->expires_us - lease->lease_us + part - spread(lease, part) - lateness_us(lease);
    int64_t last = lease->expires_us - lease->lease_us / URGENT_PART - LEASE_WHEEL_STEP_US;

    due = lease->ranked ? ranked_due_us(lease) - spread(lease, part) : due;
    due = due < last && lease_registry_is_guarded(registry, lease) ? last : due;

    return lease_reaches_deadline(lease) ? lease_deadline_us(lease) : due;
}

int64_t lease_healing_due_us(const struct lease *lease)
{
    int64_t part = part_of(lease, lease->terms.ttl_us);

    return lease->acquired_us + (part < HEAL_US ? part : HEAL_US);
}

bool lease_is_orphan(const struct lease *lease)
{
    return lease_is_ownerless(lease) && !lease_may_be_endless(lease);
}

/* What was to be tried again for the owner does not cut its grace short, and a failed farewell waits as well. */
static int64_t farewell_due_us(const struct lease *lease)
{
    int64_t due = gone_us(lease) + lease->terms.grace_us;

    return due > lease->retry_us ? due : lease->retry_us;
}

/* When it is to be looked at if nothing is under way. */
static int64_t plain_due_us(const struct lease_registry *registry, const struct lease *lease)
{
    if (lease_is_orphan(lease)) {
        return farewell_due_us(lease);
    }
    if (lease->retry_us != 0) {
        return lease->retry_us;
    }
    if (lease->suspected != 0 || (lease->state == LEASE_UNHEALED && lease->after_release)) {
        return lease_early_us(registry, lease);
    }
    switch (lease->state) {
    case LEASE_UNHEALED:
        return lease_is_ownerless(lease) ? gone_us(lease) : lease_healing_due_us(lease);
    case LEASE_HELD:
        return lease->trial ? earlier(lease_permit_settles_us(lease), lease_renewal_due_us(registry, lease))
                            : lease_renewal_due_us(registry, lease);
    case LEASE_SELF:
    case LEASE_EXHAUSTED:
        return lease->expires_us;
    default:
        return lease_early_us(registry, lease);
    }
}

/* A release that is under way puts off what is due, as it is likely to come about, but for no longer than the lease
 * bears it: whoever has sent it, and however long it waits in Redis, the key is looked at then, and renewed if the
 * token is there. What has no end, or no owner, is put off for a second. */
static int64_t put_off(const struct lease *lease, int64_t due_us)
{
    int64_t last = lease->lease_us > 0 && !lease_is_orphan(lease)
                       ? lease->expires_us - lease->lease_us / URGENT_PART - LEASE_WHEEL_STEP_US
                       : due_us + PUT_OFF_US;

    return due_us < last ? last : due_us;
}

int64_t lease_due_us(const struct lease_registry *registry, const struct lease *lease)
{
    int64_t due = plain_due_us(registry, lease);

    return lease->is_beyond ? 0 : lease_registry_is_releasing(registry, lease) ? put_off(lease, due) : due;
}

void lease_schedule(struct lease_worker *worker, struct lease *lease)
{
    /* Here, as whatever changes how often it is renewed comes by: this is the one place that weighs. */
    lease->is_beyond = !lease_registry_weigh(worker->registry, lease, lease_weight(lease));
    lease->is_of_many =
        lease->members[0].key->member_count > CROWD || lease_registry_count(worker->registry) > LEASES_MANY;
    /* What stands in its way leads here again when it is over. */
    if (lease->calling) {
        lease_wheel_cancel(&lease->watch);
        return;
    }
    /* A renewal may come a step early, the farewell to an owner may not: it could come back. */
    int64_t due = lease_due_us(worker->registry, lease) + (lease_is_orphan(lease) ? LEASE_WHEEL_STEP_US : 0);
    int64_t next_call = lease->called_us + LEASE_WHEEL_STEP_US;
    /* Whatever it is, asking again at once is not going to help. */
    due = due > next_call || lease->called_us == 0 ? due : next_call;
    lease_wheel_set(lease_registry_wheel(worker->registry, lease->worker), &lease->watch, due);
}
