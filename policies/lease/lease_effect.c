/*
 * What the reply to a request has made of leases. Redis executes what comes over several connections in an order that
 * is not that of the replies: so each lease remembers the number of the request that took it, and what was forwarded
 * before that does not end it.
 */
#include "lease/lease_effect.h"

#include <stdlib.h>

static struct lease *find(const struct effect *effect, const struct lease_target *target)
{
    return lease_registry_find(effect->worker->registry, effect->request->database, target->key, target->touch.token);
}

/* ---- taking ---- */

/* Another has it now. Who has released it, or is about to, is told so by the answer to that. */
static void end_superseded(struct effect *effect, struct lease *other)
{
    struct lease_worker *worker = effect->worker;

    if (lease_may_be_older(effect, other)) {
        lease_doubt(effect, other, false);
    } else if (other->after_release) {
        lease_end(worker, other, LEASE_REASON_RELEASED);
    } else if (lease_registry_is_touched(worker->registry, other)) {
        lease_schedule(worker, other);
    } else {
        lease_end(worker, other, lease_is_suspect(worker, other) ? LEASE_REASON_UNSEEN : LEASE_REASON_TAKEN);
    }
}

/* A string has one owner: those who had it before have lost it, unless they were asking for it at the same time. Of
 * those who asked for it later nothing is known: their reply may have come first. */
static void supersede(struct effect *effect, const struct lease *lease)
{
    const struct lease_key *key = lease->members[0].key;
    struct lease_member *member = LIST_FIRST(&key->members);

    while (member != NULL) {
        struct lease_member *next = LIST_NEXT(member, of_key);
        struct lease *other = member->lease;
        bool is_string = other->kind == LEASE_STRING || other->kind == LEASE_STRINGS;
        if (is_string && other->sequence < lease->sequence) {
            end_superseded(effect, other);
        }
        member = next;
    }
}

static struct lease *add(struct effect *effect, const struct lease_target *targets, size_t key_count)
{
    const struct lease_request *request = effect->request;
    struct slice keys[LEASE_KEYS_MAX];

    for (size_t i = 0; i < key_count; i++) {
        keys[i] = targets[i].key;
    }
    struct lease *lease =
        lease_registry_add(effect->worker->registry, request->database, keys, key_count, targets[0].touch.token);
    if (lease != NULL) {
        lease->acquired_us = request->sent_us;
    }
    return lease;
}

/* Whether the lock was free: SET NX and its like succeed only where there was nothing. */
static bool was_free(const struct effect *effect)
{
    const struct lease_request *request = effect->request;

    return effect->outcome == LEASE_OUTCOME_YES && request->shape.action == LEASE_ACQUIRE &&
           request->shape.script == NULL;
}

/* Ends what is on file of the token if it is held anew, rather than once more. */
static struct lease *end_if_taken_anew(struct effect *effect, struct lease *lease)
{
    struct lease_worker *worker = effect->worker;
    bool released = lease->after_release || lease_registry_is_releasing(worker->registry, lease);

    /* A script takes a lock once more by the same reply, unless it was over by then. */
    if (!was_free(effect) && lease->expires_us > effect->now_us) {
        return lease;
    }
    lease_end(worker, lease,
              released                                               ? LEASE_REASON_RELEASED
              : !was_free(effect) || lease_is_suspect(worker, lease) ? LEASE_REASON_UNSEEN
                                                                     : LEASE_REASON_GONE);
    return NULL;
}

/* Whether Redis has said that the token has the lock. */
static bool is_proved(const struct effect *effect)
{
    return effect->outcome == LEASE_OUTCOME_YES || effect->outcome == LEASE_OUTCOME_HELD;
}

static enum lease_state state_of(const struct effect *effect, const struct lease *lease, bool overtaken)
{
    if (overtaken || effect->request->score.guessed || !is_proved(effect)) {
        return LEASE_DOUBTFUL;
    }
    if (effect->request->care == LEASE_CARE_SELF) {
        return LEASE_SELF;
    }
    if (lease->state == LEASE_EXHAUSTED) {
        return LEASE_EXHAUSTED;
    }
    return effect->request->lease_us == 0 ? LEASE_UNHEALED : LEASE_HELD;
}

