/*
 * Client-side caching: CLIENT TRACKING, and CLIENT CACHING behind it.
 *
 * After CLIENT TRACKING ON OPTIN Redis remembers nothing that the client reads until it says CLIENT CACHING YES. Some
 * libraries say the former on each connection, whether they ever cache or not. So Headgate answers it, once Redis has
 * shown that the user may use it, and the client goes on sharing lanes: it has *opted in*. Redis is told on a lane of
 * the client's own, ahead of what would show that it was not: CLIENT CACHING and what asks about tracking; MULTI,
 * behind which either could come; and whatever leaves the lane so that nothing can be said on it unseen, as SUBSCRIBE
 * does in RESP2. Whoever caches keeps that lane. If he does not, Redis is told to stop before anybody else gets it.
 *
 * With any other option Redis may have something to tell from then on: the client has a lane to itself.
 */
#include "client/client_private.h"

#include "resp/word.h"

#include <stdio.h>
#include <string.h>

/* ---- what clients ask for ---- */

enum form {
    FORM_OPTIN, /* ON OPTIN, and no other option */
    FORM_OFF,   /* OFF alone */
    FORM_OTHER
};

static enum form form_of(const struct resp_command *framed, const char *frame)
{
    struct slice mode = session_kept_argument(framed, frame, 2);

    if (framed->argument_count == 3 && word_is(mode, "off")) {
        return FORM_OFF;
    }
    bool is_optin =
        framed->argument_count == 4 && word_is(mode, "on") && word_is(session_kept_argument(framed, frame, 3), "optin");
    return is_optin ? FORM_OPTIN : FORM_OTHER;
}

static bool ask_redis(struct client *client, enum expected_reply_kind kind, struct session_route *route)
{
    route->identity = true;
    if (!session_expect(client, route, kind)) {
        return false;
    }
    route->expected->right = PROFILE_MAY_TRACK;
    return true;
}

/* In a cluster it is refused: a node tells of its own keys only. Under another name (rename-command) it could not be
 * said to a lane. */
static bool may_be_answered_here(const struct client *client, const struct session_route *route)
{
    return !client->service->settings.session_pool && client->service->cluster == NULL && !route->pinned;
}

bool client_route_tracking(struct client *client, const struct resp_command *framed, const char *frame,
                           struct session_route *route)
{
    enum form form = may_be_answered_here(client, route) ? form_of(framed, frame) : FORM_OTHER;
    bool is_off = word_is(session_kept_argument(framed, frame, 2), "off");

    if (form == FORM_OTHER) {
        route->shows_tracking = true;
        return ask_redis(client, is_off ? EXPECT_TRACKING_OFF : EXPECT_TRACKING_ON, route);
    }
    switch (session_place_for(client, PROFILE_MAY_TRACK)) {
    case SESSION_PLACE_LATER:
        route->answer = SESSION_LATER;
        return true;
    case SESSION_PLACE_LANE:
        /* What follows may have to be told of it, or not. */
        route->barrier = true;
        return ask_redis(client, is_off ? EXPECT_TRACKING_OFF : EXPECT_OPTIN, route);
    case SESSION_PLACE_HERE:
        client->opted_in = !is_off;
        route->answer = SESSION_ANSWER_HERE;
        snprintf(route->text, sizeof route->text, "+OK\r\n");
        return true;
    }
    return true;
}

/* Refused without tracking, and nothing is left of it then. */
bool client_route_caching(struct client *client, struct session_route *route)
{
    if (client->exclusive == NULL && !client->opted_in) {
        return true;
    }
    route->shows_tracking = true;
    return ask_redis(client, EXPECT_CACHING, route);
}

void client_note_tracking(const struct client *client, struct slice subcommand, struct session_route *route)
{
    static const char *const asking[] = {"getredir", "info", "list", "trackinginfo"};

    for (size_t i = 0; client->opted_in && i < sizeof asking / sizeof *asking; i++) {
        if (word_is(subcommand, asking[i])) {
            route->exclusive = true;
            route->shows_tracking = true;
        }
    }
}

/* ---- what never comes to Redis ---- */

static bool tracks(const struct client *client)
{
    return client->opted_in || client->session.tracking;
}

static bool is_caching(const struct request *request)
{
    return request->command != NULL && request->command->kind == COMMAND_CLIENT &&
           request->framed->argument_count > 1 &&
           word_is(session_kept_argument(request->framed, request->frame.data, 1), "caching");
}

/* Within MULTI the transaction is spoiled by it. */
void client_note_refusal(struct client *client, const struct request *request)
{
    bool is_refused = tracks(client) && !client->session.sent_transaction && is_caching(request);

    client->may_not_cache = client->may_not_cache || is_refused;
}

void client_note_unsent(struct client *client, const struct run *run)
{
    const struct expected_reply *expected = run->expected;
    bool is_unsent = expected != NULL && expected->kind == EXPECT_CACHING;

    client->may_not_cache = client->may_not_cache || (is_unsent && tracks(client) && run == client->last);
}

bool client_is_uncached(struct client *client, const struct request *request, struct policy_decision *decision)
{
    static const char why[] = "-ERR headgate: CLIENT CACHING ahead of it was refused, and Redis would not tell when "
                              "what it reads changes\r\n";
    enum command_kind kind = request->command != NULL ? request->command->kind : COMMAND_ORDINARY;

    if (kind == COMMAND_CLIENT) {
        /* CLIENT CACHING is about the next command that is none of CLIENT. */
        client->may_not_cache = !is_caching(request);
        return false;
    }
    client->may_not_cache = false;
    if (kind == COMMAND_RESET || kind == COMMAND_QUIT || !tracks(client)) {
        return false;
    }
    decision->length = sizeof why - 1;
    memcpy(decision->text, why, sizeof why);
    return true;
}

/* ---- what Redis is told ---- */

/* Whether what Redis makes of the request, or of one behind it that nothing can be said ahead of, depends on it. */
static bool shows_tracking(const struct session_route *route)
{
    const struct expected_reply *expected = route->expected;
    bool may_be_anything = expected != NULL && expected->kind == EXPECT_UNKNOWN && !expected->is_absent;
    /* In RESP3, too: HELLO 2 may follow. */
    bool subscribes = expected != NULL && expected->kind == EXPECT_SUBSCRIBE;

    return route->shows_tracking || route->begins_transaction || route->passthrough || route->silences ||
           route->silences_next || subscribes || may_be_anything;
}

/* Where nothing can be said any more it was said ahead. */
static bool can_be_told(const struct session *session)
{
    return !session->sent_transaction && !session->silent && !session->silent_next && !session->passthrough;
}

bool client_tell_tracking(struct client *client, struct lane *lane, const struct session_route *route)
{
    bool is_owed = client->opted_in && lane == client->exclusive && !lane->opted_in && can_be_told(&client->session);

    return !is_owed || !shows_tracking(route) || upstream_opt_in(lane);
}
