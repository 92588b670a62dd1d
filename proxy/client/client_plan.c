/*
 * What each command needs of the connection to Redis in pool = shared. The table of docs/compatibility.md is this file
 * in words.
 */
#include "client/client_private.h"

#include "resp/word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small helpers ---- */

static void answer(struct session_plan *plan, const char *text)
{
    plan->answer = SESSION_ANSWER_HERE;
    snprintf(plan->text, sizeof plan->text, "%s", text);
}

bool session_observe(struct client *client, struct session_plan *plan, enum observation_kind kind)
{
    plan->exclusive = true;
    plan->observation = observation_take(client->service, kind);
    if (plan->observation == NULL) {
        return false;
    }
    plan->observation->in_transaction = client->session.sent_transaction;
    return true;
}

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

/* Whether Redis' answer to it would not be seen, or not be told from others. */
static bool answers_unseen(const struct session *session)
{
    return session->tunnel || session->unsure || session->silent || session->silent_next;
}

/*
 * Requests after which rules would be asked about somebody else than who the client is. False: this one goes no
 * further. Within MULTI, Redis would do it amid EXEC, and what follows was judged before: it has words for commands
 * that it does not take there. Without rules it makes no difference.
 */
static bool may_change_identity(const struct client *client, struct session_plan *plan)
{
    if (!client->session.sent_transaction || !chain_wants_any(client->service->chain)) {
        return true;
    }
    answer(plan, "-ERR Command not allowed inside a transaction\r\n");
    plan->answer = SESSION_REFUSE;
    return false;
}

static bool is_judged(const struct client *client, const struct command *command, const struct resp_command *framed,
                      const char *frame, struct session_plan *plan)
{
    if (session_is_doubtful(client)) {
        answer(plan, SESSION_DOUBTFUL);
        plan->answer = SESSION_CLOSE;
        return false;
    }
    if (command != NULL && command->kind == COMMAND_RESET) {
        bool may_be_forged = client->session.split || client->session.scripts > 0;
        plan->unsure = client->session.tunnel || client->session.silent_next ||
                       (client->session.sent_transaction && may_be_forged);
        plan->names_client = true;
        return true;
    }
    if (!changes_identity(command, framed, frame)) {
        return true;
    }
    plan->unsure = answers_unseen(&client->session);
    plan->names_client = true;
    return may_change_identity(client, plan);
}

/* ---- AUTH, HELLO, SELECT ---- */

/* Keeps a text for a profile; one with a NUL in it no profile can hold. False when memory is short. */
static bool keep_text(struct observation *observation, char **place, struct slice text)
{
    if (word_has_nul(text)) {
        observation->has_hidden_text = true;
        return true;
    }
    *place = strndup(text.data, text.length);
    return *place != NULL;
}

/* Of several the last counts. */
static bool keep_credentials(struct observation *observation, struct slice user, struct slice password)
{
    free(observation->user);
    free(observation->password);
    observation->user = NULL;
    observation->password = NULL;
    observation->credentials++;
    return keep_text(observation, &observation->user, user) && keep_text(observation, &observation->password, password);
}