/* What the request says of the lease, which it has set. */
static void set_terms(struct effect *effect, struct lease *lease)
{
    const struct lease_request *request = effect->request;

    lease_count_under(lease, &request->terms);
    /* Of several keys it stays one of strings, whatever its token is used for besides. */
    lease->kind = lease->key_count > 1 ? LEASE_STRINGS : request->shape.kind;
    lease->worker = effect->worker->host->worker;
    lease->client = request->client->id;
    lease->proved = request->sequence;
    lease->suspected = 0;
    lease->missed_us = 0;
    lease->shown = request->sequence;
    lease->lease_us = request->lease_us;
    lease_expect(effect, lease);
    lease->score = request->score;
    lease->scored_us = request->sent_us;
    lease->abandoned = false;
    bool has_companion = lease_kind_is_semaphore(lease->kind) && request->shape.script != NULL;
    lease->companion = has_companion ? request->shape.script->companion : NULL;
    lease_owner_take(effect->worker, request->client, lease);
}

static void count_hold(const struct effect *effect, struct lease *lease)
{
    bool holds_more = effect->request->shape.action == LEASE_ACQUIRE && lease->holds < LEASE_KEYS_MAX - 1;

    lease->holds += lease->holds == 0 || holds_more;
}

/* The reply to an older request for a lock that was taken under the same token since: nobody knows which of both Redis
 * executed last, and thus whether the lock has a time to live. */
static void grant_late(struct effect *effect, struct lease *lease)
{
    count_hold(effect, lease);
    if (was_free(effect) && lease->confirmed) {
        /* It was released in between, whichever came first. */
        lease_count_brief(effect->worker, lease);
    }
    /* What is under way now may have been executed before either. */
    lease->granted = lease_registry_last(effect->worker->registry);
    lease->client = 0;
    if (effect->request->lease_us == 0) {
        lease_move(lease, LEASE_UNHEALED);
    }
    lease_doubt(effect, lease, false);
}

/* The lock on these keys was taken, or may have been: then what is on file stays as it is, and Redis is asked. Returns
 * the lease that is on file now, as the one of before may have ended; NULL when there is no room for it, or memory is
 * short. */
static struct lease *grant(struct effect *effect, const struct lease_target *targets, size_t key_count, bool overtaken)
{
    const struct lease_request *request = effect->request;
    struct lease *lease = find(effect, &targets[0]);

    if (lease != NULL && !is_proved(effect)) {
        lease_doubt(effect, lease, false);
        return lease;
    }
    if (lease != NULL && lease->sequence > request->sequence) {
        grant_late(effect, lease);
        return lease;
    }
    lease = lease != NULL ? end_if_taken_anew(effect, lease) : NULL;
    lease = lease != NULL ? lease : add(effect, targets, key_count);
    if (lease == NULL) {
        return NULL;
    }
    count_hold(effect, lease);
    if (request->shape.action == LEASE_SCORE) {
        lease_permit_try(lease);
    }
    lease->sequence = request->sequence;
    lease->granted = lease_registry_last(effect->worker->registry);
    set_terms(effect, lease);
    if (was_free(effect)) {
        (void)lease_owner_is_ambiguous(effect->worker, lease);
    }
    lease_move(lease, state_of(effect, lease, overtaken));
    lease->after_release = overtaken;
    if (!lease->trial && (effect->outcome == LEASE_OUTCOME_YES || lease->state != LEASE_DOUBTFUL)) {
        lease_count_taken(effect->worker, lease);
    }
    if (lease->state != LEASE_DOUBTFUL && (lease->kind == LEASE_STRING || lease->kind == LEASE_STRINGS)) {
        supersede(effect, lease);
    }
    lease_schedule(effect->worker, lease);
    if (lease->is_beyond || lease_taker(lease) == NULL) {
        lease_end(effect->worker, lease, LEASE_REASON_BEYOND);
        return NULL;
    }
    return lease;
}

/* Whether any of its targets may have been released behind it. */
static bool is_overtaken(const struct lease_request *request)
{
    bool is = false;

    for (size_t i = 0; i < request->target_count; i++) {
        is = is || request->targets[i].touch.overtaken;
    }
    return is;
}

/* Whether any was released by the token itself, while the request was under way. */
static bool is_over(const struct lease_request *request)
{
    bool is = false;

    for (size_t i = 0; i < request->target_count; i++) {
        is = is || request->targets[i].touch.is_over;
    }
    return is;
}

