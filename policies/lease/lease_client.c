/* Whose connections show that a holder lives. */
#include "lease/lease_private.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The address without its port: "10.0.0.1", "::1", "unix". */
static void write_address(const struct sockaddr_storage *from, char *text, size_t size)
{
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)from;

    snprintf(text, size, "unix");
    if (from->ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &ipv4->sin_addr, text, (socklen_t)size);
    } else if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&ipv6->sin6_addr)) {
        (void)inet_ntop(AF_INET, ipv6->sin6_addr.s6_addr + 12, text, (socklen_t)size);
    } else if (from->ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &ipv6->sin6_addr, text, (socklen_t)size);
    }
}

/* "address/user/name". No user and no name holds a blank. */
static char *describe(const struct policy_client *client)
{
    char address[INET6_ADDRSTRLEN];

    write_address(client->address, address, sizeof address);
    size_t size = strlen(address) + strlen(client->user) + strlen(client->name) + 3;
    char *text = malloc(size);
    if (text != NULL) {
        snprintf(text, size, "%s/%s/%s", address, client->user, client->name);
    }
    return text;
}

/* Cuts what does not fit: such clients are one. */
static struct slice name_of(const struct lease_client *client)
{
    const char *text = client->text != NULL ? client->text : "";
    size_t length = strlen(text);

    return (struct slice){text, length < LEASE_OWNER_MAX ? length : LEASE_OWNER_MAX};
}

static void schedule_all(struct lease_worker *worker, struct lease_owner *owner)
{
    struct lease *lease;

    LIST_FOREACH(lease, &owner->leases, of_owner)
    {
        lease_schedule(worker, lease);
    }
}

/* ---- joining and leaving ---- */

/* An owner, or NULL when memory is short, has one connection more: it may have come back in time. */
static struct lease_owner *welcome(struct lease_worker *worker, struct lease_owner *owner)
{
    if (owner != NULL && owner->connections == 1) {
        schedule_all(worker, owner);
    }
    return owner;
}

static void leave(struct lease_worker *worker, struct lease_owner *owner)
{
    bool is_last = owner->connections == 1;
    bool stays = !is_last || !LIST_EMPTY(&owner->leases);

    lease_registry_leave(worker->registry, owner, lease_now(worker));
    if (is_last && stays) {
        lease_process_left(worker, owner);
        schedule_all(worker, owner);
    }
}

void lease_client_part(struct lease_worker *worker, struct lease_owner *owner)
{
    leave(worker, owner);
}

static struct lease_owner *join_alone(struct lease_worker *worker, const struct lease_client *client)
{
    char text[LEASE_OWNER_MAX + 32];
    struct slice name = name_of(client);
    int length = snprintf(text, sizeof text, "%.*s#%" PRIu64, (int)name.length, name.data, client->id);

    struct lease_owner *owner = lease_registry_join(worker->registry, (struct slice){text, (size_t)length});
    if (owner != NULL) {
        owner->is_alone = true;
    }
    return owner;
}

/* ---- whose a lease is ---- */

