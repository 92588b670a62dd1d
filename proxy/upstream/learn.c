#include "upstream/learn.h"

#include "base/log.h"
#include "resp/word.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* More names than this are not asked about: no server has so many. */
#define LEARN_MAX 4096
/* Names in one COMMAND INFO, so that no answer of it keeps clients waiting. */
#define LEARN_BATCH 32

/* A command that the server told of. */
struct learned {
    struct command command;
    const struct command *renamed; /* the one of our own table that it is, under another name; or NULL */
};

struct learn {
    struct control *control;
    uint32_t redis_version;
    int64_t clock_offset_us;
    int64_t clock_asked_us;
    learn_scripts_callback *scripts; /* NULL: nobody is told */
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

/* ---- version ---- */

static void on_info(void *context, const redisReply *reply, const char *why)
{
    static const char field[] = "redis_version:";
    struct learn *learn = context;
    unsigned major = 0, minor = 0, patch = 0;

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        log_info("learn", "Redis does not tell its version: %s",
                 reply != NULL && reply->str != NULL ? reply->str : why);
        return;
    }
    const char *found = strstr(reply->str, field);
    if (found != NULL && sscanf(found + sizeof field - 1, "%u.%u.%u", &major, &minor, &patch) >= 2) {
        learn->redis_version = (major & 0xff) << 16 | (minor & 0xff) << 8 | (patch & 0xff);
    }
}

/* ---- scripts ---- */

/* What Redis says of scripts. Errors that pass (it is loading, or busy) and lost calls say nothing. */
static void tell_scripts(const struct learn *learn, const redisReply *reply, const char *why)
{
    bool failed = reply == NULL || reply->type == REDIS_REPLY_ERROR;
    const char *error = reply != NULL && reply->str != NULL ? reply->str : why;
    bool refused = failed && reply != NULL &&
                   (strncmp(error, "NOPERM", 6) == 0 || strncmp(error, "ERR unknown command", 19) == 0 ||
                    strstr(error, "can't run this command") != NULL);

    if (failed && !refused) {
        log_info("learn", "whether scripts work on this Redis was not found out: %s", error);
    } else if (learn->scripts != NULL) {
        learn->scripts(learn->scripts_context, refused ? error : NULL);
    }
}

/* EVALSHA was allowed; EVAL is needed when Redis does not know a script yet, which a restart may bring any time. */
static void on_eval(void *context, const redisReply *reply, const char *why)
{
    tell_scripts(context, reply, why);
}

void learn_ask_for_scripts(struct learn *learn)
{
    static const char *const eval[] = {"EVAL", "return 1", "0"};
    static const size_t lengths[] = {4, 8, 1};

    control_call(learn->control, 3, eval, lengths, on_eval, learn);
}

/* ---- clock ---- */

static void on_clock(void *context, const redisReply *reply, const char *why)
{
    struct learn *learn = context;
    int64_t now = clock_wall_us();

    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER) {
        tell_scripts(learn, reply, why);
        return;
    }
    tell_scripts(learn, reply, why);
    learn->clock_offset_us = reply->integer - (learn->clock_asked_us + (now - learn->clock_asked_us) / 2);
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

static int8_t key_position(const redisReply *reply)
{
    return reply->integer >= INT8_MIN && reply->integer <= INT8_MAX ? (int8_t)reply->integer : 0;
}

static const struct learned *find(const struct learn *learn, struct slice name)
{
    for (size_t i = 0; i < learn->count; i++) {
        if (slice_is_word(name, learn->commands[i]->command.name)) {
            return learn->commands[i];
        }
    }
    return NULL;
}

const struct command *learn_find(const struct learn *learn, struct slice name)
{
    const struct learned *found = find(learn, name);

    return found != NULL ? &found->command : NULL;
}

