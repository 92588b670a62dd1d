/* What the reply to a request that releases, removes or expires has made of leases. */
#include "lease/lease_effect.h"

/* ---- what is not certain ---- */

bool lease_may_be_older(const struct effect *effect, const struct lease *lease)
{
    return effect->request->sequence <= lease->granted && effect->request->client->id != lease->client;
}

void lease_doubt(struct effect *effect, struct lease *lease, bool after_release)
{
    lease->after_release = lease->after_release || after_release;
    if (lease->calling) {
        /* What was asked before is out of date. */
        lease->proved = lease_registry_sequence(effect->worker->registry);
    }
    /* What was never given a time to live is found out by healing, too. */
    if (lease->state == LEASE_HELD || lease->state == LEASE_DOUBTFUL) {
        lease_move(lease, LEASE_DOUBTFUL);
    }
    lease_schedule(effect->worker, lease);
}

void lease_expect(const struct effect *effect, struct lease *lease)
{
    lease->expires_us = effect->request->sent_us + effect->request->lease_us;
    lease->vague_us = effect->now_us - effect->request->sent_us;
    lease->proved_us = effect->now_us;
    lease->proved_over_us = 0;
}

bool lease_is_shorter(const struct lease *lease, int64_t expires_us)
{
    return lease->expires_us - expires_us > lease->lease_us / LEASE_SLACK_PART;
}

/* ---- one lease ---- */

/* The renewal compares what it finds with what is expected. */
static void renew_soon(struct effect *effect, struct lease *lease)
{
    if (lease->state == LEASE_HELD) {
        lease->retry_us = lease_latest(effect->now_us, lease_early_us(lease));
    }
    lease_schedule(effect->worker, lease);
}

/* EXPIRE and its like set the time to live of all that the key holds. On the connection that took the lock they come
 * behind that; from another one they may have been executed before it. */
static void expire_one(struct effect *effect, struct lease *lease)
{
    int64_t expires_us = effect->request->sent_us + effect->request->lease_us;

    if (effect->request->client->id != lease->client) {
        renew_soon(effect, lease);
        return;
    }
    if (lease->abandoned) {
        lease_end(effect->worker, lease, LEASE_REASON_RELEASED);
        return;
    }
    if (lease->state == LEASE_HELD && lease_is_shorter(lease, expires_us)) {
        lease_end(effect->worker, lease, LEASE_REASON_SHORTENED);
        return;
    }
    lease_expect(effect, lease);
    lease->proved = effect->request->sequence;
    if (lease->state == LEASE_UNHEALED || lease->lease_us == 0) {
        lease->lease_us = effect->request->lease_us;
        /* Of one that is in doubt it says that the key is there, not whose it is. */
        lease_move(lease, lease->state == LEASE_UNHEALED ? LEASE_HELD : lease->state);
    }
    lease_schedule(effect->worker, lease);
}

/* ---- for all that a request may end ---- */

/* Who asked for a release does not want it kept, whether Redis has heard of it or not: then it has to end by itself. */
static void give_up(struct effect *effect, struct lease *lease)
{
    if (lease_may_be_endless(lease)) {
        lease->abandoned = true;
        lease_schedule(effect->worker, lease);
    } else {
        lease_end(effect->worker, lease, LEASE_REASON_RELEASED);
    }
}

static void release_one(struct effect *effect, struct lease *lease)
{
    switch (effect->outcome) {
    case LEASE_OUTCOME_YES:
        lease_end(effect->worker, lease, LEASE_REASON_RELEASED);
        return;
    case LEASE_OUTCOME_UNKNOWN:
        give_up(effect, lease);
        return;
    case LEASE_OUTCOME_NO:
    case LEASE_OUTCOME_HELD:
        lease_doubt(effect, lease, false);
        return;
    case LEASE_OUTCOME_UNCLEAR:
        lease_doubt(effect, lease, true);
        return;
    case LEASE_OUTCOME_REFUSED:
        lease_schedule(effect->worker, lease);
        return;
    }
}

