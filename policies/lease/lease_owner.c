/*
 * Whose connections show that a holder lives: the owner of a lease is a process, a named client or a connection, and is
 * there as long as it has a connection.
 */
#include "lease/lease_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct slice lease_owner_name(const struct lease_client *client)
{
    const char *text = client->text != NULL ? client->text : "";
    size_t length = strlen(text);

    return (struct slice){text, length < LEASE_OWNER_MAX ? length : LEASE_OWNER_MAX};
}

void lease_owner_schedule(struct lease_worker *worker, struct lease_owner *owner)
{
    struct lease *lease;

    LIST_FOREACH(lease, &owner->leases, of_owner)
    {
        lease_schedule(worker, lease);
    }
}

/* ---- joining and leaving ---- */

struct lease_owner *lease_owner_welcome(struct lease_worker *worker, struct lease_owner *owner)
{
    if (owner != NULL && owner->connections == 1) {
        lease_owner_schedule(worker, owner);
    }
    return owner;
}

bool lease_owner_lives(const struct lease_worker *worker, const struct lease_owner *owner)
{
    return worker->host->peer_lives(worker->host->context, &owner->process);
}

/* The last connection that was known of the owner has gone just now: if it is a process that lives, it may have others.
 */
static void search_if_it_lives(struct lease_worker *worker, struct lease_owner *owner)
{
    if (owner->process.pid != 0 && owner->gone_us == lease_now(worker) && lease_owner_lives(worker, owner)) {
        owner->gone_us = 0;
        lease_registry_search(worker->registry, owner);
    }
}

void lease_owner_leave(struct lease_worker *worker, struct lease_owner *owner)
{
    bool is_last = owner->connections == 1;
    bool stays = !is_last || !LIST_EMPTY(&owner->leases);

    lease_registry_leave(worker->registry, owner, lease_now(worker));
    if (is_last && stays) {
        search_if_it_lives(worker, owner);
        lease_owner_schedule(worker, owner);
    }
}

static struct lease_owner *join_alone(struct lease_worker *worker, const struct lease_client *client)
{
    char text[LEASE_OWNER_MAX + 32];
    struct slice name = lease_owner_name(client);
    int length = snprintf(text, sizeof text, "%.*s#%" PRIu64, (int)name.length, name.data, client->id);

    struct lease_owner *owner = lease_registry_join(worker->registry, (struct slice){text, (size_t)length});
    if (owner != NULL) {
        owner->is_alone = true;
    }
    return owner;
}

/* ---- whose a lease is ---- */

static void warn_once(struct lease_worker *worker, const struct lease_terms *terms, enum lease_once what,
                      const char *text)
{
    if (lease_registry_is_first(worker->registry, what)) {
        worker->host->warn(worker->host->context, terms->rule, text);
    }
}

static struct lease_owner *choose_owner(struct lease_worker *worker, struct lease_client *client,
                                        enum lease_owner_kind kind)
{
    if (kind == LEASE_OWNER_PROCESS && client->process != NULL) {
        return client->process;
    }
    if (kind == LEASE_OWNER_CLIENT && client->named != NULL) {
        return client->named;
    }
    if (client->alone == NULL) {
        client->alone = join_alone(worker, client);
    }
    return client->alone;
}

struct lease_owner *lease_owner_of(struct lease_worker *worker, struct lease_client *client,
                                   const struct lease_terms *terms)
{
    if (terms->owner == LEASE_OWNER_CLIENT && client->named == NULL) {
        warn_once(worker, terms, LEASE_ONCE_CLIENT,
                  "owner = client, but a client without a name (CLIENT SETNAME) has taken a lock: such clients share "
                  "nothing, and each connection counts for itself; give them names, or set owner = process");
    }
    /* Others go on with a connection of a process that has ended: it was theirs, too. */
    bool has_ended = client->process != NULL && (client->process->ended || client->process->gone_us != 0);
    return choose_owner(worker, client, has_ended ? LEASE_OWNER_CONNECTION : terms->owner);
}

/* Gives what the connection has taken, and this owner has, to whom it belongs to by now. */
static void settle_leases(struct lease_worker *worker, struct lease_client *client, struct lease_owner *from)
{
    struct lease *lease = from != NULL ? LIST_FIRST(&from->leases) : NULL;

    while (lease != NULL) {
        struct lease *next = LIST_NEXT(lease, of_owner);
        struct lease_owner *to = lease->client == client->id ? choose_owner(worker, client, lease->terms.owner) : NULL;
        if (to != NULL && to != from) {
            lease_registry_own(worker->registry, lease, to);
            lease_schedule(worker, lease);
        }
        lease = next;
    }
}

