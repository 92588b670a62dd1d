/*
 * Which command a name stands for. One that neither the table nor what Redis has told knows is asked about when a
 * client uses it first, and the request waits for the answer: Redis may have renamed a command (rename-command), and
 * CLIENT REPLY, SUBSCRIBE or AUTH under another name must be known for what they are.
 */
#include "client/client_private.h"

#include "resp/word.h"

#include <stdlib.h>

/* An admin query under way; its client may be gone when it is answered. */
struct lookup {
    struct client_service *service;
    uint64_t client;
};

static struct client *find_client(const struct client_service *service, uint64_t id)
{
    struct client *client = LIST_FIRST(&service->clients);

    while (client != NULL && client->id != id) {
        client = LIST_NEXT(client, of_service);
    }
    return client;
}

static void looked_up(void *context, enum server_info_lookup found)
{
    static const enum client_lookup results[] = {
        [SERVER_INFO_LOOKUP_FOUND] = CLIENT_LOOKUP_FOUND,
        [SERVER_INFO_LOOKUP_ABSENT] = CLIENT_LOOKUP_ABSENT,
        [SERVER_INFO_LOOKUP_UNSAID] = CLIENT_LOOKUP_UNSAID,
    };
    struct lookup *lookup = context;
    struct client *client = find_client(lookup->service, lookup->client);

    if (client != NULL && client->lookup == CLIENT_LOOKUP_UNDER_WAY) {
        client->lookup = results[found];
        if (client_wait_is_over(client, CLIENT_WAIT_NAME)) {
            client_want_flush(client);
        }
    }
    free(lookup);
}

/* "client|reply" is a name to COMMAND INFO, and none of a command. */
static bool may_be_asked_about(struct slice name)
{
    return name.length > 0 && name.length <= SERVER_INFO_NAME_MAX && !word_has_nul(name) &&
           memchr(name.data, '|', name.length) == NULL;
}

/* Whether the answer is here already. */
static bool look_up(struct client *client, struct slice name)
{
    struct lookup *lookup = malloc(sizeof *lookup);

    if (lookup == NULL) {
        client->lookup = CLIENT_LOOKUP_UNSAID;
        return true;
    }
    *lookup = (struct lookup){.service = client->service, .client = client->id};
    client->lookup = CLIENT_LOOKUP_UNDER_WAY;
    server_info_look_up(client->service->server_info, client->profile, name, looked_up, lookup);
    return client->lookup != CLIENT_LOOKUP_UNDER_WAY;
}

bool client_find_command(struct client *client, struct slice name, const struct command **command)
{
    struct server_info *server_info = client->service->server_info;

    *command = command_find(name);
    if (*command == NULL) {
        *command = server_info_renamed(server_info, name);
    }
    if (*command == NULL && client->lookup == CLIENT_LOOKUP_UNDER_WAY) {
        /* It had to wait for something else meanwhile. */
        return client_wait_for(client, CLIENT_WAIT_NAME);
    }
    if (*command != NULL || client->lookup != CLIENT_LOOKUP_NONE || server_info_find(server_info, name) != NULL ||
        !may_be_asked_about(name) || look_up(client, name)) {
        *command = *command != NULL ? *command : server_info_renamed(server_info, name);
        return true;
    }
    return client_wait_for(client, CLIENT_WAIT_NAME);
}
