#include "upstream/server_info.h"

#include "base/log.h"
#include "resp/word.h"
#include "upstream/learned_keys.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* More commands than this are not learned, and a list of more is not believed: no server has so many, and each is
 * looked for among all. */
#define SERVER_INFO_MAX 2048
/* Names in one COMMAND INFO, so that no answer of it keeps clients waiting. */
#define SERVER_INFO_BATCH 32
/* The end of the year 9999: no clock is beyond that, or before 1970. */
#define CLOCK_MAX_US INT64_C(253402300800000000)

/* A command that the server told of. */
struct learned {
    struct specified_command told;
    const struct command *renamed; /* the one of our own table that it is, under another name; or NULL */
};

struct server_info {
    struct control *control;
    uint32_t redis_version;
    int64_t clock_offset_us;               /* INT64_MIN: not known */
    int64_t clock_base_us;                 /* Redis' clock minus our monotonic one, if that is known */
    int64_t clock_asked_us;                /* by the monotonic one */
    int64_t calendar_us;                   /* our calendar minus the monotonic clock when that was asked */
    server_info_scripts_callback *scripts; /* NULL: nobody is told */
    void *scripts_context;
    struct learned **commands;
    size_t count;
    size_t capacity;
    bool listed;     /* the server has told all its commands; those of our own table are … */
    bool *has_known; /* … by command_index(), those that it has */
};

static struct slice text_of(const redisReply *reply)
{
    bool is_text = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;

    return is_text ? (struct slice){reply->str, reply->len} : (struct slice){"", 0};
}

/* Of a reply that is an error, or none that was asked for; NULL: there is none, for that reason. */
static const char *error_of(const redisReply *reply, const char *why)
{
    return reply == NULL ? why : reply->str != NULL ? reply->str : "what it answers is something else";
}

/* ---- version ---- */

static void on_info(void *context, const redisReply *reply, const char *why)
{
    static const char field[] = "redis_version:";
    struct server_info *server_info = context;
    unsigned major = 0, minor = 0, patch = 0;

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        log_info("learn", "Redis does not tell its version: %s", error_of(reply, why));
        return;
    }
    const char *found = strstr(reply->str, field);
    if (found != NULL && sscanf(found + sizeof field - 1, "%u.%u.%u", &major, &minor, &patch) >= 2) {
        server_info->redis_version = (major & 0xff) << 16 | (minor & 0xff) << 8 | (patch & 0xff);
    }
}

/* ---- scripts ---- */

/* What Redis says of scripts. Errors that pass say nothing: they have codes of their own (LOADING), or are those of a
 * Headgate before Redis. Nor do lost calls. */
static void tell_scripts(const struct server_info *server_info, const redisReply *reply, const char *why)
{
    bool failed = reply == NULL || reply->type == REDIS_REPLY_ERROR;
    const char *error = error_of(reply, why);
    bool has_no_code = strncmp(error, "ERR ", 4) == 0 && strncmp(error, "ERR headgate: ", 14) != 0;
    bool refused = failed && reply != NULL && (has_no_code || strncmp(error, "NOPERM ", 7) == 0);

    if (failed && !refused) {
        log_info("learn", "whether scripts work on this Redis was not found out: %s", error);
    } else if (server_info->scripts != NULL) {
        server_info->scripts(server_info->scripts_context, refused ? error : NULL);
    }
}

/* EVALSHA was allowed; EVAL is needed when Redis does not know a script yet, which a restart may bring any time. */
static void on_eval(void *context, const redisReply *reply, const char *why)
{
    tell_scripts(context, reply, why);
}

void server_info_ask_for_scripts(struct server_info *server_info)
{
    static const char *const eval[] = {"EVAL", "return 1", "0"};
    static const size_t lengths[] = {4, 8, 1};

    control_call(server_info->control, 3, eval, lengths, on_eval, server_info);
}

/* ---- clock ---- */

/* Clocks that are set in small steps are set so again and again, which leases do not notice. */
#define CALENDAR_STEP_US 500000

static int64_t calendar_us(void)
{
    return clock_wall_us() - clock_now_us();
}

