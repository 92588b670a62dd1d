/*
 * Requests that are too long to be held. They go to an exclusive lane as they come (client->streaming), and are put to
 * the policies when their beginning is there. Those that are refused are thrown away as they come (client->discarding);
 * those of which the policies have to see more are kept until they have (client->gathering), or have come whole.
 */
#include "client/client_private.h"

#include <string.h>

/* The command whose name has been read, if any. False: the client waits for Redis to tell. */
static bool find_command_so_far(struct client *client, const char *frame, const struct command **command)
{
    const struct resp_argument *name = &client->command.arguments[0];

    *command = NULL;
    return resp_command_arguments_seen(&client->command) == 0 ||
           client_find_command(client, (struct slice){frame + name->offset, (size_t)name->length}, command);
}

bool client_is_long(const struct client *client)
{
    uint64_t limit = client->service->settings.cut_through;

    return !resp_command_is_inline(&client->command) &&
           (client->command.size > limit || client->command.payload_left > limit ||
            client_strangers_fault(client) != RESP_COMMAND_SOUND);
}

bool client_has_beginning_to_refuse(const struct client *client)
{
    return client->state == CLIENT_OPEN && !client->streaming && client_strangers_fault(client) != RESP_COMMAND_SOUND;
}

/* Whether what Headgate knows of the client's authentication is all there is to know. */
static bool is_followed(const struct client *client)
{
    const struct session *session = &client->session;

    return !session->passthrough && !session->pinned && !session->unsure;
}

/* Refuses it as Redis does, so that nothing of it has to be held; what went before may have been an AUTH. Always false:
 * the client waits, or is told and closed. */
static bool refuse_stranger(struct client *client, enum resp_command_fault fault)
{
    if (client->sent_runs > 0) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    client->command.fault = fault;
    client_protocol_error(client);
    return false;
}

/* Whether the session has to understand the command, or a policy may say something else in its place. */
static bool has_to_be_whole(const struct client *client, const struct command *command)
{
    struct slice name = slice_of(command->name);

    if (client_interest(client->service, command)->translator != 0) {
        return server_info_server_has(client->service->server_info, name) != SERVER_INFO_HAS;
    }
    return command->kind != COMMAND_ORDINARY && command->kind != COMMAND_EVAL;
}

/* Keeps what came of the request, and takes more of it if it does not wait for anything else: within reason. Always
 * false: none of it is taken yet. */
static bool keep(struct client *client)
{
    if (client->wait == CLIENT_WAIT_NOTHING && client->command.size > client->service->settings.max_request) {
        client_end(client, "a request that has to be held whole is longer than max_request");
    }
    return false;
}

/* Whether the policies, who want to know more of the request, are not asked yet: not with each piece, as they may look
 * at all that has come. */
static bool is_little_new(const struct client *client)
{
    uint64_t size;
    bool is_all = resp_command_foresee(&client->command, &size);

    return client->gathering && (client->foreseen == size || (!is_all && size < 2 * client->foreseen));
}

/* It was answered: the rest of it is thrown away as it comes. False: the client was closed. */
static bool begin_discarding(struct client *client)
{
    client->admitted = false;
    client->gathering = false;
    client->lookup = CLIENT_LOOKUP_NONE;
    client_note_end(client);
    client->discarding = client->state == CLIENT_OPEN;
    client->streaming = client->discarding;
    stats_add(client->service->reactor->stats, STATS_REQUESTS, client->discarding ? 1 : 0);
    return client->streaming;
}

/* What the reply will tell of the session. False when memory is short. */
static bool expect_reply(struct client *client, const struct command *command, struct session_route *route)
{
    bool is_script = command != NULL && command->kind == COMMAND_EVAL;

    if ((command != NULL && !is_script) || client->session.passthrough) {
        return true;
    }
    route->expected = expected_reply_take(client->service, is_script ? EXPECT_SCRIPT : EXPECT_UNKNOWN);
    if (route->expected != NULL && !is_script) {
        route->expected->is_absent = client->lookup == CLIENT_LOOKUP_ABSENT;
    }
    return route->expected != NULL;
}