const struct command *learn_renamed(const struct learn *learn, struct slice name)
{
    const struct learned *found = learn->count > 0 ? find(learn, name) : NULL;

    return found != NULL ? found->renamed : NULL;
}

enum learn_answer learn_server_has(const struct learn *learn, struct slice name)
{
    const struct command *known = command_find(name);

    if (!learn->listed) {
        return LEARN_UNKNOWN;
    }
    bool has = known != NULL ? learn->has_known[command_index(known)] : learn_find(learn, name) != NULL;
    return has ? LEARN_HAS : LEARN_LACKS;
}

static bool make_room(struct learn *learn)
{
    if (learn->count < learn->capacity) {
        return true;
    }
    size_t capacity = learn->capacity == 0 ? 64 : learn->capacity * 2;
    struct learned **commands = realloc(learn->commands, capacity * sizeof *commands);
    if (commands == NULL) {
        return false;
    }
    learn->commands = commands;
    learn->capacity = capacity;
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
        return COMMAND_STICKY;
    }
    bool has_subcommands =
        entry->elements > 9 && entry->element[9]->type == REDIS_REPLY_ARRAY && entry->element[9]->elements > 0;
    return has_subcommands ? COMMAND_CONTAINER : COMMAND_ORDINARY;
}

/* One entry of COMMAND INFO: name, arity, flags, first key, last key, step, … The name is that which the command has by
 * nature; asked: the one that the server has given it. */
static bool learn_one(struct learn *learn, const redisReply *entry, struct slice asked)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 6 || learn->count >= LEARN_MAX ||
        entry->element[1]->type != REDIS_REPLY_INTEGER || learn_find(learn, asked) != NULL || !make_room(learn)) {
        return false;
    }
    struct learned *learned = calloc(1, sizeof *learned);
    char *copy = strndup(asked.data, asked.length);
    if (learned == NULL || copy == NULL) {
        free(learned);
        free(copy);
        return false;
    }
    struct command *command = &learned->command;
    const redisReply *flags = entry->element[2];
    learned->renamed = command_find(text_of(entry->element[0]));
    command->name = copy;
    command->kind = kind_of(entry);
    command->arity = (int16_t)entry->element[1]->integer;
    command->first_key = key_position(entry->element[3]);
    command->last_key = key_position(entry->element[4]);
    command->key_step = key_position(entry->element[5]);
    command->categories = has_flag(flags, "write") ? CATEGORY_WRITE : CATEGORY_READ;
    learn->commands[learn->count++] = learned;
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
    for (size_t i = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *entry = reply->element[i];
        bool has_name = entry->type == REDIS_REPLY_ARRAY && entry->elements > 0;
        if (has_name && command_find(text_of(entry->element[0])) == NULL) {
            (void)learn_one(context, entry, text_of(entry->element[0]));
        }
    }
}

static void ask_about(struct learn *learn, const struct slice *names, int count)
{
    const char *arguments[LEARN_BATCH + 2] = {"COMMAND", "INFO"};
    size_t lengths[LEARN_BATCH + 2] = {7, 4};

    for (int i = 0; i < count; i++) {
        arguments[i + 2] = names[i].data;
        lengths[i + 2] = names[i].length;
    }
    if (count > 0) {
        control_call(learn->control, count + 2, arguments, lengths, on_command_info, learn);
    }
}

static void on_command_list(void *context, const redisReply *reply, const char *why)
{
    struct learn *learn = context;
    struct slice unknown[LEARN_BATCH];
    int count = 0;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        /* Before Redis 7.0 there is no COMMAND LIST; such a server has no command that the table lacks, but modules',
         * which stay on exclusive lanes. */
        log_debug("learn", "COMMAND LIST: %s", reply != NULL && reply->str != NULL ? reply->str : why);
        return;
    }
    memset(learn->has_known, 0, command_count() * sizeof *learn->has_known);
    learn->listed = true;
    for (size_t i = 0; i < reply->elements; i++) {
        struct slice name = text_of(reply->element[i]);
        const struct command *known = command_find(name);
        if (known != NULL) {
            learn->has_known[command_index(known)] = true;
        }
        if (name.length == 0 || known != NULL || learn_find(learn, name) != NULL) {
            continue;
        }
        unknown[count++] = name;
        if (count == LEARN_BATCH) {
            ask_about(learn, unknown, count);
            count = 0;
        }
    }
    ask_about(learn, unknown, count);
}

