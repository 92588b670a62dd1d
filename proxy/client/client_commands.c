/*
 * What each command needs of the connection to Redis in pool = shared. The table of docs/compatibility.md is this file
 * in words.
 */
#include "client/client_private.h"

#include "resp/word.h"

#include <stdlib.h>
#include <string.h>

/* ---- who the client is ---- */

/* Whether it makes the client somebody else, by its user or its name. */
static bool changes_identity(const struct command *command, const struct resp_command *framed, const char *frame)
{
    if (command == NULL) {
        return false;
    }
    switch (command->kind) {
    case COMMAND_AUTH:
        return true;
    case COMMAND_HELLO:
        return framed->argument_count > 2;
    case COMMAND_CLIENT:
        return framed->argument_count > 1 && word_is(session_kept_argument(framed, frame, 1), "setname");
    default:
        return false;
    }
}

/*
 * Requests after which rules would be asked about somebody else than who the client is. False: this one goes no
 * further. Within MULTI, Redis would do it amid EXEC, and what follows was judged before: it has words for commands
 * that it does not take there. Without rules it makes no difference.
 */
static bool may_change_identity(const struct client *client, struct session_route *route)
{
    if (!client->session.sent_transaction || !chain_wants_any(client->service->chain)) {
        return true;
    }
    return !session_say(route, SESSION_REFUSE, "-ERR Command not allowed inside a transaction\r\n");
}

/* RESET where its answer is not seen leaves the client as Redis' default user, who may be allowed more than what
 * Headgate has authenticated it as. */
static bool is_given_credentials(const struct client *client)
{
    struct profile *arrival = client_arrival_profile(client);
    bool is_given = arrival->password != NULL;

    profile_release(arrival);
    return is_given;
}

static bool is_judged(const struct client *client, const struct command *command, const struct resp_command *framed,
                      const char *frame, struct session_route *route)
{
    if (session_is_doubtful(client)) {
        return !session_say(route, SESSION_CLOSE, SESSION_DOUBTFUL);
    }
    if (command != NULL && command->kind == COMMAND_RESET) {
        route->last = client->session.passthrough && framed->argument_count == 1 && is_given_credentials(client);
        bool may_be_forged = client->session.split || client->session.scripts > 0;
        route->unsure = client->session.passthrough || (client->session.sent_transaction && may_be_forged);
        route->names_client = true;
        return true;
    }
    if (!changes_identity(command, framed, frame)) {
        return true;
    }
    /* Redis' answer to it would not be seen. */
    route->unsure = client->session.passthrough;
    route->names_client = true;
    return may_change_identity(client, route);
}

/* ---- AUTH, HELLO, SELECT ---- */

/* Keeps a text for a profile; one with a NUL in it no profile can hold. False when memory is short. */
static bool keep_text(struct expected_reply *expected, char **place, struct slice text)
{
    if (word_has_nul(text)) {
        expected->has_hidden_text = true;
        return true;
    }
    *place = strndup(text.data, text.length);
    return *place != NULL;
}

/* Of several the last counts. */
static bool keep_credentials(struct expected_reply *expected, struct slice user, struct slice password)
{
    free(expected->user);
    free(expected->password);
    expected->user = NULL;
    expected->password = NULL;
    expected->credentials++;
    return keep_text(expected, &expected->user, user) && keep_text(expected, &expected->password, password);
}

static bool route_auth(struct client *client, const struct resp_command *framed, const char *frame,
                       struct session_route *route)
{
    if (!session_expect(client, route, EXPECT_PROFILE)) {
        return false;
    }
    route->logs_in = true;
    route->barrier = true;
    if (framed->argument_count == 2) {
        route->expected->credentials = 1;
        return keep_text(route->expected, &route->expected->password, session_kept_argument(framed, frame, 1));
    }
    return framed->argument_count != 3 || keep_credentials(route->expected, session_kept_argument(framed, frame, 1),
                                                           session_kept_argument(framed, frame, 2));
}

