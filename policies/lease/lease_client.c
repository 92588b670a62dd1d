/* Connections that come and go, as far as leases are concerned. */
#include "base/fnv.h"
#include "lease/lease_private.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a Headgate calls the connections to its Redis that its clients share (upstream_profile.c). */
#define SHARED_BY_CLIENTS "headgate"
/* Who was reset so long behind an answer has read it. */
#define READS_WITHIN_US INT64_C(10000000)

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

/* "address/user/name", and behind a blank how long the user's name is, as either may hold slashes. No user and no name
 * holds a blank. */
static void describe(struct lease_client *client, const struct policy_client *from)
{
    char address[INET6_ADDRSTRLEN];

    write_address(from->address, address, sizeof address);
    size_t user = strlen(from->user), size = strlen(address) + user + strlen(from->name) + 24;
    free(client->text);
    client->text = malloc(size);
    client->shown = 0;
    client->user = 0;
    if (client->text != NULL) {
        client->shown = (size_t)snprintf(client->text, size, "%s/%s/%s", address, from->user, from->name);
        client->shown_user = strlen(address) + 1 + user;
        client->user = fnv(client->text, client->shown_user) >> 1; /* as twins read it */
        snprintf(client->text + client->shown, size - client->shown, " %zu", user);
    }
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
        client->unheard = UINT64_MAX;
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
    describe(client, from);
    client->tested[1] = 0;
    client->is_shared = strcmp(from->name, SHARED_BY_CLIENTS) == 0;
    bool has_name = *from->name != '\0' && client->text != NULL && terms_with(worker, LEASE_OWNER_CLIENT) != NULL;
    struct lease_owner *before = client->named, *fellows = client->fellows;
    bool is_owner = has_name || before != NULL || client->process != NULL || client->alone != NULL;
    if (!is_owner && fellows == NULL) {
        return;
    }
    lease_registry_lock(worker->registry);
    client->named =
        has_name
            ? lease_owner_welcome(worker, lease_registry_join(worker->registry, slice_of(client->text), client->shown))
            : NULL;
    lease_owner_settle(worker, client, before);
    if (before != NULL) {
        lease_owner_leave(worker, before);
    }
    client->fellows = NULL;
    if (fellows != NULL) {
        lease_owner_leave(worker, fellows);
    }
    lease_registry_unlock(worker->registry);
    /* It may have taken locks before there was a rule that wants its process. */
    if (is_owner && terms_with(worker, LEASE_OWNER_PROCESS) != NULL) {
        lease_owner_identify(worker, client, terms_with(worker, LEASE_OWNER_PROCESS));
    }
}

void lease_client_leave(struct lease_worker *worker, struct lease_client *client, const struct policy_client *from)
{
    bool is_last = from->active_us <= client->granted_us && client->granted < client->unheard;
    bool is_unheard = from->is_broken && is_last && lease_now(worker) - client->granted_us < READS_WITHIN_US;

    lease_request_forget(worker, client);
    lease_guard_end(worker, client, UINT64_MAX);
    client->unheard = is_unheard ? client->granted : client->unheard;
    lease_registry_lock(worker->registry);
    if (client->searching && !client->was_found) {
        lease_owner_entrust(worker, client);
    } else if (is_unheard) {
        lease_owner_settle(worker, client, NULL);
    }
    lease_owner_set_searching(worker, client, false);
    struct lease_owner *const owners[] = {client->named, client->process, client->alone, client->fellows};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        if (owners[i] != NULL) {
            lease_owner_leave(worker, owners[i]);
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
            lease_owner_identify(worker, client, terms);
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
