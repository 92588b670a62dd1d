/*
 * What is done for a lease that is due.
 *
 *   UNHEALED ─► (a second later) HEAL ─► HELD
 *   DOUBTFUL ─► CHECK ─► HELD, or ended
 *   HELD     ─► (at a part of the lease) RENEW ─► HELD, or ended
 *            ─► (at max_hold) EXHAUSTED
 *   SELF, EXHAUSTED ─► (when it should be over) CHECK ─► the same, or ended
 *   any      ─► (the owner is gone for grace) RELEASE, or ended at once
 *            ─► (it has become heavier than max_leases has room for) ended
 *
 * A request that may release a lease, and is under way, puts that off as long as the lease bears it (lease_schedule.c).
 */
#include "lease/lease_private.h"

/* Scripts that are sent between two ticks and are not answered yet: more wait here, as clients' requests come behind
 * them. Those that a place does not answer for longer take nothing from those of another one. */
#define CALLS_MAX 1024
#define SECOND_US INT64_C(1000000)

static void exhaust(struct lease_worker *worker, struct lease *lease)
{
    lease_move(lease, LEASE_EXHAUSTED);
    lease->reason = LEASE_REASON_MAX_HOLD;
    lease_count(worker, LEASE_COUNTER_MAX_HOLD);
    lease_tally_add(lease->terms.tally, LEASE_TALLY_MAX_HOLD, 1);
    lease_warn_of_loss(worker, lease, "max_hold reached, not renewed any more");
}

static void look_again_later(struct lease_worker *worker, struct lease *lease, int64_t later_us)
{
    struct lease_wheel *wheel = lease_registry_wheel(worker->registry, lease->worker);

    lease_wheel_set(wheel, &lease->watch, lease_now(worker) + later_us);
}

static struct lease_call *call(struct lease_worker *worker, struct lease *lease, enum lease_script_operation operation)
{
    struct lease_call *made = lease_call_prepare(worker, lease, operation);

    if (made == NULL) {
        /* Without memory there is nothing to do but try again. */
        look_again_later(worker, lease, SECOND_US);
    }
    return made;
}

static struct lease_call *attend_orphan(struct lease_worker *worker, struct lease *lease)
{
    /* Its owner may be with another process by now, which will be given the lease as soon as it is clear how it stands.
     */
    bool may_live = lease_registry_gives_away(worker->registry, lease_now(worker)) && !lease_taker(lease)->is_alone;
    if (may_live) {
        look_again_later(worker, lease, SECOND_US / 2);
        return NULL;
    }
    /* What Redis has not said to be its own it does not release. */
    if (lease->terms.farewell == LEASE_FAREWELL_RELEASE && (lease->confirmed || lease->trial)) {
        return call(worker, lease, LEASE_OPERATION_RELEASE);
    }
    lease_end(worker, lease, lease_reason_without_owner(worker, lease));
    return NULL;
}

static struct lease_call *attend_held(struct lease_worker *worker, struct lease *lease, int64_t now)
{
    int64_t deadline = lease_deadline_us(lease);
    bool is_early = lease->retry_us == 0 && lease_renewal_due_us(worker->registry, lease) > now + LEASE_WHEEL_STEP_US &&
                    !worker->last_round;

    if (lease->trial && lease_permit_settles_us(lease) <= now + LEASE_WHEEL_STEP_US) {
        lease_permit_settle(worker, lease);
    }
    if (is_early && lease->suspected != 0) {
        return call(worker, lease, LEASE_OPERATION_CHECK);
    }
    if (is_early) {
        lease_schedule(worker, lease);
        return NULL;
    }
    if (now > lease->expires_us + lease->vague_us && lease_owner_is_ambiguous(worker, lease)) {
        /* It was not renewed for so long that the other one may have taken it. */
        lease_end(worker, lease, LEASE_REASON_UNREACHABLE);
        return NULL;
    }
    if (now >= deadline) {
        exhaust(worker, lease);
        lease_schedule(worker, lease);
        return NULL;
    }
    if (lease_reaches_deadline(lease)) {
        /* There is nothing to gain, and it is not over yet. */
        look_again_later(worker, lease, LEASE_WHEEL_STEP_US);
        return NULL;
    }
    return call(worker, lease, LEASE_OPERATION_RENEW);
}

