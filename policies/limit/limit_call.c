/*
 * Calls to Redis: who waits for which, and what becomes of their answers.
 *
 * Each request is on hold until Redis has answered for it. While a question about a bucket is under way, further
 * requests that cost as much gather behind it, and the next question asks for all of them together: Redis decides on
 * each, in the order in which they came, as if each had asked. A request that costs another amount asks by itself, as
 * what Redis says of one cost says nothing of another. So a request waits for two answers at most.
 *
 * leased: a question may fetch more permits than its requests need, which are spent here until they expire. Redis
 * counts them as spent at the end of their time (the scripts' hold), and they are not spent later, as their time is
 * counted from before the call.
 *
 * A refusal says for how long, and until then nothing is asked. It is forgotten when a change has taken effect in Redis
 * (permits were given back, a state was forgotten), as are refusals of questions that were asked before that.
 */
#include "limit/limit_call.h"

#include <stdlib.h>

/* A batch is at most this part of the limit, so that the other sidecars get something. */
#define BATCH_PART 8
#define TELLING_US 1000 /* in which a loop iteration comes to tell them */
#define BATCH_FIRST 16
/* So many states are forgotten at once: clients' requests on the same connection do not wait for all of them. */
#define FORGOTTEN_AT_ONCE 100
/* No limit has anybody wait for so long: 200 years, with which sums of times are far from overflowing. */
#define WAIT_MAX_US (INT64_C(200) * 366 * 86400 * 1000000)

/* ---- calls ---- */

/* The bucket (NULL: one that is gone, or not tracked) is to be pinned for it. NULL when memory is short. */
static struct limit_call *call_new(struct limit *limit, struct limit_rule *rule, struct limit_bucket *bucket,
                                   const struct limit_state *state)
{
    struct limit_call *call = calloc(1, sizeof *call);

    if (call == NULL) {
        return NULL;
    }
    *call = (struct limit_call){.limit = limit, .rule = rule, .bucket = bucket, .state = *state};
    STAILQ_INIT(&call->places);
    LIST_INSERT_HEAD(&limit->calls, call, of_limit);
    return call;
}

static struct limit_call *call_at(struct table_node *node)
{
    return (struct limit_call *)(void *)node;
}

/* The question of this worker behind which those gather who ask about the bucket, or NULL. */
static struct limit_call *find_gathering(const struct limit *limit, const struct limit_bucket *bucket)
{
    struct table_node *node = table_first(&limit->gathering, bucket->node.hash);

    while (node != NULL && call_at(node)->bucket != bucket) {
        node = table_next(node);
    }
    return call_at(node);
}

/* Nobody comes to it any more, and others may fetch. */
static void stop_gathering(struct limit_call *call)
{
    struct limit_share *share = call->limit->share;

    if (call->gathers) {
        table_remove(&call->limit->gathering, &call->node);
        call->gathers = false;
    }
    if (call->fetches) {
        limit_share_lock(share, limit_bucket_locks(call->bucket));
        call->bucket->remote->is_fetching = false;
        limit_share_unlock(share, limit_bucket_locks(call->bucket));
        call->fetches = false;
    }
}

/* Lets go of rule, bucket and places. */
static void call_detach(struct limit_call *call)
{
    struct limit_place *place;

    stop_gathering(call);
    STAILQ_FOREACH(place, &call->places, of_call)
    {
        place->call = NULL;
        place->held->asked--;
    }
    STAILQ_INIT(&call->places);
    if (call->bucket != NULL) {
        limit_bucket_unpin(call->limit->share, call->bucket);
    }
    call->bucket = NULL;
    call->rule = NULL;
}

static void call_free(struct limit_call *call)
{
    call_detach(call);
    LIST_REMOVE(call, of_limit);
    free(call);
}

/* The rule that has the bucket's table; NULL: none. */
static struct limit_rule *rule_of(const struct limit_bucket *bucket, struct limit_rule *rules, size_t count)
{
    size_t i = 0;

    while (i < count && rules[i].member.bucket_table != bucket->bucket_table) {
        i++;
    }
    return i < count ? &rules[i] : NULL;
}

void limit_call_move(struct limit *limit, struct limit_rule *rules, size_t count)
{
    struct limit_call *call;

    LIST_FOREACH(call, &limit->calls, of_limit)
    {
        struct limit_rule *rule = call->bucket != NULL ? rule_of(call->bucket, rules, count) : NULL;
        if (rule == NULL) {
            call_detach(call);
        }
        call->rule = rule;
    }
}