/* ---- a single name ---- */

struct lookup {
    struct learn *learn;
    learn_lookup_callback *done;
    void *context;
    size_t length;
    char name[LEARN_NAME_MAX];
};

static enum learn_lookup read_lookup(struct lookup *lookup, const redisReply *reply)
{
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 1) {
        return LEARN_LOOKUP_UNSAID;
    }
    if (reply->element[0]->type == REDIS_REPLY_NIL) {
        return LEARN_LOOKUP_ABSENT;
    }
    struct slice name = {lookup->name, lookup->length};
    bool is_known = learn_find(lookup->learn, name) != NULL || learn_one(lookup->learn, reply->element[0], name);
    return is_known ? LEARN_LOOKUP_FOUND : LEARN_LOOKUP_UNSAID;
}

static void on_lookup(void *context, const redisReply *reply, const char *why)
{
    struct lookup *lookup = context;

    (void)why;
    lookup->done(lookup->context, read_lookup(lookup, reply));
    free(lookup);
}

void learn_look_up(struct learn *learn, struct profile *profile, struct slice name, learn_lookup_callback *done,
                   void *context)
{
    const char *const arguments[] = {"COMMAND", "INFO", name.data};
    const size_t lengths[] = {7, 4, name.length};
    struct lookup *lookup = malloc(sizeof *lookup);

    if (lookup == NULL) {
        done(context, LEARN_LOOKUP_UNSAID);
        return;
    }
    assert(name.length <= LEARN_NAME_MAX);
    *lookup = (struct lookup){.learn = learn, .done = done, .context = context, .length = name.length};
    memcpy(lookup->name, name.data, name.length);
    control_call_as(learn->control, profile, 3, arguments, lengths, on_lookup, lookup);
}

/* ---- life ---- */

void learn_again(struct learn *learn)
{
    static const char *const info[] = {"INFO", "server"};
    static const char *const list[] = {"COMMAND", "LIST"};
    static const size_t info_lengths[] = {4, 6};
    static const size_t list_lengths[] = {7, 4};

    control_call(learn->control, 2, info, info_lengths, on_info, learn);
    control_call(learn->control, 2, list, list_lengths, on_command_list, learn);
    learn->clock_asked_us = clock_wall_us();
    control_script(learn->control, 0, script_find("clock"), 0, 0, NULL, NULL, on_clock, learn);
}

void learn_tell_scripts(struct learn *learn, learn_scripts_callback *told, void *context)
{
    learn->scripts = told;
    learn->scripts_context = context;
}

struct learn *learn_new(struct control *control)
{
    struct learn *learn = calloc(1, sizeof *learn);

    if (learn == NULL) {
        return NULL;
    }
    learn->control = control;
    learn->clock_offset_us = INT64_MIN;
    learn->has_known = calloc(command_count(), sizeof *learn->has_known);
    if (learn->has_known == NULL) {
        free(learn);
        return NULL;
    }
    return learn;
}

void learn_free(struct learn *learn)
{
    for (size_t i = 0; i < learn->count; i++) {
        free((char *)(uintptr_t)learn->commands[i]->command.name);
        free(learn->commands[i]);
    }
    free(learn->commands);
    free(learn->has_known);
    free(learn);
}

uint32_t learn_redis_version(const struct learn *learn)
{
    return learn->redis_version;
}

int64_t learn_clock_offset_us(const struct learn *learn)
{
    return learn->clock_offset_us;
}
