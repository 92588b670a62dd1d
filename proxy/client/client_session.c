/* The state of a client's connection to Redis: what requests and their replies make of it. */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* A client that changes its credentials more often than that in a minute stays on one lane: each change would have
 * others opened and closed. No application does so; one that has its password renewed does it once in a while. */
#define LOGINS_MAX 16
#define LOGINS_SPAN_US ((int64_t)60 * 1000000)

static bool is_ok(const struct resp_reply *reply)
{
    return resp_reply_starts(reply, "+OK\r");
}

/*
 * A request whose success leaves nothing behind that the session does not know of. What is neither that success nor an
 * error is not the answer to it: the lane is for nobody else, and what it says is not believed any more.
 */
static void expect(struct client *client, const struct resp_reply *reply, bool is_success)
{
    if (!is_success && !resp_reply_is_error(reply)) {
        client->session.pinned = true;
        client->session.unsure = true;
    }
}

/* ---- what was sent ---- */

void session_request_sent(struct client *client, const struct session_route *route)
{
    struct session *session = &client->session;
    enum expected_reply_kind kind = route->expected != NULL ? route->expected->kind : EXPECT_NOTHING;
    bool follows_unproven = session->unproven;

    session->pinned = session->pinned || route->pinned || follows_unproven;
    session->passthrough = session->passthrough || route->passthrough;
    session->silenced = session->silenced || route->silences;
    session->resets = session->passthrough && route->last;
    session->unsure = session->unsure || route->unsure || follows_unproven;
    session->unproven = kind == EXPECT_UNKNOWN && !route->expected->is_absent;
    if (route->logs_in && route->expected != NULL) {
        session->login_us = reactor_now(client->service->reactor);
    }
    if (route->sync) {
        client->exclusive->raw = true;
    }
    if (route->dirty) {
        client->exclusive->dirty = true;
    }
    if (client->owes_identity && !session_give_identity(client, true)) {
        client_close(client, "out of memory");
        return;
    }
    if (route->begins_transaction || route->ends_transaction) {
        session->sent_transaction = route->begins_transaction;
    } else if (session_kind_may_block(kind)) {
        session->blocking++;
    } else if (kind == EXPECT_SCRIPT) {
        session->scripts++;
    }
}

/* ---- what replies mean ---- */

/*
 * A script makes errors of its own, and Redis does not see to it in all cases that they are of one line: what follows
 * "#!lua" is shown as it is (7.0 to 8.2), and so are errors that are raised (8.2). Then bytes follow that are taken for
 * further replies. They are this client's, if anybody's, and who it is is not to be read from them.
 */
static void error_may_be_split(struct client *client)
{
    client->session.split = true;
    client->exclusive->needs_fence = true;
}

static void replied_script(struct client *client, const struct resp_reply *reply)
{
    client->session.scripts--;
    client->session.queued_script = client->session.queued_script || resp_reply_starts(reply, "+QUEUED\r");
    /* An error may be within another reply; of Redis' own servers none is known that splits those. */
    bool has_parts = reply->type == '*' || reply->type == '%' || reply->type == '~';
    client->exclusive->needs_fence = client->exclusive->needs_fence || has_parts;
    if (resp_reply_is_error(reply)) {
        error_may_be_split(client);
    }
}

static void replied_multi(struct client *client, const struct expected_reply *expected, const struct resp_reply *reply)
{
    expect(client, reply, is_ok(reply));
    if (!resp_reply_is_error(reply)) {
        client->session.known_transaction = true;
    } else if (!expected->in_transaction) {
        client->session.known_transaction = false;
    }
}

