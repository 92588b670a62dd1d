/*
 * Where an admitted request goes: what it needs (client_commands.c), which lane that is, or who answers it instead.
 * Where a function gives false, the client has to wait (`wait` says for what) or was closed.
 */
#include "client/client_cluster_private.h"

#include <stdio.h>

/* ---- the lane for a request ---- */

/* With requests under way it is theirs, or its order would be at stake. */
static struct lane *shared_lane(const struct client *client)
{
    struct lane *used = client->lane_in_use;
    bool goes_on = used != NULL && upstream_find_shared(client->profile, used->id) == used;

    return goes_on ? used : upstream_lane_with_room(client->profile);
}

struct lane *client_plain_lane(struct client *client)
{
    const struct session *session = &client->session;
    struct lane *lane = client->exclusive;

    if (session->passthrough || session->unproven || session->unsure || client->service->looks_further) {
        return NULL;
    }
    if (lane != NULL) {
        /* With nothing under way it may be time to leave it. */
        return client->lane_in_use == lane && !lane_is_congested(lane) ? lane : NULL;
    }
    if (client_needs_exclusive(client)) {
        return NULL;
    }
    lane = shared_lane(client);
    if (lane == NULL || (client->lane_in_use != NULL && client->lane_in_use != lane) || lane_is_congested(lane) ||
        !upstream_may_wait(client->service->upstream, lane)) {
        return NULL;
    }
    return lane;
}

/* What has to be ready before the request may be sent; NULL: nothing. */
static struct lane *lane_ahead(const struct client *client, const struct session_route *route)
{
    bool begins = route->passthrough && !client->session.passthrough && chain_wants_any(client->service->chain);

    if (route->ends_script) {
        return upstream_find_starting(client->service->upstream, client->read_us);
    }
    /* From then on no answer is seen: whether a password is wanted is known before. */
    struct lane *home = begins && !upstream_is_refused(client->profile) ? upstream_shared_lane(client->profile) : NULL;
    return home != NULL && (home->state == LANE_CONNECTING || home->state == LANE_HANDSHAKE) ? home : NULL;
}

bool client_choose_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    bool exclusive = route->exclusive || client_needs_exclusive(client);
    struct lane *ahead = lane_ahead(client, route);

    if (ahead != NULL) {
        return client_wait_for_lane(client, ahead);
    }
    if (route->subscribes) {
        return client_subscriber_lane(client, route, lane);
    }
    if (!exclusive && client->exclusive != NULL && client->first == NULL && session_is_clean(client)) {
        session_leave_lane(client);
    }
    session_leave_old_server(client);
    if (client->service->looks_further) {
        client_reads_note(client, route);
    }
    if (client_login_is_watched(client, route)) {
        return client_login_lane(client, route, lane);
    }
    if (exclusive || client->exclusive != NULL) {
        if (!client_enter_exclusive(client, route)) {
            return false;
        }
        *lane = client->exclusive;
        /* What has no answer could not be given an error in its place. */
        bool may_be_lost = client_has_no_answer(client, route) && (*lane)->state != LANE_READY;
        return may_be_lost || lane_is_congested(*lane) ? client_wait_for_lane(client, *lane) : true;
    }
    if (client->service->looks_further) {
        return client->service->cluster != NULL ? client_cluster_lane(client, route, lane)
                                                : client_reads_lane(client, route, lane);
    }
    *lane = shared_lane(client);
    if (*lane == NULL) {
        return client_out_of_memory(client);
    }
    if (client->lane_in_use != NULL && client->lane_in_use != *lane) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        return client_wait_for_lane(client, *lane);
    }
    return true;
}

/* ---- routing ---- */

/* Once it is certain that the client is within MULTI: EXEC may have been refused, or MULTI. */
static enum client_outcome refuse(struct client *client, const char *text)
{
    struct policy_decision decision;

    if (client->sent_runs > 0) {
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
        return CLIENT_WAITS;
    }
    decision.length = (size_t)snprintf(decision.text, sizeof decision.text, "%s", text);
    client_refuse(client, &decision);
    return CLIENT_TAKEN;
}

static bool settles_identity(const struct client *client, const struct session_route *route)
{
    const struct expected_reply *expected = route->expected;

    return expected != NULL && chain_wants_any(client->service->chain) &&
           (expected->kind == EXPECT_PROFILE || expected->kind == EXPECT_NAME ||
            (expected->kind == EXPECT_UNKNOWN && !expected->is_absent));
}

/* Sends what the route says, or leaves the client waiting. */
static enum client_outcome carry_out(struct client *client, struct session_route *route, const struct request *request)
{
    struct lane *lane;