/* One that may be released by now, or ended by another, is not given a time to live before it is due: EXPIRE may be on
 * its way. */
static struct lease_call *attend_unhealed(struct lease_worker *worker, struct lease *lease, int64_t now)
{
    bool is_asked_early = lease->after_release || lease->suspected != 0;
    bool is_early = is_asked_early && !lease_is_ownerless(lease) && !worker->last_round &&
                    lease_healing_due_us(lease) > now + LEASE_WHEEL_STEP_US;

    return call(worker, lease, is_early ? LEASE_OPERATION_CHECK : LEASE_OPERATION_HEAL);
}

/* However often it comes into doubt, it is renewed in time, if the token is there: whether it is what was expected does
 * not matter then. */
static bool is_pressing(const struct lease_worker *worker, const struct lease *lease, int64_t now)
{
    return lease->state == LEASE_DOUBTFUL && lease->confirmed && !lease->after_release && lease->lease_us > 0 &&
           now < lease_deadline_us(lease) && !lease_reaches_deadline(lease) &&
           lease_renewal_due_us(worker->registry, lease) <= now + LEASE_WHEEL_STEP_US;
}

/* The lease is due, and in no wheel. */
static struct lease_call *attend(struct lease_worker *worker, struct lease *lease, int64_t now)
{
    if (lease->is_beyond) {
        lease_end(worker, lease, LEASE_REASON_BEYOND);
        return NULL;
    }
    if (lease_is_orphan(lease)) {
        return attend_orphan(worker, lease);
    }
    switch (lease->state) {
    case LEASE_UNHEALED:
        return attend_unhealed(worker, lease, now);
    case LEASE_HELD:
        return attend_held(worker, lease, now);
    default:
        return call(worker, lease, is_pressing(worker, lease, now) ? LEASE_OPERATION_RENEW : LEASE_OPERATION_CHECK);
    }
}

/* Whether something is to be done for it, though it is not due yet, before the process ends. Not a farewell: the owner
 * may come back elsewhere. */
static bool is_of_last_round(const struct lease_worker *worker, const struct lease *lease)
{
    return worker->last_round && !lease_is_orphan(lease) &&
           (lease_may_be_endless(lease) || (lease->state == LEASE_HELD && !lease_reaches_deadline(lease)));
}

static bool is_early(const struct lease_worker *worker, const struct lease *lease, int64_t now)
{
    return lease_due_us(worker->registry, lease) > now + (lease_is_orphan(lease) ? 0 : LEASE_WHEEL_STEP_US) &&
           !is_of_last_round(worker, lease);
}

/* Takes the next one that is due, and makes up what is to be sent for it, if anything. False: none is. */
static bool attend_next(struct lease_worker *worker, struct lease_call **made)
{
    int64_t now = lease_now(worker);
    struct lease_wheel *wheel = lease_registry_wheel(worker->registry, worker->host->worker);
    struct lease_wheel_entry *entry = worker->fresh_calls < CALLS_MAX ? lease_wheel_take(wheel, now) : NULL;
    struct lease *lease = (struct lease *)(void *)entry;

    *made = NULL;
    if (lease == NULL) {
        return false;
    }
    if (is_early(worker, lease, now)) {
        lease_schedule(worker, lease);
        return true;
    }
    *made = attend(worker, lease, now);
    return true;
}

void lease_watch(struct lease_worker *worker)
{
    struct lease_call *made;
    bool more = true;

    /* A call that fails at once comes here again. */
    if (worker->watching) {
        return;
    }
    worker->watching = true;
    while (more) {
        lease_registry_lock(worker->registry);
        more = attend_next(worker, &made);
        lease_registry_unlock(worker->registry);
        if (made != NULL) {
            lease_call_send(made, lease_watch);
        }
    }
    worker->watching = false;
}

bool lease_watch_is_done(struct lease_worker *worker)
{
    lease_registry_lock(worker->registry);
    bool done = worker->calls == 0 && LIST_EMPTY(&lease_registry_wheel(worker->registry, worker->host->worker)->ready);
    lease_registry_unlock(worker->registry);
    return done;
}
