/*
 * Answers of Headgate's own to the request at hand, in place of Redis': refusals, what it knows itself, and faults.
 */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* A command that Redis cannot accept, in place of the refused one, where the lack of one would be noticed. */
static const char stand_in[] = "*1\r\n$19\r\nrefused-by-headgate\r\n";

/* The transaction that it would have been part of has to fail. The client sees the refusal instead of what Redis says.
 */
static bool spoil_transaction(struct client *client)
{
    return client->exclusive == NULL || !client->session.sent_transaction ||
           upstream_send_hidden(client->exclusive, stand_in, sizeof stand_in - 1, false);
}

/* Behind CLIENT REPLY only Redis knows whether a request has a reply. False: no answer has a place. */
static bool refuse_by_redis(struct client *client)
{
    return client->session.silenced && lane_send_silent(client->exclusive, stand_in, sizeof stand_in - 1);
}

void client_refuse(struct client *client, const struct policy_decision *decision)
{
    struct chain_record *record = client->held;

    if (client->session.passthrough) {
        if (refuse_by_redis(client)) {
            client_end_record(client, POLICY_OUTCOME_LOCAL);
        } else {
            client_end(client, "a policy refused a request where no answer has a place");
        }
        return;
    }
    client->held = NULL;
    client->session.spoiled = client->session.spoiled || client->session.deferred;
    if (!spoil_transaction(client) || !client_answer(client, decision->text, decision->length, record)) {
        client_out_of_memory(client);
    }
}

void client_answer_route(struct client *client, const struct session_route *route)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (!client_answer(client, route->text, strlen(route->text), record)) {
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

    snprintf(route.text, sizeof route.text, "-ERR headgate: no connection to Redis at %.80s: %.120s\r\n",
             client->service->settings.upstream_text,
             lane->why[0] != '\0'                                 ? lane->why
             : upstream_may_wait(client->service->upstream, lane) ? "not connected yet"
                                                                  : "too many requests wait for it already");
    stats_add(client->service->reactor->stats, STATS_REQUESTS_UNREACHABLE, 1);
    client_answer_route(client, &route);
}

void client_protocol_error(struct client *client)
{
    char text[160];
    size_t length = resp_command_fault_text(&client->command, text, sizeof text);

    client_log(client, LOG_LEVEL_INFO, "closing client %s: %.*s", client->address_text, (int)length - 2, text);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_PROTOCOL, 1);
    if (!client->session.silenced && !client_answer(client, text, length, NULL)) {
        client_out_of_memory(client);
        return;
    }
    client_finish(client);
}
