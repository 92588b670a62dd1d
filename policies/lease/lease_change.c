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

/* ---- one lease ---- */

/* The renewal compares what it finds with what is expected. */
static void renew_soon(struct effect *effect, struct lease *lease)
{
    if (lease->state == LEASE_HELD) {
        lease->retry_us = lease_latest(effect->now_us, lease_early_us(effect->worker->registry, lease));
    }
    lease_schedule(effect->worker, lease);
}

/* As far as is known: of whom it is yet to be found who it is, it may be. */
static bool is_by_owner(const struct effect *effect, const struct lease *lease)
{
    return effect->request->client->searching || lease_owner_is(lease, effect->request->client);
}

/* EXPIRE and its like set the time to live of all that the key holds. On the connection that took the lock they come
 * behind that: the lease is what its owner says now, or given up if it is too short to be kept. If they were under way
 * together, Redis is asked. What somebody else does is found by the renewal. */
static void expire_one(struct effect *effect, struct lease *lease)
{
    int64_t expires_us = effect->request->sent_us + effect->request->lease_us;

    if (!is_by_owner(effect, lease)) {
        renew_soon(effect, lease);
        return;
    }
    if (lease_may_be_older(effect, lease)) {
        lease_doubt(effect, lease, true);
        return;
    }
    bool is_shorter = lease->state == LEASE_HELD && lease_is_shorter(lease, expires_us);
    if (lease->abandoned || (is_shorter && effect->request->lease_us < LEASE_LEAST_US)) {
        lease_end(effect->worker, lease, LEASE_REASON_RELEASED);
        return;
    }
    lease_expect(effect, lease);
    lease->proved = effect->request->sequence;
    if (lease->state == LEASE_UNHEALED || lease->lease_us == 0 || is_shorter) {
        lease->lease_us = effect->request->lease_us;
        /* Of one that is in doubt it says that the key is there, not whose it is; of several keys, the others have no
         * end yet. */
        lease_move(lease, lease->state == LEASE_UNHEALED && lease->key_count == 1 ? LEASE_HELD : lease->state);
    }
    lease_schedule(effect->worker, lease);
}

/* ---- for all that a request may end ---- */

/* Its owner, who asked for a release, does not want it kept, whether Redis has heard of it or not: then it has to end
 * by itself. */
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
    case LEASE_OUTCOME_NO:
    case LEASE_OUTCOME_HELD:
        lease_doubt(effect, lease, false);
        return;
    case LEASE_OUTCOME_UNCLEAR:
    case LEASE_OUTCOME_UNKNOWN:
        if (!lease_owner_is(lease, effect->request->client)) {
            lease_suspect(effect->worker, lease);
        } else if (effect->outcome == LEASE_OUTCOME_UNCLEAR) {
            lease_doubt(effect, lease, true);
        } else {
            give_up(effect, lease);
        }
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

/* What its owner has done to it himself is no loss: it goes on with what there is now, or was given up. */
static void write_one(struct effect *effect, struct lease *lease)
{
    bool came_about = effect->outcome == LEASE_OUTCOME_YES;

    if (came_about && is_by_owner(effect, lease)) {
        lease_doubt(effect, lease, true);
    } else if (came_about) {
        renew_soon(effect, lease);
    } else if (effect->outcome == LEASE_OUTCOME_UNCLEAR || effect->outcome == LEASE_OUTCOME_UNKNOWN) {
        lease_suspect(effect->worker, lease);
    }
}

static void change_one(struct effect *effect, struct lease *lease)
{
    if (effect->request->shape.action == LEASE_UNSEEN) {
        lease_suspect(effect->worker, lease);
    } else if (effect->request->shape.action == LEASE_WRITE) {
        write_one(effect, lease);
    } else if (effect->request->shape.action != LEASE_EXPIRE) {
        release_one(effect, lease);
    } else if (effect->outcome == LEASE_OUTCOME_YES && !lease_kind_is_semaphore(lease->kind)) {
        expire_one(effect, lease);
    } else if (effect->outcome == LEASE_OUTCOME_UNCLEAR || effect->outcome == LEASE_OUTCOME_UNKNOWN) {
        renew_soon(effect, lease);
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
        if (effect->outcome != LEASE_OUTCOME_REFUSED && target->touch.releases) {
            /* What is being taken may be gone before it is known to be there. */
            lease_registry_note_release(effect->worker->registry, &target->touch, effect->outcome == LEASE_OUTCOME_YES);
        }
        if (key != NULL) {
            change_all(effect, key, target->touch.token);
        }
    }
}

void lease_change_all_flushed(struct effect *effect)
{
    struct lease *lease = lease_registry_first(effect->worker->registry);

    if (effect->outcome == LEASE_OUTCOME_REFUSED || effect->outcome == LEASE_OUTCOME_NO) {
        return;
    }
    if (effect->outcome != LEASE_OUTCOME_YES) {
        lease_registry_unsee(effect->worker->registry);
        return;
    }
    for (; lease != NULL; lease = LIST_NEXT(lease, of_all)) {
        if (!effect->request->shape.one_database || lease->members[0].key->database == effect->request->database) {
            lease_doubt(effect, lease, true);
        }
    }
}