static void acquire(struct effect *effect)
{
    const struct lease_request *request = effect->request;

    if (effect->outcome != LEASE_OUTCOME_YES && effect->outcome != LEASE_OUTCOME_UNCLEAR) {
        return;
    }
    if (request->shape.kind == LEASE_STRINGS) {
        (void)grant(effect, request->targets, request->target_count, is_overtaken(request));
        return;
    }
    for (size_t i = 0; i < request->target_count; i++) {
        (void)grant(effect, &request->targets[i], 1, request->targets[i].touch.overtaken);
    }
}

/* ---- extending ---- */

/* ShedLock releases by a shorter lease, with SET XX or a script. Others have just chosen another one. */
static bool may_release_by_shortening(const struct lease_request *request)
{
    return request->shape.script == NULL || lease_script_is_of(request->shape.script, (struct slice){"shedlock", 8});
}

/* The owner has set when it ends; if a release was answered in the meantime, Redis may have executed that behind it. */
static void extend_one(struct effect *effect, struct lease *lease, bool overtaken)
{
    const struct lease_request *request = effect->request;
    int64_t expires_us = request->shape.adds ? lease_latest(lease->expires_us, request->sent_us) + request->lease_us
                                             : request->sent_us + request->lease_us;

    if (lease->state == LEASE_HELD && may_release_by_shortening(request) && lease_is_shorter(lease, expires_us)) {
        lease_end(effect->worker, lease, LEASE_REASON_RELEASED);
        return;
    }
    enum lease_state state = request->care == LEASE_CARE_SELF  ? LEASE_SELF
                             : lease->state == LEASE_EXHAUSTED ? LEASE_EXHAUSTED
                             : request->score.guessed          ? LEASE_DOUBTFUL
                                                               : LEASE_HELD;
    bool adds = request->shape.adds;
    int64_t lease_us = lease->lease_us;
    set_terms(effect, lease);
    lease->expires_us = expires_us;
    lease->lease_us = adds ? lease_latest(lease_us, request->lease_us) : request->lease_us;
    lease_move(lease, state);
    lease_count_taken(effect->worker, lease);
    if (overtaken) {
        lease_doubt(effect, lease, true);
    }
    lease_schedule(effect->worker, lease);
}

static struct lease *find_string(const struct effect *effect, const struct lease_target *target)
{
    struct lease_registry *registry = effect->worker->registry;
    const struct lease_key *key = lease_registry_find_key(registry, effect->request->database, target->key);
    struct lease_member *member = key != NULL ? LIST_FIRST(&key->members) : NULL;

    while (member != NULL && member->lease->kind != LEASE_STRING) {
        member = LIST_NEXT(member, of_key);
    }
    return member != NULL ? member->lease : NULL;
}

/* SET XX has put another token in the place of the one that is on file: the same hold goes on under it, or was ended by
 * a shorter lease. Of a lock that is not on file it proves nothing, as it compares nothing: it may be such an end. */
static void replace(struct effect *effect, const struct lease_target *target)
{
    const struct lease_request *request = effect->request;
    struct lease *before = find_string(effect, target);

    if (before == NULL || before->sequence > request->sequence) {
        return;
    }
    int64_t acquired_us = before->acquired_us;
    bool shortened = before->state == LEASE_HELD && lease_is_shorter(before, request->sent_us + request->lease_us);
    lease_end(effect->worker, before, LEASE_REASON_RELEASED);
    if (shortened) {
        return;
    }
    struct lease *lease = grant(effect, target, 1, is_overtaken(request));
    if (lease != NULL) {
        lease->acquired_us = acquired_us;
        lease_schedule(effect->worker, lease);
    }
}

/* One that is not on file was taken through another Headgate, or before a restart: the reply shows that it is held. But
 * of an extension and a release that were under way together, and have both succeeded, Redis executed the release last;
 * had the token taken the lock anew in between, the reply to that would tell. */
