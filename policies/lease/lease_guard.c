/*
 * Locks whose keys a client WATCHes: a renewal would touch them, and spoil its EXEC, which is how many programs
 * release. From WATCH to the end of the transaction they are renewed only when little of the lease is left.
 */
#include "lease/lease_private.h"

#include <stdlib.h>

/* Keys of one client that are guarded. */
#define GUARDS_MAX 256
/* How long WATCH waits in all for a renewal that is under way over another connection, and how often it looks. */
#define LOOK_US 2000
#define LOOKS_MAX 50

/* What is found of the keys of a WATCH. */
struct guarding {
    struct lease_worker *worker;
    struct lease_client *client;
    const struct policy_request *request;
    bool calling; /* a script is under way for one of them */
};

static bool has_call(const struct lease_key *key)
{
    const struct lease_member *member;

    LIST_FOREACH(member, &key->members, of_key)
    {
        if (member->lease->calling) {
            return true;
        }
    }
    return false;
}

static void schedule_all(struct lease_worker *worker, const struct lease_key *key)
{
    struct lease_member *member;

    LIST_FOREACH(member, &key->members, of_key)
    {
        lease_schedule(worker, member->lease);
    }
}

static struct lease_key *find_key(const struct guarding *guarding, struct slice name)
{
    struct lease_key *key =
        lease_registry_find_key(guarding->worker->registry, guarding->request->client->database, name);

    return key != NULL && !LIST_EMPTY(&key->members) ? key : NULL;
}

static bool look_for_calls(void *context, struct slice name, unsigned int flags)
{
    struct guarding *guarding = context;
    const struct lease_key *key = find_key(guarding, name);

    (void)flags;
    guarding->calling = guarding->calling || (key != NULL && has_call(key));
    return !guarding->calling;
}

static bool guard_key(void *context, struct slice name, unsigned int flags)
{
    struct guarding *guarding = context;
    struct lease_client *client = guarding->client;
    struct lease_registry *registry = guarding->worker->registry;
    struct lease_key *key = find_key(guarding, name);

    (void)flags;
    if (key == NULL || client->guard_count >= GUARDS_MAX) {
        return true;
    }
    struct lease_guard *guard = calloc(1, sizeof *guard);
    if (guard == NULL) {
        return false;
    }
    guard->touch.guards = true;
    guard->touch.sequence = lease_registry_sequence(registry);
    if (!lease_registry_touch(registry, &guard->touch, guarding->request->client->database, name)) {
        free(guard);
        return false;
    }
    LIST_INSERT_HEAD(&client->guards, guard, of_client);
    client->guard_count++;
    schedule_all(guarding->worker, key);
    return true;
}

enum policy_verdict lease_guard_begin(struct lease_worker *worker, struct lease_client *client,
                                      const struct policy_request *request, struct policy_decision *decision)
{
    struct guarding guarding = {.worker = worker, .client = client, .request = request};

    lease_registry_lock(worker->registry);
    (void)match_visit_keys(request, look_for_calls, &guarding);
    bool waits = guarding.calling && request->holds < LOOKS_MAX;
    if (!waits) {
        (void)match_visit_keys(request, guard_key, &guarding);
    }
    lease_registry_unlock(worker->registry);
    decision->hold_until_us = request->now_us + LOOK_US;
    return waits ? POLICY_HOLD : POLICY_ADMIT;
}

void lease_guard_end(struct lease_worker *worker, struct lease_client *client, uint64_t sequence)
{
    struct lease_guard *guard = LIST_FIRST(&client->guards);

    if (guard == NULL) {
        return;
    }
    lease_registry_lock(worker->registry);
    while (guard != NULL) {
        struct lease_guard *next = LIST_NEXT(guard, of_client);
        if (guard->touch.sequence < sequence) {
            struct lease_key *key = guard->touch.key;
            guard->touch.guards = false;
            schedule_all(worker, key);
            lease_registry_untouch(worker->registry, &guard->touch);
            LIST_REMOVE(guard, of_client);
            client->guard_count--;
            free(guard);
        }
        guard = next;
    }
    lease_registry_unlock(worker->registry);
}