static void on_clock(void *context, const redisReply *reply, const char *why)
{
    struct server_info *server_info = context;
    int64_t now = clock_now_us();

    tell_scripts(server_info, reply, why);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER || reply->integer < 0 || reply->integer > CLOCK_MAX_US) {
        return;
    }
    int64_t ago = (now - server_info->clock_asked_us) / 2;
    server_info->clock_base_us = reply->integer - (now - ago);
    server_info->clock_offset_us = reply->integer - (clock_wall_us() - ago);
}

static void ask_for_clock(struct server_info *server_info)
{
    server_info->clock_asked_us = clock_now_us();
    server_info->calendar_us = calendar_us();
    control_script(server_info->control, 0, script_find("clock"), false, 0, 0, NULL, NULL, on_clock, server_info);
}

void server_info_tick(struct server_info *server_info)
{
    if (server_info->clock_offset_us != INT64_MIN &&
        llabs(calendar_us() - server_info->calendar_us) > CALENDAR_STEP_US) {
        ask_for_clock(server_info);
    }
}

/* ---- commands ---- */

static bool has_flag(const redisReply *flags, const char *flag)
{
    for (size_t i = 0; flags->type == REDIS_REPLY_ARRAY && i < flags->elements; i++) {
        if (slice_is(text_of(flags->element[i]), flag)) {
            return true;
        }
    }
    return false;
}

/* The nearest one that can be: a module may say that its keys are 0 arguments apart, or further on than any are. */
static int8_t key_position(const redisReply *reply, int8_t least)
{
    return (int8_t)(reply->integer < least ? least : reply->integer > INT8_MAX ? INT8_MAX : reply->integer);
}

static const struct learned *find(const struct server_info *server_info, struct slice name)
{
    for (size_t i = 0; i < server_info->count; i++) {
        if (slice_is_word(name, server_info->commands[i]->told.command.name)) {
            return server_info->commands[i];
        }
    }
    return NULL;
}

const struct command *server_info_find(const struct server_info *server_info, struct slice name)
{
    const struct learned *found = find(server_info, name);

    return found != NULL ? &found->told.command : NULL;
}

const struct command *server_info_renamed(const struct server_info *server_info, struct slice name)
{
    const struct learned *found = server_info->count > 0 ? find(server_info, name) : NULL;

    return found != NULL ? found->renamed : NULL;
}

enum server_info_answer server_info_server_has(const struct server_info *server_info, struct slice name)
{
    const struct command *known = command_find(name);

    if (!server_info->listed) {
        return SERVER_INFO_UNKNOWN;
    }
    bool has =
        known != NULL ? server_info->has_known[command_index(known)] : server_info_find(server_info, name) != NULL;
    return has ? SERVER_INFO_HAS : SERVER_INFO_LACKS;
}

static bool make_room(struct server_info *server_info)
{
    if (server_info->count < server_info->capacity) {
        return true;
    }
    size_t capacity = server_info->capacity == 0 ? 64 : server_info->capacity * 2;
    struct learned **commands = realloc(server_info->commands, capacity * sizeof *commands);
    if (commands == NULL) {
        return false;
    }
    server_info->commands = commands;
    server_info->capacity = capacity;
    return true;
}

/* The seventh and the tenth part of an entry of COMMAND INFO, since Redis 7.0: ACL categories and subcommands. */
static enum command_kind kind_of(const redisReply *entry)
{
    const redisReply *flags = entry->element[2];
    const redisReply *categories = entry->elements > 6 ? entry->element[6] : flags;

    if (has_flag(flags, "blocking")) {
        return COMMAND_BLOCKING;
    }
    /* What Headgate does not know may leave anything behind on the connection that it is about. */
    if (has_flag(flags, "no_auth") || has_flag(flags, "pubsub") || has_flag(flags, "no_multi") ||
        has_flag(categories, "@connection") || has_flag(categories, "@transaction")) {
        return COMMAND_PINNED;
    }
    bool has_subcommands =
        entry->elements > 9 && entry->element[9]->type == REDIS_REPLY_ARRAY && entry->element[9]->elements > 0;
    return has_subcommands ? COMMAND_CONTAINER : COMMAND_ORDINARY;
}

static enum command_keys keys_of(const redisReply *entry, struct command_specs *specs)
{
    bool is_movable = has_flag(entry->element[2], "movablekeys");

    if (is_movable && learned_keys_read(entry, specs)) {
        return COMMAND_KEYS_SPECS;
    }
    return is_movable || learned_keys_of_subcommands(entry) ? COMMAND_KEYS_ASKED : COMMAND_KEYS_RANGE;
}

