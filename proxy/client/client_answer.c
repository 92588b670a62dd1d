/*
 * Answers of Headgate's own to the request at hand, in place of Redis': refusals, what it knows itself, and faults.
 */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

static bool needs_stand_in(const struct client *client)
{
    return client->exclusive != NULL && (client->session.sent_transaction || client->session.silent_next);
}

/*
 * Gives Redis a command that it cannot accept in place of the refused one, where the lack of one would be noticed: the
 * transaction that it would have been part of has to fail, and CLIENT REPLY SKIP has to find something to skip. The
 * client sees the refusal instead of Redis' complaint.
 */
static bool send_stand_in(struct client *client)
{
    static const char bad_arity[] = "*1\r\n$3\r\nGET\r\n";
    const struct session *session = &client->session;

    if (!needs_stand_in(client)) {
        return true;
    }
    if (session->silent || session->silent_next) {
        return lane_send_silent(client->exclusive, bad_arity, sizeof bad_arity - 1);
    }
    return upstream_send_hidden(client->exclusive, bad_arity, sizeof bad_arity - 1, false);
}

void client_refuse(struct client *client, const struct policy_decision *decision)
{
    bool silent = client->session.silent || client->session.silent_next;
    struct chain_record *record = client->held;

    client->held = NULL;
    client->session.spoiled = client->session.spoiled || client->session.deferred;
    if (client->session.passthrough) {
        client->held = record;
        client_end(client, "a policy refused a request where no answer has a place");
        return;
    }
    if (silent && needs_stand_in(client) && lane_is_congested(client->exclusive)) {
        /* No answer of its own waits here that would hold the client up. */
        client->held = record;
        client_end(client, "refused requests whose answers nobody wants wait for Redis");
        return;
    }
    if (!send_stand_in(client)) {
        client_out_of_memory(client);
        return;
    }
    client->session.silent_next = false;
    if (silent) {
        client->held = record;
        client_end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, decision->text, decision->length, record)) {
        client_out_of_memory(client);
    }
}

void client_answer_route(struct client *client, const struct session_route *route)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (client->session.silent || client->session.silent_next) {
        client->held = record;
        client->session.silent_next = false;
        client_end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, route->text, strlen(route->text), record)) {
        client_out_of_memory(client);
        return;
    }
    if (route->last) {
        client_finish(client);
    }
}

void client_answer_unreachable(struct client *client, const struct lane *lane)
{
    struct session_route route = {0};

    if (client_is_hushed(client)) {
        client_end(client, "what it has sent for no answer could not be sent on to Redis");
        return;
    }
    snprintf(route.text, sizeof route.text, "-ERR headgate: no connection to Redis at %.80s: %.120s\r\n",
             client->service->settings.upstream_text,
             lane->why[0] != '\0' ? lane->why : "too many requests wait for it already");
    stats_add(client->service->reactor->stats, STATS_REQUESTS_UNREACHABLE, 1);
    client_answer_route(client, &route);
}

void client_protocol_error(struct client *client)
{
    char text[160];
    size_t length = resp_command_fault_text(&client->command, text, sizeof text);

    client_log(client, LOG_LEVEL_INFO, "closing client %s: %.*s", client->address_text, (int)length - 2, text);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_PROTOCOL, 1);
    if (!client->session.silent && !client->session.silent_next && !client_answer(client, text, length, NULL)) {
        client_out_of_memory(client);
        return;
    }
    client_finish(client);
}
