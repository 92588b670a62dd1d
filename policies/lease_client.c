/* Whose connections show that a holder lives. */
#include "lease_private.h"

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

/* Cuts what does not fit: such clients are one. No user and no name holds a blank. */
static struct slice name_client(const struct policy_client *client, char text[LEASE_OWNER_MAX])
{
    char address[INET6_ADDRSTRLEN];

    write_address(client->address, address, sizeof address);
    int length = snprintf(text, LEASE_OWNER_MAX, "%s/%s/%s", address, client->user, client->name);
    return (struct slice){text, length < LEASE_OWNER_MAX ? (size_t)length : LEASE_OWNER_MAX - 1};
}

static void schedule_all(struct lease_worker *worker, struct lease_owner *owner)
{
    struct lease *lease;

    LIST_FOREACH(lease, &owner->leases, of_owner)
    {
        lease_schedule(worker, lease);
    }
}

static struct lease_owner *join(struct lease_worker *worker, struct slice name)
{
    struct lease_owner *owner = lease_registry_join(worker->registry, name);

    if (owner != NULL && owner->connections == 1) {
        /* It may have come back in time. */
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
        schedule_all(worker, owner);
    }
}

/* What a connection took under another name goes with it. */
static void take_along(struct lease_worker *worker, const struct lease_client *client, struct lease_owner *from,
                       struct lease_owner *to)
{
    struct lease *lease = LIST_FIRST(&from->leases);

    while (lease != NULL) {
        struct lease *next = LIST_NEXT(lease, of_owner);
        if (lease->client == client->id) {
            lease_registry_own(worker->registry, lease, to);
        }
        lease = next;
    }
}

static struct lease_client *make_client(struct lease_worker *worker, const struct policy_client *from)
{
    struct lease_client *client = calloc(1, sizeof *client);

    if (client != NULL) {
        client->id = from->id;
        LIST_INIT(&client->guards);
        LIST_INSERT_HEAD(&worker->clients, client, of_worker);
    }
    return client;
}

void lease_client_join(struct lease_worker *worker, const struct policy_client *from, void **attachment)
{
    struct lease_client *client = *attachment;
    char text[LEASE_OWNER_MAX];

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
    lease_registry_lock(worker->registry);
    struct lease_owner *owner = join(worker, name_client(from, text));
    struct lease_owner *before = client->client_owner;
    if (owner != NULL) {
        if (before != NULL && before != owner) {
            take_along(worker, client, before, owner);
        }
        client->client_owner = owner;
        if (before != NULL) {
            leave(worker, before);
        }
    }
    lease_registry_unlock(worker->registry);
}

void lease_client_leave(struct lease_worker *worker, struct lease_client *client)
{
    lease_request_forget(client);
    lease_registry_lock(worker->registry);
    lease_guard_end(worker, client, UINT64_MAX);
    if (client->client_owner != NULL) {
        leave(worker, client->client_owner);
    }
    if (client->connection_owner != NULL) {
        leave(worker, client->connection_owner);
    }
    lease_registry_unlock(worker->registry);
    LIST_REMOVE(client, of_worker);
    free(client);
}

struct lease_owner *lease_client_owner(struct lease_worker *worker, struct lease_client *client,
                                       enum lease_owner_kind kind)
{
    char text[LEASE_OWNER_MAX + 32];

    if (kind == LEASE_OWNER_CLIENT) {
        return client->client_owner;
    }
    if (client->connection_owner == NULL) {
        int end = client->client_owner != NULL ? (int)client->client_owner->length : 0;
        const char *name = client->client_owner != NULL ? client->client_owner->name : "";
        int length = snprintf(text, sizeof text, "%.*s#%" PRIu64, end, name, client->id);
        client->connection_owner = lease_registry_join(worker->registry, (struct slice){text, (size_t)length});
    }
    return client->connection_owner;
}
