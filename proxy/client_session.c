/*
 * What each command needs of the connection to Redis in pool = shared, and what its reply means for it. The table of
 * docs/compatibility.md is this file in words.
 */
#include "client_private.h"

#include "log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- small helpers ---- */

static struct slice kept_argument(const struct resp_command *framed, const char *frame, size_t index)
{
    const struct resp_argument *argument = &framed->arguments[index];

    return (struct slice){frame + argument->offset, (size_t)argument->length};
}

static bool slice_is(struct slice slice, const char *word)
{
    return slice.length == strlen(word) && strncasecmp(slice.data, word, slice.length) == 0;
}

static bool slice_integer(struct slice slice, int64_t *value)
{
    char digits[24];
    char *end;

    if (slice.length == 0 || slice.length >= sizeof digits) {
        return false;
    }
    memcpy(digits, slice.data, slice.length);
    digits[slice.length] = '\0';
    *value = strtoll(digits, &end, 10);
    return *end == '\0';
}

static bool head_is(const struct resp_reply *reply, const char *text)
{
    size_t length = strlen(text);

    return reply->head_length >= length && memcmp(reply->head, text, length) == 0;
}

static bool is_error(const struct resp_reply *reply)
{
    return reply->type == '-' || reply->type == '!';
}

static void answer(struct session_plan *plan, const char *text)
{
    plan->answer = SESSION_ANSWER_HERE;
    snprintf(plan->text, sizeof plan->text, "%s", text);
}

/* An error is one line whatever the client wrote, as Redis sees to it. */
static void end_error_line(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\r' || *text == '\n') {
            *text = ' ';
        }
    }
    memcpy(text, "\r\n", 3);
}

/* An exclusive lane, with the reply watched. */
static bool observe(struct client *client, struct session_plan *plan, enum observation_kind kind)
{
    plan->exclusive = true;
    plan->observation = observation_take(client->service, kind);
    if (plan->observation == NULL) {
        return false;
    }
    plan->observation->in_transaction = client->session.sent_transaction;
    return true;
}

/* ---- CLIENT ---- */

/* Redis allows in a name only what cannot break a line of CLIENT LIST. */
static bool name_is_sound(struct slice name)
{
    for (size_t i = 0; i < name.length; i++) {
        if (name.data[i] < '!' || name.data[i] > '~') {
            return false;
        }
    }
    return true;
}

/* Replaces *place by the text; an empty text means none. False when memory is short. */
static bool keep_text(char **place, struct slice text)
{
    char *copy = NULL;

    if (text.length > 0) {
        copy = strndup(text.data, text.length);
        if (copy == NULL) {
            return false;
        }
    }
    free(*place);
    *place = copy;
    return true;
}

/* A longer name is left to Redis, and its client keeps the lane that has it. */
#define LONGEST_NAME ((size_t)200)

/* Headgate answers for Redis only where Redis has shown that this user may ask. */
static bool may_answer_naming(const struct client *client)
{
    return client->exclusive == NULL && client->profile->naming == PROFILE_NAMING_ALLOWED;
}

static bool plan_setname(struct client *client, struct slice name, struct session_plan *plan)
{
    if (!may_answer_naming(client) || name.length > LONGEST_NAME) {
        if (!observe(client, plan, OBSERVE_NAME)) {
            return false;
        }
        plan->observation->name = strndup(name.data, name.length);
        return plan->observation->name != NULL;
    }
    if (!name_is_sound(name)) {
        answer(plan, "-ERR Client names cannot contain spaces, newlines or special characters.\r\n");
        return true;
    }
    answer(plan, "+OK\r\n");
    return keep_text(&client->name, name);
}

static void plan_getname(struct client *client, struct session_plan *plan)
{
    if (!may_answer_naming(client)) {
        plan->exclusive = true;
    } else if (client->name == NULL) {
        answer(plan, client->profile->resp == 3 ? "_\r\n" : "$-1\r\n");
    } else {
        plan->answer = SESSION_ANSWER_HERE;
        snprintf(plan->text, sizeof plan->text, "$%zu\r\n%s\r\n", strlen(client->name), client->name);
    }
}