/* What does not write is taken for a read, as commands of modules may be in no category; it is marked as a guess where
 * Redis does not say that it only reads, as it may call what writes. Of the others those that rules go by, and no part
 * of Headgate that finds the way of a request. */
static uint32_t categories_of(const redisReply *entry)
{
    static const uint32_t told = CATEGORY_DANGEROUS | CATEGORY_FAST | CATEGORY_SLOW;
    const redisReply *flags = entry->element[2];
    const redisReply *list = entry->elements > 6 ? entry->element[6] : flags;
    uint32_t guess = has_flag(flags, "readonly") || has_flag(list, "@read") ? 0 : CATEGORY_GUESSED;
    uint32_t categories = has_flag(flags, "write") ? CATEGORY_WRITE : CATEGORY_READ | guess;

    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i < list->elements; i++) {
        struct slice name = text_of(list->element[i]);
        if (name.length > 1 && name.data[0] == '@') {
            categories |= command_category_find((struct slice){name.data + 1, name.length - 1}) & told;
        }
    }
    return categories;
}

/* One entry of COMMAND INFO: name, arity, flags, first key, last key, step, … The name is that which the command has by
 * nature; asked: the one that the server has given it. */
static bool server_info_one(struct server_info *server_info, const redisReply *entry, struct slice asked)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 6 || server_info->count >= SERVER_INFO_MAX ||
        entry->element[1]->type != REDIS_REPLY_INTEGER || asked.length == 0 || asked.length > SERVER_INFO_NAME_MAX ||
        server_info_find(server_info, asked) != NULL || !make_room(server_info)) {
        return false;
    }
    struct learned *learned = calloc(1, sizeof *learned);
    char *copy = strndup(asked.data, asked.length);
    if (learned == NULL || copy == NULL) {
        free(learned);
        free(copy);
        return false;
    }
    struct command *command = &learned->told.command;
    learned->renamed = command_find(text_of(entry->element[0]));
    command->name = copy;
    command->kind = kind_of(entry);
    command->arity = (int16_t)entry->element[1]->integer;
    command->first_key = key_position(entry->element[3], 0);
    command->last_key = key_position(entry->element[4], INT8_MIN);
    command->key_step = key_position(entry->element[5], 1);
    command->keys = keys_of(entry, &learned->told.specs);
    command->categories = categories_of(entry);
    server_info->commands[server_info->count++] = learned;
    if (learned->renamed != NULL) {
        /* The other name may be a secret. */
        log_debug("learn", "learned another name of %s", learned->renamed->name);
    } else {
        log_debug("learn", "learned command %s", copy);
    }
    return true;
}

static void on_command_info(void *context, const redisReply *reply, const char *why)
{
    (void)why;
    size_t count = reply != NULL && reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
    for (size_t i = 0; i < count && i < SERVER_INFO_BATCH; i++) {
        const redisReply *entry = reply->element[i];
        bool has_name = entry->type == REDIS_REPLY_ARRAY && entry->elements > 0;
        if (has_name && command_find(text_of(entry->element[0])) == NULL) {
            (void)server_info_one(context, entry, text_of(entry->element[0]));
        }
    }
}

static void ask_about(struct server_info *server_info, const struct slice *names, int count)
{
    const char *arguments[SERVER_INFO_BATCH + 2] = {"COMMAND", "INFO"};
    size_t lengths[SERVER_INFO_BATCH + 2] = {7, 4};

    for (int i = 0; i < count; i++) {
        arguments[i + 2] = names[i].data;
        lengths[i + 2] = names[i].length;
    }
    if (count > 0) {
        control_call(server_info->control, count + 2, arguments, lengths, on_command_info, server_info);
    }
}

static void on_command_list(void *context, const redisReply *reply, const char *why)
{
    struct server_info *server_info = context;
    struct slice unknown[SERVER_INFO_BATCH];
    int count = 0;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        /* Before Redis 7.0 there is no COMMAND LIST; such a server has no command that the table lacks, but modules',
         * which stay on exclusive lanes. */
        log_debug("learn", "COMMAND LIST: %s", error_of(reply, why));
        return;
    }
    if (reply->elements > SERVER_INFO_MAX) {
        log_warning("learn", "Redis lists %zu commands, more than any has: it is not believed", reply->elements);
        return;
    }
    memset(server_info->has_known, 0, command_count() * sizeof *server_info->has_known);
    server_info->listed = true;
    for (size_t i = 0; i < reply->elements; i++) {
        struct slice name = text_of(reply->element[i]);
        const struct command *known = command_find(name);
        if (known != NULL) {
            server_info->has_known[command_index(known)] = true;
        }
        if (name.length == 0 || known != NULL || server_info_find(server_info, name) != NULL) {
            continue;
        }
        unknown[count++] = name;
        if (count == SERVER_INFO_BATCH) {
            ask_about(server_info, unknown, count);
            count = 0;
        }
    }
    ask_about(server_info, unknown, count);
}