/* Whether it was a release that was under way together with the request that took the lock, whichever was sent first.
 */
static bool may_have_released(const struct effect *effect, const struct lease *lease)
{
    return lease_action_releases(effect->request->shape.action) && effect->outcome == LEASE_OUTCOME_YES &&
           lease_may_be_older(effect, lease);
}

/* If Redis has the lock still, it was taken anew behind the release; unless that was of several keys, of which nobody
 * says which there were. */
static void doubt_released(struct effect *effect, struct lease *lease)
{
    if (effect->request->shape.key_count == 1) {
        lease->acquired_us = lease_latest(lease->acquired_us, effect->request->sent_us);
        if (lease->state == LEASE_EXHAUSTED) {
            lease_move(lease, LEASE_DOUBTFUL);
        }
    }
    lease_doubt(effect, lease, true);
}

static void change_one(struct effect *effect, struct lease *lease)
{
    if (effect->request->shape.action == LEASE_UNSEEN) {
        lease_suspect(effect->worker, lease);
    } else if (effect->request->shape.action != LEASE_EXPIRE) {
        release_one(effect, lease);
    } else if (effect->outcome == LEASE_OUTCOME_YES && !lease_kind_is_semaphore(lease->kind)) {
        expire_one(effect, lease);
    } else if (effect->outcome == LEASE_OUTCOME_UNCLEAR || effect->outcome == LEASE_OUTCOME_UNKNOWN) {
        renew_soon(effect, lease);
    }
}

/* What was being taken when it was released may be gone before it is known to be there. */
static void overtake(const struct effect *effect, const struct lease_key *key, struct slice token)
{
    bool came_about = effect->outcome == LEASE_OUTCOME_YES && token.data != NULL;
    struct lease_touch *touch;

    LIST_FOREACH(touch, &key->touches, of_key)
    {
        bool concerns = token.data == NULL || slice_equal(touch->token, token);
        if (touch->acquires && concerns && touch->sequence < effect->request->sequence) {
            touch->overtaken = true;
        }
        touch->is_over = touch->is_over || (touch->acquires && concerns && came_about);
    }
}

static void change_all(struct effect *effect, struct lease_key *key, struct slice token)
{
    struct lease_member *member = LIST_FIRST(&key->members);

    while (member != NULL) {
        struct lease_member *next = LIST_NEXT(member, of_key);
        struct lease *lease = member->lease;
        bool concerns = token.data == NULL || slice_equal(lease->token, token);
        if (concerns && may_have_released(effect, lease)) {
            doubt_released(effect, lease);
        } else if (concerns && lease->sequence < effect->request->sequence) {
            change_one(effect, lease);
        } else if (concerns) {
            lease_schedule(effect->worker, lease);
        }
        member = next;
    }
}

void lease_change(struct effect *effect)
{
    const struct lease_request *request = effect->request;

    for (size_t i = 0; i < request->target_count; i++) {
        const struct lease_target *target = &request->targets[i];
        struct lease_key *key = lease_registry_find_key(effect->worker->registry, request->database, target->key);
        if (key == NULL) {
            continue;
        }
        if (effect->outcome != LEASE_OUTCOME_REFUSED && lease_action_releases(request->shape.action)) {
            overtake(effect, key, target->touch.token);
        }
        change_all(effect, key, target->touch.token);
    }
}

void lease_change_all_flushed(struct effect *effect)
{
    struct lease *lease = lease_registry_first(effect->worker->registry);

    for (; lease != NULL; lease = LIST_NEXT(lease, of_all)) {
        if (effect->outcome != LEASE_OUTCOME_REFUSED && effect->outcome != LEASE_OUTCOME_NO) {
            lease_doubt(effect, lease, false);
        } else {
            lease_schedule(effect->worker, lease);
        }
    }
}
