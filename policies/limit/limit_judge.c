/*
 * What is to become of a request: each rule judges its charge, then all are charged, or the request is refused or put
 * on hold. Everything here is under the locks of all charges.
 */
#include "limit/limit_private.h"

#include <inttypes.h>
#include <string.h>

/* What is to become of the request. */
struct judgement {
    const struct limit_charge *refuser; /* the one with the longest wait; NULL: none */
    int64_t hold_us;                    /* how long it has to wait for rules that delay */
    bool asks;                          /* it has to wait for Redis' answer first */
};

/* Redis did not decide, and on_error = deny does. */
static bool is_denied_undecided(const struct limit_charge *charge)
{
    return charge->undecided && charge->rule->on_error == LIMIT_ON_ERROR_DENY;
}

static bool is_queued(const struct limit_charge *charge)
{
    return charge->place != NULL && charge->place->state == LIMIT_PLACE_QUEUED;
}

static void judge_locally(struct limit_charge *charge, int64_t now_us)
{
    const struct limit_meter *meter = &charge->rule->meter;
    struct limit_bucket *bucket = charge->bucket;
    bool queues = charge->rule->action == LIMIT_DELAY && bucket->queued > 0;

    /* Who was held has a place in the queue, until it is its turn, and then stands behind those whose turn came before;
     * who comes now stands behind all of them. */
    if (is_queued(charge) && charge->place->turn_us > now_us) {
        charge->wait_us = charge->place->turn_us - now_us;
    } else if (queues) {
        int64_t ahead = is_queued(charge) ? limit_due_ahead(charge->place, now_us) : bucket->queued;
        charge->wait_us = limit_meter_wait_behind(meter, &bucket->state, now_us, ahead, charge->cost);
    } else {
        charge->wait_us = limit_meter_wait(meter, &bucket->state, now_us, charge->cost);
    }
}

static void judge_charge(struct limit *limit, struct limit_charge *charge, int64_t waited_us, int64_t now_us,
                         struct judgement *judgement)
{
    const struct limit_rule *rule = charge->rule;

    if (rule->scope == LIMIT_GLOBAL) {
        limit_global_judge(limit, charge, now_us);
    } else {
        judge_locally(charge, now_us);
    }
    judgement->asks = judgement->asks || charge->needs_answer;
    if (charge->wait_us == 0 || charge->needs_answer) {
        return;
    }
    if (rule->action == LIMIT_OBSERVE) {
        charge->passed_over = true;
    } else if (rule->action == LIMIT_DELAY && !is_denied_undecided(charge) &&
               (is_queued(charge) || charge->wait_us <= rule->max_delay_us - waited_us)) {
        /* Who has a place was told that its turn would come in time. */
        judgement->hold_us = charge->wait_us > judgement->hold_us ? charge->wait_us : judgement->hold_us;
    } else if (judgement->refuser == NULL || judgement->refuser->wait_us < charge->wait_us) {
        judgement->refuser = charge;
    }
}

/* False when memory is short. */
static bool charge_one(struct limit_charge *charge, int64_t now_us)
{
    if (charge->rule->scope == LIMIT_GLOBAL) {
        limit_global_charge(charge, now_us);
        return true;
    }
    return limit_meter_charge(&charge->rule->meter, &charge->bucket->state, now_us, charge->cost);
}

/* Counts them for the rule whose charges begin here: once each, also where they have several buckets of it. */
static void count_admitted(struct limit *limit, size_t first, uint32_t requests)
{
    struct limit_rule *rule = limit->charges[first].rule;
    bool is_passed_over = false, is_undecided = false;

    for (size_t i = first; i < limit->charge_count && limit->charges[i].rule == rule; i++) {
        is_passed_over = is_passed_over || limit->charges[i].passed_over;
        is_undecided = is_undecided || limit->charges[i].undecided;
    }
    policy_count(&limit->counters[LIMIT_COUNTER_UNDECIDED], is_undecided ? requests : 0);
    /* … when Redis has answered. */
    bool is_open = limit->charges[first].aside == LIMIT_ASIDE_COUNTED;
    if (is_passed_over) {
        limit_count(limit, rule, LIMIT_OBSERVED, LIMIT_COUNTER_OBSERVED, requests);
    } else if (!is_open) {
        limit_count(limit, rule, LIMIT_ADMITTED, LIMIT_COUNTER_ADMITTED, requests);
    }
}