static bool plan_auth(struct client *client, const struct resp_command *framed, const char *frame,
                      struct session_plan *plan)
{
    if (!session_observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    plan->logs_in = true;
    plan->barrier = true;
    if (framed->argument_count == 2) {
        plan->observation->credentials = 1;
        return keep_text(plan->observation, &plan->observation->password, session_kept_argument(framed, frame, 1));
    }
    return framed->argument_count != 3 || keep_credentials(plan->observation, session_kept_argument(framed, frame, 1),
                                                           session_kept_argument(framed, frame, 2));
}

static bool plan_select(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_plan *plan)
{
    if (!session_observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    if (framed->argument_count == 2 &&
        !word_integer(session_kept_argument(framed, frame, 1), &plan->observation->database)) {
        plan->observation->database = -1;
    }
    return true;
}

/*
 * An option of HELLO that begins with this argument. After an error nobody knows which of several were applied: before
 * Redis 6.2.7 each was as it was read. False when memory is short.
 */
static bool take_hello_option(struct observation *observation, struct resp_walk *walk, struct slice option)
{
    struct slice first, second;

    observation->has_unclear_errors = observation->has_unclear_errors || observation->credentials > 0;
    if (word_is(option, "auth") && walk->left >= 2) {
        (void)resp_walk_next(walk, &first);
        (void)resp_walk_next(walk, &second);
        return keep_credentials(observation, first, second);
    }
    observation->has_unclear_errors = true;
    if (word_is(option, "setname") && walk->left >= 1) {
        (void)resp_walk_next(walk, &first);
        free(observation->name);
        observation->name = strndup(first.data, first.length);
        return observation->name != NULL;
    }
    return true;
}

/* HELLO [version [AUTH user password] [SETNAME name] …] */
static bool plan_hello(struct client *client, const struct resp_command *framed, const char *frame,
                       struct session_plan *plan)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;
    int64_t version = 0;

    if (!session_observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    struct observation *observation = plan->observation;
    observation->is_hello = true;
    (void)resp_walk_next(&walk, &argument);
    if (resp_walk_next(&walk, &argument) && word_integer(argument, &version)) {
        observation->resp = version == 2 || version == 3 ? (int)version : 0;
    }
    while (resp_walk_next(&walk, &argument)) {
        if (!take_hello_option(observation, &walk, argument)) {
            return false;
        }
    }
    plan->logs_in = observation->credentials > 0;
    plan->barrier = plan->logs_in;
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

static bool plan_subscribe(struct client *client, const struct command *command, const struct resp_command *framed,
                           struct session_plan *plan)
{
    bool opposite = command->kind == COMMAND_UNSUBSCRIBE;

    plan->identity = true;
    bool is_silent = client->session.silent || client->session.silent_next;
    if (client->session.sent_transaction || (is_silent && client->profile->resp == 2)) {
        /* EXEC will answer with an unknown number of frames. Under CLIENT REPLY the confirmations come all the same,
         * and then CLIENT REPLY ON is refused without a word. */
        plan->exclusive = true;
        plan->tunnel = true;
        return true;
    }
    if (!session_observe(client, plan, opposite ? OBSERVE_UNSUBSCRIBE : OBSERVE_SUBSCRIBE)) {
        return false;
    }
    plan->observation->channel_kind = channel_kind_of(command->name);
    plan->observation->confirmations = framed->argument_count - 1;
    return true;
}

static bool plan_blocking(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan)
{
    if (client->session.sent_transaction || !command_blocks(command, (struct slice){frame, (size_t)framed->size})) {
        return true;
    }
    return session_observe(client, plan, OBSERVE_BLOCKING);
}

static bool plan_wait(struct client *client, struct session_plan *plan)
{
    if (client->session.sent_transaction) {
        return true;
    }
    plan->own_writes = true;
    if (!session_observe(client, plan, OBSERVE_BLOCKING)) {
        return false;
    }
    plan->observation->keeps_lane = true;
    return true;
}

static void plan_quit(struct client *client, struct session_plan *plan)
{
    plan->last = true;
    /* On a lane that others will never get there may be answers under way that nobody counts: Redis' own comes behind
     * them. Others' lane would end with it. */
    if (client->session.sticky || client->service->settings.session_pool) {
        plan->exclusive = true;
    } else {
        answer(plan, "+OK\r\n");
    }
}

static bool plan_reset(struct client *client, const struct resp_command *framed, struct session_plan *plan)
{
    if (framed->argument_count != 1) {
        /* Redis refuses it, under CLIENT REPLY OFF without a word. */
        plan->exclusive = true;
        return true;
    }
    plan->barrier = true;
    return session_observe(client, plan, OBSERVE_RESET);
}

static void plan_alone(const struct resp_command *framed, const char *frame, struct session_plan *plan)
{
    plan->exclusive = true;
    /* Nobody knows all that DEBUG can do to a connection. */
    plan->dirty = true;
    /* DEBUG PROTOCOL PUSH is answered by a push. */
    if (framed->argument_count > 1 && word_is(session_kept_argument(framed, frame, 1), "protocol")) {
        plan->tunnel = true;
    }
}

/* SYNC and PSYNC: what follows is not RESP. */
static bool is_sync(const struct command *command)
{
    return command != NULL && command->kind == COMMAND_REPLICATION && strcmp(command->name, "replconf") != 0;
}

static bool plan_sync(struct client *client, struct session_plan *plan)
{
    plan->sync = true;
    plan->tunnel = client->session.silent || client->session.silent_next;
    plan->dirty = true;
    plan->barrier = true;
    return session_observe(client, plan, OBSERVE_SYNC);
}

static void plan_replconf(struct session_plan *plan)
{
    plan->exclusive = true;
    plan->sticky = true;
    /* Some of it is not answered at all. */
    plan->tunnel = true;
}

static bool plan_unknown(struct client *client, struct session_plan *plan)
{
    if (!session_observe(client, plan, OBSERVE_UNKNOWN)) {
        return false;
    }
    plan->observation->is_absent = client->lookup == CLIENT_LOOKUP_ABSENT;
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

static bool plan_container(struct client *client, const struct command *command, const struct resp_command *framed,
                           const char *frame, struct session_plan *plan)
{
    if (strcmp(command->name, "function") == 0) {
        return session_observe(client, plan, OBSERVE_SCRIPT);
    }
    if (!changes_access(command, framed, frame)) {
        return true;
    }
    plan->observation = observation_take(client->service, OBSERVE_ACCESS);
    return plan->observation != NULL;
}

/*
 * Redis 7.0 keeps the connection of its debugger in one place for all clients, and does not notice when it is closed:
 * the next session may be held with whoever has come since. On a lane that would be all clients of it, who would be
 * answered by the debugger. Source: Redis 7.0, eval.c (ldbEnable, ldbStartSession).
 */
static bool plan_script(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_plan *plan)
{
    if (framed->argument_count < 2 || !word_is(session_kept_argument(framed, frame, 1), "debug")) {
        return session_observe(client, plan, OBSERVE_SCRIPT);
    }
    if (!client->service->settings.session_pool && framed->argument_count == 3 &&
        !word_is(session_kept_argument(framed, frame, 2), "no")) {
        answer(plan, "-ERR headgate: SCRIPT DEBUG might reach others, and is passed on with pool = session only\r\n");
        plan->answer = SESSION_REFUSE;
        return true;
    }
    plan->exclusive = true;
    plan->tunnel = true;
    return true;
}

static bool plan_by_kind(struct client *client, const struct command *command, const struct resp_command *framed,
                         const char *frame, struct session_plan *plan)
{
    switch (command->kind) {
    case COMMAND_ORDINARY:
        return true;
    case COMMAND_CONTAINER:
        return plan_container(client, command, framed, frame, plan);
    case COMMAND_MULTI:
        plan->begins_transaction = framed->argument_count == 1;
        return session_observe(client, plan, OBSERVE_MULTI);
    case COMMAND_EXEC:
    case COMMAND_DISCARD:
        plan->ends_transaction = framed->argument_count == 1;
        return session_observe(client, plan, OBSERVE_EXEC);
    case COMMAND_WATCH:
        return session_observe(client, plan, OBSERVE_WATCH);
    case COMMAND_UNWATCH:
        return client->exclusive == NULL || session_observe(client, plan, OBSERVE_UNWATCH);
    case COMMAND_BLOCKING:
    case COMMAND_BLOCKING_IF:
        return plan_blocking(client, command, framed, frame, plan);
    case COMMAND_SUBSCRIBE:
    case COMMAND_UNSUBSCRIBE:
        return plan_subscribe(client, command, framed, plan);
    case COMMAND_MONITOR:
        plan->exclusive = true;
        plan->identity = true;
        plan->tunnel = true;
        return true;
    case COMMAND_REPLICATION:
        if (is_sync(command)) {
            return plan_sync(client, plan);
        }
        plan_replconf(plan);
        return true;
    case COMMAND_CLIENT:
        return session_plan_client(client, framed, frame, plan);
    case COMMAND_AUTH:
        return plan_auth(client, framed, frame, plan);
    case COMMAND_HELLO:
        return plan_hello(client, framed, frame, plan);
    case COMMAND_SELECT:
        return plan_select(client, framed, frame, plan);
    case COMMAND_RESET:
        return plan_reset(client, framed, plan);
    case COMMAND_WAIT:
        return plan_wait(client, plan);
    case COMMAND_QUIT:
        plan_quit(client, plan);
        return true;
    case COMMAND_HTTP:
        answer(plan, "spoke HTTP");
        plan->answer = client->service->settings.session_pool ? SESSION_FORWARD : SESSION_CLOSE;
        return true;
    case COMMAND_STICKY:
        return session_observe(client, plan, OBSERVE_STATE);
    case COMMAND_ALONE:
        plan_alone(framed, frame, plan);
        return true;
    case COMMAND_EVAL:
        return session_observe(client, plan, OBSERVE_SCRIPT);
    case COMMAND_SCRIPT:
        return plan_script(client, framed, frame, plan);
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

bool session_plan_request(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan)
{
    *plan = (struct session_plan){.answer = SESSION_FORWARD};
    if (!is_judged(client, command, framed, frame, plan)) {
        return true;
    }
    if (client->session.tunnel) {
        plan->exclusive = true;
        plan->sync = is_sync(command);
        return true;
    }
    plan->sticky = command != NULL && cannot_be_repeated(command, framed, frame);
    bool planned = command != NULL ? plan_by_kind(client, command, framed, frame, plan) : plan_unknown(client, plan);
    if (!planned) {
        return false;
    }
    bool silent = client->session.silent || client->session.silent_next;
    if (silent && plan->observation != NULL && plan->observation->kind != OBSERVE_REPLY_ON) {
        /* Its effect will not be seen, so nothing is known of the connection from here on. */
        plan->sticky = true;
        plan->unsure = plan->unsure || (plan->observation->kind == OBSERVE_UNKNOWN && !plan->observation->is_absent);
    }
    return true;
}

void session_drop_plan(struct client *client, struct session_plan *plan)
{
    if (plan->observation != NULL) {
        observation_give(client->service, plan->observation);
        plan->observation = NULL;
    }
}