void limit_call_warn(struct limit *limit, const struct limit_rule *rule, const char *error, int64_t now_us)
{
    if (limit_bucket_table_may_warn(rule->member.bucket_table, now_us)) {
        limit->host->warn(limit->host->context, rule->name, error);
    }
}

/* ---- changes ---- */

static void changed(void *context, const struct policy_script_reply *reply);

void limit_call_go_on(struct limit *limit, struct limit_reset *reset)
{
    const struct policy_script_reply unasked = {.error = ""};
    const struct policy_host *host = limit->host;

    if (reset->is_sending) {
        return; /* one has failed at once */
    }
    reset->is_sending = true;
    while (reset->unsent != NULL && reset->under_way < FORGOTTEN_AT_ONCE) {
        struct limit_call *call = reset->unsent;
        reset->unsent = call->successor;
        call->successor = NULL;
        reset->under_way++;
        if (reset->why == NULL) {
            limit_script_forget(call, changed);
        } else {
            changed(call, &unasked);
        }
    }
    reset->is_sending = false;
    if (reset->under_way == 0) {
        host->answer(host->context, reset->admin_query, reset->why != NULL ? POLICY_ANSWER_ERROR : POLICY_ANSWER_OK,
                     slice_of(reset->why != NULL ? reset->why : ""));
        limit->is_resetting = false;
        free(reset);
    }
}

/* Even if it is not known whether the change has taken effect. What could not be given back is counted as spent: there
 * is less than the limit, never more. */
static void changed(void *context, const struct policy_script_reply *reply)
{
    struct limit_call *call = context;
    struct limit *limit = call->limit;
    struct limit_bucket *bucket = call->bucket;

    if (bucket != NULL) {
        limit_share_lock(limit->share, limit_bucket_locks(bucket));
        if (bucket->remote != NULL) {
            bucket->remote->changes++;
            bucket->remote->refused_until_us = 0;
            bucket->remote->resetting -= call->is_noted;
        }
        limit_share_unlock(limit->share, limit_bucket_locks(bucket));
    }
    if (call->reset != NULL && !policy_script_gave_integers(reply, 1)) {
        call->reset->why = "Redis has not confirmed that it has forgotten all of it";
    }
    if (call->reset != NULL) {
        call->reset->under_way--;
        limit_call_go_on(limit, call->reset);
    }
    call_free(call);
}

/* Gives back permits that nobody will spend. bucket: NULL if it is gone. */
static void give_back(struct limit *limit, struct limit_bucket *bucket, const struct limit_state *state, int64_t count,
                      int64_t mark)
{
    struct limit_call *call = call_new(limit, NULL, bucket, state);

    if (call == NULL) {
        return;
    }
    if (bucket != NULL) {
        limit_share_lock(limit->share, limit_bucket_locks(bucket));
        bucket->pins++;
        limit_share_unlock(limit->share, limit_bucket_locks(bucket));
    }
    limit_script_give_back(call, count, mark, changed);
}

void limit_call_forget(struct limit *limit, struct limit_rule *rule, struct limit_bucket *bucket, struct slice name,
                       struct limit_reset *reset)
{
    struct limit_state state = limit_script_state(rule, name);
    struct limit_call *call = call_new(limit, rule, bucket, &state);

    if (call == NULL) {
        reset->why = "out of memory";
        return;
    }
    if (bucket != NULL) {
        bucket->pins++;
    }
    if (bucket != NULL && bucket->remote != NULL) {
        bucket->remote->resetting++;
        call->is_noted = true;
    }
    call->reset = reset;
    call->successor = reset->unsent;
    reset->unsent = call;
}

/* ---- answers ---- */

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

/* What an answer has for those who wait. */
struct dealing {
    int64_t left;             /* permits */
    bool is_all;              /* Redis has no more of them … */
    int64_t refused_until_us; /* … until then */
};

static void settle_place(struct limit_place *place, enum limit_place_state state)
{
    struct limit *limit = place->call->limit;

    STAILQ_REMOVE(&place->call->places, place, limit_place, of_call);
    place->state = state;
    place->call = NULL;
    place->held->asked--;
    if (place->held->asked == 0) {
        limit->host->resume(limit->host->context, place->held->holder);
    }
}