static void extend(struct effect *effect)
{
    const struct lease_request *request = effect->request;
    bool is_multi_key = request->shape.kind == LEASE_STRINGS;

    for (size_t i = 0; i < (is_multi_key ? 1 : request->target_count); i++) {
        struct lease *lease = find(effect, &request->targets[i]);
        if (lease != NULL && lease->sequence > request->sequence) {
            /* It speaks of the one before, or may. */
            continue;
        }
        if (effect->outcome == LEASE_OUTCOME_YES && lease != NULL) {
            extend_one(effect, lease, is_overtaken(request));
        } else if (effect->outcome == LEASE_OUTCOME_YES && request->shape.replaces) {
            replace(effect, &request->targets[i]);
        } else if (effect->outcome == LEASE_OUTCOME_YES && !request->shape.adds && !is_over(request)) {
            (void)grant(effect, &request->targets[i], is_multi_key ? request->target_count : 1, is_overtaken(request));
        } else if (lease != NULL && (effect->outcome == LEASE_OUTCOME_NO || effect->outcome == LEASE_OUTCOME_UNCLEAR)) {
            lease_doubt(effect, lease, false);
        }
    }
}

/* A bare ZADD says nothing of the lease: that of a permit on file stays as it is. */
static void refresh(struct effect *effect, const struct lease_target *target)
{
    const struct lease *before = find(effect, target);
    int64_t lease_us = before != NULL && !effect->request->score.measured ? before->lease_us : 0;

    struct lease *lease = grant(effect, target, 1, target->touch.overtaken);
    if (lease != NULL && lease_us > 0) {
        lease->lease_us = lease_us;
        lease->expires_us = lease->scored_us + lease_us;
        lease_schedule(effect->worker, lease);
    }
}

/* A ZADD: of a new member it takes a permit; of one that was there it refreshes it, and if that is gone, Redis adds it
 * again, which the client takes for a loss. */
static void score(struct effect *effect)
{
    const struct lease_target *target = &effect->request->targets[0];
    struct lease *lease = find(effect, target);

    switch (effect->outcome) {
    case LEASE_OUTCOME_YES:
        if (lease != NULL && (lease->confirmed || (lease->trial && !lease->rank_asked))) {
            lease_end(effect->worker, lease, LEASE_REASON_GONE);
            return;
        }
        (void)grant(effect, target, 1, target->touch.overtaken);
        return;
    case LEASE_OUTCOME_HELD:
    case LEASE_OUTCOME_UNCLEAR:
        refresh(effect, target);
        return;
    default:
        return;
    }
}

/* ---- ranks ---- */

static void take_rank(const struct effect *effect, struct lease *lease, int64_t rank)
{
    if (!lease_permit_rank(effect->worker, lease, rank)) {
        lease_end(effect->worker, lease, LEASE_REASON_NONE);
    }
}

/* Of a semaphore with a second set it is that of the token in the other one. */
static void rank_in_transaction(struct effect *effect, const struct lease_target *asked, bool known, int64_t rank)
{
    const struct lease_request *request = effect->first;

    for (; request != NULL && request != effect->request; request = request->next) {
        const struct lease_target *target = &request->targets[0];
        bool is_its = request->shape.action == LEASE_SCORE && request->target_count == 1 &&
                      slice_equal(target->touch.token, asked->touch.token);
        struct effect of_score = *effect;
        of_score.request = request;
        struct lease *lease = is_its ? find(&of_score, target) : NULL;
        if (lease != NULL && known) {
            take_rank(effect, lease, rank);
        } else if (lease != NULL) {
            lease_permit_hide_rank(lease);
        }
    }
}

static void rank(struct effect *effect)
{
    int64_t value = 0;
    bool known = lease_answer_integer(effect->head, &value);

    for (size_t i = 0; i < effect->request->target_count; i++) {
        const struct lease_target *target = &effect->request->targets[i];
        struct lease *lease = effect->request->in_transaction ? NULL : find(effect, target);
        if (lease != NULL && known) {
            take_rank(effect, lease, value);
        } else if (effect->request->in_transaction && effect->outcome != LEASE_OUTCOME_REFUSED) {
            rank_in_transaction(effect, target, known, value);
        }
    }
}

/* ---- requests ---- */

static void apply(struct effect *effect)
{
    switch (effect->request->shape.action) {
    case LEASE_ACQUIRE:
        acquire(effect);
        return;
    case LEASE_SCORE:
        score(effect);
        return;
    case LEASE_EXTEND:
        extend(effect);
        return;
    case LEASE_RANK:
        rank(effect);
        return;
    default:
        lease_change(effect);
        return;
    }
}