/* Whether EXEC or DISCARD was looked at. Of redirects Redis says so before, and discards what was queued, too. */
static bool has_ended(const struct resp_reply *reply)
{
    static const char *const errors[] = {"-EXECABORT",           "-ERR EXEC without", "-ERR DISCARD without",
                                         "-ERR Transaction con", "-MOVED ",           "-ASK ",
                                         "-TRYAGAIN ",           "-CROSSSLOT ",       "-CLUSTERDOWN "};
    bool ended = !resp_reply_is_error(reply);

    for (size_t i = 0; !ended && i < sizeof errors / sizeof *errors; i++) {
        ended = resp_reply_starts(reply, errors[i]);
    }
    return ended;
}

/* EXEC and DISCARD end the transaction and the watch, unless they were refused before they were looked at. */
static void replied_exec(struct client *client, const struct resp_reply *reply)
{
    expect(client, reply, reply->type == '*' || reply->type == '_' || is_ok(reply));
    if (client->session.access_queued && reply->type == '*' && !resp_reply_starts(reply, "*-1")) {
        upstream_access_changed(client->service->upstream);
    }
    if (client->session.queued_script) {
        error_may_be_split(client);
        client->session.queued_script = false;
    }
    if (has_ended(reply)) {
        client->session.known_transaction = false;
        client->session.access_queued = false;
        client->session.watching = client->session.watching && (resp_reply_starts(reply, "-ERR EXEC without") ||
                                                                resp_reply_starts(reply, "-ERR DISCARD without"));
    }
}

bool session_change_profile(struct client *client, struct profile *profile)
{
    if (profile == NULL) {
        return client_out_of_memory(client);
    }
    struct profile *before = client->profile;
    client->profile = profile;
    profile_join(profile);
    client_tell_identity(client);
    if (client->exclusive != NULL) {
        struct profile *there = client_profile_at(client, client->exclusive_way);
        if (there == NULL) {
            profile_part(before);
            return client_out_of_memory(client);
        }
        upstream_lane_speaks_for(client->exclusive, there);
    }
    if (client->subscriber != NULL && !profile_same_credentials(before, profile) &&
        !client_subscriber_speak_for(client)) {
        profile_part(before);
        return client_out_of_memory(client);
    }
    /* There are too many to share lanes: the one that it has will do. */
    client->session.pinned = client->session.pinned || !profile->may_share;
    profile_part(before);
    return true;
}

static bool changes_too_often(struct client *client, const struct profile *before)
{
    int64_t now = reactor_now(client->service->reactor);

    if (client->logins == 0 || now - client->logins_since_us > LOGINS_SPAN_US) {
        client->logins = 0;
        client->logins_since_us = now;
    }
    if (!profile_same_credentials(before, client->profile) && client->logins <= LOGINS_MAX) {
        client->logins++;
    }
    return client->logins > LOGINS_MAX;
}

static void adopt_name(struct client *client, const char *name)
{
    client->exclusive->named = true;
    client->session.pinned = client->session.pinned || strlen(name) > CLIENT_NAME_MAX;
    if (!client_rename(client, slice_of(name))) {
        client_out_of_memory(client);
    }
}

/* Whether it says that nothing was done, though several things were asked. */
static bool profile_error_is_clear(const struct expected_reply *expected, const struct resp_reply *reply)
{
    bool has_nothing_to_apply = expected->credentials == 0 && expected->name == NULL;

    return !expected->has_unclear_errors || resp_reply_starts(reply, "-NOPROTO") ||
           (has_nothing_to_apply && resp_reply_starts(reply, "-ERR Syntax error in HELLO")) ||
           resp_reply_starts(reply, "-ERR unknown command ");
}

/* Whether the user is the same after it. */
static bool profile_error_keeps_user(const struct expected_reply *expected, const struct resp_reply *reply)
{
    return expected->credentials == 0 || profile_error_is_clear(expected, reply) ||
           (expected->credentials == 1 && resp_reply_starts(reply, "-WRONGPASS"));
}

/* The reply to HELLO is a map, in RESP2 an array of at least three pairs. What comes from channels in RESP2 has four
 * elements at most. */
