/*
 * When a lease is to be looked at, what is done then, and how it ends.
 *
 *   UNHEALED ─► (a second later) HEAL ─► HELD
 *   DOUBTFUL ─► CHECK ─► HELD, or ended
 *   HELD     ─► (at a part of the lease) RENEW ─► HELD, or ended
 *            ─► (at max_hold) EXHAUSTED
 *   SELF, EXHAUSTED ─► (when it should be over) CHECK ─► the same, or ended
 *   any      ─► (the owner is gone for grace) RELEASE, or ended at once
 *
 * While a request that may release a lease is under way, nothing is done for it.
 */
#include "lease/lease_private.h"

#include <stdio.h>

/* Scripts under way at once: more wait here, where a release can still stop them. */
#define CALLS_MAX 1024
/* How long a lock that was taken by SETNX may be without a time to live: EXPIRE ought to follow at once. */
#define HEAL_US INT64_C(1000000)
#define SECOND_US INT64_C(1000000)
#define SHORT_LEASE_US SECOND_US

/* What comes of a lease that ends for that reason. */
static const struct {
    bool is_loss;
    enum lease_counter counter; /* LEASE_COUNTERS: none */
} outcomes[] = {
    [LEASE_REASON_NONE] = {false, LEASE_COUNTERS},
    [LEASE_REASON_RENEWED] = {false, LEASE_COUNTERS},
    [LEASE_REASON_DEFERRED] = {false, LEASE_COUNTERS},
    [LEASE_REASON_FAILED] = {false, LEASE_COUNTERS},
    [LEASE_REASON_RELEASED] = {false, LEASE_COUNTER_RELEASED},
    [LEASE_REASON_UNSEEN] = {false, LEASE_COUNTER_UNSEEN},
    [LEASE_REASON_GONE] = {true, LEASE_COUNTER_LOST_GONE},
    [LEASE_REASON_TAKEN] = {true, LEASE_COUNTER_LOST_TAKEN},
    [LEASE_REASON_PERSISTED] = {true, LEASE_COUNTER_LOST_PERSISTED},
    [LEASE_REASON_SHORTENED] = {true, LEASE_COUNTER_LOST_SHORTENED},
    [LEASE_REASON_OTHER_TYPE] = {true, LEASE_COUNTER_LOST_TYPE},
    [LEASE_REASON_UNREACHABLE] = {true, LEASE_COUNTER_LOST_UNREACHABLE},
    [LEASE_REASON_OWNER_GONE] = {false, LEASE_COUNTER_OWNER_GONE},
    [LEASE_REASON_MAX_HOLD] = {false, LEASE_COUNTERS},
    [LEASE_REASON_DROPPED] = {false, LEASE_COUNTER_DROPPED},
};

static void tell(const struct lease_worker *worker, const struct lease *lease, enum policy_event_kind kind,
                 uint32_t count, const char *what)
{
    const struct policy_event event = {
        .kind = kind, .count = count, .source = lease_section.name, .rule = lease->terms.rule, .what = what};

    policy_tell(worker->host, &event);
}

/* ---- moving ---- */

void lease_confirm(struct lease_worker *worker, struct lease *lease)
{
    if (!lease->confirmed) {
        lease->confirmed = true;
        lease_count(worker, LEASE_COUNTER_ACQUIRED);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_ACQUIRED, 1);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, 1);
        tell(worker, lease, POLICY_LEASE_TAKEN, 1, lease_kind_name(lease->kind));
    }
}

void lease_count_briefs(struct lease_worker *worker, const struct lease *lease, uint32_t count)
{
    if (count > 0) {
        policy_count(&worker->counters[LEASE_COUNTER_ACQUIRED], count);
        policy_count(&worker->counters[LEASE_COUNTER_RELEASED], count);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_ACQUIRED, count);
        tell(worker, lease, POLICY_LEASE_TAKEN, count, lease_kind_name(lease->kind));
    }
}

