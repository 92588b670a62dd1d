/*
 * Sending: a request by itself, or a batch of neighbours as one range of bytes. Where a function gives false, the
 * client was closed.
 */
#include "client/client_cluster_private.h"

#include <stdio.h>

static bool may_extend(const struct client *client, const struct lane *lane)
{
    const struct run *run = client->last;

    return run != NULL && run == lane->last && run->expected == NULL && run->policy_record == NULL &&
           (run->spans != NULL) == (client->waiting_spans != NULL) && run->first_byte + run->length == lane->appended &&
           run->requests < lane->longest_run;
}

static void sent_to(struct client *client, struct lane *lane, uint32_t requests)
{
    client->last_lane_id = lane->id;
    stats_add(client->service->reactor->stats, STATS_REQUESTS_FORWARDED, requests);
}

/* Sends a run of its own. expected and record may be NULL; they are the run's from here on. */
static bool send_run(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests,
                     struct expected_reply *expected, struct chain_record *record)
{
    struct run *run = run_take(client->service->runs);

    if (run == NULL) {
        return client_out_of_memory(client);
    }
    run->receiver = client->service->receiver;
    run->owner = client;
    run->requests = requests;
    run->expected = expected;
    run->policy_record = record;
    run->may_block = expected != NULL && session_kind_may_block(expected->kind);
    (void)client_measure_run(client, run);
    if (!lane_send(lane, run, data, length)) {
        client_measure_end(client, run);
        run_give(client->service->runs, run);
        return client_out_of_memory(client);
    }
    client->sent_runs++;
    client->lane_in_use = lane;
    sent_to(client, lane, requests);
    client_queue_run(client, run);
    return true;
}

/* Sends requests of whose replies nothing is to be known. */
static bool send_plain(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    if (!may_extend(client, lane)) {
        return send_run(client, lane, data, length, requests, NULL, NULL);
    }
    if (!client_measure_run(client, client->last) || !lane_extend(lane, data, length, requests)) {
        return client_out_of_memory(client);
    }
    client->in_flight += requests;
    sent_to(client, lane, requests);
    return true;
}

/*
 * What a script has Redis say in several lines could be taken for the answer to AUTH or RESET. Where rules go by who a
 * client is, a fence is set behind it. Within MULTI it would be queued; only RESET gets here then.
 */
static bool fence_off_scripts(struct client *client, struct lane *lane, const struct session_route *route)
{
    const struct session *session = &client->session;
    bool may_be_forged = session->split || session->scripts > 0;

    return route->logs_in || !route->names_client || !may_be_forged || session->sent_transaction ||
           !chain_wants_any(client->service->chain) || upstream_send_fence(lane);
}

static bool send_silently(struct client *client, struct lane *lane, struct slice bytes)
{
    client_end_record(client, POLICY_OUTCOME_OWNERLESS);
    if (!lane_send_silent(lane, bytes.data, bytes.length)) {
        return client_out_of_memory(client);
    }
    sent_to(client, lane, 1);
    return true;
}

bool client_send_short(struct client *client, struct lane *lane, const struct request *request)
{
    struct slice frame = request->frame;

    if (client->service->reactor->measures) {
        client_note(client, request);
        if (!client_measure_sent(client, frame)) {
            return client_out_of_memory(client);
        }
    }
    return send_plain(client, lane, frame.data, frame.length, 1);
}

static bool is_subscription(const struct expected_reply *expected)
{
    return expected->kind == EXPECT_SUBSCRIBE || expected->kind == EXPECT_UNSUBSCRIBE;
}

bool client_forward(struct client *client, struct lane *lane, const struct request *request,
                    struct session_route *route)
{
    struct slice bytes = request->sent;
    bool sent;

    if (client->service->cluster != NULL && route->expected != NULL && !route->subscribes &&
        is_subscription(route->expected)) {
        client_note_channels(client, route->expected, bytes);
    }
    if (client_has_no_answer(client, route)) {
        /* RESET has ended CLIENT REPLY, so Redis says of this that it is no request, and closes. QUIT it may refuse. */
        sent = send_silently(client, lane, bytes) && (!route->last || lane_send_silent(lane, "*1\r\n!\r\n", 7));
    } else if (client->service->reactor->measures && !client_measure_sent(client, bytes)) {
        sent = client_out_of_memory(client);
    } else if (route->expected == NULL && client->held == NULL) {
        sent = send_plain(client, lane, bytes.data, bytes.length, 1);
    } else {
        if (route->expected == NULL) {
            route->expected = expected_reply_take(client->service, EXPECT_NOTHING);
        }
        if (client->held != NULL) {
            chain_sent(client->service->chain, client->held, lane->id, reactor_now(client->service->reactor));
        }
        sent = route->expected != NULL && fence_off_scripts(client, lane, route)
                   ? send_run(client, lane, bytes.data, bytes.length, 1, route->expected, client->held)
                   : client_out_of_memory(client);
        client->held = NULL;
    }
    if (sent) {
        session_request_sent(client, route);
    } else {
        session_drop_route(client, route);
    }
    return sent;
}

/* ---- batches ---- */

bool client_batch_send(struct client *client, struct client_batch *batch)
{
    bool sent = client->state != CLIENT_CLOSED;

    if (!sent) {
        /* Memory was short: nothing of it was sent, and nobody would take the replies. */
    } else if (batch->part.count > 0 && !client_measure_part(client, &batch->part)) {
        sent = client_out_of_memory(client);
    } else if (batch->requests > 0) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS, batch->requests);
        sent = send_plain(client, batch->lane, batch->data, batch->length, batch->requests);
    }
    batch->requests = 0;
    batch->length = 0;
    batch->part.count = 0;
    return sent;
}
