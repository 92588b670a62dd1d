/*
 * Which lane a request takes, and sending it there. Where a function gives false, the client has to wait (`wait` says
 * for what) or was closed.
 */
#include "client/client_private.h"

#include <stdio.h>

/* ---- sending ---- */

bool client_out_of_memory(struct client *client)
{
    client_close(client, "out of memory");
    return false;
}

static bool may_extend(const struct client *client, const struct lane *lane)
{
    const struct run *run = client->last;

    return run != NULL && run == lane->last && run->observation == NULL && run->policy_record == NULL &&
           run->measured == client->service->reactor->measures && run->first_byte + run->length == lane->appended &&
           run->requests < UINT32_MAX / 2;
}

static void sent_to(struct client *client, struct lane *lane, uint32_t requests)
{
    client->last_lane_id = lane->id;
    stats_add(client->service->reactor->stats, STATS_REQUESTS_FORWARDED, requests);
}

/* Sends a run of its own. observation and record may be NULL; they are the run's from here on. */
static bool send_run(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests,
                     struct observation *observation, struct chain_record *record)
{
    struct run *run = run_take(client->service->runs);

    if (run == NULL) {
        return client_out_of_memory(client);
    }
    run->receiver = &client_run_receiver;
    run->owner = client;
    run->requests = requests;
    run->observation = observation;
    run->policy_record = record;
    run->measured = client->service->reactor->measures;
    if (!lane_send(lane, run, data, length)) {
        run_give(client->service->runs, run);
        return client_out_of_memory(client);
    }
    client_queue_run(client, run);
    client->sent_runs++;
    client->lane_in_use = lane;
    sent_to(client, lane, requests);
    return true;
}

bool client_send_plain(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    if (!may_extend(client, lane)) {
        return send_run(client, lane, data, length, requests, NULL, NULL);
    }
    if (!lane_extend(lane, data, length, requests)) {
        return client_out_of_memory(client);
    }
    client->in_flight += requests;
    sent_to(client, lane, requests);
    return true;
}

/*
 * Redis may refuse CLIENT REPLY OFF or SKIP, to a subscriber or to who has no right to it, and then there are replies
 * that nobody counts on: one of them could be taken for that to AUTH. So where rules go by who a client is, it is shown
 * by CLIENT REPLY ON before, which changes nothing, that it will be taken. If it is not, the lane breaks. The name is
 * as the client has it, as it may be renamed.
 */
static bool prove_silence(struct client *client, struct lane *lane, struct slice bytes, const struct session_plan *plan)
{
    const struct session *session = &client->session;
    struct resp_walk walk = resp_walk_start(bytes);
    struct slice name;
    char command[128];

    if (!(plan->silences || plan->silences_next) || session->silent || session->silent_next || session->tunnel ||
        !chain_wants_any(client->service->chain) || !resp_walk_next(&walk, &name)) {
        return true;
    }
    int length = snprintf(command, sizeof command, "*3\r\n$%zu\r\n%.*s\r\n$5\r\nREPLY\r\n$2\r\nON\r\n", name.length,
                          (int)name.length, name.data);
    return (size_t)length < sizeof command && upstream_send_hidden(lane, command, (size_t)length, true);
}

/*
 * What a script has Redis say in several lines could be taken for the answer to AUTH or RESET. Where rules go by who a
 * client is, a fence is set behind it. Within MULTI it would be queued; only RESET gets here then.
 */
static bool fence_off_scripts(struct client *client, struct lane *lane, const struct session_plan *plan)
{
    const struct session *session = &client->session;
    bool may_be_forged = session->split || session->scripts > 0;

    return plan->logs_in || !plan->names_client || !may_be_forged || session->sent_transaction ||
           !chain_wants_any(client->service->chain) || upstream_send_fence(lane);
}

static bool send_silently(struct client *client, struct lane *lane, struct slice bytes)
{
    client_end_record(client, POLICY_OUTCOME_OWNERLESS);
    if (!lane_send_silent(lane, bytes.data, bytes.length)) {
        return client_out_of_memory(client);
    }
    lane_note_silence(lane);
    sent_to(client, lane, 1);
    return true;
}