/* CLIENT SETINFO came with Redis 7.2; an older one answers with an error, which is as good from here. */
#define VERSION_WITH_SETINFO ((uint32_t)7 << 16 | 2 << 8)

static bool plan_setinfo(struct client *client, struct slice attribute, struct slice value, struct slice subcommand,
                         struct session_plan *plan)
{
    uint32_t version = learn_redis_version(client->service->learn);

    if (!may_answer_naming(client) || version == 0) {
        plan->exclusive = true;
        return true;
    }
    if (version < VERSION_WITH_SETINFO) {
        plan->answer = SESSION_ANSWER_HERE;
        snprintf(plan->text, sizeof plan->text, "-ERR unknown subcommand '%.*s'. Try CLIENT HELP.\r\n",
                 (int)(subcommand.length > 128 ? 128 : subcommand.length), subcommand.data);
        return true;
    }
    bool is_name = slice_is(attribute, "lib-name");
    if (!is_name && !slice_is(attribute, "lib-ver")) {
        plan->answer = SESSION_ANSWER_HERE;
        snprintf(plan->text, sizeof plan->text, "-ERR Unrecognized option '%.*s'",
                 (int)(attribute.length > 128 ? 128 : attribute.length), attribute.data);
        end_error_line(plan->text);
        return true;
    }
    if (!name_is_sound(value)) {
        plan->answer = SESSION_ANSWER_HERE;
        snprintf(plan->text, sizeof plan->text, "-ERR %s cannot contain spaces, newlines or special characters.\r\n",
                 is_name ? "lib-name" : "lib-ver");
        return true;
    }
    answer(plan, "+OK\r\n");
    return keep_text(is_name ? &client->library_name : &client->library_version, value);
}

static bool plan_client_reply(struct client *client, struct slice mode, struct session_plan *plan)
{
    plan->exclusive = true;
    if (client->session.sent_transaction) {
        plan->tunnel = true;
        return true;
    }
    if (slice_is(mode, "on")) {
        return observe(client, plan, OBSERVE_REPLY_ON);
    }
    plan->silences = slice_is(mode, "off");
    plan->silences_next = slice_is(mode, "skip");
    plan->silent = plan->silences || plan->silences_next;
    /* If Redis refuses it (an ACL may say so), answers come that nobody counts: others must never get this lane. */
    plan->sticky = plan->silent;
    return true;
}

static bool plan_client(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_plan *plan)
{
    uint32_t count = framed->argument_count;

    if (count < 2) {
        return true;
    }
    struct slice subcommand = kept_argument(framed, frame, 1);
    if (slice_is(subcommand, "reply") && count == 3) {
        return plan_client_reply(client, kept_argument(framed, frame, 2), plan);
    }
    if (client->session.sent_transaction) {
        plan->exclusive = true;
        plan->sticky = true;
        return true;
    }
    if (slice_is(subcommand, "setname") && count == 3) {
        return plan_setname(client, kept_argument(framed, frame, 2), plan);
    }
    if (slice_is(subcommand, "getname") && count == 2) {
        plan_getname(client, plan);
        return true;
    }
    if (slice_is(subcommand, "setinfo") && count == 4) {
        return plan_setinfo(client, kept_argument(framed, frame, 2), kept_argument(framed, frame, 3), subcommand, plan);
    }
    plan->identity = true;
    if (slice_is(subcommand, "tracking") && count >= 3) {
        bool off = slice_is(kept_argument(framed, frame, 2), "off");
        return observe(client, plan, off ? OBSERVE_TRACKING_OFF : OBSERVE_TRACKING_ON);
    }
    plan->exclusive = true;
    plan->sticky = true;
    return true;
}

/* ---- AUTH, HELLO, SELECT ---- */

/* A text for a profile; NULL for one with a NUL in it, which no profile can hold. */
static char *profile_text(struct slice text)
{
    return memchr(text.data, '\0', text.length) == NULL ? strndup(text.data, text.length) : NULL;
}