static bool is_hello(const struct resp_reply *reply)
{
    bool is_long = reply->head_length > 2 && (reply->head[1] >= '6' || reply->head[2] != '\r');

    return reply->type == '%' || (reply->type == '*' && is_long);
}

/* True if Redis has done what was asked. Whether and when what is queued will be done can no longer be followed. */
static bool profile_has_changed(struct client *client, const struct expected_reply *expected,
                                const struct resp_reply *reply)
{
    struct session *session = &client->session;
    bool is_success = expected->is_hello ? is_hello(reply) : is_ok(reply);

    if (resp_reply_is_error(reply)) {
        session->pinned = session->pinned || !profile_error_is_clear(expected, reply);
        session->unsure = session->unsure || !profile_error_keeps_user(expected, reply);
        return false;
    }
    if (!is_success || session->unsure || expected->has_hidden_text) {
        bool names_nobody = expected->credentials == 0 && expected->name == NULL;
        session->pinned = true;
        session->database_unseen = session->database_unseen || expected->database >= 0;
        session->unsure = session->unsure || !(resp_reply_starts(reply, "+QUEUED\r") && names_nobody);
        return false;
    }
    return true;
}

/* Redis has taken the credentials: it is told the rest of what the client is. */
static void begin_on_bare_lane(struct client *client, const struct expected_reply *expected)
{
    if (session_complete_lane(client, expected) && !session_give_identity(client, true)) {
        client_out_of_memory(client);
    }
}

/* Whoever is refused on a bare lane is who it was, on other lanes; if that is certain. */
static void refused_on_bare_lane(struct client *client, const struct expected_reply *expected,
                                 const struct resp_reply *reply)
{
    if (!profile_error_is_clear(expected, reply) || client->session.unsure) {
        client_finish(client);
    }
}

static void replied_profile(struct client *client, struct expected_reply *expected, const struct resp_reply *reply)
{
    bool was_bare = client->exclusive->bare;

    client->session.login_us = 0;
    if (!profile_has_changed(client, expected, reply)) {
        if (was_bare) {
            refused_on_bare_lane(client, expected, reply);
        }
        return;
    }
    if (expected->password != NULL) {
        struct slice user = {expected->user, expected->user != NULL ? strlen(expected->user) : 0};
        struct slice password = slice_of(expected->password);
        struct profile *before = profile_reference(client->profile);
        client->gave_user = true;
        bool is_replaced = session_change_profile(client, profile_with_credentials(client->profile, user, password));
        /* Nobody knows whether this user may SELECT the database that was selected before. */
        client->session.pinned =
            client->session.pinned || client->profile->database != 0 || changes_too_often(client, before);
        profile_release(before);
        if (!is_replaced) {
            return;
        }
        upstream_credentials_accepted(client->profile);
    }
    if (expected->resp != 0 && !session_change_profile(client, profile_with_resp(client->profile, expected->resp))) {
        return;
    }
    if (expected->database >= 0) {
        if (!session_change_profile(client, profile_with_database(client->profile, expected->database))) {
            return;
        }
        profile_learn_right(client->profile, PROFILE_MAY_SELECT, reply);
    }
    client->session.database_unseen = client->session.database_unseen && expected->database < 0;
    if (expected->name != NULL) {
        adopt_name(client, expected->name);
    }
    if (was_bare && client->state != CLIENT_CLOSED) {
        begin_on_bare_lane(client, expected);
    }
}

/* After RESET the connection is a new one, but for the credentials that Headgate gives to those who have none. Who was
 * not to be believed before is believed only on another lane. */
