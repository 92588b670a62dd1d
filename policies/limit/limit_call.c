/*
 * Calls to Redis: who waits for which, and what becomes of their answers.
 *
 * exact: each request is on hold until Redis has answered for it. While a call for a bucket is under way, further
 * requests of the bucket gather, and the next call asks for all of them together: Redis decides on each, in the order
 * in which they came, as if each had asked. leased: a call fetches permits, which are spent here until they expire.
 * Either way a refusal says for how long, and until then nothing is asked.
 *
 * Never more than the limit: Redis counts leased permits as spent at the end of their time (the scripts' hold), and
 * they are not spent later, as their time is counted from before the call.
 */
#include "limit/limit_call.h"

#include <stdlib.h>

/* A batch is at most this part of the limit, so that the other sidecars get something. */
#define BATCH_PART 8
#define BATCH_FIRST 16
/* How soon a worker looks whether the permits that another one fetches have come. */
#define OTHERS_FETCH_US 1000
/* No limit has anybody wait for so long: 200 years, with which sums of times are far from overflowing. */
#define WAIT_MAX_US (INT64_C(200) * 366 * 86400 * 1000000)

static struct slice bucket_name(const struct limit_bucket *bucket)
{
    return (struct slice){bucket->name, bucket->length};
}

/* ---- calls ---- */

static void call_add(struct limit *limit, struct limit_call *call)
{
    call->limit = limit;
    call->number = ++limit->call_count;
    STAILQ_INIT(&call->places);
    LIST_INSERT_HEAD(&limit->calls, call, of_limit);
}

/* Lets go of rule, bucket and places. */
static void call_detach(struct limit_call *call)
{
    limit_locks locks = call->bucket != NULL ? limit_bucket_locks(call->bucket) : 0;

    struct limit_place *place;

    STAILQ_FOREACH(place, &call->places, of_call)
    {
        place->call = NULL;
        place->held->asked--;
    }
    STAILQ_INIT(&call->places);
    if (call->bucket == NULL) {
        return;
    }
    limit_share_lock(call->limit->share, locks);
    if (call->bucket->remote != NULL && call->bucket->remote->fetch == call) {
        call->bucket->remote->fetch = NULL;
    }
    limit_share_unlock(call->limit->share, locks);
    limit_bucket_unpin(call->limit->share, call->bucket);
    call->bucket = NULL;
    call->rule = NULL;
}

static void call_free(struct limit_call *call)
{
    call_detach(call);
    LIST_REMOVE(call, of_limit);
    free(call);
}

void limit_call_detach(struct limit *limit)
{
    for (struct limit_call *call = LIST_FIRST(&limit->calls); call != NULL; call = LIST_NEXT(call, of_limit)) {
        call_detach(call);
    }
}

/* ---- answers ---- */

/* What Redis said of the bucket before is void: there is more now. */
static void forget_answers(struct limit *limit, struct limit_bucket *bucket)
{
    limit_locks locks = limit_bucket_locks(bucket);

    limit_share_lock(limit->share, locks);
    if (bucket->remote != NULL) {
        bucket->remote->resets++;
        bucket->remote->refused_until_us = 0;
    }
    limit_share_unlock(limit->share, locks);
}

static void add_batch(struct limit_remote *remote, int64_t permits, int64_t until_us)
{
    struct limit_batch batch = {permits, until_us};

    if (remote->batches[0].permits == 0) {
        remote->batches[0] = batch;
    } else if (remote->batches[1].permits == 0) {
        remote->batches[1] = batch;
    } else {
        /* There is no third: what both have lives as long as the one that ends first. */
        remote->batches[1].permits += permits;
        remote->batches[1].until_us = remote->batches[1].until_us < until_us ? remote->batches[1].until_us : until_us;
    }
}

/* What Redis said is kept with the bucket, which is locked. */
static void note_answer(struct limit_call *call, int64_t granted, int64_t wait_us, int64_t now_us)
{
    struct limit_bucket *bucket = call->bucket;
    struct limit_remote *remote = bucket->remote;
    int64_t until_us = now_us;

    if (remote == NULL || remote->resets != call->resets) {
        return;
    }
    if (granted == 0) {
        until_us = remote->refused_until_us = now_us + wait_us;
        remote->refused_cost = call->least;
    } else if (call->leased) {
        until_us = call->sent_us + limit_rule_hold_us(call->rule);
        /* Requests that on_error admitted meanwhile have spent some of it. */
        add_batch(remote, call->spent < granted ? granted - call->spent : 0, until_us);
    }
    if (bucket->keep_until_us < until_us) {
        bucket->keep_until_us = until_us;
    }
}

