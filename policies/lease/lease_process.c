/*
 * Owners that are processes. Which process a client is of is looked up when it takes a lock, not for all of them. So
 * when the last connection that is known of a process closes and the process lives on, as with pools, the workers look
 * through their clients for another one of its connections, and through those that come, until its locks have ended.
 *
 *   the last known connection closes ─► the process has ended: its locks have no owner
 *                                    ─► it lives ─► a search ─► found: it goes on
 *                                                           ─► all workers have looked: its locks have no owner
 *
 * A process may also end while another one has its connection, which was forked from it or has forked it: both have the
 * socket, and only one of them is found. So it is looked whether processes live. One that has ended is gone when what
 * it took its locks by is closed, as it is with it, unless others have that. If they do, what was taken by it is
 * theirs:
 *
 *   the process has ended ─► of its connections: what was taken by them is the connection's ─► whose is it now?
 *                         ─► those that have closed: what was taken by them has no owner
 */
#include "lease/lease_private.h"

/* Clients that a worker looks at in one tick, at some µs each. */
#define LOOKS_MAX 300
/* How often it is looked whether processes live, and at how many in one tick. */
#define CHECK_INTERVAL_US INT64_C(1000000)
#define CHECKS_MAX 20

static void go(struct lease_worker *worker, struct lease_owner *owner)
{
    owner->gone_us = lease_now(worker);
    lease_owner_schedule(worker, owner);
}

/* ---- further connections ---- */

/* Some client of this worker that was not looked at for the search, or NULL. */
static struct lease_client *next_untested(struct lease_client *client, uint64_t search)
{
    while (client != NULL && (client->tested >= search || client->process != NULL)) {
        client = LIST_NEXT(client, of_worker);
    }
    return client;
}

/* The client is of the process that is searched for, if that is so still. */
static void find(struct lease_worker *worker, struct lease_client *client, uint64_t search)
{
    lease_registry_lock(worker->registry);
    struct lease_owner *owner = lease_registry_next_search(worker->registry, search - 1);
    if (owner != NULL && owner->search == search) {
        struct slice name = {owner->name, owner->length};
        lease_owner_adopt(worker, client, lease_registry_join(worker->registry, name));
    }
    lease_registry_unlock(worker->registry);
}

/* Looks through the clients that were not looked at yet, but for those that have come since the look at the process
 * began: they follow at a later tick. False: there are more. */
static bool look_through(struct lease_worker *worker, uint64_t search, const struct policy_peer *process, size_t *looks)
{
    const struct policy_host *host = worker->host;
    struct lease_client *client = next_untested(LIST_FIRST(&worker->clients), search);
    bool has = false;

    if (client != NULL && !host->look_at_peer(host->context, process)) {
        return false;
    }
    while (client != NULL && *looks > 0) {
        if (host->peer_has(host->context, client->connection, &has) == POLICY_PEER_TOLD) {
            (*looks)--;
            client->tested = search;
            if (has) {
                find(worker, client, search);
                return true;
            }
        }
        client = next_untested(LIST_NEXT(client, of_worker), search);
    }
    return client == NULL;
}

/* The worker has looked through all its clients. The registry is locked. */
static void end_search(struct lease_worker *worker, uint64_t search)
{
    struct lease_owner *owner = lease_registry_next_search(worker->registry, search - 1);

    if (owner == NULL || owner->search != search || worker->searched >= search) {
        return;
    }
    owner->searchers--;
    if (owner->searchers == 0 && owner->gone_us == 0) {
        go(worker, owner);
    }
}

/* The search behind that number, with its process; 0: there is none. */
static uint64_t take_search(struct lease_worker *worker, uint64_t number, struct policy_peer *process)
{
    lease_registry_lock(worker->registry);
    const struct lease_owner *owner = lease_registry_next_search(worker->registry, number);
    uint64_t search = owner != NULL ? owner->search : 0;
    if (owner != NULL) {
        *process = owner->process;
    }
    lease_registry_unlock(worker->registry);
    return search;
}

static void search(struct lease_worker *worker)
{
    size_t looks = LOOKS_MAX;
    struct policy_peer process;
    uint64_t number = 0;

    while ((number = take_search(worker, number, &process)) != 0) {
        if (!look_through(worker, number, &process, &looks)) {
            return;
        }
        lease_registry_lock(worker->registry);
        end_search(worker, number);
        lease_registry_unlock(worker->registry);
        worker->searched = worker->searched < number ? number : worker->searched;
    }
}

/* ---- processes that end ---- */

static void end(struct lease_worker *worker, struct lease_owner *owner)
{
    if (owner->connections > 0) {
        lease_registry_end_process(worker->registry, owner);
    } else {
        go(worker, owner);
    }
}

/* Clients of this worker whose process has ended are looked at anew. The registry is locked. */
static void forsake(struct lease_worker *worker)
{
    uint64_t endings = lease_registry_endings(worker->registry);
    struct lease_client *client;

    if (worker->endings == endings) {
        return;
    }
    worker->endings = endings;
    LIST_FOREACH(client, &worker->clients, of_worker)
    {
        if (client->process != NULL && client->process->ended) {
            lease_owner_forsake(worker, client);
        }
    }
}

static void check(struct lease_worker *worker)
{
    int64_t now = lease_now(worker);
    size_t checks = CHECKS_MAX;
    struct lease_owner *owner = lease_registry_first_process(worker->registry);

    for (; owner != NULL && checks > 0; owner = LIST_NEXT(owner, of_processes)) {
        if (now - owner->checked_us < CHECK_INTERVAL_US || owner->gone_us != 0 || LIST_EMPTY(&owner->leases)) {
            continue;
        }
        checks--;
        owner->checked_us = now;
        if (!lease_owner_lives(worker, owner)) {
            end(worker, owner);
        }
    }
}

void lease_process_tick(struct lease_worker *worker)
{
    lease_registry_lock(worker->registry);
    bool looks =
        lease_registry_first_process(worker->registry) != NULL && !lease_registry_is_draining(worker->registry);
    if (looks && worker->host->worker == 0) {
        check(worker);
    }
    if (looks) {
        forsake(worker);
    }
    lease_registry_unlock(worker->registry);
    if (looks) {
        search(worker);
    }
}