/* False when memory is short. */
static bool charge_all(struct limit *limit, int64_t now_us, uint32_t requests)
{
    bool charged = true;

    for (size_t i = 0; i < limit->charge_count; i++) {
        struct limit_charge *charge = &limit->charges[i];
        bool is_new_rule = i == 0 || charge[-1].rule != charge->rule;
        if (is_new_rule) {
            count_admitted(limit, i, requests);
        }
        if (charge->passed_over) {
            charge->bucket->refused++;
        } else {
            charged = charge_one(charge, now_us) && charged;
        }
    }
    return charged;
}

static void write_refusal(const struct limit_charge *charge, struct policy_decision *decision)
{
    const struct limit_rule *rule = charge->rule;
    int64_t wait_ms = charge->wait_us / 1000 + (charge->wait_us % 1000 != 0);
    char sharers[LIMIT_SHARERS_MAX];
    int length = 0;

    if (charge->wait_us == LIMIT_NEVER) {
        length = snprintf(decision->text, sizeof decision->text,
                          "-RATELIMITED %s: cost %" PRId64 " is more than %s ever admits\r\n", rule->name, charge->cost,
                          rule->what);
    } else if (is_denied_undecided(charge)) {
        length = snprintf(decision->text, sizeof decision->text,
                          "-RATELIMITED %s: not decided in %" PRId64 " ms, retry in %" PRId64 " ms\r\n", rule->name,
                          rule->decision_timeout_us / 1000, wait_ms);
    } else {
        int sharers_length = (int)limit_name_write_sharers(rule, limit_bucket_name(charge->bucket), sharers);
        length = snprintf(decision->text, sizeof decision->text, "%s%.*s exceeded, retry in %" PRId64 " ms\r\n",
                          rule->refusal, sharers_length, sharers, wait_ms);
    }
    decision->length = (size_t)length;
}

static void refuse(struct limit *limit, const struct limit_charge *refuser, uint32_t requests,
                   struct policy_decision *decision)
{
    refuser->bucket->refused += requests;
    limit_count(limit, refuser->rule, LIMIT_REFUSED, LIMIT_COUNTER_REFUSED, requests);
    if (refuser->undecided) {
        policy_count(&limit->counters[LIMIT_COUNTER_UNDECIDED], requests);
    }
    write_refusal(refuser, decision);
    decision->rule = refuser->rule->name;
}

/* Redis is asked once nothing is locked. The bucket is kept for the answer to the question ahead, and to its own. */
static void hold_for_answer(struct limit_charge *charge, int64_t now_us)
{
    int64_t until_us = now_us + 2 * charge->rule->decision_timeout_us;

    charge->place->state = LIMIT_PLACE_ASKED;
    charge->bucket->keep_until_us = charge->bucket->keep_until_us > until_us ? charge->bucket->keep_until_us : until_us;
}

/* Redis did not decide, and time will pass: it is asked anew then. */
static void forget_answer(struct limit_charge *charge)
{
    if (charge->place->state == LIMIT_PLACE_FAILED) {
        charge->place->state = LIMIT_PLACE_EMPTY;
    }
}

/* turn_us: when all rules that delay will admit it. */
static void hold_for_turn(struct limit *limit, struct limit_charge *charge, int64_t turn_us)
{
    const struct limit_remote *remote = charge->bucket->remote;

    if (charge->place->state != LIMIT_PLACE_GRANTED) {
        charge->place->resets = remote != NULL ? remote->resets : 0;
    }
    if (charge->rule->scope == LIMIT_LOCAL) {
        limit_queue(charge->place, turn_us);
    }
    if (charge->wait_us > 0 && !charge->place->held->counted) {
        charge->place->held->counted = true;
        limit_count(limit, charge->rule, LIMIT_DELAYED, LIMIT_COUNTER_DELAYED, 1);
    }
}

