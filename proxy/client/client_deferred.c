/*
 * What a client says in a transaction before its first key. Its node is not known yet: the request is answered here as
 * Redis would (QUEUED), and said behind MULTI when the node is. If Redis does not take it after all, EXEC says so.
 */
#include "client/client_cluster_private.h"

#include <stdlib.h>
#include <string.h>

/* Of one transaction, in bytes. What comes behind so much is sent to the home node, and decides where it is. */
#define REQUESTS_MAX ((size_t)64 * 1024)

struct client_deferred {
    size_t used;
    char bytes[REQUESTS_MAX];
};

/* Redis would refuse it at once, and say why. */
static bool has_arity(const struct command *command, const struct resp_command *framed)
{
    int64_t count = framed->argument_count;

    return command->arity >= 0 ? count == command->arity : count >= -command->arity;
}

bool client_defer_request(struct client *client, const struct command *command, const struct request *request,
                          const struct session_route *route)
{
    struct slice bytes = request->sent;
    size_t used = client->deferred != NULL ? client->deferred->used : 0;

    if (!client->session.deferred || client->session.spoiled || command->kind != COMMAND_ORDINARY ||
        route->expected != NULL || request->interest->translator != 0 || client->streaming ||
        bytes.length > REQUESTS_MAX - used || !has_arity(command, request->framed)) {
        return false;
    }
    if (client->deferred == NULL) {
        client->deferred = malloc(sizeof *client->deferred);
        if (client->deferred == NULL) {
            return false;
        }
        client->deferred->used = 0;
    }
    memcpy(client->deferred->bytes + used, bytes.data, bytes.length);
    client->deferred->used += bytes.length;
    return true;
}

bool client_send_deferred(struct client *client)
{
    struct client_deferred *deferred = client->deferred;
    size_t at = 0;
    bool sent = true;

    while (deferred != NULL && sent && at < deferred->used) {
        struct resp_command command = {0};
        size_t taken = 0;
        (void)resp_command_feed(&command, deferred->bytes + at, deferred->used - at, UINT64_MAX, &taken);
        sent = upstream_send_hidden(client->exclusive, deferred->bytes + at, taken, false);
        at += taken;
    }
    client_forget_deferred(client);
    return sent;
}

void client_forget_deferred(struct client *client)
{
    free(client->deferred);
    client->deferred = NULL;
}