static void replied_reset(struct client *client, const struct resp_reply *reply)
{
    static const char ok_head[] = "+RESET\r";

    if (!resp_reply_starts(reply, ok_head)) {
        expect(client, reply, false);
        /* Redis takes it from subscribers, too: perhaps that answers an earlier request, and RESET will be done. */
        client->session.unsure = client->session.unsure || resp_reply_starts(reply, "-ERR Can't execute ");
        return;
    }
    client->session = (struct session){.unsure = client->session.unsure};
    client_subscriber_end(client);
    client->gave_user = false;
    client->moving = CLIENT_MOVING_UNASKED;
    client_find_identity(client);
    if (!session_change_profile(client, client_arrival_profile(client))) {
        return;
    }
    (void)client_rename(client, (struct slice){0});
    client->heavy = 0;
    client->exclusive->expects_pushes = false;
    client->exclusive->dirty = true;
    client->exclusive->named = false;
    client->session.was_reset = !client->service->settings.session_pool && client->profile->password != NULL;
    if (client->service->settings.session_pool && !upstream_greet_again(client->exclusive)) {
        client_close(client, "out of memory");
    }
}

void session_paused(struct client_service *service, int64_t pause_ms)
{
    /* Far more than a century is for ever. */
    int64_t most = INT64_MAX / 4000;
    int64_t until_us =
        pause_ms > 0 ? reactor_now(service->reactor) + clock_ms_to_us(pause_ms < most ? pause_ms : most) : 0;

    if (until_us == 0 || until_us > service->paused_until_us) {
        service->paused_until_us = until_us;
    }
}

static void replied_name(struct client *client, const struct expected_reply *expected, const struct resp_reply *reply)
{
    expect(client, reply, is_ok(reply));
    profile_learn_right(client->profile, expected->right, reply);
    if (is_ok(reply)) {
        adopt_name(client, expected->name);
    }
}

static void replied_library(struct client *client, const struct expected_reply *expected,
                            const struct resp_reply *reply)
{
    char **place = expected->is_library_name ? &client->library_name : &client->library_version;

    expect(client, reply, is_ok(reply));
    profile_learn_right(client->profile, expected->right, reply);
    if (is_ok(reply) && !client_keep_text(client, place, slice_of(expected->name))) {
        client_out_of_memory(client);
    }
}

/* Of a subcommand that Headgate does not know, only that Redis does not know it either, does not let the user use it,
 * or finds that its arguments are too many or too few, which it counts before it looks at them, proves that nothing was
 * done. */
static void replied_state(struct client *client, const struct expected_reply *expected, const struct resp_reply *reply)
{
    bool is_unknown = resp_reply_starts(reply, "-ERR unknown subcommand") ||
                      resp_reply_starts(reply, "-ERR Unknown subcommand") || resp_reply_starts(reply, "-NOPERM") ||
                      resp_reply_starts(reply, "-ERR wrong number of arguments for ");

    if (!resp_reply_is_error(reply) || (expected->has_unclear_errors && !is_unknown)) {
        client->session.pinned = true;
    }
}

/* Only this error proves that nothing was done. With any other answer the command may have changed anything: who the
 * client is, and whether its requests are answered. */
static void replied_unknown(struct client *client, const struct resp_reply *reply)
{
    struct session *session = &client->session;

    session->blocking--;
    session->unproven = false;
    if (!resp_reply_starts(reply, "-ERR unknown command ")) {
        session->pinned = true;
        session->unsure = true;
    }
}

/* Queued by MULTI, nobody knows when it will be told. */
static void replied_id(struct client *client, const struct resp_reply *reply)
{
    if (reply->type == ':' || reply->type == '$' || reply->type == '=') {
        session_id_was_told(client);
    } else if (!resp_reply_is_error(reply)) {
        client->session.pinned = true;
    }
}

static void replied_access(struct client *client, const struct resp_reply *reply)
{
    if (resp_reply_starts(reply, "+QUEUED")) {
        client->session.access_queued = true;
    } else if (!resp_reply_is_error(reply)) {
        upstream_access_changed(client->service->upstream);
    }
}

