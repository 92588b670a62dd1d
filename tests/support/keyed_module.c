/*
 * A module of Redis with commands whose keys first, last and step cannot say, for tests of what Headgate learns of
 * them. They reply with the number of their arguments. What is declared here is of redismodule.h, which is not
 * installed everywhere.
 */
#include <stddef.h>
#include <stdint.h>

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
} api;

static int run(void *context, void **arguments, int count)
{
    (void)arguments;
    return api.reply_integer(context, count);
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
        get("RedisModule_ReplyWithLongLong", (void *)&api.reply_integer) != 0) {
        return 1;
    }
    api.set_attributes(context, "keyed", 1, 1);
    return add(context, "keyed.counted", counted) != 0 || add(context, "keyed.behindword", behind_word) != 0;
}