static bool plan_auth(struct client *client, const struct resp_command *framed, const char *frame,
                      struct session_plan *plan)
{
    if (!observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    if (framed->argument_count == 2) {
        plan->observation->password = profile_text(kept_argument(framed, frame, 1));
    } else if (framed->argument_count == 3) {
        plan->observation->user = profile_text(kept_argument(framed, frame, 1));
        plan->observation->password = profile_text(kept_argument(framed, frame, 2));
    }
    plan->sticky = plan->observation->password == NULL;
    return true;
}

static bool plan_select(struct client *client, const struct resp_command *framed, const char *frame,
                        struct session_plan *plan)
{
    if (!observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    if (framed->argument_count == 2 && !slice_integer(kept_argument(framed, frame, 1), &plan->observation->database)) {
        plan->observation->database = -1;
    }
    return true;
}

/* HELLO [version [AUTH user password] [SETNAME name] …] */
static bool plan_hello(struct client *client, const struct resp_command *framed, const char *frame,
                       struct session_plan *plan)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument, user, value;
    int64_t version = 0;

    if (!observe(client, plan, OBSERVE_PROFILE)) {
        return false;
    }
    struct observation *observation = plan->observation;
    (void)resp_walk_next(&walk, &argument);
    if (resp_walk_next(&walk, &argument) && slice_integer(argument, &version)) {
        observation->resp = (int)version;
    }
    while (resp_walk_next(&walk, &argument)) {
        if (slice_is(argument, "auth") && resp_walk_next(&walk, &user) && resp_walk_next(&walk, &value)) {
            free(observation->user);
            free(observation->password);
            observation->user = profile_text(user);
            observation->password = profile_text(value);
            plan->sticky = plan->sticky || observation->password == NULL || observation->user == NULL;
        } else if (slice_is(argument, "setname") && resp_walk_next(&walk, &value)) {
            free(observation->name);
            observation->name = strndup(value.data, value.length);
            observation->has_unclear_errors = true;
        }
    }
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
    if (client->session.sent_transaction) {
        /* EXEC will answer with an unknown number of frames. */
        plan->exclusive = true;
        plan->tunnel = true;
        return true;
    }
    if (!observe(client, plan, opposite ? OBSERVE_UNSUBSCRIBE : OBSERVE_SUBSCRIBE)) {
        return false;
    }
    plan->observation->channel_kind = channel_kind_of(command->name);
    plan->observation->confirmations = framed->argument_count - 1;
    return true;
}

static bool blocks(const struct command *command, const struct resp_command *framed, const char *frame)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;

    if (command->kind == COMMAND_BLOCKING) {
        return true;
    }
    while (resp_walk_next(&walk, &argument) && !slice_is(argument, "streams")) {
        if (slice_is(argument, "block")) {
            return true;
        }
    }
    return false;
}

static bool plan_blocking(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan)
{
    if (client->session.sent_transaction || !blocks(command, framed, frame)) {
        return true;
    }
    return observe(client, plan, OBSERVE_BLOCKING);
}

static void plan_wait(struct client *client, struct session_plan *plan)
{
    if (!client->session.sent_transaction) {
        plan->exclusive = true;
        plan->own_writes = true;
        plan->sticky = true;
    }
}

static void plan_quit(struct client *client, struct session_plan *plan)
{
    plan->last = true;
    if (!client->service->settings.session_pool) {
        answer(plan, "+OK\r\n");
    }
}

static bool plan_reset(struct client *client, struct session_plan *plan)
{
    plan->barrier = true;
    return observe(client, plan, OBSERVE_RESET);
}

static void plan_alone(const struct resp_command *framed, const char *frame, struct session_plan *plan)
{
    plan->exclusive = true;
    /* DEBUG PROTOCOL PUSH is answered by a push. */
    if (framed->argument_count > 1 && slice_is(kept_argument(framed, frame, 1), "protocol")) {
        plan->tunnel = true;
    }
}

/* SYNC and PSYNC: what follows is not RESP. */
static bool is_sync(const struct command *command)
{
    return command != NULL && command->kind == COMMAND_REPLICATION && strcmp(command->name, "replconf") != 0;
}

