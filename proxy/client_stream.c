/*
 * Requests that are too long to be held. They go to an exclusive lane as they come (client->streaming), and are put to
 * the policies when their beginning is there. Those that are refused are thrown away as they come (client->discarding).
 */
#include "client_private.h"

#include <string.h>

/* The command whose name has been read, if any. */
static const struct command *command_so_far(const struct client *client, const char *frame)
{
    const struct resp_argument *name = &client->command.arguments[0];

    if (resp_command_arguments_seen(&client->command) == 0) {
        return NULL;
    }
    return command_find((struct slice){frame + name->offset, (size_t)name->length});
}

/* What Redis refuses by the header alone from a client that has not authenticated: it has to see the header at once. */
static bool is_too_long_without_password(const struct client *client)
{
    return client->profile->needs_password &&
           (client->command.argument_count > 10 || client->command.payload_left > (uint64_t)16 * 1024);
}

bool client_is_long(const struct client *client)
{
    uint64_t limit = client->service->settings.cut_through;

    return !resp_command_is_inline(&client->command) &&
           (client->command.size > limit || client->command.payload_left > limit ||
            is_too_long_without_password(client));
}

/* Whether the session has to understand the command, or a policy may say something else in its place. */
static bool has_to_be_whole(const struct client *client, const struct command *command)
{
    struct slice name = {command->name, strlen(command->name)};

    if (chain_interest(client->service->chain, command)->translator != 0) {
        return learn_server_has(client->service->learn, name) != LEARN_HAS;
    }
    return command->kind != COMMAND_ORDINARY && command->kind != COMMAND_EVAL;
}

bool client_begin_stream(struct client *client, const char *frame)
{
    const struct command *command = command_so_far(client, frame);
    struct slice bytes = {frame, (size_t)client->command.size};
    struct session_plan plan = {.answer = SESSION_FORWARD, .exclusive = true};
    enum client_outcome outcome;

    if (command != NULL && has_to_be_whole(client, command)) {
        if (client->command.size > client->service->settings.max_request) {
            client_end(client, "a request of that kind cannot be so long");
        }
        return false;
    }
    if (!client_admit(client, command, &client->command, bytes, &outcome)) {
        /* If it was refused, the rest of it is thrown away as it comes. */
        client->discarding = outcome == CLIENT_TAKEN && client->state == CLIENT_OPEN;
        client->streaming = client->discarding;
        stats_add(client->service->reactor->stats, STATS_REQUESTS, client->discarding ? 1 : 0);
        return client->streaming;
    }
    struct lane *lane;
    if (!client_choose_lane(client, &plan, &lane)) {
        return false;
    }
    if (lane->state != LANE_READY) {
        return client_wait_for(client, CLIENT_WAIT_LANE);
    }
    if (command == NULL && !client->session.tunnel) {
        plan.observation = observation_take(client->service, OBSERVE_UNKNOWN);
    }
    client->streaming = client_forward(client, lane, bytes, &plan);
    stats_add(client->service->reactor->stats, STATS_REQUESTS, 1);
    client->admitted = false;
    return client->streaming;
}

size_t client_continue_stream(struct client *client, const char *data, size_t length)
{
    struct lane *lane = client->exclusive;
    size_t taken;
    enum resp_status status =
        resp_command_feed(&client->command, data, length, client->service->settings.max_request, &taken);

    if (status == RESP_FAULT) {
        /* Redis has a part of it and would take what comes next for the rest: only closing is safe. */
        if (!client->discarding) {
            lane_fail(lane, "the client broke off a request");
        }
        client_protocol_error(client);
        return length;
    }
    if (!client->discarding && !lane_send_silent(lane, data, taken)) {
        client_out_of_memory(client);
        return length;
    }
    if (status == RESP_DONE) {
        client->streaming = false;
        client->discarding = false;
        resp_command_reset(&client->command);
    } else if (!client->discarding && lane_is_congested(lane)) {
        (void)client_wait_for(client, CLIENT_WAIT_LANE);
    }
    return taken;
}