void lease_owner_settle(struct lease_worker *worker, struct lease_client *client, struct lease_owner *from)
{
    settle_leases(worker, client, from);
    settle_leases(worker, client, client->named);
    settle_leases(worker, client, client->process);
    settle_leases(worker, client, client->alone);
}

void lease_owner_set_searching(struct lease_worker *worker, struct lease_client *client, bool searching)
{
    worker->searching += searching;
    worker->searching -= client->searching;
    client->searching = searching;
}

void lease_owner_adopt(struct lease_worker *worker, struct lease_client *client, struct lease_owner *process)
{
    client->process = lease_owner_welcome(worker, process);
    lease_owner_set_searching(worker, client, false);
    lease_owner_settle(worker, client, NULL);
}

void lease_owner_forsake(struct lease_worker *worker, struct lease_client *client)
{
    struct lease_owner *before = client->process;

    client->process = NULL;
    lease_owner_settle(worker, client, before);
    lease_owner_leave(worker, before);
    worker->host->forget_peer(worker->host->context, client->connection);
    lease_owner_set_searching(worker, client, true);
}

/* ---- who a client is ---- */

/* The process is shown as "process:4711"; when it was started tells it from others of that number. */
static struct lease_owner *join_process(struct lease_worker *worker, const struct policy_peer *peer)
{
    char text[64];
    int shown = snprintf(text, sizeof text, "process:%" PRId64, peer->pid);
    int length = shown + snprintf(text + shown, sizeof text - (size_t)shown, " %" PRIu64, peer->started);
    struct lease_owner *owner =
        lease_registry_join_process(worker->registry, (struct slice){text, (size_t)length}, peer);

    if (owner != NULL) {
        owner->shown = (size_t)shown;
    }
    return owner;
}

static void warn_of_untold(struct lease_worker *worker, const struct lease_terms *terms, const char *why)
{
    char text[512];

    snprintf(text, sizeof text,
             "the process that has taken a lock cannot be told (%s): its connection counts in its place, and so for "
             "all like it; see \"Whose connections count\" in docs/leases.md",
             why);
    warn_once(worker, terms, LEASE_ONCE_PROCESS, text);
}

void lease_owner_decline(struct lease_worker *worker, const struct lease_terms *terms)
{
    warn_once(worker, terms, LEASE_ONCE_RELAYED,
              "a lock was taken by way of another Headgate: which of its clients has it, and whether that "
              "one lives, cannot be told here, so it is not renewed, and so for all like it; name the "
              "rule there; see \"Whose connections count\" in docs/leases.md");
}

/* The client turns out to be a Headgate: what it has taken ends with its lease. */
static void decline_all(struct lease_worker *worker, struct lease_client *client, const struct lease_terms *terms)
{
    struct lease *lease = client->alone != NULL ? LIST_FIRST(&client->alone->leases) : NULL;

    client->is_relay = true;
    while (lease != NULL) {
        struct lease *next = LIST_NEXT(lease, of_owner);
        if (lease->terms.owner == LEASE_OWNER_PROCESS) {
            lease_owner_decline(worker, terms);
            lease_end(worker, lease, LEASE_REASON_DROPPED);
        }
        lease = next;
    }
}

void lease_owner_identify(struct lease_worker *worker, struct lease_client *client, const struct lease_terms *terms)
{
    const struct policy_host *host = worker->host;
    struct policy_peer peer;

    bool is_known = client->process != NULL || client->untold || client->is_relay || client->is_shared;
    if (terms->owner != LEASE_OWNER_PROCESS || is_known) {
        return;
    }
    bool told = host->find_peer(host->context, client->connection, true, &peer) == POLICY_PEER_TOLD;
    lease_owner_set_searching(worker, client, !told);
    if (!told) {
        return;
    }
    lease_registry_lock(worker->registry);
    if (peer.is_headgate) {
        decline_all(worker, client, terms);
    } else if (peer.pid != 0) {
        lease_owner_adopt(worker, client, join_process(worker, &peer));
    } else {
        client->untold = true;
        warn_of_untold(worker, terms, peer.why);
    }
    lease_registry_unlock(worker->registry);
}
