/* Rules that are decided in Redis: judging and charging by what Redis has said. The bucket of the charge is locked. */
#include "limit/limit_call.h"

/* The next batch is fetched when this part of the last is left. */
#define REFILL_PART 4

/* Drops what has expired. A batch of which much was left was too large. */
static void drop_expired_batches(struct limit_remote *remote, int64_t now_us)
{
    for (size_t i = 0; i < 2; i++) {
        struct limit_batch *batch = &remote->batches[i];
        if (batch->permits > 0 && batch->until_us <= now_us) {
            remote->batch_size = batch->permits > remote->batch_size / 2 && remote->batch_size > 1
                                     ? remote->batch_size / 2
                                     : remote->batch_size;
            batch->permits = 0;
        }
    }
    if (remote->batches[0].permits == 0) {
        remote->batches[0] = remote->batches[1];
        remote->batches[1] = (struct limit_batch){0};
    }
}

static int64_t permits_left(const struct limit_remote *remote)
{
    return remote->batches[0].permits + remote->batches[1].permits;
}

static void judge_failure(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    const struct limit_rule *rule = charge->rule;

    limit_call_warn(limit, rule,
                    charge->is_not_asked ? "a request has more keys than Redis is asked about"
                                         : "Redis does not decide in time",
                    now_us);
    charge->undecided = true;
    charge->wait_us = 0;
    if (rule->on_error == LIMIT_ON_ERROR_DENY) {
        charge->wait_us = rule->decision_timeout_us;
    } else if (rule->on_error == LIMIT_ON_ERROR_LOCAL) {
        charge->wait_us = limit_meter_wait(&rule->meter, &charge->bucket->state, now_us, charge->cost);
    }
}

/* Whether the place says what is to become of the charge. */
static bool judge_by_place(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    struct limit_place *place = charge->place;

    switch (place->state) {
    case LIMIT_PLACE_GRANTED:
        charge->wait_us = 0;
        return true;
    case LIMIT_PLACE_ASKED:
        if (place->call == NULL || limit_call_deadline(place) > now_us) {
            charge->needs_answer = true;
            return true;
        }
        judge_failure(limit, charge, now_us);
        return true;
    case LIMIT_PLACE_FAILED:
        judge_failure(limit, charge, now_us);
        return true;
    case LIMIT_PLACE_REFUSED:
        charge->wait_us = place->refused_until_us - now_us;
        return charge->wait_us > 0;
    case LIMIT_PLACE_EMPTY:
    case LIMIT_PLACE_QUEUED:
        break;
    }
    return false;
}

void limit_global_judge(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    struct limit_remote *remote = charge->bucket->remote;
    bool observes = charge->rule->action == LIMIT_OBSERVE;

    charge->wait_us = 0;
    if (charge->is_not_asked) {
        judge_failure(limit, charge, now_us);
        return;
    }
    if (charge->place != NULL && judge_by_place(limit, charge, now_us)) {
        return;
    }
    if (charge->cost > charge->rule->meter.most) {
        charge->wait_us = LIMIT_NEVER;
        return;
    }
    if (remote != NULL) {
        drop_expired_batches(remote, now_us);
        /* Those of another worker, or of before a reload, are not for an exact rule. */
        if (charge->rule->accuracy == LIMIT_LEASED && permits_left(remote) >= charge->cost) {
            charge->wait_us = 0;
            return;
        }
        /* What costs more is refused, too, but not known for how long. */
        bool is_told = charge->cost == remote->refused_cost || (observes && charge->cost > remote->refused_cost);
        if (remote->refused_until_us > now_us && is_told) {
            charge->wait_us = remote->refused_until_us - now_us;
            return;
        }
    }
    charge->needs_answer = !observes;
    charge->aside = observes ? LIMIT_ASIDE_COUNTED : LIMIT_ASIDE_NONE;
}

static void spend(struct limit_remote *remote, int64_t cost)
{
    for (size_t i = 0; i < 2 && cost > 0; i++) {
        int64_t spent = remote->batches[i].permits < cost ? remote->batches[i].permits : cost;
        remote->batches[i].permits -= spent;
        cost -= spent;
    }
}

/* Fetches ahead when little is left. A batch that did not last half of its time was too small. */
static bool wants_refill(const struct limit_rule *rule, struct limit_remote *remote, int64_t now_us)
{
    int64_t most = limit_call_batch_most(rule);

    if (remote->is_fetching || remote->batches[1].permits > 0 ||
        permits_left(remote) > remote->batch_size / REFILL_PART || remote->refused_until_us > now_us) {
        return false;
    }
    if (remote->batches[0].until_us - now_us > limit_rule_hold_us(rule) / 2) {
        remote->batch_size = remote->batch_size * 2 < most ? remote->batch_size * 2 : most;
    }
    return true;
}

void limit_global_charge(struct limit_charge *charge, int64_t now_us)
{
    struct limit_rule *rule = charge->rule;
    struct limit_bucket *bucket = charge->bucket;
    struct limit_remote *remote = bucket->remote;
    bool granted = charge->place != NULL && charge->place->state == LIMIT_PLACE_GRANTED;

    if (granted) {
        charge->place->state = LIMIT_PLACE_EMPTY;
    } else if (charge->undecided && charge->place != NULL && charge->place->call != NULL) {
        /* Redis may yet count it. */
        charge->place->call->spent += charge->cost;
    } else if (rule->accuracy == LIMIT_LEASED && remote != NULL && permits_left(remote) >= charge->cost) {
        spend(remote, charge->cost);
        charge->aside = wants_refill(rule, remote, now_us) ? LIMIT_ASIDE_FETCH : LIMIT_ASIDE_NONE;
    }
    if (rule->on_error == LIMIT_ON_ERROR_LOCAL &&
        limit_meter_wait(&rule->meter, &bucket->state, now_us, charge->cost) == 0) {
        (void)limit_meter_charge(&rule->meter, &bucket->state, now_us, charge->cost);
    }
}