void lease_go_over(struct lease *lease, const struct lease_terms *terms)
{
    if (lease->confirmed && lease->terms.tally != terms->tally) {
        lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, UINT64_MAX);
        lease_tally_add(terms->tally, LEASE_TALLY_HELD, 1);
    }
    lease->terms = *terms;
}

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

    if (outcomes[reason].counter != LEASE_COUNTERS && reason != LEASE_REASON_DROPPED) {
        lease_permit_end(worker, lease, reason);
    }
    /* What Redis has never confirmed was no lock. */
    if (lease->confirmed && outcomes[reason].is_loss && lease->state != LEASE_EXHAUSTED) {
        char what[64];
        snprintf(what, sizeof what, "lock lost (%s)", lease_reason_name(reason));
        lease_warn_of_loss(worker, lease, what);
        tell(worker, lease, POLICY_LEASE_LOST, 1, lease_reason_name(reason));
    }
    if (lease->confirmed && reason == LEASE_REASON_OWNER_GONE) {
        lease_inform_of_end(worker, lease);
    }
    bool counts = lease->confirmed && outcomes[reason].counter != LEASE_COUNTERS;
    if (counts && !(lease->state == LEASE_EXHAUSTED && outcomes[reason].is_loss)) {
        lease_count(worker, outcomes[reason].counter);
        lease_tally_add(lease->terms.tally, LEASE_TALLY_LOST, outcomes[reason].is_loss);
    }
    lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, lease->confirmed ? UINT64_MAX : 0);
    lease_registry_remove(worker->registry, lease, reason);
}

static void exhaust(struct lease_worker *worker, struct lease *lease)
{
    lease_move(lease, LEASE_EXHAUSTED);
    lease->reason = LEASE_REASON_MAX_HOLD;
    lease_count(worker, LEASE_COUNTER_MAX_HOLD);
    lease_tally_add(lease->terms.tally, LEASE_TALLY_MAX_HOLD, 1);
    lease_warn_of_loss(worker, lease, "max_hold reached, not renewed any more");
}

/* ---- when ---- */

int64_t lease_deadline_us(const struct lease *lease)
{
    return lease->acquired_us + lease->terms.max_hold_us;
}

bool lease_is_ownerless(const struct lease *lease)
{
    return lease->owner != NULL && lease->owner->gone_us != 0;
}