/* What is under way was asked in another database, and ends first. */
static enum session_place place_for_select(struct client *client, int64_t database)
{
    const struct session *session = &client->session;
    bool is_known = !session->sent_transaction && !session->unproven && !client->profile->needs_password &&
                    profile_may_select(client->profile, database);
    enum session_place place = is_known ? session_place_here(client) : SESSION_PLACE_LANE;

    return place == SESSION_PLACE_HERE && client->sent_runs > 0 ? SESSION_PLACE_LATER : place;
}

static bool route_select(struct client *client, const struct resp_command *framed, const char *frame,
                         struct session_route *route)
{
    int64_t database;

    if (framed->argument_count != 2 || !word_integer(session_kept_argument(framed, frame, 1), &database)) {
        database = -1;
    }
    enum session_place place = route->pinned ? SESSION_PLACE_LANE : place_for_select(client, database);
    if (place == SESSION_PLACE_LATER) {
        route->answer = SESSION_LATER;
        return true;
    }
    if (place == SESSION_PLACE_HERE) {
        return session_say(route, SESSION_ANSWER_HERE, "+OK\r\n") &&
               session_change_profile(client, profile_with_database(client->profile, database));
    }
    bool is_taken = session_expect(client, route, EXPECT_PROFILE);
    if (is_taken) {
        route->expected->database = database;
    }
    return is_taken;
}

/*
 * An option of HELLO that begins with this argument. After an error nobody knows which of several were applied: before
 * Redis 6.2.7 each was as it was read. False when memory is short.
 */
static bool take_hello_option(struct expected_reply *expected, struct resp_walk *walk, struct slice option)
{
    struct slice first, second;

    expected->has_unclear_errors = expected->has_unclear_errors || expected->credentials > 0;
    if (word_is(option, "auth") && walk->left >= 2) {
        (void)resp_walk_next(walk, &first);
        (void)resp_walk_next(walk, &second);
        return keep_credentials(expected, first, second);
    }
    expected->has_unclear_errors = true;
    if (word_is(option, "setname") && walk->left >= 1) {
        (void)resp_walk_next(walk, &first);
        free(expected->name);
        expected->name = strndup(first.data, first.length);
        return expected->name != NULL;
    }
    return true;
}

/* HELLO [version [AUTH user password] [SETNAME name] …] */
static bool route_hello(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_route *route)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;
    int64_t version = 0;

    if (!session_expect(client, route, EXPECT_PROFILE)) {
        return false;
    }
    struct expected_reply *expected = route->expected;
    expected->is_hello = true;
    (void)resp_walk_next(&walk, &argument);
    if (resp_walk_next(&walk, &argument) && word_integer(argument, &version)) {
        expected->resp = version == 2 || version == 3 ? (int)version : 0;
    }
    while (resp_walk_next(&walk, &argument)) {
        if (!take_hello_option(expected, &walk, argument)) {
            return false;
        }
    }
    route->logs_in = expected->credentials > 0;
    /* Before a cluster the protocol decides which lane a subscription is on, and so has to be known before it. */
    route->barrier = route->logs_in || (expected->resp == 3 && client->service->cluster != NULL);
    return true;
}

/* ---- the others ---- */

/* 'p' for patterns, 's' for shard channels, 'c' for plain channels. */
static char channel_kind_of(const char *name)
{
    if (name[0] == 'p') {
        return 'p';
    }
    return strcmp(name, "ssubscribe") == 0 || strcmp(name, "sunsubscribe") == 0 ? 's' : 'c';
}

static bool route_subscribe(struct client *client, const struct command *command, const struct resp_command *framed,
                            struct session_route *route)
{
    bool opposite = command->kind == COMMAND_UNSUBSCRIBE;

