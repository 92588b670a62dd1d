/*
 * A module of Redis with commands whose keys first, last and step cannot say, for tests of what Headgate learns of
 * them. They reply with the number of their arguments. Some specify their keys; others find them by themselves, behind
 * each word KEY, or have subcommands. KEYED.INCR is INCR of the last such key. What is declared here is of
 * redismodule.h, which is not installed everywhere.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int RedisModule_OnLoad(void *context, void **arguments, int count);

/* redismodule.h, API version 1. */
enum { BEGIN_INDEX = 2, BEGIN_KEYWORD = 3, FIND_RANGE = 2, FIND_COUNTED = 3, KEY_READ = 1 << 0, KEY_ACCESS = 1 << 4 };

struct key_spec {
    const char *notes;
    uint64_t flags;
    int begin_type;
    union {
        int index;
        struct {
            const char *keyword;
            int from;
        } keyword;
    } begin;
    int find_type;
    struct {
        int last_or_count_at;
        int step_or_first;
        int limit_or_step;
    } find;
};

struct info_version {
    int version;
    size_t size_of_history, size_of_spec, size_of_argument;
};

struct command_info {
    const struct info_version *version;
    const char *summary, *complexity, *since;
    const void *history;
    const char *tips;
    int arity;
    struct key_spec *specs;
    const void *arguments;
};

typedef int api_get(const char *name, void *place);
typedef int command_function(void *context, void **arguments, int count);

static struct {
    int (*create)(void *context, const char *name, command_function *run, const char *flags, int first, int last,
                  int step);
    void *(*get_command)(void *context, const char *name);
    int (*set_info)(void *command, const struct command_info *info);
    void (*set_attributes)(void *context, const char *name, int version, int api);
    int (*reply_integer)(void *context, long long number);
    int (*asks_for_keys)(void *context);
    void (*has_key)(void *context, int place);
    const char *(*text_of)(const void *string, size_t *length);
    void *(*call)(void *context, const char *name, const char *format, ...);
    int (*reply_call)(void *context, void *reply);
    int (*create_subcommand)(void *parent, const char *name, command_function *run, const char *flags, int first,
                             int last, int step);
} api;

static int run(void *context, void **arguments, int count)
{
    (void)arguments;
    return api.reply_integer(context, count);
}

/* Calls for each key, which stands behind a word KEY; the place of the last one, 0: there is none. */
static int find_keys(void *context, void **arguments, int count, void (*found)(void *context, int place))
{
    int last = 0;

    for (int place = 2; place < count; place++) {
        size_t length;
        const char *text = api.text_of(arguments[place - 1], &length);
        if (length == 3 && memcmp(text, "KEY", 3) == 0) {
            last = place;
            if (found != NULL) {
                found(context, place);
            }
        }
    }
    return last;
}

static int run_found(void *context, void **arguments, int count)
{
    if (api.asks_for_keys(context)) {
        (void)find_keys(context, arguments, count, api.has_key);
        return 0;
    }
    return api.reply_integer(context, count);
}

static int run_incr(void *context, void **arguments, int count)
{
    if (api.asks_for_keys(context)) {
        return run_found(context, arguments, count);
    }
    int place = find_keys(context, arguments, count, NULL);
    return place > 0 ? api.reply_call(context, api.call(context, "INCR", "!s", arguments[place]))
                     : api.reply_integer(context, 0);
}

/* 0: they are there. */
static int add_those_that_find(void *context)
{
    return api.create(context, "keyed.found", run_found, "readonly getkeys-api", 0, 0, 0) != 0 ||
           api.create(context, "keyed.incr", run_incr, "write getkeys-api", 0, 0, 0) != 0 ||
           api.create(context, "keyed.called", run_incr, "getkeys-api", 0, 0, 0) != 0;
}

/* 0: they are there. */
static int add_subcommands(void *context)
{
    if (api.create(context, "keyed.sub", NULL, "readonly", 0, 0, 0) != 0) {
        return 1;
    }
    void *parent = api.get_command(context, "keyed.sub");
    return api.create_subcommand(parent, "get", run, "readonly", 2, 2, 1) != 0 ||
           api.create_subcommand(parent, "list", run, "readonly", 0, 0, 0) != 0;
}

/* 0: it is there. */
static int add(void *context, const char *name, struct key_spec *specs)
{
    const struct info_version version = {1, 2 * sizeof(void *), sizeof *specs, 0};
    const struct command_info info = {.version = &version, .specs = specs};

    if (api.create(context, name, run, "readonly", 0, 0, 0) != 0) {
        return 1;
    }
    return api.set_info(api.get_command(context, name), &info);
}

int RedisModule_OnLoad(void *context, void **arguments, int count)
{
    /* The context begins with it. */
    api_get *get = *(api_get **)context;
    struct key_spec counted[2] = {{.flags = KEY_READ | KEY_ACCESS,
                                   .begin_type = BEGIN_INDEX,
                                   .begin.index = 2,
                                   .find_type = FIND_COUNTED,
                                   .find = {0, 1, 1}}};
    struct key_spec behind_word[2] = {{.flags = KEY_READ | KEY_ACCESS,
                                       .begin_type = BEGIN_KEYWORD,
                                       .begin.keyword = {"KEYS", 1},
                                       .find_type = FIND_RANGE,
                                       .find = {-1, 1, 0}}};

    (void)arguments;
    (void)count;
    if (get("RedisModule_SetModuleAttribs", (void *)&api.set_attributes) != 0 ||
        get("RedisModule_CreateCommand", (void *)&api.create) != 0 ||
        get("RedisModule_GetCommand", (void *)&api.get_command) != 0 ||
        get("RedisModule_SetCommandInfo", (void *)&api.set_info) != 0 ||
        get("RedisModule_ReplyWithLongLong", (void *)&api.reply_integer) != 0 ||
        get("RedisModule_IsKeysPositionRequest", (void *)&api.asks_for_keys) != 0 ||
        get("RedisModule_KeyAtPos", (void *)&api.has_key) != 0 ||
        get("RedisModule_StringPtrLen", (void *)&api.text_of) != 0 || get("RedisModule_Call", (void *)&api.call) != 0 ||
        get("RedisModule_ReplyWithCallReply", (void *)&api.reply_call) != 0 ||
        get("RedisModule_CreateSubcommand", (void *)&api.create_subcommand) != 0) {
        return 1;
    }
    api.set_attributes(context, "keyed", 1, 1);
    return add(context, "keyed.counted", counted) != 0 || add(context, "keyed.behindword", behind_word) != 0 ||
           add_those_that_find(context) != 0 || add_subcommands(context) != 0 ||
           /* By its word keys are 0 arguments apart. */
           api.create(context, "keyed.still", run, "readonly", 1, 1, 0) != 0;
}