void limit_call_warn(struct limit *limit, const struct limit_rule *rule, const char *error, int64_t now_us)
{
    if (limit_bucket_table_may_warn(rule->member.bucket_table, now_us)) {
        limit->host->warn(limit->host->context, rule->name, error);
    }
}

static void settle_place(struct limit_call *call, struct limit_place *place, enum limit_place_state state)
{
    struct limit *limit = call->limit;

    place->state = state;
    place->call = NULL;
    place->held->asked--;
    if (place->held->asked == 0) {
        limit->host->resume(limit->host->context, place->held->holder);
    }
}

/* Tells all places what has come of the call. */
static void settle_places(struct limit_call *call, enum limit_place_state state)
{
    struct limit_places places = STAILQ_HEAD_INITIALIZER(places);

    STAILQ_CONCAT(&places, &call->places);
    while (!STAILQ_EMPTY(&places)) {
        struct limit_place *place = STAILQ_FIRST(&places);
        STAILQ_REMOVE_HEAD(&places, of_call);
        settle_place(call, place, state);
    }
}

/* Deals out what was granted, first come first served. Who gets nothing though something was granted asks again, as it
 * was not said when there will be more. */
static void deal_out(struct limit_call *call, int64_t granted, int64_t refused_until_us)
{
    int64_t spent = call->spent < granted ? call->spent : granted;
    struct limit_grant rest = {
        .call = call->number, .asked_us = call->sent_us, .first = 1 + spent, .count = granted - spent};
    struct limit_places places = STAILQ_HEAD_INITIALIZER(places);

    STAILQ_CONCAT(&places, &call->places);
    while (!STAILQ_EMPTY(&places)) {
        struct limit_place *place = STAILQ_FIRST(&places);
        STAILQ_REMOVE_HEAD(&places, of_call);
        bool enough = rest.count >= place->cost;
        bool is_refused = granted == 0 && place->cost >= call->least;
        if (enough) {
            place->grant_call = rest.call;
            place->grant_asked_us = rest.asked_us;
            place->grant_first = rest.first;
            rest.first += place->cost;
            rest.count -= place->cost;
        }
        place->refused_until_us = refused_until_us;
        settle_place(call, place,
                     enough       ? LIMIT_PLACE_GRANTED
                     : is_refused ? LIMIT_PLACE_REFUSED
                                  : LIMIT_PLACE_FETCHED);
    }
    if (rest.count > 0) {
        /* Who asked for it has left, or did not wait so long. */
        limit_script_give_back(call->limit, &call->state, rest);
        forget_answers(call->limit, call->bucket);
    }
}

static void count_aside(struct limit_call *call, bool granted)
{
    if (granted) {
        limit_count(call->limit, call->rule, LIMIT_ADMITTED, LIMIT_COUNTER_ADMITTED, 1);
    } else {
        limit_count(call->limit, call->rule, LIMIT_OBSERVED, LIMIT_COUNTER_OBSERVED, 1);
    }
}

static void answered(struct limit_call *call, const int64_t *integers, int64_t now_us)
{
    limit_locks locks = limit_bucket_locks(call->bucket);

    limit_share_lock(call->limit->share, locks);
    note_answer(call, integers[0], integers[1], now_us);
    limit_share_unlock(call->limit->share, locks);
    if (call->leased) {
        settle_places(call, LIMIT_PLACE_FETCHED);
    } else if (call->asked_aside) {
        count_aside(call, integers[0] > 0);
    } else {
        deal_out(call, integers[0], now_us + integers[1]);
    }
}

/* The rule went while the call was under way, and who asked asks by another one. */
static void give_back_all(struct limit_call *call, int64_t granted)
{
    if (granted > 0) {
        limit_script_give_back(call->limit, &call->state,
                               (struct limit_grant){call->number, call->sent_us, 1, granted});
    }
}

static void send_successor(struct limit_call *call);

/* Whether it can be what a script of limits replies: no more than was asked for, and a wait, or -1. */
static bool is_sound_reply(const struct limit_call *call, const struct policy_script_reply *reply)
{
    return policy_script_gave_integers(reply, 2) && reply->integers[0] >= 0 && reply->integers[0] <= call->wanted &&
           reply->integers[1] >= -1 && reply->integers[1] <= WAIT_MAX_US;
}