    if (route->answer == SESSION_CLOSE) {
        session_drop_route(client, route);
        client_end(client, route->text);
        return CLIENT_TAKEN;
    }
    if (route->answer == SESSION_REFUSE) {
        session_drop_route(client, route);
        enum client_outcome outcome = refuse(client, route->text);
        if (route->last && outcome == CLIENT_TAKEN) {
            client_finish(client);
        }
        return outcome;
    }
    if (route->answer == SESSION_LATER) {
        session_drop_route(client, route);
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
        return CLIENT_WAITS;
    }
    if (route->answer == SESSION_ASKS) {
        session_drop_route(client, route);
        (void)client_wait_for(client, CLIENT_WAIT_KEYS);
        return CLIENT_WAITS;
    }
    if (route->answer == SESSION_ANSWER_HERE) {
        client_answer_route(client, route);
        return CLIENT_TAKEN;
    }
    if (client_login_was_given_up(client)) {
        session_drop_route(client, route);
        client_answer_unreachable(client, client->exclusive);
        client_login_end(client);
        client_finish_presuming(client);
        return CLIENT_TAKEN;
    }
    if (!client_choose_lane(client, route, &lane)) {
        session_drop_route(client, route);
        return CLIENT_WAITS;
    }
    if (client->exclusive == NULL && !upstream_may_wait(client->service->upstream, lane)) {
        session_drop_route(client, route);
        client_answer_unreachable(client, lane);
        return CLIENT_TAKEN;
    }
    bool barrier = route->barrier || settles_identity(client, route);
    if (!client_forward(client, lane, request, route)) {
        return CLIENT_TAKEN;
    }
    if (route->subscribes) {
        client_subscriber_sent(client, lane);
    }
    if (barrier && client->sent_runs > 0) {
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (route->last) {
        client_finish(client);
    }
    return CLIENT_TAKEN;
}

static enum client_outcome route_as_it_is(struct client *client, const struct request *request)
{
    const struct command *command = request->command;
    struct session_route route;

    if (command == NULL) {
        command = server_info_find(client->service->server_info,
                                   session_kept_argument(request->framed, request->frame.data, 0));
    }
    if (client_name_is_hidden(command, request->framed, request->frame)) {
        client_refuse_name(client, command, request->framed, request->frame);
        return CLIENT_TAKEN;
    }
    if (!session_route_request(client, command, request->framed, request->frame.data, &route)) {
        session_drop_route(client, &route);
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    route.exclusive = route.exclusive || client->gathering;
    if (client->service->looks_further) {
        if (client->service->reads) {
            client_reads_route(client, request->command, request, &route);
        }
        if (client->service->cluster != NULL) {
            client_cluster_route(client, command, request, &route);
        }
    }
    if (route.answer == SESSION_FORWARD && (route.plan != NULL || route.splits)) {
        return client_spread(client, request, &route);
    }
    if (route.answer == SESSION_FORWARD && client->service->cluster != NULL) {
        client_note_written(client, command, route.way);
    }
    return carry_out(client, &route, request);
}

/* A policy may say something else to Redis. */
static enum client_outcome route_translated(struct client *client, const struct request *request)
{
    static const enum policy_server_has server_has[] = {
        [SERVER_INFO_UNKNOWN] = POLICY_SERVER_UNKNOWN,
        [SERVER_INFO_HAS] = POLICY_SERVER_HAS,
        [SERVER_INFO_LACKS] = POLICY_SERVER_LACKS,
    };
    struct policy_client view = client_policy_view(client);
    struct policy_request asked = client_describe(client, &view, request);
    struct request translated = *request;
    struct resp_command framed = {0};
    struct policy_decision decision;
    size_t taken;

    enum policy_server_has server = server_has[server_info_server_has(client->service->server_info, asked.name)];
    switch (chain_translate(client->service->chain, &asked, server, &translated.frame, &decision)) {
    case POLICY_AS_IT_IS:
        break;
    case POLICY_TRANSLATED:
        (void)resp_command_feed(&framed, translated.frame.data, translated.frame.length, UINT64_MAX, &taken);
        translated.framed = &framed;
        translated.sent = translated.frame;
        /* It is a script of Headgate's own, whose errors are known: it needs no lane of its own. */
        return route_as_it_is(client, &translated);
    case POLICY_ANSWERED:
        client_refuse(client, &decision);
        return CLIENT_TAKEN;
    }
    return route_as_it_is(client, request);
}

enum client_outcome client_route(struct client *client, const struct request *request)
{
    return request->interest->translator != 0 ? route_translated(client, request) : route_as_it_is(client, request);
}