    route->identity = true;
    if (client->session.sent_transaction) {
        /* EXEC will answer with an unknown number of frames. */
        route->exclusive = true;
        route->passthrough = true;
        return true;
    }
    if (!session_expect(client, route, opposite ? EXPECT_UNSUBSCRIBE : EXPECT_SUBSCRIBE)) {
        return false;
    }
    route->expected->channel_kind = channel_kind_of(command->name);
    route->expected->confirmations = framed->argument_count - 1;
    return true;
}

static bool route_blocking(struct client *client, const struct command *command, const struct resp_command *framed,
                           const char *frame, struct session_route *route)
{
    if (client->session.sent_transaction || !command_blocks(command, (struct slice){frame, (size_t)framed->size})) {
        return true;
    }
    return session_expect(client, route, EXPECT_BLOCKING);
}

static bool route_wait(struct client *client, struct session_route *route)
{
    if (client->session.sent_transaction) {
        return true;
    }
    route->own_writes = true;
    if (!session_expect(client, route, EXPECT_BLOCKING)) {
        return false;
    }
    route->expected->keeps_lane = true;
    return true;
}

static void route_quit(struct client *client, struct session_route *route)
{
    route->last = true;
    /* On a lane that others will never get there may be answers under way that nobody counts: Redis' own comes behind
     * them. Others' lane would end with it. */
    if (client->session.pinned || client->service->settings.session_pool) {
        route->exclusive = true;
    } else {
        (void)session_say(route, SESSION_ANSWER_HERE, "+OK\r\n");
    }
}

static bool route_reset(struct client *client, const struct resp_command *framed, struct session_route *route)
{
    if (framed->argument_count != 1) {
        /* Redis refuses it. */
        route->exclusive = true;
        return true;
    }
    route->barrier = true;
    return session_expect(client, route, EXPECT_RESET);
}

static void route_alone(const struct resp_command *framed, const char *frame, struct session_route *route)
{
    route->exclusive = true;
    /* Nobody knows all that DEBUG can do to a connection. */
    route->dirty = true;
    /* DEBUG PROTOCOL PUSH is answered by a push. */
    if (framed->argument_count > 1 && word_is(session_kept_argument(framed, frame, 1), "protocol")) {
        route->passthrough = true;
    }
}

/* SYNC and PSYNC: what follows is not RESP. */
static bool is_sync(const struct command *command)
{
    return command->kind == COMMAND_REPLICATION && strcmp(command->name, "replconf") != 0;
}

static bool route_unknown(struct client *client, struct session_route *route)
{
    if (!session_expect(client, route, EXPECT_UNKNOWN)) {
        return false;
    }
    route->expected->is_absent = client->lookup == CLIENT_LOOKUP_ABSENT;
    return true;
}

static bool sets_password(const struct resp_command *framed, const char *frame)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;

    while (resp_walk_next(&walk, &argument)) {
        if (word_is(argument, "requirepass")) {
            return true;
        }
    }
    return false;
}

/* Commands after which Redis may want a password of new connections, or no longer want one. */
static bool changes_access(const struct command *command, const struct resp_command *framed, const char *frame)
{
    if (framed->argument_count < 2) {
        return false;
    }
    struct slice subcommand = session_kept_argument(framed, frame, 1);
    if (strcmp(command->name, "acl") == 0) {
        return word_is(subcommand, "setuser") || word_is(subcommand, "deluser") || word_is(subcommand, "load");
    }
    return strcmp(command->name, "config") == 0 && word_is(subcommand, "set") && sets_password(framed, frame);
}

/* SCRIPT KILL and FUNCTION KILL go on the home lane, if it is ready: while Redis runs a script it takes them, and may
 * not take what a new lane has to say. */
static bool route_kill(struct client *client, const struct resp_command *framed, const char *frame,
                       struct session_route *route)
{
    const struct lane *home = upstream_first_lane(client->profile);