static void done(void *context, const struct policy_script_reply *reply)
{
    struct limit_call *call = context;
    struct limit *limit = call->limit;
    int64_t now_us = limit->host->now_us(limit->host->context);
    bool is_sound = is_sound_reply(call, reply);

    if (call->rule != NULL && is_sound) {
        answered(call, reply->integers, now_us);
    } else if (call->rule == NULL && is_sound && !call->leased) {
        give_back_all(call, reply->integers[0]);
    } else if (call->rule != NULL) {
        limit_call_warn(limit, call->rule, reply->error != NULL ? reply->error : "the script's reply is unsound",
                        now_us);
        settle_places(call, LIMIT_PLACE_FAILED);
    }
    send_successor(call);
    call_free(call);
}

/* ---- asking ---- */

int64_t limit_call_batch_most(const struct limit_rule *rule)
{
    return rule->meter.most >= BATCH_PART ? rule->meter.most / BATCH_PART : 1;
}

static int64_t first_batch(const struct limit_rule *rule)
{
    return limit_call_batch_most(rule) < BATCH_FIRST ? limit_call_batch_most(rule) : BATCH_FIRST;
}

/* NULL when memory is short. */
static struct limit_call *call_new(struct limit *limit, struct limit_rule *rule, struct limit_bucket *bucket,
                                   int64_t cost, int64_t now_us)
{
    struct limit_call *call = calloc(1, sizeof *call);
    limit_locks locks = limit_bucket_locks(bucket);

    if (call == NULL) {
        return NULL;
    }
    *call = (struct limit_call){.rule = rule,
                                .bucket = bucket,
                                .state = limit_script_state(rule, bucket_name(bucket)),
                                .least = cost,
                                .wanted = cost,
                                .sent_us = now_us,
                                .leased = rule->accuracy == LIMIT_LEASED};
    call_add(limit, call);
    limit_share_lock(limit->share, locks);
    bucket->pins++;
    if (bucket->remote == NULL) {
        bucket->remote = calloc(1, sizeof *bucket->remote);
    }
    if (bucket->remote != NULL && call->leased) {
        struct limit_remote *remote = bucket->remote;
        remote->batch_size = remote->batch_size == 0 ? first_batch(rule) : remote->batch_size;
        call->wanted = remote->batch_size > cost ? remote->batch_size : cost;
    }
    call->resets = bucket->remote != NULL ? bucket->remote->resets : 0;
    if (bucket->remote != NULL && bucket->remote->fetch == NULL) {
        bucket->remote->fetch = call;
        bucket->remote->fetch_worker = limit->host->worker;
    }
    limit_share_unlock(limit->share, locks);
    return call;
}

static void wait_for_call(struct limit_place *place, struct limit_call *call)
{
    place->call = call;
    place->held->asked++;
    STAILQ_INSERT_TAIL(&call->places, place, of_call);
}

/* What this worker asks for the bucket already; *others: another one does. */
static struct limit_call *find_call(struct limit *limit, const struct limit_place *place, bool *others)
{
    limit_locks locks = limit_bucket_locks(place->bucket);

    limit_share_lock(limit->share, locks);
    const struct limit_remote *remote = place->bucket->remote;
    struct limit_call *call = remote != NULL ? remote->fetch : NULL;
    *others = call != NULL && remote->fetch_worker != limit->host->worker;
    limit_share_unlock(limit->share, locks);
    return *others ? NULL : call;
}

/* Waits for permits that are on their way. */
static void wait_for_fetch(struct limit_place *place, struct limit_call *call, bool others)
{
    if (others) {
        place->state = LIMIT_PLACE_FETCHED;
    } else {
        wait_for_call(place, call);
    }
}

/* A new call for the place, which is sent now, or after the one that is under way. */
static void ask_anew(struct limit *limit, struct limit_place *place, struct limit_call *under_way, int64_t now_us)
{
    struct limit_call *call = call_new(limit, place->rule, place->bucket, place->cost, now_us);

    if (call == NULL) {
        place->state = LIMIT_PLACE_FAILED;
        return;
    }
    wait_for_call(place, call);
    if (under_way != NULL) {
        under_way->successor = call;
    } else {
        limit_script_ask(limit, call, done);
    }
}

