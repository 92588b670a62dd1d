/*
 * Whose connections show that a holder lives: the owner of a lease is a process, a named client or a connection, and is
 * there as long as it has a connection.
 */
#include "lease/lease_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slice lease_owner_shown(const struct lease_client *client)
{
    return (struct slice){client->text != NULL ? client->text : "", client->shown};
}

bool lease_owner_is(const struct lease *lease, const struct lease_client *client)
{
    const struct lease_share *share;
    bool is = false;

    LIST_FOREACH(share, &lease->shares, of_lease)
    {
        is = is || share->client == client->id || share->owner == client->process || share->owner == client->named ||
             share->owner == client->fellows;
    }
    return is;
}

void lease_owner_schedule(struct lease_worker *worker, struct lease_owner *owner)
{
    struct lease_share *share;

    LIST_FOREACH(share, &owner->shares, of_owner)
    {
        lease_schedule(worker, share->lease);
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
    return owner->process.pid == 0 || worker->host->peer_lives(worker->host->context, &owner->process);
}

/* The last connection that was known of the owner has gone just now: if it is a process that lives, or a user, it may
 * have others. */
static void search_if_it_lives(struct lease_worker *worker, struct lease_owner *owner)
{
    bool may_have = owner->process.pid != 0 || owner->user != 0;

    if (may_have && owner->gone_us == lease_now(worker) && lease_owner_lives(worker, owner)) {
        owner->gone_us = 0;
        lease_registry_search(worker->registry, owner);
    }
}

/* A connection does not come back: what it has extended is its taker's alone. Whether it has taken something itself. */
static bool leave_to_takers(struct lease_worker *worker, struct lease_owner *owner)
{
    struct lease_share *share = LIST_FIRST(&owner->shares);

    while (share != NULL) {
        struct lease_share *next = LIST_NEXT(share, of_owner);
        struct lease *lease = share->lease;
        if (lease_taker(lease) != owner) {
            lease_registry_disown(worker->registry, share);
            lease_schedule(worker, lease);
        }
        share = next;
    }
    return !LIST_EMPTY(&owner->shares);
}

void lease_owner_leave(struct lease_worker *worker, struct lease_owner *owner)
{
    bool is_last = owner->connections == 1;
    bool stays = !is_last || !LIST_EMPTY(&owner->shares);

    if (is_last && owner->is_alone) {
        stays = leave_to_takers(worker, owner);
    }
    lease_registry_leave(worker->registry, owner, lease_now(worker));
    if (is_last && stays) {
        search_if_it_lives(worker, owner);
        lease_owner_schedule(worker, owner);
    }
}

/* The owner that is shown as both texts; the kind, which is behind that in its name, tells it from others. */
static struct lease_owner *join(struct lease_worker *worker, struct slice shown, const char *more, const char *kind,
                                uint64_t user)
{
    const struct policy_peer no_process = {.pid = 0};
    size_t length = shown.length + strlen(more), size = length + strlen(kind) + 1;
    char *text = malloc(size);
    struct lease_owner *owner = NULL;

    if (text != NULL) {
        snprintf(text, size, "%.*s%s%s", (int)shown.length, shown.data, more, kind);
        struct slice name = {text, size - 1};
        owner = lease_registry_join_process(worker->registry, name, length, &no_process, user);
    }
    free(text);
    return owner;
}

static struct lease_owner *join_alone(struct lease_worker *worker, const struct lease_client *client)
{
    char number[24];

    snprintf(number, sizeof number, "#%" PRIu64, client->id);
    struct lease_owner *owner = join(worker, lease_owner_shown(client), number, " #", 0);
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

/* Of what it may not have heard that it has taken, the connection alone shows that it has it. */
static enum lease_owner_kind kind_for(const struct lease_client *client, const struct lease *lease)
{
    return lease->sequence < client->unheard ? lease->terms.owner : LEASE_OWNER_CONNECTION;
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

/* Of those who have extended it, who was gone for longer than it takes to come back. */
static void forget_gone(struct lease_worker *worker, struct lease *lease)
{
    struct lease_share *share = LIST_FIRST(&lease->shares);

    share = share != NULL ? LIST_NEXT(share, of_lease) : NULL;
    while (share != NULL) {
        struct lease_share *next = LIST_NEXT(share, of_lease);
        int64_t gone_us = share->owner->gone_us;
        if (gone_us != 0 && gone_us + lease->terms.grace_us < lease_now(worker)) {
            lease_registry_disown(worker->registry, share);
        }
        share = next;
    }
}

void lease_owner_take(struct lease_worker *worker, struct lease_client *client, struct lease *lease)
{
    const struct lease_terms *terms = &lease->terms;

    if (terms->owner == LEASE_OWNER_CLIENT && client->named == NULL) {
        warn_once(worker, terms, LEASE_ONCE_CLIENT,
                  "owner = client, but a client without a name (CLIENT SETNAME) has taken a lock: such clients share "
                  "nothing, and each connection counts for itself; give them names, or set owner = process");
    }
    /* Others go on with a connection of a process that has ended: it was theirs, too. */
    bool has_ended = client->process != NULL && (client->process->ended || client->process->gone_us != 0);
    struct lease_owner *owner =
        choose_owner(worker, client, has_ended ? LEASE_OWNER_CONNECTION : kind_for(client, lease));
    forget_gone(worker, lease);
    struct lease_share *share = owner != NULL ? lease_own(lease, owner) : NULL;
    if (share != NULL) {
        share->client = client->id;
    }
}

bool lease_owner_is_ambiguous(struct lease_worker *worker, const struct lease *lease)
{
    const struct lease_key *key = lease->members[0].key;
    const struct lease_owner *taker = lease_taker(lease);
    char shown[LEASE_QUOTED_MAX], text[LEASE_QUOTED_MAX + 256];

    /* Of connections that count for themselves several may be of one program. */
    if (taker == NULL || taker->is_alone || taker->user != 0 ||
        !lease_registry_use_token(worker->registry, lease->token, taker)) {
        return false;
    }
    lease_quote(shown, (struct slice){key->name, key->length});
    snprintf(text, sizeof text,
             "%s has a value by which another owner has taken a lock, too: it does not tell whose a lock is, so that "
             "behind an outage it is not renewed, nor are all like it; let each process have one of its own",
             shown);
    warn_once(worker, &lease->terms, LEASE_ONCE_VALUE, text);
    return true;
}

/* Gives what the connection has taken, and this owner has, to whom it belongs to by now. */
static void settle_leases(struct lease_worker *worker, struct lease_client *client, struct lease_owner *from)
{
    struct lease_share *share = from != NULL ? LIST_FIRST(&from->shares) : NULL;

    while (share != NULL) {
        struct lease_share *next = LIST_NEXT(share, of_owner);
        struct lease *lease = share->lease;
        struct lease_owner *to =
            share->client == client->id ? choose_owner(worker, client, kind_for(client, lease)) : NULL;
        if (to != NULL && to != from) {
            lease_registry_hand_over(worker->registry, share, to);
            lease_schedule(worker, lease);
        }
        share = next;
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
    client->was_found = true;
    lease_owner_set_searching(worker, client, false);
    lease_owner_settle(worker, client, NULL);
}

void lease_owner_entrust(struct lease_worker *worker, struct lease_client *client)
{
    struct slice shown = {client->text, client->shown_user};

    lease_owner_adopt(worker, client, shown.data != NULL ? join(worker, shown, "/*", " *", client->user) : NULL);
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

    return lease_registry_join_process(worker->registry, (struct slice){text, (size_t)length}, (size_t)shown, peer, 0);
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
    struct lease_share *share = client->alone != NULL ? LIST_FIRST(&client->alone->shares) : NULL;

    client->is_relay = true;
    while (share != NULL) {
        struct lease_share *next = LIST_NEXT(share, of_owner);
        struct lease *lease = share->lease;
        bool is_only_one = LIST_FIRST(&lease->shares) == share && LIST_NEXT(share, of_lease) == NULL;
        if (lease->terms.owner == LEASE_OWNER_PROCESS && is_only_one) {
            lease_owner_decline(worker, terms);
            lease_end(worker, lease, LEASE_REASON_DROPPED);
        } else if (lease->terms.owner == LEASE_OWNER_PROCESS) {
            lease_registry_disown(worker->registry, share);
            lease_schedule(worker, lease);
        }
        share = next;
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
