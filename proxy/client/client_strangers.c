/* What Redis reads of clients that have not authenticated, where it wants that: short requests only. */
#include "client/client_private.h"

/* What Redis reads of a client that has not authenticated (networking.c, processMultibulkBuffer). */
#define STRANGER_ARGUMENTS 10
#define STRANGER_ARGUMENT ((uint64_t)16 * 1024)
/* No request within that is as long, with the lines of its lengths. */
#define STRANGER_REQUEST (STRANGER_ARGUMENTS * (STRANGER_ARGUMENT + 64) + 64)

enum resp_command_fault client_strangers_fault(const struct client *client)
{
    const struct resp_command *command = &client->command;

    if (!client->profile->needs_password || resp_command_is_inline(command)) {
        return RESP_COMMAND_SOUND;
    }
    if (command->argument_count > STRANGER_ARGUMENTS) {
        return RESP_COMMAND_STRANGERS_COUNT;
    }
    return resp_command_argument_length(command) > STRANGER_ARGUMENT || command->size > STRANGER_REQUEST
               ? RESP_COMMAND_STRANGERS_LENGTH
               : RESP_COMMAND_SOUND;
}

bool client_is_beyond_strangers(const struct client *client, const struct resp_command *framed, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    bool beyond = framed->argument_count > STRANGER_ARGUMENTS;

    while (!beyond && resp_walk_next(&walk, &argument)) {
        beyond = argument.length > STRANGER_ARGUMENT;
    }
    return beyond && client->profile->needs_password;
}