static void ask_for(struct limit *limit, struct limit_place *place, int64_t now_us)
{
    bool others;
    struct limit_call *call = find_call(limit, place, &others);

    if (place->rule->accuracy == LIMIT_LEASED && (call != NULL || others)) {
        wait_for_fetch(place, call, others);
    } else if (call != NULL && call->successor != NULL) {
        wait_for_call(place, call->successor);
    } else {
        ask_anew(limit, place, call, now_us);
    }
}

/* It is the one that others of this worker wait behind from now on. */
static void take_over(struct limit_call *call, const struct limit_call *before)
{
    limit_locks locks = limit_bucket_locks(call->bucket);
    struct limit_remote *remote = call->bucket->remote;

    limit_share_lock(call->limit->share, locks);
    call->resets = remote != NULL ? remote->resets : 0;
    if (remote != NULL && (remote->fetch == before || remote->fetch == NULL)) {
        remote->fetch = call;
        remote->fetch_worker = call->limit->host->worker;
    }
    limit_share_unlock(call->limit->share, locks);
}

/* Sends what has gathered while the call was under way. */
static void send_successor(struct limit_call *call)
{
    struct limit_call *next = call->successor;

    call->successor = NULL;
    if (next == NULL) {
        return;
    }
    if (next->rule == NULL || (STAILQ_EMPTY(&next->places) && next->spent == 0)) {
        /* The rules are others now, or all have left. */
        call_free(next);
        return;
    }
    take_over(next, call);
    next->least = !STAILQ_EMPTY(&next->places) ? STAILQ_FIRST(&next->places)->cost : 1;
    next->wanted = next->spent;
    const struct limit_place *place;
    STAILQ_FOREACH(place, &next->places, of_call)
    {
        next->wanted += place->cost;
    }
    next->sent_us = next->limit->host->now_us(next->limit->host->context);
    limit_script_ask(next->limit, next, done);
}

/* When to look at the place again at the latest; INT64_MAX: it waits for nothing. */
static int64_t look_again_at(const struct limit_place *place, int64_t now_us)
{
    if (place->state == LIMIT_PLACE_ASKED) {
        return place->deadline_us;
    }
    return place->state == LIMIT_PLACE_FETCHED ? now_us + OTHERS_FETCH_US : INT64_MAX;
}

int64_t limit_call_ask(struct limit *limit, struct limit_held *held, int64_t now_us)
{
    int64_t until_us = INT64_MAX;
    bool asked = false;

    for (size_t i = 0; i < held->count; i++) {
        struct limit_place *place = &held->places[i];
        asked = asked || place->state == LIMIT_PLACE_ASKED;
        if (place->state == LIMIT_PLACE_ASKED && place->call == NULL) {
            ask_for(limit, place, now_us);
        }
        int64_t look_us = look_again_at(place, now_us);
        until_us = look_us < until_us ? look_us : until_us;
    }
    if (!asked) {
        return 0;
    }
    /* Without a call under way, all was answered before this returned. */
    return until_us != INT64_MAX ? until_us : now_us;
}

void limit_call_ask_aside(struct limit *limit, int64_t now_us)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        struct limit_charge *charge = &limit->charges[i];
        if (!charge->asks_aside) {
            continue;
        }
        struct limit_call *call = call_new(limit, charge->rule, charge->bucket, charge->cost, now_us);
        if (call != NULL) {
            call->asked_aside = charge->rule->action == LIMIT_OBSERVE;
            limit_script_ask(limit, call, done);
        }
    }
}

static void return_grant(struct limit *limit, struct limit_place *place)
{
    if (place->state == LIMIT_PLACE_GRANTED) {
        struct limit_grant grant = {place->grant_call, place->grant_asked_us, place->grant_first, place->cost};
        struct limit_state state = limit_script_state(place->rule, bucket_name(place->bucket));
        limit_script_give_back(limit, &state, grant);
        forget_answers(limit, place->bucket);
        place->state = LIMIT_PLACE_EMPTY;
    }
}

void limit_call_return_grants(struct limit *limit, struct limit_held *held)
{
    for (size_t i = 0; i < held->count; i++) {
        return_grant(limit, &held->places[i]);
    }
}

void limit_call_leave(struct limit *limit, struct limit_place *place)
{
    struct limit_call *call = place->call;

    return_grant(limit, place);
    if (call == NULL) {
        return;
    }
    STAILQ_REMOVE(&call->places, place, limit_place, of_call);
    place->call = NULL;
    place->held->asked--;
}