    route->ends_script = framed->argument_count == 2 && word_is(session_kept_argument(framed, frame, 1), "kill");
    return route->ends_script && home != NULL && home->state == LANE_READY;
}

static bool route_container(struct client *client, const struct command *command, const struct resp_command *framed,
                            const char *frame, struct session_route *route)
{
    if (strcmp(command->name, "function") == 0) {
        return route_kill(client, framed, frame, route) || session_expect(client, route, EXPECT_SCRIPT);
    }
    if (!changes_access(command, framed, frame)) {
        return true;
    }
    route->expected = expected_reply_take(client->service, EXPECT_ACCESS);
    return route->expected != NULL;
}

/*
 * Redis 7.0 keeps the connection of its debugger in one place for all clients, and does not notice when it is closed:
 * the next session may be held with whoever has come since. On a lane that would be all clients of it, who would be
 * answered by the debugger. And rules could not tell what is said to it from commands. Source: Redis 7.0, eval.c
 * (ldbEnable, ldbStartSession).
 */
bool session_may_debug(const struct client *client)
{
    return client->service->settings.session_pool && client->service->cluster == NULL &&
           !chain_wants_any(client->service->chain);
}

static bool begins_debugger(const struct command *command, const struct resp_command *framed, const char *frame)
{
    return command != NULL && command->kind == COMMAND_SCRIPT && framed->argument_count == 3 &&
           word_is(session_kept_argument(framed, frame, 1), "debug") &&
           !word_is(session_kept_argument(framed, frame, 2), "no");
}

static bool route_by_kind(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_route *route)
{
    switch (command->kind) {
    case COMMAND_ORDINARY:
        return true;
    case COMMAND_CONTAINER:
        return route_container(client, command, framed, frame, route);
    case COMMAND_MULTI:
        route->begins_transaction = framed->argument_count == 1;
        return session_expect(client, route, EXPECT_MULTI);
    case COMMAND_EXEC:
    case COMMAND_DISCARD:
        route->ends_transaction = framed->argument_count == 1;
        return session_expect(client, route, EXPECT_EXEC);
    case COMMAND_WATCH:
        return session_expect(client, route, EXPECT_WATCH);
    case COMMAND_UNWATCH:
        return client->exclusive == NULL || session_expect(client, route, EXPECT_UNWATCH);
    case COMMAND_BLOCKING:
    case COMMAND_BLOCKING_IF:
        return route_blocking(client, command, framed, frame, route);
    case COMMAND_SUBSCRIBE:
    case COMMAND_UNSUBSCRIBE:
        return route_subscribe(client, command, framed, route);
    case COMMAND_MONITOR:
        route->exclusive = true;
        route->identity = true;
        route->passthrough = true;
        return true;
    case COMMAND_REPLICATION:
        /* Some of it is not answered at all. */
        route->exclusive = true;
        route->passthrough = true;
        route->sync = is_sync(command);
        return true;
    case COMMAND_CLIENT:
        return session_route_client(client, framed, frame, route);
    case COMMAND_AUTH:
        return route_auth(client, framed, frame, route);
    case COMMAND_HELLO:
        return route_hello(client, framed, frame, route);
    case COMMAND_SELECT:
        return route_select(client, framed, frame, route);
    case COMMAND_RESET:
        return route_reset(client, framed, route);
    case COMMAND_WAIT:
        return route_wait(client, route);
    case COMMAND_QUIT:
        route_quit(client, route);
        return true;
    case COMMAND_HTTP:
        return session_say(route, client->service->settings.session_pool ? SESSION_FORWARD : SESSION_CLOSE,
                           "spoke HTTP");
    case COMMAND_PINNED:
        return session_expect(client, route, EXPECT_STATE);
    case COMMAND_ALONE:
        route_alone(framed, frame, route);
        return true;
    case COMMAND_EVAL:
        return session_expect(client, route, EXPECT_SCRIPT);
    case COMMAND_SCRIPT:
        if (route_kill(client, framed, frame, route)) {
            return true;
        }
        route->exclusive = true;
        route->passthrough = begins_debugger(command, framed, frame);
        return route->passthrough || session_expect(client, route, EXPECT_SCRIPT);
    }
    return true;
}