/* hold_us: how long it waits for its turn. Redis is asked only when that has come: what it grants is for now. */
static enum policy_verdict hold(struct limit *limit, const struct policy_request *request, struct limit_held **held,
                                int64_t hold_us)
{
    bool waits_for_answers = hold_us == 0;

    *held = limit_hold(limit, *held, request->holder);
    if (*held == NULL) {
        return POLICY_CLOSE;
    }
    for (size_t i = 0; i < limit->charge_count; i++) {
        struct limit_charge *charge = &limit->charges[i];
        if (charge->needs_answer && waits_for_answers) {
            hold_for_answer(charge, request->now_us);
            continue;
        }
        if (!waits_for_answers) {
            forget_answer(charge);
        }
        if (charge->rule->action == LIMIT_DELAY) {
            hold_for_turn(limit, charge, request->now_us + hold_us);
        }
    }
    return POLICY_HOLD;
}

/* Whether more of the request has to come before it can be judged. What is known of its cost may be enough to refuse it
 * for good. */
static bool is_cost_open(const struct limit *limit)
{
    bool is_open = limit->awaits_keys;

    for (size_t i = 0; i < limit->charge_count; i++) {
        const struct limit_charge *charge = &limit->charges[i];
        bool is_too_much = charge->cost > charge->rule->meter.most;
        if (is_too_much && charge->rule->action != LIMIT_OBSERVE) {
            return false;
        }
        is_open = is_open || (charge->is_cost_open && !is_too_much);
    }
    return is_open;
}

enum policy_verdict limit_judge_request(struct limit *limit, const struct policy_request *request,
                                        struct limit_held **held, struct policy_decision *decision)
{
    int64_t waited_us = request->now_us - request->received_us;
    struct judgement judgement = {0};

    if (is_cost_open(limit)) {
        return POLICY_WHOLE;
    }
    for (size_t i = 0; i < limit->charge_count; i++) {
        judge_charge(limit, &limit->charges[i], waited_us, request->now_us, &judgement);
    }
    if (judgement.refuser != NULL) {
        refuse(limit, judgement.refuser, 1, decision);
        return POLICY_REPLY;
    }
    if (judgement.hold_us > 0 || judgement.asks) {
        decision->hold_until_us = request->now_us + judgement.hold_us;
        decision->drops_who_leaves = judgement.hold_us > 0;
        return hold(limit, request, held, judgement.hold_us);
    }
    return charge_all(limit, request->now_us, 1) ? POLICY_ADMIT : POLICY_CLOSE;
}

/* How many of count requests one charge admits now; each of them costs 1. */
static uint32_t admissible(struct limit *limit, struct limit_charge *charge, int64_t now_us, uint32_t count)
{
    struct limit_bucket *bucket = charge->bucket;
    bool is_simple = charge->rule->scope == LIMIT_LOCAL && bucket->queued == 0;
    struct judgement judgement = {0};

    if (is_simple && limit_meter_wait(&charge->rule->meter, &bucket->state, now_us, count) == 0) {
        return count;
    }
    if (is_simple) {
        int64_t left = limit_meter_left(&charge->rule->meter, &bucket->state, now_us);
        return left < count ? (uint32_t)left : count;
    }
    charge->cost = count;
    judge_charge(limit, charge, 0, now_us, &judgement);
    return charge->wait_us == 0 && !charge->needs_answer ? count : 0;
}

/* Those that are not admitted, if each of them is refused by the same rule: nothing is charged for one of them that
 * could change what becomes of the next. */
static void refuse_others(struct limit *limit, int64_t now_us, uint32_t count, struct policy_decision *decision)
{
    struct judgement judgement = {0};

    for (size_t i = 0; i < limit->charge_count; i++) {
        if (limit->charges[i].rule->scope != LIMIT_LOCAL) {
            return;
        }
    }
    for (size_t i = 0; i < limit->charge_count; i++) {
        limit->charges[i].cost = 1;
        judge_charge(limit, &limit->charges[i], 0, now_us, &judgement);
    }
    if (judgement.refuser != NULL) {
        refuse(limit, judgement.refuser, count, decision);
    }
}

uint32_t limit_judge_batch(struct limit *limit, int64_t now_us, uint32_t count, struct policy_decision *decision)
{
    uint32_t admitted = count;

    for (size_t i = 0; i < limit->charge_count && admitted > 0; i++) {
        admitted = admissible(limit, &limit->charges[i], now_us, admitted);
    }
    for (size_t i = 0; i < limit->charge_count; i++) {
        limit->charges[i].cost = admitted;
    }
    if (admitted > 0 && !charge_all(limit, now_us, admitted)) {
        return 0;
    }
    if (admitted < count) {
        refuse_others(limit, now_us, count - admitted, decision);
    }
    return admitted;
}