/* ---- a single name ---- */

struct lookup {
    struct server_info *server_info;
    server_info_lookup_callback *done;
    void *context;
    size_t length;
    char name[SERVER_INFO_NAME_MAX];
};

static enum server_info_lookup read_lookup(struct lookup *lookup, const redisReply *reply)
{
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 1) {
        return SERVER_INFO_LOOKUP_UNSAID;
    }
    if (reply->element[0]->type == REDIS_REPLY_NIL) {
        return SERVER_INFO_LOOKUP_ABSENT;
    }
    struct slice name = {lookup->name, lookup->length};
    bool is_known = server_info_find(lookup->server_info, name) != NULL ||
                    server_info_one(lookup->server_info, reply->element[0], name);
    return is_known ? SERVER_INFO_LOOKUP_FOUND : SERVER_INFO_LOOKUP_UNSAID;
}

static void on_lookup(void *context, const redisReply *reply, const char *why)
{
    struct lookup *lookup = context;

    (void)why;
    lookup->done(lookup->context, read_lookup(lookup, reply));
    free(lookup);
}

void server_info_look_up(struct server_info *server_info, struct profile *profile, struct slice name,
                         server_info_lookup_callback *done, void *context)
{
    const char *const arguments[] = {"COMMAND", "INFO", name.data};
    const size_t lengths[] = {7, 4, name.length};
    struct lookup *lookup = malloc(sizeof *lookup);

    if (lookup == NULL) {
        done(context, SERVER_INFO_LOOKUP_UNSAID);
        return;
    }
    assert(name.length <= SERVER_INFO_NAME_MAX);
    *lookup = (struct lookup){.server_info = server_info, .done = done, .context = context, .length = name.length};
    memcpy(lookup->name, name.data, name.length);
    control_call_as(server_info->control, profile, 3, arguments, lengths, on_lookup, lookup);
}

/* ---- life ---- */

void server_info_again(struct server_info *server_info)
{
    static const char *const info[] = {"INFO", "server"};
    static const char *const list[] = {"COMMAND", "LIST"};
    static const size_t info_lengths[] = {4, 6};
    static const size_t list_lengths[] = {7, 4};

    control_call(server_info->control, 2, info, info_lengths, on_info, server_info);
    control_call(server_info->control, 2, list, list_lengths, on_command_list, server_info);
    ask_for_clock(server_info);
}

void server_info_tell_scripts(struct server_info *server_info, server_info_scripts_callback *told, void *context)
{
    server_info->scripts = told;
    server_info->scripts_context = context;
}

struct server_info *server_info_new(struct control *control)
{
    struct server_info *server_info = calloc(1, sizeof *server_info);

    if (server_info == NULL) {
        return NULL;
    }
    server_info->control = control;
    server_info->clock_offset_us = INT64_MIN;
    server_info->has_known = calloc(command_count(), sizeof *server_info->has_known);
    if (server_info->has_known == NULL) {
        free(server_info);
        return NULL;
    }
    return server_info;
}

void server_info_free(struct server_info *server_info)
{
    for (size_t i = 0; i < server_info->count; i++) {
        free((char *)(uintptr_t)server_info->commands[i]->told.command.name);
        free(server_info->commands[i]);
    }
    free(server_info->commands);
    free(server_info->has_known);
    free(server_info);
}

uint32_t server_info_redis_version(const struct server_info *server_info)
{
    return server_info->redis_version;
}

int64_t server_info_clock_offset_us(const struct server_info *server_info)
{
    return server_info->clock_offset_us;
}

int64_t server_info_redis_us(const struct server_info *server_info)
{
    return server_info->clock_offset_us != INT64_MIN ? clock_now_us() + server_info->clock_base_us : clock_wall_us();
}
