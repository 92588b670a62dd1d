/* Who is at the other end of a client's connection, for policies. It is looked up when one of them asks, and kept. */
#include "client/client_host_private.h"

#include "net/peer_process.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct client_peer {
    struct peer peer;
    struct peer_process process; /* pid 0: not found (yet) */
    const char *why;             /* what cannot be told cannot for this reason */
    bool has_peer;
    bool settled; /* no more can be told */
};

static const char out_of_memory[] = "memory is short";
static const char passed_on[] = "a proxy has passed it on";

/* What is known of the client; NULL when memory is short. */
static struct client_peer *know(struct client *client)
{
    if (client->peer == NULL) {
        client->peer = calloc(1, sizeof *client->peer);
        if (client->peer != NULL) {
            struct client_peer *known = client->peer;
            known->why = passed_on;
            known->has_peer = !client->is_proxied && peer_find(client->connection.fd, &known->peer, &known->why);
            known->peer.connected_us = client->accepted_us;
            known->settled = !known->has_peer;
        }
    }
    return client->peer;
}

static struct peer_finder *finder_of(struct client_service *service)
{
    if (service->peer_finder == NULL) {
        service->peer_finder = peer_finder_new();
    }
    return service->peer_finder;
}

static void find_process(struct client_service *service, struct client_peer *known)
{
    struct peer_finder *finder = finder_of(service);

    known->settled =
        finder == NULL || peer_finder_find(finder, &known->peer, &known->process, &known->why) != PEER_LATER;
}

enum policy_peer_search client_find_peer(void *context, void *connection, bool process, struct policy_peer *peer)
{
    struct client_peer *known = know(connection);

    if (known == NULL) {
        *peer = (struct policy_peer){.why = out_of_memory};
        return POLICY_PEER_TOLD;
    }
    if (process && !known->settled) {
        find_process(context, known);
    }
    *peer = (struct policy_peer){
        .has_uid = known->has_peer,
        .uid = known->peer.uid,
        .pid = known->process.pid,
        .started = known->process.started,
        .is_headgate = known->process.is_headgate,
        .why = known->why != NULL ? known->why : out_of_memory,
    };
    return process && !known->settled ? POLICY_PEER_LATER : POLICY_PEER_TOLD;
}

void client_forget_peer(void *context, void *connection)
{
    const struct client *client = connection;
    struct client_peer *known = client->peer;

    (void)context;
    if (known != NULL && known->has_peer) {
        known->process = (struct peer_process){0};
        known->settled = false;
    }
}

static struct peer_process process_of(const struct policy_peer *peer)
{
    return (struct peer_process){.pid = (pid_t)peer->pid, .started = peer->started};
}

bool client_peer_lives(void *context, const struct policy_peer *peer)
{
    struct peer_process process = process_of(peer);

    (void)context;
    return peer_process_lives(&process);
}

bool client_look_at_peer(void *context, const struct policy_peer *peer)
{
    struct peer_finder *finder = finder_of(context);
    struct peer_process process = process_of(peer);

    return finder != NULL && peer_finder_gather(finder, &process);
}

enum policy_peer_search client_peer_has(void *context, void *connection, bool *has)
{
    const struct client_service *service = context;
    struct client *client = connection;

    *has = false;
    if (service->peer_finder == NULL) {
        return POLICY_PEER_TOLD;
    }
    if (!peer_finder_reaches(service->peer_finder, client->accepted_us)) {
        return POLICY_PEER_LATER;
    }
    const struct client_peer *known = know(client);
    *has = known != NULL && known->has_peer && peer_finder_has(service->peer_finder, &known->peer);
    return POLICY_PEER_TOLD;
}

void client_name_host(struct client_service *service, const char *name)
{
    snprintf(service->host_name, sizeof service->host_name, "%s", name != NULL ? name : "");
    if (*service->host_name == '\0' && gethostname(service->host_name, sizeof service->host_name - 1) != 0) {
        snprintf(service->host_name, sizeof service->host_name, "unknown");
    }
}