static void plan_replication(const struct command *command, struct session_plan *plan)
{
    plan->exclusive = true;
    plan->sticky = true;
    /* Some of REPLCONF is not answered at all. */
    plan->tunnel = true;
    plan->raw = is_sync(command);
}

static bool give_identity(struct client *client, bool whole);

static bool sets_password(const struct resp_command *framed, const char *frame)
{
    struct resp_walk walk = resp_walk_start((struct slice){frame, (size_t)framed->size});
    struct slice argument;

    while (resp_walk_next(&walk, &argument)) {
        if (slice_is(argument, "requirepass")) {
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
    struct slice subcommand = kept_argument(framed, frame, 1);
    if (strcmp(command->name, "acl") == 0) {
        return slice_is(subcommand, "setuser") || slice_is(subcommand, "load");
    }
    return strcmp(command->name, "config") == 0 && slice_is(subcommand, "set") && sets_password(framed, frame);
}

static bool plan_ordinary(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan)
{
    if (!changes_access(command, framed, frame)) {
        return true;
    }
    plan->observation = observation_take(client->service, OBSERVE_ACCESS);
    return plan->observation != NULL;
}

static bool plan_by_kind(struct client *client, const struct command *command, const struct resp_command *framed,
                         const char *frame, struct session_plan *plan)
{
    switch (command->kind) {
    case COMMAND_ORDINARY:
        return plan_ordinary(client, command, framed, frame, plan);
    case COMMAND_MULTI:
        plan->begins_transaction = framed->argument_count == 1;
        return observe(client, plan, OBSERVE_MULTI);
    case COMMAND_EXEC:
    case COMMAND_DISCARD:
        plan->ends_transaction = framed->argument_count == 1;
        return observe(client, plan, OBSERVE_EXEC);
    case COMMAND_WATCH:
        return observe(client, plan, OBSERVE_WATCH);
    case COMMAND_UNWATCH:
        return client->exclusive == NULL || observe(client, plan, OBSERVE_UNWATCH);
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
        plan_replication(command, plan);
        return true;
    case COMMAND_CLIENT:
        return plan_client(client, framed, frame, plan);
    case COMMAND_AUTH:
        return plan_auth(client, framed, frame, plan);
    case COMMAND_HELLO:
        return plan_hello(client, framed, frame, plan);
    case COMMAND_SELECT:
        return plan_select(client, framed, frame, plan);
    case COMMAND_RESET:
        return plan_reset(client, plan);
    case COMMAND_WAIT:
        plan_wait(client, plan);
        return true;
    case COMMAND_QUIT:
        plan_quit(client, plan);
        return true;
    case COMMAND_HTTP:
        plan->answer = client->service->settings.session_pool ? SESSION_FORWARD : SESSION_CLOSE;
        return true;
    case COMMAND_STICKY:
        plan->exclusive = true;
        plan->sticky = true;
        return true;
    case COMMAND_ALONE:
        plan_alone(framed, frame, plan);
        return true;
    case COMMAND_EVAL:
        plan->script = true;
        return true;
    case COMMAND_SCRIPT:
        if (framed->argument_count > 1 && slice_is(kept_argument(framed, frame, 1), "debug")) {
            plan->exclusive = true;
            plan->tunnel = true;
        }
        return true;
    }
    return true;
}

bool session_plan_request(struct client *client, const struct command *command, const struct resp_command *framed,
                          const char *frame, struct session_plan *plan)
{
    *plan = (struct session_plan){.answer = SESSION_FORWARD};
    if (client->session.tunnel) {
        plan->exclusive = true;
        plan->raw = is_sync(command);
        return true;
    }
    bool planned =
        command != NULL ? plan_by_kind(client, command, framed, frame, plan) : observe(client, plan, OBSERVE_UNKNOWN);
    if (!planned) {
        return false;
    }
    bool silent = client->session.silent || client->session.silent_next;
    if (silent && plan->observation != NULL && plan->observation->kind != OBSERVE_REPLY_ON) {
        /* Its effect will not be seen, so nothing is known of the connection from here on. */
        plan->sticky = true;
    }
    return true;
}

static void sent_client_reply(struct session *session, const struct session_plan *plan)
{
    if (plan->silences) {
        session->silent = true;
    } else if (plan->silences_next) {
        session->silent_next = !session->silent;
    }
}

void session_request_sent(struct client *client, const struct session_plan *plan)
{
    struct session *session = &client->session;
    enum observation_kind kind = plan->observation != NULL ? plan->observation->kind : OBSERVE_NOTHING;

    session->sticky = session->sticky || plan->sticky;
    session->tunnel = session->tunnel || plan->tunnel;
    session->raw = session->raw || plan->raw;
    session->silent_next = false;
    if (plan->raw) {
        client->exclusive->raw = true;
    }
    if (client->owes_identity && !give_identity(client, true)) {
        client_close(client, "out of memory");
        return;
    }
    if (plan->begins_transaction || plan->ends_transaction) {
        session->sent_transaction = plan->begins_transaction;
        if (kind == OBSERVE_NOTHING) {
            /* Under CLIENT REPLY OFF or SKIP: no reply will tell. */
            session->known_transaction = session->sent_transaction;
        }
    } else if (kind == OBSERVE_BLOCKING) {
        session->blocking++;
    } else if (kind == OBSERVE_REPLY_ON) {
        session->silent = false;
    }
    sent_client_reply(session, plan);
}

/* ---- what replies mean ---- */

static void replied_multi(struct client *client, const struct observation *observation, const struct resp_reply *reply)
{
    if (!is_error(reply)) {
        client->session.known_transaction = true;
    } else if (!observation->in_transaction) {
        client->session.known_transaction = false;
    }
}

/* EXEC and DISCARD end the transaction and the watch, unless they were refused before they were looked at. */
static void replied_exec(struct client *client, const struct resp_reply *reply)
{
    if (!is_error(reply) || head_is(reply, "-EXECABORT") || head_is(reply, "-ERR EXEC without") ||
        head_is(reply, "-ERR DISCARD without")) {
        client->session.known_transaction = false;
        client->session.watching = client->session.watching && is_error(reply) && head_is(reply, "-ERR");
    }
}

static void replace_profile(struct client *client, struct profile *profile)
{
    if (profile == NULL) {
        client->session.sticky = true;
        return;
    }
    struct profile *before = client->profile;
    client->profile = profile;
    if (client->exclusive != NULL) {
        upstream_lane_speaks_for(client->exclusive, profile);
    }
    profile_release(before);
}

static void adopt_name(struct client *client, const char *name)
{
    bool kept = keep_text(&client->name, (struct slice){name, strlen(name)});

    if (!kept || strlen(name) > LONGEST_NAME) {
        client->session.sticky = true;
    }
    client->exclusive->named = true;
}

static bool profile_error_is_clear(const struct observation *observation, const struct resp_reply *reply)
{
    return !observation->has_unclear_errors || head_is(reply, "-NOPROTO");
}

static void replied_profile(struct client *client, struct observation *observation, const struct resp_reply *reply)
{
    if (is_error(reply)) {
        client->session.sticky = client->session.sticky || !profile_error_is_clear(observation, reply);
        return;
    }
    if (head_is(reply, "+QUEUED")) {
        /* Whether and when it is executed can no longer be followed. */
        client->session.sticky = true;
        return;
    }
    if (observation->password != NULL) {
        struct slice user = {observation->user, observation->user != NULL ? strlen(observation->user) : 0};
        struct slice password = {observation->password, strlen(observation->password)};
        replace_profile(client, profile_with_credentials(client->profile, user, password));
        /* Nobody knows whether this user may SELECT the database that was selected before. */
        client->session.sticky = client->session.sticky || client->profile->database != 0;
    }
    if (observation->resp != 0) {
        replace_profile(client, profile_with_resp(client->profile, observation->resp));
    }
    if (observation->database >= 0) {
        replace_profile(client, profile_with_database(client->profile, observation->database));
    }
    if (observation->name != NULL) {
        adopt_name(client, observation->name);
    }
}

/* After RESET the connection is a new one, but for the credentials that Headgate gives to those who have none. */
static void replied_reset(struct client *client, const struct resp_reply *reply)
{
    static const char ok_head[] = "+RESET";

    if (!head_is(reply, ok_head)) {
        return;
    }
    client->session = (struct session){0};
    replace_profile(client, upstream_default_profile(client->service->upstream));
    (void)keep_text(&client->name, (struct slice){0});
    client->heavy = 0;
    client->exclusive->expects_pushes = false;
    client->exclusive->untidy = true;
    client->exclusive->named = false;
    if (client->service->settings.session_pool && !upstream_greet_again(client->exclusive)) {
        client_close(client, "out of memory");
    }
}

static bool kind_is(const struct resp_reply *reply, const char *kind)
{
    char wanted[40];
    /* "*3\r\n$9\r\nsubscribe\r\n…" or the same with '>' */
    int length = snprintf(wanted, sizeof wanted, "3\r\n$%zu\r\n%s\r\n", strlen(kind), kind);

    return (reply->type == '*' || reply->type == '>') && reply->head_length > length &&
           memcmp(reply->head + 1, wanted, (size_t)length) == 0;
}

static bool is_confirmation(const struct resp_reply *reply, char channel_kind, bool opposite)
{
    static const char *const kinds[2][3] = {{"subscribe", "psubscribe", "ssubscribe"},
                                            {"unsubscribe", "punsubscribe", "sunsubscribe"}};

    return kind_is(reply, kinds[opposite][channel_kind == 'c' ? 0 : channel_kind == 'p' ? 1 : 2]);
}

/* The count that ends a confirmation is that of channels and patterns together; shard channels are counted apart. */
static int64_t *subscription_count(struct session *session, char channel_kind)
{
    return channel_kind == 'c'   ? &session->channels
           : channel_kind == 'p' ? &session->patterns
                                 : &session->shard_channels;
}

static void confirmed(struct client *client, char channel_kind, int64_t count)
{
    struct session *session = &client->session;
    int64_t others = channel_kind == 'c' ? session->patterns : channel_kind == 'p' ? session->channels : 0;

    *subscription_count(session, channel_kind) = count - others;
    if (client->exclusive != NULL) {
        client->exclusive->expects_pushes =
            session->channels > 0 || session->patterns > 0 || session->shard_channels > 0;
    }
}

/* Looks at any confirmation, whatever asked for it. True if it is one. */
static bool note_confirmation(struct client *client, const struct resp_reply *reply)
{
    static const char channel_kinds[] = {'c', 'p', 's'};

    for (size_t i = 0; i < sizeof channel_kinds; i++) {
        for (int opposite = 0; opposite < 2; opposite++) {
            if (is_confirmation(reply, channel_kinds[i], opposite != 0)) {
                confirmed(client, channel_kinds[i], reply->integer);
                return true;
            }
        }
    }
    return false;
}

static bool is_message(const struct client *client, const struct resp_reply *reply)
{
    const struct session *session = &client->session;

    if (reply->type == '>') {
        return true;
    }
    if (client->profile->resp == 3 ||
        (session->channels <= 0 && session->patterns <= 0 && session->shard_channels <= 0)) {
        return false;
    }
    return kind_is(reply, "message") || kind_is(reply, "smessage") || head_is(reply, "*4\r\n$8\r\npmessage\r\n");
}

static bool is_push(struct client *client, const struct resp_reply *reply)
{
    bool subscribed = client->profile->resp == 2 && client->exclusive != NULL && client->exclusive->expects_pushes;

    return ((reply->type == '>' || subscribed) && note_confirmation(client, reply)) || is_message(client, reply);
}

/* True when the last confirmation that this request is owed has come, or anything that is none. */
static bool replied_subscription(struct client *client, struct observation *observation, const struct resp_reply *reply)
{
    bool opposite = observation->kind == OBSERVE_UNSUBSCRIBE;

    if (!is_confirmation(reply, observation->channel_kind, opposite)) {
        if (note_confirmation(client, reply) || is_message(client, reply)) {
            return false;
        }
        client->session.sticky = client->session.sticky || !is_error(reply);
        return true;
    }
    if (!observation->started && observation->confirmations == 0) {
        /* UNSUBSCRIBE from all is confirmed once for each, and once if there is none. */
        int64_t count = *subscription_count(&client->session, observation->channel_kind);
        observation->confirmations = count > 1 ? (uint32_t)count : 1;
    }
    observation->started = true;
    confirmed(client, observation->channel_kind, reply->integer);
    observation->confirmations--;
    return observation->confirmations == 0;
}

bool session_reply(struct client *client, struct observation *observation, const struct resp_reply *reply)
{
    struct session *session = &client->session;

    if (observation->kind == OBSERVE_SUBSCRIBE || observation->kind == OBSERVE_UNSUBSCRIBE) {
        return replied_subscription(client, observation, reply);
    }
    if (is_push(client, reply)) {
        return false;
    }
    switch (observation->kind) {
    case OBSERVE_MULTI:
        replied_multi(client, observation, reply);
        break;
    case OBSERVE_EXEC:
        replied_exec(client, reply);
        break;
    case OBSERVE_WATCH:
        session->watching = session->watching || !is_error(reply);
        break;
    case OBSERVE_UNWATCH:
        session->watching = session->watching && !head_is(reply, "+OK");
        break;
    case OBSERVE_BLOCKING:
        session->blocking--;
        break;
    case OBSERVE_TRACKING_ON:
        session->tracking = session->tracking || !is_error(reply);
        break;
    case OBSERVE_TRACKING_OFF:
        session->tracking = session->tracking && !head_is(reply, "+OK");
        break;
    case OBSERVE_PROFILE:
        replied_profile(client, observation, reply);
        break;
    case OBSERVE_NAME:
        if (head_is(reply, "+OK")) {
            adopt_name(client, observation->name);
        }
        client->profile->naming = head_is(reply, "-NOPERM") ? PROFILE_NAMING_REFUSED : PROFILE_NAMING_ALLOWED;
        break;
    case OBSERVE_RESET:
        replied_reset(client, reply);
        break;
    case OBSERVE_ACCESS:
        if (!is_error(reply)) {
            upstream_renew_default(client->service->upstream);
        }
        break;
    case OBSERVE_UNKNOWN:
        session->sticky = session->sticky || !is_error(reply);
        break;
    case OBSERVE_NOTHING:
    case OBSERVE_REPLY_ON:
    case OBSERVE_SUBSCRIBE:
    case OBSERVE_UNSUBSCRIBE:
        break;
    }
    return true;
}

/* ---- the exclusive lane ---- */

bool session_is_clean(const struct client *client)
{
    const struct session *session = &client->session;

    return !client->service->settings.session_pool && !client->profile->needs_password && client->heavy == 0 &&
           !client->streaming && !session->known_transaction && !session->watching && !session->tracking &&
           !session->sticky && !session->tunnel && session->channels == 0 && session->patterns == 0 &&
           session->shard_channels == 0;
}

const char *session_reason(const struct client *client)
{
    const struct session *session = &client->session;

    if (client->exclusive == NULL) {
        return "shared";
    }
    return client->service->settings.session_pool                                          ? "session"
           : session->tunnel                                                               ? "tunnel"
           : session->blocking > 0                                                         ? "blocking"
           : session->known_transaction                                                    ? "transaction"
           : session->watching                                                             ? "watch"
           : session->channels > 0 || session->patterns > 0 || session->shard_channels > 0 ? "subscribed"
           : session->tracking                                                             ? "tracking"
           : session->silent                                                               ? "reply-mode"
           : client->profile->needs_password                                               ? "unauthenticated"
           : session->sticky                                                               ? "connection-state"
           : client->heavy > 0                                                             ? "large-values"
                                                                                           : "passing";
}

static bool send_name(struct lane *lane, const char *subcommand_and_key, const char *value)
{
    char command[640];
    int length = snprintf(command, sizeof command, "%s$%zu\r\n%s\r\n", subcommand_and_key, strlen(value), value);

    /* A name too long for this is not worth a larger buffer: the lane goes without. */
    return (size_t)length >= sizeof command || upstream_send_hidden(lane, command, (size_t)length, false);
}

#define SET_NAME "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n"
#define SET_LIBRARY_NAME "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n"
#define SET_LIBRARY_VERSION "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n"

static bool give_identity(struct client *client, bool whole)
{
    struct lane *lane = client->exclusive;

    client->owes_identity = false;
    if (client->name != NULL || lane->named) {
        lane->named = client->name != NULL;
        if (!send_name(lane, SET_NAME, lane->named ? client->name : "")) {
            return false;
        }
    }
    if (whole && client->library_name != NULL) {
        lane->untidy = true;
        if (!send_name(lane, SET_LIBRARY_NAME, client->library_name)) {
            return false;
        }
    }
    if (whole && client->library_version != NULL) {
        lane->untidy = true;
        return send_name(lane, SET_LIBRARY_VERSION, client->library_version);
    }
    return true;
}

static void taken(struct client *client)
{
    client->session.sent_transaction = false;
    stats_add(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
}

/* Others that wait on it would have to wait for this client, too, and would lose their replies with it. */
bool session_may_take_home_lane(const struct client *client)
{
    const struct lane *lane = upstream_shared_lane(client->profile, client->place);

    return lane != NULL && lane->id == client->last_lane_id && lane->state == LANE_READY &&
           !lane_serves_others(lane, client);
}

static void take_home_lane(struct client *client)
{
    struct lane *lane = upstream_shared_lane(client->profile, client->place);

    upstream_make_exclusive(lane, &session_lane_owner, client);
    client->exclusive = lane;
    client->owes_identity = true;
}

bool session_take_lane(struct client *client, const struct session_plan *plan)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";

    if (plan->own_writes && session_may_take_home_lane(client)) {
        take_home_lane(client);
        /* It gets the name after the WAIT: a command before it would make it wait for more than the own writes. */
        taken(client);
        return true;
    }
    client->exclusive = upstream_take_exclusive(client->profile, plan->raw, &session_lane_owner, client);
    if (client->exclusive == NULL) {
        return false;
    }
    taken(client);
    /* WAIT is about all that happened before the last command of its connection, so this makes it speak of everything
     * until now: of the client's own writes, too. */
    if (plan->own_writes && !upstream_send_hidden(client->exclusive, ping, sizeof ping - 1, false)) {
        return false;
    }
    return plan->raw || give_identity(client, plan->identity);
}

void session_leave_lane(struct client *client)
{
    struct lane *lane = client->exclusive;
    bool clean = client->sent_runs == 0 && session_is_clean(client);

    client->exclusive = NULL;
    client->session = (struct session){0};
    stats_subtract(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
    upstream_release_exclusive(lane, clean);
}

/* ---- what the exclusive lane tells ---- */

static void owner_bytes(void *owner, const char *data, size_t length)
{
    client_output(owner, data, length, true);
}

static bool owner_frame(void *owner, const struct resp_reply *reply)
{
    struct client *client = owner;

    client_push_ended(client);
    if (is_push(client, reply)) {
        return true;
    }
    if (client->first == NULL && note_confirmation(client, reply)) {
        /* SUBSCRIBE is confirmed even under CLIENT REPLY OFF. */
        return true;
    }
    if (client->first == NULL && !client->session.tunnel) {
        /* An answer to nothing that was asked: from here on nobody can tell what answers what. */
        client->session.sticky = true;
    }
    return false;
}

static void owner_broken(void *owner, const char *why)
{
    struct client *client = owner;

    if (client->exclusive == NULL) {
        return;
    }
    client->exclusive = NULL;
    stats_subtract(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
    if (client->state == CLIENT_OPEN) {
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
    }
    client_end(client, why);
}

static void owner_writable(void *owner)
{
    struct client *client = owner;

    if (client->wait == CLIENT_WAIT_LANE) {
        client->wait = CLIENT_WAIT_NOTHING;
        client_want_flush(client);
    }
}

const struct lane_owner session_lane_owner = {
    .bytes = owner_bytes,
    .frame = owner_frame,
    .broken = owner_broken,
    .writable = owner_writable,
};