/* First come, first served. Nobody is refused who may ask for more. Who asked is refused for long enough to be told. */
static void deal_out(struct limit_call *call, const struct limit_call *answered, struct dealing *dealing,
                     int64_t now_us)
{
    struct limit_place *next;

    for (struct limit_place *place = STAILQ_FIRST(&call->places); place != NULL; place = next) {
        next = STAILQ_NEXT(place, of_call);
        if (dealing->left >= place->cost) {
            dealing->left -= place->cost;
            place->mark = answered->mark;
            place->resets = answered->resets;
            settle_place(place, LIMIT_PLACE_GRANTED);
        } else if (dealing->is_all) {
            place->refused_until_us =
                dealing->refused_until_us > now_us + TELLING_US ? dealing->refused_until_us : now_us + TELLING_US;
            settle_place(place, LIMIT_PLACE_REFUSED);
        }
    }
}

/* Which of those that have gathered would have been admitted; if they cost different amounts, by the mean of these. */
static void count_asides(struct limit_call *call, struct dealing *dealing)
{
    if (call->aside_cost == 0) {
        return;
    }
    int64_t spent = call->aside_cost < dealing->left ? call->aside_cost : dealing->left;
    uint32_t admitted = (uint32_t)((double)call->asides * (double)spent / (double)call->aside_cost);
    dealing->left -= spent;
    limit_count(call->limit, call->rule, LIMIT_ADMITTED, LIMIT_COUNTER_ADMITTED, admitted);
    limit_count(call->limit, call->rule, LIMIT_OBSERVED, LIMIT_COUNTER_OBSERVED, call->asides - admitted);
    limit_share_lock(call->limit->share, limit_bucket_locks(call->bucket));
    call->bucket->refused += call->asides - admitted;
    limit_share_unlock(call->limit->share, limit_bucket_locks(call->bucket));
}

/* Until when may be spent what the call was granted, by those who were not there when it was sent. */
static int64_t call_until_us(const struct limit_call *call)
{
    return call->since_us + limit_rule_hold_us(call->rule);
}

/* Whether nothing has changed in Redis since it was asked: the bucket is locked. */
static bool is_as_asked(const struct limit_call *call)
{
    const struct limit_remote *remote = call->bucket->remote;

    return remote->changes == call->changes && remote->resets == call->resets;
}

/* What Redis said is kept with the bucket; false: what is left of the permits is not. */
static bool note_answer(struct limit_call *call, const struct dealing *dealing, int64_t now_us)
{
    struct limit_bucket *bucket = call->bucket;
    struct limit_remote *remote = bucket->remote;
    int64_t until_us = call_until_us(call);
    bool is_kept = dealing->left > 0 && until_us > now_us && remote->resets == call->resets;

    remote->trip_us = now_us - call->since_us;
    if (is_kept) {
        add_batch(remote, dealing->left, until_us);
    }
    if (dealing->is_all && is_as_asked(call)) {
        remote->refused_until_us = dealing->refused_until_us;
        remote->refused_cost = call->cost;
        until_us = until_us > dealing->refused_until_us ? until_us : dealing->refused_until_us;
    }
    bucket->keep_until_us = bucket->keep_until_us > until_us ? bucket->keep_until_us : until_us;
    return is_kept || remote->resets != call->resets;
}

static void answered(struct limit_call *call, int64_t granted, int64_t wait_us, int64_t now_us)
{
    struct limit *limit = call->limit;
    limit_locks locks = limit_bucket_locks(call->bucket);
    struct dealing dealing = {.left = granted > call->spent ? granted - call->spent : 0,
                              .is_all = granted < call->wanted,
                              .refused_until_us = now_us + wait_us};

    deal_out(call, call, &dealing, now_us);
    count_asides(call, &dealing);
    limit_share_lock(limit->share, locks);
    bool decides_on_others =
        call->successor != NULL && is_as_asked(call) && (dealing.left == 0 || call_until_us(call) > now_us);
    limit_share_unlock(limit->share, locks);
    if (decides_on_others) {
        deal_out(call->successor, call, &dealing, now_us);
    }
    limit_share_lock(limit->share, locks);
    bool is_kept = note_answer(call, &dealing, now_us);
    limit_share_unlock(limit->share, locks);
    if (dealing.left > 0 && !is_kept) {
        give_back(limit, call->bucket, &call->state, dealing.left, call->mark);
    }
}

