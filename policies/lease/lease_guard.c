/*
 * Locks whose keys a client WATCHes: a renewal would touch them, and spoil its EXEC, which is how many programs
 * release. From WATCH to the end of the transaction they are renewed only when little of the lease is left.
 */
#include "lease/lease_private.h"

#include <stdlib.h>

/* How long WATCH waits in all for a renewal that is under way over another connection, and how often it looks. */
#define LOOK_US 2000
#define LOOKS_MAX 50

/* What is found of the keys of a WATCH that are locks', and what is kept of them. */
struct guarding {
    struct lease_worker *worker;
    const struct policy_request *request;
    struct lease_guard *guard; /* NULL: they are only looked at */
    size_t count;
    bool calling; /* a script is under way for one of them */
};

static void look_at(struct guarding *guarding, const struct lease_key *key)
{
    const struct lease_member *member;

    LIST_FOREACH(member, &key->members, of_key)
    {
        guarding->calling = guarding->calling || member->lease->calling;
        if (guarding->guard != NULL) {
            lease_schedule(guarding->worker, member->lease);
        }
    }
}

static bool visit(void *context, struct slice name, unsigned int flags)
{
    struct guarding *guarding = context;
    struct lease_registry *registry = guarding->worker->registry;
    int64_t database = guarding->request->client->database;

    (void)flags;
    if (lease_rule_of(guarding->worker, name) == NULL) {
        return true;
    }
    if (guarding->guard != NULL) {
        guarding->guard->keys[guarding->count] = lease_registry_guard(registry, database, name);
    }
    guarding->count++;
    const struct lease_key *key = lease_registry_find_key(registry, database, name);
    if (key != NULL) {
        look_at(guarding, key);
    }
    return true;
}

/* Keeps what was looked at. The lock may be under way yet, so its key is guarded whether there is one or not. Without
 * room for it EXEC may be told that somebody has interfered. */
static void keep(struct guarding *guarding, struct lease_client *client)
{
    struct lease_registry *registry = guarding->worker->registry;
    size_t size = sizeof *guarding->guard + guarding->count * sizeof guarding->guard->keys[0], weight = 0;
    bool fits = lease_registry_weigh_request(registry, &client->weight, &weight, size / 1024 + 1);

    guarding->guard = fits ? malloc(size) : NULL;
    if (guarding->guard == NULL) {
        (void)lease_registry_weigh_request(registry, &client->weight, &weight, 0);
        lease_warn_of_bound(guarding->worker, lease_section.name, slice_of("WATCH"), lease_owner_shown(client));
        return;
    }
    guarding->guard->sequence = lease_registry_sequence(registry);
    guarding->guard->weight = weight;
    guarding->count = 0;
    (void)match_visit_keys(guarding->request, visit, guarding);
    guarding->guard->count = guarding->count;
    LIST_INSERT_HEAD(&client->guards, guarding->guard, of_client);
}

enum policy_verdict lease_guard_begin(struct lease_worker *worker, struct lease_client *client,
                                      const struct policy_request *request, struct policy_decision *decision)
{
    struct guarding guarding = {.worker = worker, .request = request};

    lease_registry_lock(worker->registry);
    (void)match_visit_keys(request, visit, &guarding);
    bool waits = guarding.calling && request->holds < LOOKS_MAX;
    if (!waits && guarding.count > 0) {
        keep(&guarding, client);
    }
    lease_registry_unlock(worker->registry);
    decision->hold_until_us = request->now_us + LOOK_US;
    return waits ? POLICY_HOLD : POLICY_ADMIT;
}

static void drop(struct lease_worker *worker, struct lease_client *client, struct lease_guard *guard)
{
    for (size_t i = 0; i < guard->count; i++) {
        lease_registry_unguard(worker->registry, guard->keys[i]);
    }
    (void)lease_registry_weigh_request(worker->registry, &client->weight, &guard->weight, 0);
    LIST_REMOVE(guard, of_client);
    free(guard);
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
        if (guard->sequence < sequence) {
            drop(worker, client, guard);
        }
        guard = next;
    }
    lease_registry_unlock(worker->registry);
}