/* Whether the rest is to follow. */
static bool send_beginning(struct client *client, struct lane *lane, struct request *request,
                           struct session_route *route)
{
    uint32_t in_flight = client->in_flight;

    client->streaming = client_forward(client, lane, request, route);
    client_check_room(client);
    client->stream_measured = client->in_flight > in_flight && client->last->spans != NULL;
    client_note_end(client);
    stats_add(client->service->reactor->stats, STATS_REQUESTS, 1);
    client->admitted = false;
    client->gathering = false;
    client->lookup = CLIENT_LOOKUP_NONE;
    return client->streaming;
}

bool client_begin_stream(struct client *client, struct client_batch *batch, const char *frame)
{
    struct slice bytes = {frame, (size_t)client->command.size};
    struct request request = {.batch = batch, .framed = &client->command, .frame = bytes, .sent = bytes};
    struct session_route route = {.answer = SESSION_FORWARD, .exclusive = true};
    enum resp_command_fault strangers = client_strangers_fault(client);
    bool may_keep = strangers == RESP_COMMAND_SOUND;
    enum client_outcome outcome;

    if (!may_keep && is_followed(client)) {
        return refuse_stranger(client, strangers);
    }
    if (client_waits_to_pass(client) || !find_command_so_far(client, frame, &request.command)) {
        return false;
    }
    const struct command *command = request.command;
    request.interest = client_interest(client->service, command);
    bool has_name = client_name_is_there(&client->command, bytes);
    /* In a cluster its keys say where it goes, and it may have to be sent again. */
    bool wants_whole = (command != NULL && has_to_be_whole(client, command)) || client->service->cluster != NULL;
    if (may_keep && (wants_whole || !has_name || is_little_new(client))) {
        return keep(client);
    }
    /* Redis will refuse it, most likely. If not, nobody knows what it has done. */
    route.passthrough = wants_whole;
    route.unsure =
        wants_whole || (client->session.passthrough && command == NULL && client->lookup != CLIENT_LOOKUP_ABSENT);
    if (client->service->reactor->measures) {
        client_note(client, &request);
    }
    if (!client_admit(client, &request, &outcome)) {
        if (outcome == CLIENT_TAKEN) {
            return begin_discarding(client);
        }
        if (!may_keep && client->wait == CLIENT_WAIT_NOTHING) {
            /* Redis refuses that by its beginning, unless an AUTH that nobody has seen let it in. */
            client_end(client, "policies have to see more of a request than is held for who has not authenticated");
            return false;
        }
        return keep(client);
    }
    if (client_name_is_hidden(command, &client->command, bytes)) {
        client_refuse_name(client, command, &client->command, bytes);
        return begin_discarding(client);
    }
    struct lane *lane;
    if (session_is_doubtful(client)) {
        client_end(client, SESSION_DOUBTFUL);
        return false;
    }
    if (!client_choose_lane(client, &route, &lane)) {
        return false;
    }
    if (lane->state != LANE_READY) {
        return client_wait_for_lane(client, lane);
    }
    if (!expect_reply(client, command, &route)) {
        return client_out_of_memory(client);
    }
    return send_beginning(client, lane, &request, &route);
}

void client_give_up_stream(struct client *client)
{
    (void)client_wait_is_over(client, CLIENT_WAIT_LANE);
    client_answer_unreachable(client, client->exclusive);
    if (begin_discarding(client)) {
        /* More may have come behind what was looked at. */
        client_input_passed(client, (size_t)client->command.size);
        buffer_consume(&client->service->reactor->buffers, &client->input, (size_t)client->command.size);
        client_want_flush(client);
    }
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
        resp_command_reset(&client->command);
        return length;
    }
    if (!client->discarding && !lane_send_silent(lane, data, taken)) {
        client_out_of_memory(client);
        return length;
    }
    if (status == RESP_DONE) {
        if (!client->discarding) {
            client_measure_grown(client, client->command.size);
        }
        client->streaming = false;
        client->discarding = false;
        resp_command_reset(&client->command);
    } else if (!client->discarding && lane_is_congested(lane)) {
        (void)client_wait_for_lane(client, lane);
    }
    return taken;
}