bool lease_may_be_endless(const struct lease *lease)
{
    return lease->state == LEASE_UNHEALED || (lease->state == LEASE_DOUBTFUL && lease->lease_us == 0);
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

/* Whether there is nothing to gain any more; leases are given in whole ms. */
static bool reaches_deadline(const struct lease *lease)
{
    return lease->expires_us + 1000 >= lease_deadline_us(lease);
}

/* Of a key that somebody WATCHes: it is better not to touch it as long as there is time. */
#define GUARDED_PART 3

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

static int64_t renewal_due_us(const struct lease *lease)
{
    int64_t part = part_of(lease, lease->lease_us);
    int64_t due = lease->expires_us - lease->lease_us + part - spread(lease, part) - lateness_us(lease);
    int64_t last = lease->expires_us - lease->lease_us / GUARDED_PART - LEASE_WHEEL_STEP_US;

    due = lease->ranked ? ranked_due_us(lease) - spread(lease, part) : due;
    due = due < last && lease_registry_is_guarded(lease) ? last : due;

    return reaches_deadline(lease) ? lease_deadline_us(lease) : due;
}

static int64_t healing_due_us(const struct lease *lease)
{
    int64_t part = part_of(lease, lease->terms.ttl_us);

    return lease->acquired_us + (part < HEAL_US ? part : HEAL_US);
}

/* Its owner is gone, and what there is to be done for it is no more than to let go of it. */
static bool is_orphan(const struct lease *lease)
{
    return lease_is_ownerless(lease) && !lease_may_be_endless(lease);
}

/* What was to be tried again for the owner does not cut its grace short, and a failed farewell waits as well. */
static int64_t farewell_due_us(const struct lease *lease)
{
    int64_t due = lease->owner->gone_us + lease->terms.grace_us;

    return due > lease->retry_us ? due : lease->retry_us;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t due_us(const struct lease *lease)
{
    if (is_orphan(lease)) {
        return farewell_due_us(lease);
    }
    if (lease->retry_us != 0) {
        return lease->retry_us;
    }
    if (lease->suspected != 0 || (lease->state == LEASE_UNHEALED && lease->after_release)) {
        return 0;
    }
    switch (lease->state) {
    case LEASE_UNHEALED:
        return lease_is_ownerless(lease) ? lease->owner->gone_us : healing_due_us(lease);
    case LEASE_HELD:
        return lease->trial ? earlier(lease_permit_settles_us(lease), renewal_due_us(lease)) : renewal_due_us(lease);
    case LEASE_SELF:
    case LEASE_EXHAUSTED:
        return lease->expires_us;
    default:
        return 0;
    }
}

void lease_schedule(struct lease_worker *worker, struct lease *lease)
{
    /* What stands in its way leads here again when it is over. */
    if (lease->calling || lease_registry_is_releasing(worker->registry, lease)) {
        lease_wheel_cancel(&lease->watch);
        return;
    }
    /* A renewal may come a step early, the farewell to an owner may not: it could come back. */
    int64_t due = due_us(lease) + (is_orphan(lease) ? LEASE_WHEEL_STEP_US : 0);
    int64_t next_call = lease->called_us + LEASE_WHEEL_STEP_US;
    /* Whatever it is, asking again at once is not going to help. */
    due = due > next_call || lease->called_us == 0 ? due : next_call;
    lease_wheel_set(lease_registry_wheel(worker->registry, lease->worker), &lease->watch, due);
}

/* ---- what ---- */

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

enum lease_reason lease_reason_without_owner(const struct lease_worker *worker, const struct lease *lease)
{
    return lease->after_release              ? LEASE_REASON_RELEASED
           : lease_is_suspect(worker, lease) ? LEASE_REASON_UNSEEN
                                             : LEASE_REASON_OWNER_GONE;
}

static struct lease_call *attend_orphan(struct lease_worker *worker, struct lease *lease)
{
    if (lease_twin_takes(worker, lease)) {
        look_again_later(worker, lease, SECOND_US / 2);
        return NULL;
    }
    if (lease->terms.farewell == LEASE_FAREWELL_RELEASE) {
        return call(worker, lease, LEASE_OPERATION_RELEASE);
    }
    lease_end(worker, lease, lease_reason_without_owner(worker, lease));
    return NULL;
}

static struct lease_call *attend_held(struct lease_worker *worker, struct lease *lease, int64_t now)
{
    int64_t deadline = lease_deadline_us(lease);
    bool is_early = lease->retry_us == 0 && renewal_due_us(lease) > now + LEASE_WHEEL_STEP_US && !worker->last_round;

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
    if (now >= deadline) {
        exhaust(worker, lease);
        lease_schedule(worker, lease);
        return NULL;
    }
    if (reaches_deadline(lease)) {
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
                    healing_due_us(lease) > now + LEASE_WHEEL_STEP_US;

    return call(worker, lease, is_early ? LEASE_OPERATION_CHECK : LEASE_OPERATION_HEAL);
}

/* The lease is due, and in no wheel. */
static struct lease_call *attend(struct lease_worker *worker, struct lease *lease, int64_t now)
{
    if (is_orphan(lease)) {
        return attend_orphan(worker, lease);
    }
    switch (lease->state) {
    case LEASE_UNHEALED:
        return attend_unhealed(worker, lease, now);
    case LEASE_HELD:
        return attend_held(worker, lease, now);
    default:
        return call(worker, lease, LEASE_OPERATION_CHECK);
    }
}

/* Whether something is to be done for it, though it is not due yet, before the process ends. Not a farewell: the owner
 * may come back elsewhere. */
static bool is_of_last_round(const struct lease_worker *worker, const struct lease *lease)
{
    return worker->last_round && !is_orphan(lease) &&
           (lease_may_be_endless(lease) || (lease->state == LEASE_HELD && !reaches_deadline(lease)));
}

static bool is_early(const struct lease_worker *worker, const struct lease *lease, int64_t now)
{
    return due_us(lease) > now + (is_orphan(lease) ? 0 : LEASE_WHEEL_STEP_US) && !is_of_last_round(worker, lease);
}

/* Takes the next one that is due, and makes up what is to be sent for it, if anything. False: none is. */
static bool attend_next(struct lease_worker *worker, struct lease_call **made)
{
    int64_t now = lease_now(worker);
    struct lease_wheel *wheel = lease_registry_wheel(worker->registry, worker->host->worker);
    struct lease_wheel_entry *entry = worker->calls < CALLS_MAX ? lease_wheel_take(wheel, now) : NULL;
    struct lease *lease = (struct lease *)(void *)entry;

    *made = NULL;
    if (lease == NULL) {
        return false;
    }
    if (lease_registry_is_releasing(worker->registry, lease)) {
        return true;
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
            lease_call_send(made);
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