bool client_has_no_answer(const struct client *client, const struct session_plan *plan)
{
    enum observation_kind kind = plan->observation != NULL ? plan->observation->kind : OBSERVE_NOTHING;

    if (kind == OBSERVE_REPLY_ON || (kind == OBSERVE_RESET && !client->session.silent_next)) {
        return false;
    }
    return plan->silent || client->session.silent || client->session.silent_next || client->session.tunnel;
}

bool client_forward(struct client *client, struct lane *lane, struct slice bytes, struct session_plan *plan)
{
    bool sent;

    if (client_has_no_answer(client, plan)) {
        if (plan->observation != NULL) {
            session_request_unseen(client, plan->observation);
            observation_give(client->service, plan->observation);
            plan->observation = NULL;
        }
        sent = prove_silence(client, lane, bytes, plan) ? send_silently(client, lane, bytes)
                                                        : client_out_of_memory(client);
    } else if (client->service->reactor->measures && !client_measure_sent(client, bytes)) {
        sent = client_out_of_memory(client);
    } else if (plan->observation == NULL && client->held == NULL) {
        sent = client_send_plain(client, lane, bytes.data, bytes.length, 1);
    } else {
        if (plan->observation == NULL) {
            plan->observation = observation_take(client->service, OBSERVE_NOTHING);
        }
        sent = plan->observation != NULL && fence_off_scripts(client, lane, plan)
                   ? send_run(client, lane, bytes.data, bytes.length, 1, plan->observation, client->held)
                   : client_out_of_memory(client);
        client->held = NULL;
    }
    if (sent) {
        session_request_sent(client, plan);
    } else {
        session_drop_plan(client, plan);
    }
    return sent;
}

/* ---- the lane for a request ---- */

bool client_wait_for(struct client *client, enum client_wait what)
{
    client->wait = what;
    client->wait_since_us = reactor_now(client->service->reactor);
    return false;
}

static bool is_paused(struct client_service *service)
{
    return service->paused_until_us != 0 && reactor_now(service->reactor) < service->paused_until_us;
}

bool client_needs_exclusive(const struct client *client)
{
    return client->service->settings.session_pool || client->profile->needs_password || client->heavy > 0 ||
           client->output_congested || is_paused(client->service);
}

struct lane *client_plain_lane(struct client *client)
{
    const struct session *session = &client->session;
    struct lane *lane = client->exclusive;

    if (session->tunnel || session->silent || session->silent_next || session->unproven || session->unsure) {
        return NULL;
    }
    if (lane != NULL) {
        /* With nothing under way it may be time to leave it. */
        return client->lane_in_use == lane && !lane_is_congested(lane) ? lane : NULL;
    }
    if (client_needs_exclusive(client)) {
        return NULL;
    }
    lane = upstream_shared_lane(client->profile, client->place);
    if (lane == NULL || (client->lane_in_use != NULL && client->lane_in_use != lane) || lane_is_congested(lane) ||
        !upstream_may_wait(client->service->upstream, lane)) {
        return NULL;
    }
    return lane;
}

bool client_enter_exclusive(struct client *client, const struct session_plan *plan)
{
    if (client->exclusive != NULL) {
        return true;
    }
    if (client->lane_in_use != NULL && !(plan->own_writes && session_may_take_home_lane(client))) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    return session_take_lane(client, plan) || client_out_of_memory(client);
}

bool client_choose_lane(struct client *client, const struct session_plan *plan, struct lane **lane)
{
    bool exclusive = plan->exclusive || client_needs_exclusive(client);

    if (!exclusive && client->exclusive != NULL && client->first == NULL && session_is_clean(client)) {
        session_leave_lane(client);
    }
    if (client_login_is_watched(client, plan)) {
        return client_login_lane(client, plan, lane);
    }
    if (exclusive || client->exclusive != NULL) {
        if (!client_enter_exclusive(client, plan)) {
            return false;
        }
        *lane = client->exclusive;
        if (lane_is_congested(*lane)) {
            return client_wait_for(client, CLIENT_WAIT_LANE);
        }
        return true;
    }
    *lane = upstream_shared_lane(client->profile, client->place);
    if (*lane == NULL) {
        return client_out_of_memory(client);
    }
    if (client->lane_in_use != NULL && client->lane_in_use != *lane) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        lane_await(*lane, &client->lane_waiter);
        return client_wait_for(client, CLIENT_WAIT_LANE);
    }
    return true;
}
