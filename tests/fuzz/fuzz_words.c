/*
 * Fuzzes what Headgate makes of the words of a request, against a model of what Redis' own parsers make of them. The
 * model works as Redis does: on texts that end at their first NUL, with strcasecmp(), in the order of its parsers. The
 * input is the command's arguments, with line ends between them.
 *
 * What must hold, for each request that Redis would not refuse for its syntax:
 * - Headgate sees the keys that Redis touches, all of them and no others, and whether it blocks;
 * - a name, or that of a subcommand, is hidden just if it has a NUL;
 * - an option's word and a number are to Headgate what they are to Redis.
 *
 * Source: Redis 7.0, t_stream.c (xreadCommand), sort.c (sortCommandGeneric), geo.c (georadiusGeneric), cluster.c
 * (migrateCommand), eval.c (evalGenericCommand), t_zset.c (zunionInterDiffGenericCommand), util.c (string2ll).
 */
#include "client/client_private.h"
#include "fuzz_cut.h"
#include "resp/word.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARGUMENTS_MAX 24
#define KEYS_MAX 32

struct typed {
    struct slice arguments[ARGUMENTS_MAX];
    const char *texts[ARGUMENTS_MAX]; /* the same, as Redis' parsers see them */
    int count;
    char *frame;
    size_t frame_length;
};

/* The places of keys. */
struct keys {
    int places[KEYS_MAX];
    int count;
};

/* ---- the model ---- */

static bool is(const struct typed *request, int index, const char *word)
{
    return strcasecmp(request->texts[index], word) == 0;
}

static void add_key(struct keys *keys, int place)
{
    require(keys->count < KEYS_MAX);
    keys->places[keys->count++] = place;
}

static void add_keys(struct keys *keys, int first, int count)
{
    for (int i = 0; i < count; i++) {
        add_key(keys, first + i);
    }
}

