/*
 * Owners that are processes. Which process a client is of is looked up when it takes a lock, not for all of them. So
 * when the last connection that is known of a process closes and the process lives on, as with pools, the workers look
 * through their clients for another one of its connections, and through those that come, until its locks have ended.
 *
 *   the last known connection closes ─► the process has ended: its locks have no owner
 *                                    ─► it lives ─► a search ─► found: it goes on
 *                                                           ─► all workers have looked: its locks have no owner
 *
 * Where the connection closes before its process was found, what it has taken is kept by any connection of the same
 * address and user. These are searched for in the same way: one at a time stands for all.
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
static struct lease_client *next_untested(struct lease_client *client, const struct lease_owner *sought)
{
    bool of_user = sought->user != 0;

    while (client != NULL &&
           (client->tested[of_user] >= sought->search || (of_user ? client->fellows : client->process) != NULL)) {
        client = LIST_NEXT(client, of_worker);
    }
    return client;
}

/* The client is of those who are searched for, if they are so still. */
static void find(struct lease_worker *worker, struct lease_client *client, uint64_t search)
{
    lease_registry_lock(worker->registry);
    struct lease_owner *owner = lease_registry_next_search(worker->registry, search - 1);
    if (owner != NULL && owner->search == search) {
        struct slice name = {owner->name, owner->length};
        struct lease_owner *joined = lease_registry_join(worker->registry, name, owner->shown);
        if (joined->user != 0) {
            client->fellows = lease_owner_welcome(worker, joined);
        } else {
            lease_owner_adopt(worker, client, joined);
        }
    }
    lease_registry_unlock(worker->registry);
}

static enum policy_peer_search is_of(const struct lease_worker *worker, const struct lease_client *client,
                                     const struct lease_owner *sought, bool *is)
{
    *is = client->user == sought->user && !client->is_shared && !client->is_relay;
    return sought->user != 0 ? POLICY_PEER_TOLD : worker->host->peer_has(worker->host->context, client->connection, is);
}

/* Looks through the clients that were not looked at yet, but for those that have come since the look at the process
 * began: they follow at a later tick. False: there are more. */
static bool look_through(struct lease_worker *worker, const struct lease_owner *sought, size_t *looks)
{
    const struct policy_host *host = worker->host;
    struct lease_client *client = next_untested(LIST_FIRST(&worker->clients), sought);
    bool is = false;

    if (client != NULL && sought->user == 0 && !host->look_at_peer(host->context, &sought->process)) {
        return false;
    }
    while (client != NULL && *looks > 0) {
        if (is_of(worker, client, sought, &is) == POLICY_PEER_TOLD) {
            (*looks)--;
            client->tested[sought->user != 0] = sought->search;
            if (is) {
                find(worker, client, sought->search);
                return true;
            }
        }
        client = next_untested(LIST_NEXT(client, of_worker), sought);
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

/* Goes on to whom the next search is for, of whom it has a copy. False: there is none. */
static bool take_search(struct lease_worker *worker, struct lease_owner *sought)
{
    lease_registry_lock(worker->registry);
    const struct lease_owner *owner = lease_registry_next_search(worker->registry, sought->search);
    if (owner != NULL) {
        *sought = *owner;
    }
    lease_registry_unlock(worker->registry);
    return owner != NULL;
}

static void search(struct lease_worker *worker)
{
    size_t looks = LOOKS_MAX;
    struct lease_owner sought = {.search = 0};

    while (take_search(worker, &sought)) {
        if (!look_through(worker, &sought, &looks)) {
            return;
        }
        lease_registry_lock(worker->registry);
        end_search(worker, sought.search);
        lease_registry_unlock(worker->registry);
        worker->searched = worker->searched < sought.search ? sought.search : worker->searched;
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
        if (now - owner->checked_us < CHECK_INTERVAL_US || owner->gone_us != 0 || LIST_EMPTY(&owner->shares)) {
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