static void failed(struct limit_call *call, const char *error, int64_t now_us)
{
    limit_call_warn(call->limit, call->rule, error != NULL ? error : "the script's reply is unsound", now_us);
    while (!STAILQ_EMPTY(&call->places)) {
        settle_place(STAILQ_FIRST(&call->places), LIMIT_PLACE_FAILED);
    }
    limit_count(call->limit, call->rule, LIMIT_ADMITTED, LIMIT_COUNTER_ADMITTED, call->asides);
    policy_count(&call->limit->counters[LIMIT_COUNTER_UNDECIDED], call->asides);
}

static void send_successor(struct limit_call *call);

/* Whether it can be what a script of limits replies: no more than was asked for, and if that is none, a wait. */
static bool is_sound_reply(const struct limit_call *call, const struct policy_script_reply *reply)
{
    return policy_script_gave_integers(reply, 3) && reply->integers[0] >= 0 && reply->integers[0] <= call->wanted &&
           reply->integers[1] >= 0 && reply->integers[1] <= WAIT_MAX_US && reply->integers[0] + reply->integers[1] > 0;
}

static void done(void *context, const struct policy_script_reply *reply)
{
    struct limit_call *call = context;
    struct limit *limit = call->limit;
    int64_t now_us = limit->host->now_us(limit->host->context);

    bool is_sound = is_sound_reply(call, reply);
    stop_gathering(call);
    call->mark = is_sound ? reply->integers[2] : 0;
    if (call->rule != NULL && is_sound) {
        answered(call, reply->integers[0], reply->integers[1], now_us);
    } else if (call->rule != NULL) {
        failed(call, reply->error, now_us);
    } else if (is_sound && reply->integers[0] > call->spent) {
        /* The rule went meanwhile, and who asked asks by another one. */
        give_back(limit, call->bucket, &call->state, reply->integers[0] - call->spent, call->mark);
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

/* About a bucket, for requests that cost so much each. NULL when memory is short. */
static struct limit_call *question_new(struct limit *limit, struct limit_rule *rule, struct limit_bucket *bucket,
                                       int64_t cost)
{
    struct limit_state state = limit_script_state(rule, limit_bucket_name(bucket));
    struct limit_call *call = call_new(limit, rule, bucket, &state);

    if (call == NULL) {
        return NULL;
    }
    call->cost = cost;
    limit_share_lock(limit->share, limit_bucket_locks(bucket));
    bucket->pins++;
    if (bucket->remote == NULL) {
        bucket->remote = calloc(1, sizeof *bucket->remote);
    }
    bool is_ready = bucket->remote != NULL;
    limit_share_unlock(limit->share, limit_bucket_locks(bucket));
    if (!is_ready) {
        call_free(call);
        return NULL;
    }
    return call;
}

/* Whether permits for requests to come are fetched with it: if nobody else is at it, if they are not over by the time
 * they come, and if Redis is not about to forget them. The bucket is locked. */
static bool may_fetch(const struct limit_call *call)
{
    const struct limit_remote *remote = call->bucket->remote;

    return call->rule->accuracy == LIMIT_LEASED && !remote->is_fetching && remote->resetting == 0 &&
           remote->trip_us <= limit_rule_hold_us(call->rule) / 2;
}

static void send_question(struct limit_call *call)
{
    struct limit *limit = call->limit;
    struct limit_remote *remote = call->bucket->remote;
    const struct limit_place *place;

    call->since_us = limit->host->now_us(limit->host->context);
    call->wanted = call->spent + call->aside_cost;
    STAILQ_FOREACH(place, &call->places, of_call)
    {
        call->wanted += place->cost;
    }
    limit_share_lock(limit->share, limit_bucket_locks(call->bucket));
    if (may_fetch(call)) {
        remote->batch_size = remote->batch_size == 0 ? first_batch(call->rule) : remote->batch_size;
        remote->is_fetching = call->fetches = true;
        call->wanted = call->wanted > remote->batch_size ? call->wanted : remote->batch_size;
    }
    call->changes = remote->changes;
    call->resets = remote->resets;
    limit_share_unlock(limit->share, limit_bucket_locks(call->bucket));
    call->wanted = call->wanted > call->cost ? call->wanted : call->cost;
    limit_script_ask(call, done);
}

/* Sends it as the question behind which others gather. */
static void send_first(struct limit_call *call)
{
    call->gathers = table_add(&call->limit->gathering, &call->node, call->bucket->node.hash);
    send_question(call);
}

/* Sends what has gathered while the call was under way. */
static void send_successor(struct limit_call *call)
{
    struct limit_call *next = call->successor;

    call->successor = NULL;
    if (next == NULL) {
        return;
    }
    if (next->rule == NULL || (STAILQ_EMPTY(&next->places) && next->spent == 0 && next->aside_cost == 0)) {
        /* The rules are others now, or all have left. */
        call_free(next);
        return;
    }
    send_first(next);
}

/* The question that will be sent when the one ahead is answered; NULL when memory is short. */
static struct limit_call *successor_of(struct limit_call *ahead, int64_t cost)
{
    if (ahead->successor == NULL) {
        ahead->successor = question_new(ahead->limit, ahead->rule, ahead->bucket, cost);
    }
    if (ahead->successor != NULL) {
        ahead->successor->since_us = ahead->since_us;
    }
    return ahead->successor;
}

static void ask_for(struct limit *limit, struct limit_place *place)
{
    struct limit_call *ahead = find_gathering(limit, place->bucket);
    bool gathers = ahead != NULL && ahead->cost == place->cost;
    struct limit_call *call =
        gathers ? successor_of(ahead, place->cost) : question_new(limit, place->rule, place->bucket, place->cost);

    if (call == NULL) {
        place->state = LIMIT_PLACE_FAILED;
        return;
    }
    place->call = call;
    place->held->asked++;
    STAILQ_INSERT_TAIL(&call->places, place, of_call);
    if (ahead == NULL) {
        send_first(call);
    } else if (!gathers) {
        send_question(call);
    }
}

int64_t limit_call_deadline(const struct limit_place *place)
{
    return place->call->since_us + place->rule->decision_timeout_us;
}

int64_t limit_call_ask(struct limit *limit, struct limit_held *held, int64_t now_us)
{
    int64_t until_us = INT64_MAX;
    bool asked = false;

    for (size_t i = 0; i < held->count; i++) {
        struct limit_place *place = &held->places[i];
        if (place->call != NULL && limit_call_deadline(place) <= now_us) {
            continue; /* not waited for any more */
        }
        asked = asked || place->state == LIMIT_PLACE_ASKED;
        if (place->state == LIMIT_PLACE_ASKED && place->call == NULL) {
            ask_for(limit, place);
        }
        if (place->call != NULL && limit_call_deadline(place) < until_us) {
            until_us = limit_call_deadline(place);
        }
    }
    if (!asked) {
        return 0;
    }
    /* Without a call under way, all was answered before this returned. */
    return until_us != INT64_MAX ? until_us : now_us;
}

/* is_first: of the charges of its rule; a request is counted by the answer to that one. */
static void ask_aside(struct limit *limit, const struct limit_charge *charge, bool is_first)
{
    bool is_counted = charge->aside == LIMIT_ASIDE_COUNTED;
    struct limit_call *ahead = find_gathering(limit, charge->bucket);

    if (ahead != NULL && !is_counted) {
        /* What is spent next asks for more again. */
        return;
    }
    struct limit_call *call = ahead != NULL
                                  ? successor_of(ahead, 1)
                                  : question_new(limit, charge->rule, charge->bucket, is_counted ? 1 : charge->cost);
    if (call != NULL && is_counted) {
        /* Of several requests, each costs 1. */
        int64_t requests = charge->rule->cost == LIMIT_COST_ONE ? charge->cost : 1;
        call->asides += is_first ? (uint32_t)requests : 0;
        call->aside_cost += charge->cost;
    }
    if (call != NULL && ahead == NULL) {
        send_first(call);
    }
}

void limit_call_ask_aside(struct limit *limit)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        const struct limit_charge *charge = &limit->charges[i];
        if (charge->aside != LIMIT_ASIDE_NONE) {
            ask_aside(limit, charge, i == 0 || charge[-1].rule != charge->rule);
        }
    }
}

/* Not what was granted before a reset: Redis has forgotten it. */
static void return_grant(struct limit *limit, struct limit_place *place)
{
    limit_locks locks = limit_bucket_locks(place->bucket);

    if (place->state != LIMIT_PLACE_GRANTED) {
        return;
    }
    place->state = LIMIT_PLACE_EMPTY;
    limit_share_lock(limit->share, locks);
    bool is_counted = place->bucket->remote->resets == place->resets;
    limit_share_unlock(limit->share, locks);
    if (is_counted) {
        struct limit_state state = limit_script_state(place->rule, limit_bucket_name(place->bucket));
        give_back(limit, place->bucket, &state, place->cost, place->mark);
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
    return_grant(limit, place);
    if (place->call != NULL) {
        STAILQ_REMOVE(&place->call->places, place, limit_place, of_call);
        place->call = NULL;
        place->held->asked--;
    }
}