bool session_reply(struct client *client, struct expected_reply *expected, const struct resp_reply *reply)
{
    struct session *session = &client->session;

    if (expected->kind == EXPECT_SUBSCRIBE || expected->kind == EXPECT_UNSUBSCRIBE) {
        return session_replied_subscription(client, expected, reply);
    }
    if (session_is_push(client, reply)) {
        return false;
    }
    switch (expected->kind) {
    case EXPECT_MULTI:
        replied_multi(client, expected, reply);
        break;
    case EXPECT_EXEC:
        replied_exec(client, reply);
        break;
    case EXPECT_WATCH:
        expect(client, reply, is_ok(reply) || resp_reply_starts(reply, "+QUEUED"));
        session->watching = session->watching || !resp_reply_is_error(reply);
        break;
    case EXPECT_UNWATCH:
        expect(client, reply, is_ok(reply) || resp_reply_starts(reply, "+QUEUED"));
        session->watching = session->watching && !is_ok(reply);
        break;
    case EXPECT_BLOCKING:
        session->blocking--;
        if (expected->keeps_lane && !resp_reply_is_error(reply)) {
            session->waited = true;
        }
        session_id_is_used(client);
        break;
    case EXPECT_PROFILE:
        replied_profile(client, expected, reply);
        break;
    case EXPECT_NAME:
        replied_name(client, expected, reply);
        break;
    case EXPECT_LIBRARY:
        replied_library(client, expected, reply);
        break;
    case EXPECT_RIGHT:
        expect(client, reply, reply->type == '$' || reply->type == '_');
        profile_learn_right(client->profile, expected->right, reply);
        break;
    case EXPECT_STATE:
        replied_state(client, expected, reply);
        break;
    case EXPECT_ID:
        replied_id(client, reply);
        break;
    case EXPECT_RESET:
        replied_reset(client, reply);
        break;
    case EXPECT_PAUSE:
        if (resp_reply_starts(reply, "+OK")) {
            session_paused(client->service, expected->pause_ms);
        }
        break;
    case EXPECT_ACCESS:
        replied_access(client, reply);
        break;
    case EXPECT_UNKNOWN:
        replied_unknown(client, reply);
        break;
    case EXPECT_SCRIPT:
        replied_script(client, reply);
        break;
    case EXPECT_NOTHING:
    case EXPECT_SUBSCRIBE:
    case EXPECT_UNSUBSCRIBE:
        break;
    }
    return true;
}

bool client_has_no_answer(const struct client *client, const struct session_route *route)
{
    return route->passthrough || client->session.passthrough;
}

/* ---- routes ---- */

bool session_expect(struct client *client, struct session_route *route, enum expected_reply_kind kind)
{
    route->exclusive = true;
    route->expected = expected_reply_take(client->service, kind);
    if (route->expected == NULL) {
        return false;
    }
    route->expected->in_transaction = client->session.sent_transaction;
    return true;
}

bool session_say(struct session_route *route, enum session_answer how, const char *text)
{
    route->answer = how;
    snprintf(route->text, sizeof route->text, "%s", text);
    return true;
}

void session_drop_route(struct client *client, struct session_route *route)
{
    if (route->expected != NULL) {
        expected_reply_give(client->service, route->expected);
        route->expected = NULL;
    }
}

/* ---- what Redis may keep for ever ---- */

bool session_kind_may_block(enum expected_reply_kind kind)
{
    /* Nobody knows what an unknown command does. */
    return kind == EXPECT_BLOCKING || kind == EXPECT_UNKNOWN;
}

bool session_is_presumed(const struct expected_reply *expected)
{
    if (expected == NULL) {
        return false;
    }
    switch (expected->kind) {
    case EXPECT_MULTI:
    case EXPECT_WATCH:
    case EXPECT_PROFILE:
    case EXPECT_RESET:
    case EXPECT_STATE:
        return true;
    default:
        return false;
    }
}

void session_request_unsent(struct client *client, const struct expected_reply *expected)
{
    if (expected != NULL && session_kind_may_block(expected->kind) && client->session.blocking > 0) {
        client->session.blocking--;
    }
}