/* strtoll() and what it takes that Redis does not. */
static bool parse_number(struct slice text, long long *value)
{
    char copy[32], again[32], *end;

    if (text.length == 0 || text.length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    errno = 0;
    *value = strtoll(copy, &end, 10);
    snprintf(again, sizeof again, "%lld", *value);
    return errno == 0 && end == copy + text.length && strcmp(copy, again) == 0;
}

/* A count of keys as EVAL and ZUNIONSTORE want it: 0 if there is none. */
static int parse_count(const struct typed *request, int index, int left, int least)
{
    long long value;

    return parse_number(request->arguments[index], &value) && value >= least && value <= left ? (int)value : -1;
}

/* Each gives false where Redis answers with an error of syntax. */
static bool parse_streams(const struct typed *request, bool is_group, bool *blocks, struct keys *keys)
{
    int streams = 0;
    bool has_group = false;
    long long value;

    for (int i = 1; i < request->count && streams == 0; i++) {
        int more = request->count - i - 1;
        if (is(request, i, "block") && more > 0) {
            *blocks = true;
            if (!parse_number(request->arguments[++i], &value) || value < 0) {
                return false;
            }
        } else if (is(request, i, "count") && more > 0) {
            if (!parse_number(request->arguments[++i], &value)) {
                return false;
            }
        } else if (is(request, i, "streams") && more > 0) {
            streams = i + 1;
        } else if (is(request, i, "group") && more >= 2 && is_group) {
            has_group = true;
            i += 2;
        } else if (!(is(request, i, "noack") && is_group)) {
            return false;
        }
    }
    int left = request->count - streams;
    if (streams == 0 || left % 2 != 0 || has_group != is_group) {
        return false;
    }
    add_keys(keys, streams, left / 2);
    return true;
}

static bool parse_sort(const struct typed *request, struct keys *keys)
{
    bool may_store = !is(request, 0, "sort_ro");
    int stored = 0;
    long long value;

    for (int i = 2; i < request->count; i++) {
        int left = request->count - i - 1;
        if (is(request, i, "limit") && left >= 2) {
            if (!parse_number(request->arguments[i + 1], &value) || !parse_number(request->arguments[i + 2], &value)) {
                return false;
            }
            i += 2;
        } else if (may_store && is(request, i, "store") && left >= 1) {
            stored = ++i;
        } else if ((is(request, i, "by") || is(request, i, "get")) && left >= 1) {
            i++;
        } else if (!is(request, i, "asc") && !is(request, i, "desc") && !is(request, i, "alpha")) {
            return false;
        }
    }
    add_key(keys, 1);
    if (stored > 0) {
        add_key(keys, stored);
    }
    return true;
}

static bool parse_migrate(const struct typed *request, struct keys *keys)
{
    int first = 3, count = 1;

    for (int i = 6; i < request->count && first == 3; i++) {
        int more = request->count - i - 1;
        if (is(request, i, "auth") && more >= 1) {
            i++;
        } else if (is(request, i, "auth2") && more >= 2) {
            i += 2;
        } else if (is(request, i, "keys")) {
            if (request->arguments[3].length != 0) {
                return false;
            }
            first = i + 1;
            count = more;
        } else if (!is(request, i, "copy") && !is(request, i, "replace")) {
            return false;
        }
    }
    add_keys(keys, first, count);
    return true;
}

static bool parse_radius(const struct typed *request, int options, struct keys *keys)
{
    static const char *const flags[] = {"withdist", "withhash", "withcoord", "any", "asc", "desc"};
    int stored = 0;

    for (int i = options; i < request->count; i++) {
        bool has_more = i + 1 < request->count;
        bool is_flag = false;
        for (size_t n = 0; n < sizeof flags / sizeof flags[0]; n++) {
            is_flag = is_flag || is(request, i, flags[n]);
        }
        long long value;
        if (is(request, i, "count") && has_more) {
            if (!parse_number(request->arguments[++i], &value)) {
                return false;
            }
        } else if ((is(request, i, "store") || is(request, i, "storedist")) && has_more) {
            stored = ++i;
        } else if (!is_flag) {
            return false;
        }
    }
    add_key(keys, 1);
    if (stored > 0) {
        add_key(keys, stored);
    }
    return true;
}

static bool parse_counted(const struct typed *request, int place, int least, struct keys *keys)
{
    int count = parse_count(request, place, request->count - place - 1, least);

    if (count < 0) {
        return false;
    }
    add_keys(keys, place + 1, count);
    return true;
}

static bool parse(const struct typed *request, const char *name, bool *blocks, struct keys *keys)
{
    if (strcmp(name, "xread") == 0 || strcmp(name, "xreadgroup") == 0) {
        return parse_streams(request, strcmp(name, "xreadgroup") == 0, blocks, keys);
    }
    if (strcmp(name, "sort") == 0 || strcmp(name, "sort_ro") == 0) {
        return parse_sort(request, keys);
    }
    if (strcmp(name, "migrate") == 0) {
        return parse_migrate(request, keys);
    }
    if (strcmp(name, "georadius") == 0 || strcmp(name, "georadiusbymember") == 0) {
        return parse_radius(request, strcmp(name, "georadius") == 0 ? 6 : 5, keys);
    }
    if (strcmp(name, "eval") == 0) {
        return parse_counted(request, 2, 0, keys);
    }
    if (strcmp(name, "zunion") == 0) {
        return parse_counted(request, 1, 1, keys);
    }
    if (strcmp(name, "zunionstore") == 0) {
        add_key(keys, 1);
        return parse_counted(request, 2, 1, keys);
    }
    return false;
}

/* ---- Headgate beside it ---- */

static bool visit(void *context, struct slice key, uint32_t index)
{
    (void)key;
    add_key(context, (int)index);
    return true;
}

static void check_keys(const struct typed *request, const struct command *command)
{
    struct slice frame = {request->frame, request->frame_length};
    struct keys expected = {.count = 0}, found = {.count = 0};
    bool blocks = command->kind == COMMAND_BLOCKING;

    int least = command->arity < 0 ? -command->arity : command->arity;
    bool is_sound = request->count >= least && parse(request, command->name, &blocks, &expected);
    command_visit_keys(command, frame, visit, &found);
    bool seen = command_blocks(command, frame);
    if (!is_sound) {
        return;
    }
    require(seen == blocks);
    require(found.count == expected.count);
    for (int i = 0; i < found.count; i++) {
        require(found.places[i] == expected.places[i]);
    }
}

static void check_names(const struct typed *request, const struct command *command, const struct resp_command *framed)
{
    struct slice frame = {request->frame, request->frame_length};
    bool has_nul = strlen(request->texts[0]) != request->arguments[0].length;

    require(command == NULL || !has_nul);
    require(command == NULL || strcasecmp(command->name, request->texts[0]) == 0);
    if (command != NULL && command_has_subcommands(command) && request->count > 1) {
        has_nul = strlen(request->texts[1]) != request->arguments[1].length;
    }
    require(client_name_is_hidden(command, framed, frame) == has_nul);
}

static void check_words(const struct typed *request)
{
    static const char *const words[] = {"auth", "setname", "block", "streams", "store",
                                        "keys", "skip",    "off",   "on",      ""};

    for (int i = 0; i < request->count; i++) {
        long long expected;
        int64_t found;
        bool is_number = parse_number(request->arguments[i], &expected);
        require(word_integer(request->arguments[i], &found) == is_number && (!is_number || found == expected));
        for (size_t n = 0; n < sizeof words / sizeof words[0]; n++) {
            require(word_is(request->arguments[i], words[n]) == is(request, i, words[n]));
        }
    }
}

/* ---- the input ---- */

static void take_arguments(struct typed *request, const char *data, size_t size)
{
    const char *end = data + size;

    while (request->count < ARGUMENTS_MAX && data <= end) {
        const char *line = size > 0 ? memchr(data, '\n', (size_t)(end - data)) : NULL;
        size_t length = (size_t)((line != NULL ? line : end) - data);
        request->arguments[request->count] = (struct slice){data, length};
        request->texts[request->count++] = strndup(data, length);
        data += length + 1;
    }
}

static void write_frame(struct typed *request, size_t size)
{
    char *next = malloc(size + 32 * (ARGUMENTS_MAX + 1));

    require(next != NULL);
    request->frame = next;
    next += sprintf(next, "*%d\r\n", request->count);
    for (int i = 0; i < request->count; i++) {
        next += sprintf(next, "$%zu\r\n", request->arguments[i].length);
        memcpy(next, request->arguments[i].data, request->arguments[i].length);
        next += request->arguments[i].length;
        next += sprintf(next, "\r\n");
    }
    request->frame_length = (size_t)(next - request->frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct typed request = {.count = 0};
    struct resp_command framed = {0};
    size_t taken;

    if (size == 0) {
        return 0;
    }
    take_arguments(&request, (const char *)data, size);
    write_frame(&request, size);
    require(resp_command_feed(&framed, request.frame, request.frame_length, UINT64_MAX, &taken) == RESP_DONE);
    const struct command *command = command_find(request.arguments[0]);
    check_names(&request, command, &framed);
    check_words(&request);
    if (command != NULL) {
        check_keys(&request, command);
    }
    for (int i = 0; i < request.count; i++) {
        free((char *)(uintptr_t)request.texts[i]);
    }
    free(request.frame);
    return 0;
}