static bool may_own(const struct effect *effect)
{
    enum lease_action action = effect->request->shape.action;
    return (action == LEASE_ACQUIRE || action == LEASE_SCORE || action == LEASE_EXTEND) &&
           effect->outcome != LEASE_OUTCOME_NO && effect->outcome != LEASE_OUTCOME_REFUSED;
}

/* Whether the owner may have changed the lock by another command: then it is to be known whose the connection is. */
static bool is_by_owner_perhaps(const struct effect *effect)
{
    enum lease_action action = effect->request->shape.action;

    return (action == LEASE_EXPIRE || action == LEASE_WRITE) && effect->outcome == LEASE_OUTCOME_YES;
}

/* Whether the SELECT that went before it in its transaction was obeyed, as far as the reply shows. */
static bool met_its_database(const struct lease_request *request, const struct policy_reply *reply)
{
    struct slice answer;

    return !request->selects || (lease_answer_of_exec(reply->head, request->select_place, request->of, &answer) &&
                                 slice_begins(answer, "+OK"));
}

/* Takes the terms of the rule that is now. False: there is none any more. */
static bool follows_rule(const struct effect *effect, struct lease_request *request)
{
    const struct lease_rule *rule =
        request->target_count > 0 ? lease_rule_of(effect->worker, request->targets[0].key) : NULL;

    if (rule != NULL) {
        request->terms = rule->terms;
    }
    return rule != NULL;
}

/* Whether it is behind another Headgate who takes it, and nobody could tell whether he lives. */
static bool is_relayed(const struct effect *effect)
{
    const struct lease_client *client = effect->request->client;
    bool by_process = client->is_relay && effect->request->terms.owner == LEASE_OWNER_PROCESS;

    return may_own(effect) && (by_process || client->is_shared);
}

/* What it is told at once it hears of at once, or never. */
static void note_taken(struct lease_client *client, const struct lease_request *request,
                       const struct policy_reply *reply)
{
    bool is_broken = reply->client != NULL && reply->client->is_broken;

    if (client->granted_us != reply->now_us) {
        client->granted = request->sequence;
        client->granted_us = reply->now_us;
    }
    if (is_broken && request->sequence < client->unheard) {
        client->unheard = request->sequence;
    }
}

static void end_one(struct lease_worker *worker, struct lease_request *request, const struct lease_request *first,
                    const struct policy_reply *reply)
{
    struct slice head = lease_outcome_head(request, reply);
    struct effect effect = {
        .worker = worker,
        .request = request,
        .first = first,
        .head = head,
        .outcome = lease_outcome_of(request, reply, head),
        .now_us = reply->now_us,
    };

    if (may_own(&effect) || is_by_owner_perhaps(&effect)) {
        lease_owner_identify(worker, request->client, &request->terms);
    }
    if (may_own(&effect) && effect.outcome != LEASE_OUTCOME_UNKNOWN && request->shape.action != LEASE_EXTEND) {
        note_taken(request->client, request, reply);
    }
    lease_registry_lock(worker->registry);
    for (size_t i = 0; i < request->target_count; i++) {
        lease_registry_untouch(worker->registry, &request->targets[i].touch);
    }
    (void)lease_registry_weigh_request(worker->registry, &request->client->weight, &request->weight, 0);
    if (request->suspects_all) {
        lease_registry_end_unseen(worker->registry, request->database, effect.outcome != LEASE_OUTCOME_REFUSED);
    }
    if (request->flushes) {
        lease_change_all_flushed(&effect);
    } else if (!met_its_database(request, reply) || (may_own(&effect) && !follows_rule(&effect, request))) {
        /* Which keys it was about is not known, or there is no rule for it any more. */
    } else if (is_relayed(&effect)) {
        lease_owner_decline(worker, &request->terms);
    } else {
        apply(&effect);
    }
    lease_registry_unlock(worker->registry);
}

void lease_request_end(struct lease_worker *worker, struct lease_request *request, const struct policy_reply *reply)
{
    for (struct lease_request *at = request; at != NULL; at = at->next) {
        end_one(worker, at, request, reply);
        if (at->in_transaction && at->next == NULL) {
            /* EXEC has been answered. */
            lease_guard_end(worker, at->client, at->sequence);
        }
    }
    while (request != NULL) {
        struct lease_request *next = request->next;
        free(request);
        request = next;
    }
}