static void warn_once(struct lease_worker *worker, const struct lease_terms *terms, enum lease_owner_kind kind,
                      const char *text)
{
    if (lease_registry_is_first(worker->registry, kind)) {
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

struct lease_owner *lease_client_owner(struct lease_worker *worker, struct lease_client *client,
                                       const struct lease_terms *terms)
{
    if (terms->owner == LEASE_OWNER_CLIENT && client->named == NULL) {
        warn_once(worker, terms, LEASE_OWNER_CLIENT,
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

/* from: an owner that the client had until now, or NULL. */
static void settle(struct lease_worker *worker, struct lease_client *client, struct lease_owner *from)
{
    settle_leases(worker, client, from);
    settle_leases(worker, client, client->named);
    settle_leases(worker, client, client->process);
    settle_leases(worker, client, client->alone);
}

static void set_searching(struct lease_worker *worker, struct lease_client *client, bool searching)
{
    worker->searching += searching;
    worker->searching -= client->searching;
    client->searching = searching;
}

void lease_client_adopt(struct lease_worker *worker, struct lease_client *client, struct lease_owner *process)
{
    client->process = welcome(worker, process);
    set_searching(worker, client, false);
    settle(worker, client, NULL);
}

void lease_client_forsake(struct lease_worker *worker, struct lease_client *client)
{
    struct lease_owner *before = client->process;

    client->process = NULL;
    settle(worker, client, before);
    leave(worker, before);
    worker->host->forget_peer(worker->host->context, client->connection);
    set_searching(worker, client, true);
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
    warn_once(worker, terms, LEASE_OWNER_PROCESS, text);
}

void lease_client_identify(struct lease_worker *worker, struct lease_client *client, const struct lease_terms *terms)
{
    const struct policy_host *host = worker->host;
    struct policy_peer peer;

    if (terms->owner != LEASE_OWNER_PROCESS || client->process != NULL || client->untold) {
        return;
    }
    bool told = host->find_peer(host->context, client->connection, true, &peer) == POLICY_PEER_TOLD;
    set_searching(worker, client, !told);
    if (!told) {
        return;
    }
    lease_registry_lock(worker->registry);
    if (peer.pid != 0) {
        lease_client_adopt(worker, client, join_process(worker, &peer));
    } else {
        client->untold = true;
        warn_of_untold(worker, terms, peer.why);
    }
    lease_registry_unlock(worker->registry);
}

/* The terms of the first rule with such owners, or NULL. */
static const struct lease_terms *terms_with(const struct lease_worker *worker, enum lease_owner_kind kind)
{
    for (size_t i = 0; i < worker->rule_count; i++) {
        if (worker->rules[i].terms.owner == kind) {
            return &worker->rules[i].terms;
        }
    }
    return NULL;
}

static struct lease_client *make_client(struct lease_worker *worker, const struct policy_client *from)
{
    struct lease_client *client = calloc(1, sizeof *client);

    if (client != NULL) {
        client->id = from->id;
        client->connection = from->connection;
        LIST_INIT(&client->guards);
        LIST_INSERT_HEAD(&worker->clients, client, of_worker);
    }
    return client;
}

void lease_client_join(struct lease_worker *worker, const struct policy_client *from, void **attachment)
{
    struct lease_client *client = *attachment;

    if (client == NULL) {
        if (worker->rule_count == 0) {
            return;
        }
        client = make_client(worker, from);
        *attachment = client;
    }
    if (client == NULL) {
        return;
    }
    free(client->text);
    client->text = describe(from);
    bool has_name = *from->name != '\0' && client->text != NULL && terms_with(worker, LEASE_OWNER_CLIENT) != NULL;
    struct lease_owner *before = client->named;
    if (!has_name && before == NULL && client->process == NULL && client->alone == NULL) {
        return;
    }
    lease_registry_lock(worker->registry);
    client->named = has_name ? welcome(worker, lease_registry_join(worker->registry, name_of(client))) : NULL;
    settle(worker, client, before);
    if (before != NULL) {
        leave(worker, before);
    }
    lease_registry_unlock(worker->registry);
    /* It may have taken locks before there was a rule that wants its process. */
    if (terms_with(worker, LEASE_OWNER_PROCESS) != NULL) {
        lease_client_identify(worker, client, terms_with(worker, LEASE_OWNER_PROCESS));
    }
}

void lease_client_leave(struct lease_worker *worker, struct lease_client *client)
{
    struct lease_owner *const owners[] = {client->named, client->process, client->alone};

    lease_request_forget(client);
    lease_confirm_leave(worker, client);
    set_searching(worker, client, false);
    lease_registry_lock(worker->registry);
    lease_guard_end(worker, client, UINT64_MAX);
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        if (owners[i] != NULL) {
            leave(worker, owners[i]);
        }
    }
    lease_registry_unlock(worker->registry);
    LIST_REMOVE(client, of_worker);
    free(client->text);
    free(client);
}

/* ---- what takes longer ---- */

static void look_on(struct lease_worker *worker)
{
    const struct lease_terms *terms = terms_with(worker, LEASE_OWNER_PROCESS);
    struct lease_client *client;

    LIST_FOREACH(client, &worker->clients, of_worker)
    {
        if (client->searching && terms != NULL) {
            lease_client_identify(worker, client, terms);
        }
    }
}

void lease_client_tick(struct lease_worker *worker)
{
    if (worker->searching > 0) {
        look_on(worker);
    }
    lease_process_tick(worker);
}