/* What it tells a connection Headgate has to tell others, and it knows these commands by their own names only: under
 * another one (rename-command) the client keeps the lane that has heard it. */
static bool cannot_be_repeated(const struct command *command, const struct resp_command *framed, const char *frame)
{
    bool is_told_to_lanes = command->kind == COMMAND_AUTH || command->kind == COMMAND_HELLO ||
                            command->kind == COMMAND_SELECT || command->kind == COMMAND_CLIENT;

    return is_told_to_lanes && !word_is(session_kept_argument(framed, frame, 0), command->name);
}

/* What concerns all is presumed to be done, which costs others a little where it is not. If it waits for an EXEC, any
 * may be the one. */
static void presume(struct client *client, const struct command *command, const struct resp_command *framed,
                    const char *frame)
{
    bool changes = changes_access(command, framed, frame);
    int64_t pause_ms;

    client->session.access_queued = client->session.access_queued || changes;
    if (changes || (command->kind == COMMAND_EXEC && client->session.access_queued)) {
        upstream_access_changed(client->service->upstream);
    }
    bool is_pause = command->kind == COMMAND_CLIENT && framed->argument_count > 2 &&
                    word_is(session_kept_argument(framed, frame, 1), "pause");
    if (is_pause && word_integer(session_kept_argument(framed, frame, 2), &pause_ms) && pause_ms > 0) {
        session_paused(client->service, pause_ms);
    }
}

/* A request of a passthrough: nothing will tell what became of it. */
static void route_bytes(struct client *client, const struct command *command, const struct resp_command *framed,
                        const char *frame, struct session_route *route)
{
    struct session *session = &client->session;
    struct slice bytes = {frame, (size_t)framed->size};

    route->exclusive = true;
    if (command == NULL) {
        route->unsure = client->lookup != CLIENT_LOOKUP_ABSENT;
        session->blocking_unseen = session->blocking_unseen || route->unsure;
        return;
    }
    presume(client, command, framed, frame);
    route->sync = is_sync(command);
    session->database_unseen = session->database_unseen || command->kind == COMMAND_SELECT;
    session->blocking_unseen =
        session->blocking_unseen || command->kind == COMMAND_WAIT || command_blocks(command, bytes);
}

bool session_route_request(struct client *client, const struct command *command, const struct resp_command *framed,
                           const char *frame, struct session_route *route)
{
    *route = (struct session_route){.answer = SESSION_FORWARD};
    if (!is_judged(client, command, framed, frame, route)) {
        return true;
    }
    if (begins_debugger(command, framed, frame) && !session_may_debug(client)) {
        /* Who does not look at the answer would have the script run for good. */
        route->last = true;
        return session_say(route, SESSION_REFUSE,
                           "-ERR headgate: SCRIPT DEBUG might reach others: it is passed on with pool = session, "
                           "without rules, before one server\r\n");
    }
    if (client->session.passthrough) {
        route_bytes(client, command, framed, frame, route);
        return true;
    }
    route->pinned = command != NULL && cannot_be_repeated(command, framed, frame);
    if (command == NULL) {
        return route_unknown(client, route);
    }
    bool routed = route_by_kind(client, command, framed, frame, route);
    if (route->passthrough && client->profile->needs_password && !client->session.known_transaction) {
        /* Redis would say no more than that, and AUTH may follow; unless it has let it in before, and takes a MULTI. */
        enum session_answer how = client->sent_runs > 0 ? SESSION_LATER : SESSION_ANSWER_HERE;
        (void)session_say(route, how, "-NOAUTH Authentication required.\r\n");
    }
    return routed;
}
